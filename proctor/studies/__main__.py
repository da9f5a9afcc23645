"""Studies: what the playbook is worth, thresholds, provoked faults, real images.

    python -m proctor.studies playbook [CIFAR_DIR] [--results FILE] [--quarter] [--compare FILE]
    python -m proctor.studies thresholds
    python -m proctor.studies provocations
    python -m proctor.studies images DIR

Each prints the tables of its page in docs/explanation/. Runs are trained in as many processes as
there are cores, one thread each.
"""

import sys
from collections.abc import Callable
from typing import Any

from proctor.errors import EXIT_INTERRUPTED, ProctorError
from proctor.studies import playbook
from proctor.studies.audited import study_images, study_provocations, study_thresholds

STUDIES: dict[str, Callable[..., Any]] = {
    "images": study_images,
    "provocations": study_provocations,
    "thresholds": study_thresholds,
}


def main(arguments: list[str]) -> None:
    """Run the study that is named first."""
    name, *rest = arguments or ["?"]
    try:
        if name == "playbook":
            playbook.main(rest)
        elif name in STUDIES and (name == "images") == bool(rest):
            STUDIES[name](*rest)
        else:
            sys.exit(__doc__)
    except ProctorError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
