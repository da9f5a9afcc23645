"""Cosignatures: a witness signs that a tree head continues the last one it has seen.

The writer's side (sign_cosignature) and the verifier's side (the rest) share no code: each
builds the signed message by itself.

Source: C2SP tlog-cosignature, "Ed25519 signed message"; signed-note, "Signature types".
Trust: a note is hostile until open_cosignature() returns or cosigned_at() gives a time.
I/O: none.  Units: POSIX seconds.
Not covered: cosignatures by ML-DSA-44 (type 0x06), which the format page leaves out.
"""

import base64
import re

from cryptography.exceptions import InvalidSignature

from ledger import notes
from ledger.errors import EncodingError, SignatureError
from ledger.schemes import PrivateKey, algorithm_of
from ledger.verification.verified_notes import SignedNote, parse_vkey

_LIMIT = 2**63  # seconds stay below it


def cosignature_vkey(name: str, public_key: bytes) -> str:
    """Return a witness's verifier key as one line of text, without a newline.

    Raises EncodingError for a name that cannot stand in a signature line.
    """
    if not name or re.search(r"[\s+\x00-\x1f\x7f\ud800-\udfff]", name):
        raise EncodingError(
            f"{name!r} cannot be a witness name: it must not be empty or contain white space, "
            "control characters or a plus; use something like example.org/witness"
        )
    return notes.vkey(name, public_key, role="witness")


def sign_cosignature(text: str, *, name: str, key: PrivateKey, seconds: int) -> str:
    """Return the signature line, with its newline, for a note's text at this time."""
    if not 0 < seconds < _LIMIT:
        raise EncodingError(f"{seconds} s is not a valid time for a cosignature")
    message = f"cosignature/v1\ntime {seconds}\n{text}".encode()
    blob = (
        notes.key_id(name, notes.public_bytes(key), role="witness")
        + seconds.to_bytes(8, "big")
        + algorithm_of(key).sign(key, message)
    )
    return f"\u2014 {name} {base64.b64encode(blob).decode()}\n"


def open_cosignature(note: SignedNote, *, vkey: str) -> int:
    """Return the time at which this witness cosigned; raise SignatureError if it did not.

    So it does if one of several lines in its name does not hold: for answers, not for ledgers,
    to which others may have added it.
    """
    seconds, faults = _claims(note, vkey=vkey)
    if faults:
        raise faults[0]
    if not seconds:
        raise SignatureError(f"the note has no cosignature by {vkey.partition('+')[0]}")
    return min(seconds)


def cosigned_at(note: SignedNote, *, vkey: str) -> tuple[int | None, bool]:
    """Return when this witness cosigned, if it did, and whether a line only pretends to be its.

    Of several lines that hold, the earliest counts: the tree head was there by then. One that does
    not hold is as none: anybody who can write the file can add it, and takes nothing away by it.
    """
    seconds, faults = _claims(note, vkey=vkey)
    return min(seconds, default=None), bool(faults)


def _claims(note: SignedNote, *, vkey: str) -> tuple[list[int], list[SignatureError]]:
    """Return the times of the lines in a witness's name that hold, and what ails the others."""
    key = parse_vkey(vkey, role="witness")
    octets = note.text.encode("utf-8", "surrogatepass")  # what is not text was never signed
    seconds, faults, algorithm = [], [], key.scheme.algorithm
    for line in note.signatures:
        if (line.name, line.key_id) != (key.name, key.key_id):
            continue
        at, signature = int.from_bytes(line.signature[:8], "big"), line.signature[8:]
        message = b"cosignature/v1\ntime " + str(at).encode() + b"\n" + octets
        if len(signature) != algorithm.signature_bytes or not 0 < at < _LIMIT:
            faults.append(SignatureError(f"the cosignature by {key.name} is malformed"))
            continue
        try:
            algorithm.verify(key.public_key, signature, message)
        except (InvalidSignature, ValueError):
            faults.append(SignatureError(f"the cosignature by {key.name} is invalid for this note"))
        else:
            seconds.append(at)
    return seconds, faults
