"""Replays a run's stream from verified entries; steps 5 and 6 depend on it.

Each event is repeated through the aggregate's own command, which checks the order, and must give
the recorded event. The rules are evaluated again from the measured values; settings and
specification are derived from the start through every remedy.

Trust: bodies are hostile, whoever signed them, until replay_run() returns.
I/O: none.  Units: epochs from 0.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from aggregates.decisions import Decision, Observation, Settings
from aggregates.errors import AggregateError, RemedyRefused, SpecError
from aggregates.outcomes import Outcome, derive_outcome
from aggregates.rules import VERSIONS, RulesConfig, version_of
from aggregates.run import OWN_ENDS, REPEATABLE, REPORTED, Run
from aggregates.spec import ModelSpec, Spec, WatchedModel, apply_edit, spec_of
from judge.auditing.events import HOSTILE, StreamEvents, recorded_fields
from judge.auditing.measurements import (
    has_probes,
    verify_measured,
    verify_task_measured,
    verify_watched,
)
from judge.auditing.report import capped
from judge.compare import Difference, differences
from judge.config import JudgeConfig
from judge.errors import StepError
from ledger.verification.verified_entries import VerifiedEntry
from monitor.config import AnyConfig, RunConfig, TaskConfig, WatchConfig, config_of
from monitor.dispatch import PORTABLE, PORTABLE_VARIABLES
from monitor.errors import MonitorError
from monitor.task_loop import is_better

_WRONGLY_REFUSED = "decision {} is recorded as refused, but it could have been applied"


@dataclass(frozen=True)
class SavedWeights:
    """Weights that the run has saved, with the specification that the replay has reached there."""

    kind: str
    epoch: int
    sha256: str
    size: int  # bytes
    spec: Spec
    probe: Mapping[str, Any]
    measured: Mapping[str, Any]  # of the epoch

    @property
    def model_spec(self) -> ModelSpec:
        """The specification of a model of ours."""
        assert isinstance(self.spec, ModelSpec), "a task's model is its own"
        return self.spec


@dataclass
class Replay:
    """A rebuilt run, with the problems found while rebuilding it.

    Of a measured part, which is most of what a run records, it keeps what later steps read.
    """

    run: Run
    started: Any  # the first event
    config: AnyConfig
    settings: Settings  # in force after the last event
    spec: Spec  # by the edits that were decided on
    epochs: int = 0  # that were measured
    newest: Mapping[str, Any] = field(default_factory=dict)  # the measured part of the latest
    dead: list[Mapping[str, int]] = field(default_factory=list)  # units by activation, by epoch
    lengths: list[float] = field(default_factory=list)  # of the gradient, by epoch
    without_probes: int | None = None  # the first epoch that has no noise probes
    in_force: list[tuple[Settings, Spec]] = field(default_factory=list)  # by epoch
    settings_at: list[Settings] = field(default_factory=list)  # in force at each decision
    weights: dict[str, SavedWeights] = field(default_factory=dict)  # the newest of each kind
    best_loss: float = math.inf  # of the validation, so far; of a task, the best metric
    best_due: bool = False  # whether the epoch's weights are the best and not saved yet
    superseded: list[tuple[int, int]] = field(default_factory=list)  # see _check_refused()
    deliverables: Mapping[str, str] = field(default_factory=dict)
    spec_problems: list[str] = field(default_factory=list)
    settings_problems: list[str] = field(default_factory=list)

    @property
    def run_config(self) -> RunConfig:
        """The configuration of a run that can be repeated."""
        assert isinstance(self.config, RunConfig), "a watched run has no other steps"
        return self.config

    @property
    def task_config(self) -> TaskConfig:
        """The configuration of a task's run."""
        assert isinstance(self.config, TaskConfig), "the caller has looked"
        return self.config

    @property
    def is_task(self) -> bool:
        """Whether model and data are those of a task (monitor/tasks.py)."""
        return isinstance(self.config, TaskConfig)

    @property
    def watched(self) -> bool:
        """Whether the run was watched in a loop of its owner, so that nobody can repeat it."""
        return self.run.level != REPEATABLE

    @property
    def rules(self) -> dict[str, Any]:
        """The version of the profile that the run recorded and is judged by, and the newest."""
        profile = self.config.profile
        version, newest = version_of(self.run.rules), len(VERSIONS[profile])
        return {"profile": profile, "version": version, "newest": newest}

    @property
    def submitted(self) -> SavedWeights | None:
        """The weights that a submission must hold: the best, or else the last."""
        return self.weights.get("best") or self.weights.get("last")

    def observation(self, epoch: int) -> Observation:
        """Return what the policy was asked after an epoch, as the record gives it."""
        run = self.run
        settings, spec = self.in_force[epoch]
        return Observation(
            run_id=str(run.id),
            epoch=epoch,
            due=tuple(rule for rule in run.fired(epoch) if rule not in run.waived),
            evaluations=dict(run.evaluations[epoch]),
            settings=settings,
            max_batch_size=self.config.max_batch_size,
            train_examples=self.started.data["sizes"]["train"],
            spec=spec,
            history=tuple(run.history[: epoch + 1]),
            decisions=tuple(past for past in run.decisions if past.epoch < epoch),
            waived=run.waived,
            rules=run.rules,
            edits=self.config.edits,
        )


