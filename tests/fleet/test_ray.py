"""Trainings on a Ray cluster, beside the same on this machine."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import RayCluster, ray_cluster

pytestmark = pytest.mark.foreign
SETTINGS = [
    *("train_examples=800", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=5", "warm_up_epochs=0", "lr=3.0", "numerics=portable"),
]
COMPARE = ["compare", *SETTINGS, "--seeds", "2", "--json"]
CAMPAIGN = ["run", *SETTINGS, "--policy", "playbook", "--attempts", "2", "--json"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(cpus=2) as cluster:
        yield cluster


def start(
    command: list[str], home: Path, cluster: RayCluster | None = None
) -> "subprocess.Popen[str]":
    variables = {} if cluster is None else cluster.variables
    executor = [] if cluster is None else ["--executor", "ray"]
    return subprocess.Popen(
        [sys.executable, "-m", "proctor", *command, *executor, "--home", str(home)],
        env={**os.environ, **variables, "PROCTOR_STATE": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, (out, err)
    return json.loads(out)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return finished(start(COMPARE, tmp_path_factory.mktemp("local")))


def rows(home: Path, query: str) -> list[Any]:
    try:
        with closing(
            sqlite3.connect(f"{(home / 'ledger/ledger.sqlite').as_uri()}?mode=ro", uri=True)
        ) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []


def wait_until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if found := fact():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def open_and_measured(home: Path) -> list[Any]:
    """Return the streams of runs that have an epoch and no end."""
    measured = "SELECT stream_id FROM entries WHERE name = 'run.epoch_measured'"
    ended = "SELECT stream_id FROM entries WHERE name = 'run.ended'"
    return rows(home, f"{measured} EXCEPT {ended}")


def ends(home: Path) -> list[Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "proctor", "sql", "--format", "json", "--home", str(home)),
            "SELECT end_reason, COUNT(*) AS n FROM runs GROUP BY ALL ORDER BY ALL",
        ],
        env={**os.environ, "PROCTOR_STATE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(each.values()) for each in json.loads(done.stdout)]


def finished_without(process: "subprocess.Popen[str]", home: Path, cluster: RayCluster) -> Any:
    """Kill all workers in the middle, wait for the answer, and look for what was recorded."""
    wait_until(lambda: open_and_measured(home))
    before = rows(home, "SELECT idx, entry FROM entries ORDER BY idx")
    for pid in cluster.workers():
        os.kill(pid, signal.SIGKILL)
    found = finished(process)
    after = rows(home, "SELECT idx, entry FROM entries ORDER BY idx")
    assert after[: len(before)] == before
    verified = subprocess.run(
        [sys.executable, "-m", "proctor", "verify", "--home", str(home)],
        env={**os.environ, "PROCTOR_STATE": "off"},
        check=False,
    )
    assert verified.returncode == 0
    return found


def verdicts(campaign: Any) -> Any:
    own = ("run", "audit")
    attempts = [{k: v for k, v in each.items() if k not in own} for each in campaign["attempts"]]
    places = [campaign["ranking"].index(each["run"]) for each in campaign["attempts"]]
    return attempts, places, campaign["ended"]


def forks(found: Any) -> Any:
    return [{key: each[key] for key in each if key != "run"} for each in found["forks"]]


def table(found: Any) -> Any:
    return found["comparison"], found["standings"], found["conditions"]


def test_comparison_ends_in_the_same_table_when_a_worker_is_killed_in_the_middle(
    tmp_path: Path, cluster: RayCluster, local: Any
) -> None:
    found = finished_without(start(COMPARE, tmp_path, cluster), tmp_path, cluster)
    assert table(found) == table(local)
    assert dict(ends(tmp_path))["completed"] == 4
    assert dict(ends(tmp_path))["crashed"] in (1, 2)


@pytest.mark.parametrize(
    ("kill", "number", "code"), [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)]
)
def test_interrupted_command_ends_its_workers_and_the_same_command_continues(
    tmp_path: Path,
    cluster: RayCluster,
    local: Any,
    kill: Callable[[int, int], None],
    number: int,
    code: int,
) -> None:
    process = start(COMPARE, tmp_path, cluster)
    wait_until(lambda: open_and_measured(tmp_path))
    kill(process.pid, number)
    process.communicate(timeout=120)
    assert process.returncode == code
    wait_until(lambda: not cluster.workers())
    assert not open_and_measured(tmp_path)
    assert "interrupted" in dict(ends(tmp_path))
    assert table(finished(start(COMPARE, tmp_path, cluster))) == table(local)


def test_killed_command_leaves_no_worker_and_its_runs_are_closed_by_the_next(
    tmp_path: Path, cluster: RayCluster, local: Any
) -> None:
    process = start(COMPARE, tmp_path, cluster)
    wait_until(lambda: open_and_measured(tmp_path))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    wait_until(lambda: not cluster.workers())
    assert table(finished(start(COMPARE, tmp_path, cluster))) == table(local)
    assert dict(ends(tmp_path))["crashed"] in (1, 2)


def test_missing_cluster_is_said_in_one_sentence(tmp_path: Path) -> None:
    nowhere = RayCluster("", {"RAY_ADDRESS": "127.0.0.1:9", "RAY_AUTH_MODE": "disabled"})
    process = start(COMPARE, tmp_path, nowhere)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "no Ray cluster at 127.0.0.1:9" in json.loads(out)["message"]
    assert "Traceback" not in err


def test_credit_on_the_cluster_is_the_credit_of_this_machine(
    tmp_path: Path, cluster: RayCluster
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    finished(start(["run", *SETTINGS, "snapshots=every:1", "--json"], here))
    shutil.copytree(here, there)
    command = ["fork", "--decision", "1", "--against", "nothing", "--orders", "2", "--json"]
    local, remote = finished(start(command, here)), finished(start(command, there, cluster))
    assert remote["decisions"] == local["decisions"]

    def by_place(found: Any) -> Any:
        return {(each["arm"], each["seed"]): each for each in found["forks"]}

    assert by_place(remote) == by_place(local)
    finished(start(["judge", remote["forks"][0]["run"], "--json"], there))  # and not a hard fail


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return finished(start(CAMPAIGN, tmp_path_factory.mktemp("campaign")))


def test_campaign_has_the_verdicts_of_this_machine_when_a_worker_is_killed_in_the_middle(
    tmp_path: Path, cluster: RayCluster, campaign: Any
) -> None:
    found = finished_without(start(CAMPAIGN, tmp_path, cluster), tmp_path, cluster)
    assert verdicts(found) == verdicts(campaign)
    assert [each["state"] for each in found["abandoned"]] == ["crashed"]
    assert dict(ends(tmp_path)) == {"completed": 2, "crashed": 1}


def test_interrupted_campaign_is_continued_by_the_same_command(
    tmp_path: Path, cluster: RayCluster, campaign: Any
) -> None:
    process = start(CAMPAIGN, tmp_path, cluster)
    wait_until(lambda: open_and_measured(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    wait_until(lambda: not cluster.workers())
    assert dict(ends(tmp_path)) == {"interrupted": 1}
    found = finished(start(CAMPAIGN, tmp_path, cluster))
    assert verdicts(found) == verdicts(campaign)
    assert [each["state"] for each in found["abandoned"]] == ["interrupted"]


def test_forks_are_those_of_this_machine_when_a_worker_is_killed_in_the_middle(
    tmp_path: Path, cluster: RayCluster
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    finished(start(["run", *SETTINGS, "snapshots=every:1", "--json"], here))
    shutil.copytree(here, there)
    command = ["fork", "--at", "1", "--policy", "nothing", "--policy", "recorded", "--json"]
    command += ["--orders", "2"]
    local = finished(start(command, here))
    remote = finished_without(start(command, there, cluster), there, cluster)
    assert forks(remote) == forks(local)
    assert dict(ends(there))["crashed"] in (1, 2)


@pytest.mark.parametrize("edits", ["live", "restart"])
def test_run_is_that_of_this_machine_when_its_worker_is_killed_in_the_middle(
    tmp_path: Path, cluster: RayCluster, edits: str
) -> None:
    command = ["run", *SETTINGS, f"edits={edits}", "--json"]
    local = finished(start(command, tmp_path / "here"))["runs"]
    process = start(command, tmp_path / "there", cluster)
    remote = finished_without(process, tmp_path / "there", cluster)["runs"]
    shown = ("state", "epochs", "best_val_accuracy", "firings", "decisions")
    assert [[e[k] for k in shown] for e in remote] == [[e[k] for k in shown] for e in local]
    assert dict(ends(tmp_path / "there"))["crashed"] == 1


def test_person_who_decides_is_asked_here(tmp_path: Path) -> None:
    nowhere = RayCluster("", {"RAY_ADDRESS": "127.0.0.1:9", "RAY_AUTH_MODE": "disabled"})
    process = start(["run", *SETTINGS, "--policy", "human", "--json"], tmp_path, nowhere)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "human asks at this terminal" in json.loads(out)["message"]
