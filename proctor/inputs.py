"""Reads the texts and keys that a command line names.

I/O: reads the files; the passphrase of private keys from the environment.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.entries import AuthorKey
from ledger.errors import MalformedError
from ledger.files import read_bounded
from ledger.keys import load_key
from ledger.verification.verified_notes import COSIGNATURE, ECDSA, ED25519, parse_vkey
from proctor.errors import ProctorError
from proctor.home import passphrase

_KINDS = {
    ED25519: "a ledger's, judge's or operator's",
    ECDSA: "a publisher's",
    COSIGNATURE: "a witness's",
}
_MAX_TEXT = 4 << 20  # 4 MiB; of notes, proofs and evidence, the longest need 1 MiB


def read_text(path: Path, *, most: int = _MAX_TEXT) -> str:
    """Return a file's text; raises ProctorError or StorageError naming the file."""
    try:
        text = read_octets(path, most=most).decode()
    except UnicodeDecodeError as error:
        raise ProctorError(
            f"{path} is not text in UTF-8; check that it is the file that you mean"
        ) from error
    if not text.strip():
        raise ProctorError(f"{path} is empty")
    return text


def read_octets(path: Path, *, most: int) -> bytes:
    """Return a file's bytes; raises ProctorError or StorageError naming the file."""
    try:
        return read_bounded(path, most=most)
    except OSError as error:
        raise ProctorError(f"{path} cannot be read: {error.strerror or error}") from error


def read_vkey_file(path: Path | None) -> str | None:
    """Return the ledger's vkey in a file, None for None."""
    return None if path is None else open_vkey(path, ED25519)[0]


def read_vkey(given: str | None) -> str | None:
    """Return the vkey that is given as text or as a file, None for None."""
    if given is None or Path(given).is_file():
        return read_vkey_file(None if given is None else Path(given))
    try:
        parse_vkey(given)
    except MalformedError as error:
        raise ProctorError(f"{given!r} is neither a vkey nor a file with one: {error}") from error
    return given.strip()


def open_vkey(path: Path, *types: int) -> tuple[str, bytes]:
    """Return the vkey in a file and its public key; raise ProctorError if it is of no such type."""
    text = read_text(path).strip()
    if "PRIVATE KEY" in text:
        raise ProctorError(
            f"{path} is a private key, which must stay secret; give the file of its vkey"
        )
    if "PUBLIC KEY" in text:
        raise ProctorError(
            f"{path} is a PEM file; give the vkey instead, which is one line with two +"
        )
    fault = ""
    for type_, whose in _KINDS.items():
        try:
            public_key = parse_vkey(text, type=type_).public_key
        except MalformedError as error:
            fault = fault or str(error)
            continue
        if type_ not in types:
            raise ProctorError(f"{path}: this is {whose} key; another kind of key is needed here")
        return text, public_key
    raise ProctorError(f"{path}: {fault}")


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a file, with the passphrase from the environment if it has one."""
    return load_key(path, passphrase=passphrase())


def operator_key(path: Path | None) -> AuthorKey | None:
    """Return the key of an operator who signs, None for the ledger's own key."""
    return None if path is None else AuthorKey("operator", read_private_key(path))
