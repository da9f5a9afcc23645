"""A persistence module of the eventsourcing library: a ledger on a PostgreSQL server.

Chosen with PERSISTENCE_MODULE=ledger.postgres. As in sqlite.py, exactly one factory class is
defined here, and none is imported by name.

Source: eventsourcing 9.5, persistence.py and postgres.py, whose names of settings these are.
I/O: the server; the keys in the ledger's directory, and the file there that names the server.
"""

from ledger import sqlite
from ledger.errors import StorageError
from ledger.paths import LedgerPaths, is_served
from ledger.postgres_store import ServerSettings

__all__ = ["PostgresLedgerFactory"]


class PostgresLedgerFactory(sqlite.LedgerFactory):
    """Builds the recorder for the ledger that LEDGER_DIRECTORY and POSTGRES_DBNAME name.

    POSTGRES_HOST, POSTGRES_PORT, POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_SCHEMA say where it
    is, if not where libpq would look. The directory remembers all of them but the password.
    """

    def _server(self, paths: LedgerPaths) -> ServerSettings | None:
        found = ServerSettings.from_env(self.env)
        if found is None and not is_served(paths):
            raise StorageError("set POSTGRES_DBNAME to the ledger's database")
        return found
