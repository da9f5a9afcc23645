"""The grid of healthy settings, and the half of it that thresholds may be chosen on.

Source: docs/explanation/threshold-study.md.  I/O: none.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from aggregates.canonical import digest

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
MODELS = (  # channels of trunk and blocks, blocks, stride of the stem
    (8, 2, 4),
    (16, 2, 4),
    (8, 4, 4),
    (32, 1, 4),
    (8, 1, 2),
)
EPOCHS = (10, 20, 12, 30)
REPEATS = 2  # settings for each dataset, batch and rate; they differ in model and epochs
EXAMPLES = {"train_examples": 1_200, "val_examples": 400, "test_examples": 20}

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


def healthy_settings(datasets: Sequence[str] = ("shapes", "images")) -> list[Setting]:
    """Return the grid: every batch and rate on every dataset, with drawn models and lengths."""
    return [
        Setting(
            dataset,
            {
                **EXAMPLES,
                "batch_size": batch,
                "lr": BEST_RATES[dataset][batch] * rate,
                **_model(_draw(f"model {dataset} {batch} {rate}", MODELS, repeat)),
                "epochs": _draw(f"epochs {dataset} {batch} {rate}", EPOCHS, repeat),
            },
        )
        for dataset in datasets
        for batch in BATCHES
        for rate in RATES
        for repeat in range(REPEATS)
    ]


def _model(shape: tuple[int, int, int]) -> dict[str, Any]:
    channels, blocks, stride = shape
    return {"channels": channels, "width": channels, "blocks": blocks, "stem_stride": stride}


def _draw(purpose: str, options: Sequence[_T], repeat: int) -> _T:
    """Return an option that the hash of `purpose` chooses, and others for its repeats."""
    sha = hashlib.sha256(purpose.encode()).digest()
    return options[(int.from_bytes(sha[:8], "big") + repeat) % len(options)]
