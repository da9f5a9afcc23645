"""Fired rules are put to the policy; what it says is recorded and carried out, or only told.

Source: docs/reference/rules.md.
Trust: a policy may raise, or return anything.  I/O: appends to the session's log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from aggregates.decisions import (
    Decision,
    Observation,
    Said,
    parse_decision,
    printable,
    unanswered,
)
from aggregates.errors import DecisionError, RemedyRefused, SpecError
from aggregates.playbook import DEFER, FACTORS, directions
from aggregates.rulebook import PRECEDENCE
from aggregates.run import Run, verify_source
from aggregates.spec import WatchedModel, apply_edit
from monitor.errors import PolicyError
from monitor.session import Session
from monitor.trained import Trained

_MOST_DECISIONS = 64  # in one answer; seven rules can be due


class Policy(Protocol):
    """Who decides when rules fire."""

    @property
    def name(self) -> str:
        """The policy's name, as runs record it."""

    def describe(self) -> dict[str, Any]:
        """Return what a run records of the policy."""

    def decide(self, observation: Observation, /) -> Sequence[Decision | Said]:
        """Answer the rules that are due; a bare decision is the policy's own."""


def answer_rules(session: Session, state: Trained, policy: Policy) -> str:
    """Ask the policy about the rules that fired and do what it says; return how the run goes on."""
    run = session.run
    due = tuple(rule for rule in run.fired() if rule not in run.waived)
    if not due:
        return "completed"
    restarts = state.config.edits == "restart"
    outcome = "completed"
    decisions = answers_of(policy, observe(run, state, due))
    for number, answer in enumerate(decisions, start=1):
        said = answer.decision
        session.record(run.decide, said, source=answer.source)
        if not said.acts:
            continue
        if false := run.falsely_cited(said):
            session.refused(
                f"{', '.join(false)} cited in epoch {run.epoch} did not fire in this epoch or the "
                f"{run.rules.action_window} before"
            )
            continue
        if (gone := run.why_refused(said)) is not None:
            session.refused(gone)
            continue
        if run.resets_unproven(said):
            session.refused(
                "the starting weights are put back only after a gradient or a weight that was "
                f"measured as not finite, and all of epoch {run.epoch} are finite"
            )
            continue
        try:
            if restarts and said.edit is not None:
                if number < len(decisions):
                    session.refused("the run restarts for another change of the model")
                    continue
                following = apply_edit(state.spec, said.edit)
                session.record(run.schedule_restart, following.to_dict())
                return "restart"
            changes = state.execute(said, epoch=run.epoch)
        except (RemedyRefused, SpecError) as error:
            session.refused(str(error))
            continue
        session.applied(changes, settings=state.settings, spec=state.spec)
        if said.direction == "stop":
            outcome = "stopped"
    return outcome


class Adviser:
    """Puts the rules that fired in a watched loop to a policy, and carries nothing out.

    The advice is said and not recorded: a ledger holds what was decided, and here nothing was.
    """

    def __init__(self, policy: Policy, able: WatchedModel, *, waived: tuple[str, ...]) -> None:
        self._policy = policy
        self._able = able  # the model with the remedies that a named policy could choose from
        self._waived = waived
        self._said: dict[str, tuple[str | None, bool]] = {}  # in the epoch before: see advise()
        self._rates: list[float] = []  # of the loop's own schedule, at the end of each epoch

    def advise(self, run: Run, state: Trained, *, rate: float) -> list[str]:
        """Return a line for each rule that has begun to fire, or fires on another side.

        `rate` is the learning rate to which the loop's own schedule has come. A schedule that moves
        it as a remedy would is waited for, and advice follows if the rule fires on behind that.
        """
        self._rates.append(rate)
        earlier = self._rates[-1 - run.rules.persistence :][0]
        moved = _moved(earlier, rate)
        sides = {
            rule: run.evaluations[run.epoch][rule].side
            for rule in run.fired()
            if rule not in self._waived
        }
        fired = {
            rule: (side, moved in directions(rule, side, run.rules)) for rule, side in sides.items()
        }
        before, self._said = self._said, fired
        if not fired.items() - before.items():
            return []
        seen = observe(run, state, tuple(fired))
        first = seen.settings.lr
        settings = replace(seen.settings, lr=rate or first)
        seen = replace(seen, spec=self._able, waived=self._waived, settings=settings)
        said = [each.decision for each in ask(self._policy, seen)]
        return [
            self._line(decision, run.epoch, moved, (first, earlier, rate))
            for decision in said
            if any(fired[rule] != before.get(rule) for rule in decision.cites if rule in fired)
        ]

    def _line(
        self, decision: Decision, epoch: int, moved: str | None, rates: tuple[float, float, float]
    ) -> str:
        first, earlier, rate = rates
        brought = f"the loop's own schedule has brought the learning rate from {{:g}} to {rate:g}"
        if decision.direction == moved and "reinitialise" not in decision.params:
            why = f"{brought.format(earlier)}; see whether that is enough"
            return _advice(Decision.of(decision.cites, DEFER, {}, why), epoch)
        behind = "" if "lr" not in decision.params or rate == first else brought.format(first)
        return _advice(decision, epoch) + (behind and f" Before, {behind}.")


