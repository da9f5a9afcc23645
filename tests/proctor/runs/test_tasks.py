"""A task, model and data of somebody else, from its file to the verdict."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from frontdoor import answer, call, call_here

from ledger.handover.envelope import payload_of
from proctor.home import Home
from proctor.runs.curves import read_curves

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "tasks"
TABULAR = (EXAMPLES / "tabular.py").read_text("utf-8")
PORTABLE = "numerics=portable"
SMALL = ("rows=200", "test_rows=100", "epochs=2", "hidden=8")


def run_task(home: Path, task: Path, *settings: str) -> dict[str, Any]:
    # A portable run starts its process again, which no test can do in its own.
    start = call if PORTABLE in settings else call_here
    (run,) = answer(start(["run", "--task", task, *settings, "--json"], home=home))["runs"]
    found: dict[str, Any] = run
    return found


def judge(home: Path, *options: str, portable: bool = False) -> dict[str, Any]:
    start = call if portable else call_here
    found: dict[str, Any] = answer(start(["judge", *options, "--json"], home=home))
    return found


def failed_step(verdict: dict[str, Any]) -> tuple[str, str]:
    (step,) = (each for each in verdict["steps"] if each["status"] == "failed")
    return step["name"], step["summary"]


def write(folder: Path, source: str, *changes: tuple[str, str]) -> Path:
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    path = folder / "task.py"
    path.write_text(source, "utf-8")
    return path


def test_metric_of_a_task_is_everywhere(tmp_path: Path) -> None:
    run = run_task(tmp_path, EXAMPLES / "regression.py", "rows=200", "epochs=2")
    assert (run["metric"], run["better"]) == ("mae", "lower")
    (step,) = (each for each in judge(tmp_path)["steps"] if each["name"] == "test_accuracy")
    assert step["evidence"]["metrics"].keys() == {"mae", "mse"}
    (listed,) = answer(call_here(["runs", "--json"], home=tmp_path))
    story = answer(call_here(["show", "--json"], home=tmp_path))
    assert listed["best_val_metric"] == run["best_val_metric"]
    assert min(row["metrics"]["mae"] for row in story["epochs"]) == run["best_val_metric"]
    assert story["summary"]["test_metric"] == step["evidence"]["value"]
    shown = call_here(["show"], home=tmp_path).stdout
    assert "val mae" in shown
    assert f"test mae {step['evidence']['value']:.4g}" in shown
    handed = tmp_path / "handed"
    for command, out in (("report", tmp_path / "page"), ("export model", handed)):
        done = call_here([*command.split(), "latest", "--out", out], home=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "| test mae |" in (handed / "model" / "README.md").read_text("utf-8")
    page = (tmp_path / "page").read_text("utf-8")
    assert "Best validation mae" in page
    assert "the judge retrained the whole run" in page
    assert "that it cannot train again" not in page
    curves = {
        f"val_{name}"
        for _, _, found in read_curves(Home(tmp_path), "latest").epochs
        for name in ("mae", "mse")
        if f"val_{name}" in found
    }
    assert curves == {"val_mae", "val_mse"}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("task")
    return home, run_task(home, EXAMPLES / "tabular.py", *SMALL)


def test_task_is_trained_judged_and_repeated_bit_for_bit(
    honest: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    home, run = honest
    assert run["state"] == "completed"
    assert run["metric"] == "accuracy"
    verdict = judge(home)
    assert {step["status"] for step in verdict["steps"]} == {"passed"}
    assert verdict["retrained"] == 1.0
    assert verdict["scores"]["test_accuracy"] is not None
    assert "hidden files" in verdict["steps"][1]["evidence"]["isolation"]
    evidence = verdict["steps"][6]["evidence"]
    assert evidence["unchecked"] == [
        "train loss, gradients, updates, activations, and the validation of epochs without "
        "submitted weights are measured beside the task's code"
    ]
    out = tmp_path / "verdict.json"
    done = call_here(["export", "verdict", "latest", "--out", out], home=home)
    assert done.returncode == 0, done.stderr
    stated = json.loads(payload_of(out.read_text()))["predicate"]
    assert stated["unchecked"] == evidence["unchecked"]
    done = call_here(["export", "model", "latest", "--out", tmp_path / "handed"], home=home)
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "handed" / "model" / "README.md").read_text()
    assert "| classes | 3 |" in card
    assert "{" not in card


def test_other_file_in_the_place_of_the_task_is_rejected(
    honest: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(honest[0], home)
    (submission,) = home.glob("runs/*/submission")
    (submission / "task.py").write_text(TABULAR + "\n# another file\n", "utf-8")
    assert failed_step(judge(home))[0] == "deliverables"


@pytest.mark.slow
def test_task_that_goes_back_is_judged_whole_and_not_forked(tmp_path: Path) -> None:
    small = [each for each in SMALL if not each.startswith("epochs")]
    asked: list[str | Path] = [
        "run",
        "--task",
        EXAMPLES / "tabular.py",
        *small,
        "lr=1.0",
        "--policy",
        "rescue",
    ]
    done = call_here([*asked, "epochs=3", "--json"], home=tmp_path)
    assert "keeps no states" not in done.stderr
    (run,) = answer(done)["runs"]
    shown = call_here(["show", run["run_id"]], home=tmp_path).stdout
    assert "go_back" in shown
    verdict = judge(tmp_path)
    assert {step["status"] for step in verdict["steps"]} == {"passed"}
    assert (verdict["retrained"], verdict["violations"]) == (1.0, [])
    done = call_here(["fork", run["run_id"], "--at", "1"], home=tmp_path)
    assert done.returncode != 0
    assert "is a task's: only the state of a run of the built-in model" in done.stderr
    for setting in ("goes_back=false", "profile=calibrated"):
        done = call_here([*asked, "epochs=1", setting], home=tmp_path)
        assert "keeps no states, so the policy rescue answers as the playbook" in done.stderr


@pytest.mark.slow  # each is trained twice
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_trained_judged_and_repeated(path: Path, tmp_path: Path) -> None:
    run = run_task(tmp_path, path, PORTABLE)
    assert run["state"] in ("completed", "stopped")
    verdict = judge(tmp_path, portable=True)
    assert {step["status"] for step in verdict["steps"]} <= {"passed", "violations"}
    assert verdict["retrained"] == 1.0
    accuracy = verdict["scores"]["accuracy_score"]
    assert (accuracy is None) == (run["metric"] != "accuracy")
