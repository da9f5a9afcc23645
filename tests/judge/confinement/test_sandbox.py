"""Hostile submissions: each becomes a failed stage in words, beside an honest one that passes."""

import gc
import hashlib
import os
import pickle
import platform
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from submitted_code import BATCH, HONEST, LIMITS, SPEC, judged

from judge.config import JudgeConfig
from judge.confinement.sandbox import Problem
from judge.confinement.seccomp import ARCHITECTURES
from judge.confinement.worker import SOURCE, describe, load_submitted_model
from judge.declared import read_declared
from judge.errors import JudgeError
from monitor.model import ResidualCNN


def said(text: str) -> dict[str, object]:
    return {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.usefixtures("afresh")
def test_examination_is_complete_when_the_submission_is_honest() -> None:
    model = ResidualCNN(SPEC, seed=8).eval()
    gc.collect()  # what other tests left open
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        found = judged("print('hello')" + HONEST)
        gc.collect()
    assert [str(each.message) for each in warned] == []  # nothing is left open
    assert (found.stage, found.problem, found.printed) == ("done", None, said("hello\n"))
    assert found.parameters == tuple((n, tuple(p.shape)) for n, p in model.named_parameters())
    assert found.modules[0] == ("", "ResidualCNN")
    assert torch.equal(found.fresh["stem.weight"], ResidualCNN(SPEC, seed=3).stem.weight)
    assert found.logits is not None
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model(BATCH))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "defines no function load_model"),
        ("load_model = 3", "defines no function load_model"),
        ("load_model = lambda path: 1", "missing 1 required positional argument"),
        ("load_model = dict", "does not return a torch.nn.Module"),
        ("load_model", "name 'load_model' is not defined"),
        ("load model", "invalid syntax"),
    ],
)
def test_submission_without_a_model_is_rejected(source: str, words: str) -> None:
    with pytest.raises((NameError, SyntaxError, TypeError), match=words):
        load_submitted_model(source.encode())


def test_submission_with_a_model_is_loaded() -> None:
    assert type(load_submitted_model(HONEST.encode())) is ResidualCNN


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\nraise SystemExit(0)", "SystemExit in line 2 of model.py"),
        ("import os; os._exit(0)", "it exited with status 0"),
        ("while True: pass", "it was killed by signal"),
        ("while True: print('x' * 1_000)", "it printed more than 4,096 bytes"),
        ("import torch; torch.zeros(10**10)", "RuntimeError in line 1 of model.py"),
        ("import os; os.closerange(3, 256)", "it exited with status"),
        ("\nraise StopIteration", "StopIteration in line 2 of model.py"),
        (
            "import os\nfor fd in range(3, 12):\n  try: os.write(fd, b'{' * 99)\n"
            "  except OSError: pass\nos._exit(0)",
            "its answer is too large",
        ),
    ],
    ids=["exit", "vanish", "loop", "flood", "memory", "close", "stop", "garbage"],
)
def test_submission_that_misbehaves_is_rejected(source: str, words: str) -> None:
    found = judged(source, config=replace(LIMITS, child_cpu_seconds=2))
    assert found.stage == "load"
    assert found.problem is not None
    assert words in found.problem
    assert found.printed["bytes"] <= 4_096


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\nraise SystemExit(0)", "SystemExit in line 2 of model.py"),
        ("load_model = dict", "load_model() does not return a torch.nn.Module"),
        ("\nload model", "SyntaxError in line 2 of model.py"),
        ("class Mine(Exception): pass\nraise Mine", "not a Python built-in in line 2 of model.py"),
    ],
    ids=["exit", "none", "syntax", "own"],
)
def test_exception_is_told_by_its_type_and_line(source: str, words: str) -> None:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - of every kind
        load_submitted_model(source.encode())
    assert words in str(read_declared(describe(raised.value, SOURCE), Problem))


@pytest.mark.slow
def test_submission_that_sleeps_is_rejected() -> None:
    found = judged("import time; time.sleep(1_000)", config=JudgeConfig(child_seconds=2.0))
    assert found.problem == "it ran for more than 2 seconds"


