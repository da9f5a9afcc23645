"""What the rules said comes back as it was, epochs later, and hardly takes memory."""

import math
import tracemalloc

from aggregates.evaluations import Evaluations
from aggregates.rules import RULES, RuleEvaluation


def said(epoch: int) -> dict[str, RuleEvaluation]:
    numbers = (None, 0.1 * epoch, math.nan, -0.0, math.inf)
    return {
        rule: RuleEvaluation(
            rule,
            place % 2 == 0,
            "high" if place % 2 == 0 else None,
            numbers[place % 5],
            None,
            epoch,
        )
        for place, rule in enumerate(RULES, start=epoch)
    }


def test_evaluations_come_back_as_they_were() -> None:
    kept = Evaluations()
    for epoch in range(40):
        kept[epoch] = said(epoch)
    assert [repr(kept[epoch]) for epoch in range(40)] == [repr(said(epoch)) for epoch in range(40)]
    assert list(kept) == list(range(40))
    assert (3 in kept, 40 in kept, kept.get(40)) == (True, False, None)


def test_evaluations_of_earlier_epochs_take_little_memory() -> None:
    kept = Evaluations()
    tracemalloc.start()
    try:
        for epoch in range(1_000):
            kept[epoch] = said(epoch)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
