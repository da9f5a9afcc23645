"""The training of a task under watch: the record is made here, the training elsewhere.

Workers (monitor/task_worker.py) hold the task's code, each in a process of its own. This side hands
the data that one of them has made (task_data.py) to the one that trains, evaluates the rules on
what comes back and asks the policy. The same code trains a run for the first time and again.

Source: docs/reference/tasks.md.
Trust: answers of workers are hostile; the run's own checks refuse what no epoch can have.
I/O: appends to the log and the blob store that are passed in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.decisions import Decision, Settings
from aggregates.errors import AggregateError, RemedyRefused, SpecError, WeightsError
from aggregates.outcomes import Changes
from aggregates.playbook import FRESH, RESTORING
from aggregates.rules import PROFILES, RulesConfig
from aggregates.run import Run
from aggregates.spec import Spec, WatchedModel
from aggregates.weights import verify_canonical
from ledger.blobs import Blobs
from ledger.progress import advanced
from monitor.answering import Policy, answer_rules
from monitor.computing import computing_as
from monitor.config import TaskConfig, initial_settings
from monitor.environment import describe_environment
from monitor.errors import TaskError
from monitor.loop import OnEpoch, verify_step
from monitor.session import Log, Session
from monitor.submission import write_submission
from monitor.task_data import OpenWorker, TaskData
from monitor.task_worker import TRAIN, Worker
from monitor.trained import outcome_of
from monitor.watched_model import waived_without


@dataclass
class _TaskState:
    """What a decision can change: settings and specification here, the rest in the worker."""

    config: TaskConfig
    worker: Worker
    settings: Settings
    spec: Spec
    train_examples: int
    # SHA-256 of the states that can be gone back to, by epoch: the worker alone holds states.
    kept: dict[int, Any]

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out; raises RemedyRefused if that cannot be."""
        outcome = outcome_of(decision, self, epoch=epoch)
        answer, _ = self.worker.ask("execute", {"decision": decision.to_dict(), "epoch": epoch})
        refused = answer.get("refused")
        if refused is not None:
            raise RemedyRefused(str(refused)[:500])
        if decision.back not in (None, epoch) and answer.get("state") != self.kept[decision.back]:
            fresh = decision.back == FRESH
            which = "starting state" if fresh else f"state after epoch {decision.back}"
            raise TaskError(
                f"the {which} was not put back as it was kept: the model changes its "
                "parameters or buffers in other ways than by training; add goes_back=false"
            )
        self.settings, self.spec = outcome.settings, outcome.spec
        return outcome.changes

    def keep(self, epoch: int) -> None:
        """Have the state after an epoch kept, before its decisions, in the place of another."""
        answer, _ = self.worker.ask("keep", {"epoch": epoch})
        self.kept = {FRESH: self.kept[FRESH], epoch: answer.get("state")}


def _save_weights(session: Session, kind: str, state: _TaskState) -> None:
    _, data = state.worker.ask("weights", {})
    if not isinstance(data, bytes):
        raise TaskError("the task's weights cannot be saved: they are too large")
    try:
        verify_canonical(data)
    except WeightsError as error:
        raise TaskError(f"the task's weights cannot be saved: {error}") from error
    session.save_weights(kind, data, spec=state.spec, probe={})


def task_metrics(
    config: TaskConfig, source: bytes, *, data: TaskData, open_worker: OpenWorker
) -> list[str]:
    """Return the names of a task's metrics, from a model that is not trained."""
    with (
        computing_as(config),
        open_worker(source, config, keep=TRAIN, stored=data.stored) as worker,
    ):
        worker.ask("start", {}, data.blob)
        answer, _ = worker.ask("metrics", {})
    return sorted(map(str, answer.get("metrics", ())))


