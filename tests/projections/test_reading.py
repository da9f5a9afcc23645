"""What readers are given: answers as of an index, Arrow tables, sessions, copies of the file."""

import io
import math
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest

from projections.bounds import Bounds
from projections.cache import catch_up
from projections.errors import BusyError, ProjectionError, QueryError
from projections.projector import settled
from projections.reading import Session, arrow_table, query, statements

pytest_plugins = ("projection_fixtures",)
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "query.md"
LAST = "SELECT COUNT(*), MAX(idx) FROM events"


@pytest.fixture(scope="module")
def filled(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("filled") / "projection.duckdb"
    catch_up(database, written)
    return database


def test_answer_is_as_of_the_index_when_one_is_given(filled: Path) -> None:
    assert query(filled, LAST, as_of=6).rows == [(7, 6)]
    assert arrow_table(filled, LAST, as_of=0).to_pylist() == [{"count_star()": 1, "max(idx)": 0}]
    ended = "SELECT COUNT(*) FROM run_summary WHERE state <> 'running'"
    assert query(filled, ended, as_of=6).rows == [(0,)]
    assert query(filled, ended).rows > [(5,)]


def test_session_keeps_variables_and_nothing_else(filled: Path) -> None:
    session = Session(filled, as_of=9)
    assert session.query(LAST).rows == [(10, 9)]
    assert session.query("SET VARIABLE as_of = (SELECT MIN(idx) + 3 FROM events)").columns == ()
    assert session.query(LAST).rows == [(4, 3)]
    with session.arrow_batches("SET VARIABLE \"a \"\"b\" = [{'x': 'nan'::DOUBLE}]") as batches:
        assert batches.read_all().num_columns == 0
    [[[value]]] = session.query("SELECT getvariable('a \"b')").rows
    assert math.isnan(value["x"])
    session.query("RESET VARIABLE as_of")
    assert session.query(LAST).rows == query(filled, LAST).rows


def test_file_is_free_between_the_questions_of_a_session(filled: Path) -> None:
    session = Session(filled)
    session.query(LAST)
    code = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('BEGIN')"
    subprocess.run([sys.executable, "-c", code, filled], check=True)
    session.query(LAST)


def test_file_is_opened_once_while_a_session_holds_it(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, connect = Session(filled, as_of=9), Mock(wraps=duckdb.connect)
    monkeypatch.setattr(duckdb, "connect", connect)
    with session.held():
        assert session.query(LAST).rows == [(10, 9)]
        with pytest.raises(QueryError):
            session.query("SELECT nothing")
        with session.arrow_batches(LAST) as batches:
            assert batches.read_all().num_rows == 1
        session.query("RESET VARIABLE as_of")
        assert session.query(LAST).rows > [(10, 9)]
    assert connect.call_count == 1
    with duckdb.connect(str(filled)):  # to write: it is free again
        pass


def test_settled_views_answer_as_before_and_are_views_again(filled: Path) -> None:
    views = ("audit_strengths", "run_standing", "curated_runs", "curated_decisions", "audits")
    kinds = f"SELECT DISTINCT table_type FROM information_schema.tables WHERE table_name IN {views}"
    with duckdb.connect(str(filled)) as connection:

        def ask(sql: str) -> str:
            return repr(connection.execute(sql).fetchall())

        asked = [f"FROM {view} ORDER BY ALL" for view in (*views, "run_summary", "curated_answers")]
        before = [*map(ask, asked)]
        with settled(connection, *views):
            assert [*map(ask, asked)] == before
            assert ask(kinds) == "[('BASE TABLE',)]"
        assert [*map(ask, asked)] == before
        assert ask(kinds) == "[('VIEW',)]"


def test_pandas_and_polars_take_the_arrow_table(filled: Path) -> None:
    import pandas  # noqa: PLC0415 - every process collects all tests, and one runs these
    import polars  # noqa: PLC0415 - likewise

    sql = "SELECT run_id, epoch, train_loss, gradients_finite FROM epochs ORDER BY idx"
    rows = query(filled, sql).rows
    assert any(math.isnan(row[2]) for row in rows)
    table = arrow_table(filled, sql)
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("run_id").epoch.max().to_dict() == dict(
        query(filled, "SELECT run_id, MAX(epoch) FROM epochs GROUP BY ALL").rows
    )
    other = polars.from_arrow(table)
    assert isinstance(other, polars.DataFrame)
    assert repr(other.rows()) == repr(rows)
    nested = "SELECT number, cites FROM decision_outcomes ORDER BY run_id, number"
    assert [tuple(row.values()) for row in arrow_table(filled, nested).to_pylist()] == query(
        filled, nested
    ).rows
    assert arrow_table(filled, "SELECT ? + 1 AS n", [2]).to_pydict() == {"n": [3]}


def test_copy_is_a_plain_file_for_other_tools(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    with copy.open("wb") as file:
        Session(filled).snapshot(file)
    # As written by DuckDB 1.2, which the command lines of all later versions read.
    assert int.from_bytes(copy.read_bytes()[12:20], "little") == 65
    with closing(duckdb.connect(str(copy))) as connection:  # no setting of ours
        assert connection.execute(LAST).fetchall() == query(filled, LAST).rows
        connection.execute("SET VARIABLE as_of = 4")
        assert connection.execute(LAST).fetchall() == [(5, 4)]
        summary = "SELECT * FROM run_summary ORDER BY ALL"
        assert connection.execute(summary).fetchall() == query(filled, summary, as_of=4).rows


def test_copy_is_not_made_while_changes_wait_in_the_log(filled: Path, tmp_path: Path) -> None:
    database = tmp_path / "killed.duckdb"
    database.write_bytes(filled.read_bytes())
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1])\n"
        "c.execute('CREATE TABLE log.more AS SELECT 1'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, database], check=False)
    with pytest.raises(BusyError):
        Session(database, wait=0.2).snapshot(io.BytesIO())


@pytest.mark.parametrize("bounds", [None, Bounds(rows=9, seconds=5.0, memory=100)])
@pytest.mark.parametrize(
    "value",
    [
        "'infinity'::DATE",
        "'-infinity'::TIMESTAMP",
        "'infinity'::TIMESTAMP_NS",
        "[NULL, 'infinity'::DATE]",
        "{'at': '-infinity'::TIMESTAMP}",
    ],
)
def test_infinite_date_is_refused_where_it_would_be_shown_as_another(
    filled: Path, value: str, bounds: Bounds | None
) -> None:
    session = Session(filled, bounds=bounds)
    with pytest.raises(QueryError, match=r"'d' has a date that is infinite.*VARCHAR"):
        session.query(f"SELECT DATE '2026-11-23' AS other, {value} AS d")
    [(text,)] = session.query(f"SELECT ({value})::VARCHAR").rows
    assert "infinity" in text
    assert session.query("SELECT DATE '2026-11-23', DATE '9999-12-30', NULL::DATE").rows


def test_text_is_cut_into_its_statements() -> None:
    assert len(statements("SELECT ';'; -- one;\nFROM x;; SET VARIABLE a = 1")) == 3
    assert statements(" ") == []
    with pytest.raises(QueryError, match="SELEKT"):
        statements("SELECT 1; SELEKT")


# What changes nothing in the file, and reaches no other, but is no question either.
IDLE = [
    "ANALYZE",
    "ATTACH ':memory:' AS other",
    "BEGIN",
    "CALL enable_logging('QueryLog', storage_path='{target}')",
    "CHECKPOINT",
    "CREATE TEMP TABLE mine AS SELECT 1",
    "EXECUTE mine",
    "LOAD json",
    "PRAGMA add_parquet_key('key', '0123456789012345')",
    "PRAGMA enable_verification",
    "PREPARE mine AS SELECT 1",
    "VACUUM",
]
# Ways round: through what only looks like a question.
DISGUISED = [
    "EXPLAIN ANALYZE COPY events TO '{target}'",
    "EXPLAIN ANALYZE DELETE FROM log.events",
    "FROM arrow_scan()",
    "FROM duckdb_secrets()",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{secret}'')'))",
    "FROM parquet_metadata('{secret}')",
    "FROM python_map_function((SELECT 1))",
    "FROM query('FROM read_text(''{secret}'')')",
    "FROM query_table('{secret}')",
    "FROM read_duckdb('{other}')",
    "FROM secret",
    "FROM sniff_csv('{secret}')",
    "PIVOT (FROM read_csv('{secret}')) ON word USING COUNT(*)",
    "SELECT 1; COPY events TO '{target}'",
    "SET SESSION profiling_output = '{target}'",
    "SET VARIABLE stolen = (SELECT content FROM read_text('{secret}'))",
    "SET file_search_path = '/'",
    "SET python_enable_replacements = true",
    "WITH gone AS (DELETE FROM log.events RETURNING idx) FROM gone",
]


