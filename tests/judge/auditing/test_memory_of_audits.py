"""What an audit keeps of a run: not its measurements, however many epochs it has."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from told_training import defer, healthy, tell

from aggregates.decisions import Decision, Settings
from aggregates.run import Run
from judge.auditing import replay as replaying
from judge.auditing.gates import Gates
from judge.auditing.record import RunRecord, read_record
from judge.config import JudgeConfig

LAYERS = 120  # of a model of thirty blocks
KEPT = 25_000  # bytes for an epoch: its entries, the rules' signals, what the rules said


def large(epoch: int, *_: Any) -> dict[str, Any]:
    """Return an epoch of a large model in which the steps are too small: R1 fires."""
    part = healthy(epoch, ratio=1e-7)
    first, *_ = part["layers"]
    part["layers"] = [{**first, "name": f"blocks.{n}.weight"} for n in range(LAYERS)]
    return part


def deferring(run: Run, _: Settings) -> list[Decision]:
    return [defer(rule) for rule in run.fired()]


def _unchecked(*_: Any) -> None:
    """Let measurements pass that fit no model."""


def told(folder: Path, epochs: int) -> RunRecord:
    run: UUID = tell(folder, large, deferring, epochs=epochs).run.id
    return read_record(folder, run)


def peak(record: RunRecord, folder: Path) -> int:
    """Return the bytes of Python that step 5 needs at once, beside the record."""
    gates = Gates(record.run, JudgeConfig(), record=record, directory=folder, redo=None)
    tracemalloc.start()
    try:
        # Shapes differ. A mock would keep what it is called with.
        with mock.patch.object(replaying, "check_epochs", new=_unchecked):
            gates.ledger()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow  # it measures
def test_step_5_keeps_no_measurements(tmp_path: Path) -> None:
    # Both have more than a batch of rows, which is all that is held at once.
    few, many = (told(tmp_path / str(epochs), epochs) for epochs in (40, 80))
    peak(few, tmp_path)  # imports and caches
    grown = peak(many, tmp_path) - peak(few, tmp_path)
    assert grown < 40 * KEPT


SCRIPT = """
import sys
from pathlib import Path
from test_memory_of_audits import Gates, JudgeConfig, _unchecked, read_record, replaying
replaying.check_epochs = _unchecked
folder, run = Path(sys.argv[1]), sys.argv[2]
from uuid import UUID
record = read_record(folder, UUID(run))
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of the imports
status = Path("/proc/self/status")
before = next(int(x.split()[1]) for x in status.read_text().splitlines() if "VmHWM" in x)
Gates(record.run, JudgeConfig(), record=record, directory=folder, redo=None).ledger()
after = next(int(x.split()[1]) for x in status.read_text().splitlines() if "VmHWM" in x)
print(after - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_whole_process_hardly_grows_with_the_epochs(tmp_path: Path) -> None:
    def grown(epochs: int) -> int:
        record = told(tmp_path / str(epochs), epochs)
        folders = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / str(epochs)), str(record.run)],
            env={**os.environ, "PYTHONPATH": folders},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        return int(done.stdout)  # KiB

    assert grown(600) - grown(50) < 60 * 1024
