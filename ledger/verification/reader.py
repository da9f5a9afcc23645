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
from dataclasses import dataclass, replace
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
from ledger.verification.marks import chosen_entries, joined, marked_entries, marked_notes
from ledger.verification.memory import Memory, Remembered
from ledger.verification.parallel import verify_divided
from ledger.verification.proofs import BLOCK
from ledger.verification.snapshots import Snapshot, snapshot
from ledger.verification.states import Signatures, State, Versions, root_of
from ledger.verification.vectorized import EntryRow
from ledger.verification.verified_entries import VerifiedEntry, is_of, parse_entry
from ledger.verification.verified_notes import (
    TreeHead,
    open_tree_head,
    parse_tree_head,
    parse_vkey,
)
from ledger.verification.verify import HeadRow, Verification, Verified

_AROUND_VERSION = """
    SELECT (SELECT stream_version FROM entries WHERE stream_id = ? AND stream_version < ?
            ORDER BY stream_version DESC LIMIT 1),
           (SELECT idx FROM entries WHERE stream_id = ? AND stream_version >= ?
            ORDER BY stream_version LIMIT 1)"""
_Row = TypeVar("_Row", EntryRow, HeadRow)


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
    def passed(cls, found: "Verified | VerifiedLedger") -> Self:
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


class VerifiedLedger:
    """A verified ledger as of one moment; for use inside open_verified() only."""

    def __init__(self, found: Verified, stored: Snapshot, *, blocks: Sequence[bytes] = ()) -> None:
        self.state, self.size = found.state, found.state.size
        self.head = found.head
        self.vkey, self.authority = found.vkey, found.authority
        self.unread = found.unread  # entries at its beginning that were verified earlier, not now
        self.blocks = blocks  # as write_proofs() uses them; none where they are not known
        self._stored = stored
        self._entry_marks = found.entry_marks
        self._head_marks = found.head_marks

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
        for index, data in zip(found, self.raw_chosen(found), strict=True):
            yield parse_entry(data, index=index)

    def raw_chosen(self, indexes: Sequence[int]) -> Iterator[bytes]:
        """Yield the same as they are stored and hashed; each index is there, after those below."""
        return chosen_entries(self._around, self._entry_marks, indexes)

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
        as entries() does. Where only what is new was verified they are as they are stored: one
        that is shown to others must be verified.
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
    memory: Memory | None = None,
    whole: bool = False,
) -> Iterator[VerifiedLedger]:
    """Verify the ledger in a directory, then give access to exactly what was verified.

    Without a `vkey` the one beside the ledger is trusted. Of the tree heads' signatures the
    newest is checked, which covers every entry; see check_ledger() for the others. Raises
    VerificationError for a ledger that does not hold, StorageError or KeyFileError for what is
    not a ledger at all, KeptHeadError for a `kept_head` that is not a tree head.

    With a `memory` it has to contain what is remembered of it, and only what is new since is
    verified, unless the `whole` is wanted or a head was kept. Earlier entries were verified then;
    each that is read is compared with what was. Where nothing is remembered, or something does not
    fit, the whole ledger is verified. What was verified is remembered, if that can be written.
    """
    paths = LedgerPaths(directory)
    key = _named(paths, vkey)
    kept_heads = () if kept_head is None else (kept_head,)
    recalled = memory.recall(key) if memory else None
    with snapshot(paths) as stored:
        _check_own(stored, directory, vkey=key, memory=memory)
        held = None
        if memory and not whole and not kept_heads:
            held = _verify_after(stored, recalled, signatures=signatures)
        if held is None or not held.entry_marks:
            held = _verify(stored, _against(kept_heads, recalled, vkey=key, signatures=signatures))
        if memory:
            with suppress(StorageError, MemoryFileError):  # then it is verified again next time
                memory.settle(directory, key, trusted=vkey is None)
                if not (held.head_marks is None and recalled and held.state == recalled.state):
                    _is_kept(memory, held, after=recalled)
        yield VerifiedLedger(held, stored, blocks=_blocks(memory, held))


def _named(paths: LedgerPaths, vkey: str | None) -> str:
    return read_vkey(paths.vkey) if vkey is None else vkey.strip()


def _against(
    kept_heads: Sequence[str], recalled: Remembered | None, *, vkey: str, signatures: Signatures
) -> Verification:
    """Return the verification of a whole ledger, which has to contain what is remembered of it."""
    return Verification(
        vkey=vkey,
        kept_heads=kept_heads,
        remembered=recalled.note if recalled else None,
        signatures=signatures,
    )


