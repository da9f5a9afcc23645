"""Campaigns that are killed and carried on by the same command."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chat_server
import pytest
from campaign_kills import run_command

from aggregates.run import Run
from ledger.verification.reader import check_ledger
from proctor.home import Home
from proctor.output.terminal import plain
from proctor.runs.campaign_replay import read_records

TASK = [
    *("train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=6", "threads=1", "lr=3.0", "warm_up_epochs=0"),
]
COMMAND = [
    "run",
    "--policy",
    "openai",
    *TASK,
    "--set",
    "model=scripted",
    "--attempts",
    "2",
    "--json",
]


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """A server in a process of its own, as the environment in which it is asked."""
    command = [sys.executable, chat_server.__file__, "--script", "defer-r1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            yield {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "a-key-of-no-use"}
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, server: dict[str, str]) -> Path:
    home = tmp_path_factory.mktemp("undisturbed") / "home"
    done = run_command(COMMAND, home=home, environment=server)
    assert done.code == 0, done.out
    return home


@pytest.fixture(autouse=True)
def _remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_STATE", "off")


@pytest.mark.slow
def test_campaign_ends_the_same_when_it_is_killed_at_every_stage(
    undisturbed: Path, server: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    attempt, audit = _sizes(undisturbed)
    moments = {
        "before the probe": 1,  # entries that the command adds before it is killed
        "in the first attempt": attempt // 2,
        "in the judging": 2 + attempt,  # the cut-off run is closed and the attempt abandoned
        "between attempts": audit + 1,
        "in the second attempt": 1 + attempt // 2,
    }
    for moment, entries in moments.items():
        killed = run_command(COMMAND, home=home, environment=server, kill_after=entries)
        assert killed.code == -9, moment
    done = run_command(COMMAND, home=home, environment=server)
    assert done.code == 0, done.out
    assert check_ledger(home / "ledger").ok
    assert _result(home) == _result(undisturbed)
    assert len(_campaign(home).abandoned) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_campaign_ends_the_same_when_it_is_killed_at_any_time(
    undisturbed: Path, server: dict[str, str], tmp_path: Path, seed: int
) -> None:
    home, draw = tmp_path / "home", random.Random(seed)
    for _ in range(8):
        seconds = draw.uniform(0.1, 4.0)
        done = run_command(COMMAND, home=home, environment=server, kill_in=seconds)
        if done.code == 0:
            break
        assert done.code == -9, done.out
    done = run_command(COMMAND, home=home, environment=server)
    assert done.code == 0, done.out
    assert check_ledger(home / "ledger").ok
    assert _result(home) == _result(undisturbed)


def _records(home: Path) -> Any:
    place = Home(home)
    with place.open_log() as log:
        (campaign,) = {
            str(each.originator_id)
            for each in log.recorder.select_notifications(1, 10, topics=["campaign.started"])
        }
    return read_records(place, campaign)


def _campaign(home: Path) -> Any:
    return _records(home).campaign


def _sizes(home: Path) -> tuple[int, int]:
    """Return the number of entries from an attempt's start to its run's end, and of an audit."""
    records = _records(home)
    first = records.campaign.runs[0]
    audit = 2 + len(records.verdicts[first].steps)
    return 1 + len(records.transcripts[first]) + len(records.runs[first]), audit


def _result(home: Path) -> dict[str, Any]:
    """Return all that a campaign comes to, apart from ids, times and what was done again."""
    records = _records(home)
    runs = records.campaign.runs
    verdicts = [records.verdicts[run] for run in runs]
    found = plain(
        {
            "ranking": [runs.index(run) for run in records.campaign.ranking],
            "feedback": records.campaign.told,
            "scores": [verdict.scores for verdict in verdicts],
            "violations": [
                [violation.to_dict() for violation in verdict.violations] for verdict in verdicts
            ],
            "measured": [_events(records, run, Run.EpochMeasured, "measured") for run in runs],
            "decided": [_events(records, run, Run.DecisionMade, "direction") for run in runs],
            "requests": [[call.request for call in records.transcripts[run][1:]] for run in runs],
        }
    )
    assert isinstance(found, dict)
    return found


def _events(records: Any, run: str, kind: type, field: str) -> list[Any]:
    return [getattr(event, field) for event in records.runs[run] if type(event) is kind]
