"""The policy whose decisions come from weights: what they change, and which are refused."""

import json

import pytest
from handmade_network import network_for, pack, weights_for
from situations import observe, signals
from studies.reference.seeds import make
from studies.reference.simulated_training import Scenario, SimulatedOutcome, play

from aggregates.rulebook import RULES
from aggregates.weights import describe_tensors, read_tensors
from policies.deciding.catalogue import create_policy
from policies.deciding.network import FEATURES, Network, NetworkPolicy, features, load_network
from policies.errors import PolicyError


def played(policy: NetworkPolicy, kind: str, difficulty: str) -> SimulatedOutcome:
    scenario = Scenario.from_dict(make(kind, 0, difficulty).expected["scenario"])
    return play(scenario, lambda seen: [each.to_dict() for each in policy.decide(seen)])


@pytest.mark.parametrize(("kind", "difficulty"), [("network", "medium"), ("rescue-dead", "easy")])
def test_weights_decide_whether_a_training_comes_right(kind: str, difficulty: str) -> None:
    networks = (network_for(()), network_for(("R1",)), network_for(RULES), load_network())
    outcomes = [played(NetworkPolicy(each), kind, difficulty) for each in networks]
    assert [each.well for each in outcomes] == [False, False, True, True]
    assert not any(each.problems for each in outcomes)


def test_first_rule_that_the_network_acts_on_goes_first() -> None:
    seen = observe({"R7": "high", "R6": "low", "R1": "high"})
    said = NetworkPolicy(network_for(("R6", "R1"))).decide(seen)
    assert [each.cites[0] for each in said] == list(seen.due) == ["R7", "R6", "R1"]
    assert [each.acts for each in said] == [False, True, False]
    assert [dict(each.params) for each in said if not each.acts] == [{}, {"deferred_to": "R6"}]


def test_run_records_which_weights_decided() -> None:
    policy = create_policy("network")
    assert policy.describe() == {"name": "network", "weights": load_network().sha256}
    assert NetworkPolicy(network_for(())).describe() != policy.describe()


def test_features_are_bounded_whatever_was_measured() -> None:
    nan, huge = float("nan"), float("inf")
    broken = signals(0, train_loss=nan, val_loss=huge, max_layer_grad_norm=huge, dead_share=None)
    found = features("R7", observe({"R7": "not_finite"}, ema=huge, history=(broken,)))
    assert len(found) == len(FEATURES)
    assert all(-5.0 <= each <= 5.0 for each in found)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"words", "not a safetensors file"),
        (weights_for(())[:-4], "not a safetensors file"),
        (pack({"w": ([2], [1.0, float("nan")])}), "w has a value that is not finite"),
        (pack({"w": ([2], [1.0, 2.0])}), "must have the shapes"),
        (pack({"w": ([2], [1.0, 2.0])}).replace(b"F32", b"I32"), "F32 is expected"),
    ],
)
def test_weights_that_are_no_network_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        Network.read(data)


def test_tensors_are_read_as_they_were_written() -> None:
    data = pack({"b": ([1], [0.5]), "a": ([2, 2], [1.0, -2.0, 0.25, 0.0])})
    assert describe_tensors(data) == ["a: F32 [2, 2]", "b: F32 [1]"]
    found = read_tensors(data)
    assert (found["a"].shape, found["a"].values) == ((2, 2), (1.0, -2.0, 0.25, 0.0))


def test_tensor_whose_name_would_forge_a_line_is_shown_on_one_line() -> None:
    forged = "a: F32 [1]\nb"
    data = pack({forged: ([1], [0.5])})
    assert describe_tensors(data) == [f"{json.dumps(forged)}: F32 [1]"]
