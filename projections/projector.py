"""Loads entries into tables in order, each batch with its position in one transaction.

Rows go in column by column: unnested list parameters took 226,000 rows a second where executemany
took 1,600, and unlike numpy arrays they do not turn NaN into NULL.

Trust: whoever calls has verified the entries, or knows that it has not; malformed bodies raise
ProjectionError naming the index.
I/O: the DuckDB connection; this package's own sources.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

import duckdb

from aggregates import canonical, signals
from aggregates.audit import REVISION
from aggregates.comparison import ASKING, COMPUTED, NEUTRAL, OWN_POLICIES
from aggregates.playbook import DIRECTIONS
from aggregates.rulebook import RULE_CLASSES
from aggregates.rules import FIRST_RULES
from aggregates.strategy import CLASSES, PHASES
from aggregates.violations import LISTED
from ledger import bodies
from ledger.verification.verified_entries import VerifiedEntry
from projections.columns import declared, item_of, set_aside, tables_of
from projections.errors import ProjectionError, TableError, is_no_room
from projections.identity import read_position
from projections.mapping import EVENTS, SCHEMA, TABLES, TABLES_SQL, Columns, Item
from projections.rows import ROWS
from projections.template import copied

BATCH_BYTES = 1 << 20  # of bodies: some 30 MB of Python values
_VIEWS = tuple(
    SCHEMA.with_name(f"{name}.sql")
    for name in ("verdicts", "claims", "views", "hygiene", "curation", "drift", "bisection")
)
_CODE = tuple(
    SCHEMA.with_name(f"{name}.py")
    for name in ("columns", "mapping", "projector", "rows", "stretches")
)
_AS_OF = " WHERE idx <= COALESCE(getvariable('as_of'), 9223372036854775807)"
_COMMENT = re.compile(r"^COMMENT ON .*?';\n", re.DOTALL | re.MULTILINE)
_EVERYWHERE = re.compile(r"^COMMENT ON COLUMN \*\.(\w+) IS '(.*)';\n", re.MULTILINE)
_DEFINED = re.compile(r"^CREATE (?:TABLE|VIEW) (\w+).*?;$", re.DOTALL | re.MULTILINE)
# A column's definition, or its place in a view's SELECT, with what it means behind it.
_MEANING = re.compile(
    r'^ +(?:.*?[ .])??"?(\w+)"?(?: [A-Z]+(?: NOT NULL)?)?,?  -- (.+)$', re.MULTILINE
)
_NOTE = re.compile(r'^ *"""[\s\S]*?"""$|(?:^| ) *(?:--|#) .*$', re.MULTILINE)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def schema_hash() -> str:
    """Return the SHA-256 over everything that decides what the tables hold.

    Comments, docstrings and line breaks do not: others make no reader build tables again.
    """
    read = (bodies, canonical, signals)
    sources = (SCHEMA, EVENTS, *_CODE, *(Path(str(each.__file__)) for each in read))
    texts = [*(source.read_text(encoding="utf-8") for source in sources), *_view_texts()]
    told = json.dumps([[*map(_bare, texts)], declared()], sort_keys=True, default=sorted)
    return hashlib.sha256(told.encode()).hexdigest()


@cache
def _bare(text: str) -> str:
    return " ".join(_NOTE.sub("", _COMMENT.sub("", text)).split())


def create_schema(connection: duckdb.DuckDBPyConnection) -> None:
    """Create tables and views in an empty database, all or nothing, at the ledger's first entry.

    Tables lie in the schema `log`. In `main` a view of the same name shows those of a table's rows
    that stand as of the entry whose index the variable `as_of` holds, or all; every other view
    reads these. Comments are for those who ask without our pages.
    """
    schema, views = TABLES_SQL, _view_texts()
    with transaction(connection):
        connection.execute("CREATE SCHEMA log; USE log")
        connection.execute(_EVERYWHERE.sub("", schema))
        connection.execute("USE main")
        for table, columns in TABLES.items():
            then = (_AS_OF if "idx" in columns else "") + _first_of(table)
            connection.execute(f"CREATE VIEW {table} AS FROM log.{table}{then}")
        tables = "".join(_COMMENT.findall(_EVERYWHERE.sub("", schema)))
        for source in (tables.replace("COMMENT ON TABLE", "COMMENT ON VIEW"), *views):
            connection.execute(source)
        _comment(connection, schema, views)
        connection.execute("INSERT INTO log.position VALUES (0, NULL, ?)", [schema_hash()])


def _comment(connection: duckdb.DuckDBPyConnection, schema: str, views: Sequence[str]) -> None:
    """Give columns the comments that stand behind them, or those on `*` and their name."""
    everywhere = {name: text.replace("''", "'") for name, text in _EVERYWHERE.findall(schema)}
    own = {
        (made[1], column): text
        for source in (schema, *views)
        for made in _DEFINED.finditer(source)
        for column, text in _MEANING.findall(made[0])
    }
    columns = connection.execute(
        "SELECT schema_name, table_name, column_name FROM duckdb_columns() "
        "WHERE NOT internal AND comment IS NULL"
    ).fetchall()
    for place, table, column in columns:
        if text := own.get((table, column)) or everywhere.get(column):
            quoted = text.replace("'", "''")
            connection.execute(f"COMMENT ON COLUMN {place}.{table}.\"{column}\" IS '{quoted}'")


def _first_of(table: str) -> str:
    """Return the clause that leaves the first row of each stream, where a stream has one event."""
    if not any(told.table == table and told.once for each in ROWS.values() for told in each):
        return ""
    stream, *_ = TABLES[table]
    return f" QUALIFY ROW_NUMBER() OVER (PARTITION BY {stream} ORDER BY idx) = 1"


def _view_texts() -> list[str]:
    """Return the SQL of the views, with what the aggregates say filled in."""
    told = _told()
    texts = [source.read_text(encoding="utf-8") for source in _VIEWS]
    return [_PLACE.sub(lambda place: told[place[1]], text) for text in texts]


@cache
def _told() -> Mapping[str, str]:
    """Return what stands in the place of each name in double braces."""
    from aggregates.registry import REGISTRY  # noqa: PLC0415 - as in columns.py

    ends = [*(first for _, first, _ in PHASES[1:]), None]
    answers = ", ".join(
        f"{{'rule': '{rule}', 'able': [{_listed(able)}]}}"
        for rule, sides in DIRECTIONS.items()
        for able in sides.values()
    )
    rules = [(rule, kind, CLASSES.index(kind)) for rule, kind in RULE_CLASSES.items()]
    phases = [
        (name, first, end, kind) for (name, first, kind), end in zip(PHASES, ends, strict=True)
    ]
    once = [(name,) for name, told in ROWS.items() if any(each.once for each in told)]
    return {
        "alone": _listed(name for name, own in OWN_POLICIES.items() if own.alone),
        "answers": answers,
        "asking": _listed(ASKING),
        "computed": _listed(COMPUTED),
        "ends": _listed(each.name for each in REGISTRY if getattr(each.event_class, "ENDS", "")),
        "first_rules": _listed(FIRST_RULES),
        "listed": str(LISTED),
        "neutral": json.dumps(dict.fromkeys(NEUTRAL)),
        "once": _rows_of(once),
        "phases": _rows_of(phases),
        "policies": _listed(OWN_POLICIES),
        "revision": str(REVISION),
        "rules": _rows_of(rules),
    }


def _rows_of(values: Iterable[Iterable[object]]) -> str:
    return ", ".join(f"({_listed(row)})" for row in values)


def _listed(values: Iterable[object]) -> str:
    return ", ".join("NULL" if value is None else repr(value) for value in values)


def projected(
    entries: Iterable[VerifiedEntry],
    *,
    authority: UUID | None = None,
    quarantine: bool = False,
    gaps: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Return a database in memory that holds these entries; raises as project() does.

    The entries are a ledger's, from the first on; or, with `gaps`, some of a ledger's, in order.
    """
    connection = duckdb.connect(":memory:")
    try:
        copied(connection, create_schema)
        project(connection, entries, authority=authority, quarantine=quarantine, gaps=gaps)
    except BaseException:
        connection.close()
        raise
    return connection


