"""The rules that fired are put to the policy, and what it says is recorded and carried out.

Source: docs/reference/decisions.md.
Trust: a policy may raise, or return anything.  I/O: appends to the session's log.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

from aggregates.decisions import Decision, Observation, Said, Settings
from aggregates.errors import AggregateError, RemedyRefused, SpecError
from aggregates.outcomes import Changes
from aggregates.rules import PRECEDENCE
from aggregates.run import Run
from aggregates.spec import Spec, apply_edit
from monitor.config import AnyConfig
from monitor.errors import PolicyError
from monitor.session import Session

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


class Trained(Protocol):
    """What is trained, and can be changed by a decision."""

    settings: Settings

    @property
    def config(self) -> AnyConfig:
        """The run's configuration."""

    @property
    def train_examples(self) -> int:
        """How many training examples there are; 0: nobody knows."""

    @property
    def spec(self) -> Spec:
        """The model as it is now."""

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out; raises RemedyRefused, everything as it was, if that cannot be."""


def answer_rules(session: Session, state: Trained, policy: Policy) -> str:
    """Ask the policy about the rules that fired and do what it says; return how the run goes on."""
    run = session.run
    due = tuple(rule for rule in run.fired() if rule not in run.waived)
    if not due:
        return "completed"
    restarts = state.config.edits == "restart"
    outcome = "completed"
    decisions = _ask(policy, _observe(run, state, due), structural_last=restarts)
    for number, answer in enumerate(decisions, start=1):
        try:
            said = session.decide(answer.decision, source=answer.source)
        except AggregateError as error:
            raise PolicyError(f"policy {policy.name}: {error}") from error
        if not said.acts:
            continue
        if false := run.falsely_cited(said):
            session.refused(
                f"{', '.join(false)} cited in epoch {run.epoch} did not fire in this epoch or the "
                f"{run.rules.action_window} before"
            )
            continue
        try:
            if restarts and said.edit is not None:
                if number < len(decisions):
                    session.refused("the run restarts for another change of the model")
                    continue
                session.restart(apply_edit(state.spec, said.edit))
                return "restart"
            changes = state.execute(said, epoch=run.epoch)
        except (RemedyRefused, SpecError) as error:
            session.refused(str(error))
            continue
        session.applied(changes, settings=state.settings, spec=state.spec)
        if said.direction == "stop":
            outcome = "stopped"
    return outcome


def _observe(run: Run, state: Trained, due: tuple[str, ...]) -> Observation:
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
    )


def _ask(policy: Policy, observation: Observation, *, structural_last: bool) -> list[Said]:
    """Return the policy's decisions, each as it was said and by whom.

    Nothing may follow a scheduled restart, so where structural edits restart the run they come
    last, the one for the rule that goes first at the very end; the order is otherwise the policy's.
    What was recorded in this order keeps it when it is said again.
    """
    try:
        answers = list(islice(policy.decide(observation), _MOST_DECISIONS + 1))
    except Exception as error:
        raise PolicyError(f"policy {policy.name} raised {type(error).__name__}: {error}") from error
    if len(answers) > _MOST_DECISIONS:
        raise PolicyError(
            f"policy {policy.name} answered with more than {_MOST_DECISIONS} decisions at once"
        )
    said = [Said(answer) if isinstance(answer, Decision) else answer for answer in answers]
    if any(not isinstance(each, Said) or not isinstance(each.decision, Decision) for each in said):
        raise PolicyError(f"policy {policy.name} returned something that is not a decision")
    if structural_last:
        said.sort(key=_place_before_restart)
    return said


def _place_before_restart(said: Said) -> int:
    if said.decision.edit is None:
        return -len(PRECEDENCE)
    return -min(PRECEDENCE.index(rule) for rule in said.decision.cites)
