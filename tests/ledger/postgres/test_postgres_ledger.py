"""A ledger on a real PostgreSQL server, beyond what the suites show of either store.

`make test-postgres` runs those, too, with their ledgers on a server, and the slow tests of here.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import TINY, call_here
from postgres_server import PostgresServer, missing, running_server
from stores import tables_of
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.errors import (
    ConflictError,
    EncodingError,
    KeyFileError,
    ReadOnlyError,
    StorageError,
)
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.verification.reader import check_ledger, open_verified

reason = missing()
pytestmark = pytest.mark.skipif(reason is not None, reason=reason or "")
NAMES = iter(f"place_{n}" for n in range(1_000))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server({"fsync": "off"}) as started:
        yield started


@contextmanager
def opened(
    directory: Path, server: PostgresServer | None = None, **more: str
) -> Iterator[SignedRecorder]:
    """Open a ledger, or begin it on the server."""
    env = None if server is None else server.env(**more)
    with LedgerApplication.open(directory, EventRegistry(), server=env) as app:
        assert isinstance(app.recorder, SignedRecorder)
        yield app.recorder


def event(version: int = 1, *, name: str = "test.event", **fields: Any) -> StoredEvent:
    return StoredEvent(fields.get("stream") or uuid4(), version, name, b"body")


def cut_off_others(directory: Path) -> None:
    """End every other connection to the database, as an administrator may."""
    with tables_of(directory) as c:
        c.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()


def test_ledger_survives_cuts_restarts_and_strangers(
    server: PostgresServer, tmp_path: Path
) -> None:
    """One ledger through all that is quick to show: several tests would each begin their own."""
    home, place = tmp_path / "home", next(NAMES)
    with opened(home, server, schema=place) as one, opened(home) as other:
        assert one.insert_events([event(), event()]) == [1, 2]
        with pytest.raises(ConflictError, match="cannot follow"):  # takes no index with it
            other.insert_events([event(5)])
        assert other.insert_events([event()]) == [3]

        cut_off_others(home)  # between two appends
        assert one.insert_events([event()]) == [4]
        assert other.max_notification_id() == 4

        for batch in ([event(name="test.\0")], [event(), event(name="test.\0")]):
            with pytest.raises(EncodingError, match="NUL"):
                one.insert_events(batch)
        assert [each.id for each in one.select_notifications(1, 10)] == [1, 2, 3, 4]
        assert one.select_notifications(1, 10, topics=["test.other"]) == []
    # The folder is enough from here on, and has no password.
    kept = LedgerPaths(home).server.read_text()
    assert f"POSTGRES_SCHEMA={place}\n" in kept
    assert "PASSWORD" not in kept
    report = check_ledger(home)
    assert (report.ok, report.size) == (True, 4)

    # Whoever has the folder without its key may read, and another key opens nothing.
    shutil.copytree(home, tmp_path / "reader", ignore=shutil.ignore_patterns("keys"))
    with opened(tmp_path / "reader") as reader, pytest.raises(ReadOnlyError):
        reader.insert_events([event()])
    with opened(tmp_path / "stranger", server, schema=next(NAMES)):
        pass
    shutil.copy(LedgerPaths(home).server, LedgerPaths(tmp_path / "stranger").server)
    with pytest.raises(KeyFileError, match=r"is not the key of ledger\.postgres"):
        opened(tmp_path / "stranger").__enter__()

    # A row that was changed is named; it is the server's own administrator who changes it.
    with tables_of(home) as c:
        c.execute("UPDATE entries SET name = 'test.forged' WHERE idx = 2")
    report = check_ledger(home)
    assert (report.ok, report.index) == (False, 2)


@pytest.mark.slow
def test_settings_of_the_environment_and_of_the_folder_may_not_differ(
    server: PostgresServer, tmp_path: Path
) -> None:
    place = next(NAMES)
    with opened(tmp_path, server, schema=place):
        pass
    with pytest.raises(StorageError, match="the environment names schema 'another'"):
        opened(tmp_path, server, schema="another").__enter__()
    more = {"schema": place, "user": "postgres"}
    with LedgerApplication.open(tmp_path, EventRegistry(), server=server.env(**more)):
        pass  # what it says again is the same
    with tables_of(tmp_path) as c:
        c.execute("CREATE ROLE other LOGIN SUPERUSER")
    with opened(
        tmp_path, server, schema=place, user="other"
    ) as recorder:  # who connects may differ
        recorder.insert_events([event()])
    paths = LedgerPaths(tmp_path)
    paths.server.write_text("host=here\n")
    with pytest.raises(StorageError, match="does not name a database"):
        opened(tmp_path).__enter__()
    paths.server.unlink()
    with pytest.raises(StorageError, match=r"ledger\.sqlite: ledger not found, although"):
        opened(tmp_path).__enter__()
    with pytest.raises(StorageError, match="ledger not found, although"):
        opened(tmp_path, server, schema="empty").__enter__()
    with opened(tmp_path / "file"):
        pass
    with pytest.raises(StorageError, match="this ledger is in a file"):
        opened(tmp_path / "file", server).__enter__()
    with pytest.raises(StorageError, match="set POSTGRES_DBNAME"):
        LedgerApplication.open(tmp_path / "x", EventRegistry(), server={})


Prepare = Callable[[PostgresServer, Path], dict[str, str]]


def _of_another_application(server: PostgresServer, folder: Path) -> dict[str, str]:
    with opened(folder / "begun", server, schema=(place := next(NAMES))):
        pass
    with tables_of(folder / "begun") as c:
        c.execute("CREATE TABLE customers (id int)")
    return server.env(schema=place)


REFUSED: dict[str, tuple[Prepare, str]] = {
    "server down": (
        lambda server, folder: {**server.env(), "POSTGRES_HOST": str(folder)},
        r"no connection to schema 'ledger' .* check that the server runs",
    ),
    "wrong database": (
        lambda server, _: server.env(dbname="nowhere"),
        r'database "nowhere" does not exist; check POSTGRES_DBNAME',
    ),
    "wrong user": (
        lambda server, _: server.env(user="nobody"),
        r'role "nobody" does not exist; check POSTGRES_USER',
    ),
    "another application's tables": (
        _of_another_application,
        r"has tables, but not those of a ledger of this version; set POSTGRES_SCHEMA",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_with_the_server_is_said_in_one_line(
    server: PostgresServer,
    tmp_path: Path,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare, said = REFUSED[case]
    for name, value in prepare(server, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PERSISTENCE_MODULE", "ledger.postgres")
    done = call_here(["run", *TINY], home=tmp_path / "home")
    told = " ".join(done.stderr.split())
    assert (done.returncode, "Traceback" in told) == (2, False)
    assert told.startswith("error: ")
    assert re.search(said, told), told


@pytest.mark.slow
def test_wrong_password_is_said_and_the_password_is_not(tmp_path: Path) -> None:
    with running_server({"fsync": "off"}) as server:
        with opened(tmp_path / "first", server), tables_of(tmp_path / "first") as c:
            c.execute("CREATE ROLE trainer LOGIN PASSWORD 'right'")
            c.execute("GRANT CREATE ON DATABASE postgres TO trainer")
        rules = server.data / "pg_hba.conf"
        rules.write_text("local all trainer scram-sha-256\n" + rules.read_text())
        with tables_of(tmp_path / "first") as c:
            c.execute("SELECT pg_reload_conf()").fetchone()
        more = {"user": "trainer", "schema": "own"}
        with pytest.raises(StorageError, match=r"authentication failed .* POSTGRES_PASSWORD") as e:
            opened(tmp_path / "own", server, password="forbidden", **more).__enter__()
        assert "forbidden" not in str(e.value)
        with pytest.raises(StorageError, match="no password supplied; set POSTGRES_PASSWORD"):
            opened(tmp_path / "own", server, **more).__enter__()
        with opened(tmp_path / "own", server, password="right", **more) as recorder:
            recorder.insert_events([event()])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("POSTGRES_PASSWORD", "right")
            assert check_ledger(tmp_path / "own").ok


@pytest.mark.slow
def test_ledger_is_begun_by_many_at_once(server: PostgresServer, tmp_path: Path) -> None:
    """Those that share a folder have one ledger; another folder's key is not let in."""
    place = next(NAMES)
    failures: list[BaseException] = []

    def begin(directory: Path) -> None:
        try:
            with opened(directory, server, schema=place) as recorder:
                recorder.insert_events([event()])
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=begin, args=[tmp_path / "home"]) for _ in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    report = check_ledger(tmp_path / "home")
    assert (report.ok, report.size) == (True, 12)
    begin(tmp_path / "late")  # it has no key, and may read
    assert [type(each) for each in failures] == [ReadOnlyError]


