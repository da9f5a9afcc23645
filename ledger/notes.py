"""Signed tree heads and rotations, as the ledger writes them.

Source: C2SP signed-note, tlog-checkpoint; docs/reference/ledger-format.md, "Tree head", "Rotation".
I/O: none.
Not covered: verifying a note, which is code of the verifier's own (verified_notes.py).
"""

import base64
from typing import Self

from ledger.schemes import PrivateKey, algorithm_of, scheme_of


def public_bytes(key: PrivateKey) -> bytes:
    """Return the public key of a private one, as its vkey has it."""
    return algorithm_of(key).public_bytes(key)


def key_id(name: str, public_key: bytes, *, role: str = "ledger") -> bytes:
    """Return the 4 bytes that stand for a role's key in its signature lines."""
    return scheme_of(public_key, role=role).key_id(name, public_key)


def vkey(name: str, public_key: bytes, *, role: str = "ledger") -> str:
    """Return the verifier key of a role's key as one line of text, without a newline."""
    scheme = scheme_of(public_key, role=role)
    material = base64.b64encode(bytes((scheme.type,)) + public_key).decode()
    return f"{name}+{scheme.key_id(name, public_key).hex()}+{material}"


class NoteKey:
    """A ledger's key under the name that it signs notes by; what its lines share is kept."""

    def __init__(self, name: str, key: PrivateKey) -> None:
        public_key = public_bytes(key)
        self.name = name
        self.vkey = vkey(name, public_key)
        self._id = key_id(name, public_key)
        self._key = key
        self._algorithm = algorithm_of(key)

    def line(self, text: str) -> str:
        """Return the line that signs a text, with its newline."""
        signature = self._id + self._algorithm.sign(self._key, text.encode())
        return f"\u2014 {self.name} {base64.b64encode(signature).decode()}\n"

    def tree_head(self, *, size: int, root: bytes) -> str:
        """Return the signed note that says: at this size, the tree has this root."""
        text = f"{self.name}\n{size}\n{base64.b64encode(root).decode()}\n"
        return f"{text}\n{self.line(text)}"

    def rotation_to(self, new: Self) -> str:
        """Return the note by which this key hands over to another; both sign it."""
        text = f"ledger/rotation/v1\n{self.name}\n{self.vkey}\n{new.vkey}\n"
        return f"{text}\n{self.line(text)}{new.line(text)}"
