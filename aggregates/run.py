"""The run: one monitored training, from its start to its end.

Every epoch is measured, evaluated, decided, executed and saved, in that order. Commands check that
order and raise InvariantError; events hold plain values only (see docs/reference/events.md).
The rules are evaluated here, from what was measured, and nowhere else.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, field, fields
from itertools import takewhile
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.decisions import Decision, PastDecision, parse_decision
from aggregates.errors import InvariantError
from aggregates.events import (
    Event,
    First,
    KeptAs,
    Long,
    OneOf,
    begins,
    counted,
    records,
    verify_open,
)
from aggregates.firing import RuleMemory
from aggregates.playbook import FRESH, GO_BACK, NO_ACTION, TRY_RATES, UNDONE, restarted
from aggregates.provocations import fault_of
from aggregates.rulebook import PRECEDENCE, fired_in_precedence, known_rules
from aggregates.rules import AppliedRemedy, RuleEvaluation, RulesConfig
from aggregates.signals import UNSAID, EpochSignals, signals_of
from aggregates.spec import Spec, WatchedModel, spec_of
from aggregates.trials import Step, Trials

SOURCES = ("driver", "human", "policy")
EndReason = Literal["completed", "crashed", "failed", "interrupted", "restart", "stopped"]
END_REASONS = get_args(EndReason)
OWN_ENDS = ("completed", "restart", "stopped")  # which a training comes to by itself
WEIGHTS_KINDS = ("best", "last")
CARD = "README.md"  # the model card beside the files of a model that is handed over
# What a run is evidence of. repeatable: everything that it was made from is on record, so that a
# judge can train it again. measured: hooks saw the live model in a loop of its owner. reported: the
# loop says so. A run records its level in its configuration; without one it is repeatable.
REPEATABLE, MEASURED, REPORTED = LEVELS = ("repeatable", "measured", "reported")


def verify_source(source: str, decision: Decision) -> None:
    """Raise InvariantError unless a decision can have come from this source."""
    if source not in SOURCES:
        raise InvariantError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
    if source == "driver" and decision.acts:
        raise InvariantError("the driver may only answer with no action")


class Run(Aggregate):
    """One training, rebuilt from its events."""

    class Started(First):
        """The start of a run: everything that goes into it before its first step.

        The view `runs` is easier to query.
        """

        _: KW_ONLY
        # the whole configuration
        config: dict[str, Any]
        # SHA-256 of `config` as canonical JSON (sorted keys, no spaces)
        config_hash: str = counted()
        # the rules' configuration: profile, signals, thresholds, windows; `names`, if not R1 to R7
        rules: dict[str, Any]
        rules_hash: str = counted()  # SHA-256 of `rules`, likewise
        spec: dict[str, Any]  # the initial model specification
        data: dict[str, Any]  # dataset, sizes and SHA-256 fingerprints of the splits
        # versions, machine, thread count, SHA-256 of the files that decide a run: code, prompts and
        # numbers
        environment: dict[str, Any]
        policy: dict[str, Any]  # the policy's name and its own numbers
        parent_run: str | None = None  # the run that scheduled this one as its restart, or null
        campaign: str | None = None  # the campaign of which it is an attempt, or null
        checkpoint: str | None = None  # the label: the checkpoint whose code it ran, or null
        run_id: InitVar[UUID | None] = None

        def check(self) -> dict[str, Any]:
            return {"config_hash": digest(self.config), "rules_hash": digest(self.rules)}

        def apply(self, run: "Run") -> None:
            run.rules = known_rules(self.rules)
            run.memory = RuleMemory(run.rules)
            run.initial_spec = run.spec = spec_of(self.spec)

    class Provoked(Event):
        """A fault that was put into a run on purpose.

        It is recorded before the first epoch if, and only if, `config` names one. The view
        `provocation_outcomes` shows its effect.
        """

        name: Annotated[str, KeptAs("provocation")] = counted()  # name in the catalogue
        seed: Long = counted()  # what its severity and its place are drawn from
        changes: dict[str, Any] = counted()  # what it did to settings, weights, biases or loss
        expects: list[str] = counted()  # rules that it should make fire

        def check(self, run: "Run") -> dict[str, Any]:
            """Return the fault that the configuration names; raises ProvocationError, too."""
            if run.provocation is not None or run.history:
                raise InvariantError("a run can be provoked only once, before its first epoch")
            fault = fault_of(run.config)
            if fault is None:
                raise InvariantError("the configuration names no provocation")
            return fault.to_dict()

    class Forked(Event):
        """A run that goes on from a recorded epoch of another run.

        Its stream repeats what the parent recorded up to the state after that epoch; the decisions
        on that epoch are its own.
        """

        parent: str  # the run that it goes on from
        epoch: Annotated[int, KeptAs("forked_at")]  # the last epoch that both share
        digest: str  # SHA-256 of what both recorded up to then
        # SHA-256 of the training state after that epoch, which is a blob; empty where a watched
        # loop was resumed from a checkpoint of its own, which the decisions on that epoch precede
        state: Annotated[str, KeptAs("forked_state")]
        # other orders of the examples, each with `after` (an epoch) and `seed` (0: the run's own
        # order); those of the parent come first
        orders: list[dict[str, Any]]

        def check(self, run: "Run") -> None:
            if run.forked_at is not None or run.history:
                raise InvariantError("a run can be forked only once, before its first epoch")

    class EpochMeasured(Event):
        """What was measured in an epoch and, apart from it, what the loop reports of itself."""

        epoch: int  # counted by the run itself
        measured: dict[str, Any]  # what the hooks measured; no caller can write here
        # what the training loop reports about itself; no rule reads it, except in watched runs
        reported: dict[str, Any]

        def apply(self, run: "Run") -> None:
            """Add the epoch to the history that the rules read."""
            fresh, run.fresh = run.fresh, None
            if fresh is None or fresh[0] is not self.measured:
                fresh = self.measured, run.signals(self.epoch, self.measured, self.reported)
            run.history.append(fresh[1])
            if (step := run.step()) is not None:
                run.settings = {**run.settings, "lr": step.lr}

    class RulesEvaluated(Event):
        """The result of each rule in an epoch."""

        epoch: int  # the epoch just measured
        # by rule: `rule`, `fired`, `side`, `value`, `ema`, `streak`
        evaluations: dict[str, Any]

        def apply(self, run: "Run") -> None:
            found = {rule: RuleEvaluation(**value) for rule, value in self.evaluations.items()}
            run.evaluations[self.epoch] = found
            fired = tuple(rule for rule in PRECEDENCE if rule in found and found[rule].fired)
            run.fired_rules.append(fired)

    class DecisionMade(Event):
        """The decision as its author sent it.

        What the harness did about it is another event.
        """

        number: int  # from 1 in each run
        epoch: int  # the epoch whose evaluation is answered
        source: str  # driver, human or policy
        # `hyperparameter_change`, `architecture_change` or `rule_triggered_no_action`
        event_type: str
        cites: list[str]  # the rules that it answers
        direction: str  # the remedy, or `defer`
        params: dict[str, Any]  # the direction's parameters
        justification: str  # the author's reason

        def apply(self, run: "Run") -> None:
            """Keep the decision, still without an outcome."""
            parsed, run.parsed = run.parsed, None
            if parsed is None or parsed[0] is not self.cites:
                told = {each.name: getattr(self, each.name) for each in fields(Decision)}
                parsed = self.cites, parse_decision(told)
            run.decisions.append(
                PastDecision(self.number, self.epoch, self.source, parsed[1], None)
            )

    class RemedyApplied(Event):
        """What the harness changed because of a decision."""

        decision: int = counted("unsettled")
        epoch: int = counted("epoch")  # the epoch behind which it took effect
        changes: list[dict[str, Any]]  # each changed value, before and after
        settings: dict[str, Any]  # the hyperparameters from here on
        spec: dict[str, Any]  # the model specification from here on

        def apply(self, run: "Run") -> None:
            """Settle the decision; its rules start afresh."""
            done = run.settle(self.decision, "applied")
            afresh = restarted(done.decision.direction, done.decision.cites)
            rates = done.decision.rates
            run.remedies.extend(AppliedRemedy(self.epoch, rule, len(rates)) for rule in afresh)
            if done.decision.back is not None and rates:
                run.trials.append(Trials(done.number, self.epoch, done.decision.back, rates))
            run.spec = spec_of(self.spec)
            run.settings = dict(self.settings)

    class RemedyRefused(Event):
        """The harness could not do what a decision asked for."""

        decision: int = counted("unsettled")
        epoch: int = counted("epoch")  # the epoch of the refusal
        reason: str  # why the remedy cannot be applied

        def apply(self, run: "Run") -> None:
            run.settle(self.decision, "refused")

    class RestartScheduled(Event):
        """A structural decision ends the run, and a new run starts from the edit.

        This is so with `edits = "restart"`.
        """

        decision: int = counted("unsettled")
        epoch: int = counted("epoch")  # the last epoch of this run
        spec: dict[str, Any]  # the specification with which the new run starts

        def apply(self, run: "Run") -> None:
            run.settle(self.decision, "restart")
            run.restart_spec = spec_of(self.spec)

    class WeightsSaved(Event):
        """Saved parameters of the latest epoch; the newest of each kind counts."""

        epoch: int = counted("epoch")  # the epoch behind which they were saved
        kind: Annotated[str, OneOf("the kind of weights", WEIGHTS_KINDS)]
        sha256: str  # SHA-256 of the safetensors file, which is a blob
        size: Long
        spec: dict[str, Any]  # model specification that the weights belong to
        # `mode` (of BatchNorm), `batch_sha256`, `layer_norms` on the fixed probe batch
        probe: dict[str, Any]

        def check(self, run: "Run") -> None:
            spec_of(self.spec)  # raises SpecError
            if self.epoch not in run.evaluations:
                raise InvariantError("weights must be saved after an epoch's rules are evaluated")

        def apply(self, run: "Run") -> None:
            run.weights[self.kind] = self

    class SnapshotSaved(Event):
        """The training state after an epoch and before its decisions.

        It is saved where `config` asks for it with `snapshots`.
        """

        epoch: int = counted("epoch")  # the epoch after which it was saved, before its decisions
        sha256: Annotated[str, KeptAs("snapshots", by="epoch")]  # name of the stored file
        size: Long
        seconds: float  # that saving took

        def check(self, run: "Run") -> None:
            if self.epoch not in run.evaluations or self.epoch in run.snapshots:
                raise InvariantError(
                    "a snapshot is saved once, after an epoch's rules are evaluated"
                )
            if run.decisions and run.decisions[-1].epoch == self.epoch:
                raise InvariantError(
                    f"epoch {self.epoch} has a decision already; save its snapshot before that"
                )

    class FileSaved(Event):
        """A file that a watched loop saved, such as its own checkpoint; its form is the loop's.

        The newest of each name is handed in with the run's end.
        """

        epoch: int = counted("epoch")  # the latest measured epoch
        name: str  # file name, without a folder
        sha256: Annotated[str, KeptAs("files", by="name")]  # SHA-256 of the file
        size: Long  # in bytes

        def check(self, run: "Run") -> None:
            if run.level == REPEATABLE:
                raise InvariantError("only a watched loop saves files of its own")

    class Ended(Event):
        """The end of a run; an unfinished run has none."""

        ENDS = "run {aggregate.id} has ended ({event.reason}): no event may follow"
        # `completed`, `stopped` (by a decision), `restart`, `interrupted`, `failed` or `crashed`
        reason: Annotated[str, OneOf("the end reason of a run", END_REASONS), KeptAs("end_reason")]
        _: KW_ONLY
        detail: str = ""  # one line
        # file name to SHA-256 of the submitted files
        deliverables: Mapping[str, str] = field(default_factory=dict)

        def check(self, run: "Run") -> None:
            reason = self.reason
            if reason not in OWN_ENDS:
                return
            if (reason == "restart") != (run.restart_spec is not None):
                raise InvariantError(
                    "a run must end with `restart` if a restart is scheduled, and only then"
                )
            if reason != "restart" and (reason == "stopped") != run.stopped:
                raise InvariantError(
                    "a run must end with `stopped` if it was stopped in its last epoch, and "
                    "only then"
                )
            run.verify_carried_out()

    config: dict[str, Any]
    data: dict[str, Any]
    environment: dict[str, Any]
    policy: dict[str, Any]
    parent_run: str | None
    checkpoint: str | None
    rules: RulesConfig = field(init=False)
    memory: RuleMemory = field(init=False)  # spares time and changes nothing
    initial_spec: Spec = field(init=False)
    spec: Spec = field(init=False)
    settings: dict[str, Any] = field(default_factory=dict)  # as the last remedy left them
    provocation: str | None = None  # by its name
    forked_at: int | None = None
    forked_state: str = ""
    snapshots: dict[int, str] = field(default_factory=dict)  # by epoch
    history: list[EpochSignals] = field(default_factory=list)
    # On the way from a command to its event: a measured part and its signals; the rules that a
    # decision cites, and the decision.
    fresh: tuple[dict[str, Any], EpochSignals] | None = None
    parsed: tuple[list[str], Decision] | None = None
    evaluations: dict[int, dict[str, RuleEvaluation]] = field(default_factory=dict)  # by epoch
    # Of each epoch, by precedence.
    fired_rules: list[tuple[str, ...]] = field(default_factory=list)
    decisions: list[PastDecision] = field(default_factory=list)
    remedies: list[AppliedRemedy] = field(default_factory=list)
    trials: list[Trials] = field(default_factory=list)
    weights: dict[str, "Run.WeightsSaved"] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 by name
    restart_spec: Spec | None = None
    end_reason: str | None = None
    ended: str | None = None

    start = begins(Started)
    provoke = records(Provoked)
    fork = records(Forked)
    apply_remedy = records(RemedyApplied)
    refuse_remedy = records(RemedyRefused)
    schedule_restart = records(RestartScheduled)
    save_weights = records(WeightsSaved)
    save_snapshot = records(SnapshotSaved)
    save_file = records(FileSaved)
    end = records(Ended)

    @property
    def epoch(self) -> int:
        """The latest measured epoch, -1 before the first."""
        return len(self.history) - 1

    @property
    def stopped(self) -> bool:
        """Whether a decision of the latest epoch has stopped the training."""
        latest = takewhile(lambda past: past.epoch == self.epoch, reversed(self.decisions))
        return any(
            past.decision.direction == "stop" and past.outcome == "applied" for past in latest
        )

    @property
    def own_from(self) -> int:
        """The first epoch whose decisions are its own: one that was resumed repeats all of them."""
        if self.forked_at is None:
            return 0
        return self.forked_at + (not self.forked_state)

    @property
    def level(self) -> str:
        """What the run is evidence of: one of LEVELS."""
        return str(self.config.get("level", REPEATABLE))

    def told(self, reported: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the rules may take from the loop's own report.

        That is nothing where the run can be repeated. A task has an accuracy only if its metrics
        have one.
        """
        if self.level != REPEATABLE:
            return reported
        return UNSAID if "task" in self.config else None

    def signals(
        self, epoch: int, measured: Mapping[str, Any], reported: Mapping[str, Any]
    ) -> EpochSignals:
        """Return what the rules read of an epoch; raises MeasurementError."""
        told, classes = self.told(reported), self.initial_spec.classes
        return signals_of(epoch, measured, told, classes=classes)

    @property
    def waived(self) -> tuple[str, ...]:
        """Rules that are advisory in this run."""
        return tuple(self.config.get("waived", ()))

    def measure_epoch(self, measured: Mapping[str, Any], reported: Mapping[str, Any]) -> int:
        """Record the next epoch; its number is counted here and cannot be passed in."""
        verify_open(self)
        if self.config.get("provocation") != self.provocation:
            raise InvariantError(
                f"the configuration names the provocation {self.config.get('provocation')!r}, but "
                f"{self.provocation!r} is recorded"
            )
        if self.epoch >= 0 and self.epoch not in self.evaluations:
            raise InvariantError(
                f"epoch {self.epoch} was measured, but its rules were not evaluated"
            )
        self._check_settled()
        if self.stopped:
            raise InvariantError(
                "the training was stopped: only its last weights and the end may follow"
            )
        epoch = self.epoch + 1
        if (trials := self.trying()) is not None:
            trials.verify_rate(measured["settings"]["lr"], self._tried(trials))
        signals = self.signals(epoch, measured, reported)  # raises MeasurementError
        part = dict(measured)
        self.fresh = part, signals
        self.trigger_event(self.EpochMeasured, epoch=epoch, measured=part, reported=dict(reported))
        return epoch

    def evaluate_rules(self) -> dict[str, RuleEvaluation]:
        """Evaluate the rules on the epoch just measured, once, and record the outcome."""
        verify_open(self)
        if self.epoch < 0 or self.epoch in self.evaluations:
            raise InvariantError("rules must be evaluated once after each measured epoch")
        evaluations = self.memory.evaluate(self.history, self.remedies)
        self.trigger_event(
            self.RulesEvaluated,
            epoch=self.epoch,
            evaluations={rule: value.to_dict() for rule, value in evaluations.items()},
        )
        return evaluations

    def best_trial(self) -> int | None:
        """Return the epoch of the best of the latest trials so far, None if no loss is finite."""
        return self.trials[-1].best(self._tried(self.trials[-1]))

    def trying(self, epoch: int | None = None) -> Trials | None:
        """Return the trials that an epoch (default: the latest) is one of, if it is one."""
        at = self.epoch if epoch is None else epoch
        return next((trials for trials in self.trials if at in trials.epochs), None)

    def step(self) -> Step | None:
        """Return what goes on after the latest epoch, if it is a trial."""
        trials = self.trying()
        return None if trials is None else trials.step(self._tried(trials))

    def tries(self, epoch: int | None = None) -> int:
        """Return how many epochs are left for trials by decisions of an epoch (default: latest).

        One epoch at least has to be left behind them, so only a run with a known end tries rates.
        """
        follow, watched = self.left(epoch), self.initial_spec
        if not self.rules.tries_rates or follow is None or not self.back(epoch):
            return 0
        if isinstance(watched, WatchedModel) and TRY_RATES not in watched.offers:
            return 0
        left = follow - 1
        return left if left > 1 else 0

    def left(self, epoch: int | None = None) -> int | None:
        """Return how many planned epochs follow one (default: latest), None if nobody knows."""
        planned: int | None = self.config.get("epochs")
        return None if planned is None else planned - 1 - (self.epoch if epoch is None else epoch)

    def _tried(self, trials: Trials) -> list[float]:
        """Return the validation losses of the trials that were measured."""
        return [each.val_loss for each in self.history[trials.asked + 1 : trials.epochs.stop]]

    def _left(self, epoch: int) -> bool:
        """Return whether an epoch is a trial that did not go on."""
        trials = self.trying(epoch)
        return trials is not None and trials.best(self._tried(trials)) != epoch

    def back(self, epoch: int | None = None) -> tuple[int, ...]:
        """Return the epochs whose training states can be gone back to, and FRESH.

        A state is sound: no rule of UNDONE that is not waived fired in its epoch, nor was it a
        trial that did not go on. The present one
        can be kept for R1, if no other fired. No state is of another model than the present one,
        nor from before the run was forked. A watched loop keeps the latest sound state alone. With
        an `epoch`: before that epoch's decisions.
        """
        at, watched = self.epoch if epoch is None else epoch, self.initial_spec
        if not self.rules.kept_states:
            return ()
        if isinstance(watched, WatchedModel) and GO_BACK not in watched.offers:
            return ()
        edits = (
            past.epoch
            for past in self.decisions
            if past.outcome == "applied" and past.decision.edit is not None
            if epoch is None or past.epoch < epoch
        )
        forked = 0 if self.forked_at is None or at < self.own_from else self.forked_at
        first = max(forked, at + 1 - self.rules.kept_states, *(edited + 1 for edited in edits))
        sound = [e for e in range(first, at) if not self.damage(e) and not self._left(e)]
        if isinstance(watched, WatchedModel):
            sound = sound[-1:] if self.damage(at) else []
        kept = (at,) if at >= first and not {*self.damage(at)} - {"R1"} else ()
        return (FRESH, *sound, *kept)

    def damage(self, epoch: int) -> tuple[str, ...]:
        """Return the rules that fired in an epoch, on a side on which going back undoes it."""
        found = self.evaluations.get(epoch) or {}
        return tuple(
            rule
            for rule, sides in UNDONE.items()
            if rule in found and found[rule].side in sides and rule not in self.waived
        )

    def why_refused(self, decision: Decision) -> str | None:
        """Return why the decision made last, of this epoch, has to be refused, if it has to be.

        Going back restarts every rule, so it happens once an epoch, for firings of that epoch, and
        for no rule that is waived. Where rates are tried, nothing else changes the training.
        """
        latest = self.trials[-1] if self.trials else None
        if latest and latest.asked == self.epoch and latest.decision < len(self.decisions):
            return f"epoch {self.epoch} begins trials: no other decision is carried out"
        if decision.back is None:
            return None
        epoch, states = decision.back, self.back()
        if not states:
            return "this training keeps no states to go back to"
        if waived := {*decision.cites} & {*self.waived}:
            return f"{', '.join(sorted(waived))} is waived: no training goes back for a waived rule"
        if late := {*decision.cites} - {*self.fired()}:
            return f"{', '.join(sorted(late))} did not fire in epoch {self.epoch}"
        if any(
            past.decision.back is not None and past.outcome == "applied"
            for past in self.decisions[:-1]
            if past.epoch == self.epoch
        ):
            return f"the training has gone back in epoch {self.epoch} already"
        if (tries := self.tries()) < len(decision.rates):
            return (
                f"{len(decision.rates)} rates cannot be tried: {tries} epochs are left for trials, "
                "because one has to follow them"
            )
        if epoch in states:
            return None
        return f"the state after epoch {epoch} is not kept, or R1, R5, R6 or R7 fired in that epoch"

    def fired(self, epoch: int | None = None) -> tuple[str, ...]:
        """Return the rules that fired in `epoch` (default: the latest), by precedence."""
        evaluations = self.evaluations.get(self.epoch if epoch is None else epoch)
        return fired_in_precedence(evaluations) if evaluations else ()

    def decide(self, decision: Decision, *, source: str) -> int:
        """Record a decision as it was said, false citations too: falsely_cited() names these."""
        verify_open(self)
        if self.epoch not in self.evaluations:
            raise InvariantError("a decision must follow the evaluation of the rules")
        verify_source(source, decision)
        if "last" in self.weights and self.weights["last"].epoch == self.epoch:
            raise InvariantError(f"epoch {self.epoch} is closed: its weights are saved")
        if self.trying() is not None:
            raise InvariantError(f"epoch {self.epoch} is a trial, so no decision can be made in it")
        self._check_settled()
        said = decision.to_dict()
        self.parsed = said["cites"], parse_decision(said)
        number = len(self.decisions) + 1
        self.trigger_event(
            self.DecisionMade, number=number, epoch=self.epoch, source=source, **said
        )
        return number

    def falsely_cited(self, decision: Decision) -> tuple[str, ...]:
        """Return the rules that a decision of this epoch cites and that did not fire of late.

        The harness refuses its remedy, and the judge counts a violation.
        """
        window = range(self.epoch - self.rules.action_window, self.epoch + 1)
        recent = {rule for epoch in window for rule in self.fired(epoch)}
        return tuple(rule for rule in decision.cites if rule not in recent)

    def resets_unproven(self, decision: Decision) -> bool:
        """Return whether a decision would throw the weights of a watched loop away for no reason.

        A reason is a gradient or a weight of this epoch that was measured as not finite, never what
        the loop reports. The harness refuses such a remedy.
        """
        resets = bool(decision.params.get("reinitialise", False))
        if decision.back not in (None, self.epoch):
            sides = (self.evaluations[self.epoch][rule].side for rule in decision.cites)
            resets = "not_finite" in sides
        return resets and self.level != REPEATABLE and not self.history[-1].lost

    def settle(self, number: int, outcome: str) -> PastDecision:
        """Note what became of a decision; called by events only."""
        old = self.decisions[number - 1]
        settled = PastDecision(old.number, old.epoch, old.source, old.decision, outcome)
        self.decisions[number - 1] = settled
        return settled

    def _check_settled(self) -> None:
        if self.restart_spec is not None:
            raise InvariantError("a restart is scheduled: only the end may follow")
        self.verify_carried_out()

    def verify_carried_out(self) -> None:
        """Raise InvariantError if it is open what becomes of the decision made last."""
        last = self.decisions[-1] if self.decisions else None
        if last and last.decision.event_type != NO_ACTION and last.outcome is None:
            raise InvariantError(f"decision {last.number} was neither applied nor refused")

    @property
    def unsettled(self) -> int:
        """The number of the decision made last, which is to be carried out."""
        last = self.decisions[-1] if self.decisions else None
        if last is None or not last.decision.acts or last.outcome is not None:
            raise InvariantError("there is no decision to carry out")
        return last.number
