"""The signature schemes: what a key of each type is, who may hold it, how it signs and verifies.

The one place that knows: files, vkeys, notes, entries and envelopes ask it. Only the second
verifier (handover/second_verifier.py) shares nothing with it.

Source: C2SP signed-note, "Signature types"; tlog-cosignature.
Trust: what is_key() and verify() are given is hostile.
I/O: none.
Not covered: the bytes that are signed, which each format builds by itself.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

PrivateKey = PrivateKeyTypes  # whichever: only its algorithm looks inside

_KEYS = 64  # public keys that are kept; of a ledger's tree heads, all have the same
_DER = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")  # then x, y


@dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm of the library, by keys of a fixed length, that signs a message as it is."""

    name: str  # with its article, in errors
    private: Any  # the library's class
    load: Callable[[bytes], Any]  # the library's public key; ValueError: no point on the curve
    key_bytes: int  # no other algorithm has as many: an envelope does not say which it is
    signature_bytes: int | None  # None: it varies

    def generate(self) -> PrivateKey:
        """Make a private key."""
        key: PrivateKey = self.private.generate()
        return key

    def owns(self, key: PrivateKey) -> bool:
        """Tell whether a private key is of this algorithm."""
        return isinstance(key, self.private)

    def public_bytes(self, key: Any) -> bytes:
        """Return a private key's public key, as its vkey has it."""
        return bytes(key.public_key().public_bytes_raw())

    def is_key(self, public_key: bytes) -> bool:
        """Tell whether a vkey of this algorithm can have this public key."""
        return len(public_key) == self.key_bytes

    def sign(self, key: Any, message: bytes) -> bytes:
        """Return the signature of a message."""
        return bytes(key.sign(message))

    def verify(self, public_key: bytes, signature: bytes, message: bytes) -> None:
        """Raise InvalidSignature or ValueError unless this key has signed the message."""
        _loaded(self.load, public_key).verify(signature, message)


class _P256(Algorithm):
    """ECDSA over P-256 with SHA-256, by keys in DER (SubjectPublicKeyInfo)."""

    def generate(self) -> PrivateKey:
        return generate_private_key(SECP256R1())

    def owns(self, key: PrivateKey) -> bool:
        return isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)

    def public_bytes(self, key: Any) -> bytes:
        return bytes(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def is_key(self, public_key: bytes) -> bool:
        if not super().is_key(public_key) or not public_key.startswith(_DER):
            return False
        try:
            self.load(public_key)
        except ValueError:  # not on the curve
            return False
        return True

    def sign(self, key: Any, message: bytes) -> bytes:
        return bytes(key.sign(message, ECDSA(SHA256(), deterministic_signing=True)))

    def verify(self, public_key: bytes, signature: bytes, message: bytes) -> None:
        _loaded(self.load, public_key).verify(signature, message, ECDSA(SHA256()))


@dataclass(frozen=True, eq=False)
class Scheme:
    """A signature type: an algorithm, and those who may hold keys of it."""

    type: int  # the byte in vkeys and, but for P-256, in key ids
    algorithm: Algorithm
    vkeys: str  # what they are, in errors
    roles: tuple[str, ...]  # who may hold a key; of `ledger`, it signs tree heads and rotations
    entries: bool = False  # whether it signs entries, which have 64 bytes for that
    id_names: bool = True  # name and type are part of the key id

    def key_id(self, name: str, public_key: bytes) -> bytes:
        """Return the 4 bytes that stand for a key in its signature lines."""
        named = f"{name}\n".encode() + bytes((self.type,)) if self.id_names else b""
        return hashlib.sha256(named + public_key).digest()[:4]


_ED25519 = Algorithm("an Ed25519", Ed25519PrivateKey, Ed25519PublicKey.from_public_bytes, 32, 64)
_ECDSA = _P256("a P-256", EllipticCurvePrivateKey, load_der_public_key, len(_DER) + 64, None)

SCHEMES = {
    each.type: each
    for each in (
        Scheme(0x01, _ED25519, "for Ed25519", ("ledger", "judge", "operator"), entries=True),
        Scheme(0x02, _ECDSA, "for P-256", ("publisher",), id_names=False),
        Scheme(0x04, _ED25519, "for cosignatures", ("witness",)),  # see cosignatures.py
    )
}
"""By signature type. A new key of a role is of the first scheme that names the role."""


def schemes_of(role: str) -> list[Scheme]:
    """Return the schemes of the keys that may act in a role."""
    return [scheme for scheme in SCHEMES.values() if role in scheme.roles]


def scheme_of(public_key: bytes, *, role: str) -> Scheme:
    """Return the scheme of a role's key; raise ValueError if no such key has the role."""
    algorithm = algorithm_of(public_key)
    found = next((each for each in schemes_of(role) if each.algorithm is algorithm), None)
    if found is None:
        raise ValueError(f"{algorithm.name} key cannot be the key of {role!r}")
    return found


def algorithm_of(key: PrivateKey | bytes) -> Algorithm:
    """Return the algorithm of a private key, or of a public one's bytes.

    Raises ValueError unless there is exactly one: which algorithm verifies is never guessed.
    """
    found = {
        each.algorithm
        for each in SCHEMES.values()
        if (each.algorithm.is_key(key) if isinstance(key, bytes) else each.algorithm.owns(key))
    }
    if len(found) != 1:
        raise ValueError("the key is not of exactly one signature scheme")
    return found.pop()


@lru_cache(maxsize=_KEYS)
def _loaded(load: Callable[[bytes], Any], public_key: bytes) -> Any:
    return load(public_key)
