"""Updates and rebuilds the DuckDB file. It is a cache of the ledger, never evidence.

Writers take turns at a lock file beside it, which also covers its replacement.

Trust: a file that is damaged, foreign, of another schema or ahead of its ledger is replaced, and
with seals every file that is not as this user's program has written it.
I/O: the DuckDB file, its neighbours .lock, .new, .old and .wal; reads the ledger.  Units: seconds.
"""

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb

from ledger.errors import ConsistencyError, LedgerError
from ledger.files import open_regular
from ledger.verification.states import State
from projections.bulk import apply_new
from projections.database_file import (
    WAIT,
    PrivateCopy,
    connected,
    is_duckdb,
    locked,
    stamp_of,
)
from projections.errors import AheadError, ProjectionError, TableError
from projections.projector import create_documented, read_position, schema_hash
from projections.seals import Seals, sealed_copy
from projections.source import END, LedgerSource, open_source
from projections.template import template

__all__ = ["CatchUp", "catch_up", "rebuild"]


@dataclass(frozen=True)
class CatchUp:
    """What was done to the file."""

    applied: int  # entries
    position: int  # index of the next entry
    note: str | None = None  # why the file was built anew, where it was not asked for
    # With seals: the tables as they are now, whatever others do to the file.
    copy: PrivateCopy | None = field(default=None, compare=False, repr=False)


class _StaleError(Exception):
    """The file is no good beginning; its text says why."""

    def __init__(self, reason: str, *, ours: bool = True) -> None:
        super().__init__(reason)
        self.ours = ours


def catch_up(
    database: Path,
    directory: Path,
    *,
    stop: int = END,
    wait: float = WAIT,
    seals: Seals | None = None,
    verified: State | None = None,
) -> CatchUp:
    """Apply to the DuckDB file what the ledger in a directory has since gained.

    `stop`: apply no entry from this index on. `verified`: the end state of a verification; apply
    only entries up to it, and only if their links lead to its last hash. `seals`: rebuild a file
    that does not match its seal; without seals the file is trusted. Raises BusyError if others hold
    the file for longer than `wait`, AheadError if the tables are ahead of what was verified,
    ProjectionError for entries that cannot be applied, ConsistencyError for a ledger that was
    changed after it had been verified, LedgerError for one that cannot be read.
    """
    deadline = time.monotonic() + wait
    if verified is not None:
        stop = min(stop, verified.size)
    with locked(database, deadline), open_source(directory, linked=verified is not None) as ledger:
        work = _Work(ledger, deadline, stop, verified)
        if seals is not None:
            return _sealed(database, work, seals)
        return _caught_up(database, work)


def _caught_up(database: Path, work: "_Work") -> CatchUp:
    try:
        return _apply(database, work)
    except _StaleError as why:
        _discard(database, keep=not why.ours)
        return replace(_apply(database, work), note=f"rebuilt: {why}")


def _sealed(database: Path, work: "_Work", seals: Seals) -> CatchUp:
    """Work on a private copy of the file, for others may change the file itself at any time."""
    copy = PrivateCopy(seals.folder)
    why = _copied_sealed(database, copy.path, seals)
    if why is not None:
        copy.path.unlink(missing_ok=True)
    done = replace(_caught_up(copy.path, work), copy=copy)
    if why is not None or done.note is not None or done.applied:
        try:
            new = database.with_name(f"{database.name}.new")
            new.unlink(missing_ok=True)
            with copy.path.open("rb") as source, new.open("xb") as target:
                seal = sealed_copy(source, target)
            if why and database.exists():
                _discard(database, keep=True)
            new.replace(database)
            database.with_name(f"{database.name}.wal").unlink(missing_ok=True)
        except OSError as e:
            raise ProjectionError(f"{database}: cannot be written: {e.strerror}") from e
        seals.keep(database, seal)
    copy.stamp = stamp_of(database)
    return done if not why else replace(done, note=f"rebuilt: {why}")


