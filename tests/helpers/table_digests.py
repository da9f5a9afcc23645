"""What tables hold, as one SHA-256 of each."""

import hashlib

import duckdb

from projections.mapping import TABLES


def table_digests(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return each table's SHA-256 over its columns and its rows in sorted order."""
    return {table: _digest(connection, table) for table in sorted(TABLES)}


def _digest(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    cursor = connection.execute(f'SELECT * FROM log."{table}" ORDER BY ALL')
    hashed = hashlib.sha256(repr(cursor.description).encode())
    while rows := cursor.fetchmany(10_000):
        for row in rows:
            hashed.update(repr(row).encode() + b"\n")
    return hashed.hexdigest()