def train_task(
    config: TaskConfig,
    source: bytes,
    policy: Policy,
    *,
    data: TaskData,
    open_worker: OpenWorker,
    log: Log,
    blobs: Blobs,
    rules: RulesConfig | None = None,
    checkpoint: str | None = None,
    run_id: UUID | None = None,
    submission_dir: Path | None = None,
    until_epoch: int | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a task under watch and return its closed run; up to `until_epoch`, where one is given.

    Raises MonitorError or, from the log, LedgerError; a run that was opened has then been closed as
    failed, and as interrupted if the reason was no error of ours (Ctrl-C).
    """
    verify_step(config, data.sizes["train"])
    with (
        computing_as(config),
        open_worker(source, config, keep=TRAIN, stored=data.stored) as worker,
    ):
        answer, _ = worker.ask("start", {}, data.blob)
        spec = _spec(answer, config)
        rules = rules or PROFILES[config.profile]
        waived = tuple(dict.fromkeys((*waived_without(spec, rules), *config.waived)))
        config = replace(config, waived=waived)
        blobs.put(source)
        run = Run.start(
            config=config.to_dict(),
            rules=rules.to_dict(),
            spec=spec.to_dict(),
            data={
                "dataset": config.name,
                "classes": [],
                "sizes": dict(data.sizes),
                "fingerprints": dict(data.fingerprints),
                **({"files": dict(data.files)} if data.files else {}),
            },
            environment=describe_environment(config),
            policy={"name": policy.name, **policy.describe()},
            checkpoint=checkpoint,
            run_id=run_id,
        )
        # Recorded as they were given: a whole number stays one.
        settings = replace(initial_settings(config), lr=config.lr, clip_norm=config.clip_norm)
        start = {FRESH: answer.get("state")}
        state = _TaskState(config, worker, settings, spec, data.sizes["train"], start)
        session = Session(run, log=log, blobs=blobs)
        last = config.epochs - 1 if until_epoch is None else until_epoch
        with session.closing():
            reason = _train_epochs(session, state, policy, last=last, on_epoch=on_epoch)
            handed_in = write_submission(submission_dir, run, blobs, config, task=source)
            session.record(run.end, reason, deliverables=handed_in)
        return run


def _train_epochs(
    session: Session,
    state: _TaskState,
    policy: Policy,
    *,
    last: int,
    on_epoch: OnEpoch | None,
) -> str:
    best, reason = math.nan, "completed"
    for epoch in range(last + 1):
        answer, _ = state.worker.ask("epoch", {"epoch": epoch})
        try:
            measured = {**answer["measured"], "settings": state.settings.to_dict()}
            value = float(measured["validation"]["metrics"][state.config.metric])
            session.record_epoch(measured, {"seconds": float(answer["seconds"])})
        except (AggregateError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise TaskError(f"epoch {epoch} was measured wrongly: {error}") from error
        if is_better(value, best, state.config.better):  # before any remedy
            best = value
            _save_weights(session, "best", state)
        if state.config.goes_back and not session.run.damage(epoch):
            state.keep(epoch)
        reason = answer_rules(session, state, policy)
        advanced("training", epoch + 1, last + 1)
        if on_epoch is not None:
            on_epoch(session.run, measured)
        if reason != "completed":
            break
    _save_weights(session, "last", state)
    return reason


def is_better(value: float, best: float, better: str) -> bool:
    """Return whether a metric is better than the best so far; NaN is not, and is no best."""
    if math.isnan(value):
        return False
    return math.isnan(best) or (value > best if better == "higher" else value < best)


def _spec(answer: Mapping[str, Any], config: TaskConfig) -> WatchedModel:
    """Return the model that a worker describes; whether it goes back, a task does not say."""
    try:
        spec = WatchedModel.from_dict(answer["spec"])
    except (AttributeError, KeyError, SpecError) as error:
        raise TaskError(f"the model cannot be described: {error}") from error
    if {*RESTORING} & {*spec.offers} != {*config.restoring}:
        raise TaskError("the model is described with other remedies than its configuration has")
    return spec
