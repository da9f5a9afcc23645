"""The identity of the tables: kept for as long as no source is touched, and made again then."""

import os
from pathlib import Path

import pytest

from projections import identity as module
from projections.identity import identity
from projections.projector import schema_hash


def asked(folder: Path | None) -> str:
    """Return what a process answers that has not asked before."""
    module._FOUND.clear()
    return identity(folder)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let one file stand for all sources."""
    source = tmp_path / "source.py"
    source.write_text("1")
    monkeypatch.setattr(module, "_PACKAGES", (str(tmp_path),))
    monkeypatch.setattr(module, "_FOUND", [])
    return source


def test_identity_is_kept_until_a_source_is_touched(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    due = schema_hash()
    assert (asked(None), asked(kept)) == (due, due)
    monkeypatch.setattr("projections.projector.schema_hash", lambda: "00" * 32)
    assert asked(kept) == due  # nothing is hashed
    before = sources.stat()
    sources.write_text("2")
    os.utime(sources, ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same size and time
    assert asked(kept) == "00" * 32
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("content", ["", "no digest", "ab", "\xe4"])
def test_file_that_holds_no_identity_is_made_again(
    content: str, sources: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    due = asked(kept)
    [file] = kept.iterdir()
    file.write_text(content, encoding="latin-1")
    assert asked(kept) == due == file.read_text()
    assert sources.exists()
    assert asked(tmp_path / "missing") == due  # nowhere to keep it
