"""What a candidate's command may not change, use up or leave behind."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from confined_runs import DAEMON, MEMORY, Run, printed, stands_still

from judge.confinement import supervised
from judge.confinement.supervised import discard
from judge.errors import ConfinementError

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
    checkout = Path(supervised.__file__).parents[2]
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
    assert ended.words.startswith("it wrote more than 20,000,000 bytes")
    little = source.replace("100_000", "10")
    discard(scratch)
    scratch.mkdir()
    assert run(little, **TINY).words == "it exited with status 0"


def test_half_of_a_disk_that_is_nearly_full_is_left_to_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
        import os, time
        with open(os.environ["HOME"] + "/one", "wb") as file: file.write(bytes(SIZE))
        time.sleep(1)
    """
    usage = SimpleNamespace(total=10**9, used=10**9 - 40_000_000, free=40_000_000)
    monkeypatch.setattr(supervised, "disk_usage", lambda _place: usage)
    words = run(source.replace("SIZE", "25_000_000")).words
    assert words.startswith("it wrote more than 20,000,000 bytes")
    assert run(source.replace("SIZE", "15_000_000")).code == 0
    usage.free = 2**25 - 2
    with pytest.raises(ConfinementError, match="free bytes, and a candidate needs"):
        run(source)


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
    assert run(source.replace("3_000", "30")).words == "it exited with status 0"


def test_filling_the_memory_is_rejected(run: Run) -> None:
    ended = run("x = bytearray(2_000_000_000)")
    assert ended.code == 1
    assert b"MemoryError" in ended.errors
    assert run("x = bytearray(200_000_000)").code == 0


@pytest.mark.sampled(2)
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
    assert run(few, memory_bytes=250_000_000).words == "it exited with status 0"


LET_GO = """
    import mmap, time
    held = mmap.mmap(-1, SIZE)
    for place in range(0, SIZE, 4096):
        held[place] = 1
        if place % 2**24 == 0: held.madvise(mmap.MADV_DONTNEED)
    held.madvise(mmap.MADV_DONTNEED)  # not resident any more, and still there
    assert held[0] == 1
    time.sleep(TIME)
"""
IN_FILES = """
    import time
    for folder, size in (("/dev/shm", SIZE), ("/tmp", SIZE // 4)):
        with open(folder + "/file", "wb") as file:
            for _ in range(size // 10**6): file.write(bytes(10**6))
    time.sleep(TIME)
"""
IN_SOCKETS = """
    import os, socket, time
    held = []
    for _ in range(SIZE // 500_000):
        pair = socket.socketpair()
        for one in pair:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**24)
            try:
                while True: one.send(bytes(60_000))
            except BlockingIOError: pass
        held.append(pair)
    sent = sum(len(one.recv(2**24)) for one in held[0])
    assert sent < 500_000, sent  # a wish for larger buffers is not granted
    time.sleep(TIME)
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", [LET_GO, IN_FILES, IN_SOCKETS], ids=["shared", "file", "socket"])
def test_memory_that_no_process_has_resident_counts(run: Run, source: str) -> None:
    much = source.replace("SIZE", "200_000_000").replace("TIME", "20")
    assert run(much, memory_bytes=150_000_000).status == "memory"
    little = source.replace("SIZE", "50_000_000").replace("TIME", "0.5")
    ended = run(little, memory_bytes=150_000_000)
    assert ended.words == "it exited with status 0", ended.errors.decode()


def test_forking_without_end_is_rejected(run: Run) -> None:
    source = "import os\nwhile True: os.fork()"
    assert run(source, seconds=15).status == "processes"  # and not the time
    few = "import os\nfor _ in range(20):\n    if os.fork() == 0: os._exit(0)"
    assert run(few).words == "it exited with status 0"


@pytest.mark.skipif(
    os.geteuid() == 0 and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 14),
    reason="the kernel does not limit root's tasks in a namespace",
)
def test_kernel_refuses_more_tasks_whoever_looks(run: Run) -> None:
    source = (
        "import errno, os, threading\n"
        "made = 0\n"
        "go_on = threading.Event()\n"
        "threading.stack_size(1 << 16)\n"
        "try:\n"
        "    for made in range(9_000): threading.Thread(target=go_on.wait, daemon=True).start()\n"
        "except RuntimeError: pass\n"
        "print(made, flush=True)\n"
        "os._exit(0)\n"
    )
    ended = run(source, processes=20, seconds=30)
    assert ended.words == "it exited with status 0", ended.errors
    assert 250 < int(ended.output) <= 320 + 300


def test_sleeping_for_ever_is_rejected(run: Run) -> None:
    source = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    ended = run(source, seconds=1)
    assert ended.words == "it ran for more than 1 seconds"
    assert ended.seconds < 60
    assert run("import time; time.sleep(0.3)", seconds=5).words == "it exited with status 0"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_printing_without_end_is_rejected(run: Run, stream: str) -> None:
    source = f"import sys\nwhile True: sys.{stream}.write('x' * 1_000)"
    ended = run(source, output_bytes=100_000)
    assert ended.words == "it printed more than 100,000 bytes"
    assert len(ended.output + ended.errors) == 100_000
    ended = run(f"import sys; sys.{stream}.write('x' * 100_000)", output_bytes=100_000)
    assert (ended.status, len(ended.output + ended.errors)) == ("exited", 100_000)


# Who is not to be left behind


def test_daemon_that_is_left_behind_is_rejected(run: Run, scratch: Path) -> None:
    ended = run(DAEMON)
    assert (ended.words, ended.leftovers) == ("it exited with status 0", 1)
    assert stands_still(scratch / "alive")
    waiting = "import subprocess; subprocess.Popen(['sleep', '0.2']).wait()"
    assert run(waiting).leftovers == 0


@pytest.mark.slow
def test_child_that_ends_a_moment_later_is_no_leftover(run: Run) -> None:
    source = "import subprocess; subprocess.Popen(['sleep', '2'])"
    assert run(source, leaving=0.5).leftovers == 1
    assert run(source, leaving=20.0).leftovers == 0


def test_nothing_outlives_the_one_who_asked(tree: Path, scratch: Path) -> None:
    code = f"""
        from pathlib import Path
        from judge.confinement.supervised import ResourceLimits, run
        run(["{{python}}", "-c", {textwrap.dedent(DAEMON + "    time.sleep(60)")!r}],
            tree=Path({str(tree)!r}), scratch=Path({str(scratch)!r}),
            limits=ResourceLimits(seconds=60, memory_bytes={MEMORY}))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as asker:
        alive = scratch / "alive"
        deadline = time.monotonic() + 60
        while not alive.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        asker.kill()
    assert stands_still(alive)
