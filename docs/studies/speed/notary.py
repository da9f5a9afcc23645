"""What a notary's appends cost, with several producers: under shared tree heads, and without.

`python docs/studies bench ledger` measures it; `python docs/studies bench notary` nothing else, for
a page.

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
from collections.abc import Callable, Iterator, Sequence
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
from studies.speed.timing import Timed

__all__ = ["PRODUCERS", "Producing", "append_through_notary", "measure_producers", "tabled"]

PRODUCERS = (1, 2, 4, 8)
_CHILD = """\
import sys
sys.path = sys.argv[4:]
from studies.speed.notary import serve
serve(*sys.argv[1:4])
"""


@dataclass(frozen=True, kw_only=True)
class Producing:
    """Single events of so many producers; each pair is under shared tree heads, and without."""

    producers: int
    rate: tuple[float, float]  # events/s
    spent: tuple[float, float]  # s of the notary's processor, for an event


def measure_producers(scratch: Path, body: bytes, *, events: int, rounds: int) -> list[Producing]:
    """Let producers append single events, both ways in turns; return the medians."""
    events -= events % PRODUCERS[-1]
    taken: dict[int, list[tuple[Timed, Timed]]] = {producers: [] for producers in PRODUCERS}
    for number in range(rounds):
        for producers, pairs in taken.items():
            append = partial(
                append_through_notary, scratch, body, events=events, producers=producers
            )
            apart = append(together=False) if number % 2 else None
            together = append(together=True)
            pairs.append((together, apart or append(together=False)))
    return [
        Producing(
            producers=producers,
            rate=_medians(pairs, lambda each: events / each.wall),
            spent=_medians(pairs, lambda each: each.processor / events),
        )
        for producers, pairs in taken.items()
    ]


def _medians(
    pairs: list[tuple[Timed, Timed]], figure: Callable[[Timed], float]
) -> tuple[float, float]:
    together, apart = zip(*pairs, strict=True)
    return median(map(figure, together)), median(map(figure, apart))


def tabled(found: Sequence[Producing]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return columns and rows of a table."""
    columns = ("single events through a notary", "events/s", "each alone", "notary's \u00b5s")
    rows = [
        (
            f"{each.producers} producer{'s' if each.producers > 1 else ''}",
            *(f"{rate:,.0f}" for rate in each.rate),
            *(f"{1e6 * spent:,.0f}" for spent in each.spent),
            f"{1 - each.spent[0] / each.spent[1]:.0%}",
        )
        for each in found
    ]
    return (*columns, "each alone", "saved"), rows


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
    child = [sys.executable, "-c", _CHILD, str(folder), str(folder / "socket"), str(small)]
    with subprocess.Popen(  # noqa: S603 - this program's own words
        [*child, *sys.path],
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