def replay_run(entries: Sequence[VerifiedEntry], *, config: JudgeConfig) -> Replay:
    """Replay a run's entries in order; raises StepError at the first invalid one.

    What speaks against the specification alone is collected, for step 6.
    """
    events = iter(StreamEvents(entries))
    started = next(events, None)
    if type(started) is not Run.Started:
        raise StepError("the stream does not start with run.started")
    with _explained(entries[0]):
        replay = _start(started, config)
    before = entries[0].time_ns
    for entry, event in zip(entries[1:], events, strict=True):
        with _explained(entry):
            if config.checks("order"):
                if entry.time_ns < before:
                    raise StepError(
                        f"entry {entry.index} has an earlier time than the entry before it"
                    )
                _repeat(replay.run, event, config)
            else:
                event.mutate(replay.run)
            _follow(replay, event)
            if config.checks("measurements"):
                _check_saves(replay, event)
        before = entry.time_ns
    if config.checks("order") and replay.run.end_reason is None:
        raise StepError("the run has not ended: it has no run.ended event. Judge it later")
    for number, epoch in replay.superseded:
        if not any(
            past.epoch == epoch and past.number > number and past.decision.edit is not None
            for past in replay.run.decisions
        ):
            replay.settings_problems.append(_WRONGLY_REFUSED.format(number))
    if replay.watched and config.checks("architecture") and replay.spec_problems:
        raise StepError(
            f"the model does not follow from the decisions: {replay.spec_problems[0]}",
            problems=capped(replay.spec_problems),
        )
    if config.checks("settings") and replay.settings_problems:
        raise StepError(
            f"the settings do not follow from the decisions: {replay.settings_problems[0]}",
            problems=capped(replay.settings_problems),
        )
    return replay


@contextmanager
def _explained(entry: VerifiedEntry) -> Iterator[None]:
    """Turn what hostile bodies make the aggregate raise into a failed step."""
    try:
        yield
    except (AggregateError, MonitorError, *HOSTILE) as error:
        raise StepError(
            f"entry {entry.index} ({entry.name}) does not replay: {type(error).__name__}: {error}",
            index=entry.index,
        ) from error


def _start(started: Any, config: JudgeConfig) -> Replay:
    run = started.mutate(None)
    run_config = config_of(started.config)
    if not all(isinstance(part, dict) for part in (started.data, started.environment)):
        raise StepError("run.started has no `data` or no `environment`")
    spec = spec_of(started.spec)
    _check_level(started, run.level, spec)
    if config.checks("rules_profile"):
        _check_hashes(started, run_config)
    return Replay(
        run=run,
        started=started,
        config=run_config,
        settings=initial_settings(run_config),
        spec=spec,
    )


