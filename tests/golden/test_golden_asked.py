"""A run whose model was asked in the words of version 1, and whose answers were read by it."""

import tarfile
from pathlib import Path

import pytest
from frontdoor import answer, call, call_here

HERE = Path(__file__).parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a copy; the private key was left out of it."""
    with tarfile.open(HERE / "asked_1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "asked_1"


def test_decisions_follow_from_answers_as_they_were_read_then(home: Path) -> None:
    """Fences, streams, parts and answers without a type were unusable; a refusal taught nothing."""
    again = call(["replay", "--execute", "--json"], home=home)
    told = answer(again)
    assert (again.returncode, told["policy"], told["same"]) == (0, [], True), again.stderr
    assert (told["calls"], told["reworded"]) == (10, True)


def test_old_calls_are_shown_and_queried(home: Path) -> None:
    summary = answer(call_here(["show", "--transcript", "--json"], home=home))["summary"]
    assert [summary[key] for key in ("usable", "tokens", "cached_tokens")] == [3, 744, None]
    assert answer(call_here(["show", "--json"], home=home))["refused"] == []
    sql = "SELECT outcome, COUNT(*) AS n, SUM(cached_tokens) AS cached FROM calls "
    sql += "GROUP BY ALL ORDER BY 1"
    rows = answer(call_here(["sql", "--json", sql], home=home))
    assert [list(row.values()) for row in rows] == [
        ["rejected", 1, None],
        ["unusable", 6, None],
        ["usable", 3, None],
    ]
