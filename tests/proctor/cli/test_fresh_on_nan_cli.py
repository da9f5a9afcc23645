"""The policy `fresh_on_nan` begins a lost training again, and does nothing else."""

import json
from pathlib import Path
from random import Random

import pytest
from frontdoor import TINY, answer, call_here, with_settings

from aggregates.decisions import Settings, parse_decision, validate_decision
from aggregates.playbook import MIN_LR
from judge.reference.situations import observe
from policies.deciding.nothing import FreshOnNanPolicy


@pytest.mark.parametrize("profile", ["calibrated", "relative"])
def test_lost_training_begins_again_with_a_tenth_of_the_rate_and_passes_its_audit(
    tmp_path: Path, profile: str
) -> None:
    settings = with_settings(TINY, "epochs=4", f"profile={profile}")
    lost = ["--provoke", "infinite_loss", "--policy", "fresh_on_nan"]
    assert call_here(["run", *lost, *settings], home=tmp_path).returncode == 0
    asked = (
        "SELECT cites, direction, params, outcome FROM decision_outcomes WHERE direction <> 'defer'"
    )
    (acted,) = answer(call_here(["sql", asked, "--json"], home=tmp_path))
    assert (acted["cites"], acted["outcome"]) == (["R7"], "applied")
    assert json.loads(acted["params"]) == {"lr": 0.05 / 10, "reinitialise": True}
    audit = answer(call_here(["judge", "--json"], home=tmp_path))
    (step,) = (each for each in audit["steps"] if each["name"] == "defensibility")
    assert (audit["hard_fail"], audit["retrained"]) == (False, 1.0)
    assert step["evidence"]["asked_again"]["same"] is True


@pytest.mark.parametrize(
    ("fired", "lr", "acting"),
    [
        ({"R7": "not_finite", "R1": "high"}, 0.1, ["R7"]),
        ({"R7": "not_finite"}, MIN_LR, []),  # no lower rate is allowed
        ({"R7": "high", "R1": "high"}, 0.1, []),
        ({"R1": "plateau", "R3": "plateau"}, 0.1, []),
    ],
)
def test_only_a_number_that_is_not_finite_is_acted_on(
    fired: dict[str, str], lr: float, acting: list[str]
) -> None:
    seen = observe(Random(0), fired, settings=Settings(lr=lr, batch_size=64))
    decisions = FreshOnNanPolicy().decide(seen)
    assert [each.cites for each in decisions] == [(rule,) for rule in seen.due]
    assert [each.cites[0] for each in decisions if each.acts] == acting
    for decision in decisions:
        validate_decision(parse_decision(decision.to_dict()), seen)
