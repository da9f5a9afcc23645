"""Studies: what the playbook is worth, thresholds, provoked faults, real images.

    python -m proctor.studies playbook [CIFAR_DIR] [--results FILE] [--seeds 10] [--compare FILE]
    python -m proctor.studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]
    python -m proctor.studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]
    python -m proctor.studies diagnostics [CIFAR_DIR]
    python -m proctor.studies images DIR [--results FILE] [--workers N]
    python -m proctor.studies tiles [BUNDLE] [--vkey FILE] [--workers N] [--spans 4]
    python -m proctor.studies tiles --entries N --into DIR [--workers N] [--spans 4]
    python -m proctor.studies network [--into FILE] [--seeds 20]

Each prints the tables of its page in docs/explanation/. Runs are trained in as many processes as
there are cores, one thread each.

Exit code 1: what was verified is not valid. 2: wrong usage or input.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ledger.errors import LedgerError, VerificationError
from proctor.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_USAGE, ProctorError

STUDIES = {  # name -> module of this package, imported when it is asked for, and what it studies
    "diagnostics": ("diagnostics", "Accuracy of the monitor's diagnostics, against brute force."),
    "faults": ("faults", "How well the rules detect provoked faults."),
    "images": ("images", "Sane and bad hyperparameters on real images."),
    "network": ("network", "Weights for the network policy, learned from the playbook."),
    "playbook": ("playbook", "Benefit of the playbook over no action and over random decisions."),
    "tiles": ("tiles", "Verification of a large bundle in parts, measured and simulated."),
    "thresholds": ("calibration", "Where the thresholds of the calibrated profile come from."),
}


def _positive(text: str) -> int:
    """Return a number of workers or spans; argparse makes a message of ValueError."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the study that is named first, and its options."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m proctor.studies", description=__doc__, formatter_class=raw
    )
    commands = parser.add_subparsers(dest="study", metavar="STUDY", required=True)
    for name, (_, subject) in STUDIES.items():
        command = commands.add_parser(name, description=subject, help=subject)
        add = command.add_argument
        if name == "network":
            add("--into", type=Path, help="File to write the weights to.")
            add("--seeds", type=int, default=20, help="Trainings of each fault in a round.")
            continue
        if name == "tiles":
            add("bundle", nargs="?", metavar="BUNDLE", help="Bundle to verify in parts.")
            add("--vkey", type=Path, metavar="FILE", help="The owner's public key of BUNDLE.")
            add("--workers", type=_positive, help="Processes (default: one for each core).")
            add(
                "--entries",
                type=_positive,
                metavar="N",
                help="Make so many entries and verify them, piece by piece; a piece is removed "
                "when its result is noted.",
            )
            add(
                "--into",
                type=Path,
                metavar="DIR",
                default=Path("tiles"),
                help="Folder of --entries; an interrupted study continues from it (default: "
                "tiles).",
            )
            add(
                "--spans",
                type=_positive,
                default=4,
                help="Times 65,536 entries in a part (default: 4).",
            )
            continue
        add(
            "folder",
            nargs=None if name == "images" else "?",
            metavar="DIR" if name == "images" else "CIFAR_DIR",
            help="Folder with train/ and test/ of images.",
        )
        if name != "diagnostics":
            add(
                "--results",
                type=Path,
                help="File to keep results in; an interrupted study continues from it.",
            )
            add("--workers", type=_positive, help="Processes (default: one for each core).")
        if name == "faults":
            add("--seeds", type=int, default=20, help="Seeds of each provocation.")
        if name == "playbook":
            add("--seeds", type=int, choices=range(2, 11), default=10, help="Seeds (default: 10).")
            add(
                "--compare",
                type=Path,
                help="Results from another machine, to compare the conclusions with.",
            )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Run a study."""
    options = parse(arguments)
    try:
        import_module(f"proctor.studies.{STUDIES[options.study][0]}").run(options)
    except (LedgerError, ProctorError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(EXIT_FOUND if isinstance(error, VerificationError) else EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
