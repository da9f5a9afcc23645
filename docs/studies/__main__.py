"""What the figures and the written pages of the documentation are made by; none of it is installed.

    python docs/studies playbook [CIFAR_DIR] [--results FILE] [--seeds 10] [--first-seed 0] [...]
    python docs/studies practice [--conditions FILE] [--seeds 8] [--results FILE] [--workers N]
    python docs/studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]
    python docs/studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]
    python docs/studies diagnostics [CIFAR_DIR]
    python docs/studies network [--into FILE] [--seeds 20]
    python docs/studies rates gate|drift|bisection [...]
    python docs/studies mutate [--repo REPO] [...]
    python docs/studies tasks docs/studies/reference_tasks
    python docs/studies bench [all|monitor|notary|projections|long-runs|before REVISION] [...]
    python docs/studies evolution FOLDER [--promotions 6] [--rounds 80] [--starts 60]
    python docs/studies histories FOLDER [--from CLONES] [--only PACKAGE[/KIND]]
    python docs/studies others [--seeds 20] [--calls 100] [--results FILE]
    python docs/studies gpu [...]
    python docs/studies zoo [--seeds 10] [--epochs 10] [--kind NAME]
    python docs/studies power [--seeds 5] [--epochs 8] [--kind NAME]
    python docs/studies watched-rates [--seeds 5] [--epochs 10]
    python docs/studies task-rates [--seeds 3] [--epochs 10] [--task NAME]
    python docs/studies figures PAGE FILE...
    python docs/studies pages

A study prints the tables of its page in this folder. Its runs are trained in as many
processes as there are cores, one thread each. `rates` simulates how often the gate, the alarms
of drift and a bisection err; `mutate` plants defects into the code under the gauntlet, and lists
those that no task detects. `tasks` writes this repository's reference tasks anew. `bench`
measures this machine, `gpu` its GPU, `bench before` an earlier revision as well, and `figures` puts
what they print into a page. `pages` writes the pages that follow from the code.

Exit code 1: too few defects are detected. 2: wrong usage or input.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[1]
sys.path[0] = str(_DOCS)  # where the package `studies` is; Python puts the folder itself there

from judge.errors import JudgeError  # noqa: E402
from ledger.errors import LedgerError, VerificationError  # noqa: E402
from proctor.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_USAGE, ProctorError  # noqa: E402

STUDIES = {  # name -> module of this package, imported when it is asked for, and what it studies
    "diagnostics": ("diagnostics", "Accuracy of the monitor's diagnostics, against brute force."),
    "faults": ("faults", "How well the rules detect provoked faults."),
    "network": ("network", "Weights for the network policy, learned from the playbook."),
    "playbook": ("playbook", "Benefit of the playbook over no action and over random decisions."),
    "practice": ("practice", "What practitioners do against a fault, beside the policy `rescue`."),
    "thresholds": ("calibration", "Where the thresholds of the calibrated profile come from."),
}


PROGRAMS = {  # name -> module whose main() gets the arguments
    "bench": "bench",
    "evolution": "evolution.run",
    "figures": "speed.page",
    "gpu": "on_a_gpu",
    "histories": "histories.run",
    "mutate": "mutate",
    "others": "others.run",
    "power": "power",
    "rates": "rates",
    "task-rates": "task_rates",
    "tasks": "reference.seeds",
    "watched-rates": "watched_rates",
    "zoo": "zoo",
}


def _at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is not below `least`."""

    def read(text: str) -> int:
        if (number := int(text)) < least:  # argparse makes a message of ValueError
            raise argparse.ArgumentTypeError(f"must be {least} or more, not {number}")
        return number

    read.__name__ = "whole number"  # which the message names
    return read


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the study that is named first, and its options."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python docs/studies", description=__doc__, formatter_class=raw
    )
    commands = parser.add_subparsers(dest="study", metavar="STUDY", required=True)
    commands.add_parser("pages", description="Write the pages that follow from the code.")
    for name in PROGRAMS:
        commands.add_parser(name, add_help=False)  # it parses its own arguments
    for name, (_, subject) in STUDIES.items():
        command = commands.add_parser(name, description=subject, help=subject)
        add = command.add_argument
        if name == "network":
            add("--into", type=Path, help="File to write the weights to.")
            add("--seeds", type=int, default=20, help="Trainings of each fault in a round.")
            continue
        if name == "practice":
            add(
                "--conditions",
                type=Path,
                default=_DOCS / "studies" / "rescue.toml",
                help="File of conditions, as for `proctor compare` (default: rescue.toml).",
            )
        else:
            add(
                "folder",
                nargs="?",
                metavar="CIFAR_DIR",
                help="Folder with train/ and test/ of images.",
            )
        if name != "diagnostics":
            add(
                "--results",
                type=Path,
                help="File to keep results in; an interrupted study continues from it.",
            )
            add("--workers", type=_at_least(1), help="Processes (default: one for each core).")
        if name == "faults":
            add("--seeds", type=int, default=20, help="Seeds of each provocation.")
        if name == "practice":
            add("--seeds", type=_at_least(2), default=8, help="Seeds, from 0 (default: 8).")
        if name == "playbook":
            add("--seeds", type=int, choices=range(2, 11), default=10, help="Seeds (default: 10).")
            add("--first-seed", type=_at_least(0), default=0, help="First seed (default: 0).")
            add(
                "--compare",
                type=Path,
                help="Results from another machine, to compare the conclusions with.",
            )
    return parser.parse_args(arguments)


def _write_pages() -> None:
    from studies.pages import PAGES  # noqa: PLC0415 - imports every command

    for name, text in PAGES.items():
        page, told = _DOCS / name, text()
        changed = told != page.read_text(encoding="utf-8")
        page.write_text(told, encoding="utf-8")
        if changed and page.suffix == ".sql":  # this process has read the tables of before
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - no shell is meant


def main(arguments: Sequence[str]) -> None:
    """Run a study, a benchmark or a writer of pages."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # folders are removed
    try:
        if program := PROGRAMS.get(next(iter(arguments), "")):
            import_module(f"studies.{program}").main(arguments[1:])
            return
        options = parse(arguments)
        if options.study == "pages":
            _write_pages()
            return
        import_module(f"studies.{STUDIES[options.study][0]}").run(options)
    except (JudgeError, LedgerError, ProctorError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(EXIT_FOUND if isinstance(error, VerificationError) else EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
