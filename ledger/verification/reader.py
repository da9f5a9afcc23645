"""Reading a ledger's file for verification, without ever writing to it.

Verified, then used: both passes run in one read transaction, and the second is compared with what
the first has hashed. A file that is changed in between is refused.

Source: docs/reference/ledger-format.md, "Database".
Trust: the file is hostile; entries are released only after all of them were verified.
I/O: reads the database and the vkey; where its folder cannot be written, works on a copy.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

from ledger.database import explained
from ledger.errors import (
    ConsistencyError,
    ContradictionError,
    KeyFileError,
    MemoryFileError,
    SignatureError,
    StorageError,
    VerificationError,
)
from ledger.files import read_text
from ledger.paths import MAX_VKEY, LedgerPaths
from ledger.progress import advanced
from ledger.verification.authority import Authority
from ledger.verification.marks import Mark, chosen_entries, joined, marked_entries, marked_notes
from ledger.verification.memory import Memory, Remembered
from ledger.verification.parallel import verify_new, verify_whole
from ledger.verification.snapshots import Snapshot, snapshot
from ledger.verification.states import Signatures, State, root_of
from ledger.verification.vectorized import MismatchError
from ledger.verification.verified_entries import VerifiedEntry, is_of, parse_entry
from ledger.verification.verified_notes import (
    TreeHead,
    open_tree_head,
    parse_tree_head,
    parse_vkey,
)
from ledger.verification.verify import EntryRow, HeadRow, Verification

__all__ = [
    "VerificationReport",
    "Verified",
    "VerifiedLedger",
    "check_ledger",
    "check_new",
    "open_continued",
    "open_verified",
    "read_tree_head",
    "read_vkey",
    "verify_since",
]

_Row = TypeVar("_Row", EntryRow, HeadRow)


@dataclass(frozen=True)
class Verified:
    """What the verification of a ledger came to."""

    state: State
    head: TreeHead | None
    authority: Authority
    entry_marks: Sequence[Mark] = ()
    head_marks: Sequence[Mark] | None = ()  # None: earlier tree heads were not read
    unread: int = 0  # entries at its beginning that were verified earlier, and not now


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """What check_ledger() found."""

    ok: bool
    size: int  # entries that fit together, up to the fault if there is one
    head: TreeHead | None  # the newest tree head that holds
    error: str | None = None
    error_type: str | None = None
    index: int | None = None  # the first bad entry, where one is known
    contradiction: tuple[str, str] | None = None
    """A kept head that this ledger is behind or beside, and the newest that it shows: two notes."""
    authority: Authority | None = None  # which keys stand, if the ledger holds
    state: State | None = None  # what the verification of further entries needs, if it holds
    unread: int = 0  # entries at its beginning that were verified before, and not read this time

    @property
    def complete_to(self) -> int:
        """How many entries the newest tree head covers."""
        return self.head.size if self.head else 0

    @classmethod
    def passed(cls, found: Verified) -> Self:
        """Return the report of what holds."""
        return cls(
            ok=True,
            size=found.state.size,
            head=found.head,
            authority=found.authority,
            state=found.state,
            unread=found.unread,
        )

    @classmethod
    def failed(
        cls, error: VerificationError, verification: Verification | None, *, shown: str | None
    ) -> Self:
        """Return the report of what does not hold; `shown` is the newest tree head's note."""
        contradiction = None
        if isinstance(error, ContradictionError) and shown is not None:
            contradiction = (error.kept, shown)
        return cls(
            ok=False,
            size=verification.size if verification else 0,
            head=verification.head if verification else None,
            error=str(error),
            error_type=type(error).__name__,
            index=error.index,
            contradiction=contradiction,
        )


