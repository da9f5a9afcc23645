"""A large bundle verified in parts: by processes, really, and by many machines, simulated.

A bundle's level-2 tiles have one hash for each 65,536 entries. From them the coordinator knows what
each part claims to begin with (the tree's edge); the entry before it says the rest. A worker
verifies its part from there as ledger/verification/vectorized.py does, and compares its tiles. The
coordinator then checks that each part ends as the next one claims to begin, that streams go on
across parts, and that the last part ends in the signed root. It has a share of the parts verified a
second time by another worker, whose answers must be the same.

An answer holds a keyed hash over all bytes that were read. So a worker that answers without reading
is caught by the second verification also where nothing is wrong with the ledger.

Source: docs/studies/ledger.md; C2SP tlog-tiles.
Trust: the bundle is hostile; a worker may lie, see the page for what that comes to.
I/O: the bundle's place; processes.  Units: entries, bytes, seconds.
Not covered: more than 100,000 streams in a part; the blobs.
"""

import argparse
import hashlib
import hmac
import os
import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.entries import split_sized
from ledger.errors import ConsistencyError, MalformedError, StorageError, VerificationError
from ledger.handover.bundle_check import is_bundle, read_head, read_vkey
from ledger.handover.bundle_files import CHECKPOINT, Place, place_of
from ledger.handover.tiles import TILE_WIDTH, Tile, Tiler, tile_path
from ledger.verification.states import State, grown, open_head, root_of
from ledger.verification.vectorized import (
    MismatchError,
    Segment,
    Versions,
    verify_segment,
)
from ledger.verification.verified_entries import parse_entry
from ledger.verification.verified_notes import TreeHead
from proctor.errors import ProctorError
from proctor.inputs import read_vkey_file
from proctor.output.terminal import print_table
from proctor.runs.pools import pool

__all__ = [
    "Answer",
    "Fleet",
    "Found",
    "Joined",
    "Part",
    "Simulated",
    "combine",
    "differing",
    "plan",
    "run",
    "simulate",
    "undetected",
    "verify_in_parts",
    "verify_part",
]

SPAN = TILE_WIDTH**2  # entries below one hash of a level-2 tile
_MAX_ENTRY = 65_535


@dataclass(frozen=True)
class Part:
    """Entries to be verified by one worker, and what they claim to begin with."""

    place: str
    vkey: str
    start: State
    end: int
    head: str | None  # the newest tree head, for the part that it closes
    nonce: bytes  # fresh for each part; both who verify it are given the same
    edge: tuple[bytes, ...] = ()  # what the tiles of level 2 come to, for the part that closes


@dataclass(frozen=True)
class Answer:
    """What a worker says of a part."""

    segment: Segment
    read: bytes  # HMAC-SHA-256 over all entry bundles, keyed with the nonce
    seconds: float  # of the processor


@dataclass
class Found:
    """What the coordinator has come to."""

    entries: int = 0
    parts: int = 0
    again: int = 0  # parts that were verified twice
    working: float = 0.0  # seconds of the processor, of all workers together
    coordinating: float = 0.0  # seconds of the coordinator alone
    wall: float = 0.0
    faults: list[str] = field(default_factory=list)