@pytest.mark.slow
def test_reader_misses_nothing_whatever_the_library_is_set_to(
    server: PostgresServer, tmp_path: Path
) -> None:
    """The library's own insert function, with this setting, leaves out the lock."""
    place = {"schema": next(NAMES), "enable_db_functions": "y"}
    writers, events = 6, 40

    def write() -> None:
        with opened(tmp_path, server, **place) as recorder:
            for n in range(events):
                with suppress(ConflictError):  # leaves no gap
                    recorder.insert_events([event(7)])
                recorder.insert_events([event() for _ in range(1 + n % 3)])

    expected = writers * sum(1 + n % 3 for n in range(events))
    with opened(tmp_path, server, **place) as reader:
        threads = [threading.Thread(target=write) for _ in range(writers)]
        for each in threads:
            each.start()
        seen: list[int] = []
        until = time.monotonic() + 120
        while len(seen) < expected and time.monotonic() < until:
            seen += [each.id for each in reader.select_notifications(len(seen) + 1, 50)]
        for each in threads:
            each.join()
    assert seen == list(range(1, expected + 1))
    assert check_ledger(tmp_path).ok


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
def test_server_that_comes_back_costs_only_time(tmp_path: Path, how: signal.Signals) -> None:
    with running_server() as server, opened(tmp_path, server) as recorder:
        assert recorder.insert_events([event()]) == [1]
        server.stop(how)
        back = threading.Timer(1.0, server.start)
        back.start()
        assert recorder.insert_events([event()]) == [2]
        back.join()
        assert [each.id for each in recorder.select_notifications(1, 9)] == [1, 2]
        assert check_ledger(tmp_path).ok


