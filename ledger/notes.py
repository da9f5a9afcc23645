"""Signed tree heads and rotations, as the ledger writes them.

Source: C2SP signed-note, tlog-checkpoint; docs/reference/ledger-format.md, "Tree head", "Rotation".
I/O: none.
Not covered: verifying a note, which is code of the verifier's own (verified_notes.py).
"""

import base64
import hashlib
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_ED25519 = b"\x01"  # signature types of the signed-note specification
_ECDSA = b"\x02"
COSIGNATURE = b"\x04"  # timestamped, by Ed25519


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the raw public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def key_id(name: str, public_key: bytes, *, kind: bytes = _ED25519) -> bytes:
    """Return the 4 bytes that stand for a key in its signature lines."""
    return hashlib.sha256(name.encode() + b"\n" + kind + public_key).digest()[:4]


def vkey(name: str, public_key: bytes, *, kind: bytes = _ED25519) -> str:
    """Return the verifier key as one line of text, without a newline."""
    material = base64.b64encode(kind + public_key).decode()
    return f"{name}+{key_id(name, public_key, kind=kind).hex()}+{material}"


def publisher_vkey(name: str, key: EllipticCurvePublicKey) -> str:
    """Return the same for a key of P-256, which signs files and no notes."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    material = base64.b64encode(_ECDSA + der).decode()
    return f"{name}+{hashlib.sha256(der).hexdigest()[:8]}+{material}"


class NoteKey:
    """A key under the name that it signs notes by; what its lines share is worked out once."""

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        public_key = public_bytes(key)
        self.name = name
        self.vkey = vkey(name, public_key)
        self._id = key_id(name, public_key)
        self._key = key

    def line(self, text: str) -> str:
        """Return the line that signs a text, with its newline."""
        signature = self._id + self._key.sign(text.encode())
        return f"\u2014 {self.name} {base64.b64encode(signature).decode()}\n"

    def tree_head(self, *, size: int, root: bytes) -> str:
        """Return the signed note that says: at this size, the tree has this root."""
        text = f"{self.name}\n{size}\n{base64.b64encode(root).decode()}\n"
        return f"{text}\n{self.line(text)}"

    def rotation_to(self, new: Self) -> str:
        """Return the note by which this key hands over to another; both sign it."""
        text = f"ledger/rotation/v1\n{self.name}\n{self.vkey}\n{new.vkey}\n"
        return f"{text}\n{self.line(text)}{new.line(text)}"
