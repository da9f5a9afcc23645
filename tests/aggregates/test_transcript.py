"""Transcripts: what a call may hold, votes, and what people make of proposals."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from synthetic import synthetic_call

from aggregates.decisions import MAX_JUSTIFICATION, Decision
from aggregates.errors import InvariantError
from aggregates.playbook import ARCHITECTURE_CHANGE, DEFER, NO_ACTION
from aggregates.registry import REGISTRY
from aggregates.rulebook import RULES
from aggregates.transcript import (
    MAX_ENDPOINT,
    MAX_NAME,
    MAX_PARAMETERS,
    MAX_RETRIES,
    MAX_TEXT,
    OUTCOMES,
    Transcript,
)
from ledger.application import LedgerApplication

NORM = Decision(ARCHITECTURE_CHANGE, ("R6",), "add_norm", {}, "R6 is low")
NOT_NOW = Decision(NO_ACTION, ("R6",), DEFER, {}, "not now")


def begun() -> Transcript:
    return Transcript.start(str(uuid4()), policy={"name": "openai", "model": "small"})


def added(call: dict[str, Any]) -> Any:
    """Return the call's event as it is read back from a log."""
    log = LedgerApplication.in_memory(REGISTRY)
    transcript = begun()
    transcript.add(**call)
    log.save(transcript)
    return list(log.events.get(transcript.id))[-1]


def test_calls_are_numbered_and_counted_again_from_their_events() -> None:
    log = LedgerApplication.in_memory(REGISTRY)
    run_id = uuid4()
    transcript = Transcript.start(str(run_id), policy={})
    assert [transcript.add(**synthetic_call(outcome)) for outcome in OUTCOMES] == list(range(1, 12))
    log.save(transcript)
    again: Transcript = log.repository.get(Transcript.id_of(run_id))
    assert again.calls == 11
    [first] = [event for event in log.events.get(again.id) if type(event) is Transcript.Started]
    assert (first.run, first.mode) == (str(run_id), "iterative_self_refine")
    assert again.add(**synthetic_call()) == 12


def test_call_is_recorded_as_it_was_made() -> None:
    event = added(synthetic_call("unusable", problem="R6: no decision", cached=True))
    assert (event.number, event.rules, event.outcome) == (1, ["R6"], "unusable")
    assert event.usage == {"prompt_tokens": 300, "completion_tokens": 40, "total_tokens": 340}
    assert (event.problem, event.cached, event.cost) == ("R6: no decision", True, 0.001)


def test_agents_without_a_model_are_recorded_with_their_time() -> None:
    event = added(
        {"agent": "playbook", "action": "decide", "outcome": "usable", "epoch": 0, "seconds": 0.25}
    )
    assert (event.agent, event.seconds, event.model, event.usage) == ("playbook", 0.25, None, None)


def test_words_of_servers_are_cut_and_stay_text() -> None:
    retry = {"status": 503, "error": "\udfff" * 9_999, "waited": 1, "headers": "more"}
    event = added(
        synthetic_call(
            "server_error",
            problem="\ud800" + "x" * 10_000_000,
            finish_reason="\ud800" * 9_999,
            retries=(retry,) * 99,
        )
    )
    assert event.problem == "?" + "x" * (MAX_TEXT - 1)
    assert len(event.finish_reason) == 200
    assert event.retries == [{"status": 503, "error": "?" * MAX_NAME, "waited": 1.0}] * MAX_RETRIES


