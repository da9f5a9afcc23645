"""The verifier's parser for signed notes, verifier keys and tree heads.

Written from docs/reference/ledger-format.md and not from the writer (notes.py), with which
it shares nothing but the errors and the table of signature schemes.

Source: C2SP signed-note and tlog-checkpoint.
Trust: a note is hostile until verify_note() or open_tree_head() returns; a vkey is trusted.
I/O: none.
"""

import binascii
import re
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidSignature

from ledger.errors import MalformedError, SignatureError
from ledger.schemes import SCHEMES, Scheme, schemes_of

_LIMIT = 2**63  # integers stay below it
_MAX_NOTE = 100_000  # characters; 16 post-quantum signatures fit
_MAX_SIGNATURES = 16
_KEYS = 64  # keys and names that are kept; of a ledger's tree heads, all have the same
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, kw_only=True)
class VerifierKey:
    """What a vkey says."""

    name: str
    key_id: bytes  # (4,)
    scheme: Scheme
    public_key: bytes  # of Ed25519 (32,), of P-256 the SubjectPublicKeyInfo in DER


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
    if "ledger" not in key.scheme.roles:
        raise SignatureError(f"the key of {key.name} is {key.scheme.vkeys}, and signs no notes")
    try:
        key.scheme.algorithm.verify(key.public_key, found[0], note.text.encode())
    except (InvalidSignature, ValueError) as e:  # not text, or no such point on the curve
        raise SignatureError(f"the signature by {key.name} is invalid for this note") from e


@lru_cache(maxsize=_KEYS)
def parse_vkey(vkey: str, *, role: str = "ledger") -> VerifierKey:
    """Take a verifier key apart; raise MalformedError unless it can be the key of this role."""
    name, _, rest = vkey.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        name.encode()
        material = decode_base64(encoded) or b"\0"
    except (MalformedError, UnicodeEncodeError):
        material = b"\0"  # no type
    scheme, key = SCHEMES.get(material[0]), material[1:]
    if (
        scheme is None
        or role not in scheme.roles
        or not _is_name(name)
        or not scheme.algorithm.is_key(key)
    ):
        wanted = " or ".join(each.vkeys for each in schemes_of(role))
        raise MalformedError(f"the vkey is not a C2SP verifier key {wanted}; check the key file")
    right_id = scheme.key_id(name, key)
    if key_id != right_id.hex():
        raise MalformedError("the vkey's key id does not fit its key; check the key file")
    return VerifierKey(name=name, key_id=right_id, scheme=scheme, public_key=key)


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


@lru_cache(maxsize=_KEYS)
def _is_name(name: str) -> bool:
    """Tell whether a key may be called so: "Format" of the specification."""
    return bool(name) and not any(c == "+" or c.isspace() or c < " " for c in name)
