"""Whoever opens the file with any tool is told what each table, view and column means."""

from pathlib import Path

import duckdb
import pytest

from projections import projector
from projections.cache import catch_up
from projections.mapping import SCHEMA

pytest_plugins = ("projection_fixtures",)
BARE = """
    SELECT schema_name || '.' || table_name FROM duckdb_tables()
    WHERE NOT internal AND comment IS NULL
    UNION ALL
    SELECT schema_name || '.' || view_name FROM duckdb_views()
    WHERE NOT internal AND comment IS NULL
    UNION ALL
    SELECT schema_name || '.' || table_name || '.' || column_name FROM duckdb_columns()
    WHERE NOT internal AND comment IS NULL"""


def test_everything_in_the_file_has_a_comment(database: Path, written: Path) -> None:
    catch_up(database, written)
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute(BARE).fetchall() == []


def test_comment_makes_no_reader_build_tables_again_and_a_column_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, text = projector.schema_hash(), SCHEMA.read_text(encoding="utf-8")
    other = tmp_path / "schema.sql"
    monkeypatch.setattr(projector, "SCHEMA", other)
    other.write_text(text.replace("'Ledger index'", "'Where it is'").replace("-- T", "-- t"))
    assert projector.schema_hash() == before
    other.write_text(text.replace("time TIMESTAMP", "time DATE"))
    assert projector.schema_hash() != before


def test_only_another_meaning_of_the_code_makes_readers_build_tables_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, other = projector.schema_hash(), tmp_path / "rows.py"
    code = {path.name: path for path in projector._CODE}
    text = code["rows.py"].read_text(encoding="utf-8")
    monkeypatch.setattr(projector, "_CODE", [*(code | {"rows.py": other}).values()])
    body = "    code = body"
    assert text.count(body) == 1
    other.write_text(text.replace(body, f'    """Another docstring."""\n\n    # why\n{body}'))
    assert projector.schema_hash() == before
    other.write_text(text.replace(body, "    code = {} or body"))
    assert projector.schema_hash() != before
