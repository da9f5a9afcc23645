"""Real trainings, tiny ones, in folders that a test may tamper with."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.registry import REGISTRY
from judge.audit import audit_run
from judge.evidence import read_events
from judge.report import AuditReport
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.paths import LedgerPaths
from monitor.config import RunConfig
from monitor.loop import Policy, train

CONFIG = RunConfig(
    train_examples=200,
    val_examples=96,
    test_examples=100,
    epochs=8,
    channels=6,
    width=6,
    batch_size=32,
    threads=1,
    warm_up_epochs=0,
    lr=10.0,  # updates are far too large and noisy: R1 and R2 fire
)


class SilentPolicy:
    """Sees rules fire and goes on."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> Sequence[Decision]:
        return ()


@dataclass(frozen=True)
class Case:
    """A run with its ledger and its submission, in folders of their own."""

    run_id: str
    ledger: Path
    submission: Path

    def audit(self, **options: Any) -> AuditReport:
        return audit_run(
            self.run_id, ledger_dir=self.ledger, submission_dir=self.submission, **options
        )

    def copy(self, to: Path) -> "Case":
        """Return a copy that may be tampered with."""
        shutil.copytree(self.ledger, to / "ledger")
        shutil.copytree(self.submission, to / "submission")
        return Case(self.run_id, to / "ledger", to / "submission")

    def events(self) -> list[Any]:
        return read_events(self.ledger, self.run_id)


def train_case(folder: Path, policy: Policy, config: RunConfig = CONFIG) -> Case:
    ledger, submission = folder / "ledger", folder / "submission"
    with LedgerApplication.open(ledger, REGISTRY) as log:
        blobs = BlobStore(LedgerPaths(ledger).blobs)
        run = train(config, policy, log=log, blobs=blobs, submission_dir=submission)
    return Case(str(run.id), ledger, submission)
