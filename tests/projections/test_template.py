"""Copies of an empty database: the same definitions, and a file that goes with its process."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from projections import template as templates
from projections.projector import create_schema
from projections.template import copied, keep_in, template

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


def middle_zeroed(data: bytes) -> bytes:
    return data[:20_000] + bytes(100_000) + data[120_000:]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:200_000], lambda _: b"", middle_zeroed], ids=["cut", "empty", "0"]
)
def test_kept_file_is_made_again_when_it_is_damaged(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    made = template(create_schema)
    keep_in(tmp_path, version="1")
    try:
        kept = template(create_schema)
        assert (kept.parent, kept.read_bytes()) == (tmp_path, made.read_bytes())
        assert template(create_schema) == kept
        kept.write_bytes(damage(kept.read_bytes()))
        assert template(create_schema).read_bytes() == made.read_bytes()
        keep_in(tmp_path, version="2")
        other = template(create_schema)
        assert other != kept
        assert [*tmp_path.iterdir()] == [other]
    finally:
        keep_in(None, version="")


_KILLED = """
import os, signal, sys
from pathlib import Path
from projections.template import keep_in, template
if sys.argv[1:]:
    keep_in(Path(sys.argv[1]), version="1")
template(lambda connection: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_killed_process_has_left_goes_when_the_next_one_makes_a_file(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(templates, "_MADE", {})
    done = subprocess.run([sys.executable, "-c", _KILLED, *[str(tmp_path)] * kept], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert (left / "held.lock").exists()
    if kept:
        keep_in(tmp_path, version="1")
    try:
        template(nothing)
        assert not left.exists()
    finally:
        keep_in(None, version="")


def nothing(_: duckdb.DuckDBPyConnection) -> None:
    """Define nothing."""