def _check_level(started: Any, level: str, spec: Spec) -> None:
    """Raise StepError unless the start is one of a run of this level of evidence."""
    if level == REPEATABLE and "task" in started.config:
        if not isinstance(spec, WatchedModel):
            raise StepError("a task's run cannot start from a model of ours")
        if started.parent_run is not None or started.campaign is not None:
            raise StepError("a task's run belongs to no campaign and restarts no run")
        return
    if level == REPEATABLE:
        if not isinstance(spec, ModelSpec):
            raise StepError("a repeatable run cannot start from a watched model")
        return
    if not isinstance(spec, WatchedModel):
        raise StepError(f"a run of the level {level} must start from a watched model")
    if started.parent_run is not None or started.campaign is not None:
        raise StepError(f"a run of the level {level} belongs to no campaign and restarts no run")
    rates = {"decrease_lr", "increase_lr", "warm_up_lr", "cycle_lr"} & {*spec.offers}
    if level == REPORTED and (spec.parameters or spec.activations or rates):
        raise StepError("run.started describes a model, but none was watched")
    if level != REPORTED and not spec.parameters:
        raise StepError("run.started describes a watched model that has no parameters")
    if "swap_activation" in spec.offers and not spec.activations:
        raise StepError("run.started offers swap_activation, but names no activation")


def _check_hashes(started: Any, config: AnyConfig) -> None:
    if different := next(differences(started.config, config.to_dict()), None):
        raise StepError(f"the recorded configuration is incomplete or differs at {different.place}")
    if started.config_hash != config.hash:
        raise StepError(
            "the configuration does not match its recorded hash",
            recorded=started.config_hash,
            found=config.hash,
        )
    if contradicted := _contradicted(started.environment, config):
        raise StepError(
            "the environment contradicts the configuration: no run with this configuration can "
            f"have the recorded {contradicted}"
        )
    rules = RulesConfig(**started.rules)
    if version_of(rules) is None or config.profile != rules.profile:
        raise StepError(
            f"the rules are not those of the profile {config.profile!r}: a run cannot set its own "
            "thresholds"
        )
    if different := next(differences(started.rules, rules.to_dict()), None):
        raise StepError(f"the recorded rules differ from the profile at {different.place}")
    if started.rules_hash != rules.hash:
        raise StepError(
            "the rules do not match their recorded hash",
            recorded=started.rules_hash,
            found=rules.hash,
        )


def _contradicted(environment: Mapping[str, Any], config: AnyConfig) -> str | None:
    """Return what of a recorded environment the configuration rules out on every machine.

    Without this, it would be one more way to be of another kind of machine than the judge's.
    """
    if isinstance(config, WatchConfig):  # nobody trains a watched run again
        return None
    wanted: dict[str, Any] = {"numerics": config.numerics, "threads": config.threads}
    if config.device == "cpu":
        wanted["device"] = "cpu"
    if config.numerics == PORTABLE:  # the monitor trains with no others
        wanted["variables"] = dict(PORTABLE_VARIABLES)
    wrong = (key for key, value in wanted.items() if environment.get(key, value) != value)
    missing = (key for key in wanted if key not in environment)
    # Versions without portable numerics recorded less.
    return next(wrong, None) or (next(missing, None) if config.numerics == PORTABLE else None)


def initial_settings(config: AnyConfig) -> Settings:
    """Return the hyperparameters that a run of this configuration begins with."""
    epochs = config.warm_up_epochs if isinstance(config, RunConfig) else 0
    warm_up = {"kind": "warm_up", "epochs": epochs, "since": 0}
    return Settings(
        lr=float(config.lr),
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        clip_norm=None if config.clip_norm is None else float(config.clip_norm),
        schedule=warm_up if epochs else {"kind": "constant"},
    )


