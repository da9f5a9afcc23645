"""Four ways of asking, and the probe that finds the first that works, by what comes back."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from chat_server import (
    Behaviour,
    ChatServer,
    Reply,
    answer_probe,
    completion,
    schema_of,
    tool_call,
)
from situations import MemoryLog
from tiny_training import MemoryBlobs

from aggregates.transcript import Transcript
from policies.asking.ask import Asker, find_rung
from policies.asking.chat import ChatClient
from policies.asking.ladder import PROBE_WORD, request_for
from policies.asking.settings import RUNGS, ModelSettings
from policies.errors import AnswerError, PolicyError
from policies.extraction import extract

SETTINGS = ModelSettings(model="m", seed=3, top_p=0.9, token_limit="max_completion_tokens")
MESSAGES = [{"role": "user", "content": "question"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
RIGHT = {"words": [{"word": PROBE_WORD, "size": None}], "certain": True}


def said(content: Any) -> dict[str, Any]:
    found: dict[str, Any] = completion(content)["choices"][0]["message"]
    return found


def called(arguments: Any, name: str = "answer") -> dict[str, Any]:
    found: dict[str, Any] = tool_call(arguments, name)["choices"][0]["message"]
    return found


@pytest.mark.parametrize("rung", RUNGS)
def test_request_carries_the_schema_where_the_rung_has_its_place(rung: str) -> None:
    request = request_for(rung, SETTINGS, MESSAGES, SCHEMA)
    assert schema_of(request) == SCHEMA
    assert (request["seed"], request["top_p"], request["temperature"]) == (3, 0.9, 0.2)
    assert (request["max_completion_tokens"], "max_tokens" in request) == (1024, False)
    assert ("response_format" in request) == rung.startswith("json")


@pytest.mark.parametrize("rung", RUNGS)
def test_request_in_the_form_of_exports_adds_no_schema_to_the_messages(rung: str) -> None:
    settings = ModelSettings(model="m", form="exported")
    request = request_for(rung, settings, MESSAGES, SCHEMA)
    assert request["messages"] == MESSAGES
    assert '"strict": true' not in json.dumps(request)
    if rung in ("json_schema", "tool"):
        assert schema_of(request) == SCHEMA
    assert ("tool_choice" in request) == (rung == "tool")
    assert request["messages"][0]["content"].startswith("question")
    assert MESSAGES == [{"role": "user", "content": "question"}]


def test_sampling_parameters_that_are_not_set_are_not_sent() -> None:
    bare = ModelSettings(model="m", temperature=None)
    assert not {"temperature", "top_p", "seed"} & set(request_for("prompt", bare, MESSAGES, SCHEMA))
    assert request_for("prompt", bare, MESSAGES, SCHEMA, seed=9)["seed"] == 9


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Sure! ```\n{"a": 1}\n``` I hope {this} helps',
        'The answer is {"a": 1}, I {think}.',
        '<think>{"a": 2} or {"a": 3}?</think>{"a": 1}',
    ],
)
def test_prompt_rung_finds_the_one_object_in_a_text(text: str) -> None:
    assert extract("prompt", said(text)) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no braces at all", "one JSON object"),
        ('{"a": 1} {"a": 2}', "one JSON object"),
        ('{"a": 1', "one JSON object"),
        ("{ " * 1_000, "braces"),
        ('{"a":' * 10_000, "braces"),
        ("[1, 2]", "one JSON object"),
        ("x" * 300_000, "characters"),
    ],
)
def test_text_without_exactly_one_object_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(AnswerError, match=problem):
        extract("prompt", said(text))


def test_text_made_to_be_slow_is_looked_through_in_little_time() -> None:
    started = time.process_time()
    for text in (
        ('{"a":' * 900 + "[" + "1," * 100) * 40,
        '{"a":"' + "{" * 250_000,
        "```" * 80_000,
        "<think>" * 30_000,
    ):
        with pytest.raises(AnswerError):
            extract("prompt", said(text))
    assert time.process_time() - started < 5  # looked through once per character, it would be hours


@pytest.mark.parametrize("rung", ["json_schema", "json_object"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('```\n{"a": 1}\n```\n```\n{"a": 1}\n```', "no JSON"),
        ('So: {"a": 1}', "no JSON"),
        ('{"a": 1} {"a": 2}', "no JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e400}', "beyond"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" * 40 + "]" * 40, "nested"),
        (None, "no text"),
        (["text"], "no text"),
        ("", "no text"),
    ],
)
def test_json_rungs_take_strict_json_and_nothing_around_it(
    rung: str, text: Any, problem: str
) -> None:
    message = said("") | {"content": text}
    with pytest.raises(AnswerError, match=problem):
        extract(rung, message)
    assert extract(rung, said(' {"a": 1}\n')) == {"a": 1}


PARTS = [{"type": "thinking", "thinking": "{}"}, {"type": "text", "text": '{"a":'}]


@pytest.mark.parametrize("rung", ["json_schema", "json_object", "prompt"])
@pytest.mark.parametrize(
    "content",
    [
        '```json\n{"a": 1}\n```',
        '<think>{"a": 2}?</think>\n{"a": 1}',
        '<think>```{}```</think>Here: ```\n{"a": 1}\n``` It fits.',
        [*PARTS, {"type": "text", "text": " 1}"}],
    ],
)
def test_fences_thoughts_and_parts_are_read_on_each_rung_since_version_2(
    rung: str, content: Any
) -> None:
    message = said("") | {"content": content}
    assert extract(rung, message) == {"a": 1}
    if rung != "prompt" or not isinstance(content, str):
        with pytest.raises(AnswerError):
            extract(rung, message, early=True)


@pytest.mark.parametrize(
    "message",
    [
        said('{"a": 1}'),
        called("{broken"),
        called({"a": 1}, name="other"),
        called({"a": 1}) | {"tool_calls": []},
        called({"a": 1}) | {"tool_calls": {}},
        called({"a": 1}) | {"tool_calls": [None]},
        called({"a": 1}) | {"tool_calls": [{"function": None}]},
        called({"a": 1}) | {"tool_calls": [{"function": {"name": "answer", "arguments": {}}}]},
        called({"a": 1}) | {"tool_calls": called({})["tool_calls"] * 2},
    ],
)
def test_tool_call_that_is_none_or_broken_is_rejected(message: dict[str, Any]) -> None:
    with pytest.raises(AnswerError):
        extract("tool", message)
    assert extract("tool", called({"a": 1})) == {"a": 1}


def probed(behave: Behaviour, **changes: Any) -> tuple[str, MemoryLog, ChatServer]:
    log = MemoryLog()
    with ChatServer(behave) as server:
        settings = ModelSettings(
            **{"model": "m", "base_url": server.url, "retries": 0, "timeout": 5.0, **changes}
        )
        asker = Asker(settings, client=ChatClient(settings, None), log=log, blobs=MemoryBlobs())
        return find_rung(asker), log, server


def knows(*rungs: str, ignored: str = "an answer in prose") -> Behaviour:
    """Return a server that honours these rungs and answers 200 to the others all the same."""

    def behave(request: dict[str, Any], _: Any) -> Reply:
        form = (request.get("response_format") or {}).get("type")
        rung = "tool" if request.get("tools") else form or "prompt"
        return answer_probe(request) if rung in rungs else Reply(completion(ignored))

    return behave


@pytest.mark.parametrize("rung", RUNGS)
def test_probe_finds_the_first_rung_that_is_honoured(rung: str) -> None:
    found, log, server = probed(knows(rung, "prompt"))
    assert found == rung
    calls = log.events(Transcript.CallMade)
    assert len(calls) == len(server.requests) == 3 * RUNGS.index(rung) + 1
    assert {(call.agent, call.action, call.epoch) for call in calls} == {("prober", "probe", None)}
    assert [call.outcome for call in calls] == ["unusable"] * (len(calls) - 1) + ["usable"]


def test_probe_cannot_be_passed_without_the_schema() -> None:
    """A server that drops the form cannot know the word: it stands nowhere else."""
    guess = json.dumps({"words": [{"word": "word", "size": None}], "certain": True})
    found, _, server = probed(knows(ignored=guess))
    assert found == "prompt"
    assert len(server.requests) == 12
    told = [
        request["messages"]
        for request in server.requests
        if request.get("response_format", {}).get("type") == "json_schema"
    ]
    assert PROBE_WORD not in repr(told)


def test_probe_tries_again_for_a_model_that_is_only_sometimes_right() -> None:
    answers = iter([Reply(completion("no")), Reply(completion("no"))])

    def behave(request: dict[str, Any], _: Any) -> Reply:
        return next(answers, None) or answer_probe(request)

    assert probed(behave)[0] == "json_schema"


def test_each_try_of_the_probe_has_a_seed_of_its_own_where_one_is_configured() -> None:
    _, _, server = probed(knows("tool"), seed=2**31 - 2)
    assert [request["seed"] for request in server.requests[:3]] == [2**31 - 2, 2**31 - 1, 0]
    _, _, server = probed(knows("tool"))
    assert not any("seed" in request for request in server.requests)


def test_probe_leaves_a_rung_that_the_server_fails_on_after_one_try() -> None:
    def behave(request: dict[str, Any], _: Any) -> Reply:
        if (request.get("response_format") or {}).get("type") == "json_schema":
            return Reply({"error": {"message": "not implemented"}}, 500)
        return answer_probe(request)

    found, _, server = probed(behave)
    assert (found, len(server.requests)) == ("json_object", 2)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_key_or_model_that_is_refused_ends_the_probe_at_once(status: int) -> None:
    seen = []

    def behave(*_: Any) -> Reply:
        seen.append(1)
        return Reply({"error": {"message": "The model `m` does not exist"}}, status)

    with pytest.raises(PolicyError, match="does not exist"):
        probed(behave)
    assert len(seen) == 1


def test_server_that_answers_no_request_ends_the_probe() -> None:
    with pytest.raises(PolicyError, match=r"did not answer any request: .*overloaded"):
        probed(lambda *_: Reply({"error": {"message": "overloaded"}}, 503))


def refusing(refused: Mapping[str, tuple[int, Any]]) -> Behaviour:
    """Return a server that refuses requests with these fields, each in its own way."""

    def behave(request: dict[str, Any], _: Any) -> Reply:
        for name, (status, body) in refused.items():
            if name in request:
                return Reply(body, status)
        return answer_probe(request)

    return behave


def named(name: str, words: str = "") -> dict[str, Any]:
    return {"error": {"message": f"Unsupported parameter: '{name}' {words}", "code": None}}


@pytest.mark.parametrize(
    ("refused", "settings", "calls", "sent"),
    [
        (  # the words of newer models
            {
                "max_tokens": (400, named("max_tokens", "use 'max_completion_tokens'")),
                "temperature": (400, named("temperature", "does not support 0.2, only 1")),
            },
            {},
            3,
            {"max_completion_tokens": 1024},
        ),
        (  # of a server that takes no field that it does not know, and repeats the request
            {
                name: (422, {"detail": [{"loc": ["body", name], "input": {"temperature": 0.2}}]})
                for name in ("max_completion_tokens", "seed", "reasoning_effort")
            },
            {"token_limit": "max_completion_tokens", "seed": 1, "reasoning_effort": "low"},
            4,
            {"max_tokens": 1024, "temperature": 0.2},
        ),
        (  # in words alone
            {"top_p": (400, b"top_p: no such thing")},
            {"top_p": 0.5},
            2,
            {"max_tokens": 1024, "temperature": 0.2},
        ),
    ],
)
def test_fields_that_a_server_refuses_by_name_are_not_sent_again(
    refused: Mapping[str, Any], settings: Any, calls: int, sent: Mapping[str, Any]
) -> None:
    found, log, server = probed(refusing(refused), **settings)
    assert (found, len(server.requests)) == ("json_schema", calls)
    made = log.events(Transcript.CallMade)
    assert [call.outcome for call in made] == ["rejected"] * (calls - 1) + ["usable"]
    assert made[-1].parameters == sent
    form = {"model", "messages", "response_format"}
    assert {name: server.requests[-1][name] for name in {*server.requests[-1]} - form} == sent


@pytest.mark.parametrize(
    ("status", "message", "helps"),
    [
        (400, "max_tokens 1024 is above 512", "--set max_tokens=N"),  # the number, not the name
        (400, "no", "--set temperature=none"),
        (401, "no", "environment variable OPENAI_API_KEY"),
        (404, "no", "--set model=NAME"),
        (429, "quota", "account's quota"),
    ],
)
def test_refusal_that_ends_the_probe_names_the_setting_that_helps(
    status: int, message: str, helps: str
) -> None:
    with pytest.raises(PolicyError, match=helps) as raised:
        probed(lambda *_: Reply({"error": {"message": message}}, status))
    assert message in str(raised.value)


def test_nobody_at_the_address_ends_the_probe_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(PolicyError, match=r"cannot be reached: .*refused"):
        probed(lambda *_: Reply(), base_url="http://127.0.0.1:9/v1", retries=4)
    assert time.monotonic() - started < 5  # the retries would take 7


def test_rung_that_is_configured_is_not_probed() -> None:
    found, _, server = probed(knows(), rung="tool")
    assert (found, server.requests) == ("tool", [])


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"words": [], "certain": True},
        {"words": [{"word": PROBE_WORD, "size": 1.5}], "certain": True},
        {"words": [{"word": PROBE_WORD}], "certain": True},
        {"words": RIGHT["words"], "certain": "yes"},
        {**RIGHT, "more": 1},
    ],
)
def test_answer_that_does_not_follow_the_schema_fails_the_probe(value: Any) -> None:
    def behave(request: dict[str, Any], _: Any) -> Reply:
        return Reply(completion(value)) if not request.get("tools") else Reply(tool_call(value))

    _, log, _ = probed(behave)
    assert {call.outcome for call in log.events(Transcript.CallMade)} == {"unusable"}
