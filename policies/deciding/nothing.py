"""Two baselines that show what remedies are worth: never to act, and a common rule of thumb.

The latter is `fresh_on_nan`: where training is lost, begin again with a tenth of the rate. It
answers a loss or gradient that is not finite, and leaves every other firing alone.
I/O: none.
"""

from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, MIN_LR


class NothingPolicy:
    """Answers every due rule with no action."""

    name = "nothing"
    why = "this policy never acts"

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name}

    def decide(self, observation: Observation) -> list[Decision]:
        """Return a deferral, without anything that would clear it, for each due rule."""
        return [
            Decision.of((rule,), DEFER, {}, f"{rule} is left alone: {self.why}.")
            for rule in observation.due
        ]


class FreshOnNanPolicy(NothingPolicy):
    """Acts only where nothing is left that could be harmed."""

    name = "fresh_on_nan"
    why = "this policy acts only on numbers that are not finite"

    def decide(self, observation: Observation) -> list[Decision]:
        """Return one decision for each due rule."""
        answers = super().decide(observation)
        lr = observation.settings.lr / 10
        lost = observation.evaluations["R7"].side == "not_finite" and observation.may_reset
        if "R7" in observation.due and lost and lr >= MIN_LR:
            why = "R7: training met a number that is not finite, so it begins again more slowly."
            params = {"lr": lr, "reinitialise": True}
            answers[observation.due.index("R7")] = Decision.of(("R7",), "decrease_lr", params, why)
        return answers
