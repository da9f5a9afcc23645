"""Studies: what the playbook is worth, thresholds, provoked faults, real images.

    python -m proctor.studies playbook [CIFAR_DIR] [--results FILE] [--seeds 10] [--compare FILE]
    python -m proctor.studies thresholds [CIFAR_DIR] [--results FILE] [--workers N]
    python -m proctor.studies faults [CIFAR_DIR] [--seeds 20] [--results FILE] [--workers N]
    python -m proctor.studies diagnostics [CIFAR_DIR]
    python -m proctor.studies images DIR

Each prints the tables of its page in docs/explanation/. Runs are trained in as many processes as
there are cores, one thread each.
"""

import sys
from collections.abc import Callable
from typing import Any

from proctor.errors import EXIT_INTERRUPTED, ProctorError
from proctor.studies import calibration, faults, playbook
from proctor.studies.audited import study_images
from proctor.studies.diagnostics import study_diagnostics

STUDIES: dict[str, Callable[..., Any]] = {
    "faults": faults.main,
    "playbook": playbook.main,
    "thresholds": calibration.main,
}


def main(arguments: list[str]) -> None:
    """Run the study that is named first."""
    name, *rest = arguments or ["?"]
    try:
        if name in STUDIES:
            STUDIES[name](rest)
        elif name == "diagnostics" and len(rest) <= 1:
            study_diagnostics(*rest)
        elif name == "images" and len(rest) == 1:
            study_images(*rest)
        else:
            sys.exit(__doc__)
    except ProctorError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