def project(
    connection: duckdb.DuckDBPyConnection,
    entries: Iterable[VerifiedEntry],
    *,
    authority: UUID | None = None,
    batch_bytes: int = BATCH_BYTES,
    quarantine: bool = False,
    tables: Collection[str] = TABLES,
    gaps: bool = False,
) -> int:
    """Apply entries that follow the position and return how many.

    Entries keep their index, to which bodies refer. With `gaps`, entries between them may be
    missing: the tables hold a selection of a ledger. `authority` and `quarantine` are as
    tables_of() has them; what DuckDB refuses is set aside likewise: one odd event hides no other.

    With `tables`, the rows of all others are verified and left out. Raises ProjectionError for an
    entry that is out of order, unknown or malformed, and TableError where DuckDB refuses; batches
    before that one stay.
    """
    next_idx, _, _ = read_position(connection)
    writer = _Writer(connection, authority, quarantine, tables)
    count, size, batch = 0, 0, list[Item]()
    for entry in entries:
        if entry.index < next_idx or (entry.index > next_idx and not gaps):
            raise ProjectionError(f"expected entry {next_idx}, not entry {entry.index}")
        batch.append(item_of(entry))
        next_idx = entry.index + 1
        count += 1
        size += len(entry.body)
        if size >= batch_bytes:
            writer.write(batch)
            size, batch = 0, []
    if batch:
        writer.write(batch)
    return count


