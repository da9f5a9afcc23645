"""The playbook study's rows and tables, from results written by hand."""

from pathlib import Path
from typing import Any

import pytest
from studies import playbook
from studies.playbook import CONDITIONS, Row, collect_rows, print_comparison, print_study
from studies.runner import Job, Result

from monitor.config import RunConfig

ACCURACY = {"nothing": 0.2, "random": 0.3, "playbook": 0.5, "rescue": 0.55}


def result(job: Job, *, failed: bool = False) -> Result:
    """Return a result in which a rule fires unless the start is healthy; seeds differ a little."""
    healthy = "healthy" in job.key
    accuracy = 0.6 if healthy else ACCURACY[job.policy] + 0.001 * int(job.config["seed"])
    return Result(
        key=job.key,
        history=(),
        fired=({},) if healthy else ({"R1": "high"},),
        test_accuracy=None if failed else accuracy,
        error="ValueError: no" if failed else None,
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Result]:
    """Stand in for trainings; return all results by key."""
    known: dict[str, Result] = {}

    def run_jobs(jobs: Any, *_: Any, **__: Any) -> dict[str, Result]:
        found = {
            job.key: result(job, failed=job.key == "shapes/lr_too_low/1/playbook") for job in jobs
        }
        known.update(found)
        return found

    monkeypatch.setattr(playbook, "run_jobs", run_jobs)
    return known


def playbook_rows() -> list[Row]:
    rows = collect_rows({"shapes": "shapes"}, [0, 1], None)
    assert {row.policy for row in rows} == {"playbook", "rescue"}
    return [row for row in rows if row.policy == "playbook"]


def test_study_has_enough_starts_and_every_one_can_be_configured() -> None:
    healthy = [each for each in CONDITIONS if each.healthy]
    assert len(CONDITIONS) >= 8
    assert len(healthy) >= 2
    for condition in CONDITIONS:
        RunConfig.from_dict(condition.config("shapes", 3))


def test_policies_are_trained_only_where_a_rule_fires(trained: dict[str, Result]) -> None:
    rows = playbook_rows()
    assert not [key for key in trained if "healthy" in key and not key.endswith("nothing")]
    healthy, faulty = rows[0], rows[2]
    assert (healthy.same, faulty.same) == (2, 0)
    assert healthy.gains("nothing") == [0.0, 0.0]
    assert faulty.gains("nothing") == pytest.approx([0.3, 0.3])
    assert faulty.gains("random") == pytest.approx([0.2, 0.2])


def test_failed_run_scores_nothing_and_is_counted(
    trained: dict[str, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = playbook_rows()
    (row,) = (each for each in rows if each.condition.name == "lr_too_low")
    assert row.failed == 1
    assert row.gains("nothing") == pytest.approx([0.3, -0.201])
    print_study(rows, [0, 1])
    shown = capsys.readouterr().out
    assert "worst row: healthy" in shown or "worst row: lr_too_low" in shown
    assert "1 failed runs" in shown
    assert f"corrected for {2 * len(rows)} comparisons" in shown


def test_comparison_says_where_conclusions_differ(
    trained: dict[str, Result], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = playbook_rows()
    elsewhere = dict(trained)
    for seed in (0, 1):
        key = f"shapes/lr_too_high/{seed}/"
        elsewhere[key + "playbook"] = elsewhere[key + "nothing"]
    del elsewhere["shapes/infinite_loss/0/playbook"], elsewhere["shapes/infinite_loss/1/playbook"]
    print_comparison(rows, elsewhere)
    shown = capsys.readouterr().out
    assert "| lr_too_high | shapes | +0.300 | +0.000 | no |" in shown
    assert "infinite_loss" not in shown
    assert f"in {len(rows) - 2} of {len(rows) - 1} rows" in shown
