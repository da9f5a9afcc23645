"""How fast tables are made of a ledger: beside reading and decoding the same entries, in one run.

The events are those of a ledger that is given, over and over, its runs and what belongs to them
under new names each time. They are appended by the ledger's own bulk writing.

I/O: a temporary folder below the one that is given.
Units: events a second; seconds of processors are those of all processes together.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from uuid import UUID, uuid5

from eventsourcing.persistence import StoredEvent

from aggregates.transcript import Transcript
from ledger.bodies import decode_body
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from proctor.benchmarks.timing import Timed, timed
from proctor.errors import ProctorError
from projections.cache import CatchUp, catch_up
from projections.source import open_source

__all__ = ["ProjectionBench", "measure", "repeated"]

BATCH = 5_000  # events
NEW = 1_000  # events of a catch-up
# Of one ledger there is one of each of these, and others name it: they are not repeated.
_ONCE = ("authority", "clock", "corpus", "evolution", "key", "line")
_CHILD = (
    "import sys; from pathlib import Path; sys.path[:] = sys.argv[4:];"
    "from proctor.benchmarks.projections import work; work(*sys.argv[1:4])"
)


@dataclass(frozen=True, kw_only=True)
class ProjectionBench:
    """What was measured."""

    events: int
    mix: dict[str, float]  # share of each kind of aggregate
    entry_bytes: float  # mean
    append: float  # events/s
    bare: float  # events/s, read and decoded in one process
    rebuild: float  # events/s, wall clock
    ratio: float  # of the rebuild's rate to the bare one
    bare_seconds: float  # of processors
    rebuild_seconds: float  # of processors
    peak_mib: dict[str, float]  # of the writer and the largest reader together, by events
    catch_up_seconds: dict[str, float]  # wall clock, for NEW entries behind so many


def measure(folder: Path, like: Path, *, events: int) -> ProjectionBench:
    """Write ledgers of a tenth of the events and of all, and project them."""
    with open_source(like) as source:
        pattern = list(source.entries(start=0))
    if not any(entry.name == "run.started" for entry in pattern):
        raise ProctorError(f"{like}: no run is recorded here; the mix of events is taken from runs")
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        few, many = Path(name) / "few", Path(name) / "many"
        peaks, catching = {}, {}
        append = rebuilt = bare = Timed(0.0, 0.0, 0.0)
        for ledger, count in ((few, events // 10), (many, events)):
            append = timed(partial(write, ledger, pattern, events=count))
            bare = in_process("decode", ledger)
            rebuilt = in_process("catch up", ledger)
            write(ledger, pattern, events=NEW, again=f"{count} and {NEW}")
            caught = in_process("catch up", ledger)
            peaks[f"{count:,}"], catching[f"{count:,}"] = rebuilt.peak_mib, caught.wall
        with open_source(many) as source:
            sizes = [len(data) for page in source.pages(start=0, stop=100_000) for _, data in page]
            total = source.size() - NEW
    sample = list(islice(repeated(pattern), 10 * len(pattern)))
    kinds = Counter(event.topic.partition(".")[0] for event in sample)
    return ProjectionBench(
        events=total,
        mix={kind: count / len(sample) for kind, count in kinds.most_common()},
        entry_bytes=sum(sizes) / len(sizes),
        append=total / append.wall,
        bare=total / bare.wall,
        rebuild=total / rebuilt.wall,
        ratio=bare.wall / rebuilt.wall,
        bare_seconds=bare.processor,
        rebuild_seconds=rebuilt.processor,
        peak_mib=peaks,
        catch_up_seconds=catching,
    )


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


def work(what: str, directory: str, database: str) -> None:
    """Do one of the measured things; the other end of in_process()."""
    if what == "decode":
        took = timed(lambda: _decode(Path(directory)))
    else:
        took = timed(lambda: _held(catch_up(Path(database), Path(directory))))
    print(json.dumps(asdict(took)))


def _decode(directory: Path) -> None:
    with open_source(directory) as source:
        for page in source.pages(start=0):
            for index, data in page:
                decode_body(parse_entry(data, index=index).body)


def _held(done: CatchUp) -> None:
    if done.note is not None:
        raise ProctorError(f"the file that was made for the measurement was {done.note}")


def in_process(what: str, ledger: Path) -> Timed:
    """Do one of the measured things in a process of its own."""
    task = [what, str(ledger), str(ledger / "projections.duckdb")]
    done = subprocess.run(  # noqa: S603 - this program's own words
        [sys.executable, "-c", _CHILD, *task, *sys.path],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProctorError(f"the measurement failed: {done.stderr.strip()[-500:]}")
    return Timed(**json.loads(done.stdout))
