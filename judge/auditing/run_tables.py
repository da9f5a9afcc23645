"""The tables of one run that the checks of coverage read, and no more of them than they read.

The rows are those of projections/rows.py, and every value of every row is checked as the projector
checks it, the rows of tables that are left out too. But it is done by columns, without a map for
each row: of an entry in which anything is unusual nothing is said here, and the projector says it.

Trust: bodies are hostile.
I/O: the DuckDB connection.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from aggregates.errors import AggregateError
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.signals import losses_reported, reported_for_rules
from judge.auditing.events import HOSTILE
from ledger.bodies import decode_body
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry
from projections.mapping import TABLES, TYPES, Body, Rows, json_text
from projections.rows import ROWS

__all__ = ["READ", "RUN", "create_tables", "fill"]

RUN = "run"  # in the column run_id: short texts are compared fast, and take no memory of their own
_KEPT = {
    "run_starts": "run_id config rules spec data",
    "run_ends": "run_id reason",
    "epochs": "run_id epoch lr batch_size accumulation clip_norm max_layer_grad_norm",
    "rule_evaluations": "run_id epoch rule fired side precedence",
    "decisions": "run_id number epoch source event_type direction params",
    "citations": "run_id number rule",
    "remedies": "run_id decision epoch idx outcome spec",
}
READ = {table: tuple(columns.split()) for table, columns in _KEPT.items()}
_BATCH = 4_000  # values of one column, that wait in memory
_NONE = type(None)
_RANGES = {"BIGINT": 2**63, "INTEGER": 2**31}
_MALFORMED = (AggregateError, LedgerError, RecursionError, duckdb.Error, *HOSTILE)


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
    body = REGISTRY.upcast(entry.name, decode_body(entry.body))
    for told in ROWS[entry.name]:
        if told.signer is not None:
            return False
        parts: Sequence[Body] | None = None
        if told.table == "epochs":
            parts = [_epoch(body, run)]
        elif told.parts is not None:
            parts = told.parts(body, RUN)
        rows = 1 if parts is None else len(parts)
        found = _columns(told, body, parts)
        if found is None:
            return False
        kept = READ.get(told.table)
        if kept is None or not rows:
            continue
        for column, values in zip(kept, waiting[told.table], strict=True):
            if column == "run_id":
                values.extend([RUN] * rows)
            elif column == "idx":
                values.extend([idx] * rows)
            else:
                values.extend(found[column])
    return True


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


def _columns(
    told: Rows, body: Body, parts: Sequence[Body] | None
) -> dict[str, Sequence[Any]] | None:
    """Return an entry's rows by columns, without its own numbers; None where one does not fit."""
    types, rows = TABLES[told.table], 1 if parts is None else len(parts)
    found: dict[str, Sequence[Any]] = {}
    kept = READ.get(told.table, ())
    values: Sequence[Any]
    for column, value in told.always.items():
        found[column] = [value] * rows
    for column, key in told.body.items():
        found[column] = [body[key]]
    for column, key in told.part.items():
        found[column] = [part[key] for part in parts or ()]
    for column, values in found.items():
        kind, nullable = types[column]
        seen = set(map(type, values))
        if _NONE in seen:
            if not nullable:
                return None
            seen.discard(_NONE)
        if kind == "JSON":
            if column in kept:
                found[column] = [None if each is None else json_text(each) for each in values]
        elif not seen.issubset(TYPES[kind]):
            return None
        elif kind in _RANGES:
            limit = _RANGES[kind]
            if not all(value is None or -limit <= value < limit for value in values):
                return None
        if len(values) != rows:  # of the body, so it stands in each row
            found[column] = [*found[column]] * rows
    return found