@dataclass(frozen=True)
class _Writer:
    """Writes batches of entries, with the position behind them."""

    connection: duckdb.DuckDBPyConnection
    authority: UUID | None
    quarantine: bool
    tables: Collection[str]

    def write(self, items: Sequence[Item]) -> None:
        """Write all rows and the position behind them, all or nothing.

        With `quarantine`, entries that DuckDB refuses are found by halves. Raises TableError where
        it refuses even an entry that is set aside: then the entries are not at fault.
        """
        tables = tables_of(items, authority=self.authority, quarantine=self.quarantine)
        try:
            self._write(tables, items[-1])
        except duckdb.Error as e:
            if not self.quarantine or is_no_room(e):
                raise TableError(_refused(items[-1], e)) from e
            half = len(items) // 2
            if half:
                self.write(items[:half])
                self.write(items[half:])
                return
            [item] = items
            try:
                self._write(set_aside(item, f"entry {item.index} ({item.name}): {e}"), item)
            except duckdb.Error as again:
                raise TableError(_refused(item, again)) from again

    def _write(self, tables: Mapping[str, Columns], last: Item) -> None:
        with transaction(self.connection):
            for table, columns in tables.items():
                if table not in self.tables:
                    continue
                kinds = [TABLES[table][column][0] for column in columns]
                lists = ", ".join(_unnested(kind, n) for n, kind in enumerate(kinds, start=1))
                names = ", ".join(f'"{column}"' for column in columns)
                self.connection.execute(
                    f"INSERT INTO log.{table} ({names}) SELECT {lists}",
                    list(columns.values()),
                )
            self.connection.execute(
                "UPDATE log.position SET next_idx = ?, last_hash = ?",
                [last.index + 1, last.entry_hash],
            )


def _unnested(kind: str, number: int) -> str:
    return (
        f"MAKE_TIMESTAMP(UNNEST(${number}::BIGINT[]))"
        if kind == "TIMESTAMP"
        else f"UNNEST(${number}::{kind}[])"
    )


def _refused(last: Item, error: duckdb.Error) -> str:
    return f"the entries before entry {last.index + 1} cannot be loaded into the tables: {error}"


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Hold a transaction that is rolled back when its block raises."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


@contextmanager
def settled(connection: duckdb.DuckDBPyConnection, *views: str) -> Iterator[None]:
    """Let tables take the place of views that many questions look at, each after those it reads.

    DuckDB plans a view anew for every question, and that takes longer here than the answer. Until
    the end of the block nothing can be applied.
    """
    connection.begin()
    try:
        for view in views:
            connection.execute(
                f"CREATE TABLE settled AS FROM {view}; DROP VIEW {view}; "
                f"ALTER TABLE settled RENAME TO {view}"
            )
        yield
    finally:
        connection.rollback()
