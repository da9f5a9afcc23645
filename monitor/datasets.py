"""Datasets in memory, split the same way every time into train, validation and test.

The training loop gets train and validation from load_splits(); the test set comes from load_test()
alone, which only the judge calls.
I/O: reads the dataset's folder.  Shapes: images (N, 3, 32, 32) uint8, labels (N,) int64.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from monitor.config import IMAGE_FOLDER, RunConfig
from monitor.errors import DatasetError
from monitor.seeds import generator
from monitor.shapes import CLASSES as SHAPES
from monitor.shapes import draw_shapes

SPLITS = ("train", "validation", "test")
SHAPES_SIZES = {"train": 3_000, "validation": 500, "test": 1_000}  # examples, unless configured
_HELD_OUT = 10  # one in so many examples is held out where a dataset brings no split of its own


@dataclass(frozen=True)
class Split:
    """Images (N, 3, 32, 32) uint8 and their labels (N,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the number of examples, the images' bytes and the labels' bytes."""
        sha = hashlib.sha256(f"{len(self)}\n".encode())
        sha.update(self.images.contiguous().numpy().tobytes())
        sha.update(self.labels.contiguous().numpy().astype("<i8").tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class Splits:
    """What a training may see, and the fingerprints of all three parts."""

    train: Split
    validation: Split
    classes: tuple[str, ...]
    sizes: Mapping[str, int]
    fingerprints: Mapping[str, str]


def load_splits(config: RunConfig) -> Splits:
    """Load what the training sees; raises DatasetError."""
    classes, parts = _load(config)
    return Splits(
        train=parts["train"],
        validation=parts["validation"],
        classes=classes,
        sizes={name: len(parts[name]) for name in SPLITS},
        fingerprints={name: parts[name].fingerprint for name in SPLITS},
    )


def load_test(config: RunConfig) -> Split:
    """Load the held-out test set, which no training sees; raises DatasetError."""
    return _load(config)[1]["test"]


def normalise(images: Tensor) -> Tensor:
    """Map bytes (B, 3, 32, 32) to floats of about zero mean and unit variance."""
    return images.to(torch.float32).sub_(127.5).div_(64.0)


def _load(config: RunConfig) -> tuple[tuple[str, ...], dict[str, Split]]:
    wanted = {
        "train": config.train_examples,
        "validation": config.val_examples,
        "test": config.test_examples,
    }
    if config.dataset == "shapes":
        return SHAPES, {
            name: _as_split(*draw_shapes(name, count or SHAPES_SIZES[name], seed=config.data_seed))
            for name, count in wanted.items()
        }
    if config.dataset == "cifar10":
        return _load_cifar10(config, wanted)
    root = Path(config.dataset.removeprefix(IMAGE_FOLDER))
    return _load_image_folder(root, wanted, config.data_seed)


def _load_cifar10(
    config: RunConfig, wanted: Mapping[str, int | None]
) -> tuple[tuple[str, ...], dict[str, Split]]:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 - takes seconds to import

    if config.data_dir is None:
        raise DatasetError("cifar10 needs data_dir, the folder that holds cifar-10-batches-py")
    try:
        pools = {
            part: CIFAR10(config.data_dir, train=part == "train", download=config.download)
            for part in ("train", "test")
        }
    except (RuntimeError, OSError) as error:
        raise DatasetError(
            f"CIFAR-10 not found in {config.data_dir}: put cifar-10-batches-py there, or set "
            f"download = true ({error})"
        ) from error
    classes = tuple(pools["train"].classes)
    sources = {
        part: _Pool(
            np.asarray(pool.targets),
            lambda chosen, pool=pool: np.ascontiguousarray(  # type: ignore[misc]
                pool.data[chosen].transpose(0, 3, 1, 2)
            ),
        )
        for part, pool in pools.items()
    }
    return classes, _divide(sources, wanted, config.data_seed, "CIFAR-10")


def _load_image_folder(
    root: Path, wanted: Mapping[str, int | None], seed: int
) -> tuple[tuple[str, ...], dict[str, Split]]:
    from torchvision.datasets import ImageFolder  # noqa: PLC0415 - takes seconds to import

    if not root.is_dir():
        raise DatasetError(f"folder {root} not found: imagefolder: needs one folder per class")
    divided = (root / "train").is_dir() and (root / "test").is_dir()
    folders = {"train": root / "train", "test": root / "test"} if divided else {"train": root}
    found: dict[str, ImageFolder] = {}
    for part, folder in folders.items():
        try:
            found[part] = ImageFolder(str(folder))
        except (OSError, RuntimeError) as error:
            raise DatasetError(f"{folder} is not an image folder: {error}") from error
    classes = tuple(found["train"].classes)
    if divided and tuple(found["test"].classes) != classes:
        raise DatasetError(f"{root}/train and {root}/test have different classes")
    if len(classes) < 2:
        raise DatasetError(f"{folders['train']} has only one class; at least two are needed")
    _refuse_repeated([path for folder in found.values() for path, _ in folder.samples])
    sources = {
        part: _Pool(
            np.asarray(folder.targets),
            lambda chosen, paths=[path for path, _ in folder.samples]: np.stack(  # type: ignore[misc]
                [_read_image(Path(paths[index])) for index in chosen]
            ),
        )
        for part, folder in found.items()
    }
    return classes, _divide(sources, wanted, seed, str(root))


@dataclass(frozen=True)
class _Pool:
    """Examples that can be chosen from: their labels, and how to read images by index."""

    labels: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]


def _divide(
    pools: Mapping[str, _Pool], wanted: Mapping[str, int | None], seed: int, where: str
) -> dict[str, Split]:
    """Choose balanced, disjoint parts; the test part comes from its own pool if there is one."""
    orders = {part: _balanced_order(pool.labels, seed, part) for part, pool in pools.items()}
    chosen: dict[str, tuple[_Pool, np.ndarray]] = {}
    rest = orders["train"]
    share = max(2, len(rest) // _HELD_OUT)
    for name in ("test", "validation", "train"):  # the held out first: their choice is stable
        if name == "test" and "test" in orders:
            available, pool = orders["test"], pools["test"]
            count = wanted[name] or len(available)
        else:
            available, pool = rest, pools["train"]
            count = wanted[name] or (len(available) if name == "train" else share)
        if not 2 <= count <= len(available):
            raise DatasetError(
                f"{where} has {len(available)} examples left for {name}, but {count} are requested"
            )
        chosen[name] = (pool, available[:count])
        if pool is pools["train"]:
            rest = rest[count:]
    return {
        name: _as_split(pool.read(indices), pool.labels[indices])
        for name, (pool, indices) in chosen.items()
    }


def _balanced_order(labels: np.ndarray, seed: int, part: str) -> np.ndarray:
    """Return a shuffled order any stretch of which holds the classes as evenly as they come."""
    shuffled = torch.randperm(len(labels), generator=generator("split", part, seed)).numpy()
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = np.arange(len(members))
    order: np.ndarray = np.lexsort((labels, rank))
    return order


def _refuse_repeated(paths: list[str]) -> None:
    """Refuse links that show one file twice: it could end up in training and test."""
    seen: dict[Path, str] = {}
    for path in paths:
        real = Path(path).resolve()
        if real in seen:
            raise DatasetError(f"{path} and {seen[real]} are the same file: remove the link")
        seen[real] = path


def _read_image(path: Path) -> np.ndarray:
    """Read one image as (3, 32, 32) uint8."""
    try:
        with Image.open(path) as image:
            pixels = image.convert("RGB")
            if pixels.size != (32, 32):
                pixels = pixels.resize((32, 32), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read as an image: {error}") from error
    return np.asarray(pixels).transpose(2, 0, 1)


def _as_split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels).long())
