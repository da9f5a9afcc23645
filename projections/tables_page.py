"""The reference page of tables and views, written from the comments in the schema.

`python -m projections.tables_page > docs/reference/tables.md` writes it anew.
I/O: none but an in-memory database and standard output.
"""

import sys
from collections.abc import Iterator

import duckdb

from projections.projector import create_schema

__all__ = ["tables_page"]

_HEAD = """# Tables and views

Written by `python -m projections.tables_page` from the comments in `projections/schema.sql` and
`projections/views.sql`; change those. How to ask: [query](../how-to/query.md).

Epochs and layer places count from 0, decisions and steps from 1; runs, campaigns and audits are
named by the UUID of their stream. Times are UTC. An `idx` is the ledger index of the event that a
row comes from. A `DOUBLE` may be NaN or infinite; inside JSON these are the texts `"NaN"`,
`"Infinity"` and `"-Infinity"`, and bytes are hexadecimal. A column of a view for which no meaning
is given has the one of the table, or of the configuration, that it is taken from.
"""
_COLUMNS = """
    SELECT column_name, data_type, is_nullable, COALESCE(comment, '')
    FROM duckdb_columns() WHERE table_name = ? AND NOT internal ORDER BY column_index"""


def tables_page() -> str:
    """Return the page as Markdown."""
    with duckdb.connect() as connection:
        create_schema(connection)
        return "\n".join((_HEAD, *_part(connection, "table"), *_part(connection, "view")))


def _part(connection: duckdb.DuckDBPyConnection, kind: str) -> Iterator[str]:
    yield f"## {kind.title()}s\n"
    names = connection.execute(
        f"SELECT {kind}_name, comment FROM duckdb_{kind}s() WHERE NOT internal ORDER BY ALL"  # noqa: S608 - two fixed words
    ).fetchall()
    for name, comment in names:
        yield f"### {name}\n{comment}.\n\n| column | type | meaning |\n|---|---|---|"
        for column, data_type, nullable, meaning in connection.execute(_COLUMNS, [name]).fetchall():
            null = " NULL" if nullable and kind == "table" else ""
            yield f"| {column} | {data_type}{null} | {meaning} |"
        yield ""


if __name__ == "__main__":
    sys.stdout.write(tables_page())