@pytest.mark.slow
def test_server_that_stays_away_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.postgres_store._LostError.patience", 0.5)
    with running_server({"fsync": "off"}) as server, opened(tmp_path, server) as recorder:
        server.stop()
        with pytest.raises(StorageError, match=r"did not come back .* completely or not at all"):
            recorder.insert_events([event()])
        server.start()
        assert recorder.insert_events([event()]) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("known", ["the database system is ", "in another language"])
def test_producer_that_begins_while_the_server_restarts_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """While a session lasts, a server that stops refuses new ones; then nobody answers."""
    came: list[object] = []

    def begin() -> None:
        try:
            with opened(tmp_path) as recorder:
                came.extend(recorder.insert_events([event()]))
        except BaseException as e:
            came.append(e)

    monkeypatch.setattr("ledger.postgres_store._STARTING", known)
    with running_server({"fsync": "off"}) as server:
        with opened(tmp_path, server):
            pass
        stopping = threading.Thread(target=server.stop, args=[signal.SIGTERM])
        producer = threading.Thread(target=begin)
        with tables_of(tmp_path) as c:
            c.execute("SELECT 1").fetchone()
            stopping.start()
            time.sleep(0.5)
            with monkeypatch.context() as patch:
                patch.setattr("ledger.postgres_store._StartingError.patience", 0.0)
                with pytest.raises(StorageError, match="the database system is shutting down"):
                    opened(tmp_path).__enter__()
            for kind in ("_StartingError", "_SilentError"):  # a busy machine starts it slowly
                monkeypatch.setattr(f"ledger.postgres_store.{kind}.patience", 300.0)
            producer.start()
            time.sleep(1.0)
            assert came == []
        stopping.join()
        time.sleep(0.5)
        server.start()
        producer.join()
        assert came == [1]


@pytest.mark.slow
def test_producer_that_begins_just_before_the_server_starts_waits_for_it(tmp_path: Path) -> None:
    with running_server({"fsync": "off"}) as server:
        with opened(tmp_path, server):
            pass
        server.stop()
        back = threading.Timer(1.0, server.start)
        back.start()
        with opened(tmp_path) as recorder:
            assert recorder.insert_events([event()]) == [1]
        back.join()


class Cutting:
    """A socket before the server's, which loses what the server answers to the next commit."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.folder = folder
        self._server = str(server.folder / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self.armed = False
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                for ends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, asked: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if asked and self.armed and b"COMMIT" in data:
                    self.armed = False
                    self.lost += 1
                    target.sendall(data)  # it is carried out, and the client never learns of it
                    time.sleep(0.3)
                    source.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_batch_whose_acknowledgement_was_lost_is_there_once(
    server: PostgresServer, tmp_path: Path
) -> None:
    place = {**server.env(schema=next(NAMES)), "POSTGRES_HOST": str(tmp_path)}
    stream = uuid4()
    with (
        closing(Cutting(server, tmp_path)) as between,
        LedgerApplication.open(tmp_path / "home", EventRegistry(), server=place) as app,
    ):
        recorder = app.recorder
        assert isinstance(recorder, SignedRecorder)
        assert recorder.insert_events([event(1, stream=stream)]) == [1]
        between.armed = True
        assert recorder.insert_events([event(2, stream=stream), event()]) == [2, 3]
        between.armed = True
        new = recorder.rotate_key()
        assert recorder.insert_events([event(3, stream=stream)]) == [5]
        assert between.lost == 2
        report = check_ledger(tmp_path / "home")
        assert (report.ok, report.size) == (True, 5)
        assert report.authority is not None
        assert report.authority.vkey == new


@pytest.mark.slow
def test_producer_that_is_stuck_with_the_lock_does_not_stop_the_others(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.postgres_turns._STUCK", 1)
    with opened(tmp_path, server, schema=next(NAMES)) as stuck, opened(tmp_path) as other:
        with (
            pytest.raises(StorageError, match="the connection to the server was lost"),
            stuck._store.transaction(write=True),
        ):
            assert other.insert_events([event()]) == [1]
        assert stuck.insert_events([event()]) == [2]
        with open_verified(tmp_path) as ledger:  # a reader holds nothing up, and may take long
            time.sleep(2)
            assert len(list(ledger.entries())) == 2


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A disk of so many bytes, which only root can mount."""
    folder = Path("/tmp") / f"pg-disk-{uuid4().hex[:8]}"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("only root can mount a small disk, and not everywhere")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.mark.slow
