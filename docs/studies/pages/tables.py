"""The reference page of tables and views, from the comments in the schema.

I/O: an in-memory database.
"""

import re

import duckdb

from projections.projector import create_schema

__all__ = ["tables_page"]

_HEAD = """# Tables and views

Written by `python docs/studies pages` from the comments in `projections/*.sql`. How to query:
[query](../how-to/query.md). The meaning of each column of a table or view:

```sh
proctor sql "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'epochs'"
```

The tables are in the schema `log`. Query them by their bare names: each bare name is a view that
shows the state as of one ledger entry. Set that entry's index with `SET VARIABLE as_of = 120`;
without it you see everything. All other views read these views, so `as_of` applies to them too.

Epochs and layer positions count from 0, decisions and steps from 1. Runs, campaigns and audits are
named by the UUID of their stream. Times are UTC. An `idx` is the ledger index of the event that a
row comes from. A `DOUBLE` can be NaN or infinite; inside JSON these values are the texts `"NaN"`,
`"Infinity"` and `"-Infinity"`, and bytes are hexadecimal. A column of a view without a comment
means what the column of that name means in its source table or in the configuration.
"""
_LISTED = """
    SELECT table_name, comment, list(column_name ORDER BY column_index) FROM (
        SELECT table_name, comment, schema_name FROM duckdb_tables() WHERE schema_name = 'log'
    ) JOIN (
        SELECT table_name, schema_name, column_name, column_index FROM duckdb_columns()
    ) USING (table_name, schema_name) GROUP BY ALL ORDER BY ALL"""
_VIEWS = """
    SELECT view_name, comment, list(column_name ORDER BY column_index) FROM (
        SELECT view_name, comment FROM duckdb_views() ANTI JOIN duckdb_tables()
        ON table_name = view_name WHERE schema_name = 'main' AND NOT internal
    ) JOIN (
        SELECT table_name AS view_name, column_name, column_index FROM duckdb_columns()
        WHERE schema_name = 'main'
    ) USING (view_name) GROUP BY ALL ORDER BY ALL"""
_OF_EVENT = re.compile(r" \(event ([\w.]+)\)$")
_PARTS = {"Tables": _LISTED, "Views": _VIEWS}


def tables_page() -> str:
    """Return the page as Markdown."""
    lines = [_HEAD]
    with duckdb.connect() as connection:
        create_schema(connection)
        for title, query in _PARTS.items():
            lines.append(f"## {title}\n")
            for name, comment, columns in connection.execute(query).fetchall():
                lines.append(f"- **{name}**: {_told(comment)}. `{', '.join(columns)}`")
            lines.append("")
    return "\n".join(lines)


def _told(comment: str) -> str:
    """Return what a table is; of one that an event is a row of, the event."""
    event = _OF_EVENT.search(comment)
    if event is None:
        return comment
    return f"[{event[1]}](events.md#{event[1].replace('.', '')})"
