"""Questions in SQL: what they may read, and everything that they may not touch."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from projections.cache import catch_up
from projections.errors import ProjectionError, QueryError
from projections.reading import QueryResult, arrow_table, query

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "query.md"
pytest_plugins = ("projection_fixtures",)


@pytest.fixture(scope="module")
def filled(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("filled") / "projection.duckdb"
    catch_up(database, written)
    return database


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text("word\nswordfish\n")
    return path


def test_question_is_answered_with_columns_and_rows(filled: Path) -> None:
    sql = "SELECT name, COUNT(*) AS n FROM events WHERE name = ? GROUP BY name"
    assert query(filled, sql, ["campaign.ended"]) == QueryResult(
        ("name", "n"), [("campaign.ended", 1)]
    )
    for sql in ("", "SELECT 1; SELECT 2"):
        with pytest.raises(ProjectionError, match="exactly one SQL statement"):
            query(filled, sql)


READING = [
    "FROM '{secret}'",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_json_auto('https://example.org/x.json')",
]
WRITING = [
    "COPY (SELECT 1) TO '{target}'",
    "COPY events TO '{target}' (FORMAT parquet)",
    "EXPORT DATABASE '{target}'",
    "ATTACH '{target}' AS other",
    "INSERT INTO events SELECT * FROM events",
    "UPDATE epochs SET train_loss = 0",
    "DROP TABLE events",
    "CREATE TABLE mine (x INTEGER)",
    "CHECKPOINT; DELETE FROM position",
]
ESCAPING = [
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{target}'",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "SET lock_configuration = false",
    "SET temp_directory = '{target}'",
    "PRAGMA enable_profiling; SET profiling_output = '{target}'",
    "SELECT getenv('HOME')",
    "CREATE SECRET s (TYPE http)",
]


@pytest.mark.parametrize("sql", [*READING, *WRITING, *ESCAPING])
def test_question_that_leaves_the_file_is_rejected(
    filled: Path, secret: Path, tmp_path: Path, sql: str
) -> None:
    folders = (tmp_path, filled.parent)
    before, content = [sorted(f.iterdir()) for f in folders], filled.read_bytes()
    with pytest.raises(QueryError):
        query(filled, sql.format(secret=secret, target=tmp_path / "target"))
    assert [sorted(f.iterdir()) for f in folders] == before
    assert filled.read_bytes() == content


def test_same_questions_would_be_answered_by_a_bare_connection(secret: Path) -> None:
    with duckdb.connect() as connection:
        assert connection.execute(f"FROM '{secret}'").fetchall() == [("swordfish",)]


def test_error_holds_the_words_of_duckdb(filled: Path) -> None:
    with pytest.raises(QueryError, match='column "loss" not found'):
        query(filled, "SELECT loss FROM epochs")


def test_clear_error_when_there_is_no_projection(database: Path) -> None:
    with pytest.raises(ProjectionError, match="projection not found"):
        query(database, "SELECT 1")
    assert not database.exists()


def test_clear_error_when_the_file_is_of_another_kind(secret: Path) -> None:
    with pytest.raises(ProjectionError, match="not a DuckDB file"):
        query(secret, "SELECT 1")


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL))
def test_question_of_the_guide_is_answered(filled: Path, sql: str) -> None:
    assert query(filled, sql.replace("'4f%'", "'%'")).rows != []


def test_clear_error_when_the_file_is_cut_short(filled: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(filled.read_bytes()[:20_000])
    with pytest.raises(QueryError, match="IO Error"):
        query(damaged, "SELECT 1")


ENDLESS = [
    "SELECT COUNT(*) FROM range(1000000000000) WHERE range % 7 = 3",
    "SELECT COUNT(*) FROM range(1000000000) a, range(100000) b WHERE (a.range * b.range) % 7 = 3",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n",
]


@pytest.mark.parametrize("ask", [query, arrow_table])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("sql", ENDLESS)
@pytest.mark.sampled(3)  # each question, each signal and each way of asking is among them
def test_signal_ends_a_question_of_the_main_thread(
    filled: Path, sql: str, number: int, ask: Callable[[Path, str], object]
) -> None:
    before = signal.signal(number, signal.default_int_handler)
    after = threading.Timer(0.5, os.kill, [os.getpid(), number])
    threads = set(threading.enumerate())
    started = time.monotonic()
    after.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(filled, sql)
    finally:
        after.join()
        signal.signal(number, before)
    assert time.monotonic() - started < 60  # it would take days
    assert set(threading.enumerate()) <= threads
    assert query(filled, "SELECT 1 AS one").rows == [(1,)]


def test_question_leaves_an_event_loop_its_descriptor(filled: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        assert query(filled, "SELECT 1 AS one").rows == [(1,)]
        assert signal.set_wakeup_fd(before) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
