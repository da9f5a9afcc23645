"""A tiny training, real in every part, that takes a fraction of a second."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.loop import train


class MemoryBlobs(dict[str, bytes]):
    """Blobs in memory."""

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self[digest] = content
        return digest

    def get(self, digest: str) -> bytes:  # type: ignore[override]
        return self[digest]


@dataclass
class ScriptedPolicy:
    """Says `says` when rules are due for the first time, and defers from then on."""

    says: Sequence[tuple[str, dict[str, Any]]] = ()
    name: str = "scripted"
    asked: list[Observation] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        return {"says": [direction for direction, _ in self.says]}

    def decide(self, observation: Observation) -> list[Decision]:
        self.asked.append(observation)
        if len(self.asked) > 1 or not self.says:
            return [_decision(rule, DEFER, {}) for rule in observation.due]
        return [_decision(observation.due[0], *said) for said in self.says]


def _decision(rule: str, direction: str, params: dict[str, Any]) -> Decision:
    return Decision.of((rule,), direction, params, "as the script says")


@dataclass
class Trained:
    """A finished run and everything it left."""

    run: Run
    log: LedgerApplication
    blobs: MemoryBlobs
    measured: list[dict[str, Any]]
    policy: ScriptedPolicy

    def bodies(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the run's events, as a log gives them back."""
        return [
            (type(event).__qualname__, {**event.__dict__})
            for event in self.log.events.get(self.run.id)
        ]


TINY: dict[str, Any] = {
    "train_examples": 192,
    "val_examples": 64,
    "test_examples": 64,
    "epochs": 3,
    "batch_size": 32,
    "channels": 8,
    "blocks": 1,
    "width": 8,
    "stem_stride": 4,
    "threads": 1,
}
# Steps far below R1's band: it fires, on the low side, in the third epoch.
STUCK: dict[str, Any] = {
    **TINY,
    "lr": 1e-7,
    "warm_up_epochs": 0,
    "epochs": 4,
    "profile": "calibrated",
}


def tiny_config(**changes: Any) -> RunConfig:
    return RunConfig.from_dict({**TINY, **changes})


def train_tiny(
    *says: tuple[str, dict[str, Any]],
    settings: dict[str, Any] = TINY,
    policy: Policy | None = None,
    **arguments: Any,
) -> Trained:
    """Train TINY, or other settings, in memory, under a script or another policy."""
    log, blobs = LedgerApplication.in_memory(REGISTRY), MemoryBlobs()
    scripted = ScriptedPolicy(says)
    measured: list[dict[str, Any]] = []
    run = train(
        RunConfig.from_dict(settings),
        policy or scripted,
        log=log,
        blobs=blobs,
        on_epoch=lambda _, part: measured.append(part),
        **arguments,
    )
    return Trained(run, log, blobs, measured, scripted)
