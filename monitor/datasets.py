"""Datasets in memory, split the same way every time into train, validation and test.

The training loop gets train and validation from load_splits(); the test set comes from load_test()
alone, which only the judge calls. No image is in two splits.

Trust: folders and images are hostile until load_splits() returns; see monitor/folders.py.
I/O: reads the dataset's folder; writes and opens the network only where Reading.download says so.
Shapes: images (N, 3, 32, 32) uint8, labels (N,) int64.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from monitor import cifar10
from monitor.config import IMAGE_FOLDER, RunConfig
from monitor.errors import DataLimitError, DatasetError, OverlapError, UnusableFileError
from monitor.folders import DataLimits, Folder, open_folder
from monitor.images import SUFFIXES, decode_image
from monitor.seeds import generator
from monitor.shapes import CLASSES as SHAPES
from monitor.shapes import draw_shapes

SPLITS = ("train", "validation", "test")
SHAPES_SIZES = {"train": 3_000, "validation": 500, "test": 1_000}  # examples, unless configured
_HELD_OUT = 10  # one in so many examples is held out where a dataset brings no split of its own
_NAMED = 5  # pairs of equal images in an error's message
_DEEPEST = 16  # folders below a class

Decode = Callable[[bytes, int], bytes]  # a file's content, and the most pixels: see decode_image()


@contextmanager
def _decode_here() -> Iterator[Decode]:
    yield lambda content, most: decode_image(content, most_pixels=most)


@dataclass(frozen=True)
class Reading:
    """From where data is read, by whose word, and how much of it.

    The default is the trainer's: the configuration is their own. A judge names `folder`, or reads
    the recorded one with `own` if it belongs to the judge's user; a judge never downloads. The
    images that a trainer put there are decoded in this process, a judge's in a confined one.
    """

    folder: Path | None = None  # in place of the configuration's
    own: bool = False
    download: bool = True  # whether `download` of the configuration counts
    limits: DataLimits = field(default_factory=DataLimits)
    decoding: Callable[[], AbstractContextManager[Decode]] = _decode_here


_TRAINER = Reading()


@dataclass(frozen=True)
class Split:
    """Images (N, 3, 32, 32) uint8 and their labels (N,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, chosen: Tensor | slice, device: str | torch.device = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Return chosen examples as a model takes them: floats (B, 3, 32, 32), labels (B,)."""
        images, labels = (
            each[chosen].to(device, non_blocking=True) for each in (self.images, self.labels)
        )
        return normalise(images), labels

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
    repeated: Mapping[str, int]  # images that are equal to an earlier one of the same split


def load_splits(config: RunConfig, reading: Reading = _TRAINER) -> Splits:
    """Load what the training sees.

    Raises DatasetError; of it OverlapError where two splits share an image, UnusableFileError for
    what is no regular file, DataLimitError for more than the limits allow.
    """
    classes, parts = _load(config, reading)
    repeated = _compare_images(parts)
    splits = {name: part.split for name, part in parts.items()}
    return Splits(
        train=splits["train"],
        validation=splits["validation"],
        classes=classes,
        sizes={name: len(splits[name]) for name in SPLITS},
        fingerprints={name: splits[name].fingerprint for name in SPLITS},
        repeated=repeated,
    )


def load_test(config: RunConfig, reading: Reading = _TRAINER) -> Split:
    """Load the held-out test set, which no training sees; raises DatasetError."""
    return _load(config, reading)[1]["test"].split


def normalise(images: Tensor) -> Tensor:
    """Map bytes (B, 3, 32, 32) to floats of about zero mean and unit variance."""
    return images.to(torch.float32).sub_(127.5).div_(64.0)


@dataclass(frozen=True)
class _Part:
    """A split, and what an image of it is called in a message."""

    split: Split
    names: Sequence[object]


def _load(config: RunConfig, reading: Reading) -> tuple[tuple[str, ...], dict[str, _Part]]:
    wanted = {
        "train": config.train_examples,
        "validation": config.val_examples,
        "test": config.test_examples,
    }
    if config.dataset == "shapes":
        counts = {name: count or SHAPES_SIZES[name] for name, count in wanted.items()}
        _check_examples(counts, reading.limits)
        return SHAPES, {
            name: _Part(
                _as_split(*draw_shapes(name, count, seed=config.data_seed)),
                [f"number {place}" for place in range(count)],
            )
            for name, count in counts.items()
        }
    if config.dataset == "cifar10":
        return cifar10.CLASSES, _load_cifar10(config, wanted, reading)
    root = reading.folder or Path(config.dataset.removeprefix(IMAGE_FOLDER))
    with open_folder(root, own=reading.own and reading.folder is None) as folder:
        return _load_image_folder(folder, wanted, config.data_seed, reading)


def _load_cifar10(
    config: RunConfig, wanted: Mapping[str, int | None], reading: Reading
) -> dict[str, _Part]:
    if reading.folder is None and config.data_dir is None:
        raise DatasetError(f"cifar10 needs data_dir, the folder that contains {cifar10.BINARY}")
    place = reading.folder or Path(config.data_dir or "")
    if config.download and reading.download and reading.folder is None:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetError(f"{place} cannot be made: {error.strerror}") from error
        with open_folder(place) as folder:
            there = cifar10.is_there(folder)
        if not there:
            cifar10.download(place)
    with open_folder(place, own=reading.own and reading.folder is None) as folder:
        parts = cifar10.read_cifar10(folder)
    pools = {
        part: _Pool(
            labels,
            images.__getitem__,
            [f"{part} image {index}" for index in range(len(labels))],
        )
        for part, (images, labels) in parts.items()
    }
    return _divide(pools, wanted, config.data_seed, "CIFAR-10", reading.limits)


def _load_image_folder(
    root: Folder, wanted: Mapping[str, int | None], seed: int, reading: Reading
) -> tuple[tuple[str, ...], dict[str, _Part]]:
    limits = reading.limits
    divided = root.has_folder("train") and root.has_folder("test")
    folders = {"train": ("train",), "test": ("test",)} if divided else {"train": ()}
    found = {part: _find_images(root, names, limits) for part, names in folders.items()}
    classes = tuple(found["train"])
    if divided and tuple(found["test"]) != classes:
        raise DatasetError(f"{root.path}/train and {root.path}/test have different classes")
    if len(classes) < 2:
        where = root.path.joinpath(*folders["train"])
        raise DatasetError(f"{where} has only one class; at least two are needed")
    pools: dict[str, _Pool] = {}
    for part, files in found.items():
        paths = [path for name in classes for path in files[name]]
        labels = [label for label, name in enumerate(classes) for _ in files[name]]

        def read(chosen: np.ndarray, paths: Sequence[PurePosixPath] = paths) -> np.ndarray:
            images = np.empty((len(chosen), 3, 32, 32), np.uint8)
            with reading.decoding() as decode:
                for place, index in enumerate(chosen):
                    images[place] = _read_image(root, paths[index], limits, decode)
            return images

        pools[part] = _Pool(np.array(labels, np.int64), read, paths)
    return classes, _divide(pools, wanted, seed, str(root.path), limits)


def _find_images(
    root: Folder, names: tuple[str, ...], limits: DataLimits
) -> dict[str, list[PurePosixPath]]:
    """Return the images by class, in torchvision's order: by the folder's path, then by name."""
    most = limits.files
    with root.folder(*names) as folder:
        entries = folder.kinds(most=most)
        where = folder.path
    if links := [name for name, kind in entries.items() if kind == "link"]:
        raise UnusableFileError(
            f"{where / links[0]} is a symbolic link; put the folder itself there"
        )
    classes: dict[str, list[PurePosixPath]] = {}
    for name in (name for name, kind in entries.items() if kind == "folder"):
        found = sorted(_walk(root, (*names, name), most), key=lambda each: each[0])
        classes[name] = [path for _, paths in found for path in paths]
        most -= sum(len(paths) for _, paths in found)
    if not classes:
        raise DatasetError(f"{where} is not an image folder: it needs one folder for each class")
    if empty := [name for name, paths in classes.items() if not paths]:
        raise DatasetError(
            f"{where} is not an image folder: {empty[0]} has no image; files count that end in "
            f"{', '.join(sorted(SUFFIXES))}"
        )
    return classes


def _walk(
    root: Folder, names: tuple[str, ...], most: int
) -> Iterator[tuple[str, list[PurePosixPath]]]:
    """Yield each folder's path with its images; raises UnusableFileError for what is no file."""
    waiting = [names]
    while waiting:
        place = waiting.pop()
        with root.folder(*place) as folder:
            entries = folder.kinds(most=most)
            where = folder.path
        most -= len(entries)
        images: list[PurePosixPath] = []
        for name, kind in entries.items():
            path = PurePosixPath(*place, name)
            is_image = path.suffix.lower() in SUFFIXES
            if kind == "link" or (is_image and kind != "file"):
                what = {"link": "a symbolic link", "folder": "a folder"}.get(
                    kind, "not a regular file"
                )
                raise UnusableFileError(
                    f"{where / name} is {what}; put a regular file there, or remove it"
                )
            if kind == "folder":
                if len(place) == len(names) + _DEEPEST:
                    raise DataLimitError(f"{where} has folders deeper than {_DEEPEST} levels")
                waiting.append((*place, name))
            elif is_image:
                images.append(path)
        yield "/".join(place), images


@dataclass(frozen=True)
class _Pool:
    """Examples that can be chosen from: their labels, how to read them by index, their names."""

    labels: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    names: Sequence[object]


def _divide(
    pools: Mapping[str, _Pool],
    wanted: Mapping[str, int | None],
    seed: int,
    where: str,
    limits: DataLimits,
) -> dict[str, _Part]:
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
    _check_examples({name: len(indices) for name, (_, indices) in chosen.items()}, limits)
    return {
        name: _Part(
            _as_split(pool.read(indices), pool.labels[indices]),
            [pool.names[index] for index in indices],
        )
        for name, (pool, indices) in chosen.items()
    }


def _check_examples(counts: Mapping[str, int], limits: DataLimits) -> None:
    """Raise DataLimitError before anything is drawn or read."""
    if (total := sum(counts.values())) > limits.examples:
        asked = ", ".join(f"{count:,} for {name}" for name, count in counts.items())
        raise DataLimitError(
            f"the data set has {total:,} examples ({asked}); the limit is {limits.examples:,}"
        )


def _compare_images(parts: Mapping[str, _Part]) -> dict[str, int]:
    """Return how many images repeat one of their own split; raises OverlapError across splits.

    Images are compared as the model sees them, so that links, copies and other encodings of the
    same pixels are equal.
    """
    first: dict[bytes, tuple[str, int]] = {}
    repeated = dict.fromkeys(SPLITS, 0)
    pairs: list[tuple[str, str]] = []
    for name in SPLITS:
        part = parts[name]
        for place, image in enumerate(part.split.images.numpy()):
            digest = hashlib.sha256(image.tobytes()).digest()
            there, at = first.setdefault(digest, (name, place))
            if there != name:
                one, other = parts[there].names[at], part.names[place]
                pairs.append((f"{there}: {one}", f"{name}: {other}"))
            elif at != place:
                repeated[name] += 1
    if pairs:
        shown = "; ".join(f"{one} = {other}" for one, other in pairs[:_NAMED])
        more = f" and {len(pairs) - _NAMED:,} more" if len(pairs) > _NAMED else ""
        raise OverlapError(
            f"two splits share {len(pairs):,} image{'s' * (len(pairs) > 1)}: {shown}{more}; "
            "remove the copies",
            pairs=pairs,
        )
    return repeated


def _balanced_order(labels: np.ndarray, seed: int, part: str) -> np.ndarray:
    """Return a shuffled order any stretch of which holds the classes as evenly as they come."""
    shuffled = torch.randperm(len(labels), generator=generator("split", part, seed)).numpy()
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = np.arange(len(members))
    order: np.ndarray = np.lexsort((labels, rank))
    return order


def _read_image(
    root: Folder, path: PurePosixPath, limits: DataLimits, decode: Decode
) -> np.ndarray:
    """Read one image as (3, 32, 32) uint8."""
    content = root.read(path.parts, most=limits.image_bytes)
    try:
        pixels = decode(content, limits.image_pixels)
    except DatasetError as error:
        raise type(error)(f"{root.path / path} {error}") from error
    return np.frombuffer(pixels, np.uint8).reshape(3, 32, 32)


def _as_split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels).long())
