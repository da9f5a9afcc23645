"""Verification of a ledger, from its bytes and a public key alone.

Written from docs/reference/ledger-format.md and not from the writer: it has its own parsers and
its own hashing. It shares the errors, the codec of bodies and the record of an author with it.
Entries are verified in columns (vectorized.py), and one after the other where something does not
fit there: that takes three times as long, and tells what is wrong, and where.

Source: the format page; RFC 6962 section 2.1; C2SP signed-note and tlog-checkpoint.
Trust: every argument but the vkey is hostile; nothing is good before run() returns.
I/O: none.  Memory: one chunk of entries (0.1 GB if all are as long as may be), a number for each of
up to 100,000 streams, and the keys that the ledger names.
Not covered: meaning of bodies.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from ledger.errors import (
    ConsistencyError,
    ContradictionError,
    LinkError,
    MalformedError,
    SignatureError,
    VerificationError,
)
from ledger.progress import advanced
from ledger.verification.authority import Authority
from ledger.verification.marks import MARKED, Mark, NoteMarks
from ledger.verification.proofs import BLOCK
from ledger.verification.states import (
    Signatures,
    State,
    Versions,
    decides_keys,
    open_head,
    parse_kept_head,
    root_of,
)
from ledger.verification.vectorized import Chunk, EntryRow, Growth, in_columns
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import TreeHead, open_tree_head

_CHUNK = MARKED  # entries at a time, for a core's cache
HeadRow = tuple[int, str, bytes]
"""size, note, edge: a row of the tree_heads table."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What the verification of entries came to: they hold, if those before them do."""

    vkey: str  # the ledger's first
    start: State
    state: State
    head: TreeHead | None  # the newest in these entries
    heads: int  # how many tree heads are in them
    versions: Versions
    entry_marks: Sequence[Mark]
    head_marks: Sequence[Mark] | None  # None: earlier tree heads were not read
    blocks: Sequence[bytes] = ()  # roots of the subtrees of level BLOCK that these entries complete
    unread: int = 0  # entries at the ledger's beginning that were verified earlier, and not now

    @property
    def authority(self) -> Authority:
        """Which keys stand at their end."""
        return self.state.stands(self.vkey)


