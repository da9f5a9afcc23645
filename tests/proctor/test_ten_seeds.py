"""Ten seeds from a bad start: honest work passes the audit whole, and acting beats not acting."""

from pathlib import Path
from typing import Any

import pytest

from judge.audit import audit_run
from monitor.config import RunConfig
from monitor.loop import train
from policies.catalogue import create_policy
from proctor.home import Home
from proctor.studies import paired_interval

BAD_START: dict[str, Any] = {
    "lr": 3.0,
    "warm_up_epochs": 0,
    "channels": 8,
    "width": 8,
    "train_examples": 600,
    "val_examples": 200,
    "test_examples": 200,
    "epochs": 10,
    "threads": 1,
}


def train_one(home: Home, policy: str, seed: int) -> tuple[Any, float]:
    """Return the closed run and the validation accuracy of what it submits."""
    measured: list[dict[str, Any]] = []
    with home.open_log() as log:
        run = train(
            RunConfig(**BAD_START, seed=seed),
            create_policy(policy),
            log=log,
            blobs=home.blobs,
            submission_dir=home.path / "submission",
            on_epoch=lambda _, now: measured.append(now),
        )
    best, _ = run.weights["best"]
    return run, float(measured[best]["validation"]["accuracy"])


@pytest.mark.parametrize("seed", range(10))
def test_honest_run_under_the_playbook_has_no_hard_fail_and_no_violation(
    seed: int, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    run, _ = train_one(home, "playbook", seed)
    with home.open_log() as log:
        report = audit_run(
            run.id, ledger_dir=home.ledger, submission_dir=home.path / "submission", log=log
        )
    assert not report.hard_fail, [step for step in report.steps if step.status == "failed"]
    assert report.violations == ()
    assert report.scores.obligations > 0


def test_playbook_beats_doing_nothing_over_ten_seeds(tmp_path: Path) -> None:
    gains = []
    for seed in range(10):
        acting, idle = (
            train_one(Home(tmp_path / f"{seed}-{policy}"), policy, seed)[1]
            for policy in ("playbook", "nothing")
        )
        gains.append(acting - idle)
    low, high = paired_interval(gains)
    assert low > 0, (gains, low, high)
