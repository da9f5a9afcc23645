"""Verification of a ledger, from its bytes and a public key alone, one entry after the other.

Written from docs/reference/ledger-format.md and not from the writer: it has its own parsers and
its own hashing. It shares the errors, the codec of bodies and the record of an author with it.

Source: the format page; RFC 6962 section 2.1; C2SP signed-note and tlog-checkpoint.
Trust: every argument but the vkey is hostile; nothing is good before verify_entries() returns.
I/O: none.  Memory: one hash for each doubling of the ledger's size, and the keys that it names.
Not covered: the streams' version numbers (reader.py asks the database), meaning of bodies.
See vectorized.py for the same in a fraction of the time, which says only whether a ledger holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from ledger.errors import (
    ConsistencyError,
    ContradictionError,
    LinkError,
    MalformedError,
    SignatureError,
    VerificationError,
)
from ledger.verification.authority import Authority
from ledger.verification.marks import MARKED, Mark, NoteMarks
from ledger.verification.states import (
    Signatures,
    State,
    decides_keys,
    grown,
    open_head,
    parse_kept_head,
    root_of,
)
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import TreeHead, open_tree_head

__all__ = [
    "EntryRow",
    "HeadRow",
    "Verification",
    "verify_entries",
]

EntryRow = tuple[int, bytes, int, str, bytes]
"""idx, stream_id, stream_version, name, entry: a row of the entries table."""
HeadRow = tuple[int, str, bytes]
"""size, note, edge: a row of the tree_heads table."""


def verify_entries(
    entries: Iterable[EntryRow],
    heads: Iterable[HeadRow],
    *,
    vkey: str,
    kept_head: str | None = None,
) -> None:
    """Raise VerificationError unless this is the whole ledger that the key's owner signed.

    Entries and heads come in the order of index and size. A `kept_head` is a signed note
    that somebody kept: with it, truncation and rewriting by the key's owner are found too.
    Raises KeptHeadError if that is no tree head at all. One by another key fails verification:
    it may be all that is left of a ledger that was exchanged for this one.
    """
    kept_heads = () if kept_head is None else (kept_head,)
    Verification(vkey=vkey, kept_heads=kept_heads).run(entries, heads)


class Verification:
    """One pass over a ledger; each step states the section of the format that it enforces.

    After run() has returned, `size`, `head`, `state` and `authority` say what was verified;
    after it has raised, how far it came.
    """

    def __init__(
        self,
        *,
        vkey: str,
        kept_heads: Sequence[str] = (),
        remembered: str | None = None,  # one more kept head, whose signature was checked
        signatures: Signatures = "all",
        edges: bool = True,  # whether tree heads come with theirs; a bundle has none
    ) -> None:
        self.vkey = vkey
        self.edges = edges
        self._remembered = remembered
        own = () if remembered is None else (remembered,)
        self.kept_heads = [parse_kept_head(note, vkey=vkey) for note in (*kept_heads, *own)]
        self.signatures = signatures
        self.authority = Authority(vkey)
        self.size = 0
        self.head: TreeHead | None = None
        self._edge: list[bytes] = []
        self._edge_before: list[bytes] = []  # without the last entry
        self._hash = bytes(32)  # of the last entry
        self._hash_before = bytes(32)  # of the one before it
        self._time = 0
        self._key_entries: list[bytes] = []
        self._entry_marks: list[Mark] = []
        self._head_marks = NoteMarks()

    @property
    def entry_marks(self) -> list[Mark]:
        """What the entries are recognised by when they are read again."""
        last = self._entry_marks[-1][0] if self._entry_marks else 0
        end = [(self.size, self._hash)] if last < self.size else []
        return [*self._entry_marks, *end]

    @property
    def head_marks(self) -> list[Mark]:
        """What the tree heads are recognised by when they are read again."""
        return self._head_marks.marks()

    @property
    def state(self) -> State:
        """What the entries' verification can go on from."""
        return State(
            size=self.size,
            last_hash=self._hash,
            time_ns=self._time,
            edge=tuple(self._edge),
            authority=tuple(self._key_entries),
        )

    def run(self, entries: Iterable[EntryRow], heads: Iterable[HeadRow]) -> None:
        """Do as verify_entries() does; a second run needs another object."""
        self._check_kept_heads()
        pending = iter(heads)
        head = self._next_head(pending)
        # Each entry is looked at together with the one that follows: when a link is broken,
        # that one tells which of the two ends was changed.
        for row, following in pairwise(chain(entries, [None])):
            assert row is not None  # only the last one is, and it has no successor
            self._entry(row, following, head)
            if head is not None and head[0] == self.size:
                self._head(head, following)
                head = self._next_head(pending)
            self._check_kept_heads()
        self._end(head)

    def _entry(self, row: EntryRow, following: EntryRow | None, head: HeadRow | None) -> None:
        at = self.size
        # "Database": entries are stored under their index, from 0, none left out.
        if type(row[0]) is int and row[0] < 0:
            raise ConsistencyError(f"a row has the negative index {row[0]}", index=row[0])
        if type(row[0]) is not int or row[0] != at:
            raise ConsistencyError(
                f"entry {at} is missing: the row in its place has index {row[0]!r}", index=at
            )
        # "Entry": the bytes follow the format ...
        entry = parse_entry(row[4], index=at)
        if entry.index != at:
            if at and entry.entry_hash == self._hash:
                raise LinkError(f"entry {at} is a copy of entry {at - 1}", index=at)
            if at and entry.index == at - 1 and entry.previous == self._hash_before:
                raise LinkError(f"entry {at - 1} was inserted between two others", index=at - 1)
            raise LinkError(f"entry {at} states index {entry.index}", index=at)
        # ... and the columns repeat them.
        said = (entry.stream_id.bytes, entry.stream_version, entry.name)
        if said != (row[1], row[2], row[3]) or type(row[2]) is not int:
            raise ConsistencyError(f"entry {at} does not match its columns", index=at)
        # "Hashes": it holds the hash of the one before.
        if entry.previous != self._hash:
            bad = self._broken_end(entry, following, head)
            raise LinkError(
                f"entry {bad} was changed: entry {at} does not contain the hash of entry {at - 1}",
                index=bad,
            )
        # "Entry": time does not run backwards.
        if entry.time_ns < self._time:
            raise ConsistencyError(
                f"entry {at} has an earlier time than the entry before it", index=at
            )
        self._author(entry, row[4])
        self._time = entry.time_ns
        self._hash_before, self._hash = self._hash, entry.entry_hash
        self._edge_before, self._edge = self._edge, grown(self._edge, at, entry.entry_hash)
        self.size += 1
        if self.size % MARKED == 0:
            self._entry_marks.append((self.size, self._hash))

    def _author(self, entry: VerifiedEntry, data: bytes) -> None:
        # "Author" and "Keys": who signs may do so, and what decides on keys follows the rules.
        if entry.author is not None or entry.stream_id == self.authority.stream_id:
            self.authority.apply(entry)
            if decides_keys(entry, self.authority.stream_id):
                self._key_entries.append(data)

    def _head(self, row: HeadRow, following: EntryRow | None) -> None:
        size, note, edge = row
        last = size - 1
        # "Tree head": signed, and about this size and this tree.
        try:
            head = open_head(note, authority=self.authority, size=size, signatures=self.signatures)
        except VerificationError as e:
            raise type(e)(f"tree head at size {size}: {e}", index=last) from e
        if head.size != size:
            raise ConsistencyError(f"tree head at size {size} states size {head.size}", index=last)
        if head.root != root_of(self._edge):
            first = self.head.size if self.head else 0
            relinked = _continues(following, self._hash)
            raise ConsistencyError(
                f"entries {first} to {last} do not match the signed tree head of size {size}",
                index=first if relinked else last,
            )
        # "Database": the edge repeats the tree.
        if self.edges and edge != b"".join(self._edge):
            raise ConsistencyError(f"tree head at size {size} has a wrong edge", index=last)
        self.head = head
        self._head_marks.add(note)

    def _end(self, head: HeadRow | None) -> None:
        if head is not None:
            raise ConsistencyError(
                f"the ledger has {self.size} entries, but a tree head of size {head[0]}",
                index=self.size,
            )
        covered = self.head.size if self.head else 0
        if covered != self.size:
            raise ConsistencyError(
                f"no tree head covers entry {covered} and the entries after it", index=covered
            )
        if self.head is not None and self.signatures == "newest":
            try:
                open_tree_head(self.head.note, vkey=self.authority.ledger_vkey_at(self.size))
            except VerificationError as e:
                raise type(e)(f"tree head at size {self.size}: {e}", index=self.size - 1) from e
        for kept in self.kept_heads:
            if kept.size > self.size:
                self._check_kept_signature(kept, same=False)
                advice = (
                    ", or an older copy was put back. If you did that, run `proctor keys accept`; "
                    "if not, restore the newer ledger"
                )
                raise ContradictionError(
                    f"the kept tree head covers {kept.size} entries, but the ledger has only "
                    f"{self.size}: it was truncated"
                    + (advice if kept.note == self._remembered else ""),
                    index=self.size,
                    kept=kept.note,
                )

    def _next_head(self, heads: Iterator[HeadRow]) -> HeadRow | None:
        head = next(heads, None)
        if head is not None and (type(head[0]) is not int or head[0] <= self.size):
            raise ConsistencyError(
                f"tree heads are out of order: size {head[0]!r} after size {self.size}",
                index=max(self.size - 1, 0),
            )
        return head

    def _check_kept_heads(self) -> None:
        for kept in self.kept_heads:
            if kept.size == self.size:
                same = kept.root == root_of(self._edge)
                self._check_kept_signature(kept, same=same)
                if not same:
                    raise ContradictionError(
                        f"the first {self.size} entries do not match the kept tree head: the "
                        "ledger was rewritten",
                        kept=kept.note,
                    )

    def _check_kept_signature(self, kept: TreeHead, *, same: bool) -> None:
        """Raise SignatureError unless the ledger's key has signed a kept head.

        That is the key which is in force at its size. Where the head is not of this history, any
        key will do that the ledger has had: in the other history it may have been in force.
        """
        if kept.note == self._remembered:
            return
        vkeys = [self.authority.ledger_vkey_at(kept.size)]
        if not same:
            vkeys += [key.vkey for key in self.authority.keys if key.role == "ledger"]
        reasons = []
        for vkey in vkeys:
            try:
                open_tree_head(kept.note, vkey=vkey)
            except VerificationError as e:
                reasons.append(e)
            else:
                return
        later = (
            ", or it is signed by a key that was truncated with the entries"
            if kept.size > self.size
            else ""
        )
        raise SignatureError(
            f"the kept tree head is not from this ledger{later}: {reasons[0]}"
        ) from reasons[0]

    def _broken_end(
        self, entry: VerifiedEntry, following: EntryRow | None, head: HeadRow | None
    ) -> int:
        """Tell which of two entries was changed, when the second does not hold the first's hash."""
        at = self.size
        if at == 0:
            return 0
        intact = _continues(following, entry.entry_hash)
        if intact is None and head is not None and head[0] == at + 1:
            # Nothing follows: ask the tree head, with the hash that this entry claims.
            edge = grown(self._edge_before, at - 1, entry.previous)
            edge = grown(edge, at, entry.entry_hash)
            try:
                vkey = self.authority.ledger_vkey_at(at + 1)
                intact = open_tree_head(head[1], vkey=vkey).root == root_of(edge)
            except VerificationError:
                intact = False
        return at - 1 if intact else at


def _continues(row: EntryRow | None, entry_hash: bytes) -> bool | None:
    """Tell whether a row's entry holds this hash as its predecessor's; None if it cannot tell."""
    if row is None:
        return None
    try:
        return parse_entry(row[4], index=0).previous == entry_hash
    except MalformedError:
        return None
