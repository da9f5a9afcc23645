"""Temporary folders that do not outlive a killed process for long.

A folder is held by a lock that the kernel releases when its process ends, however it ends. The next
process that makes a folder removes those of the same name and user that nobody holds any more.

I/O: folders in the folder for temporary files, or in another.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

_LOCK = "held.lock"


class HeldFolder:
    """A new folder; its block, or its garbage collection, removes it."""

    def __init__(self, prefix: str, *, base: Path | None = None) -> None:
        base = base or Path(tempfile.gettempdir())
        _remove_unheld(base, prefix)
        self.path, lock = _make(base, prefix)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove the folder; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _remove_unheld(base: Path, prefix: str) -> None:
    """Remove this user's folders of that name which have a lock that nobody holds."""
    for folder in base.glob(f"{prefix}*"):
        with suppress(OSError):  # another process removes it at the same time, or it is not ours
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)


def _make(base: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        except OSError:
            folder.rmdir()
            raise
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # else it was removed before it was held
                return folder, lock
        os.close(lock)


def _remove(folder: Path, lock: int, owner: int) -> None:
    """Remove the folder, unless this is a process that was forked from its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
