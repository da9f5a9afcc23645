"""Campaigns at the command line, against a server that repeats the key that it is told."""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from chat_server import ChatServer, Reply, answer_probe, decide, defer_r1, is_probe
from frontdoor import answer, call_here, with_settings

from aggregates.campaign import MODE, Campaign
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from judge.auditing.scores import rank
from monitor.config import RunConfig
from monitor.errors import ConfigurationError
from policies.errors import PolicyError
from proctor.home import Home
from proctor.runs.campaign_replay import Records, read_records, redo_campaign, redo_run
from proctor.runs.campaign_run import Task
from proctor.runs.policies import PolicyChoice

CANARY = "canary-5e1f0a+/key"
TASK = [
    *("train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=6", "threads=1", "lr=3.0", "warm_up_epochs=0"),
]
MODEL = ["--set", "model=scripted", "--set", "price_in=1.0", "--set", "price_out=2.0"]
FED = ["run", "--policy", "openai", *TASK, *MODEL, "--attempts", "3", "--json"]
UNFED = ["run", "--policy", "openai", *TASK, *MODEL, "--attempts", "2", "--no-feedback", "--json"]


@dataclass(frozen=True)
class Done:
    home: Path
    told: Mapping[str, Any]
    records: Records
    headers: Sequence[Mapping[str, str]]

    @property
    def violations(self) -> list[int]:
        return [attempt["violations"] for attempt in self.told["attempts"]]


