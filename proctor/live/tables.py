"""The tables behind the pages: a private DuckDB file that follows the ledger.

New entries are verified first. What lies before was verified then, and somebody may change it in
the file since: a second thread reads it again, all the time and slowly, and compares each entry
with the hashes that were remembered of it. The DuckDB file is in a folder that only this user can
enter and is removed at the end, so no other command waits for it. Pages share one read-only
opening; it is closed while entries are applied.

Trust: the ledger is hostile until it is verified; pages show the last state that was.
I/O: reads the home; writes the private folder; two threads, and a process for many entries.
Units: seconds, MB.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from ledger.errors import LedgerError
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory
from ledger.verification.reader import (
    VerificationReport,
    VerifiedLedger,
    check_ledger,
    read_vkey,
)
from ledger.verification.states import State
from ledger.verification.verified_notes import TreeHead
from proctor.home import Home
from proctor.remembering import tables
from proctor.state import memory, state_folder
from projections.bounds import Bounds, bounded_rows
from projections.cache import catch_up
from projections.database_file import WAIT, connected, copy_between, private_folder
from projections.errors import (
    AheadError,
    BusyError,
    CostlyError,
    ProjectionError,
    QueryError,
)
from projections.identity import read_position

PAGE = Bounds(rows=5_000, seconds=10.0, memory=256)
_MANY = 5_000  # entries that a process of its own applies, because the memory stays with it
_HEADS = 100  # more than come while a query lasts
_EVERY = 1.0  # between two looks at the ledger
_AFTER_FAILURE = 5.0
_BETWEEN, _REST = 5.0, 3.0  # after a pass over all entries: at least, and times what it took
_STEP = 8_192  # entries that are read again in one transaction
_SHARE = 5  # of the time, one part is spent reading them
_NICE = 10
End = tuple[int, str | None]  # entries in the tables, and the last one's hash
Ask = Callable[..., list[dict[str, Any]]]
"""ask(SQL, parameter, ...) returns the rows as one map each."""
Read = TypeVar("Read")


@dataclass(frozen=True)
class Reread:
    """A pass over all entries that were verified when it began."""

    entries: int
    ended_at: datetime


@dataclass(frozen=True)
class Standing:
    """What is known of the ledger."""

    serial: int = 0  # changes with everything that a page may show
    position: int | None = None  # entries in the tables; None: there are none to show yet
    earlier: int = 0  # of these, verified before by other commands, and not read again
    last_hash: str | None = None  # of the last of these
    head: TreeHead | None = None  # of these
    checked_at: datetime | None = None
    reread: Reread | None = None  # the last pass over all entries that found them unchanged
    error: str | None = None  # why the newest state is not shown


class Tables:
    """Follows a ledger from start() to stop(), and answers queries from any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._turns = _Turns()
        self._large = threading.Lock()
        self._stack = ExitStack()
        self._opened = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._vkey = ""  # that of the start; another one is that of another ledger
        self._heads: dict[End, TreeHead | None] = {}  # of the last states that were verified
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._follow, self._reread)
        ]
        self._setting = threading.Lock()
        self._changed: str | None = None  # what was found when entries were read again
        self.standing = Standing()
        self.database = Path()

    def start(self) -> None:
        """Begin to follow."""
        self.open()
        for thread in self._threads:
            thread.start()

    def open(self) -> None:
        """Make the folder, for those who call look() themselves."""
        self._home.require_ledger()
        self._home.verify_key()
        self._vkey = self._home.vkey or read_vkey(LedgerPaths(self._home.ledger).vkey)
        self._folder = self._stack.enter_context(private_folder(state_folder()))
        self._known = memory() or Memory(self._folder / "memory")
        self.database = self._folder / "tables.duckdb"

    def stop(self) -> None:
        """End, and remove the file."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        with self._turns.writing():
            self._opened.close()
            self._connection = None
        self._stack.close()

    @contextmanager
    def reading(self, *, rows: int | None = None) -> Iterator[Ask]:
        """Give the function that answers queries, all of one state; raises BusyError.

        Who asks for more `rows` than other pages needs most of the memory, and waits for others
        that do.
        """
        bounds = PAGE if rows is None else replace(PAGE, rows=rows)
        with self._turns.reading(), nullcontext() if rows is None else _turn(self._large):
            if self._connection is None:
                raise BusyError("the ledger is being verified and read; this takes a moment")
            cursor = self._connection.cursor()
            try:
                yield lambda sql, *parameters: _answer(cursor, sql, parameters, bounds)
            finally:
                cursor.close()

    def read(
        self, what: Callable[[Ask], Read], *, rows: int | None = None
    ) -> tuple[Read, Standing]:
        """Return what is read of one state, and that state; raises as reading() does."""
        with self.reading(rows=rows) as ask:  # meanwhile, no other state takes its place
            return what(ask), self.standing

    def standing_at(self, end: End) -> Standing:
        """Return what is known, with the tree head of the state that an answer is from.

        Raises BusyError for a state that was not verified: its rows must not be shown.
        """
        if end not in self._heads:
            raise BusyError("new entries are being applied; this takes a moment")
        position, last_hash = end
        head = self._heads[end]
        return replace(self.standing, position=position, last_hash=last_hash, head=head)

    def look(self) -> None:
        """Verify what is new, and apply that much."""
        report = self._check()
        if not report.ok or report.state is None:
            self._set(error=report.error or "the ledger does not verify")
            return
        if self._end != report.state.end:
            self._heads = dict([*self._heads.items(), (report.state.end, report.head)][-_HEADS:])
            if not self._apply(report, report.state):
                return
        self._set(head=report.head, error=self._changed)
        self._note(checked_at=datetime.now(UTC))

    def reread(self) -> None:
        """Read all entries again that were verified before: a page is red from the first change."""
        at, done, size = 0, 0, 1

        def take(ledger: VerifiedLedger) -> None:
            nonlocal done, size
            size = ledger.size
            done = at + sum(1 for _ in islice(ledger.raw_entries(start=at), _STEP))

        while at < size:
            done, began = at, time.monotonic()
            report = self._check(take)
            if not report.ok:
                self._changed = report.error or "the ledger does not verify"
                self._set(error=self._changed)
                return
            if done == at:
                break
            at = done
            if self._stopped.wait((_SHARE - 1) * (time.monotonic() - began)):
                return
        self._note(reread=Reread(at, datetime.now(UTC)))
        if self._changed is not None:
            self._changed = None
            self._set(error=None)

    def _check(self, read: Callable[[VerifiedLedger], None] | None = None) -> VerificationReport:
        """Verify what is new; `read` gets the ledger as it was verified."""
        return check_ledger(
            self._home.ledger,
            vkey=self._vkey,
            signatures="newest",
            memory=self._known,
            new=True,
            read=read,
        )

    @property
    def _end(self) -> End | None:
        position = self.standing.position
        return None if position is None else (position, self.standing.last_hash)

    def _follow(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            try:
                self.look()
            except (
                Exception
            ) as error:  # pages tell it; without this thread they would stay as they are
                self._set(error=str(error) or type(error).__name__)
            pause = _EVERY if self.standing.error is None else _AFTER_FAILURE

    def _reread(self) -> None:
        with suppress(AttributeError, OSError):  # where one thread can have a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            if self.standing.position is not None:  # or all is being read for the first time
                with suppress(Exception):  # what keeps the ledger from being read, look() tells
                    self.reread()
            pause = max(_BETWEEN, _REST * (time.monotonic() - began))

    def _apply(self, report: VerificationReport, state: State) -> bool:
        """Bring the tables to the verified state; return False if that must wait."""
        directory, first = self._home.ledger, self.standing.position is None
        if not self.database.exists():
            self._begin_with_ours()
        many = report.size - (self.standing.position or 0) > _MANY
        with self._turns.writing():
            self._opened.close()
            self._connection = None
            try:
                if many:
                    _apply_elsewhere(
                        self.database,
                        directory,
                        self._known.folder,
                        self._vkey,
                        stopped=self._stopped,
                    )
                    if self._stopped.is_set():
                        return False
                catch_up(self.database, directory, verified=state, wait=WAIT)
                position, last_hash = state.end
                self._set(
                    position=position,
                    last_hash=last_hash,
                    earlier=report.unread if first else self.standing.earlier,
                    head=report.head,
                    error=self._changed,
                )
            except (AheadError, BusyError):  # more was verified meanwhile; or a query goes on
                return False
            finally:
                if self.database.exists():
                    self._open()
        return True

    def _open(self) -> None:
        """Open the tables for the pages, unless they are of no state that was verified."""
        try:
            connection = self._opened.enter_context(
                connected(self.database, time.monotonic() + WAIT, read_only=True, bounds=PAGE)
            )
            if read_position(connection)[:2] == self._end:
                self._connection = connection
        finally:
            if self._connection is None:
                self._opened.close()
                self._set(position=None, last_hash=None, head=None)

    def _begin_with_ours(self) -> None:
        """Take a copy of the tables that other commands of this user have made."""
        with suppress(duckdb.Error, OSError, ProjectionError), self.database.open("xb") as file:
            copy_between(tables(self._home), file, deadline=time.monotonic())
            return
        self.database.unlink(missing_ok=True)

    def _set(self, **changes: Any) -> None:
        with self._setting:
            new = replace(self.standing, **changes)
            if new != self.standing:
                self.standing = replace(new, serial=new.serial + 1)

    def _note(self, **changes: Any) -> None:
        """Set what changes all the time, for which no page has to be made anew."""
        with self._setting:
            self.standing = replace(self.standing, **changes)


def _answer(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any], bounds: Bounds
) -> list[dict[str, Any]]:
    try:
        columns, rows, more = bounded_rows(cursor, sql, parameters, bounds)
    except (duckdb.Error, OverflowError, RuntimeError, ValueError) as e:
        raise QueryError(str(e)) from e
    if more:  # a figure that is counted from cut rows would be wrong
        raise CostlyError(
            f"this page would need more than {bounds.rows:,} rows; ask with SQL, or make a report"
        )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _apply_elsewhere(
    database: Path, directory: Path, known: Path, vkey: str, *, stopped: threading.Event
) -> None:
    """Do what is needed for many entries in another process: its memory ends with it."""
    paths = (str(database), str(directory), str(known))
    command = [sys.executable, "-P", "-m", __name__, *paths, vkey]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        while process.poll() is None:
            if stopped.wait(0.05):
                process.kill()
                return
        assert process.stderr is not None
        if process.returncode:
            problem = process.stderr.read().strip().rpartition("\n")[2]
            raise ProjectionError(problem or "the tables could not be made")


def _main(database: str, directory: str, known: str, vkey: str) -> None:
    remembered = Memory(Path(known))
    report = check_ledger(
        Path(directory), vkey=vkey, signatures="newest", memory=remembered, new=True
    )
    if not report.ok:
        sys.exit(report.error)
    try:
        catch_up(Path(database), Path(directory), verified=report.state)
    except (LedgerError, ProjectionError) as error:
        sys.exit(str(error))


@contextmanager
def _turn(lock: threading.Lock) -> Iterator[None]:
    if not lock.acquire(timeout=WAIT):
        raise BusyError("other pages are being made; this takes a moment")
    try:
        yield
    finally:
        lock.release()


class _Turns:
    """Many read at once, or the only writer writes; it goes before new readers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writing = False  # or waiting to

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._writing, timeout=WAIT):
                raise BusyError("new entries are being applied; this takes a moment")
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._writing = True
            self._changed.wait_for(lambda: not self._readers)
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


if __name__ == "__main__":
    _main(*sys.argv[1:5])
