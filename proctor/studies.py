"""Studies: where the rules' thresholds come from, what decisions are worth, real images.

    python -m proctor.studies thresholds
    python -m proctor.studies benefit
    python -m proctor.studies images DIR

Each prints the tables of its page in docs/explanation/. Runs are trained and judged in as many
processes as there are cores, one thread each, and leave nothing behind.
"""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from aggregates.rules import PROFILES, RULES, evaluate_rules
from aggregates.signals import EpochSignals
from judge.audit import audit_run
from judge.report import AuditReport
from monitor.config import RunConfig
from monitor.loop import train
from policies.catalogue import create_policy
from proctor.home import Home

SMALL: dict[str, Any] = {
    "channels": 16,
    "width": 16,
    "train_examples": 1_500,
    "val_examples": 300,
    "epochs": 12,
    "threads": 1,
}
# One fault for each side of each rule, and a healthy control at the same settings.
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "learning rate 3": ("R1 high", {"lr": 3.0, "warm_up_epochs": 0}),
    "learning rate 1": ("R1 high", {"lr": 1.0, "warm_up_epochs": 0}),
    "learning rate 1e-4": ("R1 low", {"lr": 1e-4}),
    "batches of 1": ("R2 low", {"batch_size": 1, "train_examples": 400}),
    "batches of 512": ("R2 high", {"batch_size": 512}),
    "60 images": ("R3", {"train_examples": 60, "batch_size": 20, "epochs": 20}),
    "2 channels": ("R4", {"channels": 2, "width": 2, "lr": 0.02}),
    "no norm, learning rate 0.2": ("R5", {"norm": "none", "lr": 0.2, "warm_up_epochs": 0}),
    "20 plain GELU blocks": (
        "R6",
        {"norm": "none", "residual": False, "activation": "gelu", "blocks": 20, "lr": 0.01},
    ),
    "12 blocks without norm": ("R7", {"norm": "none", "blocks": 12, "lr": 0.01}),
}


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


def study_thresholds() -> None:
    """Ten healthy and ten faulty runs: how far apart are their signals?"""
    healthy = [({**SMALL, "seed": seed}, "nothing") for seed in range(10)]
    faulty = [({**SMALL, **change}, "nothing") for _, change in FAULTS.values()]
    outcomes = train_all(healthy + faulty)
    sane, ill = outcomes[:10], dict(zip(FAULTS, outcomes[10:], strict=True))
    signals = (
        "update_ratio",
        "signal_to_noise",
        "dead_share",
        "min_layer_grad_norm",
        "max_layer_grad_norm",
    )
    print("Range of each signal's average (EMA) over a run, from its third epoch on:\n")
    _table(
        ("run", *signals),
        [
            ("ten healthy", *(_range(sane, signal) for signal in signals)),
            *(
                (
                    f"{name} ({FAULTS[name][0]})",
                    *(_range([ill[name]], signal) for signal in signals),
                )
                for name in FAULTS
            ),
        ],
    )
    print("\nRules that fire, with the number of epochs in which they do:\n")
    _table(
        ("run", *PROFILES),
        [
            *((f"healthy, seed {seed}", *_firings(each)) for seed, each in enumerate(sane)),
            *((f"{name} ({FAULTS[name][0]})", *_firings(ill[name])) for name in FAULTS),
        ],
    )


def study_benefit() -> tuple[float, float]:
    """Ten seeds from a bad start: playbook against nothing, by the judge's test accuracy."""
    start = {**SMALL, "lr": 3.0, "warm_up_epochs": 0}
    jobs = [
        ({**start, "seed": seed}, policy)
        for seed in range(10)
        for policy in ("playbook", "nothing")
    ]
    outcomes = train_all(jobs)
    pairs = list(zip(outcomes[::2], outcomes[1::2], strict=True))
    scores = [[test_accuracy(each) for each in pair] for pair in pairs]
    gains = [acts - idle for acts, idle in scores]
    _table(
        ("seed", "playbook", "nothing", "difference", "process", "violations", "remedies"),
        [
            (
                seed,
                *scores[seed],
                gains[seed],
                acts.report.scores.process_score,
                len(acts.report.violations),
                "; ".join(acts.decisions),
            )
            for seed, (acts, _) in enumerate(pairs)
        ],
    )
    low, high = paired_interval(gains)
    print(f"\nmean difference {sum(gains) / len(gains):.3f}, 95% interval {low:.3f} to {high:.3f}")
    return low, high


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
        _table(
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


def paired_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return Student's confidence interval for the mean of paired differences."""
    count = len(differences)
    mean = sum(differences) / count
    variance = sum((each - mean) ** 2 for each in differences) / (count - 1)
    half = float(student.ppf((1 + level) / 2, count - 1)) * math.sqrt(variance / count)
    return mean - half, mean + half


def test_accuracy(outcome: Outcome) -> float:
    """Return the judge's test accuracy of the submitted weights, NaN if it did not get that far."""
    found = outcome.report.scores.test_accuracy
    return math.nan if found is None else found


def _range(outcomes: Iterable[Outcome], signal: str) -> str:
    averages = []
    for outcome in outcomes:
        ema: float | None = None
        for each in outcome.history:
            value = getattr(each, signal)
            if value is not None and math.isfinite(value):
                ema = value if ema is None else 0.1 * value + 0.9 * ema
                if each.epoch >= 2:
                    averages.append(ema)
    return f"{min(averages):.2g} to {max(averages):.2g}" if averages else "-"


def _firings(outcome: Outcome) -> list[str]:
    shown = []
    for profile in PROFILES.values():
        counts = dict.fromkeys(RULES, 0)
        for epoch in range(len(outcome.history)):
            found = evaluate_rules(outcome.history[: epoch + 1], [], profile)
            for rule in RULES:
                counts[rule] += found[rule].fired
        shown.append(", ".join(f"{rule} {n}" for rule, n in counts.items() if n) or "none")
    return shown


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row]
        print("| " + " | ".join(cells) + " |")


STUDIES: dict[str, Callable[..., Any]] = {
    "benefit": study_benefit,
    "images": study_images,
    "thresholds": study_thresholds,
}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or ["?"]
    if name not in STUDIES or (name == "images") != bool(arguments):
        sys.exit(__doc__)
    STUDIES[name](*arguments)
