"""A policy: lower the learning rate by the least that is allowed, and let other rules wait."""

from aggregates.decisions import Decision, Observation
from aggregates.playbook import FACTORS


class Lowering:
    name = "lowering"

    def describe(self):
        return {"name": self.name}

    def decide(self, seen: Observation):
        answers = []
        for rule in seen.due:
            side = seen.evaluations[rule].side
            if rule in ("R1", "R7") and side not in ("low", "guessing") and not answers:
                least, _ = FACTORS[rule]  # R1: from 3 to 10; R7: 10
                params = {"lr": seen.settings.lr / least}
                why = f"{rule}: the rate divided by {least:g}"
                answers.append(Decision.of((rule,), "decrease_lr", params, why))
            else:
                answers.append(Decision.of((rule,), "defer", {}, f"{rule} can wait"))
        return answers