def _conduct(arguments: list[str], home: Path, script: Any = defer_r1) -> Done:
    """Run a campaign against a server that fails every other request and repeats all headers."""
    behave, turn = decide(script), [0]

    def echo_first(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        turn[0] += 1
        if turn[0] % 2:
            echo = {"error": {"message": f"too busy for {dict(headers)}"}}
            return Reply(echo, 429, {"retry-after-ms": "1"})
        reply = behave(request, headers)
        return replace(reply, body={**reply.body, "debug": dict(headers)})

    with ChatServer(echo_first) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", CANARY)
        done = call_here(arguments, home=home)
    assert done.returncode == 0, done.stderr
    told = answer(done)
    return Done(home, told, read_records(Home(home), told["campaign"]), server.headers)


@pytest.fixture(scope="module", autouse=True)
def _remembers_nothing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_STATE", "off")
        patch.delenv("OPENAI_BASE_URL", raising=False)
        yield


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return _conduct(FED, tmp_path_factory.mktemp("fed") / "home")


@pytest.fixture(scope="module")
def unfed(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return _conduct(UNFED, tmp_path_factory.mktemp("unfed") / "home")


def test_violations_fall_when_verdicts_are_fed_back(fed: Done) -> None:
    first, second, third = fed.violations
    assert first > second >= third
    told = fed.records.told[fed.told["attempts"][1]["run"]].feedback
    assert told is not None
    assert "R1" in told["attempts"][0]["deferred_too_long"]
    assert set(told["attempts"][0]["scores"]) == {"process_score", "validation_accuracy"}
    assert {v["emitter"] for v in told["attempts"][0]["violations"]} == {"policy"}


@pytest.mark.slow
def test_violations_stay_when_nothing_is_fed_back(unfed: Done, fed: Done) -> None:
    assert unfed.violations == [fed.violations[0]] * 2
    assert not any(each.feedback for each in unfed.records.told.values())


def test_ranking_puts_the_best_verdict_first_whatever_came_first(fed: Done) -> None:
    verdicts = [fed.records.verdicts[attempt["run"]] for attempt in fed.told["attempts"]]
    assert fed.told["ranking"] == [verdict.run_id for verdict in rank(verdicts)]
    assert fed.told["ranking"][0] == fed.told["attempts"][1]["run"]


def test_mode_is_in_every_artefact(fed: Done) -> None:
    assert fed.told["mode"] == MODE
    for run, events in fed.records.runs.items():
        assert events[0].policy["mode"] == MODE
        assert fed.records.transcripts[run][0].mode == MODE
        submitted = Home(fed.home).submission(run) / "run_config.json"
        assert json.loads(submitted.read_text())["mode"] == MODE
    assert answer(call_here(["show", "--transcript", "--json"], home=fed.home))["mode"] == MODE


def test_same_command_tells_how_an_ended_campaign_ended(fed: Done) -> None:
    size = len(answer(call_here(["log", "--json"], home=fed.home)))
    again = call_here(FED, home=fed.home)  # no server is there any more
    assert answer(again) == fed.told
    assert len(answer(call_here(["log", "--json"], home=fed.home))) == size


def test_calls_tokens_and_cost_are_counted(fed: Done) -> None:
    calls = [call for events in fed.records.transcripts.values() for call in events[1:]]
    assert fed.told["calls"] == fed.told["usable"] == len(calls) == len(fed.headers) / 2
    assert fed.told["tokens"] == 120 * len(calls)
    assert fed.told["cost"] == pytest.approx(len(calls) * (100 * 1.0 + 20 * 2.0) / 1e6)
    assert {len(call.retries) for call in calls} == {1}


def test_key_is_nowhere_under_the_home_when_a_server_repeats_it(fed: Done, unfed: Done) -> None:
    assert all(seen["authorization"] == f"Bearer {CANARY}" for seen in fed.headers)
    spellings = {CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY.replace("/", "\\/")}
    for home in (fed.home, unfed.home):
        files = [path for path in home.rglob("*") if path.is_file()]
        assert any(
            b'"authorization": "[secret]"' in path.read_bytes() for path in files
        )  # where it stood
        for path in files:
            content = path.read_bytes()
            assert not any(text.encode() in content for text in spellings), path


def test_key_is_nowhere_when_every_decision_is_refused_with_it(tmp_path: Path) -> None:
    def reject(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        return Reply({"error": {"message": f"not for {dict(headers)}"}}, 400)

    with ChatServer(reject) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", CANARY)
        done = call_here(["run", *TASK, "--policy", "openai", *MODEL, "--json"], home=tmp_path)
    assert done.returncode == 1, done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert all(CANARY.encode() not in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    calls = answer(call_here(["show", "--transcript", "--json"], home=tmp_path))["calls"]
    assert {call["outcome"] for call in calls[1:]} == {"rejected"}
    assert all("[secret]" in call["problem"] for call in calls[1:])
    (event, *_) = [
        answer(call_here(["log", "--entry", str(entry["index"]), "--json"], home=tmp_path))
        for entry in answer(call_here(["log", "--json"], home=tmp_path))
        if entry["event"] == "run.decision_made"
    ]
    assert event["body"]["source"] == "driver"


def test_unreachable_server_is_refused_before_a_run_is_opened(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        done = call_here(["run", *TASK, "--policy", "openai", *MODEL], home=tmp_path)
        assert (done.returncode, "cannot be reached" in done.stderr) == (2, True)
        done = call_here(FED, home=tmp_path)
        assert (done.returncode, "cannot be reached" in done.stderr) == (2, True)
    names = [entry["event"] for entry in answer(call_here(["log", "--json"], home=tmp_path))]
    assert names == ["campaign.started"]


def test_transcript_shows_each_call_with_what_was_asked_and_answered(fed: Done) -> None:
    told = answer(call_here(["show", "--transcript", "--json"], home=fed.home))
    probe, decision = told["calls"][:2]
    assert (probe["action"], probe["epoch"], decision["action"]) == ("probe", None, "decide")
    assert decision["rung"] == told["policy"]["rung"] == "json_schema"
    sizes = sorted(call["request_bytes"] for call in told["calls"] if call["epoch"] is not None)
    assert [told["summary"]["request_bytes"][at] for at in (0, 2)] == [sizes[0], sizes[-1]]
    one = answer(call_here(["show", "--transcript", "--call", "2", "--json"], home=fed.home))
    assert len(one["request_text"].encode()) == decision["request_bytes"]
    assert (
        "# Feedback on earlier attempts"
        in json.loads(one["request_text"])["messages"][0]["content"]
    )
    assert json.loads(one["response_text"])["usage"] == decision["usage"]
    text = call_here(["show", "--transcript", "--call", "2"], home=fed.home).stdout
    assert "## Due rules" in text
    assert "decider" in call_here(["show", "--transcript"], home=fed.home).stdout


@pytest.mark.slow
def test_transcript_that_is_not_there_is_a_clear_error(fed: Done, tmp_path: Path) -> None:
    call_here(["run", *TASK, "--policy", "nothing"], home=tmp_path)
    done = call_here(["show", "--transcript"], home=tmp_path)
    assert (done.returncode, "has no transcript" in done.stderr) == (2, True)
    done = call_here(["show", "--transcript", "--call", "99"], home=fed.home)
    assert (done.returncode, "has calls 1 to" in done.stderr) == (2, True)


def test_campaign_is_replayed_with_the_same_decisions_metrics_and_verdicts(fed: Done) -> None:
    done = call_here(["replay", fed.told["campaign"], "--execute", "--json"], home=fed.home)
    again = answer(done)
    assert (done.returncode, again["same"], again["differences"]) == (0, True, [])
    assert again["ranking"] == fed.told["ranking"]
    assert [attempt["calls"] for attempt in again["attempts"]] == [
        attempt["calls"] for attempt in fed.told["attempts"]
    ]
    assert all(attempt["whole"] and attempt["values"] > 1_000 for attempt in again["attempts"])


def test_campaign_that_was_made_up_is_told_when_it_is_replayed(unfed: Done) -> None:
    first, second = unfed.told["attempts"]
    records = read_records(Home(unfed.home), unfed.told["campaign"])
    assert records.campaign is not None
    records.campaign.ranking = [second["run"], first["run"]]
    verdict = records.verdicts[first["run"]]
    better = replace(verdict, scores=replace(verdict.scores, process_score=0.9), violations=())
    forged = replace(records, verdicts={**records.verdicts, first["run"]: better})
    again = _redo_campaign(unfed.home, forged)
    assert not again.same
    assert all(attempt.same for attempt in again.attempts)
    places = [difference.place for difference in again.differences]
    assert "attempt 1 verdict.scores.process_score" in places
    assert "attempt 1 verdict.violations.length" in places
    assert "ranking[0]" in places
    assert not [each for each in again.differences if each.place.startswith("attempt 2")]


@pytest.mark.slow
def test_recorded_decision_that_no_answer_says_is_told(fed: Done) -> None:
    run = fed.told["attempts"][1]["run"]
    records = read_records(Home(fed.home), run)
    *_, first, second = records.transcripts[run]
    object.__setattr__(second, "response", first.response)  # another call's answer
    object.__setattr__(second, "response_bytes", first.response_bytes)
    found = _redo_run(fed.home, records, run)
    assert not found.total  # the record goes on as it was told
    assert any(" decisions" in difference.place for difference in found.policy)


def test_recorded_request_that_does_not_follow_is_told(fed: Done) -> None:
    run = fed.told["attempts"][1]["run"]
    records = replace(read_records(Home(fed.home), run), told={})  # as if it had no feedback
    found = _redo_run(fed.home, records, run)
    places = {difference.place.rpartition(".")[2] for difference in found.policy}
    assert places == {"request", "request_bytes"}
    honest = _redo_run(fed.home, read_records(Home(fed.home), run), run)
    assert honest.same


def test_changed_answer_is_told(fed: Done, tmp_path: Path) -> None:
    home = Path(shutil.copytree(fed.home, tmp_path / "copy"))
    run = fed.told["attempts"][1]["run"]
    response = fed.records.transcripts[run][2].response
    path = home / "ledger" / "blobs" / response[:2] / response
    path.write_bytes(path.read_bytes().replace(b"decrease_lr", b"increase_lr"))
    done = call_here(["replay", run, "--execute", "--json"], home=home)
    told = answer(done)
    assert (done.returncode, told["same"]) == (1, False)
    assert any("was changed" in str(difference["found"]) for difference in told["policy"])
    assert call_here(["show", "--transcript", run, "--call", "2"], home=home).returncode == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("run", "code", "reason"),
    [
        (str(UUID(int=1)), 1, "there is no such run"),
        ("not a run", 2, "does not replay: ValueError"),
    ],
)
def test_odd_campaign_is_told_when_it_is_replayed(
    tmp_path: Path, run: str, code: int, reason: str
) -> None:
    odd = Campaign.start(config=RunConfig().to_dict(), attempts=1, policy={}, feedback=False)
    odd.start_attempt(run)
    with Home(tmp_path).open_log() as log:
        log.save(odd)
    done = call_here(["replay", str(odd.id), "--execute"], home=tmp_path)
    assert (done.returncode, reason in done.stdout + done.stderr) == (code, True)
    assert call_here(["replay", str(odd.id), "--event", "2"], home=tmp_path).returncode == 0


def test_campaign_that_another_process_makes_is_left_alone(tmp_path: Path) -> None:
    home, config = Home(tmp_path), RunConfig(epochs=2, threads=1)
    run = Run.start(
        config=config.to_dict(),
        rules=CALIBRATED.to_dict(),
        spec=config.spec(10).to_dict(),
        data={},
        environment={},
        policy={"name": "playbook"},
    )
    with home.open_log() as log:
        started = Task(config, {"name": "playbook"}, attempts=2, feedback=True).open(log)
        started.start_attempt(str(run.id))
        log.save(started)
        log.save(run)
    command = ["run", "epochs=2", "threads=1", "--policy", "playbook", "--attempts", "2"]
    with home.running(run.id):  # as the other process holds it
        done = call_here(command, home=tmp_path)
    assert (done.returncode, "is going on elsewhere" in done.stderr) == (2, True)
    names = [entry["event"] for entry in answer(call_here(["log", "--json"], home=tmp_path))]
    assert "campaign.attempt_abandoned" not in names


@pytest.mark.slow
def test_attempt_behind_a_restart_starts_from_what_was_changed(tmp_path: Path) -> None:
    dead = ["--provoke", "dead_activations", "--policy", "playbook", "--attempts", "2"]
    arguments = [
        "run",
        "--attempts",
        "3",
        "--policy",
        "openai",
        *with_settings(TASK, "epochs=4", "edits=restart"),
        *dead,
        "--json",
    ]
    done = call_here(arguments, home=tmp_path)
    told = answer(done)
    assert [attempt["state"] for attempt in told["attempts"]] == ["restart", "completed"]
    records = read_records(Home(tmp_path), told["campaign"])
    first, second = (records.runs[attempt["run"]] for attempt in told["attempts"])
    assert second[0].parent_run == told["attempts"][0]["run"]
    scheduled = next(event for event in first if type(event) is Run.RestartScheduled)
    assert second[0].spec == scheduled.spec != first[0].spec
    assert second[0].config["activation"] == scheduled.spec["activation"] != "relu"
    assert answer(call_here(arguments, home=tmp_path)) == told


def test_task_is_another_campaign_when_anything_of_it_is_another() -> None:
    config, policy = RunConfig(), PolicyChoice.read("openai", ["model=a"])
    task = Task(config, policy.to_dict(), attempts=3, feedback=True)
    assert task.id == Task(RunConfig(), policy.to_dict(), attempts=3, feedback=True).id
    others = [
        replace(task, config=replace(config, seed=1)),
        replace(task, policy=PolicyChoice.read("openai", ["model=b"]).to_dict()),
        replace(task, policy=PolicyChoice.read("mixed", ["model=a"]).to_dict()),
        replace(task, attempts=4),
        replace(task, feedback=False),
        replace(task, name="again"),
    ]
    assert len({task.id, *(other.id for other in others)}) == 7


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        (
            "oracle",
            [],
            "choose from fresh_on_nan, human, mixed, network, nothing, openai, playbook",
        ),
        ("playbook", ["model=a"], "takes no settings"),
        ("openai", [], "the policy openai needs a model: give --set model=NAME"),
        ("openai", ["model=a", "heat=2"], "unknown key heat"),
        ("mixed", ["model=a", "votes=99"], "votes must be"),
    ],
)
def test_policy_that_cannot_be_chosen_is_refused(
    name: str, settings: list[str], reason: str
) -> None:
    with pytest.raises(PolicyError, match=reason):
        PolicyChoice.read(name, settings)


def test_settings_of_a_policy_hold_no_secret() -> None:
    url = "base_url=http://user:geheim@127.0.0.1:1/v1?token=geheim"
    chosen = PolicyChoice.read("openai", ["model=a", url]).to_dict()
    assert chosen["base_url"] == "http://127.0.0.1:1/v1"


def test_wrong_configuration_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = call_here(["run", "--attempts", "3", "--policy", "openai", "lr=-1", *MODEL], home=home)
    assert (done.returncode, "lr must be" in done.stderr) == (2, True)
    assert not home.exists()
    with pytest.raises(ConfigurationError):
        RunConfig.from_dict({"lr": -1})


def _redo_run(home: Path, records: Records, run: str) -> Any:
    return redo_run(Home(home), records, run, on_epoch=lambda *_: None)


def _redo_campaign(home: Path, records: Records) -> Any:
    return redo_campaign(Home(home), records, on_epoch=lambda *_: None, say=lambda _: None)
