"""What questions about a ledger cost as it grows, in small batches, with what is remembered.

Ledgers of 10,000 events and each power of ten up to the wanted number are asked in turns, by
commands in processes of their own. The ledger of each size begins as a copy of the one before.

I/O: a temporary folder below the one that is given, or a folder that keeps the ledgers; processes.
Units: seconds of processors, of a command and the processes that it starts; peaks are those of the
largest of these processes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from eventsourcing.persistence import StoredEvent

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from proctor.home import NOTARY
from proctor.pages.charts.curves import Curve, curves
from proctor.pages.charts.drawing import Chart
from proctor.state import STATE
from projections.source import open_source
from studies.speed.projections import repeated
from studies.speed.timing import Conditions, Timed, asked, timed
from studies.statistics import Table, short

__all__ = ["FLAT", "NEW", "ONCE", "ReadingBench", "add_events", "growth_chart", "measure"]

BATCHES = (1, 2, 5, 8, 13, 21, 34)  # events, in turn
FEWEST = 10_000  # events of the smallest ledger
NEW = 1_000  # events that are new to two of the questions
_SQL = 'sql "SELECT 1"'
_QUESTIONS = {
    _SQL: ("sql", "SELECT 1"),
    "log --last 20": ("log", "--last", "20"),
    "show": ("show",),
    "report": ("report", "--out", "report.html"),
    "verify --new": ("verify", "--new"),
}
_APPEND = f"append {NEW:,} events"
_FIRST, _WHOLE = "the first sql, which verifies all and makes the tables", "verify"
FLAT = (*_QUESTIONS, *(f"{q}, {NEW:,} new entries" for q in (_SQL, "verify --new")), _APPEND)
ONCE = (_FIRST, _WHOLE)
_STALE = 1.1  # times its number of events, from which on a kept ledger is made anew


@dataclass(frozen=True, kw_only=True)
class ReadingBench(Conditions):
    """What was measured: question -> events of the ledger -> median of the rounds."""

    seconds: dict[str, dict[str, float]]
    peak_mib: dict[str, dict[str, float]]  # of commands only
    disk_mib: dict[str, dict[str, float]]  # what the ledgers and what is remembered of them take

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        sizes = list(self.disk_mib["ledger"])
        for title, unit, by_question in (
            (self.conditions(), "s of processors", self.seconds),
            ("", "peak, MiB", self.peak_mib),
            ("", "on the disk, MiB", self.disk_mib),
        ):
            yield Table(
                title=title,
                columns=(unit, *(f"{size} entries" for size in sizes)),
                rows=tuple(
                    (question, *(short(by[size]) if size in by else "-" for size in sizes))
                    for question, by in by_question.items()
                ),
            )


def measure(
    folder: Path, like: Path, *, events: int, rounds: int, homes: Path | None = None
) -> ReadingBench:
    """Write the ledgers, of events like those of one that is given, and ask them.

    `homes` keeps ledgers and tables, and those that are there are asked again.
    """
    before = os.getloadavg()[0]
    with open_source(like) as source:
        pattern = list(source.entries(start=0))
    if not any(entry.name == "run.started" for entry in pattern):
        raise ProctorError(f"{like}: no run is recorded here; the mix of events is taken from runs")
    sizes = [FEWEST]
    while sizes[-1] * 10 <= events:
        sizes.append(sizes[-1] * 10)
    if sizes[-1] != events:
        sizes.append(events)
    own = tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-")
    with own if homes is None else nullcontext(homes) as name:
        kept = Path(name).resolve()
        ledgers = _made(kept, pattern, sizes)
        taken: dict[str, dict[str, list[Timed]]] = {}

        def note(question: str, size: str, took: Timed) -> None:
            taken.setdefault(question, {}).setdefault(size, []).append(took)

        for size, home in ledgers.items():
            if not _state(home).exists():
                note(_FIRST, size, _asked(home, _QUESTIONS[_SQL]))
                note(_WHOLE, size, _asked(home, ("verify",)))
        for number in range(rounds):
            for home in ledgers.values():  # so that the questions of this round find nothing new
                for words in _QUESTIONS.values():
                    _asked(home, words)
            for question, words in _QUESTIONS.items():
                for size, home in ledgers.items():
                    note(question, size, _asked(home, words))
            for question in (_SQL, "verify --new"):
                for size, home in ledgers.items():
                    more = repeated(pattern, again=f"{os.urandom(8).hex()} {number}")
                    note(_APPEND, size, timed(partial(add_events, home, more, count=NEW)))
                    told = f"{question}, {NEW:,} new entries"
                    note(told, size, _asked(home, _QUESTIONS[question]))
        disk = {
            what: {size: _size(place(home)) for size, home in ledgers.items()}
            for what, place in (("ledger", Path), ("tables and what is remembered", _state))
        }
    shown = [question for question in (*FLAT, *ONCE) if question in taken]
    return ReadingBench(
        **Conditions.since(before, rounds=rounds),
        seconds={
            q: {size: median(each.processor for each in by) for size, by in taken[q].items()}
            for q in shown
        },
        peak_mib={
            q: {size: median(each.peak_mib for each in by) for size, by in taken[q].items()}
            for q in shown
            if q != _APPEND
        },
        disk_mib=disk,
    )


def growth_chart(found: ReadingBench) -> Chart:
    """Chart what should not grow with the ledger."""
    sizes = list(found.seconds[_SQL])
    drawn = [
        Curve(
            question, [(place, found.seconds[question][size]) for place, size in enumerate(sizes)]
        )
        for question in FLAT
    ]
    highest = max(y for curve in drawn for _, y in curve.finite)
    return curves(
        "growth",
        "What questions and appends cost as a ledger grows",
        drawn,
        over="entries of the ledger; upwards: seconds of processors",
        names=sizes,
        ends=(0.0, highest * 1.1),
    )


def _made(folder: Path, pattern: Sequence[VerifiedEntry], sizes: Sequence[int]) -> dict[str, Path]:
    """Return a home for each number of events; those that are not there yet are made."""
    folder.mkdir(parents=True, exist_ok=True)
    homes: dict[str, Path] = {}
    smaller = 0
    for size in sizes:
        home, new = folder / f"{size}", folder / f"{size}.new"
        if _entries(home) > size * _STALE:
            shutil.rmtree(home)
            shutil.rmtree(_state(home), ignore_errors=True)
        if not home.exists():
            shutil.rmtree(new, ignore_errors=True)  # what a killed measurement has left
            if smaller:
                shutil.copytree(folder / f"{smaller}", new)
            again = f"from {smaller}" if smaller else ""
            add_events(new, repeated(list(pattern), again=again), count=size - _entries(new))
            new.rename(home)
        homes[f"{size:,}"], smaller = home, size
    return homes


def _entries(home: Path) -> int:
    if not home.exists():
        return 0
    with open_source(home / "ledger") as source:
        return source.size()


def add_events(home: Path, coming: Iterator[StoredEvent], *, count: int) -> None:
    """Append so many events to a home's ledger, in small batches."""
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for size in cycle(BATCHES):
            batch = list(islice(coming, min(size, count)))
            recorder.insert_events(batch)
            count -= len(batch)
            if not count:
                return


def _state(home: Path) -> Path:
    """Return where the processes that are asked remember."""
    return home.with_name(f"{home.name}.state")


def _asked(home: Path, words: Sequence[str]) -> Timed:
    environment = {name: value for name, value in os.environ.items() if name != NOTARY}
    environment |= {"PROCTOR_HOME": str(home), STATE: str(_state(home))}
    _state(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    return asked(("-P", "-m", "proctor", *words), environment, folder=_state(home))


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
