"""The policy that asks a model: one question, one repair, and silence in the driver's name."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from chat_server import (
    Behaviour,
    ChatServer,
    Reply,
    act,
    act_on_first,
    completion,
    decide,
    defer,
    defer_all,
    defer_r1,
    due_rules,
)
from situations import MemoryLog, observe
from tiny_training import STUCK, MemoryBlobs, train_tiny

from aggregates.campaign import MODE
from aggregates.decisions import Observation, Said
from aggregates.transcript import Transcript
from policies.chat import ChatClient
from policies.language_model import LanguageModelPolicy
from policies.settings import ModelSettings

KEY = "sk-canary-model-8841"
SEEN = observe({"R5": "high", "R1": "high", "R2": "low"})


class Asking:
    """A policy at a server with some behaviour, and all that it left."""

    def __init__(self, behaviour: Behaviour, **more: Any) -> None:
        self.server = ChatServer(behaviour)
        self.log, self.blobs = MemoryLog(), MemoryBlobs()
        given = {name: more.pop(name) for name in ("answers", "feedback") if name in more}
        self.settings = ModelSettings(
            **{"model": "m", "base_url": self.server.url, "timeout": 5.0, "retries": 1, **more}
        )
        self.policy = LanguageModelPolicy(
            self.settings,
            client=ChatClient(self.settings, KEY),
            rung="json_object",
            log=self.log,
            blobs=self.blobs,
            **given,
        )

    def decide(self, seen: Observation = SEEN) -> list[Said]:
        with self.server:
            return self.policy.decide(seen)

    @property
    def calls(self) -> list[Any]:
        return self.log.events(Transcript.CallMade)


def test_every_due_rule_is_asked_about_in_one_question() -> None:
    asking = Asking(decide(act_on_first))
    said = asking.decide()
    assert [(one.decision.cites, one.decision.acts, one.source) for one in said] == [
        (("R5",), True, "policy"),
        (("R1",), False, "policy"),
        (("R2",), False, "policy"),
    ]
    (call,) = asking.calls
    assert (call.agent, call.action, call.outcome) == ("decider", "decide", "usable")
    assert (call.rules, call.epoch, call.rung) == (["R5", "R1", "R2"], 5, "json_object")
    assert call.parameters == {"temperature": 0.2, "max_tokens": 1024}
    assert json.loads(asking.blobs[call.request]) == asking.server.requests[0]
    assert json.loads(asking.blobs[call.response])["choices"]
    assert (call.request_bytes, call.response_bytes) == (
        len(asking.blobs[call.request]),
        len(asking.blobs[call.response]),
    )


def test_what_is_not_usable_is_asked_again_with_the_problem_named() -> None:
    def answer(request: dict[str, Any]) -> Any:
        if len(due_rules(request)) == 3:
            wrong = {**act(request, "R1"), "params": {"lr": 99.0}}
            return {"decisions": [defer("R5"), wrong]}
        return defer_all(request)

    asking = Asking(decide(answer))
    said = asking.decide()
    assert [one.decision.cites for one in said] == [("R5",), ("R1",), ("R2",)]
    assert {one.source for one in said} == {"policy"}
    first, second = asking.calls
    assert (first.outcome, second.action, second.rules) == ("usable", "repair", ["R1", "R2"])
    assert first.problem == (
        "R1: lr must lie from 1e-08 to 10, not 99.0; R2: there is no decision on it"
    )
    assert "lr must lie from" in asking.server.requests[1]["messages"][1]["content"]


@pytest.mark.parametrize("repairs", [0, 2])
def test_what_stays_open_is_answered_in_the_drivers_name(repairs: int) -> None:
    asking = Asking(decide(lambda _: {"decisions": [defer("R1")]}), repairs=repairs)
    said = asking.decide()
    assert [(one.decision.cites[0], one.source) for one in said] == [
        ("R5", "driver"),
        ("R1", "policy"),
        ("R2", "driver"),
    ]
    silence = said[0].decision
    assert (silence.event_type, silence.direction) == ("rule_triggered_no_action", "defer")
    assert silence.justification.startswith("no usable answer: unusable: there is no decision on it")
    assert len(asking.calls) == 1 + repairs


# What a server does, how often it is asked, what the call comes to: the page's table, row by row.
FAILURES: Mapping[str, tuple[Reply, int, str]] = {
    "prose": (Reply(completion("I would lower it.")), 2, "unusable"),
    "no completion": (Reply(b"<html>"), 2, "unusable"),
    "empty choices": (Reply({"choices": []}), 2, "unusable"),
    "cut off": (Reply(completion("{", finish_reason="length")), 2, "truncated"),
    "refusal": (Reply(completion(None, refusal="I will not.")), 1, "refused"),
    "filter": (Reply(completion("", finish_reason="content_filter")), 1, "refused"),
    "too large": (Reply(b" " * (16 * 2**20 + 1)), 1, "too_large"),
    "bad request": (Reply({"error": {"message": "no"}}, 400), 1, "rejected"),
    "no access": (Reply({"error": {"message": "no"}}, 401), 1, "rejected"),
    "redirect": (Reply(b"", 302, {"location": "http://127.0.0.1:1/"}), 1, "rejected"),
    "rate": (Reply(b"", 429, {"retry-after-ms": "5"}), 2, "rate_limited"),
    "long rate": (Reply(b"", 429, {"retry-after": "600"}), 1, "rate_limited"),
    "server timeout": (Reply(b"", 408, {"retry-after-ms": "5"}), 2, "timeout"),
    "error": (Reply(b"", 500, {"retry-after-ms": "5"}), 2, "server_error"),
    "overload": (Reply(b"", 503, {"retry-after-ms": "5"}), 2, "server_error"),
    "drop": (Reply(completion("{}"), drop=9), 2, "dropped"),
    "silence": (Reply(delay=9.0), 1, "timeout"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_of_a_server_has_one_outcome_and_the_run_goes_on(name: str) -> None:
    reply, requests, outcome = FAILURES[name]
    asking = Asking(lambda *_: reply, timeout=1.0)
    said = asking.decide()
    assert [one.decision.cites[0] for one in said] == list(SEEN.due)
    assert {one.source for one in said} == {"driver"}
    assert all(
        one.decision.justification.startswith(f"no usable answer: {outcome}: ") for one in said
    )
    assert {call.outcome for call in asking.calls} == {outcome}
    assert len(asking.server.requests) == requests


def test_stability_rules_are_put_to_the_vote_with_seeds_of_their_own() -> None:
    def answer(request: dict[str, Any]) -> Any:
        if request.get("seed") == 12:
            return defer_all(request)
        return act_on_first(request)

    asking = Asking(decide(answer), votes=3, seed=11)
    said = asking.decide(observe({"R7": "high", "R1": "high"}))
    assert [(one.decision.cites[0], one.decision.direction) for one in said] == [
        ("R7", "decrease_lr"),
        ("R1", "decrease_lr"),
    ]
    assert [(call.agent, call.rules) for call in asking.calls] == [
        ("voter 1", ["R7"]),
        ("voter 2", ["R7"]),
        ("voter 3", ["R7"]),
        ("decider", ["R1"]),
    ]
    assert [request["seed"] for request in asking.server.requests] == [11, 12, 13, 11]
    (vote,) = asking.log.events(Transcript.VoteCounted)
    assert (vote.votes, vote.chosen) == ({"decrease_lr": 2, "defer": 1}, "decrease_lr")
    assert vote.agreement == pytest.approx(2 / 3)


def test_vote_without_a_usable_ballot_leaves_the_rule_to_the_driver() -> None:
    asking = Asking(lambda *_: Reply(completion("no")), votes=3)
    (said,) = asking.decide(observe({"R7": "high"}))
    assert (said.source, said.decision.acts) == ("driver", False)
    (vote,) = asking.log.events(Transcript.VoteCounted)
    assert (vote.votes, vote.chosen, vote.agreement) == ({"unusable": 3}, None, 0.0)


class Earlier(dict[str, str]):
    """Usable answers by the hash of their request."""

    def find(self, request: str) -> str | None:
        return self.get(request)


@pytest.mark.parametrize("cache", [True, False])
def test_very_same_request_is_answered_from_the_cache_where_one_is_wanted(cache: bool) -> None:
    answers = Earlier()
    asking = Asking(decide(act_on_first), cache=cache, answers=answers, price_in=1.0, price_out=1.0)
    with asking.server:
        said = asking.policy.decide(SEEN)
        answers.update({call.request: call.response for call in asking.calls})
        assert asking.policy.decide(SEEN) == said
        asking.policy.decide(observe({"R5": "high"}))
    assert [call.cached for call in asking.calls] == [False, cache, False]
    assert len(asking.server.requests) == (2 if cache else 3)
    again = asking.calls[1]
    assert (again.outcome, again.response) == ("usable", asking.calls[0].response)
    if cache:
        assert (again.usage, again.cost, again.status) == (None, 0.0, None)


def test_feedback_reaches_the_model_and_can_change_its_mind() -> None:
    seen = observe({"R1": "high"})
    feedback = {"attempts": [{"number": 1, "deferred_too_long": ["R1"]}]}
    stubborn, told = Asking(decide(defer_r1)), Asking(decide(defer_r1), feedback=feedback)
    assert [one.decision.acts for one in (*stubborn.decide(seen), *told.decide(seen))] == [
        False,
        True,
    ]


def test_description_names_mode_and_settings_and_no_secret() -> None:
    asking = Asking(
        decide(defer_all), base_url="http://me:pass-1234@127.0.0.1:1/v1?token=query-1234"
    )
    described = asking.policy.describe()
    assert (described["mode"], described["rung"], described["model"]) == (MODE, "json_object", "m")
    assert described["base_url"] == "http://127.0.0.1:1/v1"
    assert "1234" not in json.dumps(described)


def test_training_goes_on_under_a_server_that_repeats_the_key_in_every_answer() -> None:
    def echo(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        answer = act_on_first(request)
        for decision in answer["decisions"]:
            decision["justification"] = f"{headers['authorization']} and {request['model']}"
        return Reply(completion(answer))

    asking = Asking(echo)
    with asking.server:
        trained = train_tiny(policy=asking.policy, settings=STUCK)
    said = [past for past in trained.run.decisions if past.source == "policy"]
    assert said
    assert {past.decision.justification for past in said} == {"[secret] and m"}
    assert KEY not in repr(trained.bodies()) + repr(asking.calls)
    assert not any(KEY.encode() in content for content in asking.blobs.values())


def test_same_situation_makes_the_same_request_byte_for_byte() -> None:
    asking = Asking(decide(defer_all))
    with asking.server:
        asking.policy.decide(SEEN)
        asking.policy.decide(SEEN)
    assert len({call.request for call in asking.calls}) == 1