def _repeat(run: Run, event: Any, config: JudgeConfig) -> None:
    """Do what the event tells, once more, and compare; raises StepError or an aggregate's error."""
    match event:
        case Run.Provoked():
            run.provoke()
        case Run.EpochMeasured():
            run.measure_epoch(event.measured, event.reported)
        case Run.RulesEvaluated():
            run.evaluate_rules()
        case Run.DecisionMade():
            run.decide(_decision(event), source=event.source)
        case Run.RemedyApplied():
            spec = spec_of(event.spec)
            run.apply_remedy(event.changes, settings=event.settings, spec=spec)
        case Run.RemedyRefused():
            run.refuse_remedy(event.reason)
        case Run.RestartScheduled():
            run.schedule_restart(spec_of(event.spec))
        case Run.WeightsSaved():
            run.save_weights(
                event.kind,
                sha256=event.sha256,
                size=event.size,
                spec=spec_of(event.spec),
                probe=event.probe,
            )
        case Run.Ended():
            run.end(event.reason, detail=event.detail, deliverables=event.deliverables)
        case _:
            raise StepError(f"event {type(event).__qualname__} does not belong in a run")
    (again,) = run.collect_events()
    found = list(differences(recorded_fields(event), recorded_fields(again)))
    if isinstance(event, Run.RulesEvaluated):
        _check_rules(run, event, found, config)
    elif found:
        raise StepError(
            f"{found[0].place} is {found[0].recorded!r}, expected {found[0].found!r}",
            differences=capped([difference.to_dict() for difference in found]),
        )


def _check_rules(run: Run, event: Any, found: list[Difference], config: JudgeConfig) -> None:
    if not found:
        return
    if config.checks("rules_recomputed"):
        raise StepError(
            f"the rules of epoch {event.epoch}, evaluated again from the measured values, differ "
            f"from the record: {found[0].place} is {found[0].recorded!r}, expected "
            f"{found[0].found!r}",
            epoch=event.epoch,
            differences=capped([difference.to_dict() for difference in found]),
        )
    event.apply(run)  # go on with what is recorded


def _decision(event: Any) -> Decision:
    return Decision(
        event_type=event.event_type,
        cites=tuple(event.cites),
        direction=event.direction,
        params=event.params,
        justification=event.justification,
    )


def _follow(replay: Replay, event: Any) -> None:
    """Keep what later steps compare with: measurements, settings, specification, weights."""
    match event:
        case Run.EpochMeasured():
            kinds = (float, type(None)) if replay.is_task else (float,)
            _check_measured(event.measured, (type(None),) if replay.watched else kinds)
            replay.epochs += 1
            replay.newest = event.measured
            replay.dead.append(
                {intern(each["name"]): each["dead_units"] for each in event.measured["activations"]}
            )
            replay.lengths.append(_length(event.measured))
            replay.in_force.append((replay.settings, replay.spec))
            recorded = event.measured["settings"]
            for difference in differences(replay.settings.to_dict(), recorded):
                replay.settings_problems.append(
                    f"epoch {event.epoch} was trained with {difference.place} "
                    f"{difference.found!r}, but {difference.recorded!r} was in force"
                )
        case Run.DecisionMade():
            replay.settings_at.append(replay.settings)
        case Run.RemedyApplied():
            _follow_remedy(replay, event)
        case Run.RemedyRefused():
            _check_refused(replay, event)
        case Run.RestartScheduled():
            decision = replay.run.decisions[event.decision - 1].decision
            if decision.edit is None or replay.config.edits != "restart":
                replay.spec_problems.append(
                    f"decision {event.decision} is recorded as a restart, but does not ask for one"
                )
            _follow_spec(replay, decision, event)  # for the following run: this model stays
        case Run.WeightsSaved():
            spec = replay.spec
            if replay.watched:
                raise StepError("a watched loop saves no weights in the ledger")
            if spec_of(event.spec) != spec:
                replay.spec_problems.append(
                    f"the {event.kind} weights of epoch {event.epoch} are recorded for a "
                    "different model than the edits produce"
                )
            replay.weights[event.kind] = SavedWeights(
                event.kind,
                event.epoch,
                event.sha256,
                event.size,
                spec,
                event.probe,
                replay.newest,
            )
        case Run.Ended():
            replay.deliverables = event.deliverables


