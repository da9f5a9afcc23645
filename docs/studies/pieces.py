"""A ledger of any length, measured piece by piece: each is made, verified and removed.

A piece is a part of a bundle: its entry bundles and its tiles of levels 0 and 1, in files. Making
is sequential, as each entry has the hash of the one before; at the same time other processes verify
the pieces that are there, as parts of any bundle (tiles.py). What a piece has come to is noted in a
file, from which an interrupted study continues; then the piece is removed. A share of the pieces is
verified by a second process before, drawn when the first has answered.

Entries are encoded and linked by the recorder's own code, with bodies as runs have them, in batches
of 1,000 of ten runs. The last piece ends in a tree head signed with the ledger's key.

I/O: DIR, of which a few pieces are the most.  Units: entries, bytes, seconds.
Not covered: the database, and a tree head for each batch, which a bundle does not have.
"""

import gc
import hashlib
import random
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ledger.entries import Event, encode_entries, join_sized
from ledger.errors import ConsistencyError
from ledger.handover.bundle_files import VKEY
from ledger.handover.tiles import TILE_WIDTH, Tile, Tiler, tile_path
from ledger.paths import LedgerPaths
from ledger.recording.opening import open_ledger
from ledger.verification.states import State, grown, root_of
from ledger.verification.vectorized import Segment, Versions
from proctor.errors import ProctorError
from proctor.output.terminal import console, print_table
from proctor.runs.pools import pool
from studies.tiles import SPAN, Answer, Joined, Part, differing, verify_part

__all__ = ["Made", "Noted", "make_piece", "measure"]

BATCH = 1_000  # entries that are recorded at once
_RUNS = 10  # that append to a batch
_EVENTS = 2_000  # of a run
_BEGIN = 1_700_000_000_000_000_000  # nanoseconds
_BETWEEN = 50_000_000  # nanoseconds from one batch to the next
_AHEAD = 2  # pieces that wait to be verified
_SHARE = 0.05  # of the pieces, verified twice
_ROW = 10_000_000  # entries in a row of the table
_NOTES = "pieces.jsonl"

_encode = msgspec.msgpack.Encoder().encode  # as ledger.bodies writes, but unchecked


@dataclass(frozen=True)
class Made:
    """A piece that is there."""

    start: State
    end: State
    size: int  # bytes of its entries
    seconds: float  # of the processor
    peak: int  # bytes of memory that the process has had at most


@dataclass(frozen=True)
class Noted:
    """What a piece has come to."""

    made: Made
    segment: Segment
    seconds: float  # of the processor, for verifying it once
    peaks: tuple[int, int]  # bytes of memory, of the process that verified it and the coordinator
    wall: float  # seconds since the piece before was noted
    again: bool  # verified a second time, with the same answer


def _evaluation(rule: int, value: float) -> dict[str, Any]:
    told = {"rule": f"R{rule}", "fired": False, "side": None}
    return {**told, "value": value, "ema": value / 3, "streak": 0}


