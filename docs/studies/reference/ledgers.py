"""Maker of the reference task about ledgers: an honest one, and forgeries of it.

The ledger is a real one, with keys of its own; which of its copies hold is known from how each was
changed. Unlike the other tasks it is made anew, never byte for byte.
I/O: a ledger in a temporary folder.
"""

import base64
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from studies.reference.making import Made

__all__ = ["make_ledgers"]

_Case = dict[str, Any]  # entries, heads, meta, vkey, kept
_EVENTS = 5  # in the ledger, and as many tree heads


def make_ledgers(rng: Random, _: str) -> Made:
    """An honest ledger, an honest beginning of it, and one copy for each way of forging it."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        honest, form = _begin(Path(one), rng)
        other, _form = _begin(Path(two), rng)
    cases = [honest, _shortened(honest), *(forge(honest, other) for forge in _FORGERIES.values())]
    held = [True, True, *(False for _ in _FORGERIES)]
    order = rng.sample(range(len(cases)), len(cases))
    return Made(
        kind="ledgers",
        scorer="refused",
        expected={"held": [held[place] for place in order]},
        categories=("ledgers", "verification"),
        description="Honest ledgers, and forged ones: " + ", ".join(_FORGERIES),
        outcome="both verifiers hold the honest ledgers and refuse every other one",
        files={"cases.json": [cases[place] for place in order], "form.json": form},
    )


def _begin(folder: Path, rng: Random) -> tuple[_Case, str]:
    """Write a small ledger; return it as a case, and the statements that make its tables."""
    log: LedgerApplication = LedgerApplication.open(folder, REGISTRY)
    try:
        for _ in range(_EVENTS):
            log.save(_event(rng))
    finally:
        log.close()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        tables = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        entries = database.execute("SELECT * FROM entries ORDER BY idx").fetchall()
        heads = database.execute("SELECT * FROM tree_heads ORDER BY size").fetchall()
        meta = database.execute("SELECT * FROM meta").fetchall()
        marks = [
            f"PRAGMA {name} = {database.execute(f'PRAGMA {name}').fetchone()[0]}"
            for name in ("application_id", "user_version")
        ]
    vkey = next(value for key, value in meta if key == "vkey")
    case = {
        "entries": [[i, _text(s), v, name, _text(e)] for i, s, v, name, e in entries],
        "heads": [[size, note, _text(edge)] for size, note, edge in heads],
        "meta": [list(row) for row in meta],
        "vkey": vkey,
        "kept": None,
    }
    return case, ";\n".join([*(sql for (sql,) in tables), *marks]) + ";\n"


def _event(rng: Random) -> Campaign:
    """Return something to write down; what it says is of no consequence here."""
    return Campaign.start(
        config={"seed": rng.randrange(1000)},
        attempts=rng.randint(1, 9),
        policy={"name": "playbook"},
        campaign_id=UUID(int=rng.getrandbits(128), version=4),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _flipped(text: str, place: int) -> str:
    """Return the same bytes with one bit turned over."""
    data = bytearray(base64.b64decode(text))
    data[place] ^= 1
    return _text(bytes(data))


def _shortened(case: _Case) -> _Case:
    """Return the ledger as it was before its last event."""
    return {**case, "entries": case["entries"][:-1], "heads": case["heads"][:-1]}


def _with_entry(case: _Case, index: int, **changes: Any) -> _Case:
    columns = ("idx", "stream", "version", "name", "entry")
    row = dict(zip(columns, case["entries"][index], strict=True)) | changes
    entries = [*case["entries"]]
    entries[index] = list(row.values())
    return {**case, "entries": entries}


def _with_head(case: _Case, note: str, edge: str | None = None) -> _Case:
    size, _, kept = case["heads"][-1]
    return {**case, "heads": [*case["heads"][:-1], [size, note, edge or kept]]}


def _entry(case: _Case, index: int) -> str:
    text: str = case["entries"][index][4]
    return text


def _repeated(case: _Case) -> _Case:
    _, stream, version, *rest = case["entries"][-1]
    return {**case, "entries": [*case["entries"], [_EVENTS, stream, version + 1, *rest]]}


def _swapped(case: _Case) -> _Case:
    one, other = _entry(case, 1), _entry(case, 2)
    return _with_entry(_with_entry(case, 1, entry=other), 2, entry=one)


def _renamed_root(case: _Case) -> _Case:
    lines = case["heads"][-1][1].split("\n")
    lines[2] = _flipped(lines[2], 7)
    return _with_head(case, "\n".join(lines))


def _resized(case: _Case) -> _Case:
    lines = case["heads"][-1][1].split("\n")
    lines[1] = str(_EVENTS + 1)
    return _with_head(case, "\n".join(lines))


_FORGERIES: Mapping[str, Callable[[_Case, _Case], _Case]] = {
    "a body changed": lambda case, _: _with_entry(case, 2, entry=_flipped(_entry(case, 2), -1)),
    "the last body changed": lambda case, _: _with_entry(
        case, _EVENTS - 1, entry=_flipped(_entry(case, _EVENTS - 1), -1)
    ),
    "a time changed": lambda case, _: _with_entry(case, 3, entry=_flipped(_entry(case, 3), 40)),
    "a link changed": lambda case, _: _with_entry(case, 3, entry=_flipped(_entry(case, 3), 50)),
    "a name changed": lambda case, _: _with_entry(case, 1, name="run.started"),
    "an entry left out": lambda case, _: {
        **case,
        "entries": [row for row in case["entries"] if row[0] != 2],
    },
    "the last entry left out": lambda case, _: {**case, "entries": case["entries"][:-1]},
    "an entry twice": lambda case, _: _repeated(case),
    "two entries exchanged": lambda case, _: _swapped(case),
    "another's tree head": lambda case, other: _with_head(case, *other["heads"][-1][1:]),
    "a root changed": lambda case, _: _renamed_root(case),
    "a size changed": lambda case, _: _resized(case),
    "an edge changed": lambda case, _: _with_head(
        case, case["heads"][-1][1], _flipped(case["heads"][-1][2], 3)
    ),
    "an end cut off that somebody has seen": lambda case, _: {
        **_shortened(case),
        "kept": case["heads"][-1][1],
    },
    "another ledger in the place of this one": lambda case, other: {**other, "vkey": case["vkey"]},
}
