"""The tables of one run that the checks of coverage read, and no more of them than they read.

The rows are those of projections/rows.py, and every value of every row is checked as the projector
checks it, the rows of tables that are left out too. But it is done by columns, without a map for
each row: of an entry in which anything is unusual nothing is said here, and the projector says it.

Trust: bodies are hostile.
I/O: the DuckDB connection.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import msgspec

from aggregates.errors import AggregateError
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.signals import losses_reported, reported_for_rules
from judge.auditing.events import HOSTILE
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry
from projections.mapping import TABLES, TYPES, Body, Parts, Rows, json_text
from projections.rows import ROWS

__all__ = ["READ", "RUN", "create_tables", "fill"]

RUN = "run"  # in the column run_id: short texts are compared fast, and take no memory of their own
_KEPT = {
    "run_starts": "run_id config rules spec data",
    "run_ends": "run_id reason",
    "epochs": (
        "run_id epoch lr batch_size accumulation clip_norm max_layer_grad_norm gradients_finite "
        "epoch_update_ratio"
    ),
    "rule_evaluations": "run_id epoch rule fired side precedence",
    "decisions": "run_id number epoch source event_type direction params",
    "citations": "run_id number rule",
    "remedies": "run_id decision epoch idx outcome spec",
}
READ = {table: tuple(columns.split()) for table, columns in _KEPT.items()}
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode  # the replay has read the same strictly
_BATCH = 4_000  # values of one column, that wait in memory
_NONE = type(None)
_RANGES = {"BIGINT": 2**63, "INTEGER": 2**31}
_MALFORMED = (
    AggregateError,
    LedgerError,
    RecursionError,
    duckdb.Error,
    msgspec.MsgspecError,
    *HOSTILE,
)


def fill(connection: duckdb.DuckDBPyConnection, entries: Iterable[VerifiedEntry], run: Run) -> bool:
    """Create the tables and fill them with a run's entries; False where an entry is unusual.

    `run` has been replayed from them: the signals of its epochs are not read again.
    """
    create_tables(connection)
    waiting = {table: [list[Any]() for _ in columns] for table, columns in READ.items()}
    for idx, entry in enumerate(entries):
        try:
            if not _add(waiting, entry, idx, run):
                return False
            for table, values in waiting.items():
                if len(values[0]) >= _BATCH:
                    _write(connection, table, values)
        except _MALFORMED:
            return False
    try:
        for table, values in waiting.items():
            _write(connection, table, values)
    except duckdb.Error:
        return False
    return True


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables, with the columns of READ alone."""
    for table, columns in READ.items():
        typed = ", ".join(f'"{column}" {TABLES[table][column][0]}' for column in columns)
        connection.execute(f"CREATE TABLE {table} ({typed})")


def _write(connection: duckdb.DuckDBPyConnection, table: str, values: list[list[Any]]) -> None:
    if not values[0]:
        return
    lists = ", ".join(f"UNNEST(?::{TABLES[table][column][0]}[])" for column in READ[table])
    connection.execute(f"INSERT INTO {table} SELECT {lists}", values)
    for column in values:
        column.clear()


def _add(waiting: dict[str, list[list[Any]]], entry: VerifiedEntry, idx: int, run: Run) -> bool:
    """Add an entry's rows; return whether every value is what its column takes."""
    body = REGISTRY.upcast(entry.name, _decode(entry.body))
    for plan in _plans(entry.name):
        if plan is None:
            return False
        parts: Sequence[Body] | None = None
        if plan.table == "epochs":
            parts = [_epoch(body, run)]
        elif plan.parts is not None:
            parts = plan.parts(body, RUN)
        rows = 1 if parts is None else len(parts)
        kept = waiting.get(plan.table) if rows else None
        for column in plan.columns:
            key = column.key
            if column.of_part:
                values = [part[key] for part in parts or ()]
                if not column.takes_all(values):
                    return False
            elif column.takes(body[key]):
                values = [body[key]] * rows
            else:
                return False
            if kept is not None and column.place is not None:
                if column.kind == "JSON":
                    values = [None if each is None else json_text(each) for each in values]
                kept[column.place].extend(values)
        if kept is None:
            continue
        for place, value in plan.constants:
            kept[place].extend([value] * rows)
        if plan.idx is not None:
            kept[plan.idx].extend([idx] * rows)
    return True


@dataclass(frozen=True)
class _Column:
    """A column that a body fills, and what it takes."""

    kind: str
    types: frozenset[type]  # of its values; JSON takes others too, but not None
    limit: int | None  # of whole numbers
    key: str  # of the body, whose value stands in each row, or of each of its parts
    of_part: bool
    place: int | None  # among the columns of READ; None: it is checked alone

    @classmethod
    def of(cls, table: str, name: str, key: str, *, of_part: bool) -> "_Column":
        kind, nullable = TABLES[table][name]
        types = {*TYPES.get(kind, ()), *({_NONE} if nullable else ())}
        place, limit = _place(table, name), _RANGES.get(kind)
        return cls(kind, frozenset(types), limit, key, of_part, place)

    def takes(self, value: Any) -> bool:
        if type(value) not in self.types:
            return self.kind == "JSON" and value is not None
        return self.limit is None or value is None or -self.limit <= value < self.limit

    def takes_all(self, values: Sequence[Any]) -> bool:
        if self.limit is None and self.types.issuperset(map(type, values)):
            return True
        return all(map(self.takes, values))


@dataclass(frozen=True)
class _Plan:
    """How an event fills the rows of one table."""

    table: str
    parts: Parts | None
    columns: tuple[_Column, ...]
    constants: tuple[tuple[int, Any], ...]  # place among the columns of READ, and value
    idx: int | None  # the place of the entry's index


@cache
def _plans(name: str) -> tuple[_Plan | None, ...]:
    """Return the plans for a kind of event, None where the projector has to say what is stored.

    Raises KeyError for a kind that has no rows defined.
    """
    return tuple(map(_plan, ROWS[name]))


def _plan(told: Rows) -> _Plan | None:
    table = told.table
    columns = [
        _Column.of(table, column, key, of_part=of_part)
        for of_part, keys in ((False, told.body), (True, told.part))
        for column, key in keys.items()
    ]
    constants = [(_Column.of(table, name, "", of_part=False), v) for name, v in told.always.items()]
    if told.signer is not None or not all(column.takes(value) for column, value in constants):
        return None
    kept = [(column.place, value) for column, value in constants if column.place is not None]
    run_id = _place(table, "run_id")
    if run_id is not None:
        kept.append((run_id, RUN))
    return _Plan(table, told.parts, tuple(columns), tuple(kept), _place(table, "idx"))


def _place(table: str, column: str) -> int | None:
    kept = READ.get(table, ())
    return kept.index(column) if column in kept else None


def _epoch(body: Body, run: Run) -> Body:
    """Return what rows.py says of an epoch, with the signals that the replay has read."""
    measured, reported = body["measured"], body["reported"]
    signals = run.history[body["epoch"]]
    if signals.epoch != body["epoch"] or reported_for_rules(measured, reported) != run.told(
        reported
    ):
        raise ValueError("the rules and the tables read other signals")
    told = losses_reported(measured)
    return {
        **measured["settings"],
        **vars(signals),
        "noise_scale": measured["gradients"].get("noise_scale"),
        "val_accuracy": (reported if told else measured)["validation"].get("accuracy"),
        "losses_reported": told,
    }
