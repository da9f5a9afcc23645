"""Real trainings, tiny ones, in folders that a test may tamper with."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from aggregates.decisions import Decision, Observation
from aggregates.registry import REGISTRY
from aggregates.rules import RulesConfig
from aggregates.run import Run
from judge.auditing.audit import audit_run
from judge.auditing.events import decode_events
from judge.auditing.record import read_record
from judge.auditing.report import AuditReport
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.paths import LedgerPaths
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.loop import train

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
    lr=1e-5,  # updates are far too small: R1 fires in epoch 2, and again in epoch 5
    profile="calibrated",
)


class SilentPolicy:
    """Sees rules fire and goes on."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> Sequence[Decision]:
        return ()


def events_of(ledger: Path, run_id: str) -> list[Any]:
    """Return a run's events from a valid ledger."""
    return decode_events(read_record(ledger, UUID(run_id)).entries)


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
        return events_of(self.ledger, self.run_id)


def train_case(
    folder: Path, policy: Policy, config: RunConfig = CONFIG, rules: RulesConfig | None = None
) -> Case:
    ledger, submission = folder / "ledger", folder / "submission"
    with LedgerApplication.open(ledger, REGISTRY) as log:
        blobs = BlobStore(LedgerPaths(ledger).blobs)
        run = train(config, policy, log=log, blobs=blobs, submission_dir=submission, rules=rules)
    return Case(str(run.id), ledger, submission)


Change = Callable[[Any], dict[str, Any] | None]  # fields to change; None leaves the event out


def rewrite(
    case: Case, change: Change, *, checked: bool = True, run_id: UUID | None = None
) -> Case:
    """Append another run that tells an honest run's story with changes, signed as all others.

    Through the aggregate where `checked`, and around it otherwise. A change that names an `event`
    puts one of that class in the old one's place. The files are handed in again as the new run's,
    with its configuration, unless the change says which.
    """
    events, run_id = case.events(), run_id or uuid4()
    submission = case.submission.with_name(str(run_id))
    run: Run | None = None
    started: dict[str, Any] = {}
    for event in events:
        skip = ("originator_id", "originator_version", "originator_topic", "timestamp")
        fields = {key: value for key, value in vars(event).items() if key not in skip}
        changed = change(event)
        if changed is None:
            continue
        kind = changed.pop("event", None)
        fields = {**fields, **changed} if kind is None else changed
        if isinstance(event, Run.Ended) and "deliverables" not in changed and event.deliverables:
            assert run is not None
            hashes = _hand_in_again(case, run, started, submission)
            fields["deliverables"] = {name: hashes[name] for name in event.deliverables}
        if run is None:
            started = fields
            run = Run._create(Run.Started, id=run_id, **fields)
        elif checked and isinstance(event, Run.RulesEvaluated):
            run.evaluate_rules()
        else:
            run.trigger_event(kind or type(event), **fields)
    assert run is not None
    with LedgerApplication.open(case.ledger, REGISTRY) as log:
        log.save(run)
    return Case(str(run_id), case.ledger, submission if submission.exists() else case.submission)


def _hand_in_again(
    case: Case, run: Run, started: dict[str, Any], submission: Path
) -> dict[str, str]:
    """Copy a submission for a run that tells another story; return the hashes of its files."""
    shutil.copytree(case.submission, submission)
    about = json.loads((submission / "run_config.json").read_text())
    weights = run.weights.get("best") or run.weights["last"]
    saved = {"kind": weights.kind, "epoch": weights.epoch, "sha256": weights.sha256}
    about |= {"run": str(run.id), "weights": {**about["weights"], **saved}}
    about["started_from"] |= {key: started[key] for key in ("config", "config_hash", "spec")}
    return hand_in(
        Case(str(run.id), case.ledger, submission), run_config__json=json.dumps(about).encode()
    )


def hand_in(case: Case, **files: bytes) -> dict[str, str]:
    """Replace files of the submission; return the hashes of all three."""
    for name, content in files.items():
        (case.submission / name.replace("__", ".")).write_bytes(content)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in case.submission.iterdir()
    }


def failed(report: AuditReport) -> str | None:
    """Return the name of the step that failed, having seen that nothing ran behind it."""
    found = [step.name for step in report.steps if step.status == "failed"]
    assert len(found) <= 1
    assert report.hard_fail is bool(found)
    if found:
        assert (report.scores.accuracy_score, report.scores.process_score) == (0.0, 0.0)
    return found[0] if found else None
