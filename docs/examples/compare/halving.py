"""A policy: halve the learning rate when updates are too large, and let every other rule wait."""

from aggregates.decisions import Decision, Observation


class Halving:
    name = "halving"

    def describe(self):
        return {"name": self.name}

    def decide(self, seen: Observation):
        answers = []
        for rule in seen.due:
            if rule in ("R1", "R7") and not answers:
                params = {"lr": seen.settings.lr / 2}
                answers.append(
                    Decision.of((rule,), "decrease_lr", params, f"{rule}: half the rate")
                )
            else:
                answers.append(Decision.of((rule,), "defer", {}, f"{rule} can wait"))
        return answers
