"""Studies of whole runs: each is trained and audited in a home that is deleted afterwards."""

import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from aggregates.provocations import CATALOGUE, apply_to_config, draw_fault
from aggregates.rules import PROFILES, RULES, evaluate_rules
from aggregates.signals import EpochSignals
from judge.audit import audit_run
from judge.report import AuditReport
from monitor.config import RunConfig
from monitor.loop import train
from policies.catalogue import create_policy
from proctor.home import Home
from proctor.studies.statistics import paired_interval
from proctor.studies.tables import print_table

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
    print_table(
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
    print_table(
        ("run", *PROFILES),
        [
            *((f"healthy, seed {seed}", *_firings(each)) for seed, each in enumerate(sane)),
            *((f"{name} ({FAULTS[name][0]})", *_firings(ill[name])) for name in FAULTS),
        ],
    )


def study_provocations(seeds: int = 3) -> None:
    """Each fault of the catalogue and the healthy control: what fires, and what acting is worth."""
    base = {**SMALL, "channels": 8, "width": 8, "stem_stride": 4, "batch_size": 32, "epochs": 10}
    names: tuple[str | None, ...] = (None, *CATALOGUE)
    keys = [(name, seed) for name in names for seed in range(seeds)]
    jobs = []
    for name, seed in keys:
        config = {**base, "seed": seed}
        provoked = config if name is None else apply_to_config(config, name, seed)
        jobs += [(provoked, policy) for policy in ("playbook", "nothing")]
    outcomes = train_all(jobs)
    pairs = dict(zip(keys, zip(outcomes[::2], outcomes[1::2], strict=True), strict=True))
    rows = []
    for name in names:
        found = [pairs[name, seed] for seed in range(seeds)]
        expected = [() if name is None else draw_fault(name, s, base).expects for s in range(seeds)]
        healthy = [pairs[None, seed][1] for seed in range(seeds)]
        fired = [
            _first_epoch(idle, rules) for (_, idle), rules in zip(found, expected, strict=True)
        ]
        falsely = [_first_epoch(c, rules) for c, rules in zip(healthy, expected, strict=True)]
        best = [[max(each.val_accuracy) for each in pair] for pair in found]
        sane = [max(each.val_accuracy) for each in healthy]
        gains = [acts - idle for acts, idle in best]
        low, high = paired_interval(gains)
        halfway = [
            acts - idle >= (control - idle) / 2 > 0
            for (acts, idle), control in zip(best, sane, strict=True)
        ]
        rows.append(
            (
                name or "(healthy)",
                " or ".join(sorted({rule for rules in expected for rule in rules})) or "-",
                f"{sum(epoch is not None for epoch in fired)} of {seeds}" if name else "-",
                " ".join(str(epoch) for epoch in fired) if name else "-",
                f"{sum(epoch is not None for epoch in falsely)} of {seeds}" if name else "-",
                sum(idle for _, idle in best) / seeds,
                sum(acts for acts, _ in best) / seeds,
                f"{sum(gains) / seeds:+.3f} ({low:+.3f} to {high:+.3f})",
                f"{sum(halfway)} of {seeds}" if name else "-",
                f"{sum(acts.report.process_axis_exercised for acts, _ in found)} of {seeds}",
            )
        )
    print_table(
        (
            "fault",
            "expected",
            "fires",
            "first in epoch",
            "fires in the control",
            "nothing",
            "playbook",
            "difference",
            "halfway to the control",
            "exercised",
        ),
        rows,
    )
    print("\nWhat the playbook did, seed by seed:\n")
    print_table(
        ("fault", "seed", "fired with nobody acting", "remedies"),
        [
            (
                name or "(healthy)",
                seed,
                " ".join(sorted({rule for epoch in idle.fired for rule in epoch})) or "none",
                "; ".join(acts.decisions) or "none",
            )
            for (name, seed), (acts, idle) in pairs.items()
        ],
    )


def _first_epoch(outcome: Outcome, rules: Sequence[str]) -> int | None:
    """Return the first epoch by which all of the rules had fired, None if they never did."""
    firsts = [
        next((epoch for epoch, fired in enumerate(outcome.fired) if rule in fired), None)
        for rule in rules
    ]
    found = [epoch for epoch in firsts if epoch is not None]
    return max(found) if found and len(found) == len(firsts) else None


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
