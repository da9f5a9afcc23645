"""Clocks that are set: the ledger's time never runs backwards, and a jump is told of once."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.bodies import decode_body, encode_body
from ledger.errors import ConflictError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.authority import Authority
from ledger.verification.reader import check_ledger, open_verified

SECOND = 10**9
START = 1_000 * SECOND


@dataclass
class Machine:
    """A clock that can be set beside one that cannot."""

    clock: int = START
    steady: int = 0

    def wait(self, seconds: int) -> None:
        self.clock += seconds * SECOND
        self.steady += seconds * SECOND

    def set(self, seconds: int) -> None:
        self.clock += seconds * SECOND


@contextmanager
def recorder_on(
    directory: Path, machine: Machine, *, steady: bool = True
) -> Iterator[SignedRecorder]:
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        yield SignedRecorder(
            database,
            signer=signer,
            clock=lambda: machine.clock,
            steady_clock=(lambda: machine.steady) if steady else None,
        )


def append(recorder: SignedRecorder, *, count: int = 1) -> list[int]:
    stream = uuid4()
    events = [StoredEvent(stream, v + 1, "test.event", b"") for v in range(count)]
    return list(recorder.insert_events(events))


def jumps(directory: Path) -> list[tuple[int, int]]:
    """Return index and size (s) of each recorded jump, of a ledger that holds."""
    assert check_ledger(directory).ok
    with open_verified(directory) as ledger:
        return [
            (entry.index, decode_body(entry.body)["by"] // SECOND)
            for entry in ledger.entries()
            if entry.name == "clock.jumped"
        ]


def test_clock_that_runs_on_is_no_jump(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        for seconds in (0, 1, 100_000, 0):  # suspended in between, as far as anyone knows
            machine.wait(seconds)
            append(recorder)
        machine.set(-9)
        append(recorder)
        machine.set(10)
        append(recorder)
    assert jumps(tmp_path) == []


def test_jump_backwards_is_told_of_once_and_time_stands_still(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        assert append(recorder) == [1]
        machine.set(-60)
        assert append(recorder, count=2) == [3, 4]  # the caller's own events
        machine.wait(20)
        assert append(recorder) == [5]
        machine.wait(70)
        assert append(recorder) == [6]
    assert jumps(tmp_path) == [(1, -60)]
    with open_verified(tmp_path) as ledger:
        times = [entry.time_ns // SECOND for entry in ledger.entries()]
    assert times == [1_000, 1_000, 1_000, 1_000, 1_000, 1_030]


@pytest.mark.parametrize("steady", [True, False])
def test_clock_behind_the_last_entry_is_told_of_once_by_all_recorders(
    tmp_path: Path, steady: bool
) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine, steady=steady) as recorder:
        append(recorder)
    machine.set(-60)
    for _ in range(3):
        with recorder_on(tmp_path, machine, steady=steady) as recorder:
            append(recorder)
            machine.wait(5)
            append(recorder)
    assert jumps(tmp_path) == [(1, -60)]


def test_jump_forwards_and_back_is_told_of_each_time(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        append(recorder)
        machine.set(3_600)
        append(recorder)
        machine.set(-3_600)
        append(recorder)
        machine.set(-30)  # behind already, and further now
        append(recorder)
    assert jumps(tmp_path) == [(1, 3_600), (3, -3_600), (5, -30)]


def test_jump_forwards_is_not_taken_for_the_jump_back_after_it(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        append(recorder)
        machine.set(3_600)
        append(recorder)
    machine.set(-3_600)
    with recorder_on(tmp_path, machine) as recorder:  # has no last append to compare with
        append(recorder)
    assert jumps(tmp_path) == [(1, 3_600), (3, -3_600)]


def test_jump_of_a_batch_that_fails_is_told_of_in_the_next(tmp_path: Path) -> None:
    machine = Machine()
    stream = UUID(int=1)
    with recorder_on(tmp_path, machine) as recorder:
        recorder.insert_events([StoredEvent(stream, 1, "test.event", b"")])
        machine.set(-60)
        with pytest.raises(ConflictError):
            recorder.insert_events([StoredEvent(stream, 1, "test.event", b"")])
        assert recorder.max_notification_id() == 1
        append(recorder)
    assert jumps(tmp_path) == [(1, -60)]


def test_batch_in_the_authority_stream_is_let_through_before_the_jump(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        append(recorder)
        stream = Authority(LedgerPaths(tmp_path).vkey.read_text()).stream_id
        machine.set(-60)
        recorder.insert_events([StoredEvent(stream, 1, "test.other", encode_body({}))])
        append(recorder)
    assert jumps(tmp_path) == [(2, -60)]


def test_clock_before_the_epoch_is_a_recorded_fact(tmp_path: Path) -> None:
    machine = Machine()
    with recorder_on(tmp_path, machine) as recorder:
        append(recorder)
        machine.set(-2_000)
        append(recorder)
    assert jumps(tmp_path) == [(1, -2_000)]
