"""Public keys as PEM and signed envelopes, which other tools can verify.

Source: RFC 8410 (SubjectPublicKeyInfo of Ed25519); DSSE version 1 (secure-systems-lab/dsse:
envelope.md, protocol.md); in-toto Statement version 1 (in-toto/attestation).
Trust: an envelope is hostile until open_envelope() returns; the public key is trusted.
I/O: none.
Not covered: thresholds of several signers, and keys of other kinds than Ed25519 and P-256.
"""

import hashlib
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)
from msgspec import Struct, ValidationError, convert

from ledger.errors import MalformedError, SignatureError
from ledger.strict_json import JSONError, read_json
from ledger.verification.verified_notes import decode_base64, encode_base64, parse_tree_head

IN_TOTO = "application/vnd.in-toto+json"  # payload type of a Statement
TREE_HEAD = "https://proctor.local/tree-head/v1"  # predicate type; a name, not a place
_MAX_ENVELOPE = 16_000_000  # characters
_MAX_SIGNATURES = 16
_ED25519_BYTES = 32  # a longer public key is a SubjectPublicKeyInfo of P-256


class _Signature(Struct, forbid_unknown_fields=True):
    keyid: str
    sig: str  # base64


class _Envelope(Struct, forbid_unknown_fields=True, rename={"payload_type": "payloadType"}):
    payload: str  # base64
    payload_type: str
    signatures: list[_Signature]


def public_pem(public_key: bytes) -> str:
    """Return the public key of a vkey in the form that openssl reads."""
    key = _public_key(public_key)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def seal(
    payload: bytes, *, payload_type: str, key: Ed25519PrivateKey | EllipticCurvePrivateKey
) -> str:
    """Return the envelope, one line of JSON, that says: this key's holder has signed this.

    The same payload and key give the same envelope.
    """
    signed = _signed_bytes(payload, payload_type)
    if isinstance(key, Ed25519PrivateKey):
        made, public_key = key.sign(signed), key.public_key().public_bytes_raw()
    else:
        made = key.sign(signed, ECDSA(SHA256(), deterministic_signing=True))
        public_key = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = {"keyid": envelope_key_id(public_key), "sig": encode_base64(made)}
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
        signed, key = _signed_bytes(payload, payload_type), _public_key(public_key)
        if isinstance(key, Ed25519PublicKey):
            key.verify(ours[0], signed)
        else:
            key.verify(ours[0], signed, ECDSA(SHA256()))
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


def _public_key(public_key: bytes) -> Ed25519PublicKey | EllipticCurvePublicKey:
    """Return a key; raises ValueError for no point on a curve."""
    if len(public_key) == _ED25519_BYTES:
        return Ed25519PublicKey.from_public_bytes(public_key)
    key = load_der_public_key(public_key)
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError("the key is neither of Ed25519 nor of P-256")  # noqa: TRY004 - its value
    return key


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
