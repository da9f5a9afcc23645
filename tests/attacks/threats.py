"""Attacks on what a ledger leaves behind, and who finds them: a registry, and real detectors.

An attack tampers with a copy of the scene on disk. It returns the index of the entry that it
touched, where it is one, so that it can be seen who names it.
"""

import argparse
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from eventsourcing.persistence import StoredEvent
from stores import on_server
from threat_scene import BLOB_NAMED, Scene, recorder

from ledger.blobs import BlobStore
from ledger.errors import LedgerError, SignatureError, VerificationError
from ledger.handover import second_verifier
from ledger.handover.bundle_check import check_bundle
from ledger.handover.proof_files import open_proof
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory
from ledger.verification.reader import (
    VerificationReport,
    check_ledger,
    open_verified,
    read_tree_head,
)
from ledger.witnessing.evidence import open_evidence, verify_signers
from ledger.witnessing.quorum import parse_quorum
from projections.projector import projected

__all__ = ["DETECTORS", "THREATS", "Found", "Outcome", "Threat", "carry_out", "detected", "threat"]

Attack = Callable[[Scene], int | None]
AnyAttack = TypeVar("AnyAttack", bound=Attack)


@dataclass(frozen=True)
class Threat:
    """One attack: on which kind of target, and what the attacker has beside the files."""

    name: str
    target: str  # a key of DETECTORS
    by: str  # "files", "key": the ledger's present private key as well, "old key"
    attack: Attack
    vague: bool  # nobody without the original can tell this entry from others of its batch
    harmless: str | None  # why nothing is lost if nobody notices
    undetected: str | None  # why not even a kept head helps


@dataclass(frozen=True)
class Found:
    """What a detector said."""

    message: str
    index: int | None  # of the first bad entry, if it is known


THREATS: list[Threat] = []


def threat(
    name: str,
    *,
    target: str = "ledger",
    by: str = "files",
    vague: bool = False,
    harmless: str | None = None,
    undetected: str | None = None,
) -> Callable[[AnyAttack], AnyAttack]:
    """Register an attack."""

    def register(attack: AnyAttack) -> AnyAttack:
        THREATS.append(Threat(name, target, by, attack, vague, harmless, undetected))
        return attack

    return register


def detected(detector: Callable[[Scene], None], scene: Scene) -> Found | None:
    """Let a detector look; any error that is not one of the ledger's is a fault of the detector."""
    try:
        detector(scene)
    except (LedgerError, second_verifier.Failed) as e:
        return Found(str(e), getattr(e, "index", None))
    return None


def _held(report: VerificationReport) -> None:
    if not report.ok:
        raise VerificationError(str(report.error), index=report.index)


def alone(scene: Scene) -> None:
    _held(check_ledger(scene.ledger))


def with_the_key(scene: Scene) -> None:
    _held(check_ledger(scene.ledger, vkey=scene.vkey))


def with_a_kept_head(scene: Scene) -> None:
    _held(check_ledger(scene.ledger, vkey=scene.vkey, kept_head=scene.kept_head))


def with_a_memory(scene: Scene) -> None:
    memory = Memory(shutil.copytree(scene.memory, scene.root / "memory-full"))
    _held(check_ledger(scene.ledger, vkey=scene.vkey, memory=memory))


def what_is_new(scene: Scene) -> None:
    _held(
        check_ledger(
            scene.ledger,
            vkey=scene.vkey,
            memory=Memory(scene.root / "memory-earlier"),
            new=True,
        )
    )


def with_a_quorum(scene: Scene) -> None:
    with_the_key(scene)
    parse_quorum(scene.policy).verify(read_tree_head(scene.ledger) or "")


def bundle_with_a_kept_head(scene: Scene) -> None:
    _held(check_bundle(scene.bundle, vkey=scene.vkey, kept_heads=[scene.kept_head]))


def bundle_with_a_quorum(scene: Scene) -> None:
    _held(check_bundle(scene.bundle, vkey=scene.vkey))
    parse_quorum(scene.policy).verify((scene.bundle / "checkpoint").read_text())


def proof_with_a_quorum(scene: Scene) -> None:
    proved = open_proof(scene.proof.read_text(), vkey=scene.vkey)
    parse_quorum(scene.policy).verify(proved.head.note)


def evidence_against_the_vkey(scene: Scene) -> None:
    if open_evidence(scene.evidence.read_text()).vkey != scene.vkey:
        raise SignatureError("the evidence is against another ledger")


