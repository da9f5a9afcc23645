"""The files of a bundle: written whole or not at all, read without leaving the folder.

A place is a Folder or a Bucket, which have the same operations.

Source: docs/reference/ledger-format.md, "Bundle"; C2SP tlog-tiles.
Trust: the folder is hostile: links in it are not followed, nothing is read beyond its limit.
I/O: the bundle's folder, or its place in object storage.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ledger.blobs import BlobStore
from ledger.database import explained
from ledger.errors import BlobError, BundleError, MalformedError, StorageError
from ledger.files import NEW, sync_folders, unfinished
from ledger.handover.object_store import BLOB, Bucket, blob_path, is_bucket
from ledger.progress import advanced

CHECKPOINT = "checkpoint"  # the specification's name for the newest tree head
HEADS = "checkpoints"
VKEY = "ledger.vkey"
VERIFIER = "verify.py"
_PART = re.compile(r"[0-9a-f]{2}")
_TILE = re.compile(
    r"tile/(?:entries|[0-7])/(?:x[0-9]{3}/){0,6}[0-9]{3}"
    r"(?:\.p/(?:[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?"
)
_HEAD = re.compile(rf"{HEADS}/[1-9][0-9]{{0,18}}")
_DEEPEST = 9  # folders in each other: tile, level, six groups of digits, partial
_CHUNK = 1 << 20  # 1 MiB
_SPARE = 64 * 2**20  # bytes of a disk that stay free


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


class Folder:
    """A folder as a place of files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        """Return the path."""
        return str(self._path)

    def begin(self, *, extended: bool) -> None:  # noqa: ARG002 - files say themselves what is here
        """Make the folder for an export; remove what an earlier one that was killed left over."""
        if self._path.exists() and not self._path.is_dir():
            raise BundleError(f"{self} is a file; give a folder, existing or new")
        with explained(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
            for path in self._path.rglob(f"{NEW}*"):
                path.unlink(missing_ok=True)

    def put(self, relative: str, content: bytes) -> None:
        """Let a file appear whole under its name, or leave it if it says that already.

        Its name outlasts a loss of power after sync() only.
        """
        path = self._path / relative
        with explained(path):
            with suppress(MalformedError):
                if self.read(relative, limit=len(content)) == content:
                    return
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished(path, content) as new:
                new.replace(path)

    def put_blob(self, digest: str, chunks: Iterator[bytes]) -> None:
        """Let a blob appear when all of its pieces have come; if they raise, it does not."""
        with closing(BlobStore(self._path / "blobs").write()) as writer:
            for chunk in chunks:
                writer.add(chunk)
            writer.finish(expected=digest)

    def sync(self) -> None:
        """Wait until everything that was put outlasts a loss of power."""
        with explained(self._path):
            sync_folders(self._path)

    def read(self, relative: str, *, limit: int) -> bytes:
        """Return a file's content; raise MalformedError if it is missing, a link or longer."""
        with self._opened(relative) as file, explained(self._path):
            content = file.read(limit + 1)
        if len(content) > limit:
            raise MalformedError(f"{relative} is too long")
        return content

    def chunks(self, relative: str) -> Iterator[bytes]:
        """Yield a file's content."""
        with self._opened(relative) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def exists(self, relative: str) -> bool:
        """Tell whether there is a file of this name."""
        return (self._path / relative).is_file()

    def names(self, relative: str) -> list[str]:
        """Return the names in a folder below; none if there is no such folder."""
        descriptor = self._open(relative, os.O_DIRECTORY)
        if descriptor is None:
            return []
        try:
            with explained(self._path):
                return sorted(os.listdir(descriptor))  # noqa: PTH208 - a descriptor
        finally:
            os.close(descriptor)

    def blobs(self) -> Iterator[tuple[str, int]]:
        """Yield the blobs by name, with their bytes."""
        for part in self.names("blobs"):
            for name in self.names(f"blobs/{part}") if _PART.fullmatch(part) else ():
                if BLOB.fullmatch(f"blobs/{part}/{name}"):
                    with self._opened(blob_path(name)) as file:
                        yield name, os.fstat(file.fileno()).st_size

    def free_bytes(self) -> int | None:
        """Return how many bytes the disk has left."""
        with explained(self._path):
            return shutil.disk_usage(self._path).free

    def others(self, is_part: Callable[[str], bool]) -> Iterator[str]:
        """Yield what lies here and is no part; links are none."""
        for place, folders, names in os.walk(self._path):
            links = [name for name in folders if Path(place, name).is_symlink()]
            for name in [*names, *links]:
                path = Path(place, name)
                relative = path.relative_to(self._path).as_posix()
                if (not is_part(relative) and not name.startswith(NEW)) or path.is_symlink():
                    yield relative
            below = Path(place).relative_to(self._path)
            if len(below.parts) == _DEEPEST:
                yield from (f"{below.as_posix()}/{name}/" for name in folders)
                folders.clear()

    @contextmanager
    def _opened(self, relative: str) -> Iterator[BinaryIO]:
        """Yield a plain file, without having followed a link below the folder."""
        # Without O_NONBLOCK a named pipe would keep the reader waiting.
        descriptor = self._open(relative, os.O_NONBLOCK)
        if descriptor is None:
            raise MalformedError(f"{relative} is missing")
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            yield file

    def _open(self, relative: str, flags: int) -> int | None:
        """Return a descriptor of a plain file or, as the flags say, a folder; None if none is.

        No link below the folder is followed.
        """
        with explained(self._path):
            place = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
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
                raise StorageError(
                    f"{self._path / relative}: it cannot be read: {e.strerror}"
                ) from e
            finally:
                os.close(place)
            place = inner
        if not flags & os.O_DIRECTORY and not stat.S_ISREG(os.fstat(place).st_mode):
            os.close(place)
            raise MalformedError(f"{relative} is not a plain file")
        return place


Place = Folder | Bucket  # where a bundle is


def place_of(named: str | Path | Place) -> Place:
    """Return the place that has this name: a folder, or a place in object storage."""
    if isinstance(named, str):
        named = Bucket(named) if is_bucket(named) else Path(named)
    return Folder(named) if isinstance(named, Path) else named


def check_blobs(folder: Place, *, limits: BlobLimits) -> None:
    """Raise BlobError unless each blob's content is what its name says; as measure_blobs() does."""
    for digest, size in measure_blobs(folder, limits=limits).items():
        deque(_verified(folder, digest, size=size), maxlen=0)


def measure_blobs(folder: Place, *, limits: BlobLimits | None) -> dict[str, int]:
    """Return the blobs' sizes in bytes, by name; raise BundleError above a limit, reading none."""
    sizes: dict[str, int] = {}
    total = 0
    for digest, size in folder.blobs():
        sizes[digest], total = size, total + size
        if limits is None:
            continue
        for found, limit, what in (
            (size, limits.each, f"bytes in {blob_path(digest)}"),
            (total, limits.total, "bytes in its blobs"),
            (len(sizes), limits.count, "blobs"),
        ):
            if found > limit:
                raise BundleError(
                    f"{folder}: the bundle has {found:,} {what} or more, the limit is {limit:,}; "
                    "if that is right, raise it with --max-blob-bytes"
                )
    return sizes


def copy_blobs(source: Path | Place, target: Path | Place, *, limits: BlobLimits | None) -> int:
    """Copy the blobs that are not there yet, each hashed on its way; return how many there are.

    Raises BundleError, before it copies any, for blobs above the limits or above what is free.
    """
    source, target = place_of(source), place_of(target)
    sizes = measure_blobs(source, limits=limits)
    there = measure_blobs(target, limits=None)
    missing = {name: size for name, size in sizes.items() if name not in there}
    needed = sum(missing.values())
    free = target.free_bytes()
    if free is not None and needed > free - _SPARE:
        raise BundleError(
            f"{target}: the blobs need {needed:,} bytes, and {max(free - _SPARE, 0):,} are free"
        )
    for number, (digest, size) in enumerate(missing.items(), start=1):
        advanced("copying blobs", number, len(missing))
        target.put_blob(digest, _verified(source, digest, size=size))
    return len(sizes)


def _verified(folder: Place, digest: str, *, size: int) -> Iterator[bytes]:
    """Yield a blob's content; raise BlobError after the last piece if it is another's.

    No more than `size` bytes, and those of the next piece, are read: a file can grow meanwhile.
    """
    hasher = hashlib.sha256()
    relative = blob_path(digest)
    for chunk in folder.chunks(relative):
        size -= len(chunk)
        hasher.update(chunk)
        yield chunk
        if size < 0:
            break
    if hasher.hexdigest() != digest:
        raise BlobError(f"{folder}/{relative}: the blob was changed; restore it from a copy")


def strangers(place: Path | Place) -> list[str]:
    """Return what lies in a bundle's place and is no part of a bundle; links are none."""
    found = place_of(place).others(_is_part)
    return sorted(os.fsencode(name).decode(errors="backslashreplace") for name in found)


def _is_part(relative: str) -> bool:
    return relative in (CHECKPOINT, VKEY, VERIFIER) or any(
        form.fullmatch(relative) for form in (BLOB, _TILE, _HEAD)
    )
