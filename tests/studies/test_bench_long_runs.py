"""The bench of long runs records and judges what it says, and leaves nothing behind."""

import json
from pathlib import Path

import pytest
from studies.bench import app
from studies.speed.long_runs import audit, record
from typer.testing import CliRunner


def test_made_up_run_passes_the_checks_of_its_record(tmp_path: Path) -> None:
    *_, run = record(tmp_path, 30)
    assert run.end_reason == "completed"
    assert len(run.decisions) > 1
    assert audit(tmp_path, run.id) >= 0  # violations; what is wrong would raise


@pytest.mark.slow  # it measures
def test_bench_measures_a_run_and_one_of_a_tenth(tmp_path: Path) -> None:
    asked = ["long-runs", "--epochs", "40", "--rounds", "1", "--folder", str(tmp_path), "--json"]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    assert (found["epochs"], found["rounds"]) == (40, 1)
    assert found["events"] > 80
    assert 0 < found["kept_bytes"] < found["asked_bytes"]
    assert min(found["record_seconds"], found["judge_seconds"], found["prompt_seconds"]) > 0
    assert not list(tmp_path.iterdir())
