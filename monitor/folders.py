"""Folders of data that anybody may have filled: only regular files are read, within bounds.

A folder is read by its descriptor. Below it no symbolic link is followed, nothing blocks (a named
pipe), and no file is read beyond its limit.

Source: POSIX.1-2017, openat(), O_NOFOLLOW, O_NONBLOCK.
Trust: names, kinds and contents are hostile.  I/O: reads the folders that are named.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import DataLimitError, DatasetError, UnusableFileError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ROOT = 0  # user id


@dataclass(frozen=True)
class DataLimits:
    """Bounds on what is read as a data set; the judge has its own, in JudgeConfig."""

    examples: int = 30_000_000  # of all splits: what a configuration can ask for
    files: int = 1_000_000  # in a folder of images, of whatever kind
    image_bytes: int = 64 * 2**20  # of one file
    image_pixels: int = 128_000_000  # of one image, before it is resized


class Folder:
    """An open folder."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def kinds(self, *, most: int) -> dict[str, str]:
        """Return what is in the folder by name, sorted: file, folder, link or other.

        Nothing has been opened. Raises DataLimitError for more than `most`.
        """
        found: dict[str, str] = {}
        try:
            with os.scandir(self._descriptor) as entries:
                for entry in entries:
                    if len(found) == most:
                        raise DataLimitError(f"{self.path} has more than {most:,} files")
                    found[entry.name] = _kind(entry)
        except OSError as error:
            raise DatasetError(f"folder {self.path} cannot be read: {error.strerror}") from error
        return dict(sorted(found.items()))

    def has_folder(self, name: str) -> bool:
        """Return whether there is a folder of that name; a link to one is none."""
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode)

    @contextmanager
    def folder(self, *names: str) -> Iterator["Folder"]:
        """Yield a folder below this one; raises DatasetError if it is missing or behind a link."""
        place, descriptor = self.path, os.dup(self._descriptor)
        try:
            for name in names:
                place /= name
                inner = _open(name, os.O_DIRECTORY, descriptor, place)
                os.close(descriptor)
                descriptor = inner
            yield Folder(place, descriptor)
        finally:
            os.close(descriptor)

    def read(self, names: Sequence[str], *, most: int) -> bytes:
        """Return the content of a regular file of at most `most` bytes below this folder.

        Raises UnusableFileError for anything else than a regular file, DataLimitError for a
        longer one, DatasetError for none.
        """
        with self.folder(*names[:-1]) as folder:
            path = folder.path / names[-1]
            descriptor = _open(names[-1], 0, folder._descriptor, path)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise UnusableFileError(f"{path} is not a regular file")
                if status.st_size > most:
                    raise DataLimitError(f"{path} is longer than {most:,} bytes")
                try:
                    content = file.read(status.st_size + 1)
                except OSError as error:
                    raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
        if len(content) > status.st_size:
            raise UnusableFileError(f"{path} has grown while it was read")
        return content


@contextmanager
def open_folder(path: Path, *, own: bool = False) -> Iterator[Folder]:
    """Yield a folder; with `own`, only one that belongs to this user or to root.

    Links in `path` itself are followed: whoever names it means where it leads.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise DatasetError(f"folder {path} not found, or not readable") from error
    try:
        owner = os.fstat(descriptor).st_uid
        if own and owner not in (os.geteuid(), _ROOT):
            raise DatasetError(
                f"folder {path} belongs to another user, and only the run's record names it; "
                "name the folder of the data yourself with --data-dir"
            )
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def _open(name: str, flags: int, folder: int, path: Path) -> int:
    try:
        return os.open(name, _READ | flags, dir_fd=folder)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing") from error
    except OSError as error:
        what = "folder" if flags & os.O_DIRECTORY else "regular file"
        raise UnusableFileError(f"{path} is not a {what}: {error.strerror}") from error


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
