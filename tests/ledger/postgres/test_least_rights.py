"""A producer with the rights that the how-to documents can append, and do nothing else.

The statements that grant them are those of the page.
"""

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import call_here
from postgres_server import PostgresServer, missing, running_server

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.verification.reader import check_ledger

reason = missing()
pytestmark = pytest.mark.skipif(reason is not None, reason=reason or "")
PAGE = Path(__file__).parents[3] / "docs/how-to/use-postgresql.md"
LOCK = int.from_bytes(hashlib.sha256(b"ledger/postgres/ledger").digest()[:8], "big", signed=True)
PRODUCER, OWNER, STRANGER = "producer", "ledger_owner", "stranger"

# What a producer of the documented rights tries, beside appending.
ATTEMPTS = (
    # Run code as somebody else, or swallow what others append.
    "CREATE FUNCTION pg_temp.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
    "CREATE TRIGGER t BEFORE INSERT ON ledger.entries FOR EACH ROW EXECUTE FUNCTION pg_temp.f()",
    "CREATE FUNCTION pg_temp.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
    "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON ledger.tree_heads DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION pg_temp.f()",
    "CREATE RULE r AS ON INSERT TO ledger.entries DO INSTEAD NOTHING",
    "CREATE RULE r AS ON SELECT TO ledger.tree_heads DO INSTEAD SELECT 1, '', ''::bytea",
    "ALTER TABLE ledger.entries ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY p ON ledger.entries USING (false)",
    "CREATE FUNCTION pg_temp.g(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'; "
    "CREATE INDEX i ON ledger.entries (pg_temp.g(name))",
    "CREATE FUNCTION ledger.length(bytea) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OPERATOR ledger.= (FUNCTION = byteaeq, LEFTARG = bytea, RIGHTARG = bytea)",
    "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION pg_temp.f()",
    # Change or remove what is there.
    "DELETE FROM ledger.entries",
    "DELETE FROM ledger.tree_heads",
    "DELETE FROM ledger.meta",
    "UPDATE ledger.entries SET entry = 'x'",
    "UPDATE ledger.entries SET idx = idx + 1",
    "UPDATE ledger.tree_heads SET note = 'x'",
    "UPDATE ledger.meta SET value = 'x'",
    "INSERT INTO ledger.meta VALUES ('other', 'x')",
    "INSERT INTO ledger.entries SELECT * FROM ledger.entries "
    "ON CONFLICT (idx) DO UPDATE SET entry = 'x'",
    "MERGE INTO ledger.entries e USING ledger.tree_heads t ON t.size = e.idx + 1 "
    "WHEN MATCHED THEN DELETE",
    "TRUNCATE ledger.entries",
    "TRUNCATE ledger.tree_heads CASCADE",
    "COPY ledger.meta FROM STDIN",
    # Exchange the tables, or put others before or below them.
    "DROP TABLE ledger.entries",
    "DROP SCHEMA ledger CASCADE",
    "ALTER SCHEMA ledger RENAME TO other",
    "ALTER TABLE ledger.entries RENAME TO other",
    "ALTER TABLE ledger.entries ADD COLUMN more text",
    "ALTER TABLE ledger.entries DROP CONSTRAINT entries_pkey",
    "ALTER TABLE ledger.entries SET UNLOGGED",
    "CREATE TABLE ledger.other (id int)",
    "CREATE VIEW ledger.other AS SELECT 1",
    "CREATE TEMPORARY TABLE child () INHERITS (ledger.entries)",
    "CREATE SCHEMA other",
    "COMMENT ON TABLE ledger.meta IS 'x'",
    # Become somebody else, or hand rights on.
    "ALTER TABLE ledger.entries OWNER TO producer",
    "ALTER SCHEMA ledger OWNER TO producer",
    "SET ROLE ledger_owner",
    "SET SESSION AUTHORIZATION ledger_owner",
    "REASSIGN OWNED BY ledger_owner TO producer",
    "ALTER ROLE producer SUPERUSER",
    "ALTER ROLE ledger_owner SET search_path = evil",
    "ALTER DATABASE postgres SET search_path = evil",
    "CREATE ROLE other SUPERUSER",
    # Stop the others, or leave the database.
    "BEGIN; LOCK TABLE ledger.entries IN ACCESS EXCLUSIVE MODE",
    "BEGIN; LOCK TABLE ledger.tree_heads IN SHARE ROW EXCLUSIVE MODE",
    "SELECT * FROM ledger.tree_heads FOR UPDATE",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ledger_owner'",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'ledger_owner'",
    "ALTER SYSTEM SET default_transaction_read_only = on",
    "COPY ledger.entries TO PROGRAM 'cat'",
    "COPY ledger.entries TO '/tmp/entries'",
    "SELECT pg_read_file('/etc/passwd')",
    "REINDEX TABLE ledger.entries",
    "CLUSTER ledger.entries USING entries_pkey",
)


