"""Fixtures of tests/projections: a ledger with some of everything, and copies of it to spoil.

No conftest.py, since type checking sees all tests as one folder.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from full_ledger import write_some_of_everything

from ledger.verification.verified_entries import VerifiedEntry
from projections.projector import create_schema
from projections.source import open_source
from projections.template import copied


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that nobody may change."""
    directory = tmp_path_factory.mktemp("projections") / "ledger"
    write_some_of_everything(directory)
    return directory


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    """A ledger of the test's own."""
    return Path(shutil.copytree(written, tmp_path / "ledger"))


@pytest.fixture(scope="session")
def entries(written: Path) -> list[VerifiedEntry]:
    with open_source(written) as ledger:
        return list(ledger.entries(start=0))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "projection.duckdb"


@pytest.fixture(scope="session")
def empty() -> Callable[[], duckdb.DuckDBPyConnection]:
    """Make a database in memory, at the first entry."""

    def make() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        copied(connection, create_schema)
        return connection

    return make
