"""The runs that thresholds are chosen on and reported on: healthy ones, and ones with a fault.

All are trained under the policy `nothing`, so that rules can be evaluated afterwards, for any
thresholds, from the recorded histories.

I/O: reads the code that measures, to name the results by it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregates.provocations import CATALOGUE, Fault, apply_to_config, draw_fault
from proctor.studies.healthy import Setting, healthy_settings
from proctor.studies.runner import Job, Result

SEEDS = 20  # of each fault, on the settings that thresholds are not chosen on
CALIBRATION_SEEDS = 20  # of each fault, on those that they are chosen on
FIRST_CALIBRATION_SEED = 1_000
CONTROL = "control"  # a healthy run at the setting, the length and the seed of faulty ones
FAULTY = {"train_examples": 1_000, "epochs": 6}  # enough to see the rule


@dataclass(frozen=True)
class Start:
    """One run of the studies."""

    setting: Setting
    name: str | None  # of the provocation; None where the run is healthy, CONTROL as long as faulty
    seed: int  # of the run, and of the provocation

    @property
    def key(self) -> str:
        """The job's key."""
        return f"{self.name or 'healthy'}/{self.seed}/{self.setting.hash[:16]}"

    def config(self, folder: str | None) -> dict[str, Any]:
        """Return the run's configuration; `folder` holds the images."""
        config = self.setting.config(folder, seed=self.seed)
        if self.name is None:
            return config
        if self.name == CONTROL:
            return {**config, **FAULTY}
        return apply_to_config({**config, **FAULTY}, self.name, self.seed)

    @property
    def fault(self) -> Fault | None:
        """The fault that is put in, if there is one."""
        if self.name is None or self.name == CONTROL:
            return None
        return draw_fault(self.name, self.seed, {**self.setting.keys, **FAULTY})


def healthy_starts(datasets: Sequence[str]) -> list[Start]:
    """Return the grid, one seed each."""
    return [Start(setting, None, 0) for setting in healthy_settings(datasets)]


def faulty_starts(datasets: Sequence[str], *, calibrates: bool, seeds: int) -> list[Start]:
    """Return the control and each provocation in `seeds` seeds, on settings of one half.

    The settings are taken in the order of their hashes, from the first again when all had a turn.
    """
    half = sorted(
        (each for each in healthy_settings(datasets) if each.calibrates == calibrates),
        key=lambda each: each.hash,
    )
    first = FIRST_CALIBRATION_SEED if calibrates else 0
    return [
        Start(half[number % len(half)], name, first + number)
        for number in range(seeds)
        for name in (CONTROL, *CATALOGUE)
    ]


def jobs_of(starts: Iterable[Start], folder: str | None) -> list[Job]:
    """Return the trainings."""
    return [Job(start.key, start.config(folder), "nothing") for start in starts]


def measuring_code() -> str:
    """Return the SHA-256 of the code that histories depend on; the rules do not belong to it."""
    root = Path(__file__).parents[2]
    files = [*sorted((root / "monitor").glob("*.py")), root / "aggregates" / "noise.py"]
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()


Runs = dict[Start, Result]
