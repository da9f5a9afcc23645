"""The live view reads earlier entries again: a change of one turns its pages red."""

import time
from pathlib import Path

import pytest
from live_pages import ServedHome, served_home
from stores import tables_of
from synthetic import synthetic_audit, synthetic_run

from proctor.home import Home
from proctor.live import tables


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_STATE", str(tmp_path / "state"))
    with Home(tmp_path / "home").open_log() as log:
        synthetic_audit(log, synthetic_run(log, epochs=2))
    return tmp_path / "home"


def page(served: ServedHome, path: str = "") -> str:
    answered = served.client.get(f"{served.base}/{path}")
    assert answered.status_code == 200
    return answered.text


def change(home: Path, index: int) -> bytes:
    """Change an entry past SQLite's own checks, and return what it was."""
    with tables_of(home / "ledger") as c:
        (entry,) = c.execute("SELECT entry FROM entries WHERE idx = ?", (index,)).fetchone()
        c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (entry[:-1] + b"\x01", index))
    return bytes(entry)


def restore(home: Path, index: int, entry: bytes) -> None:
    with tables_of(home / "ledger") as c:
        c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (entry, index))


@pytest.mark.parametrize("step", [8_192, 3])
def test_pages_are_red_until_a_changed_entry_is_restored(
    home: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_STEP", step)
    with served_home(home) as served:
        last = (served.tables.standing.position or 0) - 1
        assert last > 20
        assert "earlier entries are being read again" in page(served)
        served.tables.reread()
        for path in ("", "decisions", "sql"):
            assert f"entries 0 to {last} re-read at " in page(served, path)
        entry = change(home, 4)
        served.tables.look()
        assert "Not verified" not in page(served)  # what is new holds
        served.tables.reread()
        for _ in range(2):
            for path in ("", "decisions", "ledger"):
                assert "Not verified" in page(served, path)
            served.tables.look()  # does not make it green
        assert "4" in (served.tables.standing.error or "")
        restore(home, 4, entry)
        served.tables.reread()
        assert "Not verified" not in page(served)


def test_running_view_finds_a_changed_entry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BETWEEN", 0.05)
    with served_home(home) as served:
        followed = tables.Tables(Home(home))
        followed.start()
        try:
            ends = time.monotonic() + 60
            while followed.standing.reread is None and time.monotonic() < ends:
                time.sleep(0.05)
            assert followed.standing.reread is not None
            assert followed.standing.error is None
            change(home, 4)
            while followed.standing.error is None and time.monotonic() < ends:
                time.sleep(0.05)
            assert followed.standing.error is not None
        finally:
            followed.stop()
        assert served.tables.standing.error is None
