"""The reference page of tables and views, from the comments in the schema.

I/O: an in-memory database.
"""

from collections.abc import Iterator

import duckdb

from projections.projector import create_schema

__all__ = ["tables_page"]

_HEAD = """# Tables and views

Written by `python docs/studies pages` from the comments in `projections/*.sql`. Edit the
comments there. How to query: [query](../how-to/query.md).

The tables are in the schema `log`. Query them by their bare names: each bare name is a view that
shows the state as of one ledger entry. Set that entry's index with `SET VARIABLE as_of = 120`;
without it you see everything. All other views read these views, so `as_of` applies to them too.

Epochs and layer positions count from 0, decisions and steps from 1. Runs, campaigns and audits are
named by the UUID of their stream. Times are UTC. An `idx` is the ledger index of the event that a
row comes from. A `DOUBLE` can be NaN or infinite; inside JSON these values are the texts `"NaN"`,
`"Infinity"` and `"-Infinity"`, and bytes are hexadecimal. If a column of a view has no description
here, the description in its source table or in the configuration applies.
"""
_COLUMNS = """
    SELECT column_name, data_type, is_nullable, COALESCE(comment, '')
    FROM duckdb_columns() WHERE table_name = ? AND schema_name = ? ORDER BY column_index"""
_NAMES = {
    "Tables": """
        SELECT table_name, comment, schema_name FROM duckdb_tables()
        WHERE schema_name = 'log' ORDER BY ALL""",
    "Views": """
        SELECT view_name, comment, schema_name FROM duckdb_views()
        ANTI JOIN duckdb_tables() ON table_name = view_name
        WHERE schema_name = 'main' AND NOT internal ORDER BY ALL""",
}


def tables_page() -> str:
    """Return the page as Markdown."""
    with duckdb.connect() as connection:
        create_schema(connection, comments=True)
        return "\n".join((_HEAD, *(line for part in _NAMES for line in _part(connection, part))))


def _part(connection: duckdb.DuckDBPyConnection, title: str) -> Iterator[str]:
    yield f"## {title}\n"
    for name, comment, schema in connection.execute(_NAMES[title]).fetchall():
        yield f"### {name}\n{comment}.\n\n| column | type | meaning |\n|---|---|---|"
        columns = connection.execute(_COLUMNS, [name, schema]).fetchall()
        for column, data_type, nullable, meaning in columns:
            null = " NULL" if nullable and title == "Tables" else ""
            yield f"| {column} | {data_type}{null} | {meaning} |"
        yield ""
