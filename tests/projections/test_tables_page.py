"""The schema explains itself, and its page says the same."""

from collections.abc import Callable

import duckdb

pytest_plugins = ("projection_fixtures",)


def test_every_table_column_and_view_is_explained(
    empty: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    connection = empty()
    unexplained = connection.execute("""
        SELECT table_name, NULL FROM duckdb_tables() WHERE comment IS NULL AND NOT internal
        UNION ALL SELECT view_name, NULL FROM duckdb_views() WHERE comment IS NULL AND NOT internal
        UNION ALL SELECT table_name, column_name FROM duckdb_columns()
        WHERE comment IS NULL AND NOT internal
        AND table_name IN (SELECT table_name FROM duckdb_tables())""").fetchall()
    assert unexplained == []
