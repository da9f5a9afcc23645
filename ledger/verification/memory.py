"""Remembers the newest verified tree head of each ledger, and which ledger is in which place.

A ledger is what its first vkey names, origin and key together. One that is verified again must
contain the remembered tree head. Later entries can be verified without reading the earlier ones,
since the tree's edge is remembered too.

Trust: the folder is the verifier's own, where whoever writes the ledger cannot write. Each file in
it is authenticated with the folder's key (memory_keys.py).
I/O: for each ledger one file, exchanged whole and under a lock, and one of the tree's inner nodes,
which only spare hashing: a proof that is made of them is verified; for each place, places.py.
"""

import fcntl
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from ledger.database import explained
from ledger.errors import LedgerError, MalformedError
from ledger.files import read_bounded, write_durably
from ledger.verification.marks import Mark
from ledger.verification.memory_keys import OwnFile, read_own, unusable, write_own
from ledger.verification.places import Places
from ledger.verification.states import State, root_of
from ledger.verification.verified_notes import (
    TreeHead,
    open_tree_head,
    parse_tree_head,
)

_WHAT = "tree head"
_OF_STATE = ("last_hash", "time_ns", "edge", "authority")
_MARK = struct.Struct(">Q32s")
_MOST_BLOCKS = 64 << 20  # bytes; those of a billion entries


class Remembered(OwnFile, frozen=True, kw_only=True):
    """A ledger as it was when it was verified last, as a file says it."""

    format: Literal["ledger/memory/v2"] = "ledger/memory/v2"
    vkey: str
    note: str  # the newest tree head
    last_hash: bytes
    time_ns: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    edge: tuple[bytes, ...]
    authority: tuple[bytes, ...]
    packed_marks: bytes = b""  # of all entries, where each can be used without verifying it again

    @classmethod
    def of(cls, *, vkey: str, note: str, state: State, marks: Sequence[Mark] = ()) -> Self:
        """Return what is to be remembered of a state, its tree head and all its entries."""
        told = {name: getattr(state, name) for name in _OF_STATE}
        packed = b"".join(_MARK.pack(*mark) for mark in marks)
        return cls(vkey=vkey, note=note, packed_marks=packed, **told)

    @property
    def marks(self) -> list[Mark]:
        """The marks of all entries, none where they are not known."""
        return list(_MARK.iter_unpack(self.packed_marks))

    @property
    def state(self) -> State:
        """What the verification of further entries goes on from."""
        told = {name: getattr(self, name) for name in _OF_STATE}
        return State(size=parse_tree_head(self.note).size, **told)

    def parts(self) -> tuple[bytes, ...]:
        """Return what the code is of; lists behind their numbers, and marks if there are any."""
        texts = (self.format, self.vkey, self.note)
        counts = (len(self.edge), len(self.authority), self.time_ns)
        return (
            *(text.encode("utf-8", "surrogateescape") for text in texts),
            self.last_hash,
            *(number.to_bytes(8, "big") for number in counts),
            *self.edge,
            *self.authority,
            *((self.packed_marks,) if self.packed_marks else ()),
        )

    def open(self) -> TreeHead:
        """Return the tree head; raise VerificationError unless all of this fits together."""
        state = self.state
        authority = state.stands(self.vkey)
        head = open_tree_head(self.note, vkey=authority.ledger_vkey_at(state.size))
        if (
            head.size != state.size
            or len(state.edge) != state.size.bit_count()
            or {len(part) for part in (*state.edge, state.last_hash)} != {32}
            or root_of(state.edge) != head.root
            or (state.size % 2 and state.edge[-1] != state.last_hash)
        ):
            raise MalformedError("the tree's edge is not that of the tree head")
        return head


class Memory:
    """A folder with what is remembered; it need not exist yet."""

    def __init__(self, folder: Path, *, tell: Callable[[str], None] | None = None) -> None:
        """Remember in a folder; `tell` is told of a key that is trusted at first sight."""
        self.folder = folder
        self.places = Places(folder)
        self.tell = tell

    def path(self, vkey: str) -> Path:
        """Return the file for the ledger of this first vkey."""
        name = hashlib.sha256(vkey.encode(errors="surrogateescape")).hexdigest()
        return self.folder / f"{name[:32]}.json"

    def recall(self, vkey: str) -> Remembered | None:
        """Return what is remembered of this ledger.

        Raises MemoryFileError for a file that is damaged, or that an earlier version has written.
        """
        found = read_own(self.path(vkey), Remembered, what=_WHAT)
        earlier = self.path(vkey.partition("+")[0])
        if found is None and earlier.exists():
            raise unusable(earlier, _WHAT, "an earlier version of this program wrote it")
        if found is not None and found.vkey != vkey:
            raise unusable(self.path(vkey), _WHAT, "it is for a different ledger")
        return found

    def blocks(self, vkey: str, count: int) -> list[bytes]:
        """Return the roots of a ledger's first subtrees of level BLOCK, if so many are known."""
        found = b""
        with suppress(LedgerError, OSError):
            found = read_bounded(self._of_blocks(vkey), most=_MOST_BLOCKS)
        return [found[at : at + 32] for at in range(0, 32 * count, 32)][: len(found) // 32]

    def keep_blocks(self, vkey: str, blocks: Sequence[bytes]) -> None:
        """Keep these for blocks(), if there is room."""
        with suppress(LedgerError, OSError):
            write_durably(self._of_blocks(vkey), b"".join(blocks))

    def _of_blocks(self, vkey: str) -> Path:
        return self.path(vkey).with_suffix(".blocks")

    def forget(self, vkey: str) -> None:
        """Remember nothing more of this ledger but its place: an older copy is to be verified."""
        with self._locked():
            for path in (self.path(vkey), self.path(vkey.partition("+")[0])):
                with explained(path):
                    path.unlink(missing_ok=True)
                    path.with_suffix(".blocks").unlink(missing_ok=True)

    def other_vkeys(self, vkey: str) -> list[str]:
        """Return the vkeys of other ledgers that claim the same origin; looks through all files."""
        origin = vkey.partition("+")[0]
        found = set()
        for path in self.folder.glob("*.json"):
            with suppress(LedgerError):
                remembered = read_own(path, Remembered, what=_WHAT)
                if remembered is not None and remembered.vkey.partition("+")[0] == origin:
                    found.add(remembered.vkey)
        return sorted(found - {vkey})

    def settle(self, directory: Path, vkey: str, *, trusted: bool) -> None:
        """Remember a ledger that was verified as that of its place; say if that is the first time.

        A key that was `trusted` beside the ledger, and never seen before, is told of.
        """
        first = self.places.keep(directory, vkey)
        if first and trusted and self.tell is not None and self.recall(vkey) is None:
            told = f"{directory}: the key {vkey} beside the ledger is trusted from now on"
            for other in self.other_vkeys(vkey):
                told += (
                    f"; you know another ledger that claims the same origin, with the key {other}"
                )
            self.tell(f"{told}; compare it with the owner's")

    def keep(self, new: Remembered, *, after: Remembered | None) -> bool:
        """Remember a ledger as it was verified against what was recalled; tell if that still held.

        If somebody else has remembered something newer since, nothing is changed: verify again.
        """
        head = new.open()
        if after is not None and not new.packed_marks and new.state == after.state:
            new = replace(new, packed_marks=after.packed_marks)
        with self._locked():
            if self.recall(new.vkey) != after:
                return False
            if after is None or after.open().size <= head.size:
                write_own(self.path(new.vkey), new)
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with explained(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