def _length(measured: Mapping[str, Any]) -> float:
    """Return about how long the epoch's gradient was, infinite where that is not known."""
    norms = [layer["grad_norm"] for layer in measured["layers"]]
    length = math.hypot(*norms) if norms else math.inf
    return length if math.isfinite(length) else math.inf


def _check_measured(measured: Mapping[str, Any], kinds: Sequence[type]) -> None:
    """Raise where what later steps read, and no rule does, is missing or of the wrong kind."""
    accuracy = measured["validation"]["accuracy"]
    names = [layer["name"] for layer in measured["layers"]]
    if type(accuracy) not in kinds or any(type(name) is not str for name in names):
        raise ValueError("validation accuracy must be a float, and each layer must have a name")


def _check_saves(replay: Replay, event: Any) -> None:
    """Raise StepError if weights, measurements and the end of the run are inconsistent.

    Each new minimum of the validation loss is saved as `best` before anything is decided, and
    `last` closes the last epoch; both as the loop does it.
    """
    if replay.watched:
        _check_watched(replay, event)
        return
    config, run = replay.config, replay.run
    assert config.epochs is not None, "only a watched loop may leave it open"
    own_end = isinstance(event, Run.Ended) and event.reason in OWN_ENDS
    if replay.best_due and (own_end or isinstance(event, Run.EpochMeasured | Run.DecisionMade)):
        raise StepError(
            f"the epoch with the best validation {_measure(replay)} so far has no weights saved as "
            "best"
        )
    match event:
        case Run.EpochMeasured():
            if event.epoch >= config.epochs:
                raise StepError(
                    f"epoch {event.epoch} was measured, but only {config.epochs} epochs are "
                    "configured"
                )
            if "last" in replay.weights:
                raise StepError(
                    f"epoch {event.epoch} was measured after the last weights were saved"
                )
            _check_epoch(replay, event)
        case Run.WeightsSaved() if event.kind == "best":
            if not replay.best_due:
                raise StepError(
                    f"weights of epoch {event.epoch} are saved as best, but its validation "
                    f"{_measure(replay)} is not a new "
                    f"{'best' if replay.is_task else 'minimum'}"
                )
            replay.best_due = False
        case Run.Ended() if own_end:
            last = replay.weights.get("last")
            if last is None or last.epoch != run.epoch:
                raise StepError("the run ended, but its last weights were not saved")
            if event.reason == "completed" and run.epoch + 1 != config.epochs:
                raise StepError(
                    f"the run ended as completed after {run.epoch + 1} of {config.epochs} epochs"
                )


def _measure(replay: Replay) -> str:
    """Return by what the best weights of a run are chosen."""
    return replay.task_config.metric if replay.is_task else "loss"


def _check_epoch(replay: Replay, event: Any) -> None:
    """Raise StepError if an epoch is impossible; note whether its weights are the best so far."""
    measured, sizes = event.measured, replay.started.data["sizes"]
    try:
        if replay.is_task:
            verify_task_measured(measured, settings=replay.settings, sizes=sizes)
        else:
            spec = replay.spec
            assert isinstance(spec, ModelSpec), "another kind of run has another configuration"
            verify_measured(measured, spec=spec, settings=replay.settings, sizes=sizes)
    except StepError as error:
        raise StepError(f"epoch {event.epoch}: {error}", **error.evidence) from error
    if replay.without_probes is None and not has_probes(measured):
        replay.without_probes = event.epoch
    if replay.is_task:
        config = replay.task_config
        value = float(measured["validation"]["metrics"][config.metric])
        best = math.nan if event.epoch == 0 else replay.best_loss
        replay.best_due = is_better(value, best, config.better)
        replay.best_loss = value if replay.best_due else best
        return
    loss = measured["validation"]["loss"]
    replay.best_due = loss < replay.best_loss  # false for NaN
    replay.best_loss = min(replay.best_loss, loss) if replay.best_due else replay.best_loss


