"""What the rules make of provoked faults, on the settings that no threshold was chosen on.

    python docs/studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]

Each provocation in so many seeds, each seed on another setting whose hash is odd, under the policy
that never acts; a control beside them, and the healthy runs of these settings.
I/O: trains, unless FILE has the results; prints tables.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

from aggregates.provocations import CATALOGUE
from aggregates.rules import PROFILES, RulesConfig
from aggregates.signals import EpochSignals
from studies.calibration import healthy_shares
from studies.detection import Detection, detect, fired_by_epoch
from studies.starts import (
    CONTROL,
    Runs,
    Start,
    datasets_of,
    faulty_starts,
    healthy_starts,
    train_starts,
)
from studies.statistics import Share, print_table

HARMLESS = 0.1  # share of the control's progress that a fault may cost and still be harmless


def run(options: Namespace) -> None:
    """Train what an earlier call has left, and print the page's tables."""
    datasets = datasets_of(options)
    starts = [
        *faulty_starts(datasets, calibrates=False, seeds=options.seeds),
        *(each for each in healthy_starts(datasets) if not each.setting.calibrates),
    ]
    print_study(train_starts(starts, options), PROFILES["calibrated"])


def print_study(runs: Runs, rules: RulesConfig) -> None:
    """Print the tables of docs/studies/rules.md; calibration runs are left out."""
    held_out = {start: run for start, run in runs.items() if not start.setting.calibrates}
    controls = {
        (start.seed, start.setting.hash): run.history
        for start, run in held_out.items()
        if start.name == CONTROL
    }
    rows, instead = [], []
    for (name, expects), starts in _by_expectation(held_out).items():
        seen = [_detect(start, held_out[start].history, rules) for start in starts]
        harmful = [
            is_harmful(held_out[start].history, controls[start.seed, start.setting.hash])
            for start in starts
            if (start.seed, start.setting.hash) in controls
        ]
        rows.append(
            (
                name,
                expects,
                Share.true(each.in_time for each in seen),
                Share.true(each.wrong_in_front for each in seen),
                f"{sum(harmful)} of {len(harmful)}",
            )
        )
        fronts = Counter(each.front or "none" for each in seen if not each.in_time)
        if fronts:
            shown = ", ".join(f"{rule} {count}" for rule, count in sorted(fronts.items()))
            instead.append((name, expects, shown))
    print("Faults (share; 95% interval):\n")
    print_table(
        (
            "provocation",
            "expected rule",
            "fires in time",
            "another rule in front",
            "costs progress",
        ),
        rows,
    )
    print("\nThe rule in front in runs where the expected rule did not fire in time:\n")
    print_table(("provocation", "expected rule", "in front"), instead)
    print("\nHealthy epochs that fire (share; 95% interval):\n")
    print_table(("rule", "epochs"), list(healthy_shares(held_out, rules, calibrates=False).items()))


def is_harmful(history: Sequence[EpochSignals], control: Sequence[EpochSignals]) -> bool:
    """Return whether a fault costs more than a tenth of the progress of the run without it.

    Progress is how far the training loss of the last epoch lies below that of the first.
    """
    progress = control[0].train_loss - control[-1].train_loss
    lost = history[-1].train_loss - control[-1].train_loss
    return not lost <= HARMLESS * max(progress, 0.0)  # NaN is harmful


def _by_expectation(runs: Runs) -> dict[tuple[str, str], list[Start]]:
    """Return the starts by provocation and expected rules, in the catalogue's order."""
    found: dict[tuple[str, str], list[Start]] = {}
    for start in runs:
        if (fault := start.fault) is not None:
            found.setdefault((fault.name, " or ".join(fault.expects)), []).append(start)
    names = list(CATALOGUE)
    return {key: found[key] for key in sorted(found, key=lambda key: (names.index(key[0]), key))}


def _detect(start: Start, history: Sequence[EpochSignals], rules: RulesConfig) -> Detection:
    assert start.fault is not None, "starts are chosen by their faults"
    return detect(fired_by_epoch(history, rules), start.fault, rules)
