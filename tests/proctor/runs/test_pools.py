"""Ctrl-C and SIGTERM while processes share work, and while Python imports."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.popen_spawn_posix import Popen
from pathlib import Path

import pytest

from proctor.runs.pools import pool


def closed_when_interrupted(file: Path) -> None:
    try:
        file.with_suffix(".begun").touch()
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.2)  # during which another interrupt comes, and is not for this
        file.touch()
        raise


def never_ended(file: Path) -> None:
    file.with_suffix(".pid").write_text(str(os.getpid()))
    file.with_suffix(".begun").touch()
    while True:
        with suppress(KeyboardInterrupt):
            time.sleep(60)


def share(
    first: list[tuple[Callable[[Path], None], Path]], later: Path, interrupt: Callable[[], None]
) -> None:
    with pool(2) as processes:
        waiting = [processes.submit(each, file) for each, file in first]
        waiting += [processes.submit(closed_when_interrupted, later) for _ in range(3)]
        threading.Thread(target=interrupt, daemon=True).start()
        for each in waiting:
            each.result()


@pytest.mark.slow
def test_interrupted_work_is_closed_and_what_goes_on_is_killed(tmp_path: Path) -> None:
    closed, stubborn, later = (tmp_path / name for name in ("closed", "stubborn", "later"))
    killed = []

    def interrupt() -> None:
        while not all(each.with_suffix(".begun").exists() for each in (closed, stubborn)):
            time.sleep(0.02)
        killed.append(int(stubborn.with_suffix(".pid").read_text()))
        os.kill(os.getpid(), signal.SIGINT)  # this process alone: it tells the others

    with pytest.raises(KeyboardInterrupt):
        share([(closed_when_interrupted, closed), (never_ended, stubborn)], later, interrupt)
    assert closed.exists()
    assert not later.with_suffix(".begun").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)


def test_process_that_is_being_started_when_an_interrupt_comes_gets_all_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, launched, ended = vars(Popen)["_launch"], [], threading.Event()

    def interrupted(self: Popen, process: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        launch(self, process)
        launched.append(self.pid)

    monkeypatch.setattr(Popen, "_launch", interrupted)
    other = threading.Thread(target=ended.wait)  # which blocks no signal
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt), pool(1) as processes:
            processes.submit(closed_when_interrupted, tmp_path / "file")
    finally:
        ended.set()
        other.join()
    assert len(launched) == 1


def test_second_interrupt_does_not_end_the_wait_for_what_is_closed(tmp_path: Path) -> None:
    closed, later = tmp_path / "closed", tmp_path / "later"

    def interrupt() -> None:
        while not closed.with_suffix(".begun").exists():
            time.sleep(0.02)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        share([(closed_when_interrupted, closed)], later, interrupt)
    assert closed.exists()


def ended_process(code: str, command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a process whose arguments are those of a command."""
    return subprocess.run(
        [sys.executable, "-c", code, command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


GROUP = """
import sys
from pathlib import Path
from proctor.cli.start import noted
from proctor.runs.pools import pool
from test_pools import closed_when_interrupted

if __name__ == "__main__":
    with noted() as came:
        try:
            with pool(2) as processes:
                work = processes.submit(closed_when_interrupted, Path(sys.argv[1]))
                work.result()
        finally:
            print(came)
"""


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_sigterm_lets_shared_work_be_closed_whoever_gets_it(
    tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    closed = tmp_path / "closed"
    (tmp_path / "group.py").write_text(GROUP)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "group.py", closed],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not closed.with_suffix(".begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    kill(process.pid, signal.SIGTERM)
    told, errors = process.communicate(timeout=30)
    assert closed.exists()
    assert told == f"[{signal.SIGTERM:d}]\n"
    assert "Terminated" in errors or "BrokenProcessPool" in errors


def test_sigterm_ends_a_process_of_a_pool_after_its_work_is_closed(tmp_path: Path) -> None:
    closed, before = tmp_path / "closed", set(active_children())

    def work() -> None:
        with pool(2) as processes:
            cut_off = processes.submit(closed_when_interrupted, closed)
            while not closed.with_suffix(".begun").exists():
                time.sleep(0.02)
            processes.submit(time.sleep, 0).result()
            ours = set(active_children()) - before
            assert len(ours) == 2  # one of them is idle
            for each in ours:
                each.terminate()  # SIGTERM
            cut_off.result()

    with pytest.raises(BrokenProcessPool):
        work()
    assert closed.exists()
    assert set(active_children()) <= before


@pytest.mark.parametrize(
    ("number", "ended"),
    [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (143, "terminated"))],
)
@pytest.mark.parametrize(
    ("command", "told"),
    [("compare", "; the same command continues"), ("run", "")],
)
def test_interrupted_command_says_whether_the_same_one_continues(
    command: str, told: str, number: int, ended: tuple[int, str]
) -> None:
    code = (
        "import atexit, os, signal, proctor.cli.lazy as lazy\n"
        "load = lazy.load\n"
        f"lazy.load = lambda command: (load(command), os.kill(os.getpid(), {number}))[0]\n"
        f"atexit.register(lambda: os.kill(os.getpid(), {number}))\n"
        "from proctor.cli.start import main; main()"
    )
    done = ended_process(code, command)
    said = f"{ended[1]}; if a run was going on, it is closed as interrupted"
    assert (done.returncode, done.stderr) == (ended[0], f"{said}{told}\n")


def test_sigterm_ends_a_command_that_ignores_ctrl_c_as_in_the_background() -> None:
    code = (
        "import os, signal, proctor.cli.main as entry\n"
        "def stop():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('goes on', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "entry.verify_own_packages = stop\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from proctor.cli.start import main; main()"
    )
    done = ended_process(code, "run")
    assert (done.returncode, done.stdout) == (143, "goes on\n")


@pytest.mark.parametrize(
    ("number", "ended"),
    [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (143, "terminated"))],
)
@pytest.mark.parametrize("module", ["proctor.cli.main", "proctor.cli.reading"])
def test_interrupted_import_says_one_line(
    tmp_path: Path, module: str, number: int, ended: tuple[int, str]
) -> None:
    code = (
        "import importlib.abc, os, signal, sys\n"
        "class Interrupts(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), {number})\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from proctor.cli.start import main; main()"
    )
    done = ended_process(code, "show", PROCTOR_HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (ended[0], "", f"{ended[1]}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_after_the_last_word_changes_nothing(number: int) -> None:
    code = (
        "import atexit, os, proctor.cli.start as start\n"
        f"atexit.register(lambda: os.kill(os.getpid(), {number}))\n"
        "start.main()"
    )
    done = ended_process(code, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("proctor ")


def test_interrupt_that_a_library_turns_into_another_error_is_one() -> None:
    code = (
        "import os, signal, proctor.cli.main as entry\n"
        "def query():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise RuntimeError('Query interrupted') from None\n"
        "entry.verify_own_packages = query\n"
        "from proctor.cli.start import main; main()"
    )
    done = ended_process(code, "show")
    assert done.returncode == 130
    assert done.stderr == "interrupted; if a run was going on, it is closed as interrupted\n"
