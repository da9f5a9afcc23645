"""Updates the DuckDB file. It is a cache of the ledger, never evidence.

Writers take turns at a lock file beside it, which also covers its replacement.

Trust: a file that is damaged, foreign, of another schema or ahead of its ledger is replaced. What
the tables hold is trusted: the file lies where nobody but this user can write (tables_folder()).
I/O: the DuckDB file, its neighbours .lock, .new and .wal; reads the ledger.  Units: seconds.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb

from ledger.errors import ConsistencyError
from ledger.verification.states import State
from projections.database_file import (
    WAIT,
    connected,
    copy_between,
    is_duckdb,
    locked,
)
from projections.errors import AheadError, BusyError, ProjectionError, TableError, is_no_room
from projections.identity import identity, read_position
from projections.source import END, LedgerSource, open_source
from projections.template import template

_SOON = 0.5  # others may read the file so long before it is copied


@dataclass(frozen=True)
class CatchUp:
    """What was done to the file."""

    applied: int  # entries
    position: int  # index of the next entry
    last_hash: str | None = field(default=None, compare=False)  # of the last entry in the tables

    @property
    def end(self) -> tuple[int, str | None]:
        """What fixes the state of the tables: their entries, and the hash of the last."""
        return self.position, self.last_hash


class _StaleError(Exception):
    """The file is no good beginning."""


def catch_up(
    database: Path,
    directory: Path,
    *,
    stop: int = END,
    wait: float = WAIT,
    verified: State | None = None,
) -> CatchUp:
    """Apply to the DuckDB file what the ledger in a directory has since gained.

    `stop`: apply no entry from this index on. `verified`: the end state of a verification; apply
    only entries up to it, and only if their links lead to its last hash. Nothing is written where
    nothing is new. While others ask the file, a copy of it catches up and takes its place.

    Raises BusyError if others change the file for longer than `wait`, AheadError if the tables are
    ahead of what was verified, ProjectionError for entries that cannot be applied, ConsistencyError
    for a ledger that was changed after it had been verified, LedgerError for one that cannot be
    read.
    """
    deadline = time.monotonic() + wait
    if verified is not None:
        stop = min(stop, verified.size)
    with locked(database, deadline), open_source(directory, linked=verified is not None) as ledger:
        if verified is not None and _is_at(database, verified, deadline):
            return CatchUp(0, verified.size, last_hash=verified.end[1])
        work = partial(_caught_up, ledger=ledger, stop=stop, verified=verified)
        try:
            return work(database, deadline=min(deadline, time.monotonic() + _SOON))
        except BusyError:
            return _caught_up_beside(database, work, deadline=deadline)


def _caught_up(
    database: Path, *, deadline: float, ledger: LedgerSource, stop: int, verified: State | None
) -> CatchUp:
    try:
        return _apply(database, deadline, ledger, stop, verified)
    except _StaleError:
        _discard(database)
        return _apply(database, deadline, ledger, stop, verified)


def _is_at(database: Path, verified: State, deadline: float) -> bool:
    """Tell whether the tables end where the verification did."""
    try:
        waiting = database.with_name(f"{database.name}.wal").exists()  # since a process was killed
        if waiting or not database.exists() or not is_duckdb(database):
            return False
        with connected(database, deadline, read_only=True) as connection:
            found = read_position(connection)
    except (duckdb.Error, ProjectionError):
        return False
    return bool(verified.size) and found == (*verified.end, identity())


def _caught_up_beside(database: Path, work: Callable[..., CatchUp], *, deadline: float) -> CatchUp:
    """Catch up in a copy and put it in the file's place: who reads the file keeps what it has."""
    new = database.with_name(f"{database.name}.new")
    try:
        _discard(new)  # what a killed process has left
        with new.open("xb") as file:
            copy_between(database, file, deadline=deadline)
        done = work(new, deadline=deadline)
        new.replace(database)
    except OSError as e:
        raise ProjectionError(f"{database}: cannot be written: {e.strerror}") from e
    finally:
        _discard(new)
    return done


def _apply(
    database: Path, deadline: float, ledger: LedgerSource, stop: int, verified: State | None
) -> CatchUp:
    from projections.bulk import apply_new  # noqa: PLC0415 - loads every declaration
    from projections.projector import create_schema  # noqa: PLC0415 - likewise

    fresh = not database.exists()
    if not fresh and not is_duckdb(database):
        raise _StaleError
    copied = fresh and _copied(database)
    try:
        with connected(database, deadline, read_only=False) as connection:
            if fresh and not copied:
                create_schema(connection)
            start, after = _start(connection, ledger)
            applied = apply_new(connection, ledger, start=start, after=after, stop=stop)
            if verified is not None:
                _verify_end(connection, verified)
            _, last_hash, _ = read_position(connection)
    except ConsistencyError as e:
        if fresh:
            _discard(database)
            raise
        raise _StaleError from e
    except (duckdb.Error, TableError) as e:
        if fresh or is_no_room(e):  # then the file is as it was
            if fresh:
                _discard(database)
            why = str(e).partition("\n")[0] + ("; free some space there" if is_no_room(e) else "")
            raise ProjectionError(f"{database}: {why}") from e
        raise _StaleError from e
    return CatchUp(applied, start + applied, last_hash=last_hash)


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
    from projections.projector import create_schema  # noqa: PLC0415 - as in _apply()

    new = database.with_name(f"{database.name}.new")
    try:
        new.unlink(missing_ok=True)
        shutil.copyfile(template(create_schema), new)
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
        raise _StaleError from e
    if schema != identity():  # of a different version
        raise _StaleError
    if start and ledger.hash_at(start - 1) != last_hash:  # that entry is no longer in the ledger
        raise _StaleError
    return start, bytes.fromhex(last_hash) if start and last_hash else None


def _discard(database: Path) -> None:
    """Take the file away."""
    try:
        database.unlink(missing_ok=True)
        database.with_name(f"{database.name}.wal").unlink(missing_ok=True)
    except OSError as e:
        raise ProjectionError(f"{database}: cannot be replaced: {e.strerror}") from e
