"""The process that forks supervisors: several at once, one that was killed, and its end."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judge.confinement.messages import ResourceLimits
from judge.confinement.nursery import _OWN
from judge.confinement.supervised import Supervised, run
from judge.errors import ConfinementError

LIMITS = ResourceLimits(seconds=30, memory_bytes=2**30, output_bytes=2**16)


def echoed(folder: Path, words: str) -> bytes:
    (folder / "tree").mkdir(parents=True)
    (folder / "scratch").mkdir()
    found = run(
        ["/bin/echo", words], tree=folder / "tree", scratch=folder / "scratch", limits=LIMITS
    )
    return found.output


def test_commands_of_several_threads_get_their_own_pipes(tmp_path: Path) -> None:
    names = [str(number) for number in range(12)]
    with ThreadPoolExecutor(6) as threads:
        found = [*threads.map(lambda name: echoed(tmp_path / name, name), names)]
    assert found == [f"{name}\n".encode() for name in names]


def test_a_killed_nursery_ends_its_commands_and_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    tree, scratch = tmp_path / "tree", tmp_path / "scratch"
    with Supervised(["/bin/sleep", "25"], tree=tree, scratch=scratch, limits=LIMITS) as running:
        assert _OWN.process is not None
        _OWN.process.kill()
        begun = time.monotonic()
        with pytest.raises(ConfinementError, match="was killed"):
            running.end()
        assert time.monotonic() - begun < 20
    assert echoed(tmp_path / "again", "here") == b"here\n"


def test_a_refused_fork_ends_no_other_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import errno, os, socket
from judge.confinement.supervisor import serve

def refused():
    raise OSError(errno.EAGAIN, "the table of processes is full")

os.fork = refused
serve(socket.socket(fileno=0))
"""
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno())
    monkeypatch.setattr(_OWN, "channel", channel)
    monkeypatch.setattr(_OWN, "process", process)
    try:
        with pytest.raises(ConfinementError, match="too many processes"):
            echoed(tmp_path / "refused", "here")
        assert process.poll() is None
    finally:
        _OWN.close()
    monkeypatch.undo()
    assert echoed(tmp_path / "again", "here") == b"here\n"


def test_an_interrupt_leaves_no_answer_to_the_next_command(tmp_path: Path) -> None:
    echoed(tmp_path / "begun", "here")
    assert _OWN.process is not None
    process = _OWN.process.pid
    os.kill(process, signal.SIGSTOP)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        echoed(tmp_path / "interrupted", "here")
    os.kill(process, signal.SIGCONT)
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    with Supervised(
        ["/bin/sleep", "20"], tree=tmp_path / "tree", scratch=tmp_path / "scratch", limits=LIMITS
    ) as running:
        (told,) = (
            int(line.split()[1])
            for line in Path(f"/proc/self/fdinfo/{running._process}").read_text().splitlines()
            if line.startswith("Pid:")
        )
        assert told > 0  # of a process that has ended it is -1
        assert _OWN.process.pid == process


def test_a_command_runs_where_many_files_are_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2_000, hard)), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert echoed(tmp_path, "here") == b"here\n"
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_forked_process_has_its_own_and_a_stopped_one_ends_too(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_nursery import _OWN, echoed
echoed(Path({str(tmp_path)!r}) / "parent", "here")
with _OWN.lock:  # as another thread may hold it
    child = os.fork()
if child == 0:
    signal.alarm(20)
    with _OWN.lock:
        pass
    echoed(Path({str(tmp_path)!r}) / "child", "there")
    os._exit(0)
if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
    sys.exit("the child hangs")
os.kill(_OWN.process.pid, signal.SIGSTOP)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_it_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_nursery import _OWN, echoed
echoed(Path({str(tmp_path)!r}), "here")
print(_OWN.process.pid)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stderr == ""
    assert not Path(f"/proc/{told.stdout.strip()}").exists()