@dataclass(frozen=True)
class VerifiedLedger:
    """A verified ledger as of one moment; for use inside open_verified() only."""

    size: int
    head: TreeHead | None
    vkey: str
    authority: Authority
    state: State
    unread: int  # entries at its beginning that were verified earlier, and not now
    _stored: Snapshot
    _entry_marks: Sequence[Mark]
    _head_marks: Sequence[Mark] | None

    def entries(self, *, start: int = 0) -> Iterator[VerifiedEntry]:
        """Yield the entries that were verified, from this index on.

        Each is compared with what was verified before it is yielded; raises ConsistencyError
        where the file has been changed since.
        """
        for index, data in enumerate(self.raw_entries(start=start), start):
            yield parse_entry(data, index=index)

    def select(
        self, *, streams: Collection[UUID] = (), names: Collection[str] = ()
    ) -> Iterator[VerifiedEntry]:
        """Yield the entries of these streams and those of these names; raises as entries() does.

        All entries are read.
        """
        ids, words = {each.bytes for each in streams}, {each.encode() for each in names}
        for index, data in enumerate(self.raw_entries()):
            if is_of(data, ids, words):
                yield parse_entry(data, index=index)

    def chosen(self, indexes: Iterable[int]) -> Iterator[VerifiedEntry]:
        """Yield the entries at these indexes, ascending; raises as entries() does."""
        found = sorted({each for each in indexes if 0 <= each < self.size})
        entries = chosen_entries(self._around, self._entry_marks, found)
        for index, data in zip(found, entries, strict=True):
            yield parse_entry(data, index=index)

    def _around(self, first: int) -> Iterator[bytes]:  # looked up, and compared with a mark
        return (row[4] for row in self._rows(self._stored.entries_after, size=first))

    def raw_entries(self, *, start: int = 0) -> Iterator[bytes]:
        """Yield the same entries as they are stored and hashed; raises as entries() does."""
        return marked_entries(self._entries, self._entry_marks, start=start)

    def _entries(self, first: int) -> Iterator[bytes]:
        if self._head_marks is None:
            return self._around(first)
        return (row[4] for row in self._rows(self._stored.entries_from_top, skip=first))

    def head_notes(self) -> Iterator[str]:
        """Yield the tree heads' notes in the order of their sizes.

        Of their signatures, those were checked that open_verified() was asked to check. Raises
        as entries() does. In a ledger from open_continued() they are as they are stored: one that
        is shown to others must be verified.
        """
        rows = self._rows(self._stored.heads_from_top)
        notes = (row[1] for row in rows)
        if self._head_marks is None:
            yield from (note for note in notes if isinstance(note, str))
        else:
            yield from marked_notes(notes, self._head_marks)

    def _rows(self, select: Callable[..., Iterator[_Row]], **arguments: int) -> Iterator[_Row]:
        with self._stored.explained():
            rows = select(**arguments)
        while True:  # each step by itself, so as not to explain a caller's errors
            try:
                row = next(rows, None)
            except Exception:
                with self._stored.explained():
                    raise
            if row is None:
                return
            yield row


@contextmanager
def open_verified(
    directory: Path,
    *,
    vkey: str | None = None,
    kept_head: str | None = None,
    signatures: Signatures = "newest",
) -> Iterator[VerifiedLedger]:
    """Verify the ledger in a directory, then give access to exactly what was verified.

    Without a `vkey` the one beside the ledger is trusted. Of the tree heads' signatures the
    newest is checked, which covers every entry; see check_ledger() for the others. Raises
    VerificationError for a ledger that does not hold, StorageError or KeyFileError for what is
    not a ledger at all, KeptHeadError for a `kept_head` that is not a tree head.
    """
    paths = LedgerPaths(directory)
    key = read_vkey(paths.vkey) if vkey is None else vkey.strip()
    with snapshot(paths) as stored:
        kept_heads = () if kept_head is None else (kept_head,)
        verification = Verification(vkey=key, kept_heads=kept_heads, signatures=signatures)
        held = _verify(stored, verification)
        yield _opened(held, key, stored)


@contextmanager
def open_continued(
    directory: Path, *, memory: Memory, vkey: str | None = None
) -> Iterator[VerifiedLedger]:
    """Do as open_verified(), but verify only what is new since what is remembered.

    Earlier entries were verified then; each that is read is compared with what was. Where nothing
    is remembered, or something does not fit, the whole ledger is verified. What was verified is
    remembered, if that can be written. Raises as open_verified() does.
    """
    paths = LedgerPaths(directory)
    key = read_vkey(paths.vkey) if vkey is None else vkey.strip()
    recalled = memory.recall(key)
    with snapshot(paths) as stored:
        _check_own(stored, directory, vkey=key, memory=memory)
        held = None
        if recalled is not None and recalled.authentic:
            marks = memory.recall_marks(recalled)
            if marks is not None:
                held = _verify_new(
                    stored, vkey=key, start=recalled.state, signatures="newest", marks=marks
                )
        if held is None:
            verification = Verification(
                vkey=key,
                kept_heads=() if recalled is None else (recalled.note,),
                remembered=recalled.note if recalled and recalled.authentic else None,
                signatures="newest",
            )
            held = _verify(stored, verification)
        known = held.head_marks is None  # all but what is new
        with suppress(StorageError, MemoryFileError):  # then it is verified again next time
            memory.settle(directory, key, trusted=vkey is None)
            if not (known and recalled is not None and held.state == recalled.state):
                _is_kept(memory, key, held, after=recalled)
        yield _opened(held, key, stored)


