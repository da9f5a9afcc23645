"""What the run so far has shown: which rules fired when, and what remedies did to them.

An observation holds the measurements of every epoch and the evaluation of the last one alone; the
others follow from the measurements, by the same function that the monitor and the judge call.
I/O: none.
"""

from aggregates.decisions import Observation
from aggregates.rules import AppliedRemedy, evaluate_rules, fired_in_precedence
from aggregates.strategy import Effect, remedy_effects


def fired_by_epoch(seen: Observation) -> tuple[tuple[str, ...], ...]:
    """Return the rules that fired in each epoch, by precedence."""
    remedies = [
        AppliedRemedy(past.epoch, rule)
        for past in seen.decisions
        if past.outcome == "applied"
        for rule in past.decision.cites
    ]
    earlier = [
        fired_in_precedence(
            evaluate_rules(
                seen.history[: epoch + 1],
                [remedy for remedy in remedies if remedy.epoch < epoch],
                seen.rules,
            )
        )
        for epoch in range(len(seen.history) - 1)
    ]
    return (*earlier, fired_in_precedence(seen.evaluations))


def last_effects(seen: Observation) -> dict[str, Effect]:
    """Return the effect of each rule's latest remedy."""
    return {effect.rule: effect for effect in remedy_effects(fired_by_epoch(seen), seen.decisions)}
