"""The policy that asks a model: one question, one repair, and silence in the driver's name."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
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
    tool_call,
)
from situations import MemoryLog, observe
from tiny_training import STUCK, MemoryBlobs, train_tiny

from aggregates.campaign import MODE
from aggregates.decisions import Observation, Said
from aggregates.transcript import OUTCOMES, Transcript
from ledger.errors import BlobError
from policies.asking.ask import Asker
from policies.asking.chat import ChatClient
from policies.asking.settings import ModelSettings
from policies.deciding.language_model import LanguageModelPolicy

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "language-models.md"
KEY = "sk-canary-model-8841"
SEEN = observe({"R5": "high", "R1": "high", "R2": "low"})


class Asking:
    """A policy at a server with some behaviour, and all that it left."""

    def __init__(self, behaviour: Behaviour, **more: Any) -> None:
        self.server = ChatServer(behaviour)
        self.log, self.blobs = MemoryLog(), more.pop("blobs", MemoryBlobs())
        answers, feedback = more.pop("answers", None), more.pop("feedback", None)
        self.settings = ModelSettings(
            **{"model": "m", "base_url": self.server.url, "timeout": 5.0, "retries": 1, **more}
        )
        client = ChatClient(self.settings, KEY)
        asker = Asker(self.settings, client=client, log=self.log, blobs=self.blobs, answers=answers)
        rung = self.settings.rung or "json_object"
        self.policy = LanguageModelPolicy(asker, rung=rung, feedback=feedback)

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
        "R1: lr must be a number from 1e-08 to 10, not 99.0; R2: there is no decision on it"
    )
    assert "lr must be a number from" in asking.server.requests[1]["messages"][1]["content"]


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
    assert silence.justification.startswith("no usable answer: unusable: there is no")
    assert len(asking.calls) == 1 + repairs


BUSY = {"retry-after-ms": "5"}
# The rows of the page's table, each with replies of servers that do so; None: nobody is there.
FAILURES: Mapping[str, list[Reply | None]] = {
    "answers in prose, or JSON that is no decision": [
        Reply(completion("I would lower it.")),
        Reply(completion({"decisions": [defer("R9")]})),
        Reply(completion({"decisions": []})),
    ],
    "sends no chat completion: HTML, broken JSON, bytes": [
        Reply(b"<html>"),
        Reply(b'{"choices": '),
        Reply(b"\xff\x00"),
    ],
    "sends empty choices": [Reply({"choices": []})],
    "calls the tool with broken arguments": [Reply(tool_call("{"))],
    "sends a compressed body, which nobody asked for": [
        Reply(gzip.compress(b"{}"), headers={"content-encoding": "gzip"})
    ],
    "ends at the token limit (`finish_reason` `length`)": [
        Reply(completion("{", finish_reason="length"))
    ],
    "refuses (`refusal`)": [Reply(completion(None, refusal="I will not."))],
    "holds back by a filter (`content_filter`)": [
        Reply(completion("", finish_reason="content_filter"))
    ],
    "sends more than 16 MiB": [Reply(b" " * (16 * 2**20 + 1))],
    "answers 400, 401, 403, 404, 413, 422": [
        Reply({"error": {"message": "no"}}, status) for status in (400, 401, 403, 404, 413, 422)
    ],
    "redirects (3xx)": [Reply(b"", 302, {"location": "http://127.0.0.1:1/"})],
    "answers 429, Retry-After within the timeout": [Reply(b"", 429, BUSY)],
    "answers 429, Retry-After beyond the timeout or 120 s": [
        Reply(b"", 429, {"retry-after": "600"})
    ],
    "answers 408": [Reply(b"", 408, BUSY)],
    "answers 409, 500, 503 or another 5xx": [
        Reply(b"", status, BUSY) for status in (409, 500, 503, 529)
    ],
    "drops the connection, or speaks no HTTP": [
        Reply(completion("{}"), drop=9),
        Reply(drop=-1),
    ],
    "never answers, or drips headers or body": [
        Reply(delay=9.0),
        Reply(drip_headers=True),
        Reply(completion("{}"), drip=0.1),
    ],
    "is not there, or its certificate is not trusted": [None],
}


def page_rows() -> dict[str, list[str]]:
    """Return the page's table of failures by its first column."""
    text = PAGE.read_text(encoding="utf-8").partition("## What a server does")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_page_has_a_row_for_each_failure_and_an_outcome_for_each_that_exists() -> None:
    rows = page_rows()
    assert list(rows) == list(FAILURES)
    outcomes = {row[1].strip("`") for row in rows.values()}
    assert outcomes == set(OUTCOMES) - {"usable"}


@pytest.mark.parametrize(
    ("does", "reply"), [(does, reply) for does, replies in FAILURES.items() for reply in replies]
)
@pytest.mark.sampled(2)
def test_failure_of_a_server_ends_as_the_page_says_and_the_run_goes_on(
    does: str, reply: Reply | None
) -> None:
    retried, outcome, repaired = page_rows()[does]
    away = {"base_url": "http://127.0.0.1:9/v1"} if reply is None else {}
    asking = Asking(lambda *_: reply or Reply(), timeout=0.9 if "never" in does else 9.0, **away)
    if "the tool" in does:
        asking = Asking(lambda *_: reply or Reply(), rung="tool")
    said = asking.decide()
    outcome = outcome.strip("`")
    assert [one.decision.cites[0] for one in said] == list(SEEN.due)
    assert {one.source for one in said} == {"driver"}
    for one in said:
        assert one.decision.justification.startswith(f"no usable answer: {outcome}: ")
    assert {call.outcome for call in asking.calls} == {outcome}
    assert len(asking.calls) == {"yes": 2, "no": 1}[repaired]
    assert {len(call.retries) for call in asking.calls} == {int(retried.startswith("yes"))}


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


class LostBlobs(MemoryBlobs):
    """Takes everything and finds nothing again."""

    def get(self, digest: str) -> bytes:  # type: ignore[override]
        raise BlobError(f"{digest} is not here")


def test_cached_answer_that_is_lost_is_asked_for_again() -> None:
    answers = Earlier()
    asking = Asking(decide(act_on_first), cache=True, answers=answers, blobs=LostBlobs())
    with asking.server:
        said = asking.policy.decide(SEEN)
        answers.update({call.request: call.response for call in asking.calls})
        assert asking.policy.decide(SEEN) == said
    assert [call.cached for call in asking.calls] == [False, False]


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
