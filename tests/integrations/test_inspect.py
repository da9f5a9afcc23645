"""The task of inspect_ai, with a model on loopback: its log, its scores, and what is recorded."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_episodes import (
    CALLS,
    STUCK,
    UNRELIABLE,
    acts,
    assert_recorded,
    assert_unreliable,
    ends,
    killer,
    nonsense,
    rows,
    silent,
)
from chat_server import Behaviour, ChatServer

pytestmark = pytest.mark.foreign
inspect_ai = pytest.importorskip("inspect_ai")
from inspect_ai.log import EvalLog, read_eval_log  # noqa: E402 - after the skip

from proctor.environment.inspect_task import training  # noqa: E402

MODEL = "openai-api/local/scripted"
GUIDE = Path(__file__).parents[2] / "docs/how-to/agents.md"


def evaluate(
    home: Path,
    behaviour: Behaviour,
    *,
    seeds: int = 1,
    asking: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **settings: Any,
) -> EvalLog:
    with ChatServer(behaviour) as server:
        (log,) = inspect_ai.eval(
            training(home=str(home), seeds=seeds, asking=asking, **{**STUCK, **settings}),
            model=MODEL,
            model_base_url=server.url,
            model_args={"api_key": "none"},
            log_dir=str(home / "logs"),
            display="none",
            **(limits or {}),
        )
    return read_eval_log(log.location)  # as a reader of the file has it


def test_samples_are_runs_that_the_log_names_with_a_tree_head(tmp_path: Path) -> None:
    log = evaluate(tmp_path, acts, seeds=2, asking={"form": "full"}, limits={"temperature": 0.5})
    assert log.status == "success", log.error
    assert log.samples is not None
    told = [sample.metadata["proctor"] for sample in log.samples]
    assert_recorded(tmp_path, told)
    for sample, each in zip(log.samples, told, strict=True):
        assert sample.scores is not None
        assert {name: score.value for name, score in sample.scores.items()} == {
            "process_score": each["process_score"],
            "validation_accuracy": each["val_accuracy"],
            "usable": 1.0,
        }
        assert [each.role for each in sample.messages][-3:] == ["system", "user", "assistant"]
    assert log.results is not None
    assert [(each.name, sorted(each.metrics)) for each in log.results.scores] == [
        ("process_score", ["mean", "stderr"]),
        ("validation_accuracy", ["mean", "stderr"]),
        ("usable", ["mean", "stderr"]),
    ]
    seeds = rows(tmp_path, "SELECT DISTINCT config ->> '$.seed' AS seed FROM runs ORDER BY ALL")
    assert [each["seed"] for each in seeds] == ["0", "1"]
    assert [list(each.values()) for each in rows(tmp_path, CALLS)] == [
        [MODEL, "inspect_ai", "0.5", "1024"]
    ]


def test_nonsense_and_late_answers_are_recorded_and_the_training_goes_on(tmp_path: Path) -> None:
    log = evaluate(tmp_path, UNRELIABLE, asking={"timeout": 1.0}, epochs=8)
    assert log.status == "success", log.error
    assert log.samples is not None
    assert_unreliable(tmp_path, log.samples[0].metadata["proctor"])


def test_model_without_a_usable_answer_has_no_score_but_that(tmp_path: Path) -> None:
    log = evaluate(tmp_path, nonsense)
    assert log.samples is not None
    assert log.samples[0].scores is not None
    scores = {name: str(score.value) for name, score in log.samples[0].scores.items()}
    assert scores == {"process_score": "nan", "validation_accuracy": "nan", "usable": "0.0"}


@pytest.mark.parametrize(
    ("behaviour", "limits", "problem", "end"),
    [
        pytest.param(silent, {}, "answered none of the .* no such key", "completed", id="silent"),
        pytest.param(killer, {}, "training process ended by itself", "crashed", id="killed"),
        pytest.param(acts, {"token_limit": 150}, None, "interrupted", id="limit"),
    ],
)
def test_run_of_a_sample_that_fails_is_recorded(
    tmp_path: Path,
    behaviour: Behaviour,
    limits: dict[str, Any],
    problem: str | None,
    end: str,
) -> None:
    log = evaluate(tmp_path, behaviour, limits=limits)
    assert log.samples is not None
    (sample,) = log.samples
    if problem is None:
        assert sample.limit is not None
        assert sample.scores is not None
        assert str(sample.scores["process_score"].value) == "nan"
    else:
        assert sample.error is not None
        assert re.search(problem, sample.error.message)
    assert ends(tmp_path) == [end]
    (run,) = rows(tmp_path, "SELECT run_id FROM runs")
    assert sample.metadata["proctor"]["run"] == run["run_id"]


def test_task_of_the_guide_is_evaluated(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(# trainings.py\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "trainings.py").write_text(code[0], encoding="utf-8")
    with ChatServer(acts) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "inspect_ai", "eval", "trainings.py", "--model", MODEL),
                *("--log-dir", "logs", "--display", "none"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "LOCAL_API_KEY": "none",
                "LOCAL_BASE_URL": server.url,
                "PYTHONPATH": str(GUIDE.parents[2]),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert set(ends(tmp_path / "evaluated")) == {"completed"}