def documented_statements() -> list[str]:
    """Return the statements of the page: for the beginning, then for a producer."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    return [block.replace("DATABASE proctor", "DATABASE postgres") for block in blocks]


@contextmanager
def session(server: PostgresServer, user: str) -> Iterator[Any]:
    import psycopg  # noqa: PLC0415 - it is an extra

    with psycopg.connect(
        host=str(server.folder), user=user, dbname="postgres", autocommit=True
    ) as connection:
        yield connection


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server({"fsync": "off"}) as started:
        with session(started, "postgres") as c:
            c.execute(documented_statements()[0])
            c.execute(f"CREATE ROLE {STRANGER} LOGIN")
            c.execute(f"GRANT CONNECT ON DATABASE postgres TO {STRANGER}")
            c.execute(f"GRANT TEMPORARY ON DATABASE postgres TO {PRODUCER}")  # helps no attempt
        yield started


@pytest.fixture(scope="module")
def home(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begin a ledger as its owner, and return a home whose file names the producer."""
    home = tmp_path_factory.mktemp("home")
    LedgerApplication.open(home / "ledger", REGISTRY, server=server.env(user=OWNER)).close()
    with session(server, OWNER) as c:
        c.execute(documented_statements()[1])
    file = LedgerPaths(home / "ledger").server
    file.write_text(file.read_text().replace(f"USER={OWNER}", f"USER={PRODUCER}"))
    return home


@contextmanager
def producing(home: Path) -> Iterator[SignedRecorder]:
    with LedgerApplication.open(home / "ledger", REGISTRY) as app:
        assert isinstance(app.recorder, SignedRecorder)
        yield app.recorder


def events(count: int = 1) -> list[StoredEvent]:
    return [StoredEvent(uuid4(), 1, "test.event", b"body") for _ in range(count)]


def test_producer_with_documented_rights_appends_rotates_and_is_told_so(
    home: Path,
) -> None:
    """The honest control."""
    with producing(home) as recorder:
        before = recorder.max_notification_id() or 0
        recorder.insert_events(events())
        recorder.insert_events(events(20))
        recorder.rotate_key()
        assert recorder.insert_events(events()) == [before + 23]
    report = check_ledger(home / "ledger")
    assert (report.ok, report.size) == (True, before + 23)
    done = call_here(["verify", "--rights"], home=home)
    assert (done.returncode, done.stdout) == (
        0,
        "user producer: may read, append and no more\n",
    ), done.stderr


