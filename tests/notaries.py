"""Notaries and their clients for tests: real processes, under user ids of their own.

Other users need root to become them, and an interpreter that they may run. The numbers need no
accounts.
"""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTARY, HONEST, HOSTILE, JUDGE, READER, STRANGER = range(20_001, 20_007)
_START = "from proctor.notary_cli import app; app(prog_name='notary')"


@functools.cache
def why_no_other_users() -> str | None:
    """Return why tests cannot act as other users here, None if they can."""
    if os.geteuid() != 0:
        return "only root can act as other users"
    try:
        done = run_as(HOSTILE, "import ledger.sqlite, torch", check=False)
    except PermissionError:
        return "other users cannot run this interpreter"
    if done.returncode:
        return f"other users cannot run this project: {done.stderr.strip()[-200:]}"
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
        return self.process.wait(timeout=30)

    def start_again(self) -> None:
        self.process = _start(self.arguments)


@contextmanager
def running_notary(
    folder: Path,
    rules: str,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RunningNotary]:
    """Run a notary: as its own user if root runs the tests, else as whoever does."""
    home, socket, rules_file = folder / "home", folder / "run" / "socket", folder / "rules.toml"
    rules_file.write_text(rules)
    rules_file.chmod(0o644)
    arguments: list[object] = ["--home", home, "--socket", socket, "--rules", rules_file]
    if os.geteuid() == 0:
        arguments += ["--user", NOTARY]
    else:
        home.mkdir(mode=0o700, exist_ok=True)
        socket.parent.mkdir(mode=0o755, exist_ok=True)
    command = list(map(str, arguments))
    process = _start(command, environment)
    assert process.stdout is not None
    vkey = process.stdout.readline().strip()
    assert process.stdout.readline().startswith("listening"), process.communicate()
    notary = RunningNotary(process, home, socket, vkey, command)
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
        [sys.executable, "-c", _START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
    )


def run_as(
    uid: int, code: str, *arguments: object, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run some Python as another user, with nothing of root left."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=check,
        timeout=options.pop("timeout", 60),
        user=uid,
        group=uid,
        extra_groups=[],
        cwd=options.pop("cwd", ROOT),
        **options,
    )


@contextmanager
def in_background(uid: int, code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run some Python as another user until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answer_as(uid: int, code: str, *arguments: object, **options: Any) -> Any:
    """Run some Python as another user and return what it printed as JSON."""
    done = run_as(uid, code, *arguments, check=False, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def wait_for(condition: Any, *, seconds: float = 10) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
