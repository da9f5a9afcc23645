"""Where the thresholds of the calibrated profile come from: one half of a grid of settings.

    python docs/studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]

Healthy runs on all settings of the grid, and provoked faults on the settings whose hash is even.
Thresholds are chosen on that half; the healthy runs of the other half report what they are worth
(the study `faults` reports the rest).  I/O: trains, unless FILE has the results; prints tables.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from aggregates.rulebook import RULES
from aggregates.rules import PROFILES, RulesConfig
from aggregates.signals import EpochSignals
from studies.detection import fired_by_epoch
from studies.starts import (
    RATES,
    Runs,
    Start,
    datasets_of,
    faulty_starts,
    healthy_starts,
    train_starts,
)
from studies.statistics import Share, print_table
from studies.thresholds import (
    Choice,
    Side,
    band_levels,
    choose,
    choose_patience,
    most_extreme,
    pooled_levels,
    waits,
)

SEEDS = 20  # of each fault
LATE = {"r1_patience": 0.02, "r3_patience": 0.01}  # share of waits given up on

History = Sequence[EpochSignals]
Levels = Callable[[History], list[float | None]]


def run(options: Namespace) -> None:
    """Train what an earlier call has left, and print the page's tables."""
    datasets = datasets_of(options)
    starts = [
        *healthy_starts(datasets),
        *faulty_starts(datasets, calibrates=True, seeds=SEEDS),
    ]
    print_study(train_starts(starts, options), PROFILES["calibrated"])


def choose_thresholds(runs: Runs, rules: RulesConfig) -> dict[str, Choice]:
    """Choose every threshold that provoked faults can tell, on the settings whose hash is even."""
    kept = {start: run.history for start, run in runs.items() if start.setting.calibrates}

    def histories(chosen: Callable[[Start], bool]) -> list[History]:
        return [history for start, history in kept.items() if chosen(start)]

    def named(name: str) -> list[History]:
        return histories(lambda start: start.name == name)

    def with_norm(rule: str) -> list[History]:  # an infinite loss has none
        return histories(lambda start: _expects(start, rule) and start.name != "infinite_loss")

    def band(signal: str, side: Side, faulty: list[History], *, linear: bool = False) -> Choice:
        levels = partial(band_levels, signal=signal, side=side, persistence=rules.persistence)
        return _chosen(levels, healthy, faulty, side, linear=linear)

    def peak(signal: str, quiet: list[History], faulty: list[History]) -> Choice:
        levels = partial(band_levels, signal=signal, side="high", persistence=1)
        return _chosen(levels, quiet, faulty, "high")

    healthy = histories(lambda start: start.fault is None)
    steps = histories(lambda start: _expects(start, "R1") and start.name != "lr_too_low")
    others = histories(lambda start: not _expects(start, "R7"))
    pooled = partial(pooled_levels, side="high", persistence=rules.persistence)
    return {
        "r1_high": band(rules.r1_signal, "high", named("lr_too_high")),
        "r1_at_once": peak(rules.r1_signal, healthy, steps),
        "r1_low": band(rules.r1_signal, "low", named("lr_too_low")),
        "r2_high": _chosen(pooled, healthy, named("batch_too_large"), "high"),
        "r5_high": band(rules.r5_signal, "high", named("dead_activations"), linear=True),
        "r6_low": band("min_layer_grad_norm", "low", with_norm("R6")),
        "r7_at_once": peak("max_layer_grad_norm", others, with_norm("R7")),
    }


def choose_patiences(runs: Runs, rules: RulesConfig) -> dict[str, tuple[int, list[int]]]:
    """Return both patiences with the waits that they come from."""
    histories = [
        run.history
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
            fired += fired_by_epoch(run.history, rules)
            bands = fired_by_epoch(run.history, replace(rules, r1_patience=10_000))
            plateaus += [set(now) - {"R3"} for now in bands]
    return {
        **{rule: Share.true(rule in now for now in fired) for rule in RULES},
        "not a plateau": Share.true(bool(now) for now in plateaus),
    }


def print_study(runs: Runs, rules: RulesConfig) -> None:
    """Print the tables of docs/studies/rules.md."""
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


def _rates(runs: Runs) -> list[tuple[str, ...]]:
    found: dict[tuple[str, int], dict[float, list[float]]] = {}
    for start, run in runs.items():
        if start.name is None:
            keys = start.setting.keys
            rate = round(keys["lr"] / start.setting.best_rate, 3)
            lowest = min(each.val_loss for each in run.history)
            by_rate = found.setdefault((start.setting.dataset, keys["batch_size"]), {})
            by_rate.setdefault(rate, []).append(lowest)
    return [
        (
            dataset,
            str(batch),
            *(f"{fmean(by_rate[rate]):.3f}" if rate in by_rate else "-" for rate in RATES),
        )
        for (dataset, batch), by_rate in found.items()
    ]