def _bodies(first: int, count: int) -> Iterator[tuple[int, str, bytes]]:
    """Yield version, name and body of so many events of a run, from an index on."""
    train = {"loss": 0.0, "accuracy": 0.0, "examples": 51_200, "steps": 400}
    validation = {"loss": 0.0, "accuracy": 0.0, "examples": 6_400}
    gradients = {"finite": True, "total_norm_mean": 0.087, "signal_to_noise": 0.013}
    gradients |= {"noise_scale": 13.85, "norm_noise_scale": 0.0463, "spread": 0.0116}
    settings = {"lr": 0.376, "batch_size": 128, "accumulation": 1, "clip_norm": None}
    measured = {
        "train": train,
        "gradients": gradients,
        "layers": [],
        "activations": [],
        "validation": validation,
        "settings": {**settings, "schedule": {"kind": "constant"}},
    }
    reported = {"seconds": 0.0285, "clipped_steps": 0, "last_lr": 0.376}
    epoch = {"v": 1, "at": 0, "epoch": 0, "measured": measured, "reported": reported}
    rules = {f"R{rule}": _evaluation(rule, rule / 7) for rule in range(1, 8)}
    evaluated = {"v": 1, "at": 0, "epoch": 0, "evaluations": rules}
    third = rules["R3"]
    batch = first // BATCH
    begin = batch % (_EVENTS * _RUNS // BATCH) * (BATCH // _RUNS) + first % (BATCH // _RUNS)
    time_ns = _BEGIN + batch * _BETWEEN
    for at in range(begin, begin + count):
        value = 2.3 / (1 + at) + (batch * 2_654_435_761 + at * 40_503) % 1_000_003 / 1e7
        if at % 2:
            third["value"], body, name = value, evaluated, "run.rules_evaluated"
        else:
            train["loss"], validation["loss"] = value, value * 1.07
            validation["accuracy"] = 1 / (1 + value)
            body, name = epoch, "run.epoch_measured"
        body["epoch"], body["at"] = at // 2, time_ns + at
        yield at + 1, name, _encode(body)


def make_piece(folder: Path, start: State, end: int) -> Made:
    """Write the entries and tiles from a state on; they depend on nothing else."""
    began = time.process_time()
    written = 0
    tiler = Tiler()
    waiting: list[bytes] = []
    above: dict[int, list[bytes]] = {0: [], 1: [], 2: []}  # hashes that no full tile has
    at, last = start.size, start.last_hash
    time_ns = start.time_ns
    tiles: list[Tile] = []
    while at < end:
        time_ns = _BEGIN + at // BATCH * _BETWEEN
        first = at
        events: list[Event] = []
        until = min(at // BATCH * BATCH + BATCH, end)
        while at < until:
            width = BATCH // _RUNS
            count = min(until, at // width * width + width) - at
            run = at // (BATCH * _EVENTS // width) * _RUNS + at % BATCH // width
            stream = hashlib.sha256(b"run %d" % run).digest()[:16]
            events += [(stream, *event, None) for event in _bodies(at, count)]
            at += count
        rows, leaves = encode_entries(events, index=first, previous=last, time_ns=time_ns)
        waiting += [row[4] for row in rows]
        last = leaves[-1]
        for leaf in leaves:
            tiles.extend(tiler.add(leaf))
        while len(waiting) >= TILE_WIDTH or (at == end and waiting):
            written += _put_entries(folder, at - len(waiting), waiting[:TILE_WIDTH])
            del waiting[:TILE_WIDTH]
    for tile in tiles:
        _put_tile(folder, tile, start.size)
    for tile in tiler.rest():
        hashes = [tile.hashes[i : i + 32] for i in range(0, len(tile.hashes), 32)]
        above[tile.level] = hashes
        if tile.level < 2:
            _put_tile(folder, tile, start.size)
    edge = list(start.edge)
    for number, node in enumerate(above[2], start.size // SPAN):
        edge = grown(edge, number, node)
    for level in (1, 0):
        low: list[bytes] = []
        for number, node in enumerate(above[level]):
            low = grown(low, number, node)
        edge += low
    state = State(size=end, last_hash=last, time_ns=time_ns, edge=tuple(edge))
    return Made(start, state, written, time.process_time() - began, _peak())


def _put_entries(folder: Path, first: int, entries: list[bytes]) -> int:
    data = join_sized(entries)
    _put(folder / tile_path("entries", first // TILE_WIDTH, width=len(entries)), data)
    return len(data)


def _put_tile(folder: Path, tile: Tile, start: int) -> None:
    index = start // TILE_WIDTH ** (tile.level + 1) + tile.index
    _put(folder / tile_path(tile.level, index, width=len(tile.hashes) // 32), tile.hashes)


def _put(path: Path, data: bytes) -> None:
    """Write a file; nobody needs it after a loss of power."""
    try:
        path.write_bytes(data)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _remove(folder: Path, made: Made) -> None:
    """Remove the files of a piece."""
    for level, width in (("entries", TILE_WIDTH), (0, TILE_WIDTH), (1, SPAN)):
        for first in range(made.start.size, made.end.size, width):
            count = min(width, made.end.size - first) // (width // TILE_WIDTH)
            path = folder / tile_path(level, first // width, width=count)
            path.unlink(missing_ok=True)


def _make(folder: Path, start: State, end: int) -> Made:
    gc.disable()  # in a process of its own; nothing is in cycles
    return make_piece(folder, start, end)


def _verify(part: Part) -> tuple[Answer | str, int]:
    gc.disable()
    return verify_part(part), _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) * 1024


class _Study:
    """The coordinator: it has pieces made and verified, and joins what they come to."""

    def __init__(self, folder: Path, entries: int, spans: int) -> None:
        self._folder = folder
        self._entries = entries
        self._piece = SPAN * spans
        self._database, signer = open_ledger(LedgerPaths(folder / "ledger"), passphrase=None)
        if signer is None:
            raise ProctorError(f"{folder}/ledger: the key is missing; choose an empty folder")
        self._signer = signer
        self._vkey = self._database.meta("vkey")
        (folder / VKEY).write_text(f"{self._vkey}\n", encoding="ascii")
        self._joined = Joined()
        self.notes: list[Noted] = []
        path = folder / _NOTES
        for line in path.read_bytes().splitlines() if path.exists() else ():
            self._join(msgspec.json.decode(line, type=Noted))
        if self.notes:  # it may have been killed before it had removed the last one
            _remove(folder, self.notes[-1].made)
        if self._at not in (0, entries) and (self._at > entries or self._at % SPAN):
            raise ProctorError(
                f"{folder} has {self._at:,} entries of a study with other --entries; name them, "
                "or choose an empty folder"
            )
        self._since = time.perf_counter()

    @property
    def _at(self) -> int:
        return self.notes[-1].made.end.size if self.notes else 0

    def close(self) -> None:
        """Close the ledger, of which only the key is used."""
        self._database.close()

    def carry_out(self, processes: ProcessPoolExecutor, *, workers: int) -> None:
        """Make and verify what is missing."""
        begun, state = self._at, self.notes[-1].made.end if self.notes else State()
        making: Future[Made] | None = None
        verifying: dict[Future[tuple[Answer | str, int]], tuple[Made, Part]] = {}
        first: dict[int, Answer] = {}  # by the part's start; those of which a second is asked
        found: dict[int, tuple[Made, Answer, int, bool]] = {}
        drawn = random.SystemRandom()
        while self._at < self._entries:
            ahead = len(verifying) + len(found)
            if making is None and begun < self._entries and ahead < workers + _AHEAD:
                begun = min(begun + self._piece, self._entries)
                making = processes.submit(_make, self._folder, state, begun)
            waiting: list[Future[Any]] = [*verifying, *([making] if making is not None else [])]
            done: Future[Any]
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                if making is not None and done is making:
                    made, making = making.result(), None
                    state, part = made.end, self._part(made)
                    verifying[processes.submit(_verify, part)] = made, part
                    continue
                made, part = verifying.pop(done)
                answer, peak = done.result()
                if isinstance(answer, str):
                    raise ConsistencyError(answer)
                start = part.start.size
                again = start in first
                if again and differing([part], [first.pop(start)], {0: answer}):
                    raise ConsistencyError(f"two workers differ on the piece from entry {start:,}")
                if not again and drawn.random() < _SHARE:
                    first[start] = answer
                    verifying[processes.submit(_verify, part)] = made, part
                    continue
                found[start] = made, answer, peak, again
            while self._at in found:
                self._note(*found.pop(self._at))

    def _part(self, made: Made) -> Part:
        head = None
        if made.end.size == self._entries:
            self._signer.take_up(self._vkey)
            root = root_of(made.end.edge)
            head = self._signer.tree_head(size=made.end.size, root=root, vkey=self._vkey)
        return Part(
            *(str(self._folder), self._vkey, made.start, made.end.size, head),
            secrets.token_bytes(32),
        )

    def _note(self, made: Made, answer: Answer, peak: int, again: bool) -> None:
        """Note what a piece has come to, and remove it."""
        now = time.perf_counter()
        wall, self._since = now - self._since, now
        segment = replace(answer.segment, entry_marks=[], head_marks=[])  # nobody reads on
        noted = Noted(made, segment, answer.seconds, (peak, _peak()), wall, again)
        with (self._folder / _NOTES).open("ab") as file:
            file.write(msgspec.json.encode(noted) + b"\n")
        _remove(self._folder, made)
        rows = self._at // _ROW
        self._join(noted)
        if self._at // _ROW > rows:
            console.print(f"{self._at:,} of {self._entries:,} entries")

    def _join(self, noted: Noted) -> None:
        self._joined.add(self._part(noted.made), noted.segment)
        if self._joined.faults:
            raise ConsistencyError(self._joined.faults[0])
        self.notes.append(replace(noted, segment=replace(noted.segment, versions=Versions())))

    def end(self) -> None:
        """Raise ConsistencyError unless all of it leads to the signed root."""
        if faults := self._joined.end(str(self._part(self.notes[-1].made).head)):
            raise ConsistencyError(faults[0])


def measure(folder: Path, entries: int, *, workers: int, spans: int) -> None:
    """Make and verify so many entries, and print what each 10 million took."""
    if entries < 1 or not 1 <= spans < TILE_WIDTH:
        raise ProctorError("--entries is 1 or more, --spans 1 to 255")
    folder.mkdir(parents=True, exist_ok=True)
    study = _Study(folder, entries, spans)
    try:
        with pool(workers) as processes:
            study.carry_out(processes, workers=workers)
        study.end()
    finally:
        study.close()
    rows: dict[int, list[Noted]] = {}
    for noted in study.notes:
        rows.setdefault((noted.made.end.size - 1) // _ROW, []).append(noted)
    print_table(
        (
            *("entries", "bytes each", "making us", "verifying us", "wall s", "entries/s"),
            *("maker MB", "verifier MB", "coordinator MB", "twice"),
        ),
        [_row(notes) for notes in [*rows.values(), study.notes]],
        title="for each 10 million entries, then in all: processor time of one entry, and memory",
    )


def _row(notes: list[Noted]) -> tuple[object, ...]:
    count = sum(each.made.end.size - each.made.start.size for each in notes)
    wall = sum(each.wall for each in notes)
    verifying = sum(each.seconds for each in notes)
    peaks = [each.made.peak for each in notes], *zip(*(each.peaks for each in notes), strict=True)
    return (
        *(f"{notes[-1].made.end.size:,}", round(sum(each.made.size for each in notes) / count)),
        f"{sum(each.made.seconds for each in notes) / count * 1e6:.2f}",
        *(f"{verifying / count * 1e6:.2f}", round(wall, 1), round(count / wall)),
        *(round(max(each) / 1e6) for each in peaks),
        sum(each.again for each in notes),
    )