def _opened(held: Verified, key: str, stored: Snapshot) -> VerifiedLedger:
    return VerifiedLedger(
        held.state.size,
        held.head,
        key,
        held.authority,
        held.state,
        held.unread,
        stored,
        held.entry_marks,
        held.head_marks,
    )


def check_ledger(
    directory: Path,
    *,
    vkey: str | None = None,
    kept_head: str | None = None,
    signatures: Signatures = "all",
    processes: int = 1,
    memory: Memory | None = None,
    read: Callable[[VerifiedLedger], None] | None = None,
) -> VerificationReport:
    """Verify as open_verified() does, but report a VerificationError instead of raising it.

    `signatures` says which tree heads' are checked: "all" of them, or the "newest" one's. The
    latter covers every entry; the others vouch only for their batch having been signed when it
    was written. Everything else is checked either way: all entries and links, each tree head's
    size and root, authors' signatures, a kept head's signature.

    A large ledger is divided among up to so many `processes`. With a `memory`, the tree head
    remembered from last time counts as one more kept head, and the newest takes its place if the
    ledger holds. Raises MemoryFileError for a memory that is damaged.

    What was verified is given to `read`, so that a caller need not verify it a second time.
    """
    paths = LedgerPaths(directory)
    key = read_vkey(paths.vkey) if vkey is None else vkey.strip()
    given = () if kept_head is None else (kept_head,)
    while True:
        recalled = memory.recall(key) if memory else None
        own = recalled is not None and recalled.authentic
        claimed = () if recalled is None or own else (recalled.note,)  # its signature is checked
        verification = None
        shown = None
        try:
            with snapshot(paths) as stored:
                _check_own(stored, directory, vkey=key, memory=memory)
                verification = Verification(
                    vkey=key,
                    kept_heads=(*given, *claimed),
                    remembered=recalled.note if recalled and own else None,
                    signatures=signatures,
                )
                shown = _newest_note(stored)
                held = _verify(stored, verification, processes=processes)
                if read is not None:
                    read(_opened(held, key, stored))
        except VerificationError as e:
            return VerificationReport.failed(e, verification, shown=shown)
        if memory is not None:
            memory.settle(directory, key, trusted=vkey is None)
        if _is_kept(memory, key, held, after=recalled):
            return VerificationReport.passed(held)


def check_new(
    directory: Path,
    *,
    memory: Memory,
    vkey: str | None = None,
    signatures: Signatures = "all",
    read: Callable[[VerifiedLedger], None] | None = None,
) -> VerificationReport:
    """Verify what is new since the tree head that is remembered, and that it continues that one.

    What lies before was verified then, is not read again, and may have been changed in the file
    since: `unread` says how many entries that are. Where nothing is remembered, or something does
    not fit, the whole ledger is verified, as by check_ledger(). What `read` takes is compared with
    what was verified then.
    """
    paths = LedgerPaths(directory)
    key = read_vkey(paths.vkey) if vkey is None else vkey.strip()
    recalled = memory.recall(key)
    exchanged = memory.places.others(directory, key)  # which check_ledger() refuses
    if recalled is not None and recalled.authentic and not exchanged:
        marks = memory.recall_marks(recalled)
        with snapshot(paths) as stored:
            held = _verify_new(
                stored, vkey=key, start=recalled.state, signatures=signatures, marks=marks
            )
            if held is not None and read is not None and not _is_read(held, key, stored, read):
                held = None
        if held is not None and _is_kept(memory, key, held, after=recalled):
            memory.settle(directory, key, trusted=vkey is None)
            return VerificationReport.passed(held)
    return check_ledger(directory, vkey=vkey, signatures=signatures, memory=memory, read=read)


def _is_read(
    held: Verified, key: str, stored: Snapshot, read: Callable[[VerifiedLedger], None]
) -> bool:
    """Let what was verified be read; tell whether earlier entries were as they had been."""
    if not held.entry_marks:
        return False
    try:
        read(_opened(held, key, stored))
    except ConsistencyError:  # verified as a whole, it is told which was changed
        return False
    return True


