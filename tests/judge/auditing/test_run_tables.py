"""The judge's own tables of a run hold what the projector's hold, and refuse nothing else."""

from collections.abc import Sequence
from random import Random
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace
from told_training import act, defer, healthy, tell

from aggregates.decisions import Decision, Settings
from aggregates.run import Run
from judge.auditing.coverage import load
from judge.auditing.record import read_record
from judge.auditing.replay import replay_run
from judge.auditing.run_tables import READ, fill
from judge.config import CHECKS, JudgeConfig
from judge.errors import StepError
from ledger.bodies import decode_body, encode_body
from ledger.verification.verified_entries import VerifiedEntry

LENIENT = JudgeConfig(disabled=CHECKS)
ODD: tuple[Any, ...] = (
    None,
    True,
    7,
    2**40,
    2**63,
    -0.5,
    float("nan"),
    "x",
    b"x",
    [],
    [1],
    {},
    {"a": None},
)


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Sequence[VerifiedEntry]:
    folder = tmp_path_factory.mktemp("told")
    run = tell(folder, world, answers, epochs=6).run
    return read_record(folder, run.id, LENIENT).entries


def world(epoch: int, *_: Any) -> dict[str, Any]:
    return healthy(epoch, norm=50.0 if epoch in {2, 3} else 1.0)


def answers(run: Run, now: Settings) -> list[Decision]:
    rule, *others = run.fired()
    remedy = act(rule, "decrease_lr", lr=now.lr / 10)
    return [remedy if rule == "R7" else defer(rule), *map(defer, others)]


def held(connection: duckdb.DuckDBPyConnection) -> dict[str, list[Any]]:
    """Return the rows of the tables that the checks read, without the run's own name."""
    return {
        table: connection.execute(
            f"SELECT {', '.join(c for c in columns if c != 'run_id')} FROM {table} ORDER BY ALL"
        ).fetchall()
        for table, columns in READ.items()
    }


def plainly(entries: Sequence[VerifiedEntry]) -> dict[str, list[Any]] | None:
    with duckdb.connect(":memory:") as connection:
        try:
            load(connection, entries)
        except StepError:
            return None
        return held(connection)


def own(entries: Sequence[VerifiedEntry]) -> dict[str, list[Any]] | None:
    try:
        run = replay_run(entries, config=LENIENT).run
    except StepError:  # the tables are not asked about such a run
        return None
    with duckdb.connect(":memory:") as connection:
        return held(connection) if fill(connection, entries, run) else None


def altered(draw: Random, entries: Sequence[VerifiedEntry]) -> list[VerifiedEntry]:
    """Return the entries with an odd value, or without one, somewhere in one body."""
    at = draw.randrange(len(entries))
    body = decode_body(entries[at].body)
    place: Any = body
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or draw.random() < 0.2:
            break
        place = place[key]
    if isinstance(place, dict) and draw.random() < 0.2:
        del place[key]
    else:
        place[key] = draw.choice(ODD)
    return [*entries[:at], replace(entries[at], body=encode_body(body)), *entries[at + 1 :]]


def test_tables_of_an_honest_run_are_those_of_the_projector(
    entries: Sequence[VerifiedEntry],
) -> None:
    found = own(entries)
    assert found is not None
    assert repr(found) == repr(plainly(entries))
    assert all(found[table] for table in READ)


@pytest.mark.slow
def test_what_the_projector_refuses_is_not_in_the_tables_either(
    entries: Sequence[VerifiedEntry],
) -> None:
    draw, refused, filled = Random(1), 0, 0
    for _ in range(60):
        changed = altered(draw, entries)
        found, plain = own(changed), plainly(changed)
        if found is not None:  # where it is None, the projector is asked anyway
            assert repr(found) == repr(plain)
        refused += plain is None
        filled += found is not None
    assert refused > 10
    assert filled
