"""Signed tree heads and rotations, as the ledger writes them.

Source: C2SP signed-note, tlog-checkpoint; docs/reference/ledger-format.md, "Tree head", "Rotation".
I/O: none.
Not covered: verifying a note, which is code of the verifier's own (verified_notes.py).
"""

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "key_id",
    "public_bytes",
    "sign_note",
    "sign_rotation",
    "sign_tree_head",
    "signature_line",
    "vkey",
]

_ED25519 = b"\x01"  # signature type of the signed-note specification


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the raw public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def key_id(name: str, public_key: bytes) -> bytes:
    """Return the 4 bytes that stand for a key in its signature lines."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


def vkey(name: str, public_key: bytes) -> str:
    """Return the verifier key as one line of text, without a newline."""
    material = base64.b64encode(_ED25519 + public_key).decode()
    return f"{name}+{key_id(name, public_key).hex()}+{material}"


def signature_line(text: str, *, name: str, key: Ed25519PrivateKey) -> str:
    """Return the line that signs a text, with its newline."""
    signature = key_id(name, public_bytes(key)) + key.sign(text.encode())
    return f"\u2014 {name} {base64.b64encode(signature).decode()}\n"


def sign_note(text: str, *, name: str, key: Ed25519PrivateKey) -> str:
    """Return the signed note for a text that ends with a newline."""
    return f"{text}\n{signature_line(text, name=name, key=key)}"


def sign_rotation(*, origin: str, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> str:
    """Return the note by which the ledger's key hands over to another; both sign it."""
    vkeys = "".join(f"{vkey(origin, public_bytes(key))}\n" for key in (old, new))
    text = f"ledger/rotation/v1\n{origin}\n{vkeys}"
    return sign_note(text, name=origin, key=old) + signature_line(text, name=origin, key=new)


def sign_tree_head(*, origin: str, size: int, root: bytes, key: Ed25519PrivateKey) -> str:
    """Return the signed note that says: at this size, the tree has this root."""
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    return sign_note(text, name=origin, key=key)
