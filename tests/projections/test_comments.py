"""Whoever opens the file with any tool is told what each table, view and column means."""

from collections.abc import Callable

import duckdb

pytest_plugins = ("projection_fixtures",)


def test_everything_has_a_comment(empty: Callable[[], duckdb.DuckDBPyConnection]) -> None:
    bare = """
        SELECT schema_name || '.' || table_name FROM duckdb_tables()
        WHERE NOT internal AND comment IS NULL
        UNION ALL
        SELECT schema_name || '.' || view_name FROM duckdb_views()
        WHERE NOT internal AND comment IS NULL
        UNION ALL
        SELECT schema_name || '.' || table_name || '.' || column_name FROM duckdb_columns()
        WHERE NOT internal AND comment IS NULL"""
    with empty() as connection:
        assert connection.execute(bare).fetchall() == []
