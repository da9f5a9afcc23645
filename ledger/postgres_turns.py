"""Writers on a PostgreSQL server take turns, by an advisory lock that nobody can stop them with.

The lock is held from a transaction's first statement to its commit. Anybody who may connect to the
database can take it: if its holder may not append, writers do without, and what was committed in
between refuses theirs by the keys of the tables. It is done again then.

Source: PostgreSQL 15, "Explicit Locking", "Transaction Isolation" and "pg_locks".
Trust: the server tells who holds a lock, and what they may do.
I/O: the server.  Units: seconds.
"""

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors

from ledger.errors import StorageError
from ledger.postgres_schema import quoted

_TURN = 1  # after so long, a writer looks who has the lock
_PATIENCE = 30  # for somebody who may append and has it
_STUCK = 10  # a client that is silent in a transaction, holding the lock, is cut off
# Who has the lock, and whether they may append, which before there is a ledger is not known.
_HOLDERS = """
    SELECT l.pid, coalesce(a.usename, ''), to_regclass(%s) IS NULL
        OR coalesce(has_table_privilege(a.usesysid, to_regclass(%s), 'INSERT'), false)
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint << 32 | l.objid::bigint = %s"""


class Turns:
    """How the writers of one connection take turns with those of others."""

    def __init__(self, path: Path, schema: str) -> None:
        digest = hashlib.sha256(f"ledger/postgres/{schema}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "big", signed=True)
        self._path = path
        self._table = f"{quoted(schema)}.entries"
        self._stranger = False  # had the lock the last time
        stuck = f"SET LOCAL idle_in_transaction_session_timeout = '{_STUCK}s'"
        turn = f"SET LOCAL lock_timeout = '{_TURN}s'"
        fresh = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {stuck}; {turn}; SELECT "
        # No snapshot may be older than the lock. Without the lock there is one snapshot only:
        # what was committed since then collides with it in the keys of the tables.
        self._wait = f"{fresh}pg_advisory_xact_lock({self._key})".encode()
        self._ask = f"{fresh}pg_try_advisory_xact_lock({self._key})".encode()
        self._without = (
            f"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE; {stuck}; {turn}".encode()
        )

    def begin(self, connection: "psycopg.Connection[Any]") -> None:
        """Begin a writer's transaction, when its turn has come or a stranger has the lock.

        Raises StorageError if somebody who may append has held it for too long.
        """
        until = time.monotonic() + _PATIENCE
        while not self._locked(connection):
            connection.execute("ROLLBACK")
            found = connection.execute(_HOLDERS, (self._table, self._table, self._key)).fetchall()
            self._stranger = not all(entitled for *_, entitled in found)
            if self._stranger:
                connection.execute(self._without)
                return
            if time.monotonic() >= until:
                who = "".join(f", process {pid} of the user {user!r}" for pid, user, _ in found)
                raise StorageError(
                    f"{self._path}: another process has held the ledger for {_PATIENCE} s{who}; "
                    "try again later"
                )
        self._stranger = False

    def _locked(self, connection: "psycopg.Connection[Any]") -> bool:
        cursor = connection.cursor()
        if not self._stranger:
            with suppress(errors.LockNotAvailable):
                cursor.execute(self._wait)
                return True
            return False
        cursor.execute(self._ask)
        cursor.set_result(-1)
        return cursor.fetchone() == (True,)
