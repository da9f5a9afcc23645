"""Signed statements as Sigstore bundles, one a line, and the signature of a folder in one of them.

Source: Sigstore bundle 0.3 (sigstore/protobuf-specs); OpenSSF Model Signing 1.0, whose predicate
lists the files of a folder, sorted, and whose subject is the SHA-256 over their digests.
Trust: a line is hostile until open_bundle() returns; the public key is trusted.
I/O: none.
Not covered: certificates and transparency logs of Sigstore, which a key in a ledger does not need.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ledger.errors import MalformedError
from ledger.handover.envelope import IN_TOTO, open_envelope, public_pem, seal
from ledger.schemes import PrivateKey
from ledger.strict_json import JSONError, read_json

SIGNATURE = "https://model_signing/signature/v1.0"  # predicate type
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def seal_bundle(statement: bytes, *, key: PrivateKey, public_key: bytes) -> str:
    """Return the line, with its newline, by which this key's holder signs a statement."""
    envelope = seal(statement, payload_type=IN_TOTO, key=key)
    return _line(json.loads(envelope), public_key)


def open_bundle(line: str, *, public_key: bytes) -> dict[str, Any]:
    """Return the statement in a line that seal_bundle() made with this key.

    Raises MalformedError or SignatureError. The line is accepted in its one spelling only.
    """
    try:
        told = read_json(line)
        envelope = told["dsseEnvelope"]
    except (JSONError, KeyError, TypeError) as e:
        raise MalformedError("the line is not a Sigstore bundle with a DSSE envelope") from e
    kind, payload = open_envelope(json.dumps(envelope), public_key=public_key)
    if kind != IN_TOTO or line != _line(envelope, public_key):
        raise MalformedError("the line was altered: this program writes bundles otherwise")
    statement: dict[str, Any] = json.loads(payload)
    return statement


def folder_statement(name: str, files: Mapping[str, str]) -> bytes:
    """Return the statement by which the files of a folder are signed; `files`: path to SHA-256."""
    serialization = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": [],
    }
    resources = [
        {"name": path, "algorithm": "sha256", "digest": files[path]} for path in _in_order(files)
    ]
    predicate = {"serialization": serialization, "resources": resources}
    return statement(SIGNATURE, predicate, subjects({name: root_digest(files)}))


def statement(kind: str, predicate: Mapping[str, Any], about: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the in-toto Statement of a kind about some subjects()."""
    told = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": about,
        "predicateType": kind,
        "predicate": predicate,
    }
    return json.dumps(told, sort_keys=True).encode()


def subjects(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return files with their SHA-256 as a Statement names them."""
    return [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)]


def root_digest(files: Mapping[str, str]) -> str:
    """Return the digest that stands for all files of a signed folder."""
    joined = b"".join(bytes.fromhex(files[path]) for path in _in_order(files))
    return hashlib.sha256(joined).hexdigest()


def _in_order(files: Mapping[str, str]) -> list[str]:
    return sorted(files, key=PurePosixPath)


def _line(envelope: Any, public_key: bytes) -> str:
    """Return a bundle; its hint is how verifiers find the key among several."""
    hint = hashlib.sha256(public_pem(public_key).encode()).hexdigest()
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": envelope,
    }
    return json.dumps(bundle) + "\n"
