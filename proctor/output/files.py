"""Files that commands write where they are told to: whole or not at all.

A name that is given by mistake must cost nobody a key or a ledger: what a home keeps, keys and
databases are never written over. Any other file that is there is replaced.

Trust: names come from people.
I/O: the file that is named.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path

from ledger.files import new_name, replace_durably, sync_file, write_durably
from proctor.errors import ProctorError
from proctor.home import Home

_LOOKED_AT = 4_096  # bytes; a key has fewer
_VKEY = re.compile(rb"[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+\s*")
_KEPT = ("infra", "ledger", "runs")  # folders of a home


def write_output(path: Path, content: str | bytes, *, home: Home | None = None) -> None:
    """Let a file appear whole; raises ProctorError as verify_target() does, or OSError."""
    verify_target(path, home=home)
    write_durably(path, content.encode() if isinstance(content, str) else content)


@contextmanager
def appearing(path: Path, home: Home) -> Iterator[BufferedWriter]:
    """Yield a file that takes its name, from one that has it, once it is whole."""
    verify_target(path, home=home)
    new = new_name(path)
    try:
        with new.open("xb") as file:
            yield file
            sync_file(file)
        replace_durably(new, path)
    finally:
        new.unlink(missing_ok=True)


def verify_target(
    path: Path, *, home: Home | None = None, others: Iterable[Path | None] = ()
) -> None:
    """Raise ProctorError unless a file of this name can be written and nothing is lost by it.

    `others` are files that the same command reads or writes, too.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ProctorError(f"{path} is not a regular file; name another one")
    if home is not None:
        verify_outside(path, home)
    if any(other is not None and _is_same(path, other) for other in others):
        raise ProctorError(f"{path} is named twice, for two files; name another one")
    if not path.parent.is_dir():
        raise ProctorError(f"{path}: there is no folder {path.parent}; make it first")
    if path.exists() and (what := _precious(path)):
        raise ProctorError(f"{path} is {what}, which is not written over; name another file")


def verify_outside(path: Path, home: Home) -> None:
    """Raise ProctorError for a path among those that the home keeps."""
    if _is_kept(path.resolve(), home):
        raise ProctorError(f"{path} is where the home keeps what is its own; name another place")


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _is_kept(place: Path, home: Home) -> bool:
    kept = home.path.resolve()
    return place.is_relative_to(kept) and place.relative_to(kept).parts[0] in _KEPT


def _precious(path: Path) -> str | None:
    with path.open("rb") as file:
        found = file.read(_LOOKED_AT)
    if found.startswith(b"-----BEGIN") or _VKEY.fullmatch(found):
        return "a key"
    if found.startswith(b"SQLite format 3\0") or found[8:12] == b"DUCK":
        return "a database"
    return None
