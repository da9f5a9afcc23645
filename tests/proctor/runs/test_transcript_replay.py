"""Runs of every kind of policy and server, done again from their records."""

import io
import shutil
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from chat_server import (
    STYLES,
    Behaviour,
    ChatServer,
    Reply,
    act_on_first,
    answer_probe,
    completion,
    decide,
    defer_all,
    is_probe,
    say,
)
from frontdoor import answer, call_here, with_settings
from synthetic import synthetic_call, synthetic_run, synthetic_transcript

from aggregates.transcript import Transcript
from proctor.home import Home
from proctor.runs.campaign_replay import read_records, redo_run

RUN = [
    *("run", "train_examples=200", "val_examples=100", "test_examples=100", "channels=8"),
    *("width=8", "epochs=6", "threads=1", "lr=1e-7", "warm_up_epochs=0", "--json"),
]  # R1 fires from epoch 2 on, as steps are far too small
MODEL = ["--set", "model=scripted", "--set", "retries=0", "--set", "timeout=20"]


@pytest.fixture(autouse=True)
def _remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_STATE", "off")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-no-use")


def _faulty() -> Behaviour:
    """Return a server that fails in another way each time, now and then not at all."""
    faults: Iterator[Reply | None] = cycle(
        [
            Reply(b"<html>busy</html>"),
            Reply(completion('{"decisions": [{"cites": ["R1"]', finish_reason="length")),
            None,
            Reply(completion(None, refusal="I would rather not")),
            Reply({"error": {"message": "overloaded"}}, 503),
            Reply(completion("R1: lower the rate, please")),
            Reply(drop=3, body=b"{}{}{}{}"),
            Reply(completion({"decisions": [{"event_type": "stop", "cites": ["R9"]}]})),
        ]
    )

    def behave(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        return next(faults) or say(request, act_on_first(request))

    return behave


@pytest.mark.parametrize(
    ("policy", "behaviour", "settings"),
    [
        ("openai", _faulty(), ["repairs=2"]),
        ("openai", decide(lambda _: "no JSON at all"), []),
        ("openai", decide(act_on_first), ["rung=tool", "seed=1"]),
        ("mixed", decide(defer_all), []),  # the playbook's remedies are too weak
    ],
    ids=["faults", "garbage", "tool", "mixed"],
)
@pytest.mark.sampled(2)
def test_run_follows_from_its_record_whatever_the_server_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    behaviour: Behaviour,
    settings: list[str],
) -> None:
    sets = [part for setting in settings for part in ("--set", setting)]
    run = with_settings(RUN, "epochs=9", "profile=calibrated") if policy == "mixed" else RUN
    with ChatServer(behaviour) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = call_here([*run, "--policy", policy, *MODEL, *sets], home=tmp_path)
    assert done.returncode == 0, done.stderr
    again = call_here(["replay", "--execute", "--json"], home=tmp_path)
    told = answer(again)
    assert (told["policy"], again.returncode) == ([], 0)
    assert told["calls"] == len(server.requests) >= 2


