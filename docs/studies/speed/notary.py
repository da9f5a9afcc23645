"""What a notary's appends cost, with several producers: under shared tree heads, and without.

Each producer appends single events and waits for each answer. The notary is a process of its own;
the producers are threads of this one, each with a connection and a stream.

I/O: a temporary folder below the one that is given; a process.
Units: seconds, and processor seconds of the notary alone.
"""

import asyncio
import os
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from ledger.notary.client import NotaryClient
from ledger.notary.desk import Desk
from ledger.notary.remote import RemoteRecorder
from ledger.notary.rules import User
from ledger.notary.service import SMALL, Notary, listening
from ledger.paths import LedgerPaths
from proctor.errors import ProctorError
from studies.speed.timing import Conditions, Timed, child, in_turns
from studies.statistics import Table

__all__ = ["PRODUCERS", "NotaryBench", "Producing", "append_through_notary", "measure"]

PRODUCERS = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Producing:
    """Single events of so many producers; each pair is under shared tree heads, and without."""

    producers: int
    rate: tuple[float, float]  # events/s
    spent: tuple[float, float]  # s of the notary's processor, for an event


@dataclass(frozen=True, kw_only=True)
class NotaryBench(Conditions):
    """What was measured; medians of the rounds."""

    events: int
    rows: list[Producing]

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        columns = ("single events through a notary", "events/s", "each alone", "notary's \u00b5s")
        yield Table(
            title=f"{self.events:,} events, {self.conditions()}",
            columns=(*columns, "each alone", "saved"),
            rows=tuple(
                (
                    f"{each.producers} producer{'s' if each.producers > 1 else ''}",
                    *(f"{rate:,.0f}" for rate in each.rate),
                    *(f"{1e6 * spent:,.0f}" for spent in each.spent),
                    f"{1 - each.spent[0] / each.spent[1]:.0%}",
                )
                for each in self.rows
            ),
        )


def measure(folder: Path, *, events: int, rounds: int) -> NotaryBench:
    """Let producers append single events, both ways in turns."""
    load, events = os.getloadavg()[0], events - events % PRODUCERS[-1]
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        append = partial(append_through_notary, Path(name), bytes(400), events=events)
        contests = [
            [partial(append, producers=producers, together=together) for together in (True, False)]
            for producers in PRODUCERS
        ]
        taken = in_turns(contests, rounds=rounds)
    return NotaryBench(
        **Conditions.since(load, rounds=rounds),
        events=events,
        rows=[
            Producing(
                producers=producers,
                rate=_medians(pairs, lambda each: events / each.wall),
                spent=_medians(pairs, lambda each: each.processor / events),
            )
            for producers, pairs in zip(PRODUCERS, taken, strict=True)
        ],
    )


def _medians(
    pairs: list[tuple[Timed, ...]], figure: Callable[[Timed], float]
) -> tuple[float, float]:
    together, apart = zip(*pairs, strict=True)
    return median(map(figure, together)), median(map(figure, apart))


def append_through_notary(
    scratch: Path, body: bytes, *, events: int, producers: int, together: bool
) -> Timed:
    """Append events to a new ledger, a multiple of the producers; return the notary's time."""
    each = events // producers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        spent = stack.enter_context(_serving(folder, small=SMALL if together else 0))
        recorders = [
            RemoteRecorder(stack.enter_context(closing(NotaryClient(folder / "socket"))))
            for _ in range(producers)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(producers))
        ended = threading.Event()
        stack.callback(ended.set)  # or what is interrupted would wait for all producers

        def append(first: int, last: int) -> None:
            barrier = threading.Barrier(producers)

            def produce(number: int) -> None:
                barrier.wait()
                for version in range(first, last + 1):
                    if ended.is_set():
                        return
                    event = StoredEvent(UUID(int=number), version, "run.event", body)
                    recorders[number].insert_events([event])

            list(pool.map(produce, range(producers)))

        append(1, 1)  # the streams are begun, and everything is loaded
        wall, processor = time.perf_counter(), spent()
        append(2, each + 1)
        return Timed(time.perf_counter() - wall, spent() - processor, 0.0)


@contextmanager
def _serving(folder: Path, *, small: int) -> Iterator[Callable[[], float]]:
    """Run a notary; yield what tells the processor time that it has spent."""
    words = (str(folder), str(folder / "socket"), str(small))
    with subprocess.Popen(  # noqa: S603 - this program's own words
        child(f"{__name__}:serve", *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def spent() -> float:
            stdin.write("\n")
            stdin.flush()
            said = stdout.readline()
            if not said:
                raise ProctorError("the notary that was started for the measurement has ended")
            return float(said)

        try:
            spent()  # once it listens
            yield spent
        finally:
            process.send_signal(signal.SIGTERM)


def serve(folder: str, socket: str, small: str) -> None:
    """Run the notary, and answer each line with the processor time; the other end of _serving()."""
    os.umask(0o077)
    desk = Desk(LedgerPaths(Path(folder) / "ledger"), passphrase=None)
    user = User(uid=os.geteuid(), append=("*",))

    def tell() -> None:
        for _ in sys.stdin:
            print(time.process_time(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)  # the process that measures is gone

    async def answer(notary: Notary, listener: sockets.socket) -> None:
        serving = asyncio.create_task(notary.serve(listener))
        await asyncio.sleep(0)  # now it answers SIGTERM
        threading.Thread(target=tell, daemon=True).start()
        await serving

    with closing(desk), listening(Path(socket)) as listener:
        asyncio.run(answer(Notary(desk, users={user.uid: user}, small=int(small)), listener))
