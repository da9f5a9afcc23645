"""What the same questions cost in an earlier revision of this repository, and in this checkout.

    python docs/studies bench before REVISION [--entries 100000 --entries 300000] [--rounds 5]

Both are asked of copies of the same ledgers, in turns, each question in a process of its own by
this interpreter. The ledgers are written by this checkout, so an earlier revision may be asked that
reads today's events.

I/O: a temporary folder below the one that is given; processes; reads the repository's history.
Units: seconds of processors, of a question and the processes that it starts.
"""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from ledger.handover.bundle import export_bundle
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from proctor.home import NOTARY
from proctor.state import STATE
from projections.source import open_source
from studies.speed import probes
from studies.speed.long_runs import record
from studies.speed.projections import repeated
from studies.speed.reading import NEW, add_events
from studies.speed.timing import Conditions, Spread, Timed, asked, in_turns
from studies.speed.whole import write_runs
from studies.statistics import Table

__all__ = ["BeforeAfter", "Compared", "extract", "measure"]

REPOSITORY = Path(__file__).resolve().parents[3]
_LONG, _BUNDLE = "long", "bundle"  # the home of the long run; what is exported of the largest


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One question; `ratio` is the earlier time to today's, above 1 where today is faster."""

    what: str
    before: float  # s, median of the rounds
    after: float
    ratio: Spread
    before_mib: float  # peak of the largest process
    after_mib: float


@dataclass(frozen=True, kw_only=True)
class BeforeAfter(Conditions):
    """What was measured."""

    revision: str
    rows: list[Compared]

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        memory = ("peak before, MiB", "after")
        yield Table(
            title=f"before: {self.revision[:8]}; {self.conditions()}",
            columns=("s of processors", "before", "after", "times as fast", *memory),
            rows=tuple(
                (
                    *(row.what, f"{row.before:.2f}", f"{row.after:.2f}", row.ratio.shown(1)),
                    *(f"{row.before_mib:.0f}", f"{row.after_mib:.0f}"),
                )
                for row in self.rows
            ),
        )


@dataclass(frozen=True)
class _Version:
    code: Path
    homes: Path
    numbers: Iterator[int] = field(default_factory=count)  # of what is new, alike in both

    def asked(self, question: "_Question") -> Timed:
        home = self.homes / question.home
        state = self.homes / f"{question.home}.state"
        result = self.homes / "result"
        result.unlink(missing_ok=True)
        if question.anew:
            shutil.rmtree(state, ignore_errors=True)
            for file in home.glob("projections.duckdb*"):  # where they were before they were kept
                file.unlink()
        environment = {name: value for name, value in os.environ.items() if name != NOTARY}
        environment |= {
            "PROCTOR_HOME": str(home),
            STATE: str(state),
            "PYTHONPATH": str(self.code),
        }
        words = ["-P", "-m", "proctor", *question.words]
        if question.probe:
            words = ["-P", probes.__file__, question.probe, str(home / "ledger"), str(result)]
        took = asked(words, environment, folder=self.homes, codes=question.codes)
        if question.probe:
            seconds = float(result.read_text(encoding="utf-8"))
            return Timed(took.wall, seconds, took.peak_mib)
        return took


@dataclass(frozen=True, kw_only=True)
class _Question:
    what: str
    words: Sequence[str] = ()  # of the command
    probe: str = ""  # or the name in probes.py
    home: str = _LONG
    new: bool = False  # NEW entries are appended before
    anew: bool = False  # nothing is remembered, and there are no tables
    codes: Sequence[int] = field(default=(EXIT_HELD,))