class Verification:
    """One pass over a ledger; each step states the section of the format that it enforces.

    `state`, `head` and `authority` say what was verified; after run() has raised, how far it came.
    """

    def __init__(
        self,
        *,
        vkey: str,
        kept_heads: Sequence[str] = (),
        remembered: str | None = None,  # one more kept head, whose signature was checked
        signatures: Signatures = "all",
        start: State = State(),  # noqa: B008 - frozen
        whole: bool = True,  # whether nothing may be left after the last tree head
        skipped_heads: int = 0,  # those of sizes up to the start
        edges: bool = True,  # whether tree heads come with theirs; a bundle has none
        new_versions: Callable[[bool], Versions] = Versions,
    ) -> None:
        """Verify what comes after a state.

        Each of the `kept_heads` is a signed note that somebody kept: with it, truncation and
        rewriting by the key's owner are found too. Raises KeptHeadError if that is no tree head at
        all. One by another key fails verification: it may be all that is left of a ledger that was
        exchanged for this one.
        """
        self.vkey = vkey
        self._start = start
        self._remembered = remembered
        own = () if remembered is None else (remembered,)
        self.kept_heads = [parse_kept_head(note, vkey=vkey) for note in (*kept_heads, *own)]
        self.signatures = signatures
        self._whole = whole
        self._skipped_heads = skipped_heads
        self._edges = edges
        self._new_versions = new_versions
        self._begin()

    def _begin(self) -> None:
        self.state = self._start
        self.size = self.state.size  # entries that fit together, and with what is due up to there
        self.authority = self._start.stands(self.vkey)
        self.head: TreeHead | None = None
        self._heads = 0
        self._growth = Growth(self._start, [])  # by the entries that came last
        self._versions = self._new_versions(self._start.size == 0)
        self._entry_marks: list[Mark] = []
        self._head_marks = NoteMarks(self._skipped_heads)
        self._blocks: list[bytes] = []

    def run(
        self,
        entries: Iterable[EntryRow] | Iterable[bytes],
        heads: Iterable[HeadRow],
        *,
        take: Callable[[Chunk], None] = lambda _: None,
        take_head: Callable[[HeadRow, bytes], None] = lambda *_: None,
    ) -> Verified:
        """Raise VerificationError unless this is what the key's owner signed; say what it is.

        Entries and heads come in the order of index and size, from the start on. Entries are rows
        of the database, or entries alone, as a bundle has them. Where not the whole is verified,
        heads may go on after the last entry. A second run begins anew.

        What holds so far is given to `take` and, with the tree's edge, to `take_head`.
        """
        self._begin()
        self._take, self._take_head = take, take_head
        rows, self._pending = _Rows(entries), iter(heads)
        self._next = self._next_head()
        self._due = sorted(self.kept_heads, key=lambda kept: kept.size)
        with _uncollected():
            self._check_heads(rows)
            while chunk := rows.take(_CHUNK):
                try:
                    found = in_columns(chunk, start=self.state, authority=self.authority)
                except (VerificationError, TypeError, ValueError, OverflowError):
                    rows.put_back(chunk)
                    for _ in chunk:
                        self._go_on(self._one(rows), rows)
                else:
                    self._go_on(found, rows)
                advanced("verifying", self.size - self._start.size)
        self._end()
        return Verified(
            vkey=self.vkey,
            start=self._start,
            state=self.state,
            head=self.head,
            heads=self._heads,
            versions=self._versions,
            entry_marks=self._entry_marks,
            head_marks=self._head_marks.marks(),
            blocks=self._blocks,
        )

    def _go_on(self, chunk: Chunk, rows: "_Rows") -> None:
        """Take in entries that hold, and what is due at the sizes that they lead to."""
        at = self.size
        self.state, self.authority, self._growth = chunk.end, chunk.authority, chunk.growth
        try:
            self._versions.add(chunk.streams, chunk.versions, index=at)
        except ConsistencyError as e:
            self._check_heads(rows, upto=e.index)
            raise
        self._check_heads(rows)
        self._entry_marks.append((self.size, self.state.last_hash))
        self._blocks += chunk.growth.completed(BLOCK)
        self._take(chunk)

    def _one(self, rows: "_Rows") -> Chunk:
        """Return what the next entry comes to, or say what is wrong with it."""
        (row,) = rows.take(1)
        at, before = self.size, self.state
        # "Database": entries are stored under their index, from 0, none left out.
        if not isinstance(row, bytes):
            if type(row[0]) is int and row[0] < 0:
                raise ConsistencyError(f"a row has the negative index {row[0]}", index=row[0])
            if type(row[0]) is not int or row[0] != at:
                raise ConsistencyError(
                    f"entry {at} is missing: the row in its place has index {row[0]!r}", index=at
                )
        # "Entry": the bytes follow the format ...
        data = row if isinstance(row, bytes) else row[4]
        entry = parse_entry(data, index=at)
        if entry.index != at:
            if at and entry.entry_hash == before.last_hash:
                raise LinkError(f"entry {at} is a copy of entry {at - 1}", index=at)
            if at and entry.index == at - 1 and entry.previous == self._hash_before():
                raise LinkError(f"entry {at - 1} was inserted between two others", index=at - 1)
            raise LinkError(f"entry {at} states index {entry.index}", index=at)
        # ... and the columns repeat them.
        said = (entry.stream_id.bytes, entry.stream_version, entry.name)
        if not isinstance(row, bytes) and (said != row[1:4] or type(row[2]) is not int):
            raise ConsistencyError(f"entry {at} does not match its columns", index=at)
        # "Hashes": it holds the hash of the one before.
        if entry.previous != before.last_hash:
            bad = self._broken_end(entry, rows)
            raise LinkError(
                f"entry {bad} was changed: entry {at} does not contain the hash of entry {at - 1}",
                index=bad,
            )
        # "Entry": time does not run backwards.
        if entry.time_ns < before.time_ns:
            raise ConsistencyError(
                f"entry {at} has an earlier time than the entry before it", index=at
            )
        # "Author" and "Keys": who signs may do so, and what decides on keys follows the rules.
        if entry.author is not None or entry.stream_id == self.authority.stream_id:
            self.authority.apply(entry)
        decides = decides_keys(entry, self.authority.stream_id)
        growth = Growth(before, [entry.entry_hash])
        end = State(
            size=at + 1,
            last_hash=entry.entry_hash,
            time_ns=entry.time_ns,
            edge=growth.edge(at + 1),
            authority=(*before.authority, data) if decides else before.authority,
        )
        return Chunk(
            entries=[data],
            streams=[entry.stream_id.bytes],
            versions=[entry.stream_version],
            growth=growth,
            end=end,
            authority=self.authority,
        )

    def _check_heads(self, rows: "_Rows", *, upto: int | None = None) -> None:
        """Check the tree heads and the kept ones of the sizes that the last entries led to."""
        end = self.state.size if upto is None else upto
        while True:
            sizes = [head[0] for head in (self._next,) if head] + [k.size for k in self._due[:1]]
            size = min(sizes, default=end + 1)
            self.size = min(max(size, self._start.size), end)
            if size > end:
                return
            if self._next is not None and self._next[0] == size:
                self._check_head(self._next, rows)
                self._next = self._next_head()
            while self._due and self._due[0].size == size:
                kept = self._due.pop(0)
                if size >= self._start.size:
                    self._check_kept(kept, root=root_of(self._growth.edge(size)))

    def _check_head(self, row: HeadRow, rows: "_Rows") -> None:
        size, note, edge = row
        last = size - 1
        own_edge = self._growth.edge(size)
        # "Tree head": signed, and about this size and this tree.
        try:
            head = open_head(note, authority=self.authority, size=size, signatures=self.signatures)
        except VerificationError as e:
            raise type(e)(f"tree head at size {size}: {e}", index=last) from e
        if head.size != size:
            raise ConsistencyError(f"tree head at size {size} states size {head.size}", index=last)
        if head.root != root_of(own_edge):
            first = self._covered
            relinked = size < self.state.size or _continues(rows.peek(), self.state.last_hash)
            raise ConsistencyError(
                f"entries {first} to {last} do not match the signed tree head of size {size}",
                index=first if relinked else last,
            )
        # "Database": the edge repeats the tree.
        joined = b"".join(own_edge)
        if self._edges and edge != joined:
            raise ConsistencyError(f"tree head at size {size} has a wrong edge", index=last)
        self.head = head
        self._heads += 1
        self._head_marks.add(note)
        self._take_head(row, joined)

    def _end(self) -> None:
        if self._whole and self._next is not None:
            raise ConsistencyError(
                f"the ledger has {self.size} entries, but a tree head of size {self._next[0]}",
                index=self.size,
            )
        if self._whole and self._covered != self.size:
            raise ConsistencyError(
                f"no tree head covers entry {self._covered} and the entries after it",
                index=self._covered,
            )
        if self.head is not None and self.signatures == "newest":
            size = self.head.size
            try:
                open_tree_head(self.head.note, vkey=self.authority.ledger_vkey_at(size))
            except VerificationError as e:
                raise type(e)(f"tree head at size {size}: {e}", index=size - 1) from e
        for kept in self._due if self._whole else ():
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

    @property
    def _covered(self) -> int:
        """How many entries the tree heads so far cover."""
        return self.head.size if self.head else self._start.size

    def _next_head(self) -> HeadRow | None:
        head = next(self._pending, None)
        if head is not None and (type(head[0]) is not int or head[0] <= self._covered):
            raise ConsistencyError(
                f"tree heads are out of order: size {head[0]!r} after size {self._covered}",
                index=max(self._covered - 1, 0),
            )
        return head

    def _check_kept(self, kept: TreeHead, *, root: bytes) -> None:
        self._check_kept_signature(kept, same=kept.root == root)
        if kept.root != root:
            raise ContradictionError(
                f"the first {kept.size} entries do not match the kept tree head: the "
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

    def _hash_before(self) -> bytes:
        """Return the hash that the last entry holds as that of the one before it."""
        leaves = self._growth.leaves
        return leaves[-2] if len(leaves) > 1 else self._growth.start.last_hash

    def _broken_end(self, entry: VerifiedEntry, rows: "_Rows") -> int:
        """Tell which of two entries was changed, when the second does not hold the first's hash."""
        at = self.size
        if at == self._start.size:
            return at
        intact = _continues(rows.peek(), entry.entry_hash)
        if intact is None and self._next is not None and self._next[0] == at + 1:
            # Nothing follows: ask the tree head, with the hash that this entry claims.
            before = State(size=at - 1, edge=self._growth.edge(at - 1))
            edge = Growth(before, [entry.previous, entry.entry_hash]).edge(at + 1)
            try:
                vkey = self.authority.ledger_vkey_at(at + 1)
                intact = open_tree_head(self._next[1], vkey=vkey).root == root_of(edge)
            except VerificationError:
                intact = False
        return at - 1 if intact else at


class _Rows:
    """Rows that can be looked at before they are taken."""

    def __init__(self, rows: Iterable[EntryRow] | Iterable[bytes]) -> None:
        self._rows: Iterator[EntryRow | bytes] = iter(rows)
        self._ahead: list[EntryRow | bytes] = []
        self._error: Exception | None = None  # where the rows cannot be read any further

    def take(self, count: int) -> list[EntryRow | bytes]:
        """Return the next ones, fewer at the end; what cannot be read is raised after the rest."""
        if len(self._ahead) < count and self._error is None:
            try:
                self._ahead.extend(islice(self._rows, count - len(self._ahead)))
            except Exception as e:
                self._error = e
        if self._error is not None and not self._ahead:
            raise self._error
        found = self._ahead[:count]
        del self._ahead[:count]
        return found

    def put_back(self, rows: list[EntryRow | bytes]) -> None:
        """Let these be taken again, before all others."""
        self._ahead[:0] = rows

    def peek(self) -> EntryRow | bytes | None:
        """Return the next one, if it can be read."""
        try:
            found = self.take(1)
        except Exception:
            return None
        self.put_back(found)
        return found[0] if found else None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from looking through a million rows for cycles: a tenth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _continues(row: EntryRow | bytes | None, entry_hash: bytes) -> bool | None:
    """Tell whether a row's entry holds this hash as its predecessor's; None if it cannot tell."""
    if row is None:
        return None
    try:
        return parse_entry(row if isinstance(row, bytes) else row[4]).previous == entry_hash
    except MalformedError:
        return None
