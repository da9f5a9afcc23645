"""Ledger files with values and schemas that no writer leaves: one error, never a traceback.

The tables are STRICT and their schema is compared, so a value of another type gets in only by way
of a schema that was exchanged for a while. SQLite's own file format allows all of it.
"""

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import synthetic_audit, synthetic_run

from ledger.paths import LedgerPaths
from proctor.home import Home

COMMANDS = {
    "verify": ["verify"],
    "sql": ["sql", "SELECT COUNT(*) FROM events"],
    "log": ["log", "--count", "2"],
    "show": ["show"],
    "judge": ["judge", "--no-execute"],
    "export": ["export", "bundle", "--out"],
}
READ = ("verify", "sql", "log", "show")  # where nothing that counts was changed, these answer alike
COLUMNS = {
    "entries": ("idx", "stream_id", "stream_version", "name", "entry"),
    "tree_heads": ("size", "note", "edge"),
    "meta": ("key", "value"),
}
VALUES = {
    "NULL": "NULL",
    "real": "1.5",
    "infinite": "9e999",
    "negative": "-1",
    "largest": "9223372036854775807",
    "text": "'x'",
    "empty text": "''",
    "text with NUL": "CAST(X'610062' AS TEXT)",
    "no UTF-8": "CAST(X'FFFE' AS TEXT)",
    "blob": "X'00FF'",
    "empty blob": "X''",
    "long blob": "zeroblob(70000)",
}
SCHEMAS = {
    "text stored as a blob": "UPDATE sqlite_schema SET sql = CAST(sql AS BLOB)",
    "one text stored as a blob": (
        "UPDATE sqlite_schema SET sql = CAST(sql AS BLOB) WHERE name = 'entries'"
    ),
    "no text": "UPDATE sqlite_schema SET sql = NULL WHERE name = 'meta'",
    "not strict": "UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '')",
    "number for a text": "UPDATE sqlite_schema SET sql = 5 WHERE name = 'entries'",
    "renamed table": "ALTER TABLE entries RENAME TO others",
    "renamed column": "ALTER TABLE entries RENAME COLUMN entry TO data",
    "one column more": "ALTER TABLE tree_heads ADD COLUMN more TEXT",
    "no table of heads": "DROP TABLE tree_heads",
    "one table more": "CREATE TABLE more (x)",
    "view": "CREATE VIEW others AS SELECT * FROM entries",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM meta; END",
    "index": "CREATE INDEX i ON entries (name)",
    "page of another table": "UPDATE sqlite_schema SET rootpage = 2 WHERE type = 'table'",
    "page that is not there": "UPDATE sqlite_schema SET rootpage = 999999 WHERE name = 'entries'",
    "type that is none": "UPDATE sqlite_schema SET type = X'00' WHERE name = 'entries'",
    "view for a table": (
        "UPDATE sqlite_schema SET type = 'view', rootpage = 0, "
        "sql = 'CREATE VIEW entries AS SELECT 1' WHERE name = 'entries'"
    ),
}
ROWS = {
    "bytes of the entry before": (
        "UPDATE entries SET entry = (SELECT entry FROM entries WHERE idx = 3) WHERE idx = 4"
    ),
    "two entries exchanged": (
        "UPDATE entries SET idx = CASE idx WHEN 3 THEN -4 ELSE -3 END WHERE idx IN (3, 4);"
        "UPDATE entries SET idx = -idx WHERE idx < 0"
    ),
    "no entries": "DELETE FROM entries",
    "no heads": "DELETE FROM tree_heads",
    "no meta": "DELETE FROM meta",
    "index behind all": "UPDATE entries SET idx = 9223372036854775807 WHERE idx = 4",
    "version above all": "UPDATE entries SET stream_version = 9223372036854775807 WHERE idx = 4",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("honest") / "home"
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
    assert call_here(["sql", "SELECT 1"], home=home).returncode == 0
    return home


@pytest.fixture(scope="module")
def answers(honest: Path) -> dict[str, str]:
    return {name: call_here(COMMANDS[name], home=honest).stdout for name in READ}


def write(home: Path, script: str) -> int:
    """Change the file with SQLite itself, its schema included; return how many rows changed."""
    with closing(sqlite3.connect(LedgerPaths(home / "ledger").database)) as c:
        c.execute("PRAGMA writable_schema = ON")
        c.executescript(script)
        c.commit()
        return c.total_changes


def store(home: Path, table: str, column: str, value: str) -> None:
    """Put a value of any type where the schema has another one, and leave the schema as it was."""
    path = LedgerPaths(home / "ledger").database
    with closing(sqlite3.connect(path)) as c:
        kept = c.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [table]).fetchone()[0]
    loose = f"{table} ({', '.join(COLUMNS[table])})"
    if column == "idx" or (table, column) == ("tree_heads", "size"):  # the row's own number
        loose = loose.replace(column, f"{column} INTEGER PRIMARY KEY")
    unique = ", UNIQUE (stream_id, stream_version))" if table == "entries" else ")"
    if table == "meta":
        loose = loose.replace("key", "key PRIMARY KEY")
    loose = "CREATE TABLE " + loose[:-1] + unique
    exchange = "UPDATE sqlite_schema SET sql = '{}' WHERE name = '{}'"
    write(home, exchange.format(loose, table))
    try:
        where = f"WHERE rowid = (SELECT MAX(rowid) FROM {table})"
        assert write(home, f"UPDATE {table} SET {column} = {value} {where}") == 1
    finally:
        write(home, exchange.format(kept, table))


