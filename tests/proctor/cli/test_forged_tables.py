"""The DuckDB file of a home, changed by somebody else: no command answers from it."""

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from frontdoor import answer, call
from synthetic import synthetic_audit, synthetic_run

from ledger.errors import ConsistencyError, ExchangedError
from ledger.verification.reader import open_verified
from proctor.home import Home
from proctor.remembering import open_session, tables
from projections.bulk import apply_new
from projections.cache import catch_up
from projections.database_file import connected
from projections.errors import AheadError, BusyError, ProjectionError
from projections.reading import Session, query
from projections.source import open_source

RUNS = "SELECT run_id FROM run_starts"
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


WAYS = [byte_flipped, earlier, in_the_log_beside, linked, replaced, updated]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """Return a home, what its user remembers, and the honest answer."""
    home, state = (tmp_path_factory.mktemp("asked") / name for name in ("home", "state"))
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
    copy = state / "copy.duckdb"
    assert call(["sql", "--out", copy], home=home, state=state).returncode == 0
    return home, state, answer(call(["sql", SCORES, "--json"], home=home, state=state))


@pytest.mark.parametrize("forge", WAYS)
@pytest.mark.sampled(2)
def test_forged_table_in_the_home_is_rejected(
    asked: tuple[Path, Path, Any], tmp_path: Path, forge: Callable[[Path, Path], None]
) -> None:
    home, state, honest = asked
    place = home / "projections.duckdb"  # where earlier versions kept it
    place.unlink(missing_ok=True)
    shutil.copy(state / "copy.duckdb", place)
    forge(place, tmp_path)
    assert answer(call(["sql", SCORES, "--json"], home=home, state=state)) == honest
    copy = tmp_path / "copy.duckdb"
    assert call(["sql", "--out", copy], home=home, state=state).returncode == 0
    [copied] = query(copy, SCORES).rows
    names = ("accuracy_score", "process_score")
    assert [dict(zip(names, copied, strict=True))] == honest


def test_tables_of_unverified_entries_are_not_asked_later(home: Path, tmp_path: Path) -> None:
    """The entries are forged while somebody asks without verification, and put back again."""
    state = tmp_path / "state"
    honest = answer(call(["sql", SCORES, "--json"], home=home, state=state))
    ledger = home / "ledger" / "ledger.sqlite"
    content = ledger.read_bytes()
    forged = content.replace(b"process_score\xcb?", b"process_score\xcb@")
    assert forged != content
    ledger.write_bytes(forged)
    told = answer(call(["sql", SCORES, "--unverified", "--json"], home=home, state=state))
    assert told != honest
    ledger.write_bytes(content)
    assert answer(call(["sql", SCORES, "--json"], home=home, state=state)) == honest


