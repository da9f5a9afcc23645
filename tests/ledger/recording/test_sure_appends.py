"""An append is acknowledged only if what it wrote is what the database stores.

`make test-postgres` runs these on a server, too: each attack is stated for both.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from stores import database_path, on_server, tables_of

from ledger.errors import ConsistencyError, StorageError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import check_ledger, open_verified

REMEDY = r"nothing was (written|appended)"


@contextmanager
def recording(directory: Path) -> Iterator[SignedRecorder]:
    store, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(store):
        yield SignedRecorder(store, signer=signer)


def events(count: int) -> list[StoredEvent]:
    return [StoredEvent(uuid4(), 1, "test.event", b"body") for _ in range(count)]


def trigger(when: str, table: str, body: str, *, each: str = "FOR EACH ROW") -> str:
    kind = "CONSTRAINT TRIGGER" if "DEFERRED" in each else "TRIGGER"
    return (
        "CREATE FUNCTION public.{new}() RETURNS trigger LANGUAGE plpgsql SET search_path "
        f"FROM CURRENT AS $$ BEGIN {body} END $$; "
        f"CREATE {kind} t {when} ON {table} {each} EXECUTE FUNCTION public.{{new}}()"
    )


def attack_tables(directory: Path, attack: str) -> None:
    in_file, at_server = ATTACKS[attack]
    with tables_of(directory) as c:
        c.execute(at_server.replace("{new}", f"f{uuid4().hex}") if on_server() else in_file)


DEFERRED = "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
# What somebody does to the tables while a recorder is open: to a file, and to a server.
ATTACKS = {
    "an entry is left out": (
        "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
        trigger("BEFORE INSERT", "entries", "RETURN NULL;"),
    ),
    "every second entry is left out": (
        "CREATE TRIGGER t BEFORE INSERT ON entries WHEN NEW.idx & 1 BEGIN "
        "SELECT RAISE(IGNORE); END",
        trigger(
            "BEFORE INSERT",
            "entries",
            "IF NEW.idx & 1 = 1 THEN RETURN NULL; END IF; RETURN NEW;",
        ),
    ),
    "an entry is removed after it": (
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries "
        "WHERE idx = NEW.idx; END",
        trigger("AFTER INSERT", "entries", "DELETE FROM entries; RETURN NULL;"),
    ),
    "an entry is changed": (
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN UPDATE entries SET name = 'x' "
        "WHERE idx = NEW.idx; END",
        trigger("BEFORE INSERT", "entries", "NEW.entry := 'x'; RETURN NEW;"),
    ),
    "an earlier entry is changed": (
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN UPDATE entries SET entry = x'00' "
        "WHERE idx = 0; END",
        trigger(
            "AFTER INSERT", "entries", "UPDATE entries SET entry = 'x' WHERE idx = 0; RETURN NULL;"
        ),
    ),
    "the tree head is left out": (
        "CREATE TRIGGER t BEFORE INSERT ON tree_heads BEGIN SELECT RAISE(IGNORE); END",
        trigger("BEFORE INSERT", "tree_heads", "RETURN NULL;"),
    ),
    "the tree head takes all with it": (
        "CREATE TRIGGER t AFTER INSERT ON tree_heads BEGIN DELETE FROM entries; "
        "DELETE FROM tree_heads; END",
        trigger(
            "AFTER INSERT",
            "tree_heads",
            "DELETE FROM entries; DELETE FROM tree_heads; RETURN NULL;",
        ),
    ),
    "a statement is done otherwise": (
        "CREATE VIEW other AS SELECT 1",
        "CREATE RULE r AS ON INSERT TO entries DO INSTEAD NOTHING",
    ),
    "a statement does more": (
        "CREATE TRIGGER t AFTER INSERT ON tree_heads BEGIN UPDATE meta SET value = 'x'; END",
        "CREATE RULE r AS ON INSERT TO tree_heads DO ALSO DELETE FROM entries",
    ),
    "the commit removes it": (
        "CREATE TRIGGER t AFTER INSERT ON tree_heads BEGIN UPDATE entries SET name = 'x'; END",
        trigger("AFTER INSERT", "entries", "DELETE FROM entries; RETURN NULL;", each=DEFERRED),
    ),
    "rows are hidden": (
        "CREATE INDEX i ON entries (name) WHERE name <> 'test.event'",
        "ALTER TABLE entries ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON entries USING (idx < 1)",
    ),
    "a crash would empty the table": (
        "CREATE TABLE more (id)",
        "ALTER TABLE entries SET UNLOGGED",
    ),
    "another table's rows are among them": (
        "DROP TABLE meta",
        "CREATE TABLE public.{new} () INHERITS (entries)",
    ),
}


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("attack", ATTACKS)
def test_append_that_the_tables_would_swallow_or_change_is_rejected(
    tmp_path: Path, attack: str, count: int
) -> None:
    with recording(tmp_path) as recorder:
        assert recorder.insert_events(events(2)) == [1, 2]
        attack_tables(tmp_path, attack)
        with pytest.raises(StorageError, match=REMEDY):
            recorder.insert_events(events(count))
        with tables_of(tmp_path) as c:
            assert c.execute("SELECT COUNT(*) FROM entries").fetchone()[0] in (0, 2)


def test_trigger_behind_a_schema_version_that_was_set_back_changes_nothing(tmp_path: Path) -> None:
    path = database_path(tmp_path)
    with recording(tmp_path) as recorder:
        assert recorder.insert_events(events(2)) == [1, 2]
        with closing(sqlite3.connect(path, isolation_level=None)) as c:
            (version,) = c.execute("PRAGMA schema_version").fetchone()
            c.execute(ATTACKS["an entry is left out"][0])
            c.execute(f"PRAGMA schema_version = {version}")
        assert recorder.insert_events(events(2)) == [3, 4]
        with closing(sqlite3.connect(path)) as c:
            assert c.execute("SELECT COUNT(*) FROM entries").fetchone() == (4,)
    with pytest.raises(StorageError, match="not those of a ledger"):
        recording(tmp_path).__enter__()


def test_append_is_acknowledged_again_when_what_was_added_to_the_tables_is_gone(
    tmp_path: Path,
) -> None:
    with recording(tmp_path) as recorder:
        assert recorder.insert_events(events(2)) == [1, 2]
        attack_tables(tmp_path, "an entry is left out")
        with pytest.raises(StorageError, match=REMEDY):
            recorder.insert_events(events(1))
        with tables_of(tmp_path) as c:
            c.execute("DROP TRIGGER t ON entries" if on_server() else "DROP TRIGGER t")
        assert recorder.insert_events(events(3)) == [3, 4, 5]
        with tables_of(tmp_path) as c:  # an administrator's own work
            c.execute("ANALYZE entries" if on_server() else "PRAGMA user_version = 1")
        assert recorder.insert_events(events(1)) == [6]
    report = check_ledger(tmp_path)
    assert (report.ok, report.size) == (True, 6)


def test_entry_without_a_tree_head_is_noticed_by_a_recorder_that_is_open(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        assert recorder.insert_events(events(2)) == [1, 2]
        with tables_of(tmp_path) as c:
            c.execute(
                "INSERT INTO entries SELECT idx + 7, stream_id, stream_version + 1, name, entry "
                "FROM entries WHERE idx = 1"
            )
        with pytest.raises(ConsistencyError, match="do not match"):
            recorder.insert_events(events(1))
        with tables_of(tmp_path) as c:
            c.execute("DELETE FROM entries WHERE idx > 1")
        assert recorder.insert_events(events(1)) == [3]


def test_key_that_is_granted_is_stored(tmp_path: Path) -> None:
    """The control beside it: authority events and a cosignature's line go the same way."""
    with recording(tmp_path) as recorder:
        recorder.insert_events(events(1))
        new = recorder.rotate_key()
        recorder.insert_events(events(1))
    with open_verified(tmp_path) as ledger:
        assert ledger.authority.vkey == new