def evidence_against_the_rotations(scene: Scene) -> None:
    evidence_against_the_vkey(scene)
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        rotations = ledger.authority.rotations
    verify_signers(open_evidence(scene.evidence.read_text()), rotations=rotations)


def new_by_the_memory(scene: Scene) -> None:
    _held(check_ledger(scene.ledger, vkey=scene.vkey, memory=Memory(scene.memory), new=True))


def read_blobs(scene: Scene) -> None:
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        names = [e.body.split()[0].decode() for e in ledger.entries() if e.name == BLOB_NAMED]
    for name in names:
        BlobStore(LedgerPaths(scene.ledger).blobs).get(name)


def standing_verdict(scene: Scene) -> None:
    if not scene.verdicts.exists():
        return
    with open_verified(scene.verdicts) as ledger, closing(projected(ledger.entries())) as tables:
        rows = tables.execute("SELECT audit_id FROM counting_audits").fetchall()
    if [audit for (audit,) in rows] == scene.standing.read_text().split():
        raise VerificationError("another audit of this run stands, or none")


def read_jumps(scene: Scene) -> None:
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        for entry in ledger.entries():
            if entry.stream_id == ledger.authority.stream_id and entry.name == "clock.jumped":
                raise VerificationError("the clock has jumped", index=entry.index)


def void(_: object) -> None:
    """Forget what was returned."""


def second(scene: Scene) -> None:
    run_second(scene, scene.database)


def run_second(scene: Scene, target: Path) -> None:
    arguments = argparse.Namespace(
        blob_bytes=2**36,
        target=str(target),
        vkey=scene.vkey,
        head=str(scene.root / "kept"),
        witness=[],
    )
    try:
        second_verifier.check(arguments)
    except second_verifier.Failed:
        raise
    except Exception as e:  # for its main(), too, this is not "held"
        raise second_verifier.Failed(type(e).__name__) from e


def next_append(scene: Scene) -> None:
    with recorder(scene.ledger) as into:
        into.insert_events([StoredEvent(UUID(int=99), 1, "test.event", b"next")])


@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    index: int | None  # of the entry that was touched
    found: dict[str, Found | None]  # by detector
    codes: str  # of the page, one letter for each detector


def carry_out(threat: Threat, scene: Scene) -> Outcome:
    """Attack, and ask every detector."""
    index = threat.attack(scene)
    found = {name: detected(detector, scene) for name, detector in asked(threat.target).items()}
    return Outcome(index, found, "".join(_code(each, index) for each in found.values()))


def asked(target: str) -> dict[str, Callable[[Scene], None]]:
    """Return the detectors of a target; the second verifier reads files only."""
    detectors = DETECTORS[target]
    return {name: each for name, each in detectors.items() if not (on_server() and each is second)}


def _code(found: Found | None, index: int | None) -> str:
    if found is None:
        return "-"
    return "F" if index is not None and found.index == index else "f"


DETECTORS: dict[str, dict[str, Callable[[Scene], None]]] = {
    "ledger": {
        "nothing": alone,
        "the vkey": with_the_key,
        "a kept head": with_a_kept_head,
        "a memory": with_a_memory,
        "... only what is new": what_is_new,
        "a quorum": with_a_quorum,
        "second verifier": second,
        "next append": next_append,
    },
    "bundle": {
        "nothing": lambda scene: _held(check_bundle(scene.bundle)),
        "the vkey": lambda scene: _held(check_bundle(scene.bundle, vkey=scene.vkey)),
        "a kept head": bundle_with_a_kept_head,
        "a quorum": bundle_with_a_quorum,
        "second verifier": lambda scene: run_second(scene, scene.bundle),
    },
    "proof": {
        "the vkey": lambda scene: void(open_proof(scene.proof.read_text(), vkey=scene.vkey)),
        "a quorum": proof_with_a_quorum,
        "second verifier": lambda scene: run_second(scene, scene.proof),
    },
    "evidence": {
        "nothing": lambda scene: void(open_evidence(scene.evidence.read_text())),
        "the vkey": evidence_against_the_vkey,
        "the rotations": evidence_against_the_rotations,
    },
    "memory": {
        "a memory": with_a_memory,
        "... only what is new": new_by_the_memory,
    },
    "clock": {
        "whoever reads the events": read_jumps,
    },
    "verdict": {
        "whoever asks which verdict stands": standing_verdict,
    },
    "blob": {
        "whoever reads it": read_blobs,
        "second verifier": second,
    },
}
