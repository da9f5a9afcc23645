"""The runs that thresholds are chosen on and reported on: healthy ones, and ones with a fault.

Healthy settings are a grid; thresholds may be chosen on one half of it. All runs are trained under
the policy `nothing`, so that rules can be evaluated afterwards, for any thresholds, from the
recorded histories.

Source: docs/studies/rules.md.
I/O: trains; reads the code that measures, to name the results by it.
"""

import hashlib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from aggregates.canonical import digest
from aggregates.provocations import CATALOGUE, Fault, apply_to_config, draw_fault
from monitor.code import HOUSE, hash_files
from studies.runner import Job, Result, run_jobs, show_progress

BATCHES = (16, 32, 64, 128, 256)
RATES = (0.5, 1.0, 2.0)  # times the best learning rate
# Near the rate with the lowest validation loss after six epochs of 2,000 images, of 0.0125, 0.025,
# 0.05, 0.1, 0.2 and 0.4 (12 channels, 2 blocks), evened out where neighbours differ by noise.
BEST_RATES: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "shapes": MappingProxyType({16: 0.05, 32: 0.1, 64: 0.1, 128: 0.2, 256: 0.2}),
        "images": MappingProxyType({16: 0.05, 32: 0.05, 64: 0.1, 128: 0.1, 256: 0.2}),
    }
)
_MODELS = (  # channels of trunk and blocks, blocks, stride of the stem
    (8, 2, 4),
    (16, 2, 4),
    (8, 4, 4),
    (32, 1, 4),
    (8, 1, 2),
)
_EPOCHS = (10, 20, 12, 30)
_REPEATS = 2  # settings for each dataset, batch and rate; they differ in model and epochs
_EXAMPLES = {"train_examples": 1_200, "val_examples": 400, "test_examples": 20}
_FIRST_CALIBRATION_SEED = 1_000
CONTROL = "control"  # a healthy run at the setting, the length and the seed of faulty ones
_FAULTY = {"train_examples": 1_000, "epochs": 6}  # enough to see the rule

_T = TypeVar("_T")


@dataclass(frozen=True)
class Setting:
    """A healthy setting: keys of the configuration but for the dataset's folder and the seed."""

    dataset: str  # shapes or images
    keys: Mapping[str, Any] = field(hash=False)

    @property
    def hash(self) -> str:
        """SHA-256 of the setting in canonical JSON; no folder of this machine is in it."""
        return digest({"dataset": self.dataset, **self.keys})

    @property
    def best_rate(self) -> float:
        """The learning rate that the setting's own one is a multiple of."""
        return BEST_RATES[self.dataset][self.keys["batch_size"]]

    @property
    def calibrates(self) -> bool:
        """Whether thresholds may be chosen on it: whether its hash is even."""
        return int(self.hash[-1], 16) % 2 == 0

    def config(self, folder: str | None, *, seed: int) -> dict[str, Any]:
        """Return the configuration; `folder` holds the images."""
        dataset = "shapes" if self.dataset == "shapes" else f"imagefolder:{folder}"
        return {"dataset": dataset, **self.keys, "seed": seed, "threads": 1}


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
        if self.name is not None:
            config |= _FAULTY
        return config if self.fault is None else apply_to_config(config, self.fault.name, self.seed)

    @property
    def fault(self) -> Fault | None:
        """The fault that is put in, if there is one."""
        if self.name is None or self.name == CONTROL:
            return None
        return draw_fault(self.name, self.seed, {**self.setting.keys, **_FAULTY})


Runs = Mapping[Start, Result]


def healthy_settings(datasets: Sequence[str] = ("shapes", "images")) -> list[Setting]:
    """Return the grid: every batch and rate on every dataset, with drawn models and lengths."""
    return [
        Setting(
            dataset,
            {
                **_EXAMPLES,
                "batch_size": batch,
                "lr": BEST_RATES[dataset][batch] * rate,
                **_model(_draw(f"model {dataset} {batch} {rate}", _MODELS, repeat)),
                "epochs": _draw(f"epochs {dataset} {batch} {rate}", _EPOCHS, repeat),
            },
        )
        for dataset in datasets
        for batch in BATCHES
        for rate in RATES
        for repeat in range(_REPEATS)
    ]


def _model(shape: tuple[int, int, int]) -> dict[str, Any]:
    channels, blocks, stride = shape
    return {"channels": channels, "width": channels, "blocks": blocks, "stem_stride": stride}


def _draw(purpose: str, options: Sequence[_T], repeat: int) -> _T:
    """Return an option that the hash of `purpose` chooses, and others for its repeats."""
    sha = hashlib.sha256(purpose.encode()).digest()
    return options[(int.from_bytes(sha[:8], "big") + repeat) % len(options)]


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
    first = _FIRST_CALIBRATION_SEED if calibrates else 0
    return [
        Start(half[number % len(half)], name, first + number)
        for number in range(seeds)
        for name in (CONTROL, *CATALOGUE)
    ]


def datasets_of(options: Namespace) -> tuple[str, ...]:
    """Return the datasets that the command was given."""
    return ("shapes", "images") if options.folder else ("shapes",)


def train_starts(starts: Sequence[Start], options: Namespace) -> Runs:
    """Train what the results file lacks and return all runs."""
    jobs = [Job(start.key, start.config(options.folder), "nothing") for start in starts]
    results = run_jobs(
        jobs, options.results, options.workers, code=measuring_code(), on_result=show_progress
    )
    return {start: results[start.key] for start in starts}


def measuring_code() -> str:
    """Return the SHA-256 of the code that histories depend on; the rules do not belong to it."""
    files = [*(HOUSE / "monitor").glob("*.py"), HOUSE / "aggregates" / "noise.py"]
    return hash_files((file.name, file.read_bytes()) for file in files)