@pytest.mark.usefixtures("afresh")
def test_submission_that_reaches_out_is_rejected(tmp_path: Path) -> None:
    target = tmp_path / "ledger.sqlite"
    target.write_bytes(b"evidence")
    attempts = (
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "subprocess.run(['true'])",
        "socket.socket()",
        "os.kill(os.getppid(), 9)",
        "os.open(TARGET, os.O_WRONLY)",
        "open(TARGET + '.new', 'w')",
        "os.remove(TARGET)",
        "os.rename(TARGET, TARGET + '.old')",
        "os.chmod(TARGET, 0o777)",
        "resource.setrlimit(resource.RLIMIT_CPU, (1_000, 1_000))",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
        "os.sched_setaffinity(0, {0})",
        "os.sched_setaffinity(os.getppid(), {0})",
        "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))",
        "os.nice(5)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "os.memfd_create('uncounted')",
        "mmap.mmap(-1, 2**20)",
        "mmap.mmap(-1, 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)",
        "mmap.mmap(-1, 2**36, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)",
        "socket.socketpair()",
        "fcntl.flock(os.open(os.__file__, os.O_RDONLY), fcntl.LOCK_EX)",
        "fcntl.fcntl(0, 1024, 1)",
        "os.mkfifo(TARGET + '.fifo')",
        "ask(444, None, 0, 1)",  # a ruleset of Landlock
        "ask(317, 3, 0, sizes)",  # a filter of system calls
    )
    found = judged(
        "import ctypes, fcntl, mmap, os, resource, socket, subprocess\n"
        f"TARGET = {str(target)!r}\n"
        "sizes = ctypes.create_string_buffer(64)\n"
        "def ask(*call):\n"
        "    if ctypes.CDLL(None).syscall(*call) < 0: raise OSError\n"
        f"for attempt in {attempts!r}:\n"
        "    try: exec(attempt); print('did', attempt)\n"
        "    except (OSError, ValueError): print('refused')\n" + HONEST
    )
    if platform.system() != "Linux" or platform.machine() not in ARCHITECTURES:
        assert "system-call filter" not in found.isolation  # and the audit says so
        return
    assert "system-call filter" in found.isolation
    assert found.printed == said("refused\n" * len(attempts))
    assert found.stage == "done"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]
    assert target.read_bytes() == b"evidence"


@pytest.mark.parametrize("call", ["syscall(272, 0x10000000)", "syscall(101, 0, 0, 0, 0)"])
def test_submission_that_attacks_the_kernel_is_ended(call: str) -> None:
    found = judged(f"import ctypes\nctypes.CDLL(None).{call}\n" + HONEST)
    assert (found.stage, found.problem) == ("load", "it was killed by signal 31")


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere nothing counts threads")
def test_submission_that_takes_all_threads_is_rejected() -> None:
    found = judged(
        "import threading, time; threading.stack_size(65_536)\n"
        "def begin(): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "for _ in range(600): begin()\n"
    )
    # Without namespaces of its own the user may be root outside, whom no limit binds.
    if {"unprivileged user", "own namespaces"} <= set(found.isolation):
        assert (found.stage, found.problem) == ("load", "RuntimeError in line 2 of model.py")


@pytest.mark.slow
@pytest.mark.usefixtures("afresh")
def test_submission_that_computes_in_threads_is_examined_and_sees_nothing_of_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What an honest model may do with the system, where the filter allows it and where not.
    monkeypatch.setenv("PROCTOR_KEY_PASSPHRASE", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    found = judged(
        "import ctypes, mmap, os, random, signal, sys, tempfile, threading, time\n"
        "assert not [name for name in os.environ if 'PROCTOR' in name or 'API_KEY' in name]\n"
        "assert 'secret' not in os.environ.values()\n"
        "assert sys.stdin.read() == ''\n"
        "import numpy, torch\n"
        "torch.set_num_threads(4)\n"
        "torch.randn(300, 300) @ torch.randn(300, 300)\n"
        "torch.nn.functional.conv2d(torch.randn(4, 8, 32, 32), torch.randn(8, 8, 3, 3))\n"
        "torch.randn(64, 64).bfloat16() @ torch.randn(64, 64).bfloat16()\n"
        "numpy.linalg.svd(numpy.random.default_rng(0).normal(size=(200, 200)))\n"
        "held = mmap.mmap(-1, 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "thread = threading.Thread(target=time.sleep, args=(0.01,))\n"
        "thread.start(); thread.join()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('caught', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "os.pipe(); os.cpu_count(); os.sched_getaffinity(0); os.isatty(0); os.getloadavg\n" + HONEST
    )
    assert (found.stage, found.problem, found.printed) == ("done", None, said("caught\n"))


def test_weights_that_are_a_pickle_are_never_opened(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(flag),))

    found = judged(HONEST, weights=pickle.dumps(Bomb()))
    assert found.stage == "weights"
    assert not flag.exists()


def test_weights_of_another_shape_are_rejected() -> None:
    found = judged(HONEST, weights=save({"stem.weight": torch.zeros(2, 2)}))
    assert found.stage == "weights"
    assert found.passed("load")
    assert not found.passed("weights")
    assert found.problem == "RuntimeError"


@pytest.mark.usefixtures("afresh")
def test_examination_is_an_error_of_ours_when_the_process_cannot_start() -> None:
    starved = JudgeConfig(child_memory_bytes=2**20)
    with pytest.raises(JudgeError, match="the process for submitted code did not start"):
        judged(HONEST, config=starved)
