"""The run: one monitored training, from its start to its end.

Every epoch is measured, evaluated, decided, executed and saved, in that order. Commands check that
order and raise InvariantError; events hold plain values only (see docs/reference/events.md).
The rules are evaluated here, from what was measured, and nowhere else.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.decisions import Decision, PastDecision, parse_decision
from aggregates.errors import InvariantError
from aggregates.evaluations import Evaluations
from aggregates.firing import RuleMemory
from aggregates.playbook import FRESH, GO_BACK, NO_ACTION, TRY_RATES, UNDONE, restarted
from aggregates.provocations import fault_of
from aggregates.rules import (
    PRECEDENCE,
    AppliedRemedy,
    RuleEvaluation,
    RulesConfig,
    fired_in_precedence,
)
from aggregates.signals import UNSAID, EpochSignals, signals_of
from aggregates.spec import Spec, WatchedModel, spec_of
from aggregates.trials import Step, Trials

SOURCES = ("driver", "human", "policy")
END_REASONS = ("completed", "crashed", "failed", "interrupted", "restart", "stopped")
OWN_ENDS = ("completed", "restart", "stopped")  # which a training comes to by itself
WEIGHTS_KINDS = ("best", "last")
# What a run is evidence of. repeatable: everything that it was made from is on record, so that a
# judge can train it again. measured: hooks saw the live model in a loop of its owner. reported: the
# loop says so. A run records its level in its configuration; without one it is repeatable.
REPEATABLE, MEASURED, REPORTED = LEVELS = ("repeatable", "measured", "reported")
_SAID = ("event_type", "cites", "direction", "params", "justification")  # of a decision


def verify_source(source: str, decision: Decision) -> None:
    """Raise InvariantError unless a decision can have come from this source."""
    if source not in SOURCES:
        raise InvariantError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
    if source == "driver" and decision.acts:
        raise InvariantError("the driver may only answer with no action")


class Run(Aggregate):
    """One training, rebuilt from its events."""

    class Started(Aggregate.Created):
        """Everything that goes into the run before its first step."""

        config: dict[str, Any]
        config_hash: str
        rules: dict[str, Any]
        rules_hash: str
        spec: dict[str, Any]
        data: dict[str, Any]
        environment: dict[str, Any]
        policy: dict[str, Any]
        parent_run: str | None
        campaign: str | None
        checkpoint: str | None

    class Provoked(Aggregate.Event):
        """The fault that was put into the run on purpose, and what it is to make fire."""

        name: str
        seed: int
        changes: dict[str, Any]
        expects: list[str]

        def apply(self, aggregate: "Run") -> None:
            """Note that the fault is on record."""
            aggregate.provocation = self.name

    class Forked(Aggregate.Event):
        """The run goes on from an epoch of another one; see aggregates/forks.py."""

        parent: str
        epoch: int
        digest: str
        state: str
        orders: list[dict[str, Any]]

        def apply(self, aggregate: "Run") -> None:
            """Note the epoch up to which everything is the parent's."""
            aggregate.forked_at = self.epoch

    class EpochMeasured(Aggregate.Event):
        """What the hooks saw, and apart from it what the loop says of itself."""

        epoch: int
        measured: dict[str, Any]
        reported: dict[str, Any]

        def apply(self, aggregate: "Run") -> None:
            """Add the epoch to the history that the rules read."""
            fresh, aggregate.fresh = aggregate.fresh, None
            if fresh is None or fresh[0] is not self.measured:
                found = aggregate.signals(self.epoch, self.measured, self.reported)
                fresh = self.measured, found
            aggregate.history.append(fresh[1])
            if (step := aggregate.step()) is not None:
                aggregate.settings = {**aggregate.settings, "lr": step.lr}

    class RulesEvaluated(Aggregate.Event):
        """The seven rules on the epoch just measured."""

        epoch: int
        evaluations: dict[str, Any]

        def apply(self, aggregate: "Run") -> None:
            """Keep the evaluation of the epoch."""
            found = {rule: RuleEvaluation(**value) for rule, value in self.evaluations.items()}
            aggregate.evaluations[self.epoch] = found
            fired = tuple(rule for rule in PRECEDENCE if rule in found and found[rule].fired)
            aggregate.fired_rules.append(_shared(fired))

    class DecisionMade(Aggregate.Event):
        """What a policy or a human decided, in their own words, or that nobody did (driver)."""

        number: int
        epoch: int
        source: str
        event_type: str
        cites: list[str]
        direction: str
        params: dict[str, Any]
        justification: str

        def apply(self, aggregate: "Run") -> None:
            """Keep the decision, still without an outcome."""
            parsed, aggregate.parsed = aggregate.parsed, None
            if parsed is None or parsed[0] is not self.cites:
                told = {key: getattr(self, key) for key in _SAID}
                parsed = self.cites, parse_decision(told)
            decision = parsed[1]
            aggregate.decisions.append(
                PastDecision(self.number, self.epoch, self.source, decision, None)
            )

    class RemedyApplied(Aggregate.Event):
        """What the harness did on the live run because of a decision."""

        decision: int
        epoch: int
        changes: list[dict[str, Any]]
        settings: dict[str, Any]
        spec: dict[str, Any]

        def apply(self, aggregate: "Run") -> None:
            """Settle the decision; its rules start afresh."""
            done = aggregate.settle(self.decision, "applied")
            afresh = restarted(done.decision.direction, done.decision.cites)
            rates = done.decision.rates
            aggregate.remedies.extend(
                AppliedRemedy(self.epoch, rule, len(rates)) for rule in afresh
            )
            if done.decision.back is not None and rates:
                trials = Trials(done.number, self.epoch, done.decision.back, rates)
                aggregate.trials.append(trials)
            aggregate.spec = spec_of(self.spec)
            aggregate.settings = dict(self.settings)

    class RemedyRefused(Aggregate.Event):
        """The harness could not do what a decision asked for."""

        decision: int
        epoch: int
        reason: str

        def apply(self, aggregate: "Run") -> None:
            """Settle the decision as not done."""
            aggregate.settle(self.decision, "refused")

    class RestartScheduled(Aggregate.Event):
        """A structural change is left to a following run, which starts from `spec`."""

        decision: int
        epoch: int
        spec: dict[str, Any]

        def apply(self, aggregate: "Run") -> None:
            """Settle the decision; only the end may follow."""
            aggregate.settle(self.decision, "restart")
            aggregate.restart_spec = spec_of(self.spec)

    class WeightsSaved(Aggregate.Event):
        """Weights stored by hash, with gradient norms on the fixed probe batch."""

        epoch: int
        kind: str
        sha256: str
        size: int
        spec: dict[str, Any]
        probe: dict[str, Any]

        def apply(self, aggregate: "Run") -> None:
            """Remember the newest weights of each kind."""
            aggregate.weights[self.kind] = self

    class SnapshotSaved(Aggregate.Event):
        """The training state after an epoch, before its decisions, stored by hash."""

        epoch: int
        sha256: str
        size: int
        seconds: float  # that it took

        def apply(self, aggregate: "Run") -> None:
            """Remember where the training can go on from."""
            aggregate.snapshots[self.epoch] = self.sha256

    class Ended(Aggregate.Event):
        """Nothing follows."""

        reason: str
        detail: str
        deliverables: dict[str, str]

        def apply(self, aggregate: "Run") -> None:
            """Close the run."""
            aggregate.end_reason = self.reason

    def __init__(  # noqa: PLR0917 - the library fills it from the first event's fields
        self,
        config: dict[str, Any],
        config_hash: str,
        rules: dict[str, Any],
        rules_hash: str,
        spec: dict[str, Any],
        data: dict[str, Any],
        environment: dict[str, Any],
        policy: dict[str, Any],
        parent_run: str | None,
        campaign: str | None,
        checkpoint: str | None,
    ) -> None:
        self.config = config
        self.config_hash = config_hash
        self.rules = RulesConfig(**rules)
        self.rules_hash = rules_hash
        self.initial_spec = self.spec = spec_of(spec)
        self.settings: dict[str, Any] = {}  # as the last remedy left them
        self.data = data
        self.environment = environment
        self.policy = policy
        self.parent_run = parent_run
        self.campaign = campaign
        self.checkpoint = checkpoint
        self.provocation: str | None = None  # by its name
        self.forked_at: int | None = None
        self.snapshots: dict[int, str] = {}  # by epoch
        self.history: list[EpochSignals] = []
        # On the way from a command to its event: a measured part and its signals; the rules that a
        # decision cites, and the decision.
        self.fresh: tuple[dict[str, Any], EpochSignals] | None = None
        self.parsed: tuple[list[str], Decision] | None = None
        self.evaluations = Evaluations()
        self.fired_rules: list[tuple[str, ...]] = []  # of each epoch, by precedence
        self.memory = RuleMemory(self.rules)  # spares time and changes nothing
        self.decisions: list[PastDecision] = []
        self.remedies: list[AppliedRemedy] = []
        self.trials: list[Trials] = []
        self.weights: dict[str, Run.WeightsSaved] = {}
        self.restart_spec: Spec | None = None
        self.end_reason: str | None = None

    @classmethod
    def start(
        cls,
        *,
        config: Mapping[str, Any],
        config_hash: str,
        rules: RulesConfig,
        spec: Spec,
        data: Mapping[str, Any],
        environment: Mapping[str, Any],
        policy: Mapping[str, Any],
        parent_run: str | None = None,
        campaign: str | None = None,
        checkpoint: str | None = None,
        run_id: UUID | None = None,
    ) -> "Run":
        """Open a run; its first event records everything that goes into it."""
        return cls._create(
            event_class=cls.Started,
            id=run_id or uuid4(),
            config=dict(config),
            config_hash=config_hash,
            rules=rules.to_dict(),
            rules_hash=rules.hash,
            spec=spec.to_dict(),
            data=dict(data),
            environment=dict(environment),
            policy=dict(policy),
            parent_run=parent_run,
            campaign=campaign,
            checkpoint=checkpoint,
        )

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

    def provoke(self) -> None:
        """Record the fault that the configuration names, before the first epoch."""
        self._check_open()
        if self.provocation is not None or self.history:
            raise InvariantError("a run can be provoked only once, before its first epoch")
        fault = fault_of(self.config)  # raises ProvocationError where its settings are not there
        if fault is None:
            raise InvariantError("the configuration names no provocation")
        self.trigger_event(self.Provoked, **fault.to_dict())

    def fork(self, fork: Mapping[str, Any]) -> None:
        """Record what the run shares with its parent (a Fork's to_dict()), before the first epoch.

        Everything that follows up to that epoch has to be as the parent has it, which the judge
        sees by the digest.
        """
        self._check_open()
        if self.forked_at is not None or self.history:
            raise InvariantError("a run can be forked only once, before its first epoch")
        self.trigger_event(self.Forked, **fork)

    def measure_epoch(self, measured: Mapping[str, Any], reported: Mapping[str, Any]) -> int:
        """Record the next epoch; its number is counted here and cannot be passed in."""
        self._check_open()
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
        self._check_open()
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
        planned, watched = self.config.get("epochs"), self.initial_spec
        if not self.rules.tries_rates or planned is None or not self.back(epoch):
            return 0
        if isinstance(watched, WatchedModel) and TRY_RATES not in watched.offers:
            return 0
        left: int = planned - 2 - (self.epoch if epoch is None else epoch)
        return left if left > 1 else 0

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
        forked = 0 if self.forked_at is None or at < self.forked_at else self.forked_at
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
        self._check_open()
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

    def apply_remedy(
        self,
        changes: Sequence[Mapping[str, Any]],
        *,
        settings: Mapping[str, Any],
        spec: Spec,
    ) -> None:
        """Record what was done for the decision made last."""
        self.trigger_event(
            self.RemedyApplied,
            decision=self._unsettled(),
            epoch=self.epoch,
            changes=[dict(change) for change in changes],
            settings=dict(settings),
            spec=spec.to_dict(),
        )

    def refuse_remedy(self, reason: str) -> None:
        """Record that the decision made last cannot be carried out, and why."""
        self.trigger_event(
            self.RemedyRefused, decision=self._unsettled(), epoch=self.epoch, reason=reason
        )

    def schedule_restart(self, spec: Spec) -> None:
        """Record that a following run starts from `spec` because of the decision made last."""
        self.trigger_event(
            self.RestartScheduled,
            decision=self._unsettled(),
            epoch=self.epoch,
            spec=spec.to_dict(),
        )

    def save_weights(
        self, kind: str, *, sha256: str, size: int, spec: Spec, probe: Mapping[str, Any]
    ) -> None:
        """Record weights of the latest epoch, which are stored under their hash."""
        self._check_open()
        if kind not in WEIGHTS_KINDS:
            raise InvariantError(
                f"the kind of weights must be {' or '.join(WEIGHTS_KINDS)}, not {kind!r}"
            )
        if self.epoch not in self.evaluations:
            raise InvariantError("weights must be saved after an epoch's rules are evaluated")
        self.trigger_event(
            self.WeightsSaved,
            epoch=self.epoch,
            kind=kind,
            sha256=sha256,
            size=size,
            spec=spec.to_dict(),
            probe=dict(probe),
        )

    def save_snapshot(self, sha256: str, *, size: int, seconds: float) -> None:
        """Record the training state after the latest epoch, before anything is decided on it."""
        self._check_open()
        if self.epoch not in self.evaluations or self.epoch in self.snapshots:
            raise InvariantError("a snapshot is saved once, after an epoch's rules are evaluated")
        if self.decisions and self.decisions[-1].epoch == self.epoch:
            raise InvariantError(f"epoch {self.epoch} has a decision: its snapshot comes before")
        self.trigger_event(
            self.SnapshotSaved, epoch=self.epoch, sha256=sha256, size=size, seconds=seconds
        )

    def end(
        self, reason: str, *, detail: str = "", deliverables: Mapping[str, str] | None = None
    ) -> None:
        """Close the run, once; a crashed or interrupted run may end anywhere."""
        self._check_open()
        if reason not in END_REASONS:
            raise InvariantError(
                f"the end reason of a run must be one of {', '.join(END_REASONS)}, not {reason!r}"
            )
        if reason in OWN_ENDS:
            if (reason == "restart") != (self.restart_spec is not None):
                raise InvariantError(
                    "a run must end with `restart` if a restart is scheduled, and only then"
                )
            if reason != "restart" and (reason == "stopped") != self.stopped:
                raise InvariantError(
                    "a run must end with `stopped` if it was stopped in its last epoch, and "
                    "only then"
                )
            self._check_carried_out()
        self.trigger_event(
            self.Ended, reason=reason, detail=detail, deliverables=dict(deliverables or {})
        )

    def settle(self, number: int, outcome: str) -> PastDecision:
        """Note what became of a decision; called by events only."""
        old = self.decisions[number - 1]
        settled = PastDecision(old.number, old.epoch, old.source, old.decision, outcome)
        self.decisions[number - 1] = settled
        return settled

    def _check_open(self) -> None:
        if self.end_reason is not None:
            raise InvariantError(
                f"run {self.id} has ended ({self.end_reason}): no event may follow"
            )

    def _check_settled(self) -> None:
        if self.restart_spec is not None:
            raise InvariantError("a restart is scheduled: only the end may follow")
        self._check_carried_out()

    def _check_carried_out(self) -> None:
        last = self.decisions[-1] if self.decisions else None
        if last and last.decision.event_type != NO_ACTION and last.outcome is None:
            raise InvariantError(f"decision {last.number} was neither applied nor refused")

    def _unsettled(self) -> int:
        self._check_open()
        last = self.decisions[-1] if self.decisions else None
        if last is None or not last.decision.acts or last.outcome is not None:
            raise InvariantError("there is no decision to carry out")
        return last.number


@cache
def _shared(fired: tuple[str, ...]) -> tuple[str, ...]:
    """Return one tuple for all epochs in which the same rules fired."""
    return fired
