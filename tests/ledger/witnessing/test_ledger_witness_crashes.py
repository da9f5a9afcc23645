"""A witness whose process is killed or whose machine loses power forgets nothing that it said."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from disk_model import Call, Disk, recorded
from witness_trees import NAME, ORIGIN, Log

from ledger.verification.verified_notes import open_tree_head, parse_note
from ledger.witnessing.cosignatures import open_cosignature
from ledger.witnessing.store import origin_hash
from ledger.witnessing.witness import Witness

TESTS = Path(__file__).parents[2]
SESSION = TESTS / "ledger" / "witness_session.py"
HONEST = Log.honest(60)

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace, which records the calls, is not installed"
)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(TESTS / "helpers"), str(TESTS.parent))))


def answered_in(said: Iterable[str]) -> int:
    return max((int(line) for line in said if line != "made"), default=0)


def is_said(call: Call) -> bool:
    return call.name == "write" and call.arguments[0] == "1"


def assert_remembers(folder: Path, *, answered: int) -> None:
    """Open without repair; find what was answered, and no other history cosigned."""
    with Witness.open(folder, passphrase=None) as witness:
        answer = witness.checkpoint(origin_hash(ORIGIN))
        latest = 0
        if answer.status == 200:
            latest = open_tree_head(answer.body, vkey=HONEST.vkey).size
            open_cosignature(parse_note(answer.body), vkey=witness.vkey)
            fork = HONEST.forked(0)
            assert witness.add_checkpoint(fork.request(latest, latest)).status == 422
            assert witness.add_checkpoint(fork.request(latest, latest + 1)).status == 422
        assert answered <= latest <= answered + 1
        assert witness.add_checkpoint(HONEST.request(latest, latest + 1)).status == 200
    with closing(sqlite3.connect(folder / "witness.sqlite")) as c:
        assert c.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def kill_while_it_cosigns(folder: Path, *, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(kills):
        command = [sys.executable, str(SESSION), str(folder), "50"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(rng.randint(1, 8))]
            child.kill()
            said += child.stdout.readlines()
        answered = answered_in(line.strip() for line in said if line.endswith("\n"))
        assert said[0] == "made\n"
        if answered:
            assert_remembers(folder, answered=answered)
        if answered > 35:
            shutil.rmtree(folder)


def test_witness_killed_at_random_forgets_nothing_that_it_answered(tmp_path: Path) -> None:
    kill_while_it_cosigns(tmp_path / "state", kills=5, seed=1)


@pytest.mark.slow
def test_witness_killed_many_times_forgets_nothing(tmp_path: Path) -> None:
    kill_while_it_cosigns(tmp_path / "state", kills=60, seed=2)


def power_losses(tmp_path: Path, *, heads: int, share: float, seed: int) -> int:
    """Cut the power after each answer and some other calls; return after how many it stood."""
    folder, rng = tmp_path / "state", random.Random(seed)
    calls, done = recorded([str(SESSION), str(folder), str(heads)], log=tmp_path / "log")
    assert done.returncode == 0, done.stderr
    assert answered_in(done.stdout.split()) == heads
    disk, stood = Disk(folder), 0
    for number, call in enumerate(calls):
        disk.apply(call)
        if rng.random() > share and not is_said(call):
            continue
        target = tmp_path / f"after-{number}"
        target.mkdir()
        disk.crash(target, rng)
        said = disk.said.decode().split()
        if said:
            assert_remembers(target, answered=answered_in(said))
            stood += 1
        else:  # what was interrupted while it was made is made
            Witness.create(target, name=NAME, passphrase=None)
        shutil.rmtree(target)
    assert disk.said.decode() == done.stdout
    return stood


@needs_strace
def test_power_losses_let_the_witness_forget_nothing_that_it_answered(tmp_path: Path) -> None:
    assert power_losses(tmp_path, heads=4, share=0.05, seed=1) > 1


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("seed", range(2))
def test_power_losses_at_every_call_let_the_witness_forget_nothing(
    tmp_path: Path, seed: int
) -> None:
    assert power_losses(tmp_path, heads=12, share=1.0, seed=seed) > 30


@needs_strace
def test_power_loss_after_a_failed_sync_and_a_kill_forgets_nothing(tmp_path: Path) -> None:
    # The frames of a failed sync look whole to the next process, and are not on the disk.
    folder, rng = tmp_path / "state", random.Random("sync")
    session = [str(SESSION), str(folder), "4"]
    calls, _ = recorded([str(SESSION), str(tmp_path / "unharmed"), "4"], log=tmp_path / "log")
    third = [number for number, call in enumerate(calls) if is_said(call)][3]
    nth = sum(call.name == "fdatasync" for call in calls[:third])
    options = ("-e", f"inject=fdatasync:error=EIO:when={nth}")
    before, first = recorded(session, log=tmp_path / "a", options=options)
    assert answered_in(first.stdout.split()) == 2
    after, second = recorded(session, log=tmp_path / "b")
    assert answered_in(second.stdout.split()) == 4
    disk = Disk(folder)
    for call in before:
        disk.apply(call)
    disk.start_process()
    for number, call in enumerate(after):
        disk.apply(call)
        if is_said(call):
            target = tmp_path / f"after-{number}"
            target.mkdir()
            disk.crash(target, rng)
            assert_remembers(target, answered=answered_in(disk.said.decode().split()))
