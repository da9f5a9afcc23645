"""Where rounds end early, and which of several models is asked, as it follows from the ledger."""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import evolving_model as model
import pytest
from campaign_kills import Ended, run_command
from chat_server import Behaviour, ChatServer, Reply, is_probe
from evolving_model import Step, plays
from gauntlet_lines import Line

from aggregates.improvement.evolution import Evolution
from aggregates.transcript import Transcript
from policies.proposing.tuner import Tally, choose_model
from proctor.improvement.rounds import Round, record_of, standstill

PRICES = ("--set", "price_in=1000", "--set", "price_out=1000")  # a call: 120 tokens, $0.12


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def evolve(line: Line, rounds: int, *options: str, **kills: Any) -> Ended:
    command = ["line", "evolve", "--proposals", str(rounds), "--repo", str(line.repo)]
    return run_command([*command, *options], home=line.home.path, environment={}, **kills)


def asking(server: ChatServer, *models: str) -> list[str]:
    """Return the options that name models of one server."""
    named = [option for name in models for option in ("--set", f"model={name}")]
    return ["--set", f"base_url={server.url}", *named]


def calls_of(line: Line, number: int) -> list[Transcript.CallMade]:
    """Return the calls that a round has made."""
    stream = Transcript.id_of(Evolution.open(str(line.id)).proposal_id(number))
    with line.log() as log:
        return [e for e in log.events.get(stream) if isinstance(e, Transcript.CallMade)]


def rounds_of(line: Line) -> list[Evolution.RoundEnded]:
    with line.log() as log:
        found = log.events.get(Evolution.id_of(line.id))
        return [event for event in found if isinstance(event, Evolution.RoundEnded)]


def tokens_of(line: Line, number: int) -> int:
    return sum((call.usage or {})["total_tokens"] or 0 for call in calls_of(line, number))


@pytest.mark.slow
def test_rounds_end_where_a_budget_is_used_up_and_no_command_has_it_anew(line: Line) -> None:
    with ChatServer(plays([model.content])) as server:
        options = [*asking(server, "scripted"), *PRICES]
        first = evolve(line, 3, *options, "--budget", "cost=0.3")
        assert first.code == 1, first.out
        assert "the budget is used up, cost: 0.36 of 0.3" in first.out
        assert "this request has used 360 tokens, $0.3600" in first.out
        assert len(rounds_of(line)) == 2, "a probe and two questions, 120 tokens each"
        again = evolve(line, 3, *options, "--budget", "cost=9", "--budget", "tokens=300")
        assert again.code == 1
        assert "the budget is used up, tokens: 360 of 300" in again.out
        assert len(server.requests) == 3, "nothing is asked"
        # Control: what is left of the same request goes on with a larger budget.
        assert evolve(line, 3, *options, "--budget", "tokens=900").code == 0
        assert len(rounds_of(line)) == 3
        # Control: another request has a budget of its own.
        assert evolve(line, 1, *options, "--budget", "tokens=300").code == 0


@pytest.mark.slow
def test_killed_rounds_use_no_more_than_a_budget_and_one_round(line: Line) -> None:
    kills = 0
    with ChatServer(plays([model.content])) as server:
        while (
            ended := evolve(
                line, 30, *asking(server, "scripted"), "--budget", "tokens=900", kill_after=4
            )
        ).code == -9:
            kills += 1
    assert ended.code == 1, ended.out
    assert kills > 2
    used = [tokens_of(line, each.round) for each in rounds_of(line)]
    assert sum(used) >= 900 > sum(used[:-1])


def test_budget_of_seconds_is_the_command_s_own(line: Line) -> None:
    stopped = evolve(line, 1, "--budget", "seconds=0.001")
    assert stopped.code == 1
    assert "the budget is used up, seconds: " in stopped.out
    assert rounds_of(line) == []
    assert "nothing to do" in evolve(line, 1, "--budget", "seconds=3_600").out


