"""What a verifier knows of a ledger up to some size, and the tree's arithmetic for it.

Written from docs/reference/ledger-format.md and not from the writer, whose tree grown() is: no
verifier of a ledger calls that.

Source: the format page, "Hashes" and "Tree head"; RFC 6962 section 2.1.
Trust: a state is as good as the check that it came from.
I/O: none.  Units: sizes in entries; nanoseconds since the POSIX epoch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from ledger.errors import ConsistencyError, KeptHeadError, MalformedError, SignatureError
from ledger.verification.authority import Authority
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import (
    TreeHead,
    open_tree_head,
    parse_tree_head,
    parse_vkey,
)

Signatures = Literal["all", "newest"]
"""Which tree heads' signatures are checked: each one, or the newest, which covers all entries."""

_MAX_STREAMS = 100_000  # whose versions are kept in memory: some 20 MB
_KEY_EVENTS = ("key.granted", "key.revoked", "key.rotated")


@dataclass(frozen=True, kw_only=True)
class State:
    """All that the verification of the next entry needs to know of those before it."""

    size: int = 0
    last_hash: bytes = bytes(32)  # of the last entry
    time_ns: int = 0  # of the last entry
    edge: tuple[bytes, ...] = ()  # roots of the perfect subtrees, largest first
    authority: tuple[bytes, ...] = ()  # the entries that say which keys stand, whole

    @property
    def end(self) -> tuple[int, str | None]:
        """Return what fixes all entries: how many there are, and the hash of the last."""
        return self.size, self.last_hash.hex() if self.size else None

    @property
    def root(self) -> bytes:
        """The tree's root at this size."""
        return root_of(self.edge)

    def grown(self, leaves: Sequence[bytes], *, time_ns: int = 0) -> "State":
        """Return the state with the leaf hashes of more entries, the last of this time.

        For the writer: a verifier follows the tree by vectorized.Growth, which is apart from this.
        """
        nodes, below = list(leaves), self.size  # of a level: new ones, and how many there were
        edge, new = list(self.edge), list[bytes]()  # the new edge's lower part, smallest first
        while nodes:
            if below & 1:
                nodes.insert(0, edge.pop())
            if len(nodes) & 1:
                new.append(nodes.pop())
            nodes = [
                hashlib.sha256(b"\x01" + left + right).digest()
                for left, right in zip(nodes[::2], nodes[1::2], strict=True)
            ]
            below >>= 1
        return State(
            size=self.size + len(leaves),
            last_hash=leaves[-1] if leaves else self.last_hash,
            time_ns=time_ns,
            edge=(*edge, *reversed(new)),
            authority=self.authority,
        )

    def stands(self, vkey: str) -> Authority:
        """Return which keys stand at this size; raises as Authority.apply() does."""
        authority = Authority(vkey)
        for data in self.authority:
            entry = parse_entry(data, index=0)
            authority.apply(entry)
        return authority


@dataclass
class Versions:
    """The first and the last version of each stream in a segment; nothing if they are too many."""

    whole: bool = False  # whether nothing comes before the segment
    first: dict[bytes, int] = field(default_factory=dict)  # empty if it is whole
    last: dict[bytes, int] = field(default_factory=dict)
    overflowed: bool = False

    def add(self, streams: Sequence[bytes], versions: Sequence[int], *, index: int) -> None:
        """Take in the entries from an index on; raise unless each is the next of its stream."""
        if self.overflowed:
            return
        last = self.last
        find = last.get
        for at, (stream, version) in enumerate(zip(streams, versions, strict=True), index):
            before = find(stream)
            if version != before + 1 if before is not None else not self._begins(stream, version):
                raise ConsistencyError(
                    f"entry {at} is not the next version of its stream", index=at
                )
            last[stream] = version
        if len(last) > _MAX_STREAMS:
            self._overflow()

    def follow(self, before: "Versions") -> None:
        """Raise ValueError unless each stream goes on where it ended, or begins with 0 or 1."""
        for stream, version in self.first.items():
            last = before.last.get(stream)
            if version not in ((0, 1) if last is None else (last + 1,)):
                raise ValueError("a stream goes on with another version")
        before.last.update(self.last)

    def _begins(self, stream: bytes, version: int) -> bool:
        """Tell whether a stream that is not among the last may begin so, as far as is known."""
        if self.whole:
            return version in (0, 1)
        self.first[stream] = version
        return True

    def _overflow(self) -> None:
        self.overflowed = True
        self.first, self.last = {}, {}


def decides_keys(entry: VerifiedEntry, authority_stream: UUID) -> bool:
    """Tell whether later entries cannot be judged without this one."""
    return entry.stream_id == authority_stream and entry.name in _KEY_EVENTS


def open_head(note: str, *, authority: Authority, size: int, signatures: Signatures) -> TreeHead:
    """Return what the note in the row of this size says; raise unless it may stand there.

    With "newest" its signature is left for later.
    """
    if signatures == "all":
        return open_tree_head(note, vkey=authority.ledger_vkey_at(size))
    head = parse_tree_head(note)
    if head.origin != authority.origin:
        raise MalformedError("the note is not a tree head of this ledger")
    return head


def parse_kept_head(note: str, *, vkey: str) -> TreeHead:
    """Return what a kept head claims; what is no tree head is the caller's mistake.

    Its signature has to wait until it is known which key stands at its size.
    """
    key = parse_vkey(vkey)  # whose faults are not the kept head's
    try:
        head = parse_tree_head(note)
    except MalformedError as e:
        raise KeptHeadError(
            f"the kept tree head cannot be read: {e}; give the note unchanged, as it was copied"
        ) from e
    if head.origin != key.name:
        raise SignatureError(
            "the kept tree head is not from this ledger: it has a different origin"
        )
    return head


def root_of(edge: Sequence[bytes]) -> bytes:
    """Return the root of the tree with this right edge."""
    if not edge:
        return hashlib.sha256(b"").digest()
    root = edge[-1]
    for left in edge[-2::-1]:
        root = hashlib.sha256(b"\x01" + left + root).digest()
    return root
