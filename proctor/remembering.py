"""What this user's verifier remembers of every ledger it has verified, and its tables of them."""

import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.errors import LedgerError, SignatureError
from ledger.files import read_text, write_durably
from ledger.held_folder import HeldFolder
from ledger.verification.memory import Remembered
from ledger.verification.memory_keys import code_of, is_code, memory_key
from ledger.verification.reader import (
    VerificationReport,
    VerifiedLedger,
    open_verified,
    verify_since,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.state import memory, state_folder

if TYPE_CHECKING:
    from ledger.blobs import Blobs
    from projections.cache import CatchUp
    from projections.reading import Session

_UNREADABLE = "SELECT COUNT(*), MIN(idx) FROM log.unreadable"  # as of now
_STATES = b"proctor/states/v1"
FEW = 20_000  # entries; to look through as many takes less than to ask tables
_SILENT = 1.0  # s that a command waits before it says so
_PATIENCE = 600.0  # s that it waits then: a large ledger's tables take minutes


class TrainedStates:
    """Training states that this user's judge has come to by training; see judge.auditing.gates."""

    def __init__(self, blobs: "Blobs") -> None:
        known = memory()
        self._blobs = blobs
        self._folder = None if known is None else known.folder / "states"
        self._own: set[str] = set()

    def find(self, shared: str, sha256: str) -> bytes | None:
        """Return the state after what has this digest, if it is one of them and still there."""
        name = self._name(shared, sha256)
        if name in self._own or self._keeps(name):
            with suppress(LedgerError):
                return self._blobs.get(sha256)
        return None

    def add(self, shared: str, sha256: str) -> None:
        """Remember that training what has this digest led to this state."""
        name = self._name(shared, sha256)
        self._own.add(name)
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            code = code_of(memory_key(self._folder.parent), _STATES, name.encode())
            write_durably(self._folder / name, code.encode())

    def _keeps(self, name: str) -> bool:
        """Tell whether this user's program has kept this name; a marker without a code has none."""
        if self._folder is None:
            return False
        with suppress(LedgerError, OSError):
            code = read_text(self._folder / name, most=1_000)
            return is_code(code, memory_key(self._folder.parent), _STATES, name.encode())
        return False

    @staticmethod
    def _name(shared: str, sha256: str) -> str:
        from monitor.code import code_sha256  # noqa: PLC0415 - reads the source files

        return hashlib.sha256(f"{shared} {sha256} {code_sha256()}".encode()).hexdigest()


def tables(home: Home, *, unverified: bool = False) -> Path:
    """Return where this user's tables of a home are, whether there are any yet or not.

    They lie with what is remembered, where whoever writes the home cannot write; without that, in
    a folder of this process. Tables of entries that were not verified are a file of their own.
    """
    from projections.database_file import own_folder  # noqa: PLC0415 - loads DuckDB

    place = home.path.resolve()
    folder = state_folder()
    if folder is None:
        return _folder_of_process(place, os.geteuid()).path / f"{unverified}.duckdb"
    name = hashlib.sha256(str(place).encode(errors="surrogateescape")).hexdigest()[:32]
    kept = own_folder(folder / "tables")
    database = kept / f"{name}{'.unverified' if unverified else ''}.duckdb"
    if not database.exists():
        with suppress(OSError):  # then a file lies there for longer
            _sweep(kept)
            (kept / f"{name}.home").write_text(str(place), errors="surrogateescape")
    return database


def keep_definitions() -> None:
    """Keep an empty database with all tables and views, which takes most of a second to make."""
    from projections.database_file import own_folder  # noqa: PLC0415 - loads DuckDB
    from projections.errors import ProjectionError  # noqa: PLC0415 - likewise
    from projections.identity import identity  # noqa: PLC0415 - likewise
    from projections.template import keep_in  # noqa: PLC0415 - likewise

    state, folder = state_folder(), None
    with suppress(ProjectionError):  # then it is made anew
        folder = None if state is None else own_folder(state / "tables")
    keep_in(folder, version=identity(folder))


def _sweep(folder: Path) -> None:
    """Remove the tables of homes that are gone."""
    for noted in folder.glob("*.home"):
        if not Path(noted.read_text(errors="surrogateescape")).exists():
            for part in folder.glob(f"{noted.stem}.*"):
                part.unlink(missing_ok=True)


@cache
def _folder_of_process(place: Path, user: int) -> HeldFolder:  # noqa: ARG001 - a folder for each
    return HeldFolder("proctor-tables-")


def recall(vkey: str, *, given: bool) -> Remembered | None:
    """Return what is remembered of a ledger that comes without a place of its own, as a bundle.

    Raises SignatureError for a key that was not `given` and that is not the one which this user
    knows for the same origin: a bundle is known by its origin alone.
    """
    known = memory()
    recalled = None if known is None else known.recall(vkey.strip())
    if known is not None and recalled is None and not given:
        for other in known.other_vkeys(vkey.strip()):
            raise SignatureError(
                f"you know a ledger of the same origin with another key, {other}; give the "
                "owner's public key with --vkey"
            )
    return recalled


def open_remembered(home: Home, *, heads: bool = False) -> AbstractContextManager[VerifiedLedger]:
    """Verify what is new since what is remembered, or the whole ledger, and give access to it.

    Refuses a ledger that is behind or beside what is remembered, and one that has taken the place
    of another. With `heads` the whole ledger is verified, and all its tree heads can be read.
    Raises ProctorError if there is none.
    """
    home.require_ledger()
    return open_verified(home.ledger, vkey=home.vkey, memory=memory(), whole=heads)


def tell_aside(indexes: Collection[int]) -> None:
    """Warn of the entries that a reader set aside, if there are any."""
    if indexes:
        warn_unreadable(len(indexes), min(indexes))


def warn_unreadable(count: int, first: int) -> None:
    """Say on standard error how many entries were set aside, and which is the first."""
    what = (
        "entry of the ledger cannot be read and is"
        if count == 1
        else ("entries of the ledger cannot be read and are")
    )
    print(
        f"warning: {count} {what} set aside; the first is entry {first}: "
        f"`proctor log --entry {first}` shows it, the table `unreadable` says why",
        file=sys.stderr,
    )


def _updates(home: Home, *, unverified: bool) -> "Callable[[], CatchUp]":
    """Verify the ledger, and return what brings the projection up to date with it.

    Called again, that verifies what is new. It raises ConsistencyError for a ledger that does not
    continue the one that was verified first, such as that of another home in the same place.
    """
    from projections.cache import catch_up  # noqa: PLC0415 - loads DuckDB
    from projections.errors import AheadError, BusyError  # noqa: PLC0415 - likewise

    home.require_ledger()
    home.verify_key()
    keep_definitions()
    database = tables(home, unverified=unverified)
    state, vkey, again = None, "", False
    if not unverified:
        with open_remembered(home) as ledger:  # raises where it does not hold
            state, vkey = ledger.state, ledger.vkey
        tell_unread(ledger)

    def update() -> "CatchUp":
        nonlocal state, again
        wait = _SILENT
        while True:
            if again and state is not None:
                state = verify_since(home.ledger, vkey=vkey, state=state)
            again = True
            try:
                return catch_up(database, home.ledger, wait=wait, verified=state)
            except AheadError:  # another command has verified more meanwhile
                continue
            except BusyError:
                if wait != _SILENT:
                    raise
                print(f"waiting: another process uses {database}", file=sys.stderr)
                wait = _PATIENCE

    return update


def open_index(home: Home, ledger: VerifiedLedger) -> "Session | None":
    """Return tables that say where entries of a large verified ledger are, if they can be kept.

    Only entries that are compared with the ledger may be shown.
    """
    if state_folder() is None or ledger.size < FEW:
        return None
    from projections.cache import catch_up  # noqa: PLC0415 - loads DuckDB
    from projections.errors import AheadError, ProjectionError  # noqa: PLC0415 - likewise
    from projections.reading import Session  # noqa: PLC0415 - likewise

    with suppress(ProjectionError):
        database = tables(home)
        with suppress(AheadError):  # then another command has verified more: no index this time
            done = catch_up(database, home.ledger, wait=_SILENT, verified=ledger.state)
            return Session(database, wait=_SILENT, needs=done.end)
    return None


def tell_unread(ledger: VerifiedLedger | VerificationReport) -> None:
    """Say on standard error what an answer rests on, if new entries and no others were verified.

    A ledger without new entries is the one that the user knows from the command before.
    """
    new, entries = ledger.size - ledger.unread, "entry" if ledger.unread == 1 else "entries"
    if ledger.unread and new:
        print(
            f"rests on {ledger.unread:,} {entries} verified earlier and {new:,} verified now; "
            "`proctor verify` verifies all",
            file=sys.stderr,
        )


def open_session(home: Home, *, as_of: int | None = None, unverified: bool = False) -> "Session":
    """Bring the projection up to date and give it for questions, as of an index that there is."""
    from projections.reading import Session  # noqa: PLC0415 - loads DuckDB

    update = _updates(home, unverified=unverified)
    done = update()
    if as_of is not None and as_of >= done.position:
        raise ProctorError(f"--as-of {as_of}: the ledger has the entries 0 to {done.position - 1}")
    database = tables(home, unverified=unverified)
    session = Session(database, as_of=as_of, needs=done.end, update=lambda: update().end)
    [(count, first)] = session.query(_UNREADABLE).rows
    if count:
        warn_unreadable(count, first)
    return session


@contextmanager
def held_session(
    home: Home, *, as_of: int | None = None, unverified: bool = False
) -> Iterator["Session"]:
    """Do what open_session() does, and hold the file open until the end of the block."""
    session = open_session(home, as_of=as_of, unverified=unverified)
    with session.held():
        yield session


def ask(home: Home, sql: str, subject: object) -> list[dict[str, Any]]:
    """Return what the tables of a home answer about a subject, from a ledger that holds."""
    with held_session(home) as session:
        return session.query(sql, [str(subject)]).records
