"""Studies: what the playbook is worth, thresholds, provoked faults, real images.

    python -m proctor.studies playbook [CIFAR_DIR] [--results FILE] [--seeds 10] [--compare FILE]
    python -m proctor.studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]
    python -m proctor.studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]
    python -m proctor.studies diagnostics [CIFAR_DIR]
    python -m proctor.studies images DIR

Each prints the tables of its page in docs/explanation/. Runs are trained in as many processes as
there are cores, one thread each.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from proctor.errors import EXIT_INTERRUPTED, ProctorError
from proctor.studies import audited, calibration, diagnostics, faults, playbook

STUDIES: dict[str, Callable[[Sequence[str]], None]] = {
    "diagnostics": diagnostics.main,
    "faults": faults.main,
    "images": audited.main,
    "playbook": playbook.main,
    "thresholds": calibration.main,
}


def main(arguments: Sequence[str]) -> None:
    """Run the study that is named first; the rest are its own arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m proctor.studies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", choices=sorted(STUDIES), help="Study to run.")
    name = parser.parse_args(arguments[:1]).study
    try:
        STUDIES[name](arguments[1:])
    except ProctorError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
