"""Files of a home that cannot be opened, or are of another kind: one line, never a traceback."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from frontdoor import call_here
from notaries import open_folder
from synthetic import synthetic_audit, synthetic_run

from ledger.application import LedgerApplication
from proctor.home import Home

COMMANDS = (
    ["verify"],
    ["log"],
    ["show"],
    ["replay"],
    ["sql", "SELECT COUNT(*) FROM events"],
    ["keys", "list"],
)
FEW = (["log"], ["sql", "SELECT COUNT(*) FROM events"])
each_command = pytest.mark.parametrize(
    "commands",
    [pytest.param(FEW, id="few"), pytest.param(COMMANDS, id="each", marks=pytest.mark.slow)],
)
FILES = (
    "ledger",
    "ledger/blobs",
    "ledger/keys",
    "ledger/keys/ledger.pem",
    "ledger/ledger.sqlite",
    "ledger/ledger.sqlite-shm",
    "ledger/ledger.sqlite-wal",
    "ledger/ledger.vkey",
    "runs",
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("honest") / "home"
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
    return home


def folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_bytes(b"x")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\0" * 5_000)


@pytest.mark.sampled(21)
@pytest.mark.parametrize("kind", [folder, loop, pipe, empty, garbage])
@pytest.mark.parametrize("name", FILES)
def test_file_of_another_kind_ends_in_one_line(
    honest: Path, tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    path = home / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    kind(path)
    for command in COMMANDS:
        done = call_here(command, home=home)  # raises what the command line does not know
        assert done.returncode in (0, 1, 2), command
        assert done.stderr.count("error:") <= 1
        assert "Traceback" not in done.stderr


def as_nobody(action: Callable[[], int]) -> int:
    """Do something in a process of a user who owns nothing, and return what it returned."""
    child = os.fork()
    if not child:
        code = 99
        try:
            os.setgroups([])
            os.setgid(pwd.getpwnam("nobody").pw_gid)
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            code = action()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@each_command
def test_reader_who_may_not_enter_the_keys_reads(
    honest: Path, commands: Sequence[list[str]]
) -> None:
    with open_folder() as folder:  # another test session closes the folder of all sessions
        check_reader(Path(shutil.copytree(honest, folder / "home")), commands)


def check_reader(home: Path, commands: Sequence[list[str]]) -> None:
    for command in commands:  # so that all is imported: nobody may not enter Python's own folder
        assert call_here(command, home=home).returncode == 0, command
    with Home(home).open_log() as log:
        open_run(log)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (home / "ledger" / "keys").chmod(0o700)
    for command in commands:
        code = as_nobody(lambda command=command: call_here(command, home=home).returncode)  # type: ignore[misc]
        assert code == 0, command
    for path in (home, *home.rglob("*")):  # the key is theirs now, and nothing can be written
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
        path.chmod(path.stat().st_mode & 0o500)
    assert as_nobody(lambda: call_here(["log"], home=home).returncode) == 0
    os.chown(home / "ledger", 0, 0)
    for command in commands:
        code = as_nobody(lambda command=command: call_here(command, home=home).returncode)  # type: ignore[misc]
        assert code == 2, command


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("logged", [False, True])
@each_command
def test_home_that_cannot_be_written_is_read(
    honest: Path, tmp_path: Path, logged: bool, commands: Sequence[list[str]]
) -> None:
    """Nobody can close there what was left open; the ledger may have been copied with its log."""
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    with Home(honest if logged else home).open_log() as log:
        open_run(log)
        if logged:
            shutil.copytree(honest, home, dirs_exist_ok=True)
    if logged:
        (home / "ledger" / "ledger.sqlite-shm").unlink()
        assert (home / "ledger" / "ledger.sqlite-wal").stat().st_size
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    if subprocess.run(["mount", "--bind", home, fixed], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", fixed], check=True)
        for command in (*commands, ["report", "--out", str(tmp_path / "report.html")]):
            done = call_here(command, home=fixed)
            assert done.returncode == 0, (command, done.stderr)
    finally:
        subprocess.run(["umount", fixed], check=True)


def open_run(log: LedgerApplication) -> UUID:
    """Record a run that goes on, up to a decision that is not carried out yet."""
    whole, run = synthetic_run(log, exploding=(1,)).id, uuid4()
    for event in log.recorder.select_events(whole):
        log.recorder.insert_events([replace(event, originator_id=run)])
        if event.topic == "run.decision_made":
            break
    return run


@pytest.mark.parametrize("kind", [None, folder, loop, pipe])
@pytest.mark.sampled(2)
def test_run_whose_lock_is_of_another_kind_can_be_read(
    tmp_path: Path, kind: Callable[[Path], None] | None
) -> None:
    """Nobody waits for a pipe, and what is no lock says nothing of the run."""
    home = tmp_path / "home"
    with Home(home).open_log() as log:
        run = open_run(log)
    lock = home / "runs" / str(run) / "running.lock"
    lock.parent.mkdir(parents=True)
    (kind or Path.touch)(lock)
    asked = "SELECT state FROM run_summary WHERE state <> 'completed'"
    with Home(home).open_log():
        pass
    done = call_here(["sql", asked, "--format", "csv"], home=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ['"state"', '"running"' if kind else '"crashed"']
    assert call_here(["show"], home=home).returncode == 0  # with a decision that nobody carried out