def test_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    with small_disk("24m") as disk, running_server() as server, opened(tmp_path, server) as one:
        (disk / "space").mkdir()
        shutil.chown(disk / "space", "postgres")
        _run_alone(tmp_path, f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
        _run_alone(tmp_path, "ALTER TABLE entries SET TABLESPACE small")

        def fill() -> None:
            while True:
                body = os.urandom(60_000)
                appended.extend(one.insert_events([StoredEvent(uuid4(), 1, "test.event", body)]))

        appended: list[int] = []
        with pytest.raises(StorageError, match=r"No space left .* free some space"):
            fill()
        assert one.max_notification_id() == appended[-1]
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert one.insert_events([event()]) == [appended[-1] + 1]
        report = check_ledger(tmp_path)
        assert (report.ok, report.size) == (True, appended[-1] + 1)


def _run_alone(directory: Path, statement: str) -> None:
    """Carry out what no transaction may be around."""
    from ledger.postgres_store import ServerSettings, connect  # noqa: PLC0415 - psycopg is an extra

    path = LedgerPaths(directory).server
    settings = ServerSettings.of_ledger(path, given=None)
    with closing(connect(path, settings)) as connection:
        connection.execute(f'SET search_path = "{settings.schema}"'.encode())
        connection.execute(statement.encode())


@pytest.mark.slow
def test_commands_work_on_a_server(server: PostgresServer, tmp_path: Path) -> None:
    home, env = tmp_path / "home", server.env(schema=next(NAMES))
    with LedgerApplication.open(home / "ledger", REGISTRY, server=env) as log:
        run = synthetic_run(log, epochs=6, dead=range(1, 5))
    for arguments, said in (
        (["verify"], "complete to tree head"),
        (["log"], "run.started"),
        (["show", str(run.id)], "completed"),
        (["sql", "SELECT COUNT(*) AS n FROM runs"], "1"),
        (["keys", "rotate"], "rotated"),
        (["keys", "list"], "ledger"),
        (["export", "bundle", "--out", str(tmp_path / "bundle")], "bundle"),
        (["verify", str(tmp_path / "bundle")], "complete to tree head"),
        (["verify", str(home / "ledger" / "ledger.postgres")], "complete to tree head"),
    ):
        done = call_here([*arguments], home=home)
        assert done.returncode == 0, (arguments, done.stderr)
        assert said in done.stdout + done.stderr, (arguments, done.stdout, done.stderr)

    # Another home, with the file that names the server: it reads, once it has the public key.
    other = tmp_path / "other"
    other.joinpath("ledger").mkdir(parents=True)
    shutil.copy(LedgerPaths(home / "ledger").server, other / "ledger")
    done = call_here(["verify", "--vkey", str(LedgerPaths(home / "ledger").vkey)], home=other)
    assert done.returncode == 0, done.stderr

    with tables_of(home / "ledger") as c:
        c.execute("UPDATE entries SET entry = substr(entry, 2) WHERE idx = 3")
    done = call_here(["verify"], home=home)
    assert done.returncode == 1
    assert "entry 3" in done.stdout + done.stderr


@pytest.mark.slow
def test_run_of_another_home_is_left_open(server: PostgresServer, tmp_path: Path) -> None:
    home, env = tmp_path / "home", server.env(schema=next(NAMES))
    with LedgerApplication.open(home / "ledger", REGISTRY, server=env) as log:
        run = synthetic_run(log, epochs=2, end=None)  # has no lock here: it trains elsewhere
    assert call_here(["show", str(run.id)], home=home).returncode == 0
    with open_verified(home / "ledger") as ledger:
        names = [entry.name for entry in ledger.entries() if entry.stream_id == UUID(str(run.id))]
    assert names.count("run.ended") == 0
