"""Bodies with values of any kind: an odd event spoils its own rows, and no view for all the others.

Each round changes some fields of some events, as a producer could who signs what it likes.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import reduce
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from ledger.bodies import decode_body, encode_body
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry
from projections.projector import project

pytest_plugins = ("projection_fixtures",)

Entries = list[VerifiedEntry]
Empty = Callable[[], duckdb.DuckDBPyConnection]
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    -(2**31) - 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    0.0,
    -0.0,
    1.5,
    5e-324,
    1.7e308,
    -1.7e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "x",
    "NaN",
    "1e999",
    "-1",
    "null",
    "2020-13-45",
    "\x00",
    "a\x00b",
    "\u202e\u0000\ud7ff\U0010ffff",
    "é" * 3_000,
    "%s'\"; DROP TABLE events; --",
    b"",
    b"\xff\x00",
    [],
    [None],
    [[], {}],
    ["x", 1, math.nan],
    {},
    {"": None},
    {"a.b": {"$": "x"}},
    {"lr": "x", "epochs": "many", "seed": {}, "name": 5, "success": "yes"},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside, and of the value itself."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def spoil(entry: VerifiedEntry, rng: random.Random) -> VerifiedEntry:
    """Change a field of a body, more often one near its surface."""
    body = decode_body(entry.body)
    found = [path for path in places(body) if path != ("v",)]
    depth = rng.randint(1, max(map(len, found)))
    path = rng.choice([path for path in found if len(path) <= depth])
    kind = type(reduce(lambda inside, key: inside[key], path, body))
    alike = [value for value in VALUES if type(value) is kind]  # which a column takes
    new = rng.choice(alike if alike and rng.random() < 0.7 else VALUES)
    try:
        return replace(entry, body=encode_body(changed(body, path, new)))
    except LedgerError:  # which no entry can hold
        return entry


def views(connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION "
        "SELECT 'log.' || table_name FROM duckdb_tables() ORDER BY ALL"
    )
    return [name for (name,) in found.fetchall()]


def failures(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    found = {}
    for name in views(connection):
        try:
            cursor = connection.execute(f"FROM {name}")
            while cursor.fetchmany(1_000):
                pass
        except (duckdb.Error, UnicodeDecodeError) as e:  # a message that was cut in a character
            found[name] = str(e)
    return found


def ask(entries: Entries, empty: Empty) -> dict[str, str]:
    with closing(empty()) as connection:
        assert project(connection, entries, quarantine=True) == len(entries)
        assert connection.execute("SELECT COUNT(*) FROM events").fetchone() == (len(entries),)
        return failures(connection)


# In these rounds, lists that are none used to make views fail for all rows.
QUICK = (10, 23)


@pytest.mark.parametrize(
    "seed",
    [*QUICK, *(pytest.param(s, marks=pytest.mark.slow) for s in range(24) if s not in QUICK)],
)
@pytest.mark.sampled(2)
def test_views_answer_when_bodies_hold_values_of_any_kind(
    entries: Entries, empty: Empty, seed: int
) -> None:
    rng = random.Random(seed)
    kinds: dict[str, Entries] = {}
    for entry in entries:
        kinds.setdefault(entry.name, []).append(entry)
    spoilt = {}
    for same in kinds.values():
        for entry in rng.sample(same, k=max(1, len(same) // 3)):
            spoilt[entry.index] = spoil(entry, rng)
    found = ask([spoilt.get(entry.index, entry) for entry in entries], empty)
    assert found == {}
