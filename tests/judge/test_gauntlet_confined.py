"""A candidate's command does its work in peace, and gets at nothing and nobody else."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from judge.gauntlet import confined
from judge.gauntlet.confined import ISOLATION, Conversation, Ended, discard
from judge.gauntlet.errors import AnswerError, GauntletError

CANARY = "canary-7b1e44c0"
MEMORY = 1_000_000_000
Run = Callable[..., Ended]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "judge").mkdir(parents=True)
    (tree / "judge/__init__.py").write_text("WHOSE = 'the candidate'\n")
    return tree


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    yield scratch
    discard(scratch)


@pytest.fixture
def run(tree: Path, scratch: Path) -> Run:
    def run(source: str, **settings: Any) -> Ended:
        return confined.run(
            ["{python}", "-c", textwrap.dedent(source)],
            tree=tree,
            scratch=scratch,
            **{"seconds": 20, "memory_bytes": MEMORY, **settings},
        )

    return run


def printed(ended: Ended) -> Any:
    assert (ended.status, ended.code) == ("exited", 0), ended.errors.decode()
    return json.loads(ended.output)


def outside(source: str, **variables: str) -> Any:
    """Run the same code where nothing is confined."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        check=True,
        env={**os.environ, **variables},
    )
    return json.loads(done.stdout)


def test_everything_is_in_force_on_this_kernel(run: Run, tmp_path: Path) -> None:
    # Where this fails, the kernel or whoever runs this one has taken something away.
    ended = run("print('done')")
    assert (ended.words, ended.output) == ("it left with status 0", b"done\n")
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
    checkout = Path(confined.__file__).parents[2]
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
        for name in ("judge.gauntlet.errors", "ledger.errors", "proctor.cli"):
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


# What is not to be written

WRITE = """
    import json, os, pathlib
    written = []
    for place in {places!r}:
        try:
            with open(os.path.join(place, "left-behind"), "w") as file: file.write("x")
            written.append(place)
        except OSError: pass
        try:
            os.chmod(place, 0o777)
            written.append("mode of " + place)
        except OSError: pass
    print(json.dumps(written))
"""


