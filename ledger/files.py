"""Files that are written atomically and durably, and read without blocking.

A file is made under another name in the same folder, is synced, then takes its own name; then the
folder is synced, which holds the name.

Source: POSIX.1-2017, fsync(), link(), rename() and open().
Trust: what is read may be put there by anybody: a named pipe, a device, or a file without end.
I/O: the files that are named, and their folders.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path

from ledger.errors import StorageError

NEW = ".new."  # what names of unfinished files begin with
_PAUSE = 0.05  # s between two tries to take a lock


def create_exclusively(path: Path, content: bytes, *, mode: int) -> bool:
    """Let a file appear whole under its name, or leave the one that is there; tell which."""
    with unfinished(path, content, mode=mode) as new:
        return publish_exclusively(new, path)


def write_durably(path: Path, content: bytes) -> None:
    """Let a file appear whole under its name, in place of one that is there."""
    with unfinished(path, content) as new:
        replace_durably(new, path)


@contextmanager
def unfinished(path: Path, content: bytes, *, mode: int = 0o666) -> Iterator[Path]:
    """Yield a synced file beside this path, which is gone at the end if it got no other name."""
    new = new_name(path)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
            sync_file(file)
        yield new
    finally:
        new.unlink(missing_ok=True)


def new_name(path: Path) -> Path:
    """Return a name in the same folder that nobody else has chosen."""
    return path.with_name(f"{NEW}{secrets.token_hex(8)}")


def publish_exclusively(new: Path, path: Path) -> bool:
    """Give a finished file its name unless the name is taken; tell whether it was free."""
    try:
        os.link(new, path)  # unlike rename, fails where the name exists
    except FileExistsError:
        return False
    sync_folder(path.parent)
    return True


def replace_durably(new: Path, path: Path) -> None:
    """Give a finished file the name of another, which is gone then."""
    new.replace(path)
    sync_folder(path.parent)


def sync_file(file: BufferedWriter) -> None:
    """Let what was written to a file outlast a loss of power; its name is another matter."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Let the names in a folder outlast a loss of power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sync_folders(path: Path) -> None:
    """Let all names below a folder, and its own, outlast a loss of power."""
    for folder in (path.parent, path, *(each for each in path.rglob("*") if each.is_dir())):
        sync_folder(folder)


def read_bounded(path: Path, *, most: int) -> bytes:
    """Return a regular file's content of so many bytes at most; raise StorageError or OSError."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise StorageError(f"{path}: the file is longer than {most:,} bytes; check the path")
    return content


def read_text(path: Path, *, most: int) -> str:
    """Return as read_bounded() does, as text; what is not UTF-8 is replaced."""
    return read_bounded(path, most=most).decode(errors="replace")


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read it; raise StorageError for any other, OSError for none."""
    # Without O_NONBLOCK a named pipe would keep the reader waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path}: this is not a regular file; check the path")
    return open(descriptor, "rb")  # noqa: PTH123 - a descriptor, not a path


@contextmanager
def locked(path: Path, *, patience: float = 0.0, busy: Exception | None = None) -> Iterator[None]:
    """Be the one process that holds a file's lock; the file and its folders are made.

    Raises `busy`, or BlockingIOError, where another process holds it for `patience` (s) or longer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= end:
                    raise (busy or error) from None
                time.sleep(_PAUSE)
        yield
