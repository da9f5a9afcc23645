"""The verdict on a run as a statement that other people's tools verify."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from frontdoor import call_here
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__
from synthetic import synthetic_audit, synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.handover.envelope import envelope_key_id
from ledger.keys import load_key
from ledger.notes import public_bytes
from ledger.paths import LedgerPaths

PADDED = {"kind": "padding", "rule": "R5", "epoch": 2, "emitter": "policy"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a judged run, and behind it one that nobody has judged."""
    home = tmp_path_factory.mktemp("attested") / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        judged = synthetic_run(log, dead=range(5))
        synthetic_audit(log, judged, violations=[PADDED], score=0.5)
        synthetic_run(log, dead=range(5), seed=1)
    return home


def first_run(home: Path) -> str:
    (row,) = json.loads(call_here(["sql", "FROM counting_audits", "--json"], home=home).stdout)
    return str(row["run_id"])


def attested(home: Path, out: Path) -> tuple[Envelope, Mapping[str, Any]]:
    done = call_here(["export", "verdict", first_run(home), "--out", out], home=home)
    assert done.returncode == 0, done.stderr
    envelope = Envelope.from_dict(json.loads(out.read_text()))
    return envelope, json.loads(envelope.payload)


def public(home: Path) -> Any:
    name = public_bytes(load_key(LedgerPaths(home / "ledger").key, passphrase=None))
    return SSlibKey(envelope_key_id(name), "ed25519", "ed25519", {"public": name.hex()})


def test_verdict_is_a_statement_about_the_files_that_were_handed_in(
    home: Path, tmp_path: Path
) -> None:
    envelope, statement = attested(home, tmp_path / "verdict.json")
    envelope.verify([public(home)], threshold=1)
    assert statement["subject"] == [{"name": "model.py", "digest": {"sha256": "11" * 32}}]
    told = statement["predicate"]
    assert (told["run"], told["verdict"]) == (first_run(home), "held")
    assert (told["process_score"], told["violations"]) == (0.5, [PADDED])
    assert [step["step"] for step in told["steps"]] == list(range(1, 12))
    assert told["unchecked"] == []
    entries = json.loads(call_here(["log", "--json"], home=home).stdout)
    assert entries[told["entry"]["index"]]["event"] == "audit.scored"


def test_key_of_an_envelope_is_written_beside_it_as_pem(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "head.json"
    done = call_here(["export", "verdict", "head", "--out", out, "--pem"], home=home)
    assert done.returncode == 0, done.stderr
    raw = load_key(LedgerPaths(home / "ledger").key, passphrase=None).public_key()
    pem = raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert out.with_name("head.json.pem").read_bytes() == pem


def test_statement_with_another_score_is_rejected_by_other_tools(
    home: Path, tmp_path: Path
) -> None:
    envelope, _ = attested(home, tmp_path / "verdict.json")
    envelope.payload = envelope.payload.replace(b'"process_score": 0.5', b'"process_score": 1.0')
    with pytest.raises(VerificationError):
        envelope.verify([public(home)], threshold=1)


def test_run_without_an_audit_that_counts_is_refused(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "verdict.json"
    done = call_here(["export", "verdict", "latest", "--out", out], home=home)
    assert (done.returncode, out.exists()) == (2, False)
    assert "`proctor judge " in done.stderr
