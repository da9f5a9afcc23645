"""Campaigns: attempts, those that are abandoned, and what attempts are told."""

import pytest

from aggregates.campaign import Campaign
from aggregates.errors import InvariantError


def begun(*, attempts: int = 2, feedback: bool = True) -> Campaign:
    return Campaign.start(
        config={"lr": 0.1}, attempts=attempts, policy={"name": "openai"}, feedback=feedback
    )


def test_abandoned_attempt_gives_its_number_back_and_is_not_ranked() -> None:
    campaign = begun()
    campaign.start_attempt("a")
    campaign.abandon_attempt("a", "its process died")
    assert campaign.start_attempt("b") == 1
    assert campaign.start_attempt("c", parent_run="b") == 2
    with pytest.raises(InvariantError, match="all 2 attempts"):
        campaign.start_attempt("d")
    with pytest.raises(InvariantError, match="must name the run of every counted attempt"):
        campaign.end("completed", ranking=["a", "b", "c"])
    campaign.end("completed", ranking=["c", "b"])
    assert (campaign.runs, campaign.abandoned, campaign.ranking) == (
        ["b", "c"],
        ["a"],
        ["c", "b"],
    )


def test_only_the_latest_attempt_is_abandoned() -> None:
    campaign = begun()
    campaign.start_attempt("a")
    campaign.start_attempt("b")
    for run in ("a", "x"):
        with pytest.raises(InvariantError, match="not the latest attempt"):
            campaign.abandon_attempt(run, "its process died")
    campaign.abandon_attempt("b", "its process died")
    with pytest.raises(InvariantError, match="run b is already an attempt"):
        campaign.start_attempt("b")
    with pytest.raises(InvariantError, match="parent run b is not an attempt"):
        campaign.start_attempt("c", parent_run="b")


def test_attempt_is_told_once_also_when_it_is_made_again() -> None:
    campaign = begun()
    campaign.start_attempt("a")
    campaign.give_feedback({"of": "a"})
    with pytest.raises(InvariantError, match="attempt 2 has already been given feedback"):
        campaign.give_feedback({"of": "a"})
    campaign.start_attempt("b")
    campaign.abandon_attempt("b", "its process died")
    assert campaign.told[campaign.number + 1] == {"of": "a"}
    with pytest.raises(InvariantError, match="attempt 2 has already been given feedback"):
        campaign.give_feedback({"of": "b"})


def test_audit_that_counts_is_named_once_and_only_of_an_attempt() -> None:
    campaign = begun()
    campaign.start_attempt("a")
    with pytest.raises(InvariantError, match="run x is not an attempt"):
        campaign.judge_attempt("x", "audit 1")
    campaign.judge_attempt("a", "audit 1")
    with pytest.raises(InvariantError, match="run a is already judged"):
        campaign.judge_attempt("a", "audit 2")
    with pytest.raises(InvariantError, match="run a is already judged"):
        campaign.abandon_attempt("a", "it was not good enough")
    assert campaign.audits == {"a": "audit 1"}


def test_feedback_is_refused_when_the_campaign_gives_none() -> None:
    with pytest.raises(InvariantError, match="without feedback"):
        begun(feedback=False).give_feedback({})
    begun().give_feedback({})


def test_nothing_follows_the_end() -> None:
    campaign = begun()
    campaign.start_attempt("a")
    campaign.end("completed", ranking=["a"])
    for follow in (
        lambda: campaign.start_attempt("b"),
        lambda: campaign.abandon_attempt("a", "late"),
        lambda: campaign.judge_attempt("a", "audit"),
        lambda: campaign.give_feedback({}),
        lambda: campaign.end("again", ranking=["a"]),
    ):
        with pytest.raises(InvariantError, match="has ended"):
            follow()