def _moved(earlier: float, rate: float) -> str | None:
    """Return the remedy that a change of the learning rate is as much as, None if it is none."""
    least = FACTORS["R1"][0]
    if rate >= earlier * least > 0:
        return "increase_lr"
    return "decrease_lr" if 0 < rate * least <= earlier else None


def observe(run: Run, state: Trained, due: tuple[str, ...]) -> Observation:
    """Return what a policy is shown of the latest epoch."""
    return Observation(
        run_id=str(run.id),
        epoch=run.epoch,
        due=due,
        evaluations=dict(run.evaluations[run.epoch]),
        settings=state.settings,
        max_batch_size=state.config.max_batch_size,
        train_examples=state.train_examples,
        spec=state.spec,
        history=tuple(run.history),
        decisions=tuple(run.decisions),
        waived=run.waived,
        rules=run.rules,
        edits=state.config.edits,
        fired=tuple(run.fired_rules[: run.epoch]),
        back=run.back(run.epoch),
        tries=run.tries(run.epoch),
        left=run.left(),
    )


def answers_of(policy: Policy, observation: Observation) -> list[Said]:
    """Return what ask() does, in the order in which the decisions are recorded."""
    decisions = ask(policy, observation)
    if observation.edits == "restart":
        # Nothing may follow a scheduled restart. The one for the rule that goes first is the last;
        # the order is otherwise the policy's, also when it is said again.
        decisions.sort(key=_place_before_restart)
    return decisions


def ask(policy: Policy, observation: Observation) -> list[Said]:
    """Return the policy's decisions, each as it was said and by whom.

    What is no decision, or none of its form, is not carried out: the driver defers the due rules
    that are left without an answer, and says why. Raises PolicyError where the policy raised.
    """
    due, said, problems = observation.due, list[Said](), dict[str, str]()
    try:
        answer = policy.decide(observation)
        listed = isinstance(answer, Sequence | Iterator)  # a policy may yield its decisions
        answers = list(islice(answer, _MOST_DECISIONS + 1)) if listed else []
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"policy {policy.name} raised {type(error).__name__}: {error}") from error
    if not listed:
        problems = dict.fromkeys(due, "the answer is no list of decisions")
    elif len(answers) > _MOST_DECISIONS:
        answers, why = [], f"the answer has more than {_MOST_DECISIONS} decisions"
        problems = dict.fromkeys(due, why)
    for each in answers:
        try:
            said.append(_read(each))
        except Exception as error:  # an answer may hold anything, and what fails is not known
            about = [rule for rule in due if _cites(each, rule)] or due
            problems = {**dict.fromkeys(about, str(error)), **problems}
    answered = {rule for each in said for rule in each.decision.cites}
    return [
        *said,
        *(
            unanswered(rule, printable(problems[rule]))
            for rule in due
            if rule in problems and rule not in answered
        ),
    ]


def _read(answer: object) -> Said:
    said = Said(answer) if isinstance(answer, Decision) else answer
    if not isinstance(said, Said) or not isinstance(said.decision, Decision):
        raise DecisionError(f"it is not a decision, but of the type {type(answer).__name__}")
    decision = parse_decision(said.decision.to_dict())
    verify_source(said.source, decision)
    return Said(decision, said.source)


def _cites(answer: object, rule: str) -> bool:
    cites = getattr(getattr(answer, "decision", answer), "cites", None)
    return isinstance(cites, list | tuple) and any(
        type(each) is str and each == rule for each in cites
    )


def _place_before_restart(said: Said) -> int:
    if said.decision.edit is None:
        return -len(PRECEDENCE)
    return -min(PRECEDENCE.index(rule) for rule in said.decision.cites)


def _advice(decision: Decision, epoch: int) -> str:
    about = f"{', '.join(decision.cites)} in epoch {epoch}"
    if not decision.acts:
        return f"no remedy advised for {about}: {decision.justification}"
    params = ", ".join(f"{name} {_number(value)}" for name, value in decision.params.items())
    return (
        f"advice for {about}, not carried out: {decision.direction}"
        f"{f' ({params})' if params else ''}; {decision.justification}"
    )


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