def test_writing_outside_of_scratch_is_rejected(
    run: Run, tree: Path, scratch: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    checkout = Path(confined.__file__).parents[2]
    places = [str(tree), str(given), str(tmp_path), str(checkout), "/", "/usr/lib", "/var/tmp"]
    source = WRITE.format(places=[*places, str(scratch)])
    modes = (tree.stat().st_mode, checkout.stat().st_mode)
    written = printed(run(source, readable=[given]))
    assert str(scratch) in written
    # A folder that leads to what it may see is one of the candidate's own, which is gone with it.
    leading = {str(tmp_path), str(checkout)}
    assert {each.removeprefix("mode of ") for each in written} <= {str(scratch), *leading}
    assert list(tmp_path.rglob("left-behind")) == [scratch / "left-behind"]
    assert not (checkout / "left-behind").exists()
    assert (tree.stat().st_mode, checkout.stat().st_mode) == modes


def test_links_out_of_scratch_are_rejected(run: Run, tree: Path, scratch: Path) -> None:
    (tree / "kept.txt").write_text("as it was")
    source = f"""
        import os, json
        os.symlink({str(tree / "kept.txt")!r}, {str(scratch / "link")!r})
        results = []
        for do in (
            lambda: open({str(scratch / "link")!r}, "w"),
            lambda: os.link({str(tree / "kept.txt")!r}, {str(scratch / "hard")!r}),
            lambda: os.rename({str(tree / "kept.txt")!r}, {str(scratch / "moved")!r}),
            lambda: os.truncate({str(tree / "kept.txt")!r}, 0),
            lambda: os.unlink({str(tree / "kept.txt")!r}),
        ):
            try: do(); results.append("done")
            except OSError as error: results.append(None)
        print(json.dumps(results))
    """
    assert printed(run(source)) == [None] * 5
    assert (tree / "kept.txt").read_text() == "as it was"


# What is not to be used up

TINY = {"disk_bytes": 20_000_000, "file_bytes": 10_000_000}


def test_filling_the_disk_with_files_is_rejected(run: Run, scratch: Path) -> None:
    source = """
        import os
        for number in range(100_000):
            with open(f"{os.environ['HOME']}/{number}", "wb") as file: file.write(bytes(1_000_000))
    """
    ended = run(source, **TINY)
    assert ended.status == "disk"
    assert ended.words.startswith("it wrote more than 2e+07 bytes")
    little = source.replace("100_000", "10")
    discard(scratch)
    scratch.mkdir()
    assert run(little, **TINY).words == "it left with status 0"


def test_filling_the_disk_with_one_file_is_rejected(run: Run) -> None:
    source = """
        import os, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open(os.environ["HOME"] + "/one", "wb", buffering=0) as file:
            while True: file.write(bytes(1_000_000))
    """
    ended = run(source, **TINY)
    assert ended.code == 1
    assert b"File too large" in ended.errors
    assert run(source.replace("while True:", ""), **TINY).code == 0


def test_leaving_a_depth_that_cannot_be_removed_is_rejected(run: Run, scratch: Path) -> None:
    source = """
        import os
        os.chdir(os.environ["HOME"])
        for _ in range(3_000):
            os.mkdir("deeper"); os.chdir("deeper")
        os.mkdir("closed"); os.chmod("closed", 0)
    """
    assert run(source).status == "disk"
    discard(scratch)
    assert not scratch.exists()
    scratch.mkdir()
    assert run(source.replace("3_000", "30")).words == "it left with status 0"


def test_filling_the_memory_is_rejected(run: Run) -> None:
    ended = run("x = bytearray(2_000_000_000)")
    assert ended.code == 1
    assert b"MemoryError" in ended.errors
    assert run("x = bytearray(200_000_000)").code == 0


@pytest.mark.parametrize("kind", ["ACCESS_COPY", "ACCESS_WRITE"])
def test_filling_the_memory_together_is_rejected(run: Run, kind: str) -> None:
    source = f"""
        import mmap, os, time
        for _ in range(COUNT):
            if os.fork() == 0:
                held = mmap.mmap(-1, 30_000_000, access=mmap.{kind})
                for place in range(0, 30_000_000, 4096): held[place] = 1
                time.sleep(TIME)
                os._exit(0)
        for _ in range(COUNT): os.wait()
    """
    many = source.replace("COUNT", "12").replace("TIME", "20")
    ended = run(many, memory_bytes=250_000_000)
    assert ended.status == "memory"
    few = source.replace("COUNT", "3").replace("TIME", "0.5")
    assert run(few, memory_bytes=250_000_000).words == "it left with status 0"


def test_forking_without_end_is_rejected(run: Run) -> None:
    source = "import os\nwhile True: os.fork()"
    began = time.monotonic()
    ended = run(source, seconds=15)
    assert ended.status == "processes"
    assert time.monotonic() - began < 15
    few = "import os\nfor _ in range(20):\n    if os.fork() == 0: os._exit(0)"
    assert run(few).words == "it left with status 0"


def test_sleeping_for_ever_is_rejected(run: Run) -> None:
    source = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    ended = run(source, seconds=1)
    assert ended.words == "it ran for more than 1 seconds"
    assert ended.seconds < 5
    assert run("import time; time.sleep(0.3)", seconds=5).words == "it left with status 0"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_printing_without_end_is_rejected(run: Run, stream: str) -> None:
    source = f"import sys\nwhile True: sys.{stream}.write('x' * 1_000)"
    ended = run(source, output_bytes=100_000)
    assert ended.words == "it printed more than 100000 bytes"
    assert len(ended.output + ended.errors) == 100_000
    ended = run(f"import sys; sys.{stream}.write('x' * 100_000)", output_bytes=100_000)
    assert (ended.status, len(ended.output + ended.errors)) == ("exited", 100_000)


# Who is not to be left behind

DAEMON = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            for descriptor in range(3): os.close(descriptor)
            while True:
                with open(os.environ["HOME"] + "/alive", "a") as file: file.write("x")
                time.sleep(0.01)
        os._exit(0)
    while not os.path.exists(os.environ["HOME"] + "/alive"): time.sleep(0.01)
"""


def stands_still(path: Path) -> bool:
    """Wait until a file is not written to any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        size = path.stat().st_size
        time.sleep(0.3)  # in which it would have grown by thirty
        if path.stat().st_size == size:
            return size > 0
    return False


def test_daemon_that_is_left_behind_is_rejected(run: Run, scratch: Path) -> None:
    ended = run(DAEMON)
    assert (ended.words, ended.leftovers) == ("it left with status 0", 1)
    assert stands_still(scratch / "alive")
    waiting = "import subprocess; subprocess.Popen(['sleep', '0.2']).wait()"
    assert run(waiting).leftovers == 0


def test_child_that_ends_a_moment_later_is_no_leftover(run: Run) -> None:
    source = "import subprocess; subprocess.Popen(['sleep', '2'])"
    assert run(source, leaving=0.5).leftovers == 1
    assert run(source, leaving=20.0).leftovers == 0


def test_nothing_outlives_the_one_who_asked(tree: Path, scratch: Path) -> None:
    code = f"""
        from pathlib import Path
        from judge.gauntlet.confined import run
        run(["{{python}}", "-c", {textwrap.dedent(DAEMON + "    time.sleep(60)")!r}],
            tree=Path({str(tree)!r}), scratch=Path({str(scratch)!r}), seconds=60,
            memory_bytes={MEMORY})
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as asker:
        alive = scratch / "alive"
        deadline = time.monotonic() + 60
        while not alive.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        asker.kill()
    assert stands_still(alive)


# Conversations

SERVER = """
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    answer = json.dumps({"got": message})
    if message == "bad":
        BAD
    print(answer, flush=True)
"""


def conversation(tree: Path, scratch: Path, bad: str = "pass", **settings: Any) -> Conversation:
    (tree / "server.py").write_text(SERVER.replace("BAD", bad))
    return Conversation(
        ["{python}", "server.py"],
        tree=tree,
        scratch=scratch,
        **{"seconds": 20, "memory_bytes": MEMORY, **settings},
    )


def test_conversation_goes_back_and_forth(tree: Path, scratch: Path) -> None:
    with conversation(tree, scratch) as talk:
        for message in ({"a": [1, 2.5, None]}, "bad", "ü" * 100_000):
            assert talk.ask(message) == {"got": message}
        assert talk.isolation == ISOLATION
    assert talk.ended is not None
    assert (talk.ended.words, talk.ended.leftovers) == ("it left with status 0", 0)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("answer = 'hello'", "the answer is malformed: it is no JSON in UTF-8"),
        ("answer = ''", "the answer is malformed: it is no JSON in UTF-8"),
        ("answer = '1 2'", "the answer is malformed: it is no JSON in UTF-8"),
        ("answer = '[NaN]'", "the answer is malformed: NaN and infinities are no numbers"),
        ("answer = '[-Infinity]'", "the answer is malformed: NaN and infinities are no numbers"),
        ("answer = '1e999'", "the answer is malformed: a number is beyond every float"),
        ("answer = '[' * 99 + ']' * 99", "the answer is malformed: it is nested deeper than 32"),
        ("answer = '[' * 90_000", "the answer is malformed: it is nested deeper than 32 levels"),
        ("answer = '[' + '1,' * 300_000 + '1]'", "the answer is malformed: it holds more than"),
        ("answer = '1' * 9_999", "the answer is malformed: it is no JSON in UTF-8"),
        ('answer = \'{"a": 1, "a": 2}\'', "the answer is malformed: a key stands twice"),
        ("answer = '\"\\\\ud800\"'", "the answer is malformed: it is no JSON in UTF-8"),
        ("sys.stdout.buffer.write(bytes([255, 10]))", "the answer is malformed: it is no JSON"),
        ("sys.exit(3)", "there is no answer: it left with status 3"),
        ("os._exit(0)", "there is no answer: it left with status 0"),
        ("os.abort()", "there is no answer: it was ended by signal 6"),
        ("time.sleep(60)", "there is no answer: it ran for more than 3 seconds"),
        (
            "sys.stdout.write('half')\n        sys.stdout.flush()\n        time.sleep(60)",
            "no answer",
        ),
        ("answer = 'x' * 6_000_000", "there is no answer: it printed more than 4.1943e"),
        ("answer += '\\n' + answer", "it said more than it was asked"),
    ],
)
def test_bad_answer_is_rejected(tree: Path, scratch: Path, bad: str, problem: str) -> None:
    with (  # noqa: PT012 - the first answer is good
        pytest.raises(AnswerError, match=problem) as caught,
        conversation(tree, scratch, bad, seconds=3) as talk,
    ):
        assert talk.ask("good") == {"got": "good"}
        talk.ask("bad")
        talk.ask("once more")
    assert "half" not in str(caught.value)


def test_answer_before_the_question_is_rejected(tree: Path, scratch: Path) -> None:
    bad = "print(answer)\n        time.sleep(0.2)"
    with (
        pytest.raises(AnswerError, match="it said more than it was asked"),
        conversation(tree, scratch, bad) as talk,
    ):
        talk.ask("bad")


def test_process_left_behind_by_a_conversation_is_rejected(tree: Path, scratch: Path) -> None:
    bad = "import subprocess\n        subprocess.Popen(['sleep', '30'])"
    with (
        pytest.raises(AnswerError, match="it left 1 processes behind"),
        conversation(tree, scratch, bad) as talk,
    ):
        talk.ask("bad")


def test_candidate_that_stays_when_nothing_is_asked_is_stopped(tree: Path, scratch: Path) -> None:
    (tree / "server.py").write_text("print(input())\nwhile True: pass")
    began = time.monotonic()
    with Conversation(
        ["{python}", "-u", "server.py"],
        tree=tree,
        scratch=scratch,
        seconds=60,
        memory_bytes=MEMORY,
    ) as talk:
        assert talk.ask([1]) == [1]
    assert talk.ended is not None
    assert talk.ended.words == "it did not leave when nothing more was asked"
    assert time.monotonic() - began < 20


def test_candidate_that_does_not_listen_is_rejected(tree: Path, scratch: Path) -> None:
    (tree / "server.py").write_text("import time; time.sleep(60)")
    talk = Conversation(
        ["{python}", "server.py"], tree=tree, scratch=scratch, seconds=2, memory_bytes=MEMORY
    )
    with pytest.raises(AnswerError, match="it ran for more than 2 seconds"), talk:
        talk.ask("x" * 5_000_000)  # more than a pipe holds


# Where it cannot be done

ASK = """
from pathlib import Path
from judge.gauntlet.confined import run
from judge.gauntlet.errors import GauntletError
try:
    ended = run(["{{python}}", "-c", "print('it ran')"], tree=Path({tree!r}),
        scratch=Path({scratch!r}), seconds=20, memory_bytes=10**9)
    print(ended.words, *ended.isolation, ended.output)
except GauntletError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit", "missing"),
    [
        ("user", "user namespaces"),
        ("pid", "user namespaces"),
        ("net", "a network and a root of its own"),
        ("mnt", "a network and a root of its own"),
    ],
)
def test_nothing_is_run_where_namespaces_are_missing(
    tree: Path, scratch: Path, limit: str, missing: str
) -> None:
    script = f'echo 0 > /proc/sys/user/max_{limit}_namespaces && exec "$@"'
    code = ASK.format(tree=str(tree), scratch=str(scratch))
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"a candidate cannot be confined here: {missing} is missing")
    assert "sysctl user.max_user_namespaces" in done.stdout
    honest = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "it left with status 0" in honest.stdout
    assert "it ran" in honest.stdout


