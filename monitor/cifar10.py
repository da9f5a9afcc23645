"""CIFAR-10 from the files that its authors publish, without unpickling anything.

The binary form is read as it is. Of the pickled form ("python version") the text and the numbers
are read off its operations, and none of them is carried out. In both cases the bytes that are
parsed are the bytes whose hash was compared with the published one.

Source: https://www.cs.toronto.edu/~kriz/cifar.html; the MD5 sums of the pickled files as in
torchvision 0.29, the SHA-1 sums of the binary files as in Apache MXNet 1.9, the SHA-256 of the
archive computed over the file with the MD5 sum that the authors publish.
Trust: the folder is hostile until a file's hash was compared.
I/O: reads a folder; download() opens the network and writes, and only a training calls it.
Shapes: images (N, 3, 32, 32) uint8, labels (N,) int64.
"""

import hashlib
import io
import pickletools
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ledger.files import write_durably
from monitor.errors import DatasetError
from monitor.folders import Folder

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
BINARY, PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

_EXAMPLES = 10_000  # in each file
_PIXELS = 3 * 32 * 32
_ARCHIVE_BYTES = 170_052_171
_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_MOST_BYTES = 32 * 2**20  # of one file; the published ones have 30.7 or 31.0 million
_PATIENCE = 60.0  # seconds without an answer

# By split: file names and hashes, in the order in which the examples are numbered.
_BINARY_SHA1 = {
    "train": {
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    },
    "test": {"test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c"},
}
_PICKLED_MD5 = {
    "train": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
}

Arrays = tuple[np.ndarray, np.ndarray]  # images and labels


def read_cifar10(folder: Folder) -> dict[str, Arrays]:
    """Return the two parts, train and test; raises DatasetError.

    The binary form is preferred where both are there: they hold the same images and labels.
    """
    if folder.has_folder(BINARY):
        form, published, name, parse = BINARY, _BINARY_SHA1, "sha1", parse_binary
    elif folder.has_folder(PICKLED):
        form, published, name, parse = PICKLED, _PICKLED_MD5, "md5", parse_pickled
    else:
        raise DatasetError(
            f"CIFAR-10 not found in {folder.path}: put the folder {BINARY} there (from {URL}), or "
            "set download = true"
        )
    parts: dict[str, Arrays] = {}
    for part, files in published.items():
        batches = [
            parse(_checked(folder.read((form, file), most=_MOST_BYTES), file, name, digest), file)
            for file, digest in files.items()
        ]
        images, labels = zip(*batches, strict=True)
        parts[part] = np.concatenate(images), np.concatenate(labels)
    return parts


def is_there(folder: Folder) -> bool:
    """Return whether the folder holds CIFAR-10 in one of its forms."""
    return folder.has_folder(BINARY) or folder.has_folder(PICKLED)


def parse_binary(content: bytes, name: str) -> Arrays:
    """Return images and labels of one file: for each example a label byte, then its pixels."""
    rows = np.frombuffer(content, np.uint8)
    if rows.size != _EXAMPLES * (1 + _PIXELS):
        raise DatasetError(f"{name} has {rows.size:,} bytes, not {_EXAMPLES * (1 + _PIXELS):,}")
    rows = rows.reshape(_EXAMPLES, 1 + _PIXELS)
    return _arrays(rows[:, 1:], rows[:, 0], name)


def parse_pickled(content: bytes, name: str) -> Arrays:
    """Return images and labels of one pickled file, whose operations are listed, never executed.

    The images are its one text of their length; the labels are the numbers in the list that
    follows the text "labels".
    """
    try:
        listed = iter(pickletools.genops(content))
        pixels = b""
        labels: list[int] = []
        for _, argument, _ in listed:
            if not isinstance(argument, str):
                continue
            if len(argument) == _EXAMPLES * _PIXELS and not pixels:
                pixels = argument.encode("latin-1")
            elif argument == "labels" and not labels:
                labels = list(_numbers(listed))
    except ValueError as error:
        raise DatasetError(f"{name} cannot be read: {error}; use the folder {BINARY}") from error
    if not pixels or len(labels) != _EXAMPLES:
        raise DatasetError(f"{name} is not built like the published file; use the folder {BINARY}")
    rows = np.frombuffer(pixels, np.uint8).reshape(_EXAMPLES, _PIXELS)
    return _arrays(rows, np.array(labels, np.int64), name)


def _numbers(listed: Iterator[tuple[Any, Any, Any]]) -> Iterator[int]:
    """Yield the numbers of the list that is put together next."""
    for operation, argument, _ in listed:
        if operation.name == "BININT1":
            yield argument
        elif operation.name not in ("BINPUT", "LONG_BINPUT", "EMPTY_LIST", "MARK", "APPENDS"):
            return


def download(data_dir: Path) -> None:
    """Fetch the binary form into `data_dir`; a file appears there once its hash was compared."""
    try:
        with urllib.request.urlopen(URL, timeout=_PATIENCE) as answer:
            archive = answer.read(_ARCHIVE_BYTES + 1)
        unpack(archive, data_dir)
    except OSError as error:  # of which are all errors of urllib
        raise DatasetError(
            f"CIFAR-10 cannot be downloaded from {URL}: {error}; fetch it by other means and put "
            f"the folder {BINARY} into {data_dir}"
        ) from error


def unpack(archive: bytes, data_dir: Path) -> None:
    """Write the six files of the published archive; no name in it decides where."""
    digest = hashlib.sha256(archive).hexdigest()
    if digest != _ARCHIVE_SHA256:
        raise DatasetError(f"what {URL} sent is not the published archive: its SHA-256 is {digest}")
    folder = data_dir / BINARY
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for files in _BINARY_SHA1.values():
            for name, published in files.items():
                member = members.extractfile(f"{BINARY}/{name}")
                content = b"" if member is None else member.read(_MOST_BYTES)
                write_durably(folder / name, _checked(content, name, "sha1", published))


def _checked(content: bytes, name: str, algorithm: str, published: str) -> bytes:
    """Return the content if it has the published hash; a second file with it is not known."""
    if hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() != published:
        raise DatasetError(
            f"{name} is not the published file: its {algorithm.upper()} differs; put the original "
            f"there, from {URL}"
        )
    return content


def _arrays(pixels: np.ndarray, labels: np.ndarray, name: str) -> Arrays:
    if labels.max() >= len(CLASSES):
        raise DatasetError(f"{name} has a label above {len(CLASSES) - 1}")
    return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)
