"""Votes on stability rules: counted, recorded, and won by one voter's own words."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from situations import MemoryLog, observe

from aggregates.decisions import Decision, Observation
from aggregates.playbook import ARCHITECTURE_CHANGE, DEFER, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.transcript import UNUSABLE, Transcript
from policies.ensemble import VOTED, Ballot, count_ballots, elect, put_to_vote

NORM = Decision(ARCHITECTURE_CHANGE, ("R6",), "add_norm", {}, "norms are missing")
SWAP = Decision(ARCHITECTURE_CHANGE, ("R6",), "swap_activation", {"to": "gelu"}, "swap it")
OTHER_SWAP = Decision(ARCHITECTURE_CHANGE, ("R6",), "swap_activation", {"to": "prelu"}, "swap")
WAIT = Decision(NO_ACTION, ("R6",), DEFER, {}, "an epoch will tell")


def voters(log: MemoryLog, said: Sequence[Decision | None]) -> Callable[..., Ballot]:
    """An ask() that answers what it is given, one voter after the other, each a recorded call."""

    def ask(observation: Observation, /, *, agent: str, voter: int) -> Ballot:
        decision = said[voter]
        number = log.add(
            agent=agent,
            action="decide",
            outcome="usable" if decision else "unusable",
            epoch=observation.epoch,
            rules=observation.due,
        )
        return Ballot(number, decision, None if decision else f"voter {voter}: no JSON")

    return ask


def hold(*said: Decision | None) -> tuple[Ballot, Transcript.VoteCounted, MemoryLog]:
    log = MemoryLog()
    seen = observe({"R6": "low", "R1": "high"})
    won = put_to_vote("R6", seen, ask=voters(log, said), votes=len(said), log=log)
    (counted,) = log.events(Transcript.VoteCounted)
    return won, counted, log


def test_stability_rules_are_voted_on_and_no_others() -> None:
    assert VOTED == ("R7", "R6")


def test_majority_wins_with_its_first_voters_words_and_agreement_is_recorded() -> None:
    won, counted, _ = hold(NORM, SWAP, OTHER_SWAP)
    assert won.decision is SWAP
    assert counted.votes == {"add_norm": 1, "swap_activation": 2}
    assert counted.chosen == "swap_activation"
    assert counted.agreement == pytest.approx(2 / 3)
    assert counted.calls == [1, 2, 3]


def test_tie_goes_to_the_direction_that_was_voted_for_first() -> None:
    assert hold(NORM, SWAP)[0].decision is NORM
    assert hold(SWAP, NORM, NORM, OTHER_SWAP)[0].decision is SWAP


def test_unusable_ballots_agree_with_nobody_and_win_nothing() -> None:
    won, counted, _ = hold(None, None, WAIT)
    assert won.decision is WAIT
    assert counted.votes == {UNUSABLE: 2, DEFER: 1}
    assert counted.agreement == pytest.approx(1 / 3)


def test_vote_without_a_usable_ballot_chooses_nothing_and_keeps_the_problem() -> None:
    won, counted, _ = hold(None, None)
    assert won == Ballot(1, None, "voter 0: no JSON")
    assert (counted.chosen, counted.agreement) == (None, 0.0)


def test_each_voter_is_asked_about_the_one_rule_under_a_name_of_its_own() -> None:
    _, _, log = hold(NORM, NORM, SWAP)
    calls = log.events(Transcript.CallMade)
    assert [call.agent for call in calls] == ["voter 1", "voter 2", "voter 3"]
    assert all(call.rules == ["R6"] for call in calls)


decisions = st.sampled_from([NORM, SWAP, OTHER_SWAP, WAIT])


@given(st.lists(decisions | st.none(), min_size=1, max_size=15))
def test_no_direction_has_more_ballots_than_the_winners(said: list[Decision | None]) -> None:
    ballots = [Ballot(number, decision, None) for number, decision in enumerate(said, start=1)]
    won, counts = elect(ballots), count_ballots(ballots)
    assert won in ballots
    usable = {direction: count for direction, count in counts.items() if direction != UNUSABLE}
    if not usable:
        assert won is ballots[0]
        return
    assert won.decision
    assert counts[won.decision.direction] == max(usable.values())
    same = [b for b in ballots if b.decision and b.decision.direction == won.decision.direction]
    assert won is same[0]
    assert sum(counts.values()) == len(ballots)


def test_decisions_of_one_direction_agree_whatever_their_parameters() -> None:
    slow = Decision(HYPERPARAMETER_CHANGE, ("R7",), "decrease_lr", {"lr": 0.01}, "smaller")
    clipped = Decision(
        HYPERPARAMETER_CHANGE, ("R7",), "decrease_lr", {"lr": 0.01, "clip_norm": 1.0}, "clip too"
    )
    assert count_ballots([Ballot(1, slow, None), Ballot(2, clipped, None)]) == {"decrease_lr": 2}
