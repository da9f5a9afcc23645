"""Entries that nobody can read, signed and linked like all others: no reader stops at them."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import answer, call_here
from synthetic import synthetic_audit, synthetic_campaign, synthetic_run, synthetic_transcript

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.bodies import encode_body
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified
from proctor.home import Home
from proctor.runs.campaign_feedback import read_standings

FIRST = {  # events that begin streams of their own
    "body that is no msgpack": ("run.started", b"x"),
    "unknown name": ("run.bogus", encode_body({"v": 1})),
    "name that is a path": ("run.../../x", encode_body({"v": 1})),
    "name with control characters": ("run.\x1b[2J\n", encode_body({"v": 1})),
    "unknown version": ("run.started", encode_body({"v": 99})),
    "no version": ("run.started", encode_body({})),
    "no fields": ("run.started", encode_body({"v": 1})),
    "no fields, audit": ("audit.started", encode_body({"v": 1})),
    "no msgpack, audit": ("audit.started", b"\xc1"),
    "run that is a map": ("audit.started", encode_body({"v": 1, "run": {}})),
    "event that begins no stream": ("run.ended", encode_body({"v": 1})),
    "no msgpack, campaign": ("campaign.started", b""),
    "no msgpack, call": ("transcript.call_made", b"x"),
    "call with lists for hashes": (
        "transcript.call_made",
        encode_body({"v": 1, "outcome": "usable", "cached": False, "request": [], "response": {}}),
    ),
    "number that no column holds": (
        "run.decision_made",
        encode_body({"v": 1, "number": 2**64 - 1, "epoch": 0}),
    ),
    "upcaster that fails": ("line.opened", encode_body({"v": 1, "at": "now"})),
    "no msgpack, rollback": ("checkpoint.rolled_back", b"x"),
    "no msgpack, withdrawal": ("corpus.withdrawn", b"x"),
    "no msgpack, seal": ("export.sealed", b"x"),
}

SAME = (
    "checkpoints",
    "data list",
    "log",
    "show",
    "show the run",
    "sql",
    "state",
    "transcript",
)


@contextmanager
def recorder(home: Path) -> Iterator[SignedRecorder]:
    """Append as somebody whose recorder asks nothing."""
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        yield SignedRecorder(database, signer=signer)


def append(home: Path, name: str, body: bytes, *, stream: UUID | None = None, at: int = 1) -> None:
    with recorder(home) as appending:
        appending.insert_events(
            [
                StoredEvent(
                    originator_id=stream or uuid4(), originator_version=at, topic=name, state=body
                )
            ]
        )


def honest(home: Path) -> UUID:
    """Let there be a judged run with a transcript."""
    with Home(home).open_log() as log:
        run = synthetic_run(log)
        synthetic_audit(log, run)
        synthetic_transcript(log, run)
        return run.id


def readers(home: Path, run: UUID, tmp_path: Path) -> dict[str, Any]:
    """Ask everything that reads a ledger; return what was answered."""
    asked: dict[str, list[str | Path]] = {
        "show": ["show", "--json"],
        "show the run": ["show", str(run), "--json"],
        "replay": ["replay", "--json"],
        "state": ["replay", str(run), "--event", "3", "--json"],
        "transcript": ["show", "--transcript", "--json"],
        "sql": ["sql", "SELECT run_id, state, epochs FROM run_summary ORDER BY ALL", "--json"],
        "log": ["log", "--count", "3", "--json"],
        "checkpoints": ["line", "show", "--list", "checkpoints", "--json"],
        "keys": ["keys", "list", "--json"],
        "data list": ["data", "list", "--json"],
        "why": ["data", "why", str(run), "--json"],
        "verify": ["verify", "--json"],
        "export": ["export", "bundle", "--out", tmp_path / f"bundle{uuid4()}", "--json"],
    }
    told = {}
    for name, arguments in asked.items():
        done = call_here(arguments, home=home)
        assert done.returncode == (name == "why"), (name, done.stdout, done.stderr)
        told[name] = json.loads(done.stdout)
    return told


# Each alone in the slow suite: one that stops a reader does so among the others too.
ALONE = [pytest.param([what], id=what, marks=pytest.mark.slow) for what in FIRST]


@pytest.mark.parametrize("kinds", [pytest.param([*FIRST], id="all"), *ALONE])
def test_reader_goes_on_and_says_so_when_entries_cannot_be_read(
    kinds: list[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    run = honest(home)
    before = readers(home, run, tmp_path)
    for kind in kinds:
        append(home, *FIRST[kind])
    with open_verified(home / "ledger") as ledger:
        indices = list(range(ledger.size - len(kinds), ledger.size))
    first = indices[0]
    after = readers(home, run, tmp_path)
    for same in SAME:
        assert after[same] == before[same], same
    done = call_here(["sql", "SELECT idx, reason FROM unreadable", "--json"], home=home)
    assert [row["idx"] for row in answer(done)] == indices
    found = (
        "1 entry of the ledger cannot be read and is"
        if len(kinds) == 1
        else (f"{len(kinds)} entries of the ledger cannot be read and are")
    )
    assert f"warning: {found} set aside; the first is entry {first}" in done.stderr
    for listed in (["log", "--start", str(first)], ["log", "--start", str(first), "--json"]):
        told = call_here(listed, home=home)
        assert (told.returncode, f"the first is entry {first}" in told.stderr) == (0, True)
        assert "\x1b[2J" not in told.stdout + told.stderr or "--json" in listed
    for index in indices:
        assert call_here(["log", "--entry", str(index)], home=home).returncode == 0


def test_attempts_keep_their_verdicts_when_audits_cannot_be_read(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.open_log() as log:
        run = synthetic_run(log)
        audit = synthetic_audit(log, run)
        campaign = synthetic_campaign(log, [run], audits=[audit])
    before = read_standings(home, campaign.id)
    assert before[str(run.id)]["audit"] == str(audit.id)
    for kind in ("no fields, audit", "no msgpack, audit", "run that is a map"):
        append(home.path, *FIRST[kind])
    assert read_standings(home, campaign.id) == before


def test_runs_of_other_names_are_closed_when_one_cannot_be_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    honest(home)
    append(home, "run.started", b"x")
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:  # its process is gone
        open_run = synthetic_run(log, end=None)
    lock = home / "runs" / str(open_run.id) / "running.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with Home(home).open_log():
        pass
    asked = "SELECT state FROM run_summary WHERE run_id = '{}'"
    done = call_here(["sql", asked.format(open_run.id), "--json"], home=home)
    assert answer(done) == [{"state": "crashed"}]