def test_largest_events_fit_into_the_ledger(tmp_path: Path) -> None:
    wide = "\U0001f600"
    words = replace(NORM, justification=wide * MAX_JUSTIFICATION).to_dict()
    transcript = begun()
    transcript.add(
        **synthetic_call(
            problem=wide * 9_999,
            agent=wide * 9_999,
            model=wide * MAX_NAME,
            rung=wide * MAX_NAME,
            endpoint="http://" + wide * (MAX_ENDPOINT - 7),
            finish_reason=wide * 9_999,
            parameters={"p": "x" * (MAX_PARAMETERS - 9)},
            rules=RULES,
            retries=({"error": wide * 9_999, "status": 599, "waited": 9.0},) * 99,
        )
    )
    transcript.review_proposal(
        epoch=2,
        proposed=words,
        verdict="approve",
        decision=words,
        note=wide * 9_999,
    )
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        log.save(transcript)
        assert len(list(log.events.get(transcript.id))) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": "fine"}, "outcome must be one of usable"),
        ({"action": "wonder"}, "action must be one of decide"),
        ({"epoch": None}, "a call must have an epoch unless"),
        ({"action": "probe"}, "a call must have an epoch unless"),
        ({"rules": ("R99",)}, "rules must be a list, each one of R1"),
        ({"model": None}, "only a call to a model may have"),
        ({"model": "m" * 201}, "model must be text of at most 200 characters"),
        (
            {"endpoint": "http://host/" + "p" * 500},
            "endpoint must be text of at most 500",
        ),
        ({"endpoint": "http://user:secret@host/v1"}, "without user and query"),
        ({"endpoint": "http://host/v1?key=secret"}, "without user and query"),
        ({"endpoint": "http://[host/v1"}, "without user and query"),
        ({"request": "sha256:" + "0" * 57}, "given by its SHA-256"),
        ({"response": "../" + "0" * 61}, "given by its SHA-256"),
        ({"usage": {"prompt_tokens": 10**30}}, "usage must be a map, each value a whole number"),
        ({"usage": {"prompt_tokens": -1}}, "usage must be a map, each value a whole number"),
        ({"usage": {"total_tokens": True}}, "usage must be a map, each value a whole number"),
        ({"status": 10**6}, "status must be a whole number"),
        ({"seconds": math.inf}, "seconds must be a finite number"),
        ({"cost": math.nan}, "cost must be a finite number"),
        ({"cost": -0.1}, "cost must be a finite number"),
        ({"parameters": {"temperature": math.nan}}, "cannot be written as JSON"),
        ({"parameters": {"messages": "x" * 4_000}}, "the maximum is 4000"),
        ({"retries": ({"waited": math.nan},)}, "waited must be a finite number"),
    ],
)
def test_call_that_cannot_be_recorded_is_rejected(changes: dict[str, Any], message: str) -> None:
    transcript = begun()
    with pytest.raises(InvariantError, match=message):
        transcript.add(**synthetic_call(**changes))
    assert transcript.calls == 0
    assert transcript.add(**synthetic_call()) == 1


@pytest.mark.parametrize(
    ("votes", "chosen", "agreement"),
    [
        ({"add_norm": 3}, "add_norm", 1.0),
        ({"add_norm": 2, "add_residual": 1}, "add_norm", 2 / 3),
        ({"add_norm": 1, "unusable": 2}, "add_norm", 1 / 3),
        ({"unusable": 3}, None, 0.0),
    ],
)
def test_agreement_is_the_share_of_all_ballots(
    votes: dict[str, int], chosen: str | None, agreement: float
) -> None:
    transcript = begun()
    number = transcript.add(**synthetic_call())
    found = transcript.count_votes(epoch=2, rule="R6", votes=votes, chosen=chosen, calls=[number])
    assert found == agreement


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "R99"}, "must be for a rule"),
        ({"votes": {}}, "counts of directions"),
        ({"votes": {"pray": 1}}, "counts of directions"),
        ({"votes": {"add_norm": 0}}, "counts of directions"),
        ({"chosen": "widen"}, "one of the directions voted for"),
        ({"chosen": None}, "one of the directions voted for"),
        ({"votes": {"unusable": 1}, "chosen": "unusable"}, "one of the directions voted for"),
        ({"calls": []}, "ballots must come from calls"),
        ({"calls": [2]}, "ballots must come from calls"),
    ],
)
def test_count_that_does_not_add_up_is_rejected(changes: dict[str, Any], message: str) -> None:
    transcript = begun()
    transcript.add(**synthetic_call())
    honest = {"epoch": 2, "rule": "R6", "votes": {"add_norm": 1}, "chosen": "add_norm"}
    with pytest.raises(InvariantError, match=message):
        transcript.count_votes(**{**honest, "calls": [1], **changes})
    assert transcript.count_votes(**honest, calls=[1]) == 1.0  # type: ignore[arg-type]


def test_review_keeps_what_was_proposed_and_what_was_said() -> None:
    transcript = begun()
    norm, not_now = NORM.to_dict(), NOT_NOW.to_dict()
    transcript.review_proposal(epoch=2, proposed=norm, verdict="approve", decision=norm)
    transcript.review_proposal(
        epoch=2, proposed=norm, verdict="reject", decision=not_now, mark="bad", note="x" * 999
    )
    event = transcript.collect_events()[-1]
    assert isinstance(event, Transcript.ProposalReviewed)
    assert (event.proposed, event.decision) == (NORM.to_dict(), NOT_NOW.to_dict())
    assert (event.mark, len(event.note)) == ("bad", MAX_TEXT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "shrug"}, "the verdict on a proposal"),
        ({"mark": "fine"}, "must be bad or gold"),
        ({"verdict": "approve", "decision": NOT_NOW.to_dict()}, "recorded as it was proposed"),
        ({"verdict": "reject", "decision": NORM.to_dict()}, "a rejection must be recorded as"),
    ],
)
def test_review_that_contradicts_itself_is_rejected(changes: dict[str, Any], message: str) -> None:
    honest: dict[str, Any] = {
        "epoch": 2,
        "proposed": NORM.to_dict(),
        "verdict": "edit",
        "decision": NOT_NOW.to_dict(),
    }
    begun().review_proposal(**honest)
    with pytest.raises(InvariantError, match=message):
        begun().review_proposal(**{**honest, **changes})
