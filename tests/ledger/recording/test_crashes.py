"""Killed processes, failing system calls, power losses: what was acknowledged is there, and whole.

Fast samples run always; `make test-slow` runs a thousand kills, and a fault at every fifth call or,
with EXHAUSTIVE=1, at every single one.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import crash_session
import crash_writers
import pytest
from crash_session import BUNDLE, MEMORY, last_version
from disk_model import CHANGING, Call, Disk, recorded, traced
from eventsourcing.persistence import StoredEvent
from exhaustive import EXHAUSTIVE

from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.errors import LedgerError
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle, is_bundle
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory
from ledger.verification.reader import check_ledger, open_verified
from ledger.verification.verified_notes import parse_tree_head

SESSION = str(crash_session.__file__)
needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace, which injects the faults, is not installed"
)


def assert_whole(directory: Path, said: Iterable[str]) -> int:
    """Open without repair, find all that was acknowledged, append once more, verify."""
    acknowledged = [line.split() for line in said]
    with LedgerApplication.open(directory, EventRegistry()) as app:
        probe = uuid4()
        app.recorder.insert_events([StoredEvent(probe, 1, "test.probe", b"")])
        assert last_version(app, probe) == 1
    versions: Counter[UUID] = Counter()
    places = set()
    with open_verified(directory) as ledger:
        for entry in ledger.entries():
            versions[entry.stream_id] = entry.stream_version
            places.add((str(entry.stream_id), str(entry.stream_version), str(entry.index)))
        size = ledger.size
        cosigned = {
            parse_tree_head(note).size
            for note in ledger.head_notes()
            if note.count("\n\u2014 ") > 1
        }
        keys = {record.vkey for record in ledger.authority.keys}
        remembered = Memory(directory / MEMORY).recall(ledger.vkey)
    assert check_ledger(directory, memory=Memory(directory / MEMORY)).ok
    bundle = directory / BUNDLE
    handed_out = check_bundle(bundle) if is_bundle(bundle) else None
    assert handed_out is None or handed_out.ok, handed_out
    if bundle.exists():  # what was begun can be finished
        export_bundle(directory, bundle)
        assert check_bundle(bundle).size == size
    blobs = BlobStore(LedgerPaths(directory).blobs)
    for kind, *what in acknowledged:
        if kind == "blob":
            blobs.get(what[0])
        elif kind == "rotation":
            assert what[0] in keys
        elif kind == "remembered":
            assert remembered is not None
            assert remembered.open().size >= int(what[0])
        elif kind == "exported":
            assert handed_out is not None
            assert handed_out.size >= int(what[0])
        elif kind == "cosigned":
            assert int(what[0]) in {0, *cosigned}
        elif kind == "event":
            assert versions[UUID(what[0])] >= int(what[1]), (kind, *what)
            assert len(what) == 2 or tuple(what) in places
    return size


class Writers:
    """Starts and kills writers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._seeds = 0

    def ask(self, command: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, directory: Path, acknowledged: Path) -> int:
        self._seeds += 1
        return self.ask(f"start {directory} {acknowledged} {self._seeds}")

    def kill(self, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            assert self.ask(f"wait {pid}") == signal.SIGKILL, "a writer has failed by itself"


@contextmanager
def writers() -> Iterator[Writers]:
    with subprocess.Popen(
        [sys.executable, crash_writers.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Writers(process)
        assert process.stdin is not None
        process.stdin.close()


def kill_writers(tmp_path: Path, *, kills: int, seed: str) -> int:
    """Kill so many writers, one to three at a time, in ledgers that live for a while each."""
    rng = random.Random(seed)
    killed = acknowledged_at_all = ledgers = lives = 0
    with writers() as pool:
        while killed < kills:
            if lives == 0:  # a new ledger, often for a single life: creation is killed as well
                ledgers += 1
                lives = rng.choice((1, 1, 1, 10, 30))
                directory = tmp_path / f"ledger-{ledgers}"
                acknowledged = tmp_path / f"acknowledged-{ledgers}"
                acknowledged.touch()
            lives -= 1
            pids = [pool.start(directory, acknowledged) for _ in range(rng.randint(1, 3))]
            time.sleep(rng.choice((0.01, 0.03, 0.1)) * rng.random())
            pool.kill(pids)
            killed += len(pids)
            lines = acknowledged.read_text().splitlines()
            acknowledged_at_all += len(lines)
            assert_whole(directory, lines)
            if lives == 0:
                shutil.rmtree(directory)
    assert acknowledged_at_all > kills  # the writers were at work when they were killed
    return killed


def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    assert kill_writers(tmp_path, kills=30, seed="thirty kills") >= 30


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_killed_writers_lose_nothing_acknowledged(tmp_path: Path, part: int) -> None:
    assert kill_writers(tmp_path, kills=300, seed=f"kills {part}") >= 300


@dataclass(frozen=True)
class Fault:
    """The nth call of this name fails so, or is the last that the process makes."""

    call: str
    nth: int
    how: str

    @property
    def options(self) -> tuple[str, str]:
        return ("-e", f"inject={self.call}:{self.how}:when={self.nth}")


def calls_on(directory: Path, *, log: Path, names: str = CHANGING) -> Iterator[tuple[str, int]]:
    """Run the session unharmed; yield each call on the ledger's files and its number."""
    done = traced([SESSION, str(directory)], log=log, calls=names, options=("-y",))
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stdout
    assert_whole(directory, done.stdout.splitlines())
    counts: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        if match:
            counts[match[1]] += 1
            if str(directory) in line:
                yield match[1], counts[match[1]]


def chosen_faults(tmp_path: Path) -> list[Fault]:
    """Return faults and a kill for every call; of the hundreds of pages of the large batch,
    which SQLite all writes in one and the same way, for each 30th.
    """
    calls = list(calls_on(tmp_path / "unharmed", log=tmp_path / "log"))
    pages = [number for name, number in calls if name == "pwrite64"]
    kept = {*pages[:70], *pages[-70:], *pages[::30]}
    faults = []
    for name, number in calls:
        if name == "pwrite64" and number not in kept:
            continue
        syncs = name in ("fsync", "fdatasync", "unlink")
        faults.append(Fault(name, number, "error=EIO" if syncs else "error=ENOSPC"))
        if name in ("write", "pwrite64"):
            faults.append(Fault(name, number, "error=EIO"))
        faults.append(Fault(name, number, "signal=KILL"))
    return faults


@dataclass(frozen=True)
class Outcome:
    """What a session with a fault refused, and what was wrong with what it left."""

    refused: tuple[str, ...]
    wrong: str | None


def inject(fault: Fault, tmp_path: Path) -> Outcome:
    """Run the session with this fault and check what it leaves."""
    directory = tmp_path / "ledger"
    done = traced(
        [SESSION, str(directory)], log=tmp_path / "log", calls=fault.call, options=fault.options
    )
    lines = done.stdout.splitlines()
    wrong = None
    if done.returncode != (-signal.SIGKILL if fault.how == "signal=KILL" else 0):
        wrong = f"exit status {done.returncode}: {done.stderr}"
    else:
        try:
            assert_whole(directory, lines)
        except (LedgerError, AssertionError) as e:
            wrong = f"{type(e).__name__}: {e}"
    shutil.rmtree(directory)
    refused = tuple(line for line in lines if line.startswith("error"))
    return Outcome(refused, wrong and f"{fault}: {wrong}; the session said {lines}")


@needs_strace
def test_failing_calls_and_kills_at_calls_lose_nothing_acknowledged(tmp_path: Path) -> None:
    faults = random.Random("faults").sample(chosen_faults(tmp_path), 3)
    assert not [wrong for fault in faults if (wrong := inject(fault, tmp_path).wrong)]


@pytest.mark.slow
@needs_strace
def test_no_single_failing_call_or_kill_at_a_call_loses_anything_acknowledged(
    tmp_path: Path,
) -> None:
    faults = chosen_faults(tmp_path)[:: 1 if EXHAUSTIVE else 5]
    outcomes = [inject(fault, tmp_path) for fault in faults]
    assert len(faults) > 250
    assert not [each.wrong for each in outcomes if each.wrong]
    refused = [each.refused for each in outcomes if each.refused]
    assert len(refused) > 50  # the faults were felt
    for line in (line for lines in refused for line in lines):
        named = rf"error (StorageError|KeyFileError): {tmp_path}/.*: .*"
        assert re.match(rf"{named}|error BundleError: an empty ledger", line), line


def power_losses(
    calls: list[Call], disk: Disk, tmp_path: Path, *, moments: Iterable[int], rng: random.Random
) -> list[str]:
    """Replay the calls on the disk; cut the power after each of these; return what was wrong."""
    wanted = set(moments)
    wrong = []
    for number, call in enumerate(calls):
        disk.apply(call)
        if number not in wanted:
            continue
        directory = tmp_path / f"after-{number}"
        directory.mkdir()
        disk.crash(directory, rng)
        try:
            assert_whole(directory, disk.said.decode().splitlines())
        except (LedgerError, AssertionError) as e:
            wrong.append(f"after call {number}, {call.name}: {type(e).__name__}: {e}")
        shutil.rmtree(directory)
    return wrong


@needs_strace
def test_power_losses_lose_nothing_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    steps = (
        *("open", "append", "blob", "verify", "export", "rotate", "append", "close"),
        *("open", "append", "verify", "export"),
    )
    calls, done = recorded([SESSION, str(directory), *steps], log=tmp_path / "log")
    assert done.returncode == 0, done.stderr
    disk, rng = Disk(directory), random.Random("power")
    moments = rng.sample(range(len(calls)), 15)
    assert not power_losses(calls, disk, tmp_path, moments=moments, rng=rng)
    assert disk.said.decode() == done.stdout
    assert done.stdout.count("event") == 3


@pytest.mark.slow
@needs_strace
def test_power_losses_at_every_call_lose_nothing_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    steps = (
        *("open", "append", "blob", "verify", "export", "rotate", "append", "close"),
        *("open", "append", "append", "verify", "export"),
    )
    calls, done = recorded([SESSION, str(directory), *steps], log=tmp_path / "log")
    assert done.stdout.count("event") == 4
    for seed in range(5 if EXHAUSTIVE else 1):
        disk, rng = Disk(directory), random.Random(seed)
        assert not power_losses(calls, disk, tmp_path, moments=range(len(calls)), rng=rng)


@needs_strace
def test_power_loss_after_a_failed_sync_and_a_kill_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    # What a failed sync has not written is lost, though the machine still reads it from memory.
    # A writer that dies then leaves a log that looks whole; nothing may be built on it.
    directory = tmp_path / "ledger"
    session = [SESSION, str(directory), "open", "append", "append", "die"]
    unharmed, _ = recorded([SESSION, str(tmp_path / "unharmed"), *session[2:]], log=tmp_path / "a")
    syncs = sum(call.name == "fdatasync" for call in unharmed)
    for nth in (syncs, syncs - 1):
        fault = Fault("fdatasync", nth, "error=EIO")
        before, first = recorded(session, log=tmp_path / "b", options=fault.options)
        after, second = recorded(session, log=tmp_path / "c")
        assert (first.stdout.count("event"), first.stdout.count("error S")) == (1, 1), first.stdout
        assert (second.stdout.count("event"), second.stdout.count("error S")) == (2, 0)
        disk, rng = Disk(directory), random.Random("sync")
        for call in before:
            disk.apply(call)
        disk.start_process()
        said = [n for n, call in enumerate(after) if call.name == "write"]
        assert not power_losses(after, disk, tmp_path, moments=said, rng=rng)
        shutil.rmtree(directory)


@pytest.mark.parametrize("step", [997, pytest.param(193, marks=pytest.mark.slow)])
def test_write_ahead_log_cut_at_any_byte_is_an_earlier_ledger(tmp_path: Path, step: int) -> None:
    whole = tmp_path / "whole"
    subprocess.run(
        [sys.executable, SESSION, str(whole), "open", "append", "append", "append", "die"],
        check=False,
        capture_output=True,
    )
    log = whole / "ledger.sqlite-wal"
    content = log.read_bytes()
    sizes = []
    for cut in (*range(0, len(content), step), len(content)):
        directory = tmp_path / "cut"
        shutil.copytree(whole, directory, ignore=shutil.ignore_patterns("*-shm"))
        (directory / log.name).write_bytes(content[:cut])
        sizes.append(assert_whole(directory, []) - 1)  # without the probe
        shutil.rmtree(directory)
    assert sizes == sorted(sizes)
    assert set(sizes) == {0, 1, 2, 3}
