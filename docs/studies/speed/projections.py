"""How fast tables are made of a ledger: beside reading and decoding the same entries, in one run.

All take turns, round after round, and the median counts. Bodies are decoded by the same decoder in
all of them.

The events are those of a ledger that is given, over and over, its runs and what belongs to them
under new names each time. They are appended by the ledger's own bulk writing.

I/O: a temporary folder below the one that is given.
Units: events a second; seconds of processors are those of all processes together.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from uuid import UUID, uuid5

from eventsourcing.persistence import StoredEvent

from aggregates.transcript import Transcript
from ledger.bodies import decode_body
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.verified_entries import VerifiedEntry, split_entry
from proctor.errors import ProctorError
from projections.bulk import FEW
from projections.cache import catch_up
from projections.source import open_source
from studies.speed.timing import Timed, in_process, in_turns, timed
from studies.statistics import Table

__all__ = ["ProjectionBench", "measure", "rebuilt", "repeated"]

BATCH = 5_000  # events
NEW = 1_000  # events of a catch-up
TABLES, DECODED = "tables made", "read and decoded, in one process"
# Of one ledger there is one of each of these, and others name it: they are not repeated.
_ONCE = ("authority", "clock", "corpus", "evolution", "key", "line")


@dataclass(frozen=True, kw_only=True)
class ProjectionBench:
    """What was measured; medians of the rounds."""

    events: int
    rounds: int
    mix: dict[str, float]  # share of each kind of aggregate
    entry_bytes: float  # mean
    append: float  # events/s
    rates: dict[str, float]  # events/s by the clock
    processor: dict[str, float]  # s of processors for an event
    start: float  # s of processors, of those for the tables: that no event adds
    beyond_start: float  # s of processors for an event's tables, without the start
    ratio: float  # of the decoding's processor time to the tables'
    peak_mib: dict[str, float]  # of the writer and the largest reader together, by events
    catch_up_seconds: dict[str, float]  # wall clock, for NEW entries behind so many

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        mix = ", ".join(f"{kind} {share:.0%}" for kind, share in self.mix.items())
        yield Table(
            title=f"{self.events:,} events of {self.entry_bytes:.0f} bytes: {mix}; median of "
            f"{self.rounds} interleaved rounds",
            columns=("", "events/s", "\u00b5s of processors an event"),
            rows=tuple(
                (what, f"{rate:,.0f}", f"{1e6 * self.processor[what]:.1f}")
                for what, rate in self.rates.items()
            ),
        )
        yield Table(
            title="",
            columns=("", "figure"),
            rows=(
                ("appended, events/s", f"{self.append:,.0f}"),
                ("tables: s of processors to start", f"{self.start:.2f}"),
                ("then \u00b5s an event", f"{1e6 * self.beyond_start:.1f}"),
                ("at most on two processes, events/s", f"{2 / self.processor[TABLES]:,.0f}"),
                ("decoding alone, of the tables' time", f"{self.ratio:.0%}"),
            ),
        )
        yield Table(
            title="",
            columns=("events", "peak of writer and reader, MiB", f"s for {NEW:,} more"),
            rows=tuple(
                (events, f"{peak:.0f}", f"{self.catch_up_seconds[events]:.2f}")
                for events, peak in self.peak_mib.items()
            ),
        )


def measure(folder: Path, like: Path, *, events: int, rounds: int = 3) -> ProjectionBench:
    """Write ledgers of a tenth of the events and of all, and project them."""
    fewer = max(events // 10, FEW)  # of which several processes make tables, too
    with open_source(like) as source:
        pattern = list(source.entries(start=0))
    if not any(entry.name == "run.started" for entry in pattern):
        raise ProctorError(f"{like}: no run is recorded here; the mix of events is taken from runs")
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        few, many = Path(name) / "few", Path(name) / "many"
        write(few, pattern, events=fewer)
        append = timed(partial(write, many, pattern, events=events))
        with open_source(many) as source:
            sizes = [len(data) for page in source.pages(start=0, stop=100_000) for _, data in page]
        arms: dict[str, Callable[[], Timed]] = {
            "few": lambda: rebuilt(few),
            TABLES: lambda: rebuilt(many),
            DECODED: lambda: worked("decode", many),
        }
        (found,) = in_turns([[*arms.values()]], rounds=rounds)
        taken = dict(zip(arms, zip(*found, strict=True), strict=True))
        catching = {}
        for ledger, count in ((few, fewer), (many, events)):
            rebuilt(ledger)
            write(ledger, pattern, events=NEW, again=f"{count} and {NEW}")
            catching[f"{count:,}"] = worked("catch up", ledger).wall
    seconds = {arm: median(each.processor for each in took) for arm, took in taken.items()}
    walls = {arm: median(each.wall for each in took) for arm, took in taken.items()}
    growing = (seconds[TABLES] - seconds["few"]) / (events - fewer)
    sample = list(islice(repeated(pattern), 10 * len(pattern)))
    kinds = Counter(event.topic.partition(".")[0] for event in sample)
    return ProjectionBench(
        events=events,
        rounds=rounds,
        mix={kind: count / len(sample) for kind, count in kinds.most_common()},
        entry_bytes=sum(sizes) / len(sizes),
        append=events / append.wall,
        rates={arm: events / wall for arm, wall in walls.items() if arm != "few"},
        processor={arm: each / events for arm, each in seconds.items() if arm != "few"},
        start=seconds[TABLES] - growing * events,
        beyond_start=growing,
        ratio=seconds[DECODED] / seconds[TABLES],
        peak_mib={
            f"{count:,}": max(each.peak_mib for each in taken[arm])
            for arm, count in (("few", fewer), (TABLES, events))
        },
        catch_up_seconds=catching,
    )


def rebuilt(ledger: Path, **variables: str) -> Timed:
    """Make a ledger's tables anew, in a process of its own."""
    for file in ledger.glob("projections.duckdb*"):
        file.unlink()
    return worked("catch up", ledger, **variables)


