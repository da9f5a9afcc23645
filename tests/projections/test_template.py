"""Copies of an empty database: the same definitions, and a file that goes with its process."""

import subprocess
import sys
from pathlib import Path

import duckdb

from projections.projector import create_schema
from projections.template import copied, template

DEFINITIONS = (
    "SELECT schema_name, table_name, comment, sql FROM duckdb_tables() ORDER BY ALL",
    "SELECT schema_name, view_name, comment, length(sql) "  # EXCLUDE lists names in any order
    "FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT schema_name, table_name, column_name, comment, data_type, is_nullable, column_default "
    "FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
    "SELECT schema_name, table_name, constraint_text FROM duckdb_constraints() ORDER BY ALL",
    "FROM log.position",
)
_CODE = """
import os, sys
from projections.projector import create_schema
from projections.template import template
print(template(create_schema), flush=True)
if os.fork() == 0:
    sys.exit()
os.wait()
print(template(create_schema).exists())
"""


def definitions(connection: duckdb.DuckDBPyConnection) -> list[list[tuple[object, ...]]]:
    return [connection.execute(question).fetchall() for question in DEFINITIONS]


def test_copy_holds_what_is_defined() -> None:
    with duckdb.connect() as defined, duckdb.connect() as copy:
        create_schema(defined)
        copied(copy, create_schema)
        expected = definitions(defined)
        assert len(expected[0]) > 50
        assert definitions(copy) == expected


def test_template_goes_with_the_process_that_made_it_and_no_earlier() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, timeout=120
    )
    path, there = done.stdout.split()
    assert there == "True"
    assert not Path(path).parent.exists()
    assert template(create_schema).parent.stat().st_mode & 0o077 == 0
