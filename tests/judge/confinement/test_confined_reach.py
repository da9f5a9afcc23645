"""A candidate's command does its work in peace, and gets at nothing and nobody else."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confined_runs import CANARY, Run, outside, printed

from judge.confinement import supervised
from judge.confinement.supervised import ISOLATION


def test_everything_is_in_force_on_this_kernel(run: Run, tmp_path: Path) -> None:
    # Where this fails, the kernel or whoever runs this one has taken something away.
    ended = run("print('done')")
    assert (ended.words, ended.output) == ("it exited with status 0", b"done\n")
    assert ended.isolation == ISOLATION
    assert ended.leftovers == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scratch", "tree"]


def test_honest_work_is_done(run: Run, tree: Path, scratch: Path, tmp_path: Path) -> None:
    (tree / "words.txt").write_text("of the tree")
    (tmp_path / "given").mkdir()
    (tmp_path / "given/words.txt").write_text("given")
    source = f"""
        import json, multiprocessing, os, pathlib, pty, subprocess, sys, tempfile
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=queue.put, args=(6 * 7,))
        child.start()
        terminal, _ = pty.openpty()
        with tempfile.NamedTemporaryFile("w", dir="/tmp") as file:
            written = file.name
        pathlib.Path("{scratch}/kept").write_text("kept")
        print(json.dumps([
            pathlib.Path("words.txt").read_text(),
            pathlib.Path("{tmp_path}/given/words.txt").read_text(),
            sys.stdin.read(),
            queue.get(),
            os.isatty(terminal),
            subprocess.run(["sh", "-c", "echo shell"], capture_output=True, text=True).stdout,
            subprocess.run(["git", "--version"], capture_output=True, text=True).stdout[:4],
        ]))
        child.join()
    """
    ended = run(source, stdin=b"input", readable=[tmp_path / "given"])
    expected = ["of the tree", "given", "input", 42, True, "shell\n", "git "]
    assert printed(ended) == expected
    assert ended.leftovers == 0
    assert (scratch / "kept").read_text() == "kept"


def test_candidate_is_found_under_its_own_name(run: Run, tree: Path) -> None:
    # In isolated mode, too, in which Python does not look at PYTHONPATH.
    source = """
        import json, subprocess, sys
        import judge
        code = "import judge, numpy; print(judge.WHOSE)"
        child = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
        print(json.dumps([judge.WHOSE, child.stdout]))
    """
    assert printed(run(source)) == ["the candidate", "the candidate\n"]


def test_commands_of_the_tree_are_the_trees(run: Run, tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[project.scripts]\nhello = "judge:hello"\n')
    (tree / "judge/__init__.py").write_text("def hello():\n    print('of the tree')\n")
    source = "import subprocess; subprocess.run(['hello'], check=True)"
    assert run(source).output == b"of the tree\n"


# What is not to be read

READ = """
    import json, os, pathlib
    found = []
    def note(what): found.append(str(what)[:20_000])
    for place in {places!r}:
        try: note(pathlib.Path(place).read_text(errors="replace"))
        except OSError: pass
        try: note(sorted(os.listdir(place)))
        except OSError: pass
    for pid in os.listdir("/proc"):
        if pid.isdecimal() and int(pid) != os.getpid():
            for name in ("environ", "cmdline", "mem", "cwd/pyproject.toml", "root/etc/shadow"):
                try: note(pathlib.Path("/proc", pid, name).read_text(errors="replace"))
                except (OSError, ValueError): pass
    note(sorted(os.environ.items()))
    print(json.dumps(found))
