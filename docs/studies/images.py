"""Sane and bad hyperparameters on real images: each run is trained and audited.

Source: docs/studies/rules.md.  I/O: see studies.runner.
"""

from argparse import Namespace
from typing import Any

from studies.runner import Job, Result, run_jobs, show_progress
from studies.statistics import print_table

STARTS: dict[str, dict[str, Any]] = {
    "sane": {"lr": 0.05, "warm_up_epochs": 1},
    "bad": {"lr": 0.3, "warm_up_epochs": 0},
}
_MODEL = {"epochs": 8, "blocks": 2, "channels": 32, "width": 32}


def run(options: Namespace) -> None:
    """Train from both starts and print the page's tables."""
    config = {"dataset": f"imagefolder:{options.folder}", **_MODEL}
    jobs = [Job(name, {**config, **STARTS[name]}, "playbook", audited=True) for name in STARTS]
    results = run_jobs(jobs, options.results, options.workers, on_result=show_progress)
    for name, result in results.items():
        print(f"\n{name}: {STARTS[name]}\n")
        print_result(result)


def print_result(result: Result) -> None:
    """Print the epochs of a run, what was done about them, and its verdict."""
    print_table(
        ("epoch", "train loss", "val loss", "train accuracy", "val accuracy", "fired"),
        [
            (
                each.epoch,
                each.train_loss,
                each.val_loss,
                each.train_accuracy,
                accuracy,
                " ".join(fired),
            )
            for each, accuracy, fired in zip(
                result.history, result.val_accuracy, result.fired, strict=True
            )
        ],
    )
    acted = [f"{each['epoch']}: {each['cites'][0]} {each['direction']}" for each in result.applied]
    print(f"\nremedies: {'; '.join(acted) or 'none'}; {result.error or result.end_reason}")
    if (verdict := result.verdict) is not None:
        print(
            f"test accuracy {result.test_accuracy:.4f}, accuracy score "
            f"{verdict['accuracy_score']:.3f} (target {verdict['target_accuracy']}), process score "
            f"{verdict['process_score']:.3f}, {verdict['violations']} violations in "
            f"{verdict['obligations']} obligations, hard fail: {verdict['hard_fail']}"
        )
