"""Ten seeds from a bad start: honest work passes the audit whole.

What acting is worth is measured by `python docs/studies playbook`, over many starts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from aggregates.run import Run
from judge.auditing.audit import audit_run
from monitor.config import RunConfig
from monitor.loop import train
from policies.deciding.catalogue import create_policy
from proctor.home import Home

BAD_START: dict[str, Any] = {
    "lr": 3.0,
    "warm_up_epochs": 0,
    "channels": 8,
    "width": 8,
    "train_examples": 600,
    "val_examples": 200,
    "test_examples": 200,
    "epochs": 6,
    "batch_size": 32,
    "threads": 1,
}


@dataclass(frozen=True)
class Done:
    """A closed run at its home."""

    home: Home
    run: Run


def train_one(home: Home, seed: int) -> Done:
    with home.open_log() as log:
        run = train(
            RunConfig(**BAD_START, seed=seed),
            create_policy("playbook"),
            log=log,
            blobs=home.blobs,
            submission_dir=home.path / "submission",
        )
    return Done(home, run)


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Done]:
    """Return what the playbook made of a seed; each is trained once."""
    return cache(lambda seed: train_one(Home(tmp_path_factory.mktemp("acting") / "home"), seed))


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))]
)
@pytest.mark.sampled(3)
def test_honest_run_under_the_playbook_has_no_hard_fail_and_no_violation(
    seed: int, acting: Callable[[int], Done]
) -> None:
    done = acting(seed)
    with done.home.open_log() as log:
        report = audit_run(
            done.run.id,
            ledger_dir=done.home.ledger,
            submission_dir=done.home.path / "submission",
            log=log,
        )
    assert not report.hard_fail, [step for step in report.steps if step.status == "failed"]
    assert report.violations == ()
    assert report.scores.obligations > 0
