"""The DuckDB file of a home, changed by somebody else: no command answers from it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from frontdoor import answer, call
from synthetic import synthetic_audit, synthetic_run

from ledger.errors import ConsistencyError
from ledger.verification.reader import open_verified
from proctor.home import Home
from projections.cache import catch_up
from projections.errors import AheadError, ProjectionError
from projections.reading import Session, query, snapshot
from projections.seals import Seals

SCORES = "SELECT accuracy_score, process_score FROM audit_scores"
FORGED = "UPDATE log.audit_scores SET accuracy_score = 9, process_score = 9"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
    return home


def updated(database: Path, folder: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(FORGED)


def updated_with_its_times(database: Path, folder: Path) -> None:
    found = database.stat()
    updated(database, folder)
    os.utime(database, ns=(found.st_atime_ns, found.st_mtime_ns))


def in_the_log_beside(database: Path, folder: Path) -> None:
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1])\n"
        f"c.execute({FORGED!r}); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, database], check=False)
    assert database.with_name(f"{database.name}.wal").exists()


def replaced(database: Path, folder: Path) -> None:
    other = folder / "other.duckdb"
    shutil.copyfile(database, other)
    updated(other, folder)
    other.replace(database)


def linked(database: Path, folder: Path) -> None:
    replaced(database, folder)
    database.replace(folder / "elsewhere.duckdb")
    database.symlink_to(folder / "elsewhere.duckdb")


def byte_flipped(database: Path, folder: Path) -> None:
    content = bytearray(database.read_bytes())
    content[-1] ^= 1
    database.write_bytes(content)


def earlier(database: Path, folder: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"{FORGED}; UPDATE log.position SET next_idx = next_idx - 1")


WAYS = [byte_flipped, earlier, in_the_log_beside, linked, replaced, updated, updated_with_its_times]


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("forge", WAYS)
@pytest.mark.sampled(3)
def test_forged_table_is_rejected(
    home: Path, tmp_path: Path, forge: Callable[[Path, Path], None], remembered: bool
) -> None:
    state = tmp_path / "state" if remembered else None
    honest = answer(call(["sql", SCORES, "--json"], home=home, state=state))
    forge(home / "projections.duckdb", tmp_path)
    assert answer(call(["sql", SCORES, "--json"], home=home, state=state)) == honest
    forge(home / "projections.duckdb", tmp_path)
    copy = tmp_path / "copy.duckdb"
    assert call(["sql", "--snapshot", copy], home=home, state=state).returncode == 0
    with duckdb.connect(str(copy)) as connection:
        [scores] = connection.execute(SCORES).fetchall()
    assert list(scores) == list(honest[0].values())
    forge(home / "projections.duckdb", tmp_path)
    assert call(["follow", "--once"], home=home, state=state).returncode == 0
    assert answer(call(["sql", SCORES, "--json"], home=home, state=state)) == honest


def test_file_is_kept_when_nobody_has_changed_it(home: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    asked = ["follow", "--once", "--json"]
    first = answer(call(asked, home=home, state=state))
    assert (first["applied"], first["note"]) == (first["position"], None)
    before = (home / "projections.duckdb").stat().st_ino
    again = answer(call(asked, home=home, state=state))
    assert (again["applied"], again["note"]) == (0, None)
    assert (home / "projections.duckdb").stat().st_ino == before
    updated(home / "projections.duckdb", tmp_path)
    done = answer(call(asked, home=home, state=state))
    assert done["note"] == "rebuilt: it was changed after it had been written"


def test_session_asks_what_matches_its_seal(home: Path, tmp_path: Path) -> None:
    database, seals = home / "projections.duckdb", Seals(tmp_path / "state")
    catch_up(database, home / "ledger", seals=seals)
    session = Session(database, seals=seals)
    honest = session.query(SCORES)
    found = database.stat()
    byte_flipped(database, tmp_path)
    os.utime(database, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert session.query(SCORES) == honest  # from its copy
    with pytest.raises(ProjectionError, match="changed after it had been written"):
        Session(database, seals=seals).query(SCORES)
    assert list((tmp_path / "state").glob(".tables-*")) != []
    del session
    assert list((tmp_path / "state").glob(".tables-*")) == []


def test_session_answers_when_others_rebuild_or_remove_the_file(home: Path, tmp_path: Path) -> None:
    database, ours, theirs = home / "projections.duckdb", Seals(None), Seals(None)
    done = catch_up(database, home / "ledger", seals=ours)
    session = Session(database, seals=ours, copy=done.copy)
    honest = session.query(SCORES)
    catch_up(database, home / "ledger", seals=theirs)  # who knows nothing of our seal
    assert session.query(SCORES) == honest
    assert Session(database, seals=ours, copy=done.copy).query(SCORES) == honest
    database.unlink()
    assert session.query(SCORES) == honest
    with (tmp_path / "copy.duckdb").open("xb") as file:
        snapshot(database, file, copy=done.copy)
    assert query(tmp_path / "copy.duckdb", SCORES) == honest


def test_seal_that_somebody_else_wrote_is_rejected(home: Path, tmp_path: Path) -> None:
    database, state = home / "projections.duckdb", tmp_path / "state"
    catch_up(database, home / "ledger", seals=Seals(state))
    (seal,) = state.glob("*.tables")
    old = Seals(state).recall(database)
    assert old is not None
    seal.write_text(seal.read_text().replace(old.sha256, "0" * 64))
    assert Seals(state).recall(database) is None
    done = catch_up(database, home / "ledger", seals=Seals(state))
    assert done.note == "rebuilt: it was not written by this user"


@pytest.mark.parametrize("sealed", [True, False])
def test_file_that_is_too_long_is_not_read(home: Path, tmp_path: Path, sealed: bool) -> None:
    """A sparse file costs nothing to make; its copy would fill the disk."""
    database, seals = home / "projections.duckdb", Seals(tmp_path / "state")
    catch_up(database, home / "ledger", seals=seals)
    session = Session(database, seals=seals)
    honest = session.query(SCORES)
    if not sealed:
        for seal in (tmp_path / "state").glob("*.tables"):
            seal.unlink()
    os.truncate(database, 2**43)  # 8 TiB
    assert session.query(SCORES) == honest  # from its copy
    with pytest.raises(ProjectionError, match="changed after it had been written"):
        Session(database, seals=seals).query(SCORES)
    done = catch_up(database, home / "ledger", seals=seals)
    assert done.note is not None
    assert Session(database, seals=seals).query(SCORES) == honest


def test_entries_behind_the_verified_ones_are_not_shown(home: Path, tmp_path: Path) -> None:
    """What came between the verification and the tables is left to the next verification."""
    database, seals = home / "projections.duckdb", Seals(tmp_path / "state")
    with open_verified(home / "ledger") as ledger:
        state = ledger.state
    with Home(home).open_log() as log:
        synthetic_run(log)
    done = catch_up(database, home / "ledger", seals=seals, verified=state)
    assert done.position == state.size
    catch_up(database, home / "ledger", seals=seals)
    with pytest.raises(AheadError):
        catch_up(database, home / "ledger", seals=seals, verified=state)


def test_entries_that_are_changed_after_the_verification_are_rejected(
    home: Path, tmp_path: Path
) -> None:
    database, seals = home / "projections.duckdb", Seals(tmp_path / "state")
    with open_verified(home / "ledger") as ledger:
        state = ledger.state
    path = home / "ledger" / "ledger.sqlite"
    content = path.read_bytes()
    assert b"accuracy_score" in content
    path.write_bytes(content.replace(b"process_score", b"PROCESS_SCORE"))
    with pytest.raises(ConsistencyError, match="changed"):
        catch_up(database, home / "ledger", seals=seals, verified=state)
    path.write_bytes(content)
    assert catch_up(database, home / "ledger", seals=seals, verified=state).position == state.size
