"""Signed tree heads, as the ledger writes them.

Source: C2SP signed-note, tlog-checkpoint; docs/reference/ledger-format.md, "Tree head".
I/O: none.
Not covered: verifying a note, which is verify.py's own code.
"""

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["key_id", "public_bytes", "sign_note", "sign_tree_head", "vkey"]

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


def sign_note(text: str, *, name: str, key: Ed25519PrivateKey) -> str:
    """Return the signed note for a text that ends with a newline."""
    signature = key_id(name, public_bytes(key)) + key.sign(text.encode())
    return f"{text}\n\u2014 {name} {base64.b64encode(signature).decode()}\n"


def sign_tree_head(*, origin: str, size: int, root: bytes, key: Ed25519PrivateKey) -> str:
    """Return the signed note that says: at this size, the tree has this root."""
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    return sign_note(text, name=origin, key=key)
