"""Notaries and their clients for tests: real processes, under user ids of their own.

Other users need root to become them, and an interpreter that they may run. The numbers need no
accounts.
"""

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from json_answers import check_json

from ledger.notary.client import NotaryClient
from ledger.notary.remote import RemoteRecorder

ROOT = Path(__file__).parents[2]
NOTARY, HONEST, HOSTILE, JUDGE, READER, STRANGER = range(20_001, 20_007)
_TRY = "import importlib.util, ledger.application, duckdb; importlib.util.find_spec('torch').loader"
# urllib: pathlib imports it late since Python 3.13, when other users may not read the interpreter.
_START = "import urllib.parse; from proctor.cli.notary import app; app(prog_name='notary')"


@functools.cache
def find_interpreter() -> str | None:
    """Return an interpreter that other users can run with this project's modules."""
    subprocess.run([sys.executable, "-c", _TRY], check=True)  # or every user's attempt would fail
    for path in (Path(sys.executable), _system_interpreter()):
        try:
            done = subprocess.run(
                [path, "-c", _TRY],
                user=STRANGER,
                group=STRANGER,
                extra_groups=[],
                capture_output=True,
                cwd="/",
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return str(path)
    return None


def _system_interpreter() -> Path:
    """Make an environment around the system's own interpreter, where ours is root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="python"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(f"/usr/bin/python3.{sys.version_info.minor}")
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")  # with the modules that are installed
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return python


@functools.cache
def why_no_other_users() -> str | None:
    """Return why tests cannot act as other users here, None if they can."""
    if os.geteuid() != 0:
        return "only root can act as other users"
    if find_interpreter() is None:
        return "no interpreter here can be run by other users with this project's modules"
    return None


def needs_other_users() -> None:
    """Skip a test where there are none."""
    if reason := why_no_other_users():
        pytest.skip(reason)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="notary"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@dataclass
class RunningNotary:
    """One notary's process, and where its things are."""

    process: subprocess.Popen[str]
    home: Path
    socket: Path
    vkey: str
    arguments: list[str]

    @property
    def ledger(self) -> Path:
        return self.home / "ledger"

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def start_again(self) -> None:
        self.process = _start(self.arguments)
        _wait_until_it_listens(self.process)


@contextmanager
def running_notary(
    folder: Path,
    rules: str,
    *,
    environment: Mapping[str, str] | None = None,
    any_events: bool = True,
) -> Iterator[RunningNotary]:
    """Run a notary: as its own user if root runs the tests, else as whoever does."""
    home, socket, rules_file = folder / "home", folder / "run" / "socket", folder / "rules.toml"
    rules_file.write_text(rules)
    rules_file.chmod(0o644)
    arguments: list[object] = ["--home", home, "--socket", socket, "--rules", rules_file]
    arguments += ["--json"]
    if os.geteuid() == 0:
        arguments += ["--user", NOTARY]
    else:
        home.mkdir(mode=0o700, exist_ok=True)
        socket.parent.mkdir(mode=0o755, exist_ok=True)
    if any_events:  # the ledger's own tests have events of their own
        arguments += ["--any-events"]
    command = list(map(str, arguments))
    process = _start(command, environment)
    notary = RunningNotary(process, home, socket, _wait_until_it_listens(process), command)
    try:
        yield notary
    finally:
        if notary.process.poll() is None:
            notary.process.kill()
        notary.process.communicate()


def _start(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [find_interpreter() or sys.executable, "-c", _START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
    )


def _wait_until_it_listens(process: subprocess.Popen[str]) -> str:
    """Return the vkey that a notary prints when it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith('{"address"'), process.communicate()
    check_json(["notary"], line)
    return str(json.loads(line)["vkey"])


def start_as(
    uid: int,
    code: str,
    *arguments: object,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start some Python as another user, with nothing of root left."""
    interpreter = find_interpreter()
    assert interpreter is not None
    return subprocess.Popen(
        [interpreter, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd=cwd,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parent),
            "COLUMNS": "100",
            **(environment or {}),
        },
    )


def run_as(
    uid: int, code: str, *arguments: object, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run some Python as another user to its end."""
    with start_as(uid, code, *arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=600)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def proctor_as(
    uid: int, arguments: Sequence[object], *, home: Path, socket: Path
) -> subprocess.CompletedProcess[str]:
    """Run the command line as another user, in a home of their own, through a notary."""
    home.mkdir(exist_ok=True)
    os.chown(home, uid, uid)
    return run_as(
        uid,
        "from proctor.cli.main import main; main()",
        *arguments,
        cwd=home,
        environment={
            "HOME": str(home),
            "PROCTOR_HOME": str(home),
            "PROCTOR_NOTARY": str(socket),
            "PROCTOR_STATE": "off",
        },
    )


_CALL = (
    "import importlib, json, sys; module, name, arguments = json.loads(sys.argv[1]);"
    "print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))"
)


def call_as(uid: int, function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a function returns in a process of another user; JSON goes in and out."""
    done = run_as(uid, _CALL, _spell(function, arguments))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def calling_as(
    uid: int, function: Callable[..., Any], *arguments: object
) -> Iterator[subprocess.Popen[str]]:
    """Let a function run in a process of another user until the block ends."""
    with start_as(uid, _CALL, _spell(function, arguments)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _spell(function: Callable[..., Any], arguments: Sequence[object]) -> str:
    given = [each if isinstance(each, int) else str(each) for each in arguments]
    return json.dumps([function.__module__, function.__qualname__, given])


def append_honestly(path: str, batches: int, size: int) -> dict[str, Any]:
    """Append batches to one stream, and return how long that took and what was acknowledged."""
    recorder = RemoteRecorder(NotaryClient(Path(path)))
    stream, started = uuid4(), time.monotonic()
    acknowledged: list[int] = []
    for at in range(batches):
        acknowledged += recorder.insert_events(
            [
                StoredEvent(stream, at * size + number, "run.honest", b"honest")
                for number in range(1, size + 1)
            ]
        )
    return {
        "seconds": time.monotonic() - started,
        "stream": str(stream),
        "acknowledged": acknowledged,
    }


def wait_for(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