def _questions(sizes: Sequence[int], epochs: int, run: str) -> Iterator[_Question]:
    yield _Question(what="--help", words=("--help",))
    found = (EXIT_HELD, EXIT_FOUND)
    for size in sizes:
        behind = partial(_Question, home=f"{size}", new=True)
        what = f"{size:,} entries, {NEW:,} of them new"
        yield behind(what=f"sql, {what}", words=("sql", "SELECT 1"))
        yield behind(what=f"show, {what}", words=("show",))
        yield behind(what=f"log --last 20, {what}", words=("log", "--last", "20"))
        judge = ("judge", run, "--no-execute")  # a made-up run, which fails at step 5
        yield behind(what=f"judge, {what}", words=judge, codes=found)
        yield behind(what=f"verify --new, {what}", words=("verify", "--new"))
    size = max(sizes)
    yield _Question(what=f"verify, {size:,} entries", words=("verify",), home=f"{size}")
    bundle = ("verify", f"../{_BUNDLE}")  # both versions verify the same
    # Anew: it ends before what is remembered of its ledger by then.
    yield _Question(
        what=f"verify BUNDLE, {size:,} entries", words=bundle, home=f"{size}", anew=True
    )
    first = f"the first sql, which verifies and makes the tables, {size:,} entries"
    yield _Question(what=first, words=("sql", "SELECT 1"), home=f"{size}", anew=True)
    yield _Question(what="a run of 2,000 epochs is recorded", probe="record")
    yield _Question(what=f"prompt of epoch {epochs:,}", probe="prompt")
    yield _Question(what=f"audit of {epochs:,} epochs, not trained again", probe="audit")


def measure(
    folder: Path,
    revision: str,
    *,
    entries: Sequence[int],
    epochs: int,
    rounds: int,
    about: str = "",
) -> BeforeAfter:
    """Ask both, in as many rounds, of ledgers of so many entries and of a run of so many epochs.

    `about`: only the questions that contain this text.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        scratch = Path(name)
        pattern = _write_homes(scratch / "after", entries, epochs)
        shutil.copytree(scratch / "after", scratch / "before")
        commit = extract(revision, scratch / "code")
        before = _Version(scratch / "code", scratch / "before")
        after = _Version(REPOSITORY, scratch / "after")
        ended = (each for each in repeated(pattern) if each.topic == "run.ended")
        run = str(next(ended).originator_id)  # the newest one is cut off where the entries end
        questions = [each for each in _questions(entries, epochs, run) if about in each.what]
        for question in questions:  # compiles, fills caches, makes the tables; is not measured
            if not question.anew and not question.probe:
                for version in (before, after):
                    version.asked(question)

        def ask(version: _Version, question: _Question) -> Timed:
            if question.new:
                number = next(version.numbers)
                more = repeated(pattern, again=f"{number} {question.what}")
                add_events(version.homes / question.home, more, count=NEW)
            return version.asked(question)

        taken = in_turns(
            [[partial(ask, each, question) for each in (before, after)] for question in questions],
            rounds=rounds,
        )
    return BeforeAfter(
        **Conditions.since(load, rounds=rounds),
        revision=commit,
        rows=[_row(q.what, pairs) for q, pairs in zip(questions, taken, strict=True)],
    )


def _write_homes(homes: Path, entries: Sequence[int], epochs: int) -> list[VerifiedEntry]:
    write_runs(homes / "pattern", layers=2)
    with open_source(homes / "pattern") as source:
        pattern = list(source.entries(start=0))
    for size in entries:
        add_events(homes / f"{size}", repeated(pattern), count=size)
    export_bundle(homes / f"{max(entries)}" / "ledger", homes.parent / _BUNDLE)
    long = homes / _LONG / "ledger"
    *_, run = record(long, epochs)
    (long / probes.RUN).write_text(str(run.id), encoding="utf-8")
    return pattern


def extract(revision: str, folder: Path) -> str:
    """Write the files of a revision into a folder; return its commit."""

    def git(*words: str) -> bytes:
        done = subprocess.run(  # noqa: S603 - this program's own words
            ["git", "-C", str(REPOSITORY), *words],  # noqa: S607 - git is wherever it is
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise ProctorError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    commit = git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    name = commit.decode().strip()
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", name))) as files:
        files.extractall(folder, filter="data")
    return name


def _row(what: str, pairs: Sequence[tuple[Timed, ...]]) -> Compared:
    return Compared(
        what=what,
        before=median(before.processor for before, _ in pairs),
        after=median(after.processor for _, after in pairs),
        ratio=Spread.of([before.processor / after.processor for before, after in pairs]),
        before_mib=median(before.peak_mib for before, _ in pairs),
        after_mib=median(after.peak_mib for _, after in pairs),
    )