def test_supervisor_that_is_ended_is_nobodys_answer(tree: Path, scratch: Path) -> None:
    def end_it() -> None:
        alive = scratch / "alive"
        while not alive.exists():
            time.sleep(0.02)
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            parent = (place.parent / "status").read_text().split("PPid:\t")[1].split("\n")[0]
            if parent == str(os.getpid()) and b"judge.gauntlet.supervisor" in place.read_bytes():
                os.kill(int(place.parent.name), signal.SIGKILL)

    killer = threading.Thread(target=end_it, daemon=True)
    killer.start()
    with pytest.raises(GauntletError, match="was itself ended"):
        confined.run(
            ["{python}", "-c", textwrap.dedent(DAEMON + "    time.sleep(60)")],
            tree=tree,
            scratch=scratch,
            seconds=60,
            memory_bytes=MEMORY,
        )
    killer.join()
    assert stands_still(scratch / "alive")


def test_command_that_cannot_be_started_is_the_candidates_problem(
    tree: Path, scratch: Path
) -> None:
    ended = confined.run(
        ["no-such-command"], tree=tree, scratch=scratch, seconds=5, memory_bytes=MEMORY
    )
    assert ended.words == "it left with status 127"
    assert ended.errors == b"the command cannot be started: No such file or directory\n"


def test_message_that_is_too_long_is_our_error(tree: Path, scratch: Path) -> None:
    with (
        pytest.raises(GauntletError, match="too long to be sent"),
        conversation(tree, scratch) as talk,
    ):
        talk.ask("x" * 10_000_000)