def check(home: Path, answers: dict[str, str], *, folder: Path) -> list[str]:
    """Ask every command; return what they said where something is wrong."""
    said = []
    for name, command in COMMANDS.items():
        target = [folder / f"bundle-{home.name}"] if name == "export" else []
        done = call_here([*command, *target], home=home)  # raises what the command does not know
        place = f"{name}: {done.returncode} {done.stdout!r} {done.stderr!r}"
        assert "Traceback" not in done.stderr, place
        assert done.returncode in (0, 1, 2), place
        if done.returncode == 0:
            assert done.stderr.count("error:") == 0, place
            assert name not in READ or done.stdout == answers[name], place
        else:  # verify and judge report in their own words what they were asked to look for
            assert done.stderr.count("error:") == 1 or name in {"verify", "judge"}, place
            assert (done.stdout + done.stderr).strip(), place
            said.append(done.stdout + done.stderr)
    return said


def odd_values() -> Iterator[tuple[str, str, str]]:
    for table, columns in COLUMNS.items():
        for column in columns:
            for value in VALUES:
                yield table, column, value


CASES = list(odd_values())
random.Random(20260).shuffle(CASES)


@pytest.mark.parametrize(
    "cases", [pytest.param(CASES[:10], id="some"), pytest.param(CASES[10:], marks=pytest.mark.slow)]
)
def test_value_of_another_type_ends_in_one_error(
    honest: Path, answers: dict[str, str], tmp_path: Path, cases: list[tuple[str, str, str]]
) -> None:
    for number, (table, column, value) in enumerate(cases):
        home = Path(shutil.copytree(honest, tmp_path / f"home{number}"))
        try:
            store(home, table, column, VALUES[value])
        except sqlite3.IntegrityError:
            continue  # the number of a row is an integer in any schema
        check(home, answers, folder=tmp_path)
        shutil.rmtree(home)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCHEMAS)
def test_another_schema_ends_in_one_error(
    honest: Path, answers: dict[str, str], tmp_path: Path, name: str
) -> None:
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    write(home, SCHEMAS[name])
    assert len(check(home, answers, folder=tmp_path)) == len(COMMANDS)


@pytest.mark.parametrize("name", ROWS)
def test_other_rows_end_in_one_error(
    honest: Path, answers: dict[str, str], tmp_path: Path, name: str
) -> None:
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    write(home, ROWS[name])
    assert len(check(home, answers, folder=tmp_path)) == len(COMMANDS)


def test_the_row_is_named_that_holds_the_bytes_of_another(honest: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    write(home, ROWS["bytes of the entry before"])
    done = call_here(["verify"], home=home)
    assert done.returncode == 1
    assert "entry 4" in done.stdout + done.stderr