def _copied_sealed(database: Path, private: Path, seals: Seals) -> str | None:
    """Copy the file if it matches its seal; return why not, empty where there is nothing to say."""
    if not database.exists():
        return ""
    if database.with_name(f"{database.name}.wal").exists():
        return "changes that were not ours were waiting beside it"
    sealed = seals.recall(database)
    if sealed is None:
        return "" if seals.folder is None else "it was not written by this user"
    try:
        with open_regular(database) as source, private.open("wb") as target:
            copied = sealed_copy(source, target, most=sealed.size)
    except (LedgerError, OSError) as e:
        return f"it could not be read ({e})"
    return None if copied == sealed else "it was changed after it had been written"


@dataclass(frozen=True)
class _Work:
    """What is to be applied."""

    ledger: LedgerSource
    deadline: float
    stop: int
    verified: State | None = None


def rebuild(database: Path, directory: Path, *, wait: float = WAIT) -> CatchUp:
    """Build the DuckDB file anew from the whole ledger; raises as catch_up() does."""
    deadline = time.monotonic() + wait
    with locked(database, deadline), open_source(directory) as ledger:
        _discard(database, keep=False)
        return _apply(database, _Work(ledger, deadline, END))


def _apply(database: Path, work: _Work) -> CatchUp:
    ledger = work.ledger
    fresh = not database.exists()
    if not fresh and not is_duckdb(database):
        raise _StaleError("it was not a DuckDB file", ours=False)
    copied = fresh and _copied(database)
    try:
        with connected(database, work.deadline, read_only=False) as connection:
            if fresh and not copied:
                create_documented(connection)
            start, after = _start(connection, ledger)
            applied = apply_new(connection, ledger, start=start, after=after, stop=work.stop)
            if work.verified is not None:
                _verify_end(connection, work.verified)
    except ConsistencyError as e:
        if fresh:
            raise
        raise _StaleError(str(e)) from e
    except (duckdb.Error, TableError) as e:
        if fresh:
            raise ProjectionError(f"{database}: {e}") from e
        raise _StaleError(
            f"it was damaged or not a projection ({_first_line(e)})", ours=False
        ) from e
    return CatchUp(applied, start + applied)


def _verify_end(connection: duckdb.DuckDBPyConnection, verified: State) -> None:
    """Raise unless the tables end where the verification did; links fix everything before."""
    position, last_hash, _ = read_position(connection)
    if position > verified.size:
        raise AheadError(f"the tables hold {position} entries, and {verified.size} were verified")
    if position < verified.size or (position and last_hash != verified.last_hash.hex()):
        raise ConsistencyError(
            f"the ledger does not end at entry {verified.size - 1} as it did when it was verified: "
            "it was changed meanwhile"
        )


def _copied(database: Path) -> bool:
    """Begin the file as a copy of an empty one, if there is room for such files."""
    new = database.with_name(f"{database.name}.new")
    try:
        new.unlink(missing_ok=True)
        shutil.copyfile(template(create_documented), new)
        new.replace(database)
    except (OSError, duckdb.Error):
        new.unlink(missing_ok=True)
        return False
    return True


def _start(connection: duckdb.DuckDBPyConnection, ledger: LedgerSource) -> tuple[int, bytes | None]:
    """Return where to go on, and the hash of the entry before it.

    Raises _StaleError unless the file is of this schema and ledger.
    """
    try:
        start, last_hash, schema = read_position(connection)
    except ProjectionError as e:
        raise _StaleError(str(e), ours=False) from e
    if schema != schema_hash():
        raise _StaleError("its tables were of a different version")
    if start and ledger.hash_at(start - 1) != last_hash:
        raise _StaleError(f"entry {start - 1}, which was applied, is no longer in the ledger")
    return start, bytes.fromhex(last_hash) if start and last_hash else None


def _discard(database: Path, *, keep: bool) -> None:
    """Take the file away; what may be somebody else's is kept as .old."""
    try:
        if keep:
            database.replace(database.with_name(f"{database.name}.old"))
        database.unlink(missing_ok=True)
        database.with_name(f"{database.name}.wal").unlink(missing_ok=True)
    except OSError as e:
        raise ProjectionError(f"{database}: cannot be replaced: {e.strerror}") from e


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