def verify_since(directory: Path, *, vkey: str, state: State) -> State:
    """Return what a ledger that was verified up to a state has come to since.

    Raises ConsistencyError for one that does not continue it.
    """
    with snapshot(LedgerPaths(directory)) as stored:
        held = _verify_new(stored, vkey=vkey, start=state, signatures="newest", marks=None)
    if held is None:
        raise ConsistencyError(
            f"the ledger does not continue as it was verified up to entry {state.size - 1}; "
            "verify it again: `proctor verify`"
        )
    return held.state


def read_tree_head(directory: Path) -> str | None:
    """Return the newest tree head's note, unverified, for keeping; None in an empty ledger."""
    with snapshot(LedgerPaths(directory)) as stored:
        return _newest_note(stored)


def _newest_note(stored: Snapshot) -> str | None:
    with stored.explained():
        note = stored.newest_note()
    return None if note is None else str(note)


def _claimed_size(stored: Snapshot) -> int | None:
    """Return how many entries the newest tree head speaks of, for progress: nobody relies on it."""
    with suppress(VerificationError):
        return parse_tree_head(_newest_note(stored) or "").size
    return None


def read_vkey(path: Path) -> str:
    """Return the public key that lies beside a ledger, without looking at what it says."""
    with explained(path):
        try:
            return read_text(path, most=MAX_VKEY).strip()
        except FileNotFoundError:
            raise KeyFileError(f"{path}: public key not found; give the ledger's vkey") from None


def _is_kept(memory: Memory | None, vkey: str, held: Verified, *, after: Remembered | None) -> bool:
    """Remember what was verified; tell whether it was verified against the latest memory."""
    if memory is None or held.head is None:
        return True
    new = Remembered(vkey=vkey, note=held.head.note, state=held.state)
    return memory.keep(new, after=after, marks=held.entry_marks)


def _verify_new(
    stored: Snapshot,
    *,
    vkey: str,
    start: State,
    signatures: Signatures,
    marks: Sequence[Mark] | None,
) -> Verified | None:
    """Return what the ledger has come to since a state, or None if something does not fit.

    The one way to rest on what was verified earlier: the ledger must be of this origin and key,
    and its newest tree head must be of the state that the new entries lead to; without new ones,
    of the state itself. `marks` are those of the entries up to it; without them none are returned.
    """
    with stored.explained():
        try:
            _check_meta(stored, vkey=vkey)
            note = _newest_note(stored)
            new = verify_new(stored, vkey=vkey, start=start, signatures=signatures)
            key = new.authority.ledger_vkey_at(new.end.size)
            head = new.head  # without news, the one that is known
            if head is None and (new.end.size or note is not None):
                head = open_tree_head(note or "", vkey=key)
        except (MismatchError, VerificationError, sqlite3.Error):
            return None
    shown = (0, root_of(())) if head is None else (head.size, head.root)
    if shown != (new.end.size, root_of(new.end.edge)):
        return None
    every = () if marks is None else joined(marks, new.entry_marks)
    return Verified(new.end, head, new.authority, every, None, start.size)


def _check_own(stored: Snapshot, directory: Path, *, vkey: str, memory: Memory | None) -> None:
    """Raise unless the ledger is of this key, and no other one was in its place."""
    parse_vkey(vkey)
    with stored.explained():
        _check_meta(stored, vkey=vkey)
    if memory is not None:
        memory.places.verify(directory, vkey)


def _check_meta(stored: Snapshot, *, vkey: str) -> None:
    if sorted(stored.meta(), key=repr) != [("origin", vkey.partition("+")[0]), ("vkey", vkey)]:
        raise SignatureError(f"{stored.path}: the ledger's public key is not the one given")


def _verify(stored: Snapshot, verification: Verification, *, processes: int = 1) -> Verified:
    vkey = verification.vkey
    with stored.explained():
        _check_meta(stored, vkey=vkey)
        advanced("verifying", 0, _claimed_size(stored))
        try:
            whole = verify_whole(
                stored,
                vkey=vkey,
                kept_heads=verification.kept_heads,
                signatures=verification.signatures,
                processes=processes,
            )
            return Verified(
                whole.end, whole.head, whole.authority, whole.entry_marks, whole.head_marks
            )
        except (MismatchError, VerificationError, sqlite3.Error):
            pass  # one entry after the other, it will be told what is wrong, and where
        verification.run(stored.entries_from_top(), stored.heads_from_top())
        # Here and not there, because it takes memory or a sort: the columns are verified by now.
        bad = stored.first_version_out_of_step()
    if bad is not None:
        raise ConsistencyError(f"entry {bad} is not the next version of its stream", index=bad)
    return Verified(
        verification.state,
        verification.head,
        verification.authority,
        verification.entry_marks,
        verification.head_marks,
    )