@pytest.mark.slow
def test_budget_that_a_server_lets_nobody_measure_ends_the_rounds(line: Line) -> None:
    def silent(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        reply = plays([model.content])(request, headers)
        return Reply({**reply.body, "usage": None})

    with ChatServer(silent) as server:
        options = asking(server, "scripted")
        stopped = evolve(line, 3, *options, "--budget", "tokens=9_000")
        assert stopped.code == 1
        assert "the server of scripted reported no tokens in round 1" in stopped.out
        assert len(rounds_of(line)) == 1
        ended = evolve(line, 3, *options, "--json")
        assert ended.code == 0, "without a budget they go on"
    used = json.loads(ended.out[ended.out.index("{") :])["used"]
    assert used == {"calls": 5, "tokens": None, "cost": None}, "two probes, three questions"


@pytest.mark.slow
def test_rounds_end_after_so_many_in_a_row_without_a_promotion(line: Line) -> None:
    with ChatServer(plays([model.content])) as server:
        options = asking(server, "scripted")
        for patience, rounds in ((2, 2), (2, 2), (3, 3)):
            stopped = evolve(line, 9, *options, "--patience", str(patience))
            assert stopped.code == 1
            assert f"{patience} rounds in a row without a promotion" in stopped.out
            assert len(rounds_of(line)) == rounds
        assert evolve(line, 2, *options, "--patience", "2").code == 0, "asked for anew"


@pytest.mark.slow
def test_promotion_is_no_standstill(line: Line) -> None:
    steps: list[Step] = [model.content, model.thrift, model.content, model.content]
    with ChatServer(plays(steps)) as server:
        options = asking(server, "scripted")
        assert evolve(line, 9, *options, "--patience", "2", "--probes", "0").code == 1
    assert len(rounds_of(line)) == 4


def by_model(**steps: Step) -> Behaviour:
    """Return a server's behaviour that answers as the model of the request does."""
    played = {name: plays([step]) for name, step in steps.items()}
    return lambda request, headers: played[request["model"]](request, headers)


@pytest.mark.slow
def test_each_round_asks_one_of_several_models_by_what_is_on_record(line: Line) -> None:
    names = ("odd", "content")
    with ChatServer(by_model(odd=model.odd_keys, content=model.content)) as server:
        options = [*asking(server, *names), "--set", "repairs=0"]  # of the second
        first = evolve(line, 6, *options, "--patience", "3")
        ended = evolve(line, 6, *options, "--json")
    assert (first.code, ended.code) == (1, 0), "the same request goes on"
    assert re.search(r"^model +rounds +promoted +calls +tokens +cost$", first.out, re.MULTILINE)
    assert len(rounds_of(line)) == 6
    asked: list[str] = []
    for each in rounds_of(line):
        record = {name: Tally(losses=asked.count(name)) for name in names}
        seed = f"{Evolution.id_of(line.id)} {each.round}"
        asked.append(choose_model(names, record, seed=seed))
        assert {call.model for call in calls_of(line, each.round)} == {asked[-1]}
    told = {each["model"]: each for each in json.loads(ended.out[ended.out.index("{") :])["models"]}
    assert {name: each["rounds"] for name, each in told.items()} == {
        name: asked.count(name) for name in asked
    }
    for name, each in told.items():
        own = [n for n, other in enumerate(asked, start=1) if other == name]
        assert each["tokens"] == sum(tokens_of(line, n) for n in own)
        assert each["promoted"] == 0


@pytest.mark.slow
def test_model_whose_server_is_gone_is_not_asked_twice_in_a_row(line: Line) -> None:
    def fails(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if request["model"] == "gone":
            return Reply({"error": {"message": "no memory"}}, 500, {"retry-after-ms": "1"})
        return plays([model.content])(request, headers)

    with ChatServer(fails) as server:
        assert evolve(line, 8, *asking(server, "gone", "content")).code == 0
    ends = [each.outcome for each in rounds_of(line)]
    assert ends.count("unanswered") >= 1, "or the test shows nothing"
    assert ("unanswered", "unanswered") not in [*pairwise(ends)]


@pytest.mark.slow
def test_prompt_says_how_far_each_earlier_proposal_got(line: Line) -> None:
    with ChatServer(plays([model.idle, model.hooks, model.content])) as server:
        assert evolve(line, 3, *asking(server, "scripted")).code == 0
        asked = server.requests[-1]["messages"][1]["content"]
    told = asked.partition("# Earlier proposals")[2].splitlines()[2:4]
    idle, refused = (line.partition(": ")[2] for line in told)
    assert idle == (
        'rejected; about: "task long-rivals"; said: "round 1"; reported: "cannot tell: no task is '
        'shown to be better"; measured: "long-rivals: right 0% -> 0% in 1 pair, at last: 2 of 2 '
        'needed rows missing"'
    )
    assert refused.startswith('refused; about: "task long-rivals"; reported: "the diff does not ap')


@pytest.mark.slow
def test_round_that_was_killed_asks_the_model_that_it_began_with(line: Line) -> None:
    def late(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        delay = 0.0 if is_probe(request) or slow[0] == 0 else 60.0
        return plays([model.content], delay=delay)(request, headers)

    slow = [1]
    with ChatServer(late) as server:
        # Opened, begun, the head measured, the transcript started, the probe; then it waits.
        killed = evolve(line, 1, *asking(server, "one", "other"), kill_after=5)
        assert killed.code == -9
        (probe,) = calls_of(line, 1)
        slow[0] = 0
        # Another order, so that the draw would be the other model's.
        assert evolve(line, 1, *asking(server, "other", "one")).code == 0
    assert {call.model for call in calls_of(line, 1)} == {probe.model}


def test_record_counts_a_round_when_it_is_decided() -> None:
    ends = ["promoted", "rejected", "proposed", "superseded", "unusable", "unanswered", None]
    rounds = [Round(number=n, outcome=end, model="a") for n, end in enumerate(ends)]
    assert record_of([*rounds, Round(number=9, outcome="nothing")]) == {
        "a": Tally(wins=1, losses=3)
    }
    assert (
        standstill(rounds, 5)
        == "5 rounds in a row without a promotion; a larger --patience continues"
    )
    assert standstill(rounds, 6) is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--budget", "token=5"], "--budget: unknown key token; did you mean tokens?"),
        (["--budget", "tokens=-5"], "tokens must be a whole number from 1, not -5"),
        (["--budget", "tokens=many"], "tokens must be a whole number from 1, not 'many'"),
        (["--budget", "cost=0"], "cost must be a number above 0, not 0"),
        (["--budget", "seconds=nan"], "seconds must be a number above 0, not 'nan'"),
        (["--budget", "seconds"], "'seconds' is not KEY=VALUE"),
        (["--budget", "seconds=1", "--budget", "seconds=2"], "seconds is given twice"),
        (["--budget", "tokens=5"], "give --set model=NAME or seconds=N"),
        (["--budget", "cost=5", "--set", "model=a"], "the prices of a are unknown"),
        (["--patience", "0"], "--patience"),
        (["--set", "model=a", "--set", "model=a"], "two models are named a; give each"),
        (["--set", "model=a", "--set", "model=b", "--set", "sed=1"], "unknown key sed"),
        (["--set", "temperature=1"], "model is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_limits_and_models_that_make_no_sense_are_refused(
    tmp_path: Path, options: list[str], problem: str
) -> None:
    refused = run_command(
        ["line", "evolve", "--repo", str(tmp_path), *options],
        home=tmp_path / "home",
        environment={},
    )
    assert refused.code == 2
    assert problem in refused.out
    assert "Traceback" not in refused.out
    assert not (tmp_path / "home").exists()
