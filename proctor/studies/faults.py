"""What the rules make of provoked faults, on the settings that no threshold was chosen on.

    python -m proctor.studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]

Each provocation in so many seeds, each seed on another setting whose hash is odd, under the policy
that never acts; a control beside them, and the healthy runs of these settings.
I/O: trains, unless FILE has the results; prints tables.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from aggregates.provocations import CATALOGUE, Fault
from aggregates.rules import PROFILES, RulesConfig
from aggregates.signals import EpochSignals
from proctor.studies.calibration import healthy_shares, parse, train_starts
from proctor.studies.detection import Detection, detect, fired_by_epoch
from proctor.studies.runner import Result
from proctor.studies.shares import Share
from proctor.studies.starts import CONTROL, Start, faulty_starts, healthy_starts
from proctor.studies.tables import print_table

HARMLESS = 0.1  # share of the control's progress that a fault may cost and still be harmless

Runs = Mapping[Start, Result]


def main(arguments: Sequence[str]) -> None:
    """Run the study, or as much as an earlier call has left, and print its page's tables."""
    options = parse(arguments, "faults", __doc__)
    datasets = ("shapes", "images") if options.cifar_dir else ("shapes",)
    starts = [
        *faulty_starts(datasets, calibrates=False, seeds=options.seeds),
        *(each for each in healthy_starts(datasets) if not each.setting.calibrates),
    ]
    print_study(train_starts(starts, options), PROFILES["calibrated"])


def print_study(runs: Runs, rules: RulesConfig) -> None:
    """Print the tables of docs/explanation/provocations.md; calibration runs are left out."""
    held_out = {start: run for start, run in runs.items() if not start.setting.calibrates}
    controls = {
        (start.seed, start.setting.hash): run.signals()
        for start, run in held_out.items()
        if start.name == CONTROL
    }
    rows, instead = [], []
    for name in CATALOGUE:
        for expects, found in _by_expectation(name, held_out):
            seen = [_detect(run, fault, rules) for fault, run in found.values()]
            harmful = [
                is_harmful(run.signals(), controls[start.seed, start.setting.hash])
                for start, (_, run) in found.items()
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
                instead.append(
                    (name, expects, ", ".join(f"{rule} {n}" for rule, n in sorted(fronts.items())))
                )
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


def _by_expectation(name: str, runs: Runs) -> list[tuple[str, dict[Start, tuple[Fault, Result]]]]:
    """Return the runs of a provocation apart by the rules that are expected."""
    found: dict[str, dict[Start, tuple[Fault, Result]]] = {}
    for start, run in runs.items():
        fault = start.fault
        if start.name == name and fault is not None:
            found.setdefault(" or ".join(fault.expects), {})[start] = (fault, run)
    return sorted(found.items())


def _detect(run: Result, fault: Fault, rules: RulesConfig) -> Detection:
    return detect(fired_by_epoch(run.signals(), rules), fault, rules)
