"""The files of a bundle: written whole or not at all, read without leaving the folder.

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
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ledger.blobs import BlobStore
from ledger.database import explained
from ledger.errors import BlobError, BundleError, MalformedError, StorageError
from ledger.files import NEW, sync_folders, unfinished
from ledger.handover.object_store import Bucket, is_bucket

__all__ = [
    "BLOB",
    "CHECKPOINT",
    "HEADS",
    "VERIFIER",
    "VKEY",
    "BlobLimits",
    "Place",
    "check_blobs",
    "clean",
    "copy_blob",
    "free_bytes",
    "holds",
    "measure_blobs",
    "names_in",
    "place_of",
    "publish",
    "read_file",
    "strangers",
    "sync",
]

Place = Path | Bucket  # where a bundle is

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


def place_of(name: str) -> Place:
    """Return the folder, or the place in object storage, that has this name."""
    return Bucket(name) if is_bucket(name) else Path(name)


def publish(folder: Place, relative: str, content: bytes) -> None:
    """Let a file appear whole under its name, or leave it if it says that already.

    Its name outlasts a loss of power after sync() only.
    """
    if isinstance(folder, Bucket):
        folder.put(relative, content)
        return
    path = folder / relative
    with explained(path):
        with suppress(MalformedError):
            if read_file(folder, relative, limit=len(content)) == content:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(path, content) as new:
            new.replace(path)


def sync(folder: Place) -> None:
    """Wait until everything that was published outlasts a loss of power."""
    if isinstance(folder, Bucket):
        folder.sync()
        return
    with explained(folder):
        sync_folders(folder)


def clean(folder: Place) -> None:
    """Remove what an export that was killed left over."""
    if isinstance(folder, Bucket):
        return  # objects appear whole
    with explained(folder):
        for path in folder.rglob(f"{NEW}*"):
            path.unlink(missing_ok=True)


def read_file(folder: Place, relative: str, *, limit: int) -> bytes:
    """Return a file's content; raise MalformedError if it is missing, a link or longer."""
    if isinstance(folder, Bucket):
        return folder.read(relative, limit=limit)
    with _opened(folder, relative) as file, explained(folder):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise MalformedError(f"{relative} is too long")
    return content


def holds(folder: Place, relative: str) -> bool:
    """Tell whether there is a file of this name."""
    if isinstance(folder, Bucket):
        return folder.exists(relative)
    return (folder / relative).is_file()


def names_in(folder: Place, relative: str) -> list[str]:
    """Return the names in a folder of the bundle; none if there is no such folder."""
    if isinstance(folder, Bucket):
        return folder.names(relative)
    descriptor = _open(folder, relative, os.O_DIRECTORY)
    if descriptor is None:
        return []
    try:
        with explained(folder):
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - a descriptor
    finally:
        os.close(descriptor)


def _blob_sizes(folder: Place) -> Iterator[tuple[str, int]]:
    """Yield the blobs in a place, a bundle's or a ledger's, by name, with their bytes."""
    if isinstance(folder, Bucket):
        for path, size in folder.sizes("blobs"):
            if found := BLOB.fullmatch(path):
                yield found[2], size
        return
    for part in names_in(folder, "blobs"):
        if _PART.fullmatch(part):
            for name in names_in(folder, f"blobs/{part}"):
                if BLOB.fullmatch(f"blobs/{part}/{name}"):
                    with _opened(folder, _blob(name)) as file:
                        yield name, os.fstat(file.fileno()).st_size


def check_blobs(folder: Place, *, limits: BlobLimits) -> None:
    """Raise BlobError unless each blob's content is what its name says; as measure_blobs() does."""
    for digest, size in measure_blobs(folder, limits=limits).items():
        for _ in blob_chunks(folder, digest, size=size):
            pass


def measure_blobs(folder: Place, *, limits: BlobLimits | None) -> dict[str, int]:
    """Return the blobs' sizes in bytes, by name; raise BundleError above a limit, reading none."""
    sizes: dict[str, int] = {}
    total = 0
    for digest, size in _blob_sizes(folder):
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


def copy_blob(source: Place, target: Place, digest: str, *, size: int) -> None:
    """Copy a blob, hashed on its way; if it is another's, it does not appear."""
    chunks = blob_chunks(source, digest, size=size)
    if isinstance(target, Bucket):
        target.put_chunks(_blob(digest), chunks)
        return
    with closing(BlobStore(target / "blobs").write()) as writer:
        for chunk in chunks:
            writer.add(chunk)
        writer.finish(expected=digest)


def free_bytes(place: Place) -> int | None:
    """Return how many bytes a disk has left; None where nobody knows."""
    if isinstance(place, Bucket):
        return None
    with explained(place):
        return shutil.disk_usage(place).free


def blob_chunks(folder: Place, digest: str, *, size: int) -> Iterator[bytes]:
    """Yield a blob's content; raise BlobError after the last piece if it is another's.

    No more than `size` bytes, and those of the next piece, are read: a file can grow meanwhile.
    """
    hasher = hashlib.sha256()
    relative = _blob(digest)
    for chunk in _chunks(folder, relative):
        size -= len(chunk)
        hasher.update(chunk)
        yield chunk
        if size < 0:
            break
    if hasher.hexdigest() != digest:
        raise BlobError(f"{folder}/{relative}: the blob was changed; restore it from a copy")


def _chunks(folder: Place, relative: str) -> Iterator[bytes]:
    if isinstance(folder, Bucket):
        yield from folder.chunks(relative)
        return
    with _opened(folder, relative) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _blob(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


def strangers(folder: Place) -> list[str]:
    """Return what lies in a bundle's folder and is no part of a bundle; links are none."""
    if isinstance(folder, Bucket):
        return sorted(name for name, _ in folder.sizes() if not _is_part(name))
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in [*names, *links]:
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            if (not _is_part(relative) and not name.startswith(NEW)) or path.is_symlink():
                found.append(relative)
        if len(Path(place).relative_to(folder).parts) == _DEEPEST:
            found += [f"{Path(place).relative_to(folder).as_posix()}/{name}/" for name in folders]
            folders.clear()
    return sorted(os.fsencode(name).decode(errors="backslashreplace") for name in found)


def _is_part(relative: str) -> bool:
    return relative in (CHECKPOINT, VKEY, VERIFIER) or any(
        form.fullmatch(relative) for form in (BLOB, _TILE, _HEAD)
    )


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
