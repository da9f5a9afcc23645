"""What is said of Proctor's policies, which curation, help and warnings follow, is true of them."""

from aggregates.comparison import OWN_POLICIES
from policies.deciding.catalogue import POLICIES
from policies.deciding.rescue import RescuePolicy
from proctor.runs.policies import HUMAN, MIXED, OPENAI


def test_every_policy_of_proctor_is_declared() -> None:
    assert {*POLICIES, OPENAI, MIXED, HUMAN} == OWN_POLICIES.keys()


def test_policies_that_decide_alone_have_no_weights_and_ask_nobody() -> None:
    alone = {name for name, make in POLICIES.items() if "weights" not in make().describe()}
    assert alone == {name for name, own in OWN_POLICIES.items() if own.alone}


def test_policies_that_go_back_are_those_that_rescue() -> None:
    going = {name for name, make in POLICIES.items() if isinstance(make(), RescuePolicy)}
    assert going == {name for name, own in OWN_POLICIES.items() if own.goes_back}