def check_ledger(
    directory: Path,
    *,
    vkey: str | None = None,
    kept_head: str | None = None,
    signatures: Signatures = "all",
    processes: int = 1,
    memory: Memory | None = None,
    new: bool = False,
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

    With a memory and no kept head, `new` verifies only what is new since the tree head that is
    remembered, and that it continues that one. What lies before was verified then, is not read
    again, and may have been changed in the file since: `unread` says how many entries that are.
    Where nothing is remembered, or something does not fit, the whole ledger is verified.

    What was verified is given to `read`, so that a caller need not verify it a second time. What
    it takes of earlier entries is compared with what was verified then.
    """
    paths = LedgerPaths(directory)
    key = _named(paths, vkey)
    kept_heads = () if kept_head is None else (kept_head,)
    while True:
        recalled = memory.recall(key) if memory else None
        verification = None
        shown = None
        try:
            with snapshot(paths) as stored:
                _check_own(stored, directory, vkey=key, memory=memory)
                held = None
                if new and memory and not kept_heads:
                    held = _verify_after(stored, recalled, signatures=signatures)
                if held is None or (read is not None and not _is_read(held, stored, read)):
                    verification = _against(kept_heads, recalled, vkey=key, signatures=signatures)
                    shown = _newest_note(stored)
                    held = _verify(stored, verification, processes=processes)
                    if read is not None:
                        read(VerifiedLedger(held, stored))
        except VerificationError as e:
            return VerificationReport.failed(e, verification, shown=shown)
        if memory is not None:
            memory.settle(directory, key, trusted=vkey is None)
        if _is_kept(memory, held, after=recalled):
            _blocks(memory, held)
            return VerificationReport.passed(held)


def _is_read(held: Verified, stored: Snapshot, read: Callable[[VerifiedLedger], None]) -> bool:
    """Let what was verified be read; tell whether earlier entries were as they had been."""
    if not held.entry_marks:
        return False
    try:
        read(VerifiedLedger(held, stored))
    except ConsistencyError:  # verified as a whole, it is told which was changed
        return False
    return True


def verify_since(directory: Path, *, vkey: str, state: State) -> State:
    """Return what a ledger that was verified up to a state has come to since.

    Raises ConsistencyError for one that does not continue it.
    """
    with snapshot(LedgerPaths(directory)) as stored:
        held = _verify_new(stored, vkey=vkey, start=state, signatures="newest")
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


def _is_kept(memory: Memory | None, held: Verified, *, after: Remembered | None) -> bool:
    """Remember what was verified; tell whether it was verified against the latest memory."""
    if memory is None or held.head is None:
        return True
    marks = held.entry_marks
    new = Remembered.of(vkey=held.vkey, note=held.head.note, state=held.state, marks=marks)
    return memory.keep(new, after=after)


def _blocks(memory: Memory | None, held: Verified) -> Sequence[bytes]:
    """Return the roots of all subtrees of level BLOCK, and keep them; none if some are unknown."""
    count = held.unread >> BLOCK
    known = memory.blocks(held.vkey, count) if memory and count else []
    if len(known) < count:
        return ()
    blocks = [*known, *held.blocks]
    if memory and held.blocks and memory.blocks(held.vkey, len(blocks)) != blocks:
        memory.keep_blocks(held.vkey, blocks)
    return blocks


def _verify_after(
    stored: Snapshot, recalled: Remembered | None, *, signatures: Signatures
) -> Verified | None:
    """Return what the ledger has come to since it was remembered; None if it has to be read whole.

    Without the marks of what is remembered, none are returned.
    """
    if recalled is None:
        return None
    marks = recalled.marks
    held = _verify_new(stored, vkey=recalled.vkey, start=recalled.state, signatures=signatures)
    if held is None:
        return None
    return replace(held, entry_marks=joined(marks, held.entry_marks) if marks else ())


def _verify_new(
    stored: Snapshot, *, vkey: str, start: State, signatures: Signatures
) -> Verified | None:
    """Return what the ledger has come to since a state, or None if something does not fit.

    The one way to rest on what was verified earlier, which is not read: the ledger must be of this
    origin and key, and its newest tree head must be of the state that the new entries lead to;
    without new ones, of the state itself. Whether a stream's first new version follows its last old
    one is asked of the columns of old entries.
    """
    with stored.explained():
        try:
            _check_meta(stored, vkey=vkey)
            note = _newest_note(stored)
            verification = Verification(vkey=vkey, start=start, signatures=signatures)
            with stored.in_bulk():
                new = verification.run(
                    stored.entries_after(start.size), stored.heads_after(start.size)
                )
            if new.versions.overflowed:
                return None
            known = Versions()
            for stream, first in new.versions.first.items():
                before, index = stored.one(_AROUND_VERSION, (stream, first) * 2)
                if type(index) is not int or index < start.size:
                    return None
                if type(before) is int:
                    known.last[stream] = before
            new.versions.follow(known)
            head = new.head  # without news, the one that is known
            if head is None and (new.state.size or note is not None):
                key = verification.authority.ledger_vkey_at(new.state.size)
                head = open_tree_head(note or "", vkey=key)
        except (VerificationError, ValueError, sqlite3.Error):
            return None
    shown = (0, root_of(())) if head is None else (head.size, head.root)
    if shown != (new.state.size, root_of(new.state.edge)):
        return None
    return replace(new, head=head, head_marks=None, unread=start.size)


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
    with stored.explained():
        _check_meta(stored, vkey=verification.vkey)
        advanced("verifying", 0, _claimed_size(stored))
        held = verify_divided(stored, verification, processes=processes) if processes > 1 else None
        if held is None:
            try:
                with stored.in_bulk():
                    held = verification.run(stored.entries_from_top(), stored.heads_from_top())
            except sqlite3.Error:  # a text that is too long or not UTF-8, on which it is to judge
                held = verification.run(stored.entries_from_top(), stored.heads_from_top())
        # Only here the columns are verified, by which the database can tell.
        bad = stored.first_version_out_of_step() if held.versions.overflowed else None
    if bad is not None:
        raise ConsistencyError(f"entry {bad} is not the next version of its stream", index=bad)
    return held
