"""Reads the texts and keys that a command line names.

I/O: reads the files; the passphrase of private keys from the environment.
"""

from pathlib import Path

from ledger.entries import AuthorKey
from ledger.errors import MalformedError
from ledger.files import read_bounded
from ledger.keys import load_key
from ledger.schemes import SCHEMES, PrivateKey
from ledger.verification.verified_notes import parse_vkey
from proctor.errors import ProctorError
from proctor.home import passphrase

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
    return None if path is None else open_vkey(path, "ledger")[0]


def read_vkey(given: str | None) -> str | None:
    """Return the judge's vkey that is given as text or as a file, None for None."""
    if given is None:
        return None
    try:
        parse_vkey(given, role="judge")
    except MalformedError as error:
        if Path(given).is_file():
            return open_vkey(Path(given), "judge")[0]
        raise ProctorError(f"{given!r} is neither a vkey nor a file with one: {error}") from error
    return given.strip()


def open_vkey(path: Path, role: str | None) -> tuple[str, bytes]:
    """Return the vkey in a file and its public key; raise ProctorError if it is not the role's."""
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
    for scheme in SCHEMES.values():
        try:
            key = parse_vkey(text, role=scheme.roles[0])
        except MalformedError as error:
            fault = fault or str(error)
            continue
        if role is not None and role not in key.scheme.roles:
            *others, last = (f"{each}'s" for each in key.scheme.roles)
            whose = f"{', '.join(others)} or {last}" if others else last
            raise ProctorError(f"{path}: this is a {whose} key; another kind of key is needed here")
        return text, key.public_key
    raise ProctorError(f"{path}: {fault}")


def read_private_key(path: Path, *, role: str = "ledger") -> PrivateKey:
    """Return a role's key in a file, with the passphrase from the environment if it has one."""
    return load_key(path, role=role, passphrase=passphrase())


def operator_key(path: Path | None) -> AuthorKey | None:
    """Return the key of an operator who signs, None for the ledger's own key."""
    return None if path is None else AuthorKey("operator", read_private_key(path, role="operator"))
