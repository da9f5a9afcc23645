"""Public keys as PEM and signed envelopes, which other tools can verify.

Source: RFC 8410 (SubjectPublicKeyInfo of Ed25519); DSSE version 1 (secure-systems-lab/dsse:
envelope.md, protocol.md); in-toto Statement version 1 (in-toto/attestation).
Trust: an envelope is hostile until open_envelope() returns; the public key is trusted.
I/O: none.
Not covered: thresholds of several signers.
"""

import hashlib
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct, ValidationError, convert

from ledger.errors import MalformedError, SignatureError
from ledger.schemes import PrivateKey, algorithm_of
from ledger.strict_json import JSONError, read_json
from ledger.verification.verified_notes import decode_base64, encode_base64, parse_tree_head

IN_TOTO = "application/vnd.in-toto+json"  # payload type of a Statement
TREE_HEAD = "https://proctor.local/tree-head/v1"  # predicate type; a name, not a place
_MAX_ENVELOPE = 16_000_000  # characters
_MAX_SIGNATURES = 16


class _Signature(Struct, forbid_unknown_fields=True):
    keyid: str
    sig: str  # base64


class _Envelope(Struct, forbid_unknown_fields=True, rename={"payload_type": "payloadType"}):
    payload: str  # base64
    payload_type: str
    signatures: list[_Signature]


def public_pem(public_key: bytes) -> str:
    """Return the public key of a vkey in the form that openssl reads."""
    key = algorithm_of(public_key).load(public_key)
    return str(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def seal(payload: bytes, *, payload_type: str, key: PrivateKey) -> str:
    """Return the envelope, one line of JSON, that says: this key's holder has signed this.

    The same payload and key give the same envelope.
    """
    algorithm = algorithm_of(key)
    signature = {
        "keyid": envelope_key_id(algorithm.public_bytes(key)),
        "sig": encode_base64(algorithm.sign(key, _signed_bytes(payload, payload_type))),
    }
    envelope = {
        "payload": encode_base64(payload),
        "payloadType": payload_type,
        "signatures": [signature],
    }
    return json.dumps(envelope) + "\n"


def open_envelope(text: str, *, public_key: bytes) -> tuple[str, bytes]:
    """Return the payload's type and the payload; raise unless this key has signed both.

    Signatures under other key ids are ignored, as the specification asks. A signature under this
    one that does not hold, or a second one, spoils the envelope.
    """
    envelope, own = _parse(text), envelope_key_id(public_key)
    payload_type, payload = envelope.payload_type, decode_base64(envelope.payload)
    if not 1 <= len(envelope.signatures) <= _MAX_SIGNATURES:
        raise MalformedError(f"the envelope must have 1 to {_MAX_SIGNATURES} signatures")
    ours = [decode_base64(line.sig) for line in envelope.signatures if line.keyid == own]
    if len(ours) != 1:
        raise SignatureError(f"the envelope has {len(ours)} signatures by this key, expected one")
    try:
        signed = _signed_bytes(payload, payload_type)
        algorithm_of(public_key).verify(public_key, ours[0], signed)
    except (InvalidSignature, ValueError) as e:  # no text, or no such point on the curve
        raise SignatureError("the envelope's signature is invalid") from e
    return payload_type, payload


def payload_of(text: str) -> bytes:
    """Return the payload, whoever signed it: it is the same however the envelope is written."""
    return decode_base64(_parse(text).payload)


def envelope_key_id(public_key: bytes) -> str:
    """Return the name that signatures go by: SHA-256 of a vkey's key, as in an entry's author."""
    return hashlib.sha256(public_key).hexdigest()


def tree_head_statement(note: str) -> bytes:
    """Return the in-toto Statement about a tree head: the ledger's origin has this root.

    The subject's sha256 is the Merkle tree's root; the predicate holds the note itself, so that
    its signatures and cosignatures can be checked too. Whether they hold is for the caller to know.
    """
    head = parse_tree_head(note)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": head.origin, "digest": {"sha256": head.root.hex()}}],
        "predicateType": TREE_HEAD,
        "predicate": {"size": head.size, "note": note},
    }
    return json.dumps(statement).encode()


def _signed_bytes(payload: bytes, payload_type: str) -> bytes:
    """Return DSSE's pre-authentication encoding: both parts behind their lengths in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _parse(text: str) -> _Envelope:
    if len(text) > _MAX_ENVELOPE:
        raise MalformedError("the envelope is too long")
    try:
        return convert(read_json(text), _Envelope)
    except JSONError as e:
        raise MalformedError(f"the envelope is not strict JSON: {e}") from e
    except ValidationError as e:
        raise MalformedError(f"the envelope is not one of DSSE: {e}") from e
