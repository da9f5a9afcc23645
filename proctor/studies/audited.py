"""Studies of whole runs: each is trained and audited in a home that is deleted afterwards."""

import argparse
import math
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from aggregates.signals import EpochSignals
from judge.auditing.audit import audit_run
from judge.auditing.report import AuditReport
from monitor.config import RunConfig
from monitor.loop import train
from policies.deciding.catalogue import create_policy
from proctor.home import Home
from proctor.studies.tables import print_table


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run."""

    history: tuple[EpochSignals, ...]
    val_accuracy: tuple[float, ...]
    fired: tuple[tuple[str, ...], ...]  # by epoch, as the run's own profile saw it
    decisions: tuple[str, ...]  # epoch, rule, direction of those that acted
    end_reason: str
    report: AuditReport


def train_once(job: tuple[dict[str, Any], str]) -> Outcome:
    """Train and judge one run in a home of its own and return what the studies look at."""
    config, policy = job
    accuracies: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        with home.open_log() as log:
            run = train(
                RunConfig.from_dict(config),
                create_policy(policy),
                log=log,
                blobs=home.blobs,
                submission_dir=home.path / "submission",
                on_epoch=lambda _, measured: accuracies.append(measured["validation"]["accuracy"]),
            )
            report = audit_run(
                run.id, ledger_dir=home.ledger, submission_dir=home.path / "submission", log=log
            )
    acted = [
        f"{past.epoch}: {past.decision.cites[0]} {past.decision.direction}"
        for past in run.decisions
        if past.outcome == "applied"
    ]
    return Outcome(
        history=tuple(run.history),
        val_accuracy=tuple(accuracies),
        fired=tuple(run.fired(epoch) for epoch in range(len(run.history))),
        decisions=tuple(acted),
        end_reason=str(run.end_reason),
        report=report,
    )


def train_all(jobs: Sequence[tuple[dict[str, Any], str]]) -> list[Outcome]:
    """Train all, one process a core."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(train_once, jobs))


def main(arguments: Sequence[str]) -> None:
    """Run the study of real images and print its page's tables."""
    parser = argparse.ArgumentParser(
        prog="python -m proctor.studies images",
        description="Train on real images from a sane and from a bad start.",
    )
    parser.add_argument("folder", metavar="DIR", help="Folder with train/ and test/ of images.")
    study_images(parser.parse_args(arguments).folder)


def study_images(folder: str, *, train_examples: int | None = None) -> None:
    """Sane and bad hyperparameters on real images, eight epochs, two blocks of width 32."""
    base = {
        "dataset": f"imagefolder:{folder}",
        "train_examples": train_examples,
        "epochs": 8,
        "blocks": 2,
        "channels": 32,
        "width": 32,
        "threads": 1,
    }
    starts: dict[str, dict[str, Any]] = {
        "sane": {"lr": 0.05, "warm_up_epochs": 1},
        "bad": {"lr": 0.3, "warm_up_epochs": 0},
    }
    jobs = [({**base, **change}, "playbook") for change in starts.values()]
    for name, outcome in zip(starts, train_all(jobs), strict=True):
        print(f"\n{name}: {starts[name]}\n")
        print_table(
            ("epoch", "train loss", "val loss", "train accuracy", "val accuracy", "fired"),
            [
                (
                    each.epoch,
                    each.train_loss,
                    each.val_loss,
                    each.train_accuracy,
                    outcome.val_accuracy[each.epoch],
                    " ".join(outcome.fired[each.epoch]),
                )
                for each in outcome.history
            ],
        )
        scores = outcome.report.scores
        print(
            f"\nremedies: {'; '.join(outcome.decisions) or 'none'}; {outcome.end_reason}\n"
            f"test accuracy {test_accuracy(outcome):.4f}, accuracy score "
            f"{scores.accuracy_score:.3f} (target {scores.target_accuracy}), process score "
            f"{scores.process_score:.3f}, {len(outcome.report.violations)} violations in "
            f"{scores.obligations} obligations, hard fail: {scores.hard_fail}"
        )


def test_accuracy(outcome: Outcome) -> float:
    """Return the judge's test accuracy of the submitted weights, NaN if it did not get that far."""
    found = outcome.report.scores.test_accuracy
    return math.nan if found is None else found
