"""Campaigns that tune their model's advice, against a server that obeys advice and nothing else."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
from advised_model import ALL, Obeys, advice_of, obeys
from chat_server import ChatServer
from exhaustive import EXHAUSTIVE
from frontdoor import answer, call_here

from aggregates.campaign import Campaign
from aggregates.improvement.advice import Advice
from aggregates.review import Review
from aggregates.run import Run
from judge.reference.scenarios import held_out, observation_of
from monitor.loop import prepare
from policies.asking.chat import ChatClient
from policies.asking.settings import ModelSettings
from policies.proposing.tuner import Pattern
from proctor.cli.campaign_jobs import describe_campaign
from proctor.cli.jobs import judge_here
from proctor.home import Home
from proctor.improvement.marks import marks_on
from proctor.improvement.scenario_tests import SETTINGS
from proctor.improvement.tuning import Tuner
from proctor.runs.campaign_replay import Records, read_records, redo_run
from proctor.runs.campaign_run import Harness, Task
from proctor.runs.executors import Here
from proctor.runs.policies import PolicyChoice
from proctor.runs.progress import watching
from proctor.runs.run_settings import read_config
from proctor.runs.standings import paired_interval

pytestmark = pytest.mark.slow  # each trains
TASK = [
    *("train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=6", "threads=1", "lr=3.0", "warm_up_epochs=0"),
]
FEW = tuple(task for task in held_out() if task.task_id in ("r1-high", "r2-low"))
QUICK = replace(SETTINGS, margin=0.5)
ATTEMPTS = 5


class Done:
    """A home with a campaign of two attempts, of which the second has the advice."""

    def __init__(self, home: Home, task: Task, server: ChatServer) -> None:
        self.home, self.task, self.server = home, task, server

    @property
    def records(self) -> Records:
        return read_records(self.home, str(self.task.id))


def conduct(home: Home, task: Task, choice: PolicyChoice, *, tune: bool = True) -> Campaign:
    """Carry a campaign on, with a tuner that asks two scenarios."""
    settings = choice.settings
    assert settings is not None
    with home.open_log() as log, closing(ChatClient(settings, "none")) as client:
        tuner = Tuner(
            home,
            log,
            settings,
            client,
            scenarios=FEW,
            comparison=QUICK,
            random=Random(7),
        )
        campaign = task.open(log)
        if campaign.ranking is None:
            harness = Harness(
                home,
                log,
                campaign,
                executor=Here(log, watching()),
                choice=choice,
                judge_run=lambda run: judge_here(home, log, run),
                splits=prepare(task.config),
                watching=watching(),
                tuning=tuner if tune else None,
            )
            harness.carry_on()
            harness.end("completed")
            return harness.campaign
        return campaign


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    home = Home(tmp_path_factory.mktemp("tuned") / "home")
    with ChatServer(obeys(weak=["R1"])) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_STATE", "off")
        patch.setenv("OPENAI_API_KEY", "none")
        pairs = ["model=scripted", f"base_url={server.url}", "rung=json_schema"]
        choice = PolicyChoice.read("openai", pairs)
        task = Task(read_config(None, TASK), choice.to_dict(), 2, feedback=True, tune=True)
        conduct(home, task, choice)
        yield Done(home, task, server)


def test_next_attempt_has_the_promoted_block_and_is_judged_better(done: Done) -> None:
    records = done.records
    assert records.campaign is not None
    first, second = records.campaign.runs
    scores = [records.verdicts[run].scores.process_score for run in (first, second)]
    assert scores[0] < scores[1]
    assert records.told[first].advice == ""
    assert "R1" in records.told[second].advice
    run = records.runs[second]
    assert type(run[0]) is Run.Started
    assert len(run[0].policy["advice"]) == 64
    assert "advice" not in records.runs[first][0].policy
    with done.home.open_log() as log:
        ended = [
            event
            for event in log.events.get(Advice.id_of("scripted"))
            if type(event) is Advice.RoundEnded
        ]
    assert [(each.attempt, each.outcome) for each in ended] == [(1, "promoted"), (2, "nothing")]
    assert {each.campaign for each in ended} == {str(done.task.id)}


def test_campaign_counts_the_calls_that_wrote_and_tested_its_advice(done: Done) -> None:
    asked = (
        "SELECT COUNT(*) AS calls, COUNT(DISTINCT transcript_id) AS asked "
        "FROM calls WHERE model IS NOT NULL"
    )
    (ledger,) = answer(call_here(["sql", asked, "--json"], home=done.home.path))
    with done.home.open_log() as log:
        told = describe_campaign(done.home, log, log.repository.get(done.task.id))
    assert ledger["asked"] == 3  # two attempts, and the tester of the first round
    assert told.calls == ledger["calls"]
    assert told.tuning.calls == told.calls - sum(each.calls for each in told.attempts) > 0


def test_replay_derives_the_requests_with_their_advice(done: Done) -> None:
    records = done.records
    assert records.campaign is not None
    _, second = records.campaign.runs

    def silent(*_: Any) -> None:
        """Nobody watches."""

    assert redo_run(done.home, records, second, on_epoch=silent).same
    made_up = replace(records.told[second], advice="## An example\n\n- R1, R2")
    forged = replace(records, told={**records.told, second: made_up})
    again = redo_run(done.home, forged, second, on_epoch=silent)
    assert not again.same
    assert any("policy" in each.place for each in again.policy)
    assert records.promoted == {"", records.told[second].advice}


def test_marks_of_people_become_scenarios_and_constraints(done: Done) -> None:
    made: list[tuple[int, Any]] = []
    with done.home.open_log() as log:
        for each in log.notifications("run.decision_made"):
            made.append((each.id - 1, log.mapper.to_domain_event(each)))
        deferred = next(index for index, event in made if event.direction == "defer")
        acted = next(index for index, event in made if event.direction == "decrease_lr")
        for index, mark, note in ((deferred, "bad", "it burns"), (acted, "gold", "")):
            run = next(str(event.originator_id) for at, event in made if at == index)
            log.save(Review.of(index=index, entry_hash="00", run=run, mark=mark, note=note))
        assert [each.mark for each in marks_on(log, "scripted")] == ["bad", "gold"]
        assert not marks_on(log, "another")
        settings = ModelSettings(model="scripted", base_url=done.server.url, rung="json_schema")
        with closing(ChatClient(settings, "none")) as client:
            tuner = Tuner(
                done.home,
                log,
                settings,
                client,
                scenarios=FEW,
                comparison=QUICK,
            )
            ended = tuner.round([], technique="negative_constraint")
    assert ended.pattern == "review R1 defer"
    constraint = advice_of(done.server.requests[-1]) + advice_of(done.server.requests[-2])
    assert 'Not `defer` for R1 on side high, because "it burns".' in constraint
    (name,) = tuner.advice.scenarios
    recorded = tuner.advice.scenarios[name]
    assert name == f"gold-{acted}"
    assert recorded["admitted"]
    assert recorded["expected"] == [
        {"rule": "R1", "acts": [{"direction": "decrease_lr", "params": {}}]}
    ]
    asked = [event for event in tuner._scenarios() if event.task_id == name]
    assert observation_of(asked[0]).due == ("R1",)


def campaigns(seed: int, folder: Path, *, flaky: float) -> tuple[list[float], list[float]]:
    """Return the process scores of the attempts with and without tuning."""
    draw = Random(seed)
    weak = draw.choice((["R1"], ["R1", "R2"], ["R1", "R5"]))
    mended_by = draw.sample(ALL, 3)
    found = []
    for tune in (True, False):
        model = Obeys(weak=weak, mended_by=mended_by, flaky=flaky, seed=seed)
        with ChatServer(model) as server, pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_BASE_URL", server.url)
            patch.setenv("OPENAI_API_KEY", "none")
            command = [
                "run",
                "--policy",
                "openai",
                *TASK,
                f"seed={seed}",
                "--attempts",
                str(ATTEMPTS),
            ]
            command += ["--set", "model=scripted", "--json", *(["--tune"] if tune else [])]
            done = call_here(command, home=folder / f"{seed}-{tune}")
        found.append([each["process_score"] for each in answer(done)["attempts"]])
    return found[0], found[1]


# A model that errs at random asks for 20 campaigns of each kind, which take half an hour.
@pytest.mark.parametrize("flaky", [0.0, 0.1] if EXHAUSTIVE else [0.0])
def test_tuning_improves_the_later_attempts(flaky: float, tmp_path: Path) -> None:
    gains = []
    for seed in range(20 if EXHAUSTIVE else 6):
        tuned, plain = campaigns(seed, tmp_path, flaky=flaky)
        gains.append(fmean(tuned[1:]) - fmean(plain[1:]))
        print(seed, [round(x, 2) for x in tuned], [round(x, 2) for x in plain], flush=True)
    low, high = paired_interval(gains)
    print(f"gain in process score {fmean(gains):.3f}, 95% interval {low:.3f} to {high:.3f}")
    assert low > 0.0


def test_text_that_only_adds_is_never_promoted_in_200_rounds(tmp_path: Path) -> None:
    model = Obeys(weak=["R1"], mended_by=(), flaky=0.1, seed=1)
    four = tuple(task for task in held_out() if task.task_id in ("r1-high", "r3-plateau"))
    home = Home(tmp_path / "home")
    with ChatServer(model) as server, home.open_log() as log:
        settings = ModelSettings(model="scripted", base_url=server.url, rung="json_schema")
        with closing(ChatClient(settings, "none")) as client:
            tuner = Tuner(
                home,
                log,
                settings,
                client,
                scenarios=(*FEW, *four[1:]),
                random=Random(1),
            )
            for number in range(200):
                about = Pattern(
                    key=f"violation {number}",
                    kind="violation",
                    count=1,
                    says=f"an unresolved deferral in epoch {number}",
                    rule="R1",
                )
                ended = tuner.round([about], technique="negative_constraint")
                assert ended.outcome == "kept", ended.reason
            assert tuner.champion() == ("", 0)
            print(f"{len(server.requests)} requests")