def test_folder_that_others_can_enter_is_refused(home: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert call(["sql", "SELECT 1"], home=home, state=state).returncode == 0
    (state / "tables").chmod(0o770)
    done = call(["sql", "SELECT 1"], home=home, state=state)
    assert (done.returncode, "other users can enter this folder" in done.stderr) == (2, True)


def test_tables_of_a_home_that_is_gone_are_removed(tmp_path: Path) -> None:
    homes, state = (tmp_path / "one", tmp_path / "two"), tmp_path / "state"
    for home in homes:
        with Home(home).open_log() as log:
            synthetic_run(log)
        assert call(["sql", "SELECT 1"], home=home, state=state).returncode == 0
        shutil.rmtree(home)
    kept = [each.name.partition(".")[0] for each in (state / "tables").glob("*.duckdb.lock")]
    assert kept == [each.stem for each in (state / "tables").glob("*.home")]
    assert len(kept) == 1


def test_session_waits_for_tables_that_others_build_anew(home: Path, tmp_path: Path) -> None:
    database, aside = tmp_path / "tables.duckdb", tmp_path / "aside.duckdb"
    done = catch_up(database, home / "ledger", stop=3)
    database.replace(aside)
    with pytest.raises(BusyError):
        Session(database, needs=done.end, wait=0.1).query(SCORES)
    aside.replace(database)
    with pytest.raises(BusyError):
        Session(database, needs=(4, done.last_hash), wait=0.1).query(SCORES)
    assert Session(database, needs=done.end).query("SELECT 1").rows == [(1,)]


def test_prompt_does_not_answer_from_another_home_in_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_STATE", str(tmp_path / "state"))
    place, one, other = Home(tmp_path / "home"), tmp_path / "one", tmp_path / "other"
    for folder in (one, other):  # with as many entries
        with Home(folder).open_log() as log:
            run = str(synthetic_run(log).id)
    one.rename(place.path)
    asked = open_session(place)
    with place.open_log() as log:  # what continues the ledger is no obstacle
        mine = {str(synthetic_run(log).id)}
    with Home(other).open_log() as log:
        synthetic_run(log)
    open_session(place)
    mine |= {run for (run,) in asked.query(RUNS).rows}
    assert len(mine) == 2
    place.path.rename(one)
    other.rename(place.path)
    with pytest.raises(ExchangedError, match="another ledger is in this place"):
        open_session(place)
    assert (
        call(["keys", "accept", "--yes"], home=place.path, state=tmp_path / "state").returncode == 0
    )
    assert (run,) in open_session(place).query(RUNS).rows
    with pytest.raises(ConsistencyError, match=r"does not (continue|end)"):
        asked.query(RUNS)


def test_copy_is_of_the_state_that_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_STATE", str(tmp_path / "state"))
    home, copy = Home(tmp_path / "home"), tmp_path / "copy.duckdb"
    with home.open_log() as log:
        synthetic_run(log)
    asked = open_session(home)
    kept = home.path.with_name("kept")
    shutil.copytree(home.path, kept)
    with home.open_log() as log:
        synthetic_run(log)
    honest = tables(home).read_bytes()
    bound = Session(tables(home), needs=catch_up(tables(home), home.ledger, stop=0).end, wait=0.1)
    open_session(home)  # another command, which verifies what is new
    with pytest.raises(BusyError), copy.open("wb") as file:
        bound.snapshot(file)
    with copy.open("wb") as file:
        asked.snapshot(file)  # verifies what is new as well
    assert len(query(copy, RUNS).rows) == 2
    shutil.rmtree(home.path)
    kept.rename(home.path)  # an earlier state is in its place
    tables(home).write_bytes(honest)
    with pytest.raises(ConsistencyError, match="does not continue"), copy.open("wb") as file:
        asked.snapshot(file)


def test_tables_catch_up_while_somebody_asks_them(home: Path, tmp_path: Path) -> None:
    database = tmp_path / "tables.duckdb"
    catch_up(database, home / "ledger", stop=3)
    code = f"import duckdb; c = duckdb.connect({str(database)!r}, read_only=True)"
    code += "; print(1, flush=True); input(); print(c.execute('FROM position').fetchone()[0])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        done = catch_up(database, home / "ledger")
        assert done.applied == done.position - 3 > 0
        assert reader.communicate("\n")[0] == "3\n"  # what it had opened
    assert query(database, "SELECT COUNT(*) FROM events").rows == [(done.position,)]
    assert sorted(each.name for each in tmp_path.glob("tables*")) == [
        "tables.duckdb",
        "tables.duckdb.lock",
    ]


def test_tables_stay_as_they_are_when_the_disk_is_full(home: Path, tmp_path: Path) -> None:
    database = tmp_path / "tables.duckdb"
    with Home(home).open_log() as log:
        synthetic_run(log, epochs=100)
    catch_up(database, home / "ledger", stop=3)
    new = tmp_path / "new.duckdb"
    for each in (database, new):
        process = multiprocessing.get_context("fork").Process(
            target=_catch_up_without_room, args=(each, home / "ledger")
        )
        process.start()
        process.join()
        assert process.exitcode == 0
    assert [each.name for each in tmp_path.glob("new*")] == ["new.duckdb.lock"]
    assert query(database, "SELECT COUNT(*) FROM events").rows == [(3,)]
    assert query(database, "SELECT COUNT(*) FROM unreadable").rows == [(0,)]
    done = catch_up(database, home / "ledger")
    assert done.applied == done.position - 3


def test_tables_are_whole_after_a_process_was_killed_that_filled_them(
    home: Path, tmp_path: Path
) -> None:
    database = tmp_path / "tables.duckdb"
    catch_up(database, home / "ledger", stop=3)
    process = multiprocessing.get_context("fork").Process(
        target=_apply_and_be_killed, args=(database, home / "ledger")
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    log = database.with_name("tables.duckdb.wal")
    assert log.exists()
    with open_verified(home / "ledger") as ledger:
        state = ledger.state
    assert catch_up(database, home / "ledger", verified=state).position == state.size
    assert not log.exists()
    with (tmp_path / "copy.duckdb").open("xb") as file:
        Session(database).snapshot(file)  # which copies the file alone
    counted = "SELECT COUNT(*), COUNT(DISTINCT idx) FROM events"
    assert query(tmp_path / "copy.duckdb", counted).rows == [(state.size, state.size)]


def _apply_and_be_killed(database: Path, directory: Path) -> None:
    with (
        open_source(directory) as ledger,
        connected(database, time.monotonic() + 5, read_only=False) as connection,
    ):
        apply_new(connection, ledger, start=3)
        os.kill(os.getpid(), signal.SIGKILL)


def _catch_up_without_room(database: Path, directory: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # SQLite writes 32 KiB to read
    with pytest.raises(ProjectionError, match="File too large; free some space"):
        catch_up(database, directory)


def test_entries_behind_the_verified_ones_are_not_shown(home: Path, tmp_path: Path) -> None:
    """What came between the verification and the tables is left to the next verification."""
    database = tmp_path / "tables.duckdb"
    with open_verified(home / "ledger") as ledger:
        state = ledger.state
    with Home(home).open_log() as log:
        synthetic_run(log)
    done = catch_up(database, home / "ledger", verified=state)
    assert done.position == state.size
    catch_up(database, home / "ledger")
    with pytest.raises(AheadError):
        catch_up(database, home / "ledger", verified=state)


def test_entries_that_are_changed_after_the_verification_are_rejected(
    home: Path, tmp_path: Path
) -> None:
    database = tmp_path / "tables.duckdb"
    with open_verified(home / "ledger") as ledger:
        state = ledger.state
    path = home / "ledger" / "ledger.sqlite"
    content = path.read_bytes()
    assert b"accuracy_score" in content
    path.write_bytes(content.replace(b"process_score", b"PROCESS_SCORE"))
    with pytest.raises(ConsistencyError, match="changed"):
        catch_up(database, home / "ledger", verified=state)
    path.write_bytes(content)
    assert catch_up(database, home / "ledger", verified=state).position == state.size
