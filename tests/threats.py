"""Attacks on what a ledger leaves behind, and who finds them: a registry, and real detectors.

An attack tampers with a copy of the scene on disk. It returns the index of the entry that it
touched, where it is one, so that it can be seen who names it.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from eventsourcing.persistence import StoredEvent
from threat_scene import Scene, recorder

from ledger import second_verifier
from ledger.errors import LedgerError, VerificationError
from ledger.quorum import parse_quorum
from ledger.reader import VerificationReport, check_ledger, read_tree_head

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

    error: str
    index: int | None


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
    except VerificationError as e:
        return Found(type(e).__name__, e.index)
    except LedgerError as e:
        return Found(type(e).__name__, None)
    except second_verifier.Failed as e:
        return Found("Failed", e.index)
    return None


def _held(report: VerificationReport) -> None:
    if not report.ok:
        error = VerificationError(str(report.error), index=report.index)
        error.__class__ = type(str(report.error_type), (VerificationError,), {})
        raise error


def alone(scene: Scene) -> None:
    _held(check_ledger(scene.ledger))


def with_the_key(scene: Scene) -> None:
    _held(check_ledger(scene.ledger, vkey=scene.vkey))


def with_a_kept_head(scene: Scene) -> None:
    _held(check_ledger(scene.ledger, vkey=scene.vkey, kept_head=scene.kept_head))


def with_a_quorum(scene: Scene) -> None:
    with_the_key(scene)
    parse_quorum(scene.policy).verify(read_tree_head(scene.ledger) or "")


def second(scene: Scene) -> None:
    arguments = argparse.Namespace(
        target=str(scene.database),
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
    row: str  # of the page


def carry_out(threat: Threat, scene: Scene) -> Outcome:
    """Attack, and ask every detector."""
    index = threat.attack(scene)
    found = {name: detected(detector, scene) for name, detector in DETECTORS[threat.target].items()}
    cells = [_cell(each, index) for each in found.values()]
    return Outcome(index, found, f"| {' | '.join([threat.name, *cells])} |")


def _cell(found: Found | None, index: int | None) -> str:
    if found is None:
        return "-"
    return "**found**" if index is not None and found.index == index else "found"


DETECTORS: dict[str, dict[str, Callable[[Scene], None]]] = {
    "ledger": {
        "nothing": alone,
        "the vkey": with_the_key,
        "a kept head": with_a_kept_head,
        "a quorum": with_a_quorum,
        "second verifier": second,
        "next append": next_append,
    },
}