def plan(place: str, *, spans: int, vkey: str | None = None) -> tuple[TreeHead, list[Part]]:
    """Return a bundle's tree head, and parts of so many spans each that cover it.

    Without a `vkey` the bundle's own is trusted.
    """
    bundle = place_of(place)
    if not is_bundle(bundle):
        raise StorageError(f"{place}: bundle not found; check the path")
    vkey = read_vkey(bundle, owner=vkey)
    head = read_head(bundle)
    edge: list[bytes] = []
    starts = []
    tiler = Tiler()
    for number, claimed in enumerate(_level_two(bundle, head.size // SPAN)):
        for tile in tiler.add(claimed):
            _compare(bundle, replace(tile, level=tile.level + 2))
        if number % spans == 0:
            starts.append(_claimed(bundle, number * SPAN, edge))
        edge = grown(edge, number, claimed)
    for tile in tiler.rest():
        _compare(bundle, replace(tile, level=tile.level + 2))
    if not starts or (head.size % SPAN and head.size // SPAN % spans == 0):
        starts.append(_claimed(bundle, head.size // SPAN * SPAN, edge))
    ends = [start.size for start in starts[1:]] + [head.size]
    parts = [
        Part(place, vkey, start, end, None, secrets.token_bytes(32))
        for start, end in zip(starts, ends, strict=True)
    ]
    return head, [*parts[:-1], replace(parts[-1], head=head.note, edge=tuple(edge))]


def _level_two(bundle: Place, count: int) -> Iterator[bytes]:
    for first in range(0, count, TILE_WIDTH):
        width = min(TILE_WIDTH, count - first)
        path = tile_path(2, first // TILE_WIDTH, width=width)
        tile = bundle.read(path, limit=width * 32)
        if len(tile) != width * 32:
            raise MalformedError(f"{path} has {len(tile)} bytes, not {width * 32}")
        for at in range(0, len(tile), 32):
            yield tile[at : at + 32]


def _claimed(bundle: Place, size: int, edge: Sequence[bytes]) -> State:
    """Return what the bundle says of its entries before this size; keys are added by others."""
    if size == 0:
        return State()
    path = tile_path("entries", size // TILE_WIDTH - 1)
    *_, last = _split(bundle.read(path, limit=TILE_WIDTH * (2 + _MAX_ENTRY)), path)
    entry = parse_entry(last, index=size - 1)
    return State(size=size, last_hash=entry.entry_hash, time_ns=entry.time_ns, edge=tuple(edge))


def verify_part(part: Part) -> Answer | str:
    """Return what a part comes to, or what is wrong with it; runs in a worker's process."""
    began = time.process_time()
    bundle = place_of(part.place)
    read = hmac.new(part.nonce, digestmod=hashlib.sha256)
    # Tiles of higher levels have hashes of several parts.
    tiler = Tiler(levels=2, start=part.start.size)
    try:
        segment = verify_segment(
            _entries(bundle, part, read),
            iter(()),
            vkey=part.vkey,
            start=part.start,
            whole=False,
            on_growth=lambda grown: _compare_all(bundle, tiler.take(grown)),
        )
        if part.head is not None:
            _compare_all(bundle, tiler.rest())
    except (MismatchError, VerificationError) as error:
        return f"entries {part.start.size:,} to {part.end - 1:,} do not hold: {error}".rstrip(": ")
    return Answer(segment, read.digest(), time.process_time() - began)


def _entries(bundle: Place, part: Part, read: Any) -> Iterator[bytes]:
    for first in range(part.start.size, part.end, TILE_WIDTH):
        width = min(TILE_WIDTH, part.end - first)
        path = tile_path("entries", first // TILE_WIDTH, width=width)
        data = bundle.read(path, limit=width * (2 + _MAX_ENTRY))
        read.update(data)
        entries = _split(data, path)
        if len(entries) != width:
            raise MalformedError(f"{path} has {len(entries)} entries, not {width}")
        yield from entries


def _compare_all(bundle: Place, tiles: Iterable[Tile]) -> None:
    for tile in tiles:
        _compare(bundle, tile)


def _compare(bundle: Place, tile: Tile) -> None:
    if bundle.read(tile.path, limit=len(tile.hashes)) != tile.hashes:
        raise ConsistencyError(f"{tile.path} does not match the entries")


def _split(data: bytes, path: str) -> list[bytes]:
    try:
        return split_sized(data, limit=TILE_WIDTH)
    except MalformedError as error:
        raise MalformedError(f"{path}: {error}") from error


class Joined:
    """What answers come to, one after another: each has to begin where the last one ended."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._known = Versions()
        self._last: Segment | None = None

    def add(self, part: Part, segment: Segment) -> None:
        """Take in the answer on the next part."""
        at = f"{part.start.size:,}"
        if segment.start != part.start or segment.end.size != part.end:
            self.faults.append(f"the answer on entry {at} is about another part")
        elif segment.versions.overflowed:
            self.faults.append(f"from entry {at}: too many streams for one part")
        else:
            try:
                segment.versions.follow(self._known)
            except MismatchError:
                self.faults.append(f"from entry {at}: a stream does not go on")
        if self._last is not None and self._last.end != segment.start:
            self.faults.append(f"entry {segment.start.size:,} does not follow the one before")
        self._last = segment

    def end(self, note: str) -> list[str]:
        """Return all faults; the last part has to end in the signed root."""
        assert self._last is not None, "a bundle has a part"
        last = self._last.end
        authority = self._last.authority
        try:
            head = open_head(note, authority=authority, size=last.size, signatures="all")
        except VerificationError as error:
            return [*self.faults, f"{CHECKPOINT}: {error}"]
        if (last.size, root_of(last.edge)) != (head.size, head.root):
            self.faults.append(f"{CHECKPOINT}: the signed root is not that of the entries")
        return self.faults


def combine(parts: Sequence[Part], answers: Sequence[Answer | str]) -> list[str]:
    """Return what is wrong by answers that came one for each part, up to the first invalid one."""
    joined = Joined()
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, str):
            return [*joined.faults, answer]
        joined.add(part, answer.segment)
        if answer.segment.end.edge[: len(part.edge)] != part.edge:
            joined.faults.append("the tiles of level 2 do not match the entries")
    return joined.end(str(parts[-1].head))


def verify_in_parts(
    place: str,
    *,
    workers: int,
    spans: int = 4,
    share: float = 0.05,
    seed: int | None = None,
    vkey: str | None = None,
) -> Found:
    """Verify a bundle in processes; a share of its parts is verified twice."""
    began = time.perf_counter()
    head, parts = plan(place, spans=spans, vkey=vkey)
    found = Found(entries=head.size, parts=len(parts), coordinating=time.perf_counter() - began)
    # Whom is looked at again must not be known before; a seed is for tests.
    drawn = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311
    with pool(workers) as processes:
        first = [processes.submit(verify_part, part) for part in parts]
        answers = _answers(first, found)
        checking = time.perf_counter()
        found.faults += combine(parts, answers)
        chosen = drawn.sample(range(len(parts)), k=round(share * len(parts)) or 1)
        found.coordinating += time.perf_counter() - checking
        again = _answers([processes.submit(verify_part, parts[at]) for at in chosen], found)
        found.faults += differing(parts, answers, dict(zip(chosen, again, strict=True)))
        found.again = len(chosen)
    found.wall = time.perf_counter() - began
    return found


def differing(
    parts: Sequence[Part], answers: Sequence[Answer | str], again: Mapping[int, Answer | str]
) -> list[str]:
    """Return where a second worker says something else than the first."""
    return [
        f"two workers say different things of entries {parts[at].start.size:,} to "
        f"{parts[at].end - 1:,}"
        for at, second in again.items()
        if _said(answers[at]) != _said(second)
    ]


def _said(answer: Answer | str) -> str | tuple[Segment, bytes]:
    return answer if isinstance(answer, str) else (answer.segment, answer.read)


def _answers(waiting: Sequence[Future[Answer | str]], found: Found) -> list[Answer | str]:
    answers = [each.result() for each in waiting]
    found.working += sum(each.seconds for each in answers if isinstance(each, Answer))
    return answers


# Many machines, simulated.


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Machines that verify, and what they are like."""

    entries: int = 1_000_000_000
    spans: int = 4
    workers: int = 100
    rate: float = 283_000.0  # entries/s of a worker, as measured
    size: float = 553.0  # bytes of an entry
    bandwidth: float = 60e6  # bytes/s of a worker from the store
    store: float = 10e9  # bytes/s of the store to all
    checking: float = 0.004  # seconds of the coordinator for an answer, as measured
    spread: float = 0.2  # standard deviation of a worker's log speed
    lost: float = 0.02  # of the workers, at a random moment; their part is done again
    share: float = 0.05  # of the parts, verified twice


@dataclass(frozen=True)
class Simulated:
    """What a simulated verification came to."""

    parts: int
    wall: float
    ideal: float  # all workers busy to the end
    again: int
    coordinating: float


def simulate(fleet: Fleet, *, seed: int = 0) -> Simulated:
    """Give each part to whoever is free next, then a share of them to somebody else."""
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    count = -(-fleet.entries // (SPAN * fleet.spans))
    size = fleet.entries / count
    bandwidth = min(fleet.bandwidth, fleet.store / fleet.workers)
    each = max(size / fleet.rate, size * fleet.size / bandwidth)
    again = round(fleet.share * count) or 1
    slowness = [drawn.lognormvariate(0.0, fleet.spread) for _ in range(fleet.workers)]
    ideal = (count + again) * each / sum(1 / slow for slow in slowness)
    dies = {
        number: drawn.uniform(0, ideal)
        for number in range(fleet.workers)
        if drawn.random() < fleet.lost
    }
    free = [(0.0, number) for number in range(fleet.workers)]
    wall, left = 0.0, count + again
    while left:
        if not free:
            raise ProctorError("all workers are lost; a fleet needs one that stays")
        now, number = min(free)
        free.remove((now, number))
        done = now + each * slowness[number]
        if number in dies and done > dies[number]:
            continue  # its part goes to another
        left -= 1
        wall = max(wall, done)
        free.append((done, number))
    return Simulated(count, wall, ideal, again, fleet.checking * (count + again))


def undetected(*, share: float, lies: int, trials: int = 0, parts: int = 0, seed: int = 0) -> float:
    """Return how likely it is that nobody looks again at parts that a worker lied about.

    With `trials`, drawn instead of computed: each with so many of `parts`, without replacement.
    """
    if not trials:
        return float((1 - share) ** lies)
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    chosen = round(share * parts) or 1
    missed = sum(min(drawn.sample(range(parts), k=chosen)) >= lies for _ in range(trials))
    return missed / trials


def run(options: argparse.Namespace) -> None:
    """Print the tables of the page; with a bundle, verify it in parts first.

    Raises ConsistencyError with the first fault of the bundle.
    """
    fleet = Fleet()
    vkey = read_vkey_file(options.vkey)
    if vkey is not None and options.bundle is None:
        raise ProctorError("--vkey is the public key of a BUNDLE; name the bundle")
    workers = options.workers or os.cpu_count() or 1
    if options.entries is not None:
        from studies.pieces import measure  # noqa: PLC0415 - it is made of this module

        measure(options.into, options.entries, workers=workers, spans=options.spans)
        return
    if options.bundle is not None:
        found = verify_in_parts(options.bundle, workers=workers, spans=options.spans, vkey=vkey)
        if found.faults:
            raise ConsistencyError(found.faults[0])
        per_part = found.coordinating / found.parts
        rate = found.entries * (1 + found.again / found.parts) / max(found.working, 1e-9)
        fleet = replace(fleet, rate=rate, checking=per_part, spans=options.spans)
        print_table(
            (
                "entries",
                "parts",
                "twice",
                "workers",
                "wall s",
                "entries/s",
                "of a worker",
                "coord. s",
            ),
            [
                (
                    *(found.entries, found.parts, found.again, workers, round(found.wall, 1)),
                    *(round(found.entries / found.wall), round(rate)),
                    round(found.coordinating, 3),
                )
            ],
        )
    rows = []
    for workers in (1, 10, 100, 1_000, 5_000):
        each = simulate(replace(fleet, workers=workers))
        rows.append(
            (
                *(workers, each.parts, each.again, f"{each.parts / workers:.1f}"),
                *(round(each.wall), round(each.ideal), f"{each.coordinating:.1f}"),
            )
        )
    print_table(
        ("workers", "parts", "twice", "parts each", "wall s", "ideal s", "coordinator s"),
        rows,
        title=f"{fleet.entries:,} entries, {round(fleet.rate):,} entries/s of a worker",
    )
    parts = simulate(fleet).parts
    print_table(
        ("parts lied about", "verified twice", "undetected", "drawn"),
        [
            (
                lies,
                f"{share:.0%}",
                f"{undetected(share=share, lies=lies):.4f}",
                f"{undetected(share=share, lies=lies, trials=2_000, parts=parts):.4f}",
            )
            for share in (0.01, 0.05, 0.2)
            for lies in (1, 10, 38, 100)
        ],
        title="a worker that answers without verifying",
    )
