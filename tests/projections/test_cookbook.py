"""The cookbook's questions, asked of a small ledger that has some of everything."""

import shutil
import time
from pathlib import Path

import duckdb
import pytest
from full_ledger import add_what_can_go_wrong
from studies.speed.cookbook import fill

from projections.cache import catch_up
from projections.cookbook import Recipe, recipes
from projections.reading import query

pytest_plugins = ("projection_fixtures",)


@pytest.fixture(scope="module")
def asked(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A projection of the ledger that has some of everything, and of what else can go wrong."""
    folder = tmp_path_factory.mktemp("cookbook")
    directory = Path(shutil.copytree(written, folder / "ledger"))
    add_what_can_go_wrong(directory)
    catch_up(folder / "p.duckdb", directory)
    return folder / "p.duckdb"


def test_page_has_the_questions() -> None:
    assert len({recipe.title for recipe in recipes()}) == len(recipes()) >= 20


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_question_of_the_cookbook_gives_its_columns_and_rows(asked: Path, recipe: Recipe) -> None:
    answer = query(asked, recipe.sql)
    assert answer.columns == recipe.columns
    assert answer.rows != []


def test_taint_that_came_behind_an_export_is_told(asked: Path) -> None:
    sql = {recipe.title: recipe.sql for recipe in recipes()}
    found = query(asked, sql["Was it tainted already when I exported it?"]).rows
    (export,) = {row[0] for row in found}
    sealed_at, as_of = query(
        asked, "SELECT idx, as_of FROM exports WHERE export_id = ?", [export]
    ).rows[0]
    tainted = sql["Which runs are tainted, since when, and by what?"]
    assert {row[2] for row in found} == {row[0] for row in query(asked, tainted).rows}
    assert all(row[3] > as_of for row in found)
    assert query(asked, tainted, as_of=sealed_at).rows == []


def test_rows_that_sql_made_up_are_those_of_runs(tmp_path: Path) -> None:
    assert 4_000 < fill(tmp_path / "x.duckdb", rows=5_000) < 7_000
    asked = "SELECT COUNT(*), SUM(epochs), COUNT(verdict) FROM run_summary"
    assert query(tmp_path / "x.duckdb", asked).rows == [(5, 5 * 40, 5)]


@pytest.mark.slow
def test_early_index_costs_no_more_when_nine_times_as_much_came_behind_it(tmp_path: Path) -> None:
    then = 40_000  # 120 entries a run
    took, stood = [], []
    for rows in (400_000, 4_000_000):
        file = tmp_path / f"{rows}.duckdb"
        fill(file, rows=rows)
        took.append(scan_seconds(file, as_of=then))
        stood.append(query(file, "FROM run_summary ORDER BY ALL", as_of=then))
    assert stood[0] == stood[1]
    assert took[1] < 3 * took[0]  # or it would be nine times as much


def scan_seconds(database: Path, *, as_of: int) -> float:
    """Return the processor time that it takes to look through the four largest tables."""
    total = 0.0
    with duckdb.connect(str(database), read_only=True) as connection:
        connection.execute(f"SET VARIABLE as_of = {as_of}")
        for table in ("activation_metrics", "events", "layer_metrics", "rule_evaluations"):
            tries = []
            for _ in range(7):
                start = time.process_time()
                connection.execute(f"SELECT COUNT(*), MAX(idx) FROM {table}").fetchall()
                tries.append(time.process_time() - start)
            total += min(tries)
    return total
