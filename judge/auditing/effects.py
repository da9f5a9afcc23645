"""The effect of each remedy: what was in force in the epochs after it, and what its rule asked for.

A decision counts as a remedy if the rule's setting moved as the playbook asks. It is not enough
that the decision was applied: a schedule of a thousand epochs is applied and changes nothing.

Source: docs/reference/audit.md, "What counts as a remedy".
Trust: the replay has been verified.  I/O: none.  Units: epochs from 0, learning rates per step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from aggregates.decisions import PastDecision, Settings, learning_rate
from aggregates.firing import evaluate_epochs
from aggregates.playbook import FACTORS, REMEDIES, directions, restarted, rises
from aggregates.rules import AppliedRemedy, RuleEvaluation
from aggregates.run import Run
from aggregates.spec import Spec, WatchedModel

if TYPE_CHECKING:
    from judge.auditing.replayed import Replay

# A schedule's mean lags behind its target. The mildest schedule of the playbook is a cycle between
# a third of the rate and the rate: over any number of epochs, its mean is at least 1.38 times below
# the rate, and 3 / 1.38 = 2.17. One epoch of warm-up has a mean of half its target. So the mean may
# miss the playbook's factors by this much.
SLACK = 2.25
_POINTS = 100  # of an epoch's steps, at which its learning rate is read
_FLAT = "relu"  # has no slope below zero, so it remedies neither R5 nor R6
_OUTCOMES = ("applied", "restart")


@dataclass(frozen=True)
class Ineffective:
    """A rule that a decision cites and did not remedy, and why."""

    decision: int
    rule: str
    why: str


@dataclass(frozen=True)
class _State:
    settings: Settings
    spec: Spec
    dead: Mapping[str, int]  # units without a slope, by activation, where a change was decided on
    norm: float = math.inf  # of the epoch's gradient, about
    overridden: int = 0  # steps in which a watched loop had another learning rate


def last_firing(run: Run, past: PastDecision, rule: str) -> RuleEvaluation | None:
    """Return the firing of the rule that a decision can answer; None: there is none."""
    for epoch in range(past.epoch, max(-1, past.epoch - run.rules.action_window - 1), -1):
        evaluation = run.evaluations[epoch][rule]
        if evaluation.fired:
            return evaluation
    return None


def find_effects(
    replay: "Replay",
) -> tuple[list[Ineffective], list[tuple[int, str]], dict[int, float]]:
    """Compare what was in force after each decision with what the rules asked for.

    Returns what was not remedied, where a rule was silent for that alone (epoch, rule), and the
    largest learning rate from each epoch on, within the limit.
    """
    course = _Course(replay)
    ineffective = [*_ineffective(course)]
    silent = [*_false_silence(replay.run, ineffective)]
    return ineffective, silent, {epoch: course.peak(epoch) for epoch in range(course.epochs)}


def find_excesses(replay: "Replay") -> Iterator[tuple[PastDecision, str, str]]:
    """Yield where the decisions of one epoch together pass the playbook's factors.

    The last of them, the rule that it cites, and what is too much.
    """
    course = _Course(replay)
    by_epoch = groupby(replay.run.decisions, key=lambda past: past.epoch)
    for epoch, decisions in by_epoch:
        applied = [past for past in decisions if past.outcome == "applied"]
        for what, moves, read in (
            ("the learning rate", ("lr",), lambda settings: settings.lr),
            ("the examples of a step", ("batch_size", "accumulation"), _step_size),
        ):
            movers = [p for p in applied if REMEDIES[p.decision.direction].moves in moves]
            rules = {rule for past in movers for rule in past.decision.cites}
            rules &= FACTORS.keys() - set(replay.run.waived)
            if len(movers) < 2 or not rules:
                continue
            before, after = read(course.at(epoch).settings), read(course.at(epoch + 1).settings)
            rule = max(rules, key=lambda each: FACTORS[each][1])
            factor, most = max(after / before, before / after), FACTORS[rule][1]
            if factor > most * (1 + 1e-9):
                numbers = " and ".join(str(past.number) for past in movers)
                yield (
                    movers[-1],
                    rule,
                    f"decisions {numbers} of epoch {epoch} together change {what} by a factor of "
                    f"{factor:.4g}, the playbook allows {most:g}",
                )


def _step_size(settings: Settings) -> int:
    return settings.batch_size * settings.accumulation


class _Course:
    """Settings and model in force in each epoch of a run."""

    def __init__(self, replay: "Replay") -> None:
        run = self.run = replay.run
        self.epochs = len(replay.in_force)
        self.limit = run.rules.deferral_limit
        self._train = int(replay.started.data["sizes"]["train"])
        self._states = [
            _State(settings, spec, replay.dead.get(epoch, {}), norm, overridden)
            for epoch, ((settings, spec), norm, overridden) in enumerate(
                zip(replay.in_force, replay.lengths, replay.overridden, strict=True)
            )
        ]
        self._states.append(_State(replay.settings, run.restart_spec or replay.spec, {}))

    def at(self, epoch: int) -> _State:
        """Return what was in force in an epoch; behind the last one, as the run left it."""
        return self._states[min(epoch, self.epochs)]

    def loosened(self, epoch: int, since: int) -> float:
        """Return how many times longer steps may be in epoch `since` than in `epoch`, at most.

        By the bound on the gradient alone, for a gradient of the length that was measured.
        """
        norm, old = self.at(epoch).norm, self.at(epoch).settings.clip_norm
        new = self.at(since).settings.clip_norm
        before = norm if old is None else min(norm, old)
        after = norm if new is None else min(norm, new)
        return after / before if after > before > 0.0 else 1.0

    def until(self, epoch: int, read: Callable[[_State], object]) -> int:
        """Return the last epoch in which what was in force after `epoch` still was.

        No later than the limit of a deferral. The plan counts behind the end of the run, since no
        policy is told when a run ends.
        """
        new, last = read(self.at(epoch + 1)), epoch + self.limit
        others = (at for at in range(epoch + 2, last + 1) if read(self.at(at)) != new)
        return next(others, last + 1) - 1

    def mean_rate(self, since: int, until: int, settings: Settings) -> float:
        """Return the mean learning rate of the epochs from `since` to `until`."""
        rates = [rate for at in range(since, until + 1) for rate in self._rates(at, settings)]
        return math.fsum(rates) / len(rates)

    def peak(self, epoch: int) -> float:
        """Return the largest learning rate to come within the limit, as settings stand."""
        settings = self.at(epoch).settings
        return max(
            rate for at in range(epoch, epoch + self.limit) for rate in self._rates(at, settings)
        )

    def _rates(self, epoch: int, settings: Settings) -> Sequence[float]:
        if settings.schedule["kind"] == "constant":
            return (settings.lr,)
        steps = self._train // _step_size(settings) if self._train else _POINTS
        points = max(1, min(_POINTS, steps))
        return [
            learning_rate(settings, epoch=epoch, fraction=(point + 1) / points)
            for point in range(points)
        ]


def _ineffective(course: _Course) -> Iterator[Ineffective]:
    run = course.run
    for past in run.decisions:
        if past.outcome not in _OUTCOMES:
            continue
        for rule in past.decision.cites:
            fired = last_firing(run, past, rule)
            why = _why_ineffective(course, past, rule, None if fired is None else fired.side)
            if why is not None:
                yield Ineffective(past.number, rule, why)


def _why_ineffective(
    course: _Course, past: PastDecision, rule: str, side: str | None
) -> str | None:
    """Return why a decision that was carried out did not remedy the rule, None if it did."""
    direction = past.decision.direction
    if direction not in directions(rule, side, course.run.rules):
        return f"{direction} is no remedy for it"
    if direction == "stop":
        return None
    if past.decision.edit is not None:
        return _why_same_model(course, past, rule)
    up = rises(direction, side)
    if past.decision.back is not None:
        after, params = course.at(past.epoch + 1).settings, past.decision.params
        if after.lr != (params["lr"] if "lr" in params else past.decision.rates[0]):
            return f"another decision set the learning rate to {after.lr:g}"
        if after.batch_size != params.get("batch_size", after.batch_size):
            return f"another decision set the batch size to {after.batch_size}"
        return None
    if REMEDIES[direction].moves == "lr":
        return _why_same_rate(course, past.epoch, rule, up=up)
    return _why_same_step(course, past.epoch, rule, up=up)


def _why_same_rate(course: _Course, epoch: int, rule: str, *, up: bool) -> str | None:
    least, most = FACTORS[rule]
    settings = course.at(epoch).settings
    before = course.mean_rate(epoch, epoch, settings)
    if not up:  # a warm-up or a cycle would have raised it: that is what the remedy prevented
        before = max(before, course.mean_rate(epoch + 1, epoch + course.limit, settings))
    for since in _epochs_after(course, epoch, _rate_settings):
        if steps := course.at(since).overridden:
            return f"the loop put another rate in its place in {steps} steps of epoch {since}"
        until = course.until(since - 1, _rate_settings)
        after = course.mean_rate(since, until, course.at(since).settings)
        factor = after / before if up else before / after
        # Upwards, step 9 bounds what is too much. Downwards, a schedule that stays near zero for
        # the whole window would stop the training, which no rule asks for.
        moved = (
            f"the learning rate was {before:.3g} before it and on average {after:.3g} in epochs "
            f"{since} to {until}"
        )
        if factor < least / SLACK or (not up and factor > most * SLACK):
            return moved
        longer = 1.0 if up else course.loosened(epoch, since)
        if factor / longer < least / SLACK:
            return f"{moved}, but a looser clip_norm allows gradients {longer:.3g} times as long"
    return None


def _why_same_step(course: _Course, epoch: int, rule: str, *, up: bool) -> str | None:
    least, _ = FACTORS[rule]
    before = _step_size(course.at(epoch).settings)
    for since in _epochs_after(course, epoch, lambda state: _step_size(state.settings)):
        after = _step_size(course.at(since).settings)
        if (after < least * before) if up else (least * after > before):
            return f"a step had {before} examples before it and {after} in epoch {since}"
    return None


def _why_same_model(course: _Course, past: PastDecision, rule: str) -> str | None:
    before = course.at(past.epoch)
    for since in _epochs_after(course, past.epoch, lambda state: state.spec):
        spec = course.at(since).spec
        if past.decision.direction != "swap_activation":
            if spec == before.spec:
                return f"the model was the same before it and in epoch {since}"
            continue
        swapped = _swapped(before.spec, spec)
        if not swapped:
            return f"no activation was another, with a slope everywhere, in epoch {since}"
        if rule == "R6" and not swapped - _swapped_back(course, past.epoch, spec):
            return f"epoch {since} has activations that the model had before"
        dead = sum(before.dead.values())
        # A swap is of a block, or of a module in it; the head is a place of its own.
        reached = sum(
            count for name, count in before.dead.items() if {name, name.rsplit(".", 1)[0]} & swapped
        )
        if rule == "R5" and 2 * reached < dead:
            return f"it reached {reached} of {dead} dead units"
    return None


def _swapped(before: Spec, after: Spec) -> set[str]:
    """Return the places whose activation changed to one with a slope."""
    old, new = _activations(before), _activations(after)
    return {place for place, to in new.items() if to not in (_FLAT, old.get(place, to))}


def _swapped_back(course: _Course, epoch: int, spec: Spec) -> set[str]:
    """Return the places whose activation is one that they had in an epoch up to `epoch`."""
    specs = (course.at(at).spec for at in range(epoch + 1))
    earlier = [_activations(each) for each in {id(spec): spec for spec in specs}.values()]
    now = _activations(spec)
    return {place for place, name in now.items() if any(e.get(place) == name for e in earlier)}


def _activations(spec: Spec) -> dict[str, str]:
    if isinstance(spec, WatchedModel):
        return {each.name: each.kind for each in spec.activations}
    blocks = {f"blocks.{number}": block.activation for number, block in enumerate(spec.blocks)}
    return {**blocks, "act": spec.activation}


def _epochs_after(course: _Course, epoch: int, read: Callable[[_State], object]) -> Iterator[int]:
    """Yield the epoch after a remedy, and the one after it if a decision changed it again.

    A change that the next epoch's decisions undo is none.
    """
    yield epoch + 1
    if epoch + 2 < course.epochs and read(course.at(epoch + 1)) != read(course.at(epoch + 2)):
        yield epoch + 2


def _rate_settings(state: _State) -> object:
    return state.settings.lr, dict(state.settings.schedule)


def _false_silence(run: Run, ineffective: Sequence[Ineffective]) -> Iterator[tuple[int, str]]:
    """Yield where a rule was silent only because a remedy that changed nothing restarted it."""
    directions_of = {past.number: past.decision.direction for past in run.decisions}
    without = {
        (each.decision, rule)
        for each in ineffective
        for rule in restarted(directions_of[each.decision], [each.rule])
    }
    if not run.rules.restart_after_remedy or not without:
        return
    remedies = [
        AppliedRemedy(past.epoch, rule, len(past.decision.rates))
        for past in run.decisions
        if past.outcome == "applied"
        for rule in restarted(past.decision.direction, past.decision.cites)
        if (past.number, rule) not in without
    ]
    first = min(run.decisions[number - 1].epoch for number, _ in without)
    rules = {rule for _, rule in without}
    found = evaluate_epochs(run.history, remedies, run.rules, first=first + 1)
    for epoch, again in enumerate(found, start=first + 1):
        yield from (
            (epoch, rule)
            for rule in sorted(rules)
            if again[rule].fired and rule not in run.fired_rules[epoch]
        )