def _check_watched(replay: Replay, event: Any) -> None:
    """Raise StepError if an epoch of a watched loop is impossible; its weights are its own."""
    if not isinstance(event, Run.EpochMeasured):
        return
    planned = replay.config.epochs
    if planned is not None and event.epoch >= planned:
        raise StepError(f"epoch {event.epoch} was measured, but only {planned} epochs are planned")
    try:
        verify_watched(event.measured, event.reported, level=replay.run.level)
    except StepError as error:
        raise StepError(f"epoch {event.epoch}: {error}", **error.evidence) from error


def _follow_remedy(replay: Replay, event: Any) -> None:
    """Record a problem where the applied change is not exactly what the decision leads to."""
    decision = replay.run.decisions[event.decision - 1].decision
    found = []
    if decision.edit is not None and replay.config.edits == "restart":
        found.append(
            f"decision {event.decision} is recorded as applied, but should have restarted the run"
        )
    try:
        expected = _derive(replay, decision, event.epoch)
    except RemedyRefused as error:
        found.append(f"decision {event.decision} is recorded as applied: {error}")
    else:
        parts = {"settings": expected.settings.to_dict(), "changes": expected.changes}
        recorded = {"settings": event.settings, "changes": event.changes}
        found += [
            f"decision {event.decision} leads to {difference.place} {difference.recorded!r}, but "
            f"{difference.found!r} is recorded as applied"
            for difference in differences(parts, recorded)
        ]
    replay.settings_problems += found
    replay.settings = _read_settings(event.settings)
    replay.spec = _follow_spec(replay, decision, event)


def _check_refused(replay: Replay, event: Any) -> None:
    """Record a problem for a refusal that has no valid reason.

    Weights that are not finite show in what was measured. Where edits restart the run, one that is
    superseded by another is refused, which the decisions that follow have to show.
    """
    decision = replay.run.decisions[event.decision - 1].decision
    if replay.run.falsely_cited(decision):  # which step 8 finds
        return
    try:
        _derive(replay, decision, event.epoch)
    except RemedyRefused:
        return
    if decision.edit is not None and replay.config.edits == "restart":
        replay.superseded.append((event.decision, event.epoch))
        return
    if replay.watched and decision.direction in ("decrease_batch_size", "increase_batch_size"):
        return  # only the loop's owner can change it
    seen = replay.run.history[-1]
    sound = seen.gradients_finite and math.isfinite(seen.val_loss)
    if replay.watched:  # whose loop may report any loss: the weights show in their own change
        changes = [layer["epoch_update_ratio"] for layer in replay.newest["layers"]]
        sound = sound and all(math.isfinite(each) for each in changes if each is not None)
    if sound or decision.direction == "stop" or decision.params.get("reinitialise", False):
        replay.settings_problems.append(_WRONGLY_REFUSED.format(event.decision))


def _derive(replay: Replay, decision: Decision, epoch: int) -> Outcome:
    return derive_outcome(
        decision,
        settings=replay.settings,
        spec=replay.spec,
        epoch=epoch,
        max_batch_size=replay.config.max_batch_size,
        train_examples=replay.started.data["sizes"]["train"],
    )


def _follow_spec(replay: Replay, decision: Decision, event: Any) -> Spec:
    """Return the specification that the decision leads to, noting where another is recorded."""
    expected = replay.spec
    if decision.edit is not None:
        try:
            expected = apply_edit(replay.spec, decision.edit)
        except SpecError as error:
            replay.spec_problems.append(f"the edit of epoch {event.epoch} is impossible: {error}")
    if spec_of(event.spec) != expected:
        replay.spec_problems.append(
            f"after epoch {event.epoch} the recorded specification is not the one that "
            f"{decision.direction} leads to"
        )
    return expected


def _read_settings(value: Mapping[str, Any]) -> Settings:
    settings = Settings(**value)
    for name, kind in (("lr", float), ("batch_size", int), ("accumulation", int)):
        number = getattr(settings, name)
        if type(number) is not kind or not math.isfinite(number) or number <= 0:
            raise ValueError(f"{name} must be a positive {kind.__name__}, not {number!r}")
    if settings.clip_norm is not None and type(settings.clip_norm) is not float:
        raise ValueError(f"clip_norm must be a float or none, not {settings.clip_norm!r}")
    return settings