@pytest.mark.parametrize("sql", [*IDLE, *DISGUISED])
@pytest.mark.sampled(3)
def test_arrow_and_session_are_as_confined_as_a_question_is_rejected(
    filled: Path, tmp_path: Path, sql: str
) -> None:
    import pandas  # noqa: PLC0415 - as above

    secret = pandas.DataFrame({"word": ["swordfish"]})  # which SQL could see by its name
    path, other = tmp_path / "secret.csv", tmp_path / "other.duckdb"
    secret.to_csv(path)
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE word AS SELECT 'swordfish' AS word")
    before, content = sorted(tmp_path.iterdir()), filled.read_bytes()
    asked = sql.format(secret=path, other=other, target=tmp_path / "target")
    session = Session(filled)
    with pytest.raises(QueryError):
        session.query(asked)
    with pytest.raises(QueryError):
        arrow_table(filled, asked)
    assert session.query("SELECT COUNT(*) FROM duckdb_variables()").rows == [(0,)]
    assert sorted(tmp_path.iterdir()) == before
    assert filled.read_bytes() == content


def test_honest_questions_of_the_same_forms_are_answered(filled: Path) -> None:
    for sql in (
        "DESCRIBE epochs",
        "EXPLAIN ANALYZE SELECT 1",
        "FROM query('SELECT 1')",
        "PIVOT (SELECT name FROM events) ON name USING COUNT(*)",
        "SHOW TABLES",
        "SUMMARIZE epochs",
        "WITH x AS (SELECT 1) FROM x",
    ):
        assert arrow_table(filled, sql).num_rows == len(query(filled, sql).rows) > 0


def test_clear_error_when_no_python_value_exists_for_an_answer(filled: Path) -> None:
    with pytest.raises(QueryError):
        query(filled, "SELECT * FROM test_all_types()")


def test_arrow_table_of_no_projection_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ProjectionError, match="projection not found"):
        arrow_table(tmp_path / "nowhere", "SELECT 1")


def test_lines_of_the_guide_give_a_frame(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("runs.duckdb").write_bytes(filled.read_bytes())
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["frame"]) == len(query(filled, "FROM epochs", as_of=120).rows) > 0


@pytest.mark.parametrize("asked", ["now()", "[now()]", "'12:00:00+01'::TIMETZ"])
def test_time_with_a_time_zone_is_to_be_cast(filled: Path, asked: str) -> None:
    bounds = Bounds(rows=10, seconds=60, memory=500)
    for session in (Session(filled), Session(filled, bounds=bounds)):
        with pytest.raises(
            QueryError, match=r"TIME ZONE.*; cast it, as in now\(\)::TIMESTAMP"
        ) as e:
            session.query(f"SELECT {asked}")
        assert "Traceback" not in str(e.value)
        assert session.query("SELECT now()::TIMESTAMP IS NOT NULL").rows == [(True,)]
