"""Where the thresholds of the calibrated profile come from: one half of a grid of settings.

    python -m proctor.studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]

Healthy runs on all settings of the grid, and provoked faults on the settings whose hash is even.
Thresholds are chosen on that half; the healthy runs of the other half report what they are worth
(the study `faults` reports the rest).  I/O: trains, unless FILE has the results; prints tables.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aggregates.rules import PROFILES, RULES, RulesConfig
from aggregates.signals import EpochSignals
from proctor.studies.detection import fired_by_epoch
from proctor.studies.healthy import RATES, Setting
from proctor.studies.runner import Result, run_jobs
from proctor.studies.shares import Share
from proctor.studies.starts import (
    CALIBRATION_SEEDS,
    Start,
    faulty_starts,
    healthy_starts,
    jobs_of,
    measuring_code,
)
from proctor.studies.tables import print_table
from proctor.studies.thresholds import (
    Choice,
    Side,
    band_levels,
    choose,
    choose_patience,
    most_extreme,
    pooled_levels,
    waits,
)

LATE = {"r1_patience": 0.02, "r3_patience": 0.01}  # share of waits given up on

History = Sequence[EpochSignals]
Levels = Callable[[History], list[float | None]]
Runs = Mapping[Start, Result]


def main(arguments: Sequence[str]) -> None:
    """Run the study, or as much as an earlier call has left, and print its page's tables."""
    options = parse(arguments, "thresholds", __doc__)
    datasets = ("shapes", "images") if options.cifar_dir else ("shapes",)
    starts = [
        *healthy_starts(datasets),
        *faulty_starts(datasets, calibrates=True, seeds=CALIBRATION_SEEDS),
    ]
    print_study(train_starts(starts, options), PROFILES["calibrated"])


def parse(arguments: Sequence[str], study: str, description: str | None) -> argparse.Namespace:
    """Return the options that the studies of rules have in common."""
    parser = argparse.ArgumentParser(
        prog=f"python -m proctor.studies {study}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cifar_dir", nargs="?", help="Folder with train/ and test/ of CIFAR-10.")
    parser.add_argument("--results", type=Path, help="File that results are kept in, to go on.")
    parser.add_argument("--workers", type=int, help="Processes (default: one for each core).")
    if study == "faults":
        parser.add_argument("--seeds", type=int, default=20, help="Seeds of each provocation.")
    return parser.parse_args(arguments)


def train_starts(starts: Sequence[Start], options: argparse.Namespace) -> dict[Start, Result]:
    """Train what the results file lacks and return all runs."""
    results = run_jobs(
        jobs_of(starts, options.cifar_dir), options.results, options.workers, code=measuring_code()
    )
    return {start: results[start.key] for start in starts}


def choose_thresholds(runs: Runs, rules: RulesConfig) -> dict[str, Choice]:
    """Choose every threshold that provoked faults can tell, on the settings whose hash is even."""
    kept = {start: run.signals() for start, run in runs.items() if start.setting.calibrates}
    healthy = [history for start, history in kept.items() if start.fault is None]
    named = {
        name: [history for start, history in kept.items() if start.name == name]
        for name in ("lr_too_high", "lr_too_low", "batch_too_large", "dead_activations")
    }
    expecting = {
        rule: [
            history
            for start, history in kept.items()
            if _expects(start, rule) and start.name != "infinite_loss"  # which has no norm
        ]
        for rule in ("R6", "R7")
    }
    steps = [
        history
        for start, history in kept.items()
        if _expects(start, "R1") and start.name != "lr_too_low"
    ]
    others = [history for start, history in kept.items() if not _expects(start, "R7")]

    def band(signal: str, side: Side) -> Levels:
        return lambda history: band_levels(history, signal, side, persistence=rules.persistence)

    def pooled(side: Side) -> Levels:
        return lambda history: pooled_levels(history, side, persistence=rules.persistence)

    def peak(signal: str) -> Levels:
        return lambda history: band_levels(history, signal, "high", persistence=1)

    return {
        "r1_high": _chosen(band(rules.r1_signal, "high"), healthy, named["lr_too_high"], "high"),
        "r1_at_once": _chosen(peak(rules.r1_signal), healthy, steps, "high"),
        "r1_low": _chosen(band(rules.r1_signal, "low"), healthy, named["lr_too_low"], "low"),
        "r2_high": _chosen(pooled("high"), healthy, named["batch_too_large"], "high"),
        "r5_high": _chosen(
            band(rules.r5_signal, "high"), healthy, named["dead_activations"], "high", linear=True
        ),
        "r6_low": _chosen(band("min_layer_grad_norm", "low"), healthy, expecting["R6"], "low"),
        "r7_at_once": _chosen(peak("max_layer_grad_norm"), others, expecting["R7"], "high"),
    }