"""


def test_reading_what_is_expected_is_rejected(
    run: Run, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", CANARY)
    checkout = Path(supervised.__file__).parents[2]
    expected = tmp_path / "expected.json"
    expected.write_text(CANARY)
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", repository], check=True)
    (tree / "link.json").symlink_to(expected)
    places = [
        str(expected),
        str(tree / "link.json"),
        str(tree / "../expected.json"),
        str(tmp_path),
        str(checkout),
        str(checkout / "judge/errors.py"),
        str(checkout / "pyproject.toml"),
        str(repository / ".git"),
        str(repository / ".git/HEAD"),
        f"/proc/{os.getpid()}/environ",
        f"/proc/{os.getppid()}/environ",
        "/etc/hostname",
        "/root",
        "/tmp",
        "/",
    ]
    source = READ.format(places=places)
    text = json.dumps(printed(run(source)))
    for secret in (CANARY, "JudgeError", "refs/heads", "pyproject.toml"):
        assert secret not in text
    # The control: outside the same code finds all of it.
    text = json.dumps(outside(source))
    for secret in (CANARY, "JudgeError", "refs/heads", "pyproject.toml"):
        assert secret in text


def test_reading_through_the_installed_package_is_rejected(run: Run) -> None:
    source = """
        import importlib.util, json
        found = []
        for name in ("judge.gauntlet.errors", "ledger.errors", "proctor.cli.main"):
            try: found.append(importlib.util.find_spec(name) is not None and name)
            except ImportError: pass
        import numpy
        print(json.dumps([found, numpy.__name__]))
    """
    found, control = printed(run(source))
    assert not any(found)
    assert control == "numpy"
    names, _ = outside(source)
    assert all(names)


def test_packages_of_ours_are_not_read_where_they_are_installed(
    run: Run, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after an installation that is no editable one: beside the third-party packages.
    installed = tmp_path / "lib/site-packages"
    for name in ("monitor", "judge", "other"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text(f"WHOSE = {CANARY!r}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    source = f"""
        import json, pathlib
        found = []
        for name in ("monitor", "judge", "other"):
            try: found.append((pathlib.Path({str(installed)!r}) / name / "__init__.py").read_text())
            except OSError: found.append(None)
        import other
        print(json.dumps([found, other.WHOSE]))
    """
    whole = f"WHOSE = {CANARY!r}\n"
    assert printed(run(source)) == [[None, None, whole], CANARY]


def test_descriptors_of_ours_are_not_inherited(run: Run) -> None:
    source = "import json, os; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))))"
    assert printed(run(source)) == [0, 1, 2, 3]  # the last is the listing's own


# Who is not to be reached

REACH = """
    import json, socket
    found = {{}}
    def reach(name, family, kind, address):
        try:
            with socket.socket(family, kind) as client:
                client.settimeout(2)
                client.connect(address)
                client.send(b"hello")
                found[name] = client.recv(5).decode()
        except OSError as error:
            found[name] = None
    reach("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {tcp}))
    reach("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", {udp}))
    reach("abstract", socket.AF_UNIX, socket.SOCK_STREAM, {abstract!r})
    reach("path", socket.AF_UNIX, socket.SOCK_STREAM, {path!r})
    print(json.dumps(found))
