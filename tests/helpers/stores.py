"""The tests of the ledger on either store: SQLite's file, or with `--store postgres` a server.

With that option every ledger that a test begins is in a schema of its own on one server. Tests
reach for the tables through this module, so they do the same to both.
"""

import itertools
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from postgres_server import PostgresServer, missing, running_server

from ledger.database import create_database
from ledger.paths import LedgerPaths, server_at
from ledger.recording import opening
from ledger.store import Store

__all__ = [
    "begun_on_server",
    "copy_ledger",
    "database_path",
    "exchange_tables",
    "make_tables",
    "on_server",
    "tables_of",
]

_schemas = itertools.count(1)
_servers: list[PostgresServer] = []  # the one that ledgers are begun on


def on_server() -> bool:
    return bool(_servers)


def database_path(directory: Path) -> Path:
    """Return SQLite's file, for a test that is about it."""
    if _servers:
        pytest.skip("about SQLite's file")
    return LedgerPaths(directory).database


def new_settings() -> dict[str, str]:
    """Return a place on the server where nothing is yet."""
    return _servers[-1].env(schema=f"ledger_{next(_schemas)}")


@contextmanager
def begun_on_server(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Have each ledger that is begun from here on be on a new server."""
    if reason := missing():
        pytest.skip(reason)
    in_file = opening._in_file

    def begin(
        paths: LedgerPaths,
        server: Mapping[str, str] | None,
        had_vkey: bool,
        passphrase: bytes | None,
    ) -> Store:
        if paths.database.exists() or had_vkey:
            return in_file(paths, server, had_vkey, passphrase)
        return opening._on_server(paths, new_settings(), had_vkey, passphrase)

    with running_server({"fsync": "off", **(settings or {})}) as server:
        _servers.append(server)
        try:
            with mock.patch.object(opening, "_in_file", begin):
                yield server
        finally:
            _servers.pop()


class Tables:
    """The tables of a ledger, for whoever tampers with them; `?` stands for a parameter."""

    def __init__(self, connection: Any, *, mark: str = "?") -> None:
        self._connection = connection
        self._mark = mark

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(self._said(statement), parameters)

    def executemany(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._connection.cursor().executemany(self._said(statement), list(rows))

    def _said(self, statement: str) -> str:
        return statement.replace("?", self._mark)


@contextmanager
def tables_of(directory: Path) -> Iterator[Tables]:
    """Give a ledger's tables; what was done is committed."""
    paths = LedgerPaths(directory)
    if not paths.server.exists():
        with closing(sqlite3.connect(paths.database)) as c, c:
            c.execute("PRAGMA synchronous = OFF")
            yield Tables(c)
        return
    from ledger.postgres_store import ServerSettings, connect  # noqa: PLC0415

    settings = ServerSettings.of_ledger(paths.server, given=None)
    with closing(connect(paths.server, settings)) as connection, connection.transaction():
        connection.execute(f'SET LOCAL search_path = "{settings.schema}"'.encode())
        yield Tables(connection, mark="%s")


def make_tables(directory: Path, *, meta: dict[str, str]) -> None:
    """Make an empty ledger of this identity, without a key."""
    paths = LedgerPaths(directory)
    if not _servers:
        create_database(paths.database, meta=meta)
        return
    kind = server_at(paths.server)
    with closing(kind.connect(paths.server, given=kind.settings(new_settings()))) as store:
        store.create(meta=meta)
        store.settings.keep(paths.server)


def copy_ledger(source: Path, target: Path, *, dirs_exist_ok: bool = False, **how: Any) -> Path:
    """Copy a ledger's folder, and what is on a server for it."""
    shutil.copytree(source, target, dirs_exist_ok=dirs_exist_ok, **how)
    exchange_tables(source, target)
    return target


def exchange_tables(source: Path, target: Path) -> None:
    """Put a copy of a ledger's tables into another ledger's place."""
    paths = LedgerPaths(source)
    if not paths.server.exists():
        if not LedgerPaths(target).database.samefile(paths.database):
            shutil.copy(paths.database, LedgerPaths(target).database)
        return
    from ledger.postgres_store import ServerSettings  # noqa: PLC0415

    settings = ServerSettings.of_ledger(paths.server, given=None)
    LedgerPaths(target).server.unlink(missing_ok=True)
    make_tables(target, meta={})
    with tables_of(target) as c:
        for table in ("meta", "entries", "tree_heads"):
            c.execute(f'INSERT INTO {table} SELECT * FROM "{settings.schema}".{table}')
