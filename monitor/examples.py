"""Examples in folders, for the data() of tasks: read one by one, so the folder can be of any size.

    def data(params):
        images = Images(params["data_dir"] + "/train", side=64)
        return Subset(images, range(1000, len(images))), Subset(images, range(1000))

Anything with len() and [number] that gives (input, target) will do, as any map-style data set of
torch.utils.data; these two are ready made. Their order is that of the sorted names, always.

Source: docs/how-to/own-data.md.
Trust: files are hostile; they are decoded in the process of the task's data, which is confined.
I/O: reads files.  Shapes: images (3, side, side) uint8.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from monitor.errors import DatasetError, TaskError
from monitor.images import SUFFIXES, decode_image

_OPEN = 4  # shards that are mapped into memory at once
_PIXELS = 2**27  # of one image, before it is resized


class Images:
    """Images of FOLDER/CLASS/*: each (3, side, side) uint8, and its class by sorted name."""

    def __init__(self, folder: str | Path, *, side: int) -> None:
        self._side = side
        self.classes = sorted(each.name for each in Path(folder).iterdir() if each.is_dir())
        self.files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((Path(folder) / name).iterdir())
            if path.suffix.lower() in SUFFIXES
        ]
        if not self.files:
            raise TaskError(f"{folder} holds no images; they belong in {folder}/CLASS/")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """Read an image and return it with its class."""
        path, label = self.files[number]
        try:
            pixels = decode_image(path.read_bytes(), most_pixels=_PIXELS, side=self._side)
        except OSError as error:
            raise TaskError(f"{path} cannot be read: {error.strerror}") from error
        except DatasetError as error:
            raise TaskError(f"{path.parent.name}/{path.name} {error}") from error
        rows = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
        return rows.reshape(3, self._side, self._side), label


class Shards:
    """Rows of the shards in a folder, in the order of their names.

    A shard is NAME.safetensors with the tensors `inputs` and `targets`, or the pair of files
    NAME.inputs.npy and NAME.targets.npy; each tensor is (rows, ...).
    """

    def __init__(self, folder: str | Path) -> None:
        self.files: Sequence[Path] = sorted(
            path
            for path in Path(folder).iterdir()
            if path.suffix == ".safetensors" or path.name.endswith(".inputs.npy")
        )
        self._ends = list(accumulate(_rows(path) for path in self.files))
        if not self._ends:
            raise TaskError(f"{folder} holds no NAME.safetensors and no NAME.inputs.npy")

    def __len__(self) -> int:
        """Return the number of rows in all shards."""
        return self._ends[-1]

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Read one row, and return its input and its target."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} rows, and no row {number}")
        shard = bisect_right(self._ends, number)
        row = number - (self._ends[shard - 1] if shard else 0)
        path = self.files[shard]
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                inputs, targets = (file.get_slice(name)[row] for name in ("inputs", "targets"))
            return inputs, targets
        inputs, targets = (np.array(each[row]) for each in _arrays(path))
        return torch.from_numpy(inputs), torch.from_numpy(targets)


def _rows(path: Path) -> int:
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            return int(file.get_slice("inputs").get_shape()[0])
    return len(_arrays(path)[0])


@lru_cache(_OPEN)
def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    targets = path.with_name(path.name.removesuffix(".inputs.npy") + ".targets.npy")
    found = [np.load(each, mmap_mode="r", allow_pickle=False) for each in (path, targets)]
    if len(found[0]) != len(found[1]):
        raise TaskError(f"{path.name} has {len(found[0])} rows, its targets {len(found[1])}")
    return found[0], found[1]
