"""What questions about a ledger cost as it grows, in small batches, with what is remembered.

Ledgers of 10,000 events and each power of ten up to the wanted number are asked in turns, by
commands in processes of their own.

I/O: a temporary folder below the one that is given; processes.
Units: seconds of processors, of a command and the processes that it starts.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from eventsourcing.persistence import StoredEvent

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from proctor.benchmarks.projections import repeated
from proctor.benchmarks.timing import timed
from proctor.errors import ProctorError
from proctor.home import NOTARY
from proctor.state import STATE
from projections.source import open_source

__all__ = ["ReadingBench", "measure"]

BATCHES = (1, 1, 1, 2, 3, 5, 8, 13)  # events, in turn
FEWEST = 10_000  # events of the smallest ledger
NEW = 1_000  # events that are new to two of the questions
_QUESTIONS = {
    'sql "SELECT 1"': ("sql", "SELECT 1"),
    "log --last 20": ("log", "--last", "20"),
    "show": ("show",),
    "verify --new": ("verify", "--new"),
}


@dataclass(frozen=True, kw_only=True)
class ReadingBench:
    """What was measured."""

    rounds: int
    seconds: dict[str, dict[str, float]]  # question -> events -> median, where nothing is new
    new_seconds: dict[str, dict[str, float]]  # likewise, with NEW events since the last question
    whole_seconds: dict[str, float]  # events -> `verify`
    tables_seconds: dict[str, float]  # events -> the first question, which makes the tables
    append_seconds: dict[str, float]  # events -> median, for NEW events in small batches


def measure(folder: Path, like: Path, *, events: int, rounds: int) -> ReadingBench:
    """Write the ledgers, of events like those of one that is given, and ask them."""
    with open_source(like) as source:
        pattern = list(source.entries(start=0))
    if not any(entry.name == "run.started" for entry in pattern):
        raise ProctorError(f"{like}: no run is recorded here; the mix of events is taken from runs")
    sizes = [FEWEST]
    while sizes[-1] * 10 <= events:
        sizes.append(sizes[-1] * 10)
    if sizes[-1] != events:
        sizes.append(events)
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        homes: dict[str, Path] = {}
        coming, before, growing = repeated(pattern), 0, Path(name) / "growing"
        for count in sizes:
            _append(growing, coming, count=count - before)
            homes[f"{count:,}"], before = Path(name) / str(count), count
            shutil.copytree(growing, homes[f"{count:,}"])
        whole = {size: _asked(home, ("verify",)) for size, home in homes.items()}
        tables = {size: _asked(home, _QUESTIONS['sql "SELECT 1"']) for size, home in homes.items()}
        old: dict[str, dict[str, list[float]]] = {
            q: {size: [] for size in homes} for q in _QUESTIONS
        }
        new = {
            q: {size: list[float]() for size in homes} for q in ('sql "SELECT 1"', "verify --new")
        }
        grown: dict[str, list[float]] = {size: [] for size in homes}
        for number in range(rounds):
            for question, words in _QUESTIONS.items():
                for size, home in homes.items():
                    old[question][size].append(_asked(home, words))
            for question, taken in new.items():
                for size, home in homes.items():
                    more = repeated(pattern, again=f"{number} {question}")
                    grown[size].append(timed(partial(_append, home, more, count=NEW)).processor)
                    taken[size].append(_asked(home, _QUESTIONS[question]))
    return ReadingBench(
        rounds=rounds,
        seconds=_medians(old),
        new_seconds=_medians(new),
        whole_seconds=whole,
        tables_seconds=tables,
        append_seconds={size: median(each) for size, each in grown.items()},
    )


def _medians(taken: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    return {q: {size: median(each) for size, each in sizes.items()} for q, sizes in taken.items()}


def _append(home: Path, coming: Iterator[StoredEvent], *, count: int) -> None:
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for size in cycle(BATCHES):
            batch = list(islice(coming, min(size, count)))
            recorder.insert_events(batch)
            count -= len(batch)
            if not count:
                return


def _asked(home: Path, words: Sequence[str]) -> float:
    """Ask in a process of its own, which remembers beside the home."""
    environment = {name: value for name, value in os.environ.items() if name != NOTARY}
    environment |= {"PROCTOR_HOME": str(home), STATE: str(home.with_name(f"{home.name}-state"))}

    def ask() -> None:
        done = subprocess.run(  # noqa: S603 - this program's own words
            [sys.executable, "-P", "-m", "proctor", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProctorError(f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}")

    return timed(ask).processor