def write(directory: Path, pattern: list[VerifiedEntry], *, events: int, again: str = "") -> None:
    """Append so many events like these."""
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        batch: list[StoredEvent] = []
        for number, event in enumerate(repeated(pattern, again=again), start=1):
            batch.append(event)
            if len(batch) == BATCH or number == events:
                recorder.insert_events(batch)
                batch = []
            if number == events:
                return


def repeated(pattern: list[VerifiedEntry], *, again: str = "") -> Iterator[StoredEvent]:
    """Yield these entries' events without end, each time in streams of other names."""
    streams: dict[UUID, str] = {}
    for entry in pattern:
        streams.setdefault(entry.stream_id, entry.name.partition(".")[0])
    kept = [entry for entry in pattern if streams[entry.stream_id] not in _ONCE]
    once = [entry for entry in pattern if streams[entry.stream_id] in _ONCE]
    if not again:
        for entry in once:
            if entry.author is None and streams[entry.stream_id] not in _ONCE[:2]:
                yield StoredEvent(entry.stream_id, entry.stream_version, entry.name, entry.body)
    names = [stream for stream, kind in streams.items() if kind not in _ONCE]
    told = {Transcript.id_of(stream): stream for stream in names}
    number = 0
    while kept:
        number += 1
        new = {stream: uuid5(stream, f"{again} {number}") for stream in names}
        for stream in names:
            if stream in told:
                new[stream] = Transcript.id_of(new[told[stream]])
        texts = [(str(old).encode(), str(to).encode()) for old, to in new.items()]
        for entry in kept:
            body = entry.body
            for old, to in texts:
                if old in body:
                    body = body.replace(old, to)
            yield StoredEvent(new[entry.stream_id], entry.stream_version, entry.name, body)


def worked(what: str, ledger: Path, **variables: str) -> Timed:
    """Do one of the measured things in a process of its own, with these environment variables."""
    return Timed(*in_process(f"{__name__}:work", what, str(ledger), **variables))


def work(what: str, ledger: str) -> tuple[float, ...]:
    """Do one of the measured things in this process; the other end of worked()."""
    directory = Path(ledger)
    if what == "decode":
        return astuple(timed(lambda: _decode(directory)))
    database = directory / "projections.duckdb"
    return astuple(timed(lambda: catch_up(database, directory)))


def _decode(directory: Path) -> None:
    with open_source(directory) as source:
        for page in source.pages(start=0):
            for index, data in page:
                decode_body(split_entry(data, index=index)[-1])
