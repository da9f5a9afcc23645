"""Tensors in files, of which rows are read as they are asked for: parts larger than memory.

A part of a task that is decoded example by example is written into a folder, one file for each
tensor, and read back in any order. A large message to or from a task's process is in a file without
a name. Nobody holds more of either than the rows in use.

Source: docs/how-to/own-data.md.
Trust: a folder is this user's own; what fills it is hostile, and is checked in task_form.py.
I/O: reads and writes the folder, and temporary files.  Shapes: rows (N, ...).  Units: bytes.
"""

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from monitor.errors import RoomError, TaskError

PIECE = 16 * 2**20  # bytes of rows that are decoded, moved or hashed at once
_KEPT_FREE = 2**30  # bytes of the disk that are left to others
_INDEX = "index.json"
TYPES: Mapping[str, torch.dtype] = {  # of safetensors, those that a part may have
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "U32": torch.uint32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U16": torch.uint16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class StoredTensor:
    """A tensor (N, ...) in a file; indexing it by a slice or by positions reads these rows.

    The file is open from the start, so a process may read it that can open no files any more.
    """

    def __init__(
        self, file: Path | int, dtype: torch.dtype, shape: tuple[int, ...], *, start: int = 0
    ) -> None:
        """Open a file, or another descriptor of it; the rows begin at byte `start`."""
        self.dtype, self.shape = dtype, shape
        self._row = math.prod(shape[1:]) * dtype.itemsize
        self._start = start
        if isinstance(file, Path):
            self._file = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        else:
            self._file = os.dup(file)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, at: slice | Tensor) -> Tensor:
        """Return the rows of a slice without steps, or those at positions (rows,), as a tensor."""
        if isinstance(at, slice):
            start, stop, _ = at.indices(len(self))
            spans, count = [(start, max(stop - start, 0))], max(stop - start, 0)
        else:
            spans, count = [(place, 1) for place in at.tolist()], len(at)
        found = bytearray(count * self._row)
        view, filled = memoryview(found), 0
        for start, rows in spans:
            end = filled + rows * self._row
            self._fill(view[filled:end], self._start + start * self._row)
            filled = end
        if not found:
            return torch.zeros((count, *self.shape[1:]), dtype=self.dtype)
        return torch.frombuffer(found, dtype=self.dtype).reshape(count, *self.shape[1:])

    def _fill(self, view: memoryview, offset: int) -> None:
        while view:
            got = os.preadv(self._file, [view[: 2**30]], offset)
            if not got:
                raise TaskError("the decoded data was cut off while it was read; run it again")
            view, offset = view[got:], offset + got

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            os.close(self._file)


Rows = Tensor | StoredTensor


def row_bytes(rows: Rows) -> int:
    """Return the bytes of one row."""
    return math.prod(rows.shape[1:]) * rows.dtype.itemsize


def pieces(rows: Rows) -> Iterator[Tensor]:
    """Yield all rows in order, about PIECE bytes at a time."""
    for start, stop in spans(len(rows), row_bytes(rows)):
        yield rows[start:stop]


def spans(count: int, size: int, *, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Yield from where to where pieces of `count` rows go that are of `size` bytes each."""
    step = max(PIECE // max(size * multiple, 1), 1) * multiple
    for start in range(0, count, step):
        yield start, min(start + step, count)


class Spooled:
    """A message in a file without a name, which is gone with the process."""

    def __init__(self, needed: int) -> None:
        """Make the file; raises RoomError where so many bytes do not fit."""
        check_space(Path(tempfile.gettempdir()), needed)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this
        self._size = 0

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._size

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.put(data, self._size)

    def put(self, data: bytes, start: int) -> None:
        """Write bytes at a place."""
        view = memoryview(data)
        while view:
            done = os.pwrite(self._file.fileno(), view, start)
            view, start = view[done:], start + done
        self._size = max(self._size, start)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`, or to the end."""
        return os.pread(self._file.fileno(), stop - start, start)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...], *, start: int = 0) -> StoredTensor:
        """Return the tensor whose rows begin at byte `start`."""
        return StoredTensor(self._file.fileno(), dtype, shape, start=start)


def spool(tensors: Mapping[str, tuple[Rows, Tensor]]) -> Spooled:
    """Return canonical safetensors (aggregates/weights.py): of each tensor, rows by position."""
    names, kinds = list(TYPES), list(TYPES.values())
    ordered = sorted(tensors.items(), key=lambda each: (kinds.index(each[1][0].dtype), each[0]))
    header, end = {}, 0
    for name, (rows, order) in ordered:
        start, end = end, end + len(order) * row_bytes(rows)
        header[name] = {
            "dtype": names[kinds.index(rows.dtype)],
            "shape": [len(order), *rows.shape[1:]],
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    found = Spooled(end)
    found.write(len(text).to_bytes(8, "little") + text)
    for _, (rows, order) in ordered:
        for start, stop in spans(len(order), row_bytes(rows)):
            found.write(tensor_bytes(rows[order[start:stop]]))
    return found


def check_space(folder: Path, needed: int) -> None:
    """Raise RoomError where so many bytes more do not fit into a folder."""
    free = shutil.disk_usage(folder).free - _KEPT_FREE
    if needed > free:
        raise RoomError(
            f"the task's examples take {needed:,} bytes, and {max(free, 0):,} are free in "
            f"{folder}: make room, or have data() return smaller examples"
        )


class Storing:
    """A folder that tensors are written into, rows at a time and in order."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._shapes: dict[str, tuple[str, list[int]]] = {}

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Append rows to tensors by name; raises TaskError where they do not fit to the others."""
        for name, tensor in rows.items():
            kind, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
            known, (_, *rest) = self._shapes.setdefault(name, (kind, [0, *shape[1:]]))
            if (known, rest) != (kind, shape[1:]):
                raise TaskError(
                    f"{name}: examples are of shape {shape[1:]} and type {kind}, and others of "
                    f"shape {rest} and type {known}; all examples of a part must be alike"
                )
            self._shapes[name][1][0] += shape[0]
            with (self._folder / name).open("ab") as file:
                file.write(tensor_bytes(tensor))

    def finish(self) -> dict[str, StoredTensor]:
        """Write down what there is, and return it."""
        (self._folder / _INDEX).write_text(json.dumps(self._shapes), encoding="utf-8")
        return open_stored(self._folder)


def open_stored(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a finished folder by name."""
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    return {
        name: StoredTensor(folder / name, getattr(torch, kind), tuple(shape))
        for name, (kind, shape) in index.items()
    }


def is_stored(folder: Path) -> bool:
    """Return whether a folder was finished, and every file has its bytes."""
    try:
        return all(
            (folder / name).stat().st_size == len(rows) * row_bytes(rows)
            for name, rows in open_stored(folder).items()
        )
    except (AttributeError, OSError, TypeError, ValueError):
        return False


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return a tensor's bytes, of any type."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def hash_files(places: Iterable[Path]) -> str:
    """Return the SHA-256 over names, sizes and SHA-256 of the files in folders, and of files.

    Links in them are followed to files, not to folders.
    """
    sha = hashlib.sha256()
    for place in sorted(places):
        found = place.resolve()
        files = [found] if found.is_file() else sorted(_files(found))
        for path in files:
            name = str(Path(place.name) / path.relative_to(found))
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            sha.update(
                f"{digest} {path.stat().st_size} {name}\n".encode("utf-8", "surrogateescape")
            )
    return sha.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for at, _, names in os.walk(folder):
        for name in names:
            path = Path(at) / name
            if path.is_file():  # no pipe, and no link to nothing
                yield path
