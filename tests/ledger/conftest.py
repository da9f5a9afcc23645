"""A ledger of some size, as rows, for tests that tamper with it."""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from stores import begun_on_server, tables_of

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.verify import EntryRow, HeadRow

LEDGER_SIZE = 600  # entries


@contextmanager
def open_recorder(directory: Path) -> Iterator[SignedRecorder]:
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        yield SignedRecorder(database, signer=signer)


def write_ledger(directory: Path, *, size: int) -> None:
    """Write events of seven streams, in batches of 1 to 40."""
    rng = random.Random(f"ledger of {size}")
    versions = dict.fromkeys(range(7), 0)
    left = size
    with open_recorder(directory) as recorder:
        while left:
            batch = []
            for _ in range(min(left, rng.randint(1, 40))):
                stream = rng.choice(list(versions))
                versions[stream] += 1
                batch.append(
                    StoredEvent(
                        originator_id=UUID(int=stream),
                        originator_version=versions[stream],
                        topic=f"test.event_{stream}",
                        state=rng.randbytes(rng.randint(0, 200)),
                    )
                )
            recorder.insert_events(batch)
            left -= len(batch)


@pytest.fixture(scope="session", autouse=True)
def store(pytestconfig: pytest.Config) -> Iterator[None]:
    """Begin ledgers where the option says."""
    if pytestconfig.getoption("--store") == "sqlite":
        yield
        return
    with begun_on_server():
        yield


@pytest.fixture(scope="session")
def ledger_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest ledger on disk, closed; copy it before you touch it."""
    directory = tmp_path_factory.mktemp("honest")
    write_ledger(directory, size=LEDGER_SIZE)
    return directory


@pytest.fixture(scope="session")
def ledger_rows(ledger_directory: Path) -> tuple[list[EntryRow], list[HeadRow], str]:
    """The same ledger as rows of entries, rows of tree heads, and vkey."""
    with tables_of(ledger_directory) as c:
        entries = c.execute("SELECT * FROM entries ORDER BY idx").fetchall()
        heads = c.execute("SELECT * FROM tree_heads ORDER BY size").fetchall()
    return entries, heads, LedgerPaths(ledger_directory).vkey.read_text()
