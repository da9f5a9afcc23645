"""The files of a bundle: written whole or not at all, read without leaving the folder.

Source: docs/reference/ledger-format.md, "Bundle"; C2SP tlog-tiles.
Trust: the folder is hostile: links in it are not followed, nothing is read beyond its limit.
I/O: the bundle's folder.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ledger.database import explained
from ledger.errors import BlobError, BundleError, MalformedError, StorageError
from ledger.files import NEW, unfinished

__all__ = [
    "BLOB",
    "CHECKPOINT",
    "HEADS",
    "VERIFIER",
    "VKEY",
    "BlobLimits",
    "blob_digests",
    "check_blobs",
    "clean",
    "measure_blobs",
    "names_in",
    "publish",
    "read_file",
    "strangers",
]

CHECKPOINT = "checkpoint"  # the specification's name for the newest tree head
HEADS = "checkpoints"
VKEY = "ledger.vkey"
VERIFIER = "verify.py"
BLOB = re.compile(r"blobs/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_PART = re.compile(r"[0-9a-f]{2}")
_TILE = re.compile(
    r"tile/(?:entries|[0-7])/(?:x[0-9]{3}/){0,6}[0-9]{3}"
    r"(?:\.p/(?:[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?"
)
_HEAD = re.compile(rf"{HEADS}/[1-9][0-9]{{0,18}}")
_DEEPEST = 9  # folders in each other: tile, level, six groups of digits, partial
_CHUNK = 1 << 20  # 1 MiB


@dataclass(frozen=True)
class BlobLimits:
    """What a bundle of somebody else may ask of a disk; compared before any blob is read.

    A ledger of 64,000 saved models of 1 MB is within the total.
    """

    each: int = 2 * 2**30  # bytes of one blob
    total: int = 64 * 2**30  # bytes of all
    count: int = 1_000_000

    @classmethod
    def of(cls, total: int | None) -> "BlobLimits":
        """Return the limits for so many bytes in all, of which one blob may have all."""
        return cls() if total is None else cls(each=total, total=total)


def publish(folder: Path, relative: str, content: bytes) -> None:
    """Let a file appear whole under its name, or leave it if it says that already.

    Its name outlasts a loss of power after files.sync_folders() only.
    """
    path = folder / relative
    with explained(path):
        with suppress(MalformedError):
            if read_file(folder, relative, limit=len(content)) == content:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(path, content) as new:
            new.replace(path)


def clean(folder: Path) -> None:
    """Remove what an export that was killed left over."""
    with explained(folder):
        for path in folder.rglob(f"{NEW}*"):
            path.unlink(missing_ok=True)


def read_file(folder: Path, relative: str, *, limit: int) -> bytes:
    """Return a file's content; raise MalformedError if it is missing, a link or longer."""
    with _opened(folder, relative) as file, explained(folder):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise MalformedError(f"{relative} is too long")
    return content


def names_in(folder: Path, relative: str) -> list[str]:
    """Return the names in a folder of the bundle; none if there is no such folder."""
    descriptor = _open(folder, relative, os.O_DIRECTORY)
    if descriptor is None:
        return []
    try:
        with explained(folder):
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - a descriptor
    finally:
        os.close(descriptor)


def blob_digests(folder: Path) -> Iterator[str]:
    """Yield the names of the blobs in a folder, which may be a bundle's or a ledger's."""
    for part in names_in(folder, "blobs"):
        if _PART.fullmatch(part):
            for name in names_in(folder, f"blobs/{part}"):
                if BLOB.fullmatch(f"blobs/{part}/{name}"):
                    yield name


def check_blobs(folder: Path, *, limits: BlobLimits) -> None:
    """Raise BlobError unless each blob's content is what its name says; as measure_blobs() does."""
    for digest, size in measure_blobs(folder, limits=limits).items():
        for _ in blob_chunks(folder, digest, size=size):
            pass


def measure_blobs(folder: Path, *, limits: BlobLimits | None) -> dict[str, int]:
    """Return the blobs' sizes in bytes, by name; raise BundleError above a limit, reading none."""
    sizes: dict[str, int] = {}
    total = 0
    for digest in blob_digests(folder):
        with _opened(folder, _blob(digest)) as file:
            size = os.fstat(file.fileno()).st_size
        sizes[digest], total = size, total + size
        if limits is None:
            continue
        for found, limit, what in (
            (size, limits.each, f"bytes in {_blob(digest)}"),
            (total, limits.total, "bytes in its blobs"),
            (len(sizes), limits.count, "blobs"),
        ):
            if found > limit:
                raise BundleError(
                    f"{folder}: the bundle has {found:,} {what} or more, the limit is {limit:,}; "
                    "if that is right, raise it with --max-blob-bytes"
                )
    return sizes


def blob_chunks(folder: Path, digest: str, *, size: int) -> Iterator[bytes]:
    """Yield a blob's content; raise BlobError after the last piece if it is another's.

    No more than `size` bytes, and those of the next piece, are read: a file can grow meanwhile.
    """
    hasher = hashlib.sha256()
    relative = _blob(digest)
    with _opened(folder, relative) as file:
        while size >= 0 and (chunk := file.read(_CHUNK)):
            size -= len(chunk)
            hasher.update(chunk)
            yield chunk
    if hasher.hexdigest() != digest:
        raise BlobError(f"{folder / relative}: the blob was changed; restore it from a copy")


def _blob(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


def strangers(folder: Path) -> list[str]:
    """Return what lies in a bundle's folder and is no part of a bundle; links are none."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in [*names, *links]:
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            known = relative in (CHECKPOINT, VKEY, VERIFIER) or any(
                form.fullmatch(relative) for form in (BLOB, _TILE, _HEAD)
            )
            if (not known and not name.startswith(NEW)) or path.is_symlink():
                found.append(relative)
        if len(Path(place).relative_to(folder).parts) == _DEEPEST:
            found += [f"{Path(place).relative_to(folder).as_posix()}/{name}/" for name in folders]
            folders.clear()
    return sorted(os.fsencode(name).decode(errors="backslashreplace") for name in found)


@contextmanager
def _opened(folder: Path, relative: str) -> Iterator[BinaryIO]:
    """Yield a plain file, without having followed a link below the folder."""
    # Without O_NONBLOCK a named pipe would keep the reader waiting.
    descriptor = _open(folder, relative, os.O_NONBLOCK)
    if descriptor is None:
        raise MalformedError(f"{relative} is missing")
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        yield file


def _open(folder: Path, relative: str, flags: int) -> int | None:
    """Return a descriptor of a plain file or a folder, as the flags say; None if nothing is there.

    No link below the folder is followed.
    """
    with explained(folder):
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    *parents, name = relative.split("/")
    for part, more in (*((parent, os.O_DIRECTORY) for parent in parents), (name, flags)):
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | more, dir_fd=place)
        except FileNotFoundError:
            return None
        except OSError as e:
            if e.errno in (errno.ELOOP, errno.ENOTDIR):
                what = "not a folder, or lies behind a link"
                if not flags & os.O_DIRECTORY:
                    what = "a link, or lies behind one"
                raise MalformedError(f"{relative} is {what}") from e
            if e.errno == errno.ENXIO:
                raise MalformedError(f"{relative} is not a plain file") from e
            raise StorageError(f"{folder / relative}: it cannot be read: {e.strerror}") from e
        finally:
            os.close(place)
        place = inner
    if not flags & os.O_DIRECTORY and not stat.S_ISREG(os.fstat(place).st_mode):
        os.close(place)
        raise MalformedError(f"{relative} is not a plain file")
    return place
