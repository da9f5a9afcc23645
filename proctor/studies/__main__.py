"""Studies: where the thresholds come from, provoked faults, real images.

    python -m proctor.studies thresholds
    python -m proctor.studies benefit
    python -m proctor.studies provocations
    python -m proctor.studies images DIR

Each prints the tables of its page in docs/explanation/. Runs are trained in as many processes as
there are cores, one thread each.
"""

import sys
from collections.abc import Callable
from typing import Any

from proctor.errors import ProctorError
from proctor.studies.audited import (
    study_benefit,
    study_images,
    study_provocations,
    study_thresholds,
)

STUDIES: dict[str, Callable[..., Any]] = {
    "benefit": study_benefit,
    "images": study_images,
    "provocations": study_provocations,
    "thresholds": study_thresholds,
}


def main(arguments: list[str]) -> None:
    """Run the study that is named first."""
    name, *rest = arguments or ["?"]
    if name not in STUDIES or (name == "images") != bool(rest):
        sys.exit(__doc__)
    try:
        STUDIES[name](*rest)
    except ProctorError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