def choose_patiences(runs: Runs, rules: RulesConfig) -> dict[str, tuple[int, list[int]]]:
    """Return both patiences with the waits that they come from."""
    histories = [
        run.signals()
        for start, run in runs.items()
        if start.setting.calibrates and start.name is None
    ]
    found = {}
    for name, share in LATE.items():
        min_delta = rules.r1_min_delta if name == "r1_patience" else rules.r3_min_delta
        waited = sorted(each for history in histories for each in waits(history, min_delta))
        found[name] = (choose_patience(waited, share), waited)
    return found


def healthy_shares(runs: Runs, rules: RulesConfig, *, calibrates: bool) -> dict[str, Share]:
    """Return the share of healthy epochs in which each rule fires, and any that is no plateau."""
    fired, plateaus = [], []
    for start, run in runs.items():
        if start.name is None and start.setting.calibrates == calibrates:
            now, quiet = _with_plateaus(run.signals(), rules)
            fired += now
            plateaus += quiet
    return {
        **{rule: Share.true(rule in now for now in fired) for rule in RULES},
        "not a plateau": Share.true(bool(now) for now in plateaus),
    }


def print_study(runs: Runs, rules: RulesConfig) -> None:
    """Print the tables of docs/explanation/threshold-study.md."""
    print("Threshold, where it lies, and how many calibration runs are on the wrong side:\n")
    print_table(
        ("threshold", "in force", "chosen here", "healthy up to", "faulty from", "false", "missed"),
        [
            (
                f"`{name}`",
                f"{getattr(rules, name):g}",
                f"{choice.threshold:g}",
                f"{choice.nearest_healthy:.2g}",
                f"{choice.nearest_faulty:.3g}",
                f"{choice.false} of {choice.epochs} epochs",
                f"{choice.missed} of {choice.runs} runs",
            )
            for name, choice in choose_thresholds(runs, rules).items()
        ],
    )
    print("\nEpochs that healthy runs waited for a better validation loss:\n")
    print_table(
        ("patience", "in force", "chosen here", "waits", "longest", "given up on"),
        [
            (
                f"`{name}`",
                getattr(rules, name),
                chosen,
                len(waited),
                max(waited, default=0),
                sum(each > chosen for each in waited),
            )
            for name, (chosen, waited) in choose_patiences(runs, rules).items()
        ],
    )
    print("\nHealthy epochs that fire (share; 95% interval):\n")
    halves = {half: healthy_shares(runs, rules, calibrates=half) for half in (True, False)}
    print_table(
        ("rule", "settings chosen on", "the other settings"),
        [(rule, halves[True][rule], halves[False][rule]) for rule in halves[True]],
    )
    print("\nMean of the lowest validation loss, by dataset, batch and share of the best rate:\n")
    print_table(("dataset", "batch", *map(str, RATES)), _rates(runs))


def _chosen(
    levels: Levels,
    healthy: Sequence[History],
    faulty: Sequence[History],
    side: Side,
    *,
    linear: bool = False,
) -> Choice:
    return choose(
        [level for history in healthy for level in levels(history)],
        [most_extreme(levels(history), side) for history in faulty],
        side,
        linear=linear,
    )


def _expects(start: Start, rule: str) -> bool:
    return start.fault is not None and rule in start.fault.expects


def _with_plateaus(
    history: History, rules: RulesConfig
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return what fires by epoch, and the same without plateaus (R1's and R3)."""
    fired = fired_by_epoch(history, rules)
    bands = fired_by_epoch(history, _without_plateaus(rules))
    return fired, [tuple(rule for rule in now if rule != "R3") for now in bands]


def _without_plateaus(rules: RulesConfig) -> RulesConfig:
    return replace(rules, r1_patience=10_000)


def _rates(runs: Runs) -> list[tuple[str, ...]]:
    found: dict[tuple[str, int], dict[float, list[float]]] = {}
    for start, run in runs.items():
        if start.name is None:
            key = (start.setting.dataset, int(start.setting.keys["batch_size"]))
            losses = [each.val_loss for each in run.signals()]
            found.setdefault(key, {}).setdefault(_rate(start.setting), []).append(min(losses))
    return [
        (
            dataset,
            str(batch),
            *(
                f"{sum(by_rate[rate]) / len(by_rate[rate]):.3f}" if rate in by_rate else "-"
                for rate in RATES
            ),
        )
        for (dataset, batch), by_rate in found.items()
    ]


def _rate(setting: Setting) -> float:
    return round(float(setting.keys["lr"]) / setting.best_rate, 3)
