"""What a policy would do about a watched loop that nobody has asked it to change.

The advice is said and not recorded: a ledger holds what was decided, and here nothing was.
I/O: none.
"""

from dataclasses import replace

from aggregates.decisions import Decision
from aggregates.run import Run
from aggregates.spec import WatchedModel
from monitor.answering import Policy, ask, observe
from monitor.watched_model import WatchedState


class Adviser:
    """Puts the rules that fired to a policy, and carries nothing out."""

    def __init__(self, policy: Policy, able: WatchedModel, *, waived: tuple[str, ...]) -> None:
        self._policy = policy
        self._able = able  # the model with the remedies that a named policy could choose from
        self._waived = waived
        self._said: dict[str, str | None] = {}  # rules that fired in the epoch before, and how

    def advise(self, run: Run, state: WatchedState) -> list[str]:
        """Return a line for each rule that has begun to fire, or fires on another side."""
        fired = {
            rule: run.evaluations[run.epoch][rule].side
            for rule in run.fired()
            if rule not in self._waived
        }
        before, self._said = self._said, fired
        if not fired.items() - before.items():
            return []
        seen = observe(run, state, tuple(fired))
        seen = replace(seen, spec=self._able, waived=self._waived)
        said = [each.decision for each in ask(self._policy, seen)]
        return [
            _line(decision, run.epoch)
            for decision in said
            if any(fired[rule] != before.get(rule, "") for rule in decision.cites if rule in fired)
        ]


def _line(decision: Decision, epoch: int) -> str:
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
