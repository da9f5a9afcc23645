"""Notes signed by any key, for tests that forge, replace and misplace them."""

from ledger.notes import NoteKey
from ledger.schemes import PrivateKey

__all__ = ["sign_note", "sign_rotation", "sign_tree_head"]


def sign_note(text: str, *, name: str, key: PrivateKey) -> str:
    """Return the signed note for a text that ends with a newline."""
    return f"{text}\n{NoteKey(name, key).line(text)}"


def sign_rotation(*, origin: str, old: PrivateKey, new: PrivateKey) -> str:
    """Return the note by which the ledger's key hands over to another."""
    return NoteKey(origin, old).rotation_to(NoteKey(origin, new))


def sign_tree_head(*, origin: str, size: int, root: bytes, key: PrivateKey) -> str:
    """Return the signed note that says: at this size, the tree has this root."""
    return NoteKey(origin, key).tree_head(size=size, root=root)
