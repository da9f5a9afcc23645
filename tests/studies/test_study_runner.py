"""Studies that are interrupted, and whose runs fail: nothing is lost, nothing is counted twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from studies import runner
from studies.runner import Job, Result, StudyError, run_job, run_jobs

TINY: dict[str, Any] = {
    "channels": 4,
    "width": 4,
    "blocks": 1,
    "stem_stride": 4,
    "train_examples": 64,
    "val_examples": 32,
    "test_examples": 32,
    "batch_size": 16,
    "epochs": 3,
    "profile": "calibrated",
}


def jobs(count: int, **changes: Any) -> list[Job]:
    return [
        Job(f"run {seed}", {**TINY, "seed": seed, **changes}, "nothing") for seed in range(count)
    ]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Train in this process, which is faster than starting others; return the keys trained."""
    trained: list[str] = []

    def train_all(missing: list[Job], workers: int, work: Any) -> Any:
        for job in missing:
            trained.append(job.key)
            yield job, work(job)

    monkeypatch.setattr(runner, "_train_all", train_all)
    return trained


def test_result_has_every_epoch_and_test_accuracy_and_survives_the_file(
    tmp_path: Path, in_process: list[str]
) -> None:
    file = tmp_path / "results.jsonl"
    first = run_jobs(jobs(1), file)["run 0"]
    again = run_jobs(jobs(1), file)["run 0"]
    assert in_process == ["run 0"]
    assert again.history == first.history
    assert [each.epoch for each in again.history] == [0, 1, 2]
    assert len(again.fired) == 3
    assert again.test_accuracy is not None
    assert not again.failed


def test_result_has_the_rules_that_fired_and_what_remedies_changed() -> None:
    config = {**TINY, "lr": 1e-7, "warm_up_epochs": 0, "epochs": 4}
    acting, idle = (run_job(Job("one", config, policy)) for policy in ("playbook", "nothing"))
    assert idle.fired[2].get("R1") == "low"
    assert acting.history[:3] == idle.history[:3]
    assert acting.history[3] != idle.history[3]


@pytest.mark.slow
def test_study_killed_in_the_middle_goes_on_with_the_missing_runs(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    script = (
        "from pathlib import Path\n"
        "from studies.runner import Job, run_jobs\n"
        "if __name__ == '__main__':\n"
        f"    config = {TINY!r}\n"
        "    jobs = [Job(f'run {n}', {**config, 'seed': n}, 'nothing') for n in range(200)]\n"
        f"    run_jobs(jobs, Path({str(file)!r}), 1)\n"
    )
    program = tmp_path / "study.py"
    program.write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(Path(runner.__file__).parents[1])},
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (file.exists() and file.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = file.read_bytes().count(b"\n")
    assert 2 <= kept < 200
    done: list[int] = []
    results = run_jobs(
        jobs(kept + 1), file, 1, on_result=lambda count, of, newest: done.append(count)
    )
    assert len(results) == kept + 1
    assert done == [kept + 1]
    anew = run_job(jobs(1)[0])
    assert results["run 0"].history == anew.history
    assert results["run 0"].test_accuracy == anew.test_accuracy


def test_torn_last_line_is_trained_again(tmp_path: Path, in_process: list[str]) -> None:
    file = tmp_path / "results.jsonl"
    run_jobs(jobs(2), file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    run_jobs(jobs(2), file)
    assert in_process == ["run 0", "run 1", "run 1"]
    lines = file.read_text().splitlines()
    assert [json.loads(line)["result"]["key"] for line in lines] == ["run 0", "run 1"]


def test_failed_run_is_kept_counted_and_not_trained_again(
    tmp_path: Path, in_process: list[str]
) -> None:
    file = tmp_path / "results.jsonl"
    broken = Job("broken", {**TINY, "lr": -1.0}, "nothing")
    results = run_jobs([broken, *jobs(1)], file)
    assert results["broken"].failed
    assert "lr must be a number" in str(results["broken"].error)
    assert results["broken"].test_accuracy is None
    assert not results["run 0"].failed
    assert run_jobs([broken], file)["broken"] == results["broken"]
    assert in_process == ["broken", "run 0"]


def test_run_that_fails_on_the_way_keeps_what_it_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no answer")

    monkeypatch.setattr("policies.deciding.nothing.NothingPolicy.decide", fail)
    result = run_job(Job("one", {**TINY, "lr": 1e-7, "warm_up_epochs": 0, "epochs": 4}, "nothing"))
    assert result.failed
    assert "no answer" in str(result.error)
    assert len(result.history) >= 2


@pytest.mark.parametrize("epochs", [2, 4])
def test_result_of_another_configuration_is_refused(
    tmp_path: Path, in_process: list[str], epochs: int
) -> None:
    file = tmp_path / "results.jsonl"
    run_jobs(jobs(1), file)
    with pytest.raises(StudyError, match="line 1: run 0 has another configuration"):
        run_jobs(jobs(1, epochs=epochs), file)


def test_result_of_other_code_is_refused_unless_the_caller_says_what_counts(
    tmp_path: Path, in_process: list[str]
) -> None:
    file = tmp_path / "results.jsonl"
    run_jobs(jobs(1), file, code="first")
    run_jobs(jobs(1), file, code="first")
    with pytest.raises(StudyError, match="line 1: made with another code_sha256"):
        run_jobs(jobs(1), file, code="second")


def test_result_of_other_dispatch_settings_is_refused(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.jsonl"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    run_jobs(jobs(1), file)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    with pytest.raises(StudyError, match="made with another variables"):
        run_jobs(jobs(1), file)


def test_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"key": 1}\n')
    with pytest.raises(StudyError, match="line 1: not a result of a study"):
        run_jobs(jobs(1), file)


def test_two_jobs_of_one_key_are_refused() -> None:
    with pytest.raises(StudyError, match="same key"):
        run_jobs([*jobs(1), *jobs(1)], None)


@pytest.mark.slow
def test_killed_worker_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_job", _die)
    with pytest.raises(StudyError, match="run the same command again"):
        run_jobs(jobs(1), tmp_path / "results.jsonl", 1)


def _die(job: Job) -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(job)