"""


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[Mapping[str, Any]]:
    """Answer `olleh` on four sockets of the host."""
    addresses = {"abstract": f"\0{CANARY}-{os.getpid()}", "path": str(tmp_path / "host.sock")}

    def serve(one: socket.socket) -> None:
        while True:
            try:
                if one.type == socket.SOCK_DGRAM:
                    said, peer_address = one.recvfrom(5)
                    one.sendto(said[::-1], peer_address)
                else:
                    with one.accept()[0] as peer:
                        peer.sendall(peer.recv(5)[::-1])
            except (OSError, TypeError):  # closed
                return

    with ExitStack() as stack:
        opened = {
            "tcp": socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
            "path": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        }
        for name, one in opened.items():
            stack.callback(one.close)
            one.bind(addresses.get(name, ("127.0.0.1", 0)))
            if one.type == socket.SOCK_STREAM:
                one.listen()
            threading.Thread(target=serve, args=(one,), daemon=True).start()
        yield {**addresses, **{name: opened[name].getsockname()[1] for name in ("tcp", "udp")}}
        for one in opened.values():
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def test_reaching_the_host_is_rejected(
    run: Run, tmp_path: Path, listeners: Mapping[str, Any]
) -> None:
    source = REACH.format(**listeners)
    nobody = dict.fromkeys(("tcp", "udp", "abstract", "path"))
    assert printed(run(source)) == nobody
    # Not even where the folder of the socket's file may be read.
    assert printed(run(source, readable=[tmp_path]))["tcp"] is None
    assert outside(source) == dict.fromkeys(nobody, "olleh")


def test_sockets_among_a_candidates_own_processes_work(run: Run, scratch: Path) -> None:
    source = """
        import json, os, socket
        said = []
        for family, address in (
            (socket.AF_INET, ("localhost", 0)),
            (socket.AF_INET6, ("::1", 0)),
            (socket.AF_UNIX, "\\0mine"),
            (socket.AF_UNIX, os.environ["TMPDIR"] + "/" + 90 * "s"),  # 107 bytes are the most
        ):
            with socket.socket(family) as server:
                server.bind(address)
                server.listen()
                if os.fork() == 0:
                    with socket.socket(family) as client:
                        client.connect(server.getsockname())
                        client.sendall(b"hello")
                    os._exit(0)
                said.append(server.accept()[0].recv(5).decode())
                os.wait()
        print(json.dumps(said))
    """
    assert printed(run(source)) == ["hello"] * 4
    assert (scratch / (90 * "s")).is_socket()  # the scratch folder, under a short name


@pytest.mark.parametrize(
    "family", [socket.AF_VSOCK, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_ALG]
)
def test_sockets_of_other_kinds_are_rejected(run: Run, family: int) -> None:
    source = f"""
        import json, socket
        try: socket.socket({int(family)}, {int(socket.SOCK_DGRAM)})
        except OSError as error: print(json.dumps(error.errno))
    """
    assert printed(run(source)) == 1  # EPERM


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("a user namespace", "syscall(272, 0x10000000)"),
        ("a keyring", "syscall(250, 0, -3, 0)"),
        ("a mount", "mount(b'x', b'/', b'tmpfs', 0, None)"),
        ("a ring", "syscall(425, 1, bytes(200))"),
        ("uncounted memory", "syscall(319, b'x', 0)"),
    ],
)
def test_system_calls_that_reach_beyond_are_rejected(run: Run, name: str, call: str) -> None:
    source = f"""
        import ctypes, json
        libc = ctypes.CDLL(None, use_errno=True)
        print(json.dumps([libc.{call}, ctypes.get_errno(), libc.getpid() > 1]))
    """
    assert printed(run(source)) == [-1, 1, True], name


def test_changing_the_supervisor_is_rejected(run: Run) -> None:
    # It has the candidate's user, so that the kernel alone would allow it.
    source = """
        import ctypes, json, os, resource
        libc = ctypes.CDLL(None, use_errno=True)
        def ioprio(which, who):
            if libc.syscall(251, which, who, 0x6007): raise OSError
        def tried(attempt):
            try: attempt()
            except OSError: return "refused"
            return "done"
        one, two = set(list(os.sched_getaffinity(0))[:1]), os.sched_getaffinity(0)
        idle = (os.SCHED_IDLE, os.sched_param(0))
        print(json.dumps([[tried(attempt) for attempt in attempts] for attempts in (
            [
                lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)),
                lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
                lambda: os.sched_setaffinity(1, one),
                lambda: os.sched_setscheduler(1, *idle),
                lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
                lambda: os.setpriority(os.PRIO_USER, 0, 19),
                lambda: ioprio(1, 1),
                lambda: ioprio(3, 0),
            ],
            [
                lambda: resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (99, 99)),
                lambda: os.sched_setaffinity(os.getpid(), two),
                lambda: os.nice(1),
                lambda: ioprio(1, 0),
            ],
        )]))
    """
    assert printed(run(source)) == [["refused"] * 8, ["done"] * 4]


def test_signals_to_the_parent_are_rejected(run: Run, tmp_path: Path) -> None:
    source = f"""
        import json, os, signal
        results = []
        for pid in (1, os.getppid(), {os.getpid()}, {os.getppid()}):
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                try: os.kill(pid, number); results.append("sent")
                except OSError as error: results.append(error.errno)
        print(json.dumps(results))
    """
    results = printed(run(source))
    assert set(results) <= {1, 3}, "a signal went out of the candidate's own processes"
    own = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert (run(own).status, run(own).code) == ("signal", signal.SIGTERM)