def test_attempt_of_a_producer_with_documented_rights_is_rejected(
    server: PostgresServer, home: Path
) -> None:
    import psycopg  # noqa: PLC0415 - it is an extra

    done: list[tuple[str, Exception | None]] = []
    with producing(home) as recorder, session(server, OWNER):
        recorder.insert_events(events(2))
        size = recorder.max_notification_id() or 0
        before = check_ledger(home / "ledger")
        assert before.ok
        for attempt in ATTEMPTS:
            with session(server, PRODUCER) as c:
                try:
                    c.execute(attempt)
                except psycopg.errors.InsufficientPrivilege:
                    continue
                except psycopg.Error as e:
                    done.append((attempt, e))
                else:
                    done.append((attempt, None))
        assert not done, "\n".join(map(str, done))
        assert call_here(["verify", "--rights"], home=home).returncode == 0
        after = check_ledger(home / "ledger")
        assert (after.ok, after.head) == (True, before.head)
        assert recorder.insert_events(events(3)) == [size + 1, size + 2, size + 3]
    assert check_ledger(home / "ledger").ok


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shared", ["", "_shared"])
def test_lock_that_a_stranger_has_does_not_stop_appends(
    server: PostgresServer, home: Path, shared: str
) -> None:
    writers, each = 4, 15
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with producing(home) as recorder:
                for n in range(each):
                    recorder.insert_events(events(1 + n % 2))
        except BaseException as e:
            failures.append(e)

    with producing(home) as recorder, session(server, STRANGER) as stranger:
        recorder.insert_events(events())
        size = recorder.max_notification_id() or 0
        stranger.execute(f"SELECT pg_advisory_lock{shared}({LOCK})")
        began = time.monotonic()
        assert recorder.insert_events(events()) == [size + 1]
        assert recorder.insert_events(events()) == [size + 2]
        assert time.monotonic() - began < 15  # a busy machine's; the lock is waited for once, 1 s
        threads = [threading.Thread(target=write) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        stranger.execute("SELECT pg_advisory_unlock_all()")
        last = size + 2 + writers * sum(1 + n % 2 for n in range(each)) + 1
        assert recorder.insert_events(events()) == [last]
    report = check_ledger(home / "ledger")
    assert (report.ok, report.size) == (True, last)


def test_process_that_may_append_and_keeps_the_lock_is_named(
    server: PostgresServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for: an earlier version of the program takes turns by the same lock."""
    monkeypatch.setattr("ledger.postgres_turns._PATIENCE", 2)
    with producing(home) as recorder, session(server, PRODUCER) as other:
        size = recorder.max_notification_id() or 0
        other.execute(f"SELECT pg_advisory_lock({LOCK})")
        with pytest.raises(Exception, match=rf"process {other.info.backend_pid} of .* 'producer'"):
            recorder.insert_events(events())
        threading.Timer(0.5, other.execute, ["SELECT pg_advisory_unlock_all()"]).start()
        assert recorder.insert_events(events()) == [size + 1]


def test_stranger_reads_and_writes_nothing(server: PostgresServer, home: Path) -> None:
    import psycopg  # noqa: PLC0415 - it is an extra

    assert LedgerPaths(home / "ledger").exist
    statements = ("SELECT * FROM ledger.meta", *ATTEMPTS)
    with session(server, OWNER):
        for statement in statements:
            with session(server, STRANGER) as c, pytest.raises(psycopg.Error):
                c.execute(statement.replace("producer", STRANGER))


@pytest.mark.parametrize(
    ("grant", "take_back", "told"),
    [
        (
            "GRANT TRIGGER ON ledger.entries TO producer",
            "REVOKE TRIGGER ON ledger.entries FROM producer",
            "TRIGGER on entries",
        ),
        (
            "GRANT UPDATE (name) ON ledger.entries TO producer",
            "REVOKE UPDATE (name) ON ledger.entries FROM producer",
            "UPDATE on entries",
        ),
        (
            "GRANT UPDATE ON ledger.tree_heads TO producer",
            "REVOKE UPDATE ON ledger.tree_heads FROM producer",
            "UPDATE on tree_heads.edge",
        ),
        (
            "GRANT DELETE ON ledger.tree_heads TO PUBLIC",
            "REVOKE DELETE ON ledger.tree_heads FROM PUBLIC",
            "DELETE on tree_heads",
        ),
        (
            "GRANT INSERT ON ledger.meta TO producer",
            "REVOKE INSERT ON ledger.meta FROM producer",
            "INSERT on meta",
        ),
        (
            "GRANT SELECT ON ledger.meta TO producer WITH GRANT OPTION",
            "REVOKE GRANT OPTION FOR SELECT ON ledger.meta FROM producer",
            "may grant SELECT on meta",
        ),
        (
            "GRANT CREATE ON SCHEMA ledger TO producer",
            "REVOKE CREATE ON SCHEMA ledger FROM producer",
            "CREATE on the schema",
        ),
        (
            "ALTER ROLE producer NOINHERIT; GRANT ledger_owner TO producer",
            "REVOKE ledger_owner FROM producer; ALTER ROLE producer INHERIT",
            "owns the table entries",
        ),
        (
            "ALTER TABLE ledger.entries OWNER TO producer",
            "ALTER TABLE ledger.entries OWNER TO ledger_owner; "
            "GRANT SELECT, INSERT ON ledger.entries TO producer",
            "owns the table entries",
        ),
        (
            "GRANT pg_write_all_data TO producer",
            "REVOKE pg_write_all_data FROM producer",
            "DELETE on entries",
        ),
        ("ALTER ROLE producer CREATEROLE", "ALTER ROLE producer NOCREATEROLE", "CREATEROLE"),
        (
            "GRANT pg_execute_server_program TO producer",
            "REVOKE pg_execute_server_program FROM producer",
            "pg_execute_server_program",
        ),
        ("ALTER ROLE producer SUPERUSER", "ALTER ROLE producer NOSUPERUSER", "is a superuser"),
        (
            "REVOKE INSERT ON ledger.entries FROM producer",
            "GRANT INSERT ON ledger.entries TO producer",
            "missing INSERT on entries",
        ),
    ],
)
def test_right_that_is_needless_or_missing_is_listed(
    server: PostgresServer, home: Path, grant: str, take_back: str, told: str
) -> None:
    with session(server, "postgres") as c:
        c.execute(grant)
        try:
            done = call_here(["verify", "--rights"], home=home)
        finally:
            c.execute(take_back)
    assert (done.returncode, told in " ".join(done.stdout.split())) == (1, True), done.stdout
    assert call_here(["verify", "--rights"], home=home).returncode == 0


def test_right_to_cosign_is_not_needless(server: PostgresServer, home: Path) -> None:
    with session(server, "postgres") as c:
        c.execute("GRANT UPDATE (note) ON ledger.tree_heads TO producer")
        done = call_here(["verify", "--rights"], home=home)
        c.execute("REVOKE UPDATE (note) ON ledger.tree_heads FROM producer")
    assert done.returncode == 0, done.stdout


def test_rights_of_a_ledger_in_a_file_are_explained(tmp_path: Path) -> None:
    with closing(LedgerApplication.open(tmp_path / "ledger", REGISTRY)):
        pass
    done = call_here(["verify", "--rights"], home=tmp_path)
    assert (done.returncode, "in a file" in done.stderr) == (2, True)
