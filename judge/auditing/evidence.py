"""The entries of a run: verified first, then used.

Trust: the ledger is hostile until read_evidence() returns; vkey and kept head are the caller's.
I/O: reads the ledger.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from judge.auditing.events import decode_events
from judge.auditing.labels import CHECKPOINTS
from judge.config import JudgeConfig
from judge.errors import JudgeError
from ledger.errors import LedgerError
from ledger.mapper import decode_body
from ledger.paths import LedgerPaths
from ledger.verification.reader import open_verified
from ledger.verification.verified_entries import VerifiedEntry, parse_entry

_START = "run.started"
_RESTART = "run.restart_scheduled"


@dataclass(frozen=True)
class Evidence:
    """The entries of a run as of one tree head."""

    verified: bool
    tree_head: str | None  # the signed note
    size: int  # entries in the ledger
    entries: tuple[VerifiedEntry, ...]  # of the run
    parent: tuple[VerifiedEntry, ...]  # of the run that this one restarts from
    checkpoints: tuple[VerifiedEntry, ...] = ()  # that record one
    ancestors: tuple[VerifiedEntry, ...] = ()  # first entries of the runs it descends from


def parse_run_id(run_id: UUID | str) -> UUID:
    """Return a run's id; raises JudgeError if it is not one."""
    if isinstance(run_id, UUID):
        return run_id
    try:
        return UUID(run_id)
    except ValueError:
        raise JudgeError(f"{run_id!r} is not a run id: a run id is a UUID") from None


def read_events(
    directory: Path, run_id: UUID | str, *, vkey: str | None = None, kept_head: str | None = None
) -> list[Any]:
    """Return a run's events from a valid ledger.

    Raises JudgeError if the run is not found, VerificationError if the ledger is not valid.
    """
    run = parse_run_id(run_id)
    evidence = read_evidence(directory, run, JudgeConfig(), vkey=vkey, kept_head=kept_head)
    return decode_events(evidence.entries)


def read_evidence(
    directory: Path, run: UUID, config: JudgeConfig, *, vkey: str | None, kept_head: str | None
) -> Evidence:
    """Verify the ledger and return what it says of the run and its parent, from one snapshot.

    Raises VerificationError, StorageError or KeyFileError from the ledger, JudgeError if it does
    not know the run.
    """
    if not config.checks("ledger_verification"):
        everything = _read_unverified(directory)
        own, parent, checkpoints, ancestors = _pick(lambda: everything, run)
        head, size, verified = None, len(everything), False
    else:
        with open_verified(directory, vkey=vkey, kept_head=kept_head) as ledger:
            own, parent, checkpoints, ancestors = _pick(ledger.entries, run)
            head = None if ledger.head is None else ledger.head.note
            size, verified = ledger.size, True
    if not own:
        raise JudgeError(f"run {run} not found in {directory}")
    return Evidence(verified, head, size, own, parent, checkpoints, ancestors)


_Entries = tuple[VerifiedEntry, ...]


def _pick(
    entries: Callable[[], Iterable[VerifiedEntry]], run: UUID
) -> tuple[_Entries, _Entries, _Entries, _Entries]:
    """Return the entries of the run, of its parent, those of checkpoints, and its ancestors'."""
    own: list[VerifiedEntry] = []
    checkpoints: list[VerifiedEntry] = []
    starts: dict[UUID, VerifiedEntry] = {}  # by run
    restarted: set[UUID] = set()  # runs that ended for a following one
    for entry in entries():
        if entry.stream_id == run:
            own.append(entry)
        elif entry.name in CHECKPOINTS:
            checkpoints.append(entry)
        if entry.name == _START:
            starts.setdefault(entry.stream_id, entry)
        elif entry.name == _RESTART:
            restarted.add(entry.stream_id)
    parent = _parent_of(own[0]) if own else None
    if parent is None:
        return tuple(own), (), tuple(checkpoints), ()
    parents = tuple(each for each in entries() if each.stream_id == parent)
    followed = {each: start for each, start in starts.items() if each in restarted}
    ancestors = tuple(_ancestors(parent, followed, seen={run}))
    return tuple(own), parents, tuple(checkpoints), ancestors


def _ancestors(
    parent: UUID | None, starts: Mapping[UUID, VerifiedEntry], *, seen: set[UUID]
) -> Iterator[VerifiedEntry]:
    """Yield the first entries of a run's parent, its parent's parent and so on.

    `starts` are those of runs that ended for a restart: any run can name any other its parent.
    """
    while parent is not None and parent in starts and parent not in seen:
        seen.add(parent)
        yield starts[parent]
        parent = _parent_of(starts[parent])


def _parent_of(started: VerifiedEntry) -> UUID | None:
    """Return the run that this one restarts from; None too where the replay will find fault."""
    try:
        return UUID(decode_body(started.body)["parent_run"])
    except (LedgerError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _read_unverified(directory: Path) -> list[VerifiedEntry]:
    """Read what is stored, for studying what is found where verification is switched off."""
    uri = f"{LedgerPaths(directory).database.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("SELECT idx, entry FROM entries ORDER BY idx").fetchall()
    except sqlite3.Error as error:
        raise JudgeError(f"{directory}: the ledger cannot be read: {error}") from error
    return [parse_entry(entry, index=index) for index, entry in rows]
