"""Verifies the claims in a folder with securesystemslib and in-toto-attestation; run by the tests.

It runs in the environment of the tools and imports nothing of Proctor.
"""

import copy
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.predicates.test_result.v0.test_result_pb2 import TestResult
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__

KEYS = {"publisher.pem": 1, "ledger.pem": 2}  # and how many claims each has signed
PREDICATES: dict[str, Any] = {
    "https://in-toto.io/attestation/test-result/v0.1": TestResult,
    "https://slsa.dev/provenance/v1": Provenance,
}


def verify(folder: Path) -> None:
    """Raise unless the claims hold, follow their types, and are about the files beside them."""
    keys = [name for name, count in KEYS.items() for _ in range(count)]
    lines = (folder / "claims.jsonl").read_text().splitlines()
    assert len(lines) == len(keys)
    for line, name in zip(lines, keys, strict=True):
        envelope = json.loads(line)["dsseEnvelope"]
        (keyid,) = [one["keyid"] for one in envelope["signatures"]]
        key = SSlibKey.from_crypto(load_pem_public_key((folder / name).read_bytes()), keyid=keyid)
        signed = Envelope.from_dict(copy.deepcopy(envelope))
        signed.verify([key], 1)
        told = json.loads(signed.payload)
        Statement.copy_from_pb(ParseDict(told, statement_pb2.Statement())).validate()
        kind = PREDICATES.get(told["predicateType"])
        if kind is None:
            continue
        ParseDict(told["predicate"], kind())
        beside = told["predicate"].get("runDetails", {}).get("byproducts", [])
        for one in (*told["subject"][1:], *beside):  # the first subject is the whole folder
            found = hashlib.sha256((folder / one["name"]).read_bytes()).hexdigest()
            assert found == one["digest"]["sha256"], one["name"]


verify(Path(sys.argv[1]))
print("verified")
