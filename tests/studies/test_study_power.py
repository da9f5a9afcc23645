"""Faults in kinds that are not like the built-in network: put in, seen, and counted."""

import math
from dataclasses import replace

import pytest
from studies.power import FAULTS, HEALTHY, SPIKE, Observed, observe, tables, won_back

KIND = "CNN, Adam, no norm"  # quick to train, with ReLUs
EPOCHS = SPIKE + 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_put_in_and_seen(fault: str) -> None:
    found = observe(KIND, fault, 0, EPOCHS)
    assert found is not None
    assert found.in_time()


def test_a_healthy_twin_fires_nothing() -> None:
    found = observe(KIND, HEALTHY, 0, EPOCHS)
    assert found is not None
    assert not any(found.fired)


def test_a_fault_that_makes_no_sense_is_left_out() -> None:
    assert observe("transformer, one cycle, clipped", "rate too high", 0, SPIKE + 1) is None


def test_what_is_seen_late_or_behind_another_rule_is_counted() -> None:
    twin = Observed(KIND, HEALTHY, 0, None, 2.0, 1.0, ((),) * 6)
    late = replace(twin, fault="rate too high", after=math.nan, fired=((),) * 3 + (("R1 high",),))
    behind = replace(late, seed=1, after=1.05, fired=(("R6 low", "R1 high"),))
    whole, worst = tables([twin, replace(twin, seed=1), late, behind])
    (row,) = whole.rows
    assert row[2].startswith("1 of 2")  # in time
    assert row[3].startswith("1 of 2")  # in front
    assert row[4] == "1 of 2"  # what costs less than a tenth of the gain is harmless
    assert row[5].startswith("0 of 1")
    assert [line[-1] for line in worst.rows] == ["R1 high, R6 low"]


def test_what_a_policy_wins_back_is_its_share_of_what_the_fault_costs() -> None:
    fault = "rate too high"
    found = []
    for seed in range(3):
        twin = Observed(KIND, HEALTHY, seed, None, 2.0, 1.0 + seed / 100, ())
        found += [
            twin,
            replace(twin, fault=fault, after=math.nan),
            replace(twin, fault=fault, after=1.5, policy="rescue"),
            replace(twin, policy="rescue"),
        ]
    (table,) = won_back(found, "rescue")
    (row,) = table.rows
    assert row[:3] == (fault, "1 of 1", "0.51")
    assert row[4] == "none"
