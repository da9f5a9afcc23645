"""The verifier's parser for signed notes, verifier keys and tree heads.

Written from docs/reference/ledger-format.md and not from the writer (notes.py), with which
it shares nothing but the errors.

Source: C2SP signed-note and tlog-checkpoint.
Trust: a note is hostile until verify_note() or open_tree_head() returns; a vkey is trusted.
I/O: none.
"""

import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from ledger.errors import MalformedError, SignatureError

ED25519 = 0x01  # signature types of the signed-note specification
ECDSA = 0x02  # of P-256 only: signs files that are handed over, never notes
COSIGNATURE = 0x04
_LIMIT = 2**63  # integers stay below it
_MAX_NOTE = 100_000  # characters; 16 post-quantum signatures fit
_MAX_SIGNATURES = 16
_KEYS = 64  # keys and names that are kept; of a ledger's tree heads, all have the same
_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")  # then x, y
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, kw_only=True)
class VerifierKey:
    """What a vkey says."""

    name: str
    key_id: bytes  # (4,)
    public_key: bytes  # (32,), of ECDSA the SubjectPublicKeyInfo in DER


@dataclass(frozen=True)
class NoteSignature:
    """One signature line, unverified."""

    name: str
    key_id: bytes  # (4,)
    signature: bytes

    def __str__(self) -> str:
        return f"\u2014 {self.name} {encode_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True)
class SignedNote:
    """A note taken apart, unverified; the text ends with a newline."""

    text: str
    signatures: tuple[NoteSignature, ...]


@dataclass(frozen=True, kw_only=True)
class TreeHead:
    """What a signed note says: this origin's tree has, at this size, this root."""

    origin: str
    size: int
    root: bytes  # (32,)
    note: str


def open_tree_head(note: str, *, vkey: str) -> TreeHead:
    """Return what a signed note says; raise unless it is a tree head signed by this key."""
    key = parse_vkey(vkey)
    signed = parse_note(note)
    verify_note(signed, key=key)
    head = _tree_head(signed, note)
    if head.origin != key.name:
        raise MalformedError("the note is not a tree head of this ledger")
    return head


def parse_tree_head(note: str) -> TreeHead:
    """Return what a note claims to be a tree head of; nobody's signature is looked at."""
    return _tree_head(parse_note(note), note)


def _tree_head(signed: SignedNote, note: str) -> TreeHead:
    lines = signed.text.split("\n")
    if len(lines) != 4 or not lines[0] or not _SIZE.fullmatch(lines[1]):
        raise MalformedError("the note is not a tree head")
    root = decode_base64(lines[2], what="the root of the tree head")
    if len(root) != 32 or int(lines[1]) >= _LIMIT:
        raise MalformedError("the tree head's root or size is malformed")
    return TreeHead(origin=lines[0], size=int(lines[1]), root=root, note=note)


def parse_note(note: str) -> SignedNote:
    """Take a note apart; raise MalformedError if it is none."""
    if not isinstance(note, str) or len(note) > _MAX_NOTE:
        raise MalformedError("the note is not a text of a possible length")
    text, separator, signatures = note.rpartition("\n\n")
    if not separator or not signatures.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise MalformedError("the note has no signatures, or control characters")
    lines = signatures[:-1].split("\n")
    if len(lines) > _MAX_SIGNATURES:
        raise MalformedError(f"the note has more than {_MAX_SIGNATURES} signatures")
    return SignedNote(f"{text}\n", tuple(map(_signature, lines)))


def verify_note(note: SignedNote, *, key: VerifierKey) -> None:
    """Raise SignatureError unless exactly one line is by this key, which signs notes, and holds."""
    found = [
        line.signature
        for line in note.signatures
        if (line.name, line.key_id) == (key.name, key.key_id)
    ]
    if len(found) != 1:
        other = "" if found else "; check that this is the key of its ledger"
        raise SignatureError(f"the note has {len(found)} signatures by {key.name}, not one{other}")
    try:
        _ed25519(key.public_key).verify(found[0], note.text.encode())
    except (InvalidSignature, ValueError) as e:  # not text, or no such point on the curve
        raise SignatureError(f"the signature by {key.name} is invalid for this note") from e


@lru_cache(maxsize=_KEYS)
def _ed25519(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)


@lru_cache(maxsize=_KEYS)
def parse_vkey(vkey: str, *, type: int = ED25519) -> VerifierKey:  # noqa: A002  (the specification's word)
    """Take a verifier key apart: of this signature type, by default of the one that signs notes.

    Raises MalformedError if it is none.
    """
    scheme = _SCHEMES[type]
    name, _, rest = vkey.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        material = decode_base64(encoded)
        named = f"{name}\n".encode() + material
    except (MalformedError, UnicodeEncodeError):
        material = named = b""
    kind, key = material[:1], material[1:]
    if kind != bytes((type,)) or not _is_name(name) or not scheme.is_key(key):
        raise MalformedError(
            f"the vkey is not a C2SP verifier key {scheme.keys}; check the key file"
        )
    right_id = hashlib.sha256(named if scheme.id_names else key).digest()[:4]
    if key_id != right_id.hex():
        raise MalformedError("the vkey's key id does not fit its key; check the key file")
    return VerifierKey(name=name, key_id=right_id, public_key=key)


def encode_base64(data: bytes) -> str:
    """Encode base64 in its canonical form."""
    return binascii.b2a_base64(data, newline=False).decode()


def decode_base64(text: str, *, what: str = "a value") -> bytes:
    """Decode base64 in its only canonical form; an error says `what` it was to be."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as e:
        raise MalformedError(f"{what} is not base64") from e
    if encode_base64(data) != text:
        raise MalformedError(f"{what} is not canonical base64")
    return data


def _signature(line: str) -> NoteSignature:
    dash, name, encoded, *more = [*line.split(" "), "", ""]
    if dash != "\u2014" or more != ["", ""] or not _is_name(name):
        raise MalformedError("the note has a malformed signature line")
    signature = decode_base64(encoded, what=f"the signature by {name}")
    if len(signature) < 5:
        raise MalformedError("the note has a malformed signature line")
    return NoteSignature(name, signature[:4], signature[4:])


def _is_raw(public_key: bytes) -> bool:
    return len(public_key) == 32


def _is_p256(public_key: bytes) -> bool:
    """Tell whether these bytes are a point of P-256 in the one encoding that is allowed."""
    if len(public_key) != len(_P256) + 64 or not public_key.startswith(_P256):
        return False
    try:
        load_der_public_key(public_key)
    except ValueError:  # not on the curve
        return False
    return True


@lru_cache(maxsize=_KEYS)
def _is_name(name: str) -> bool:
    """Tell whether a key may be called so: "Format" of the specification."""
    return bool(name) and not any(c == "+" or c.isspace() or c < " " for c in name)


class _Scheme(NamedTuple):
    """The keys of a signature type."""

    keys: str  # what they are, in errors
    is_key: Callable[[bytes], bool]
    id_names: bool = True  # the key's name is part of its id


_SCHEMES = {
    ED25519: _Scheme("for Ed25519", _is_raw),
    ECDSA: _Scheme("for P-256", _is_p256, id_names=False),
    COSIGNATURE: _Scheme("for cosignatures", _is_raw),
}
