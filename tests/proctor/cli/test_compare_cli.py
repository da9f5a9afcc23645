"""Comparisons of policies from the front door: the table, failures, what was cut off."""

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from forked import POOLED, start_forked
from frontdoor import answer, call, call_here, with_settings

from aggregates.decisions import validate_decision
from judge.reference.situations import observe
from ledger.errors import StorageError
from monitor.errors import MonitorError
from proctor.runs.executors import is_of_machine
from proctor.runs.standings import Metric, standings

AGENT = Path(__file__).parents[3] / "docs/examples/agent"
QUIET = {"COLUMNS": "100", "PROCTOR_STATE": "off"}
SMALL = [
    *("train_examples=300", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=4", "warm_up_epochs=0"),
]


def row(policy: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    return {
        "policy": policy,
        "condition": "hot",
        "seed": seed,
        "test_accuracy": accuracy,
        "process_score": 1.0,
        "firings": 2,
        "exercised": True,
        "problem": None,
        "fits": True,
        **more,
    }


def test_differences_are_of_pairs_and_a_failed_run_counts_as_nothing() -> None:
    rows = [row("a", seed, 0.5) for seed in range(4)]
    rows += [row("b", seed, 0.6 + 0.01 * seed) for seed in range(3)]
    rows.append(row("b", 3, 0.9, problem="it failed"))
    first, second = standings(rows, ["a", "b"])
    assert (first.gain, first.wins, first.failed) == (None, None, 0)
    assert (second.failed, second.wins, second.ties) == (1, 3, 0)
    assert second.gain == pytest.approx((0.10 + 0.11 + 0.12 - 0.5) / 4)
    assert second.low is not None
    assert first.accuracy is not None
    assert second.accuracy is not None
    assert second.low < second.accuracy - first.accuracy
    assert second.process == 0.75


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = 3", "must hold a table for each condition"),
        (
            '[a]\nlr = 3.0\n[b]\nlr = 3.0\nsnapshots = "every:1"',
            "the conditions a and b have the same settings",
        ),
        ("[hot\n", "is not valid TOML"),
        ("[hot]\nlrr = 3.0", "condition hot: unknown key lrr; did you mean lr?"),
        ('[hot]\nprovoke = "fire"', "condition hot: "),
        ("[hot]\nseed = 7", "condition hot: remove seed; --seeds sets the seeds"),
        ("a = " + 2_000 * "[", "is not valid TOML"),
        ('[hot]\nnumerics = "portable"\nthreads = 1', "have the same numerics"),
    ],
)
def test_conditions_that_cannot_be_read_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    done = call_here(["compare", "--conditions", str(tmp_path / "c.toml")], home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (tmp_path / "home" / "ledger").exists()


def test_policies_that_cannot_be_compared_are_named(tmp_path: Path) -> None:
    for policies, words in (
        (["--policy", "nothing", "--policy", "nothing"], "nothing is given twice"),
        (["--policy", "nothing", "--policy", "oracle"], "unknown policy 'oracle'"),
        (["--policy", "nothing"], "there is nothing to compare with"),
    ):
        done = call_here(["compare", *policies], home=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr


TASKS = Path(__file__).parents[3] / "docs" / "examples" / "tasks"


def test_what_a_task_cannot_be_used_for_is_said(tmp_path: Path) -> None:
    done = call_here(
        ["run", "--attempts", "3", "--policy", "openai", "--task", str(TASKS / "tabular.py")],
        home=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--attempts excludes --task" in done.stderr
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sweep", "lr"], "--sweep lr: give KEY=V1,V2"),
        (["--sweep", "lrr=1,2"], "condition lrr=1: regression.py has no parameter lrr"),
        (["--sweep", "lr=-1,2"], "condition lr=-1: lr must be a number"),
        (["--sweep", "lr=0.1,0.10"], "gives a value twice"),
        (["--sweep", "seed=1,2"], "remove seed; --seeds sets the seeds"),
        (["lr=1", "--sweep", "lr=1,2"], "lr is given twice"),
        (["--metric", "mse"], "say which values are better, as in mse:higher or mse:lower"),
        (["--metric", "mae:higher"], "METRIC says that lower is better"),
    ],
)
def test_sweep_that_cannot_be_trained_is_refused_before_it_begins(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    task = ["compare", "--task", str(TASKS / "regression.py")]
    done = call_here([*task, *arguments], home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (tmp_path / "ledger").exists()


def test_rows_of_a_sweep_respect_the_direction_of_the_metric() -> None:
    values = {"a": [2.0, 3.0], "b": [1.0, 2.0], "c": [float("nan"), 1.0]}
    rows = [
        row("nothing", seed, 0.0, condition=name, test_accuracy=None, test_metrics={"mae": value})
        for name, found in values.items()
        for seed, value in enumerate(found)
    ]
    first, second, third = standings(rows, [*values], by="condition", metric=Metric("mae", "lower"))
    assert (first.gain, second.gain, third.gain) == (None, -1.0, -2.0)
    assert [(each.best, each.best_seed) for each in (first, second, third)] == [
        (2.0, 0),
        (1.0, 0),
        (1.0, 1),
    ]
    assert [(each.wins, each.ties, each.failed) for each in (second, third)] == [
        (2, 0, 0),
        (1, 0, 1),
    ]
    assert (second.mean, second.accuracy, third.mean_low) == (1.5, None, None)
    assert second.mean_low is not None
    assert second.mean_low < 1.5


@pytest.mark.slow  # trains 4 times
def test_settings_are_swept_by_the_metric_of_a_task(tmp_path: Path) -> None:
    command = ["compare", "--task", str(TASKS / "regression.py"), "rows=200", "epochs=2"]
    command += ["--sweep", "lr=0.05,0.001", "--seeds", "2", "--json"]
    by_mse = call([*command, "--metric", "mse:lower"], home=tmp_path, code=POOLED)
    done = call(command, home=tmp_path, code=POOLED)
    assert done.stderr == "reports and pages show mse, by which this comparison began\n"
    found = answer(done)
    assert (found["metric"], found["better"], found["by"]) == ("mae", "lower", "condition")
    fast, slow = found["standings"]  # as they were given
    assert (fast["condition"], slow["condition"]) == ("lr=0.05", "lr=0.001")
    assert slow["gain"] == pytest.approx(slow["mean"] - fast["mean"])
    assert slow["gain"] > 0
    assert (slow["wins"], slow["failed"], slow["accuracy"]) == (0, 0, None)
    again = answer(by_mse)
    assert (again["metric"], again["cells"]) == ("mse", found["cells"])
    assert again["standings"][0]["mean"] < again["standings"][1]["mean"]
    wrong = call([*command, "--metric", "r2:higher"], home=tmp_path, code=POOLED)
    assert (wrong.returncode, "it returns mae, mse" in wrong.stdout) == (2, True)
    page = tmp_path / "page.html"
    done = call_here(["report", found["comparison"], "--out", page], home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Test mse: difference from “lr=0.05”" in page.read_text("utf-8")  # as it began


@pytest.mark.slow
def test_policies_are_compared_on_a_task(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[hot]\nlr = 9.0\n", encoding="utf-8")
    settings = ["rows=200", "test_rows=100", "epochs=3", "hidden=8"]
    command = ["compare", "--task", str(TASKS / "tabular.py"), *settings, "--seeds", "1"]
    command += ["--conditions", str(tmp_path / "c.toml"), "--json"]
    found = answer(call(command, home=tmp_path, code=POOLED))
    assert [each["failed"] for each in found["standings"]] == [0, 0]
    assert all(each["accuracy"] > 0.3 for each in found["standings"])
    assert {cell["condition"] for cell in found["cells"]} == {"hot"}
    assert answer(call(command, home=tmp_path, code=POOLED))["cells"] == found["cells"]


@pytest.mark.slow  # trains 8 times; `make study-agent` trains 800 times
def test_comparison_that_is_killed_twice_ends_in_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds, conditions = os.environ.get("STUDY_SEEDS"), AGENT / "held_out.toml"
    policies = ["learned:Learned", "playbook", "random", "nothing"]
    if seeds is None:
        conditions, policies = tmp_path / "few.toml", policies[:2]
        few = "".join(
            f'[{name}]\nprovoke = "{name}"\n' for name in ("lr_too_high", "infinite_loss")
        )
        conditions.write_text(few, encoding="utf-8")
    runs = (
        int(seeds or 1) * len(policies) * conditions.read_text(encoding="utf-8").count("provoke =")
    )
    command = ["compare", "--config", "settings.toml", "--conditions", str(conditions)]
    command += ["--seeds", seeds or "1"]
    for policy in policies:
        command += ["--policy", policy]
    whole = answer(compared([*command, "--json"], home=tmp_path / "whole"))
    for number in range(2):
        child = start_forked(
            command,
            environment={**os.environ, "PROCTOR_HOME": str(tmp_path / "cut"), **QUIET},
            out=tmp_path / "out",
            err=tmp_path / "err",
            cwd=AGENT,
        )
        wait_for_results(tmp_path / "cut", runs * (4 * number + 3) // 20 + 1)
        child.kill()
        child.join()
    again = answer(compared([*command, "--json"], home=tmp_path / "cut"))
    assert again["standings"] == whole["standings"]
    assert again["conditions"] == whole["conditions"]
    assert again["comparison"] == whole["comparison"]
    shown = compared(command, home=tmp_path / "cut").stdout
    assert f"{runs} runs; differences from learned:Learned" in shown
    assert call(["verify"], home=tmp_path / "cut").returncode == 0
    if "STUDY_SEEDS" in os.environ:
        with capsys.disabled():
            print(shown)


def compared(arguments: list[str], *, home: Path) -> subprocess.CompletedProcess[str]:
    """Compare in the agent's folder."""
    return call(arguments, home=home, cwd=AGENT, seconds=7_200)


def wait_for_results(home: Path, count: int) -> None:
    deadline = time.monotonic() + 7_200
    query = "SELECT COUNT(*) AS n FROM comparison_results"
    while time.monotonic() < deadline:
        if (home / "ledger").exists():
            done = call_here(["sql", query, "--format", "json"], home=home)
            if done.returncode == 0 and answer(done)[0]["n"] >= count:
                return
        time.sleep(2)
    raise AssertionError("no results")


ODD = """
import os, time

class Kills:
    def decide(self, seen):
        os._exit(3)

class Takes:
    def decide(self, seen):
        time.sleep(2)
        return []
"""


@pytest.mark.slow  # trains
def test_policy_that_kills_its_process_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD, encoding="utf-8")
    done = call(
        [
            *("compare", *SMALL, "lr=3.0", "--seeds", "1", "--workers", "2", "--json"),
            *("--policy", "odd:Takes", "--policy", "odd:Kills"),
        ],
        home=tmp_path / "home",
        cwd=tmp_path,
    )
    first, second = answer(done)["standings"]
    assert (first["failed"], second["failed"]) == (0, 1)
    told = done.stderr.splitlines()
    assert {line.partition(":")[0] for line in told} == {"run 1 of 2", "run 2 of 2"}
    assert [line for line in told if "failed" in line] == [
        line for line in told if line.endswith("seed 0 failed: the process that trained it died")
    ]
    assert second["accuracy"] == 0.0
    (problem,) = {row["problem"] for row in answer(done)["cells"]} - {None}
    assert problem == "the process that trained it died"


@pytest.mark.slow  # trains
def test_two_processes_of_one_comparison_take_turns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proctor", "compare", *SMALL, "--seeds", "1", "--json"]
    command += ["--home", str(tmp_path / "home")]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    told = [child.communicate() for child in both]
    assert [child.returncode for child in both] == [0, 0], told
    assert told[0][0] == told[1][0]
    waiting = "waiting for another process that is comparing"
    assert sorted(waiting in each[1] for each in told) == [False, True]
    runs = call(
        ["sql", "SELECT COUNT(*) AS n FROM runs", "--format", "json"], home=tmp_path / "home"
    )
    assert answer(runs)[0]["n"] == 2


def test_errors_of_the_machine_are_not_held_against_a_policy() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    wrapped = MonitorError("run failed")
    wrapped.__cause__ = full
    assert all(map(is_of_machine, (full, wrapped, StorageError("locked"), MemoryError())))
    assert not any(map(is_of_machine, (MonitorError("no"), ConnectionError("refused"))))


HALVES = """
from aggregates.decisions import Decision

class Halves:
    name = "halves"

    def describe(self):
        return {}

    def decide(self, seen):
        params = {"lr": seen.settings.lr / 2}  # from 3 to 10 times is allowed
        return [Decision.of((rule,), "decrease_lr", params, "Half.") for rule in seen.due]
"""


@pytest.mark.slow
def test_answers_of_a_policy_that_come_to_nothing_are_shown_beside_those_that_do_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "halves.py").write_text(HALVES, encoding="utf-8")
    command = ["compare", "--policy", "halves:Halves", "--policy", "playbook", "--seeds", "1"]
    command += [*with_settings(SMALL, "epochs=2"), "lr=3.0", "threads=1"]
    home = tmp_path / "home"
    done = call(command, home=home, cwd=tmp_path, code=POOLED)
    assert done.returncode == 0, done.stderr
    found = answer(call([*command, "--json"], home=home, cwd=tmp_path, code=POOLED))
    halves, playbook = found["standings"]
    assert (halves["failed"], halves["applied"], halves["refused"]) == (0, 0, 0)
    assert halves["unusable"] > 0
    assert playbook["applied"] > 0
    assert (playbook["refused"], playbook["unusable"]) == (0, 0)
    run = next(each["run_id"] for each in found["cells"] if each["policy"] == "halves:Halves")
    told = " ".join(done.stdout.split())
    lost = halves["unusable"]
    assert f"halves:Halves 1 0 0 of {lost} " in told
    assert re.findall(r"run (\d) of 2: policy .+, condition default, seed 0\n", done.stderr) == [
        *"12"
    ]
    assert f"playbook 1 0 {playbook['applied']} of {playbook['applied']} " in told
    assert f"not carried out: {lost} answers of halves:Halves, refused or unusable" in told
    assert f"proctor replay {run}" in told
    assert "of playbook, refused" not in told


def test_policy_of_the_example_acts() -> None:
    source = Path(__file__).parents[3] / "docs/examples/compare/lowering.py"
    space: dict[str, Any] = {}
    exec(compile(source.read_text(encoding="utf-8"), source, "exec"), space)
    for rule, side in (("R1", "high"), ("R1", "plateau"), ("R7", "high")):
        seen = observe(Random(1), {rule: side})
        (decision,) = space["Lowering"]().decide(seen)
        assert decision.acts
        validate_decision(decision, seen)
    (decision,) = space["Lowering"]().decide(observe(Random(1), {"R1": "low"}))
    assert not decision.acts
