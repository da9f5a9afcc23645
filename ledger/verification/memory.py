"""Remembers the newest verified tree head of each ledger, and which ledger is in which place.

A ledger is what its first vkey names, origin and key together. One that is verified again must
contain the remembered tree head. Later entries can be verified without reading the earlier ones,
since the tree's edge is remembered too.

Trust: the folder is the verifier's own, where whoever writes the ledger cannot write. Each file in
it is authenticated with the folder's key (memory_keys.py).
I/O: for each ledger one file, exchanged whole and under a lock, and one with the entries' marks;
for each place, places.py.
"""

import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from ledger.database import explained
from ledger.errors import LedgerError, MalformedError, MemoryFileError, VerificationError
from ledger.files import open_regular, read_text, sync_folder, write_durably
from ledger.strict_json import read_json
from ledger.verification.marks import Mark
from ledger.verification.memory_keys import code_of, is_code, memory_key
from ledger.verification.places import Places
from ledger.verification.states import State, root_of
from ledger.verification.verified_notes import (
    TreeHead,
    open_tree_head,
    parse_tree_head,
)

_MARKS = b"ledger/marks/v1\n"
_OF_STATE = ("last_hash", "time_ns", "edge", "authority")
_MARK = struct.Struct(">Q32s")
_CODE = 64  # bytes
_MAX_FILE = 64 << 20  # bytes; a few thousand, and as many for each key that was ever let in


class Remembered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ledger as it was when it was verified last, as a file says it; bytes are base64 there."""

    format: Literal["ledger/memory/v2"] = "ledger/memory/v2"
    vkey: str
    note: str  # the newest tree head
    last_hash: bytes
    time_ns: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    edge: tuple[bytes, ...]
    authority: tuple[bytes, ...]
    mac: str | None = None  # by memory_keys.py, if this was read

    @classmethod
    def of(cls, *, vkey: str, note: str, state: State) -> Self:
        """Return what is to be remembered of a state and its tree head."""
        return cls(vkey=vkey, note=note, **{name: getattr(state, name) for name in _OF_STATE})

    @property
    def state(self) -> State:
        """What the verification of further entries goes on from."""
        told = {name: getattr(self, name) for name in _OF_STATE}
        return State(size=parse_tree_head(self.note).size, **told)

    def parts(self) -> tuple[bytes, ...]:
        """Return what the code is of; the lists last, each behind its number."""
        texts = (self.format, self.vkey, self.note)
        counts = (len(self.edge), len(self.authority), self.time_ns)
        return (
            *(text.encode("utf-8", "surrogateescape") for text in texts),
            self.last_hash,
            *(number.to_bytes(8, "big") for number in counts),
            *self.edge,
            *self.authority,
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
        """Return what is remembered of this ledger; raise MemoryFileError if it is damaged."""
        found = self._read(self.path(vkey))
        if found is not None and found.vkey != vkey:
            raise _unusable(self.path(vkey), "it is for a different ledger")
        return found

    def forget(self, vkey: str) -> None:
        """Remember nothing more of this ledger but its place: an older copy is to be verified."""
        with self._locked():
            for path in (self._marks_path(vkey), self.path(vkey)):
                with explained(path):
                    path.unlink(missing_ok=True)

    def other_vkeys(self, vkey: str) -> list[str]:
        """Return the vkeys of other ledgers that claim the same origin; looks through all files."""
        origin = vkey.partition("+")[0]
        found = set()
        for path in self.folder.glob("*.json"):
            with suppress(LedgerError):
                remembered = self._read(path)
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

    def _read(self, path: Path) -> Remembered | None:
        with explained(path):
            try:
                text = read_text(path, most=_MAX_FILE)
            except FileNotFoundError:
                return None
        try:
            remembered = convert(read_json(text), Remembered)
            mac = remembered.mac or ""
            if not is_code(mac, memory_key(self.folder), *remembered.parts()):
                raise MalformedError("it was changed by another user or program")
            remembered.open()
        except (VerificationError, ValueError) as e:  # JSON or fields of another form
            raise _unusable(path, e) from e
        return remembered

    def recall_marks(self, remembered: Remembered) -> list[Mark] | None:
        """Return the marks of all entries of what is remembered; None where they are not known."""
        path, state = self._marks_path(remembered.vkey), remembered.state
        try:
            with open_regular(path) as file:
                data = file.read(_MAX_FILE)
            head, rest = len(_MARKS), len(_MARKS) + _CODE
            code, packed = data[head:rest].decode("ascii", "replace"), data[rest:]
            own = is_code(code, memory_key(self.folder), data[:head], path.name.encode(), packed)
        except (LedgerError, OSError):
            return None  # then the whole ledger is verified
        if not own or data[:head] != _MARKS or len(packed) % _MARK.size:
            return None
        marks = list(_MARK.iter_unpack(packed))
        return marks if marks and marks[-1] == (state.size, state.last_hash) else None

    def keep(
        self, new: Remembered, *, after: Remembered | None, marks: Sequence[Mark] = ()
    ) -> bool:
        """Remember a ledger as it was verified against what was recalled; tell if that still held.

        With the `marks` of all its entries, these can be used later without verifying them again.
        If somebody else has remembered something newer since, nothing is changed: verify again.
        """
        head = new.open()
        with self._locked():
            if self.recall(new.vkey) != after:
                return False
            if after is None or after.open().size <= head.size:
                path = self.path(new.vkey)
                with explained(path):
                    if marks:
                        self._write_marks(new.vkey, marks)
                    mac = code_of(memory_key(self.folder), *new.parts())
                    text = json.dumps(to_builtins(replace(new, mac=mac)), indent=1)
                    write_durably(path, f"{text}\n".encode())
                    sync_folder(self.folder.parent)  # the folder may be new as well
        return True

    def _marks_path(self, vkey: str) -> Path:
        return self.path(vkey).with_suffix(".marks")

    def _write_marks(self, vkey: str, marks: Sequence[Mark]) -> None:
        path = self._marks_path(vkey)
        packed = b"".join(_MARK.pack(*mark) for mark in marks)
        code = code_of(memory_key(self.folder), _MARKS, path.name.encode(), packed)
        write_durably(path, _MARKS + code.encode() + packed)

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


def _unusable(path: Path, why: object) -> MemoryFileError:
    return MemoryFileError(
        f"{path}: the remembered tree head cannot be used: {why}; restore the file from a "
        "copy, or remove it to trust the ledger as it is now"
    )
