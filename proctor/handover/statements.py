"""What is claimed of a handed-over model: how it was trained, and what the judge found.

Both statements follow from the proved events and from the files' digests, so that a verifier makes
them again and compares. Another form of them needs another version in BUILD_TYPE.

Source: in-toto Statement 1, SLSA provenance 1, in-toto test-result 0.1. No SLSA level is claimed.
I/O: none.
"""

import re
from collections.abc import Mapping
from typing import Any

from ledger.handover.sigstore_bundle import root_digest, statement, subjects
from ledger.mapper import ns_to_datetime
from ledger.verification.verified_entries import VerifiedEntry
from proctor.handover.evidence import Evidence, mapping, says
from proctor.output.terminal import plain

BUILD_TYPE = "https://proctor.local/training/v2"  # a name, not a place
_EARLIER = "https://proctor.local/training/v1"  # of folders that leave out events
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
FOLDER = "model"  # what is signed
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LISTS = {"failed": "failedTests", "passed": "passedTests"}  # all other steps are warnings


def is_earlier(claim: Mapping[str, Any]) -> bool:
    """Tell whether a provenance says that it is of the first form."""
    return bool(claim["predicate"]["buildDefinition"]["buildType"] == _EARLIER)


def provenance(
    evidence: Evidence, files: Mapping[str, str], *, beside: Mapping[str, str], version: str
) -> bytes:
    """Return the statement of how the files came about, by this version of the program.

    `files` are those of the signed folder and `beside` those next to it, with their SHA-256.
    """
    start = says(evidence.started)
    about = mapping(start.get("data"))
    parameters = ("config", "config_hash", "rules", "rules_hash", "spec", "policy", "campaign")
    environment = mapping(start.get("environment"))
    predicate = {
        "buildDefinition": {
            "buildType": _EARLIER if evidence.earlier else BUILD_TYPE,
            "externalParameters": {
                **{name: start.get(name) for name in (*parameters, "checkpoint", "parent_run")},
                "data": {name: about[name] for name in about if name != "fingerprints"},
            },
            "internalParameters": {
                "environment": environment,
                "evidence_level": evidence.level,
                "ended": says(evidence.ended).get("reason"),
                "weights": [
                    {name: saved.get(name) for name in ("epoch", "kind", "sha256", "size")}
                    for saved in evidence.weights
                ],
                "ledger": _tree_head(evidence),
                "events": [_event(entry) for entry in evidence.selection.entries],
            },
            "resolvedDependencies": [
                {"name": name, "digest": {"sha256": sha256}}
                for name, sha256 in _dependencies(about, environment)
            ],
        },
        "runDetails": {
            "builder": {"id": f"https://{evidence.head.origin}", "version": {"proctor": version}},
            "metadata": {
                "invocationId": str(evidence.run),
                "startedOn": _time(evidence.started),
                "finishedOn": _time(evidence.ended),
            },
            "byproducts": subjects(beside),
        },
    }
    return _about_folder(PROVENANCE, predicate, files)


def verdict(evidence: Evidence, files: Mapping[str, str]) -> bytes:
    """Return the statement of what the audit of the run found."""
    last = evidence.scored
    scored = says(last)
    names: tuple[str, ...] = ("accuracy_score", "process_score", "process_axis_exercised")
    names = (*names, "test_accuracy", "validation_accuracy", "violations")
    lists: dict[str, list[Any]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for step in evidence.steps:
        lists[_LISTS.get(str(step.get("status")), "warnedTests")].append(step.get("name"))
    done, epochs = evidence.retrained
    annotations = {
        "run": str(evidence.run),
        "audit": str(last.stream_id),
        **{name: scored.get(name) for name in names},
        "epochs": epochs,
        "epochs_retrained": done,
        "evidence_level": evidence.level,
        "signed_by_judge": evidence.counting.signed,
        "reservations": evidence.reservations,
        "ledger": _tree_head(evidence),
    }
    if evidence.violations != evidence.violations_listed:
        annotations["violations_found"] = evidence.violations  # its last event lists the first ones
    configuration = {
        "name": f"entry {last.index}",
        "digest": {"sha256": last.entry_hash.hex()},
        "annotations": annotations,
    }
    predicate = {"result": evidence.verdict, "configuration": [configuration], **lists}
    return _about_folder(TEST_RESULT, predicate, files)


def _about_folder(kind: str, predicate: Mapping[str, Any], files: Mapping[str, str]) -> bytes:
    named = subjects({f"{FOLDER}/{name}": files[name] for name in files})
    return statement(kind, plain(predicate), [*subjects({FOLDER: root_digest(files)}), *named])


def _tree_head(evidence: Evidence) -> dict[str, Any]:
    head = evidence.head
    return {"origin": head.origin, "size": head.size, "root": head.root.hex()}


def _event(entry: VerifiedEntry) -> dict[str, Any]:
    return {"index": entry.index, "name": entry.name, "sha256": entry.entry_hash.hex()}


def _dependencies(data: Mapping[str, Any], environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what went in and has a SHA-256: the splits of the data, and the program's code."""
    prints = {**mapping(data.get("fingerprints")), "all": data.get("fingerprint")}
    found = {
        **{f"data: {split}": sha256 for split, sha256 in prints.items()},
        "code of Proctor": environment.get("code_sha256"),
    }
    return [(name, one) for name, one in found.items() if _SHA256.fullmatch(str(one))]


def _time(entry: VerifiedEntry) -> str:
    return f"{ns_to_datetime(entry.time_ns):%Y-%m-%dT%H:%M:%SZ}"
