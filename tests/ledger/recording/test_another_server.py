"""A store of another kind is a module and a line in SERVERS: here a file elsewhere."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import call_here

from ledger.database import Database, create_database
from ledger.errors import StorageError
from ledger.paths import SERVERS, LedgerPaths
from ledger.postgres_rights import Rights
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.places import Places
from ledger.verification.reader import check_ledger
from ledger.verification.snapshots import Snapshot, SQLiteSnapshot

NAME = "ledger.elsewhere"


class Settings(str):
    """The path of the SQLite file."""

    def keep(self, file: Path) -> None:
        file.write_text(self)


class ElsewhereStore(Database):
    def __init__(self, path: Path) -> None:
        self.settings = Settings(path)
        if path.exists():
            super().__init__(path)

    def begun(self) -> bool:
        return Path(self.settings).exists()

    def create(self, *, meta: Mapping[str, str]) -> None:
        create_database(Path(self.settings), meta=dict(meta))
        super().__init__(Path(self.settings))


def connect(file: Path, *, given: Settings | None) -> ElsewhereStore:
    return ElsewhereStore(Path(file.read_text() if file.exists() else str(given)))


@contextmanager
def snapshot(file: Path) -> Iterator[Snapshot]:
    with closing(connect(file, given=None)) as store, store.transaction(write=False) as rows:
        yield SQLiteSnapshot(file, rows)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    module = ModuleType("elsewhere")
    vars(module).update(
        settings=lambda env: Settings(env["ELSEWHERE"]),
        connect=connect,
        snapshot=snapshot,
        place=lambda file: f"elsewhere {file.read_text()}",
        rights=lambda _: Rights(user="anybody", needless=("DELETE on entries",), missing=()),
        PAGE="its page",
    )
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    monkeypatch.setitem(SERVERS, NAME, "elsewhere")
    return {"PERSISTENCE_MODULE": NAME, "ELSEWHERE": str(tmp_path / "tables")}


def append(home: Path, server: Mapping[str, str] | None = None) -> None:
    store, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None, server=server)
    with closing(SignedRecorder(store, signer=signer)) as recorder:
        recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])


def test_module_and_a_line_add_a_kind_of_server(tmp_path: Path, env: dict[str, str]) -> None:
    append(tmp_path, env)
    append(tmp_path)  # the file in the folder says where
    paths = LedgerPaths(tmp_path / "ledger")
    assert paths.server.name == NAME
    assert not paths.database.exists()
    assert check_ledger(paths.directory, vkey=paths.vkey.read_text().strip()).size == 2
    done = call_here(["verify"], home=tmp_path)
    assert done.returncode == 0, done.stderr
    done = call_here(["verify", "--rights"], home=tmp_path)
    assert (done.returncode, "DELETE on entries" in done.stdout) == (1, True), done.stderr
    assert "its page" in done.stdout + done.stderr
    # Another ledger in a place of that server is noticed, whichever folder names it.
    known = Places(tmp_path / "state")
    known.keep(paths.directory, "first")
    other = tmp_path / "other" / "ledger"
    other.mkdir(parents=True)
    (other / NAME).write_text(paths.server.read_text())
    assert known.others(other, "second") == ["first"]
    # Two of them are one too many.
    (paths.directory / "ledger.postgres").touch()
    with pytest.raises(StorageError, match="move one of the two files away"):
        append(tmp_path)


def test_ledger_in_a_file_stays_there(tmp_path: Path, env: dict[str, str]) -> None:
    append(tmp_path)
    with pytest.raises(StorageError, match="this ledger is in a file"):
        append(tmp_path, env)
    append(tmp_path)
