"""The entries of a run: verified first, then used.

Trust: the ledger is hostile until read_record() returns; vkey and kept head are the caller's.
I/O: reads the ledger; entries of long runs are in temporary files.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.transcript import Transcript
from judge.auditing.labels import CHECKPOINTS
from judge.auditing.spooled import SpooledEntries
from judge.errors import JudgeError
from ledger.bodies import decode_body
from ledger.errors import LedgerError
from ledger.verification.proofs import leaf_hash
from ledger.verification.reader import VerifiedLedger, open_verified
from ledger.verification.states import State
from ledger.verification.verified_entries import VerifiedEntry

_START = "run.started"
_FORK = "run.forked"
_RESTART = "run.restart_scheduled"
_END = "run.ended"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LEAVES = 4_096  # that are hashed at a time
_MOST_FILES, _MOST_NAME = 16, 100  # an entry has room for a few short names


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The entries of a run as of one tree head."""

    run: UUID
    tree_head: str | None  # the signed note
    size: int  # entries in the ledger
    entries: Sequence[VerifiedEntry]  # of the run
    root: bytes  # of the ledger up to the last of them
    transcript: int = 0  # version of the run's transcript; 0: it has none
    chain: tuple[Sequence[VerifiedEntry], ...] = ()  # of its parent, of that one's parent, ...
    forked: Sequence[VerifiedEntry] = ()  # of the run that this one is a fork of
    checkpoints: tuple[VerifiedEntry, ...] = ()  # that record one
    ancestors: tuple[VerifiedEntry, ...] = ()  # first entries of the runs it descends from

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return any(entry.name == _END for entry in reversed(self.entries))

    @property
    def judged(self) -> dict[str, Any]:
        """The state of the run that these entries are, as audit.started names it.

        The last entry's hash covers all entries before it, because each has its predecessor's. For
        those who see some of them the root covers them, too.
        """
        last = self.entries[-1]
        return {
            "entry": last.entry_hash.hex(),
            "root": self.root.hex(),
            "version": last.stream_version,
            "transcript": self.transcript,
            "files": self._files,
        }

    @property
    def _files(self) -> dict[str, str]:
        """The hashes of the deliverables that the run's end names; hostile ones are left out."""
        end = next((entry for entry in reversed(self.entries) if entry.name == _END), None)
        found = told(end, "deliverables")
        named = (
            (name, digest)
            for name, digest in (found.items() if isinstance(found, Mapping) else ())
            if isinstance(name, str) and len(name.encode()) <= _MOST_NAME
            if isinstance(digest, str) and _SHA256.fullmatch(digest)
        )
        return dict(islice(named, _MOST_FILES))

    @property
    def environment(self) -> Mapping[str, object] | None:
        """The recorded environment of the run, hostile; None where there is none."""
        found = told(self.entries[0], "environment")
        return found if isinstance(found, Mapping) else None


def told(entry: VerifiedEntry | None, name: str) -> Any:
    """Return a field of an entry's hostile body; None where there is none."""
    try:
        return None if entry is None else decode_body(entry.body)[name]
    except (LedgerError, KeyError, TypeError):
        return None


def parse_run_id(run_id: UUID | str) -> UUID:
    """Return a run's id; raises JudgeError if it is not one."""
    try:
        return run_id if isinstance(run_id, UUID) else UUID(run_id)
    except ValueError:
        raise JudgeError(f"{run_id!r} is not a run id: a run id is a UUID") from None


def read_record(
    directory: Path, run: UUID, *, vkey: str | None = None, kept_head: str | None = None
) -> RunRecord:
    """Verify the ledger and return what it says of the run and its parent, from one snapshot.

    Raises VerificationError, StorageError or KeyFileError from the ledger, JudgeError if it does
    not know the run.
    """
    with open_verified(directory, vkey=vkey, kept_head=kept_head) as ledger:
        return record_of(ledger, run)


def record_of(ledger: VerifiedLedger, run: UUID) -> RunRecord:
    """Return what a verified ledger says of a run; raises JudgeError if it does not know it."""
    own = SpooledEntries()
    fork: VerifiedEntry | None = None
    checkpoints: list[VerifiedEntry] = []
    starts: dict[UUID, VerifiedEntry] = {}  # by run
    restarted: set[UUID] = set()  # runs that ended for a following one
    transcript, calls = Transcript.id_of(run), 0
    for entry in ledger.select(streams=[run, transcript], names=[*CHECKPOINTS, _START, _RESTART]):
        if entry.stream_id == transcript:
            calls = entry.stream_version
        if entry.stream_id == run:
            own.append(entry)
            if entry.name == _FORK and fork is None:
                fork = entry
        elif entry.name in CHECKPOINTS:
            checkpoints.append(entry)
        if entry.name == _START:
            starts.setdefault(entry.stream_id, entry)
        elif entry.name == _RESTART:
            restarted.add(entry.stream_id)
    if not own:
        raise JudgeError(f"run {run} not found in the ledger")
    parent, forked = _run_in(own[0], "parent_run"), _run_in(fork, "parent")
    chain = _chain(parent, starts, seen={run})
    read = _read_chain(ledger, chain if forked is None else [*chain, forked])
    followed = {each: start for each, start in starts.items() if each in restarted}
    return RunRecord(
        run=run,
        tree_head=None if ledger.head is None else ledger.head.note,
        size=ledger.size,
        entries=own,
        root=_root_of(ledger, own[-1].index + 1),
        transcript=calls,
        chain=tuple(read[each] for each in chain),
        forked=() if forked is None else read[forked],
        checkpoints=tuple(checkpoints),
        ancestors=tuple(followed[each] for each in _chain(parent, followed, seen={run})),
    )


def _root_of(ledger: VerifiedLedger, size: int) -> bytes:
    """Return the root over the first entries of a ledger."""
    state, entries = State(), islice(ledger.raw_entries(), size)
    while leaves := [leaf_hash(raw) for raw in islice(entries, _LEAVES)]:
        state = state.grown(leaves)
    return state.root


def _chain(
    parent: UUID | None, starts: Mapping[UUID, VerifiedEntry], *, seen: set[UUID]
) -> list[UUID]:
    """Return a run's parent, its parent's parent and so on, as far as `starts` knows them.

    Any run can name any other its parent: for what a restart handed on, `starts` are those of runs
    that ended for one.
    """
    chain = []
    while parent is not None and parent in starts and parent not in seen:
        seen.add(parent)
        chain.append(parent)
        parent = _run_in(starts[parent], "parent_run")
    return chain


def _read_chain(ledger: VerifiedLedger, chain: list[UUID]) -> dict[UUID, SpooledEntries]:
    """Return the entries of each of these runs, from one more pass."""
    found = {each: SpooledEntries() for each in chain}
    if chain:
        for entry in ledger.select(streams=chain):
            if entry.stream_id in found:
                found[entry.stream_id].append(entry)
    return found


def _run_in(entry: VerifiedEntry | None, name: str) -> UUID | None:
    """Return the run that an entry names; None too where the replay will find fault."""
    try:
        return UUID(told(entry, name))
    except (AttributeError, TypeError, ValueError):
        return None