@pytest.mark.parametrize(
    ("style", "calls", "usable"),
    [("picky", 7, 5), ("fenced", 5, 5), ("streamed", 5, 5), ("parts", 5, 5), ("revoked", 5, 2)],
)
@pytest.mark.sampled(2)
def test_run_asks_servers_of_each_style_and_says_where_one_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, calls: int, usable: int
) -> None:
    run = with_settings(RUN, "epochs=4", "profile=relative")
    with ChatServer(STYLES[style](act_on_first)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = call_here([*run, "--policy", "openai", *MODEL], home=tmp_path)
    lost = style == "revoked"
    assert (done.returncode, "from call 3 (epoch 1) on" in done.stderr) == (int(lost), lost)
    assert ("environment variable OPENAI_API_KEY" in done.stderr) == lost
    told = answer(call_here(["show", "--json"], home=tmp_path))["refused"]
    assert [(each["call"], each["calls"]) for each in told] == [(3, 3)] * lost
    summary = answer(call_here(["show", "--transcript", "--json"], home=tmp_path))["summary"]
    assert (summary["calls"], summary["usable"]) == (calls, usable)
    again = answer(call_here(["replay", "--execute", "--json"], home=tmp_path))
    assert (again["policy"], again["reworded"], again["calls"]) == ([], False, calls)


@pytest.mark.slow
def test_cached_answers_are_the_same_and_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*RUN, "--policy", "openai", *MODEL, "--set", "cache=true", "--set", "price_in=1"]
    with ChatServer(decide(act_on_first)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert call_here(command, home=tmp_path).returncode == 0
        asked = len(server.requests)
        assert call_here(command, home=tmp_path).returncode == 0
        assert len(server.requests) == asked + 1  # the probe: a server can have changed
    summary = answer(call_here(["show", "--transcript", "--json"], home=tmp_path))["summary"]
    assert summary["calls"] == summary["usable"] == summary["cached"] + 1 == asked > 2
    assert (summary["tokens"], summary["cost"]) == (120, 0.0)
    again = answer(call_here(["replay", "--execute", "--json"], home=tmp_path))
    assert (again["same"], again["calls"]) == (True, asked)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("field", ["endpoint", "request", "response", "outcome"])
def test_remembered_answer_that_nobody_gave_is_told(tmp_path: Path, field: str) -> None:
    honest = synthetic_call()
    cached = {**honest, "cached": True}
    strange = {"endpoint": "http://a.example/v1", "outcome": "unusable"}
    changed: Any = {field: strange.get(field, "0c" * 32)}
    home = Home(tmp_path)
    with home.open_log() as log:
        first, second, third = (synthetic_run(log, epochs=1) for _ in range(3))
        synthetic_transcript(log, first, [cached])  # before anybody was asked
        synthetic_transcript(log, second, [{**honest, **changed}, cached])
        synthetic_transcript(log, third, [honest, cached])
    assert _made_up(home, first.id) == ["call 1 cached"]
    assert _made_up(home, second.id) == ["call 2 cached"]
    assert _made_up(home, third.id) == []


def _made_up(home: Home, run_id: UUID) -> list[str]:
    return [found.place for found in read_records(home, str(run_id)).made_up[str(run_id)]]


def test_ensemble_follows_from_its_ballots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exploding = ["--provoke", "infinite_loss"]
    with ChatServer(decide(act_on_first)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        command = [*RUN, *exploding, "--policy", "openai", *MODEL, "--set", "votes=3"]
        assert call_here(command, home=tmp_path).returncode == 0
    told = answer(call_here(["show", "--transcript", "--json"], home=tmp_path))
    assert {vote["rule"] for vote in told["votes"]} == {"R7"}
    assert {vote["agreement"] for vote in told["votes"]} == {1.0}
    again = answer(call_here(["replay", "--execute", "--json"], home=tmp_path))
    assert (again["same"], again["policy"]) == (True, [])


TYPED = """g
well seen
a
e
{"direction": "defer", "justification": "wait and see"}
r
not yet
"""


def _decide(typed: str, home: Path) -> Any:
    """Let a person decide on what a model proposes."""
    with ChatServer(decide(act_on_first)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", "a-key-of-no-use")
        patch.setattr("sys.stdin", io.StringIO(typed))
        return call_here([*RUN, "--policy", "human", *MODEL], home=home)


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("reviewed") / "home"
    assert _decide(TYPED + "a\n" * 50, home).returncode == 0
    return home


def test_run_of_a_person_follows_from_what_was_typed(reviewed: Path) -> None:
    reviews = answer(call_here(["show", "--transcript", "--json"], home=reviewed))["reviews"]
    assert {review["verdict"] for review in reviews} == {"approve", "edit", "reject"}
    told = answer(call_here(["replay", "--execute", "--json"], home=reviewed))
    assert (told["same"], told["policy"], told["calls"] >= 3) == (True, [], True)


def test_proposal_that_the_model_never_made_is_told(reviewed: Path) -> None:
    records = read_records(Home(reviewed), "latest")
    (run,) = records.runs
    review = next(e for e in records.transcripts[run] if type(e) is Transcript.ProposalReviewed)
    better = {**review.proposed, "justification": "as the model never said"}
    object.__setattr__(review, "proposed", better)
    found = redo_run(Home(reviewed), records, run, on_epoch=lambda *_: None)
    assert any("proposed.justification" in difference.place for difference in found.policy)


def test_bodies_that_are_gone_behind_a_person_are_told(reviewed: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(reviewed, tmp_path / "home"))
    (run,) = (records := read_records(Home(home), "latest")).runs
    for call in records.transcripts[run]:
        for digest in (getattr(call, "request", None), getattr(call, "response", None)):
            if digest is not None:
                (home / "ledger" / "blobs" / digest[:2] / digest).unlink(missing_ok=True)
    done = call_here(["replay", "--execute", "--json"], home=home)
    told = answer(done)
    places = {difference["place"] for difference in told["policy"]}
    assert (done.returncode, told["calls"]) == (1, 0)
    assert {"call 1 request", "call 1 response"} <= places


def test_run_that_was_cut_off_follows_as_far_as_it_went(tmp_path: Path) -> None:
    assert _decide("a\n", tmp_path).returncode != 0  # the input ends at the second proposal
    told = answer(call_here(["replay", "--execute", "--json"], home=tmp_path))
    assert (told["same"], told["whole"], told["policy"]) == (True, False, [])


def test_calls_beside_a_policy_that_asks_nobody_are_told(tmp_path: Path) -> None:
    assert call_here([*RUN, "--policy", "playbook"], home=tmp_path).returncode == 0
    assert call_here(["replay", "--execute"], home=tmp_path).returncode == 0
    home = Home(tmp_path)
    (run,) = read_records(home, "latest").runs
    with home.open_log() as log:
        transcript = Transcript.start(run, policy={"model": "small"})
        transcript.add(**synthetic_call())
        log.save(transcript)
    done = call_here(["replay", "--execute", "--json"], home=tmp_path)
    told = answer(done)
    assert (done.returncode, told["calls"]) == (1, 0)
    assert "there must be none beside playbook" in [row["found"] for row in told["policy"]]
