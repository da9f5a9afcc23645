"""Having witnesses cosign the newest tree head of a home, once or again and again while it trains.

Source: C2SP tlog-witness, through ledger.witnessing.client.
Trust: what a witness answers is hostile until its line was verified.
I/O: HTTP to the witnesses; stores their lines in the ledger.  Units: seconds; sizes in entries.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from ledger.errors import LedgerError
from ledger.notary.remote import RemoteRecorder
from ledger.recorder import SignedRecorder
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.client import Asked, Cosigned, ask_witness, build_request, cosigned_size
from ledger.witnessing.quorum import Quorum, read_quorum
from ledger.wording import counted
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import open_remembered

_MOST_LINES = 16  # that a note may have
_PERIOD, _RETRY = 0.5, 5.0  # s between looks at the ledger; after one that missed the quorum
_SHARE = 20  # a look is repeated after so many times its processor time: 5% of a core at most
_TIMEOUT = 5.0  # s of each request
Ask = Callable[..., Asked]  # asks a witness, with `request`: what builds one for an old size
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AskedAll:
    """What came of asking all witnesses of a quorum."""

    met: bool
    size: int
    answers: dict[str, Asked]

    @property
    def contradicted(self) -> bool:
        """Whether a witness knows another or a longer ledger."""
        return any(asked.outcome in ("behind", "fork") for asked in self.answers.values())

    def __str__(self) -> str:
        told = ", ".join(f"{name}: {each.outcome}" for name, each in self.answers.items())
        met = "meets" if self.met else "does not meet"
        return f"the tree head of {counted(self.size, 'entry')} {met} the quorum ({told})"


def read_asked(path: Path) -> Quorum:
    """Read a policy file whose witnesses can be asked over HTTP."""
    quorum = read_quorum(path)
    if not any(witness.url for witness in quorum.witnesses):
        raise ProctorError(
            f"{path}: no witness has a URL; write a request with `proctor witness ask --out FILE`"
        )
    return quorum


def ask_witnesses(home: Home, quorum: Quorum, *, timeout: float) -> AskedAll:
    """Ask each witness to cosign the newest tree head, and store what it answers."""
    with newest_head(home) as (ledger, note):
        quorum.verify_log(ledger.vkey)
        answers = _ask_all(quorum, ledger, note, timeout=timeout)
    lines = [asked.cosigned for asked in answers.values() if asked.cosigned is not None]
    if lines:
        store_lines(home, lines)
    met = quorum.check(note + "".join(each.line for each in lines), authority=ledger.authority).met
    return AskedAll(met=met, size=parse_tree_head(note).size, answers=answers)


@contextmanager
def cosigned_meanwhile(
    home: Home, witnesses: Path | None, *, say: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Have witnesses cosign each tree head that is new, from threads, while the block runs.

    The block never waits for them, only its end does, for the last tree head. What came of that is
    said, by default on standard error; it is no reason for a run to fail. A block that an exception
    ends waits for nobody. None: nobody is asked.
    """
    if witnesses is None:
        yield
        return
    asking = _Asking(home, read_asked(witnesses))
    try:
        yield
    except BaseException:
        asking.stop()
        raise
    told = f"witnesses: {asking.end()}"
    print(told, file=sys.stderr) if say is None else say(told)


class _Asking:
    def __init__(self, home: Home, quorum: Quorum) -> None:
        self._home, self._quorum = home, quorum
        self._ended, self._last = threading.Event(), False
        self._done: AskedAll | str = "there was no tree head to cosign"
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> AskedAll | str:
        """Ask for the last tree head; return what came of it, or why nothing did."""
        self._last = True
        self.stop()
        self._thread.join()
        return self._done

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _follow(self) -> None:
        pause = _PERIOD
        while not self._ended.wait(pause):
            start = time.thread_time()
            self._ask()
            met = isinstance(self._done, AskedAll) and self._done.met
            pause = max(_PERIOD if met else _RETRY, _SHARE * (time.thread_time() - start))
        if self._last:
            self._ask()

    def _ask(self) -> None:
        try:
            self._done = ask_witnesses(self._home, self._quorum, timeout=_TIMEOUT)
        except (LedgerError, ProctorError, OSError) as error:
            self._done = str(error)


def store_lines(home: Home, lines: Iterable[Cosigned]) -> None:
    """Put verified cosignature lines to their tree heads; all of the storing is here."""
    with home.open_log() as log:
        recorder = log.recorder
        assert isinstance(recorder, SignedRecorder | RemoteRecorder)
        for each in lines:
            recorder.add_signature_line(each.size, each.line)


def requests_for(ledger: VerifiedLedger, note: str) -> Callable[[int], str]:
    """Return a function that builds the request for an old size; each is one walk."""

    @cache
    def build(old_size: int) -> str:
        leaf_hashes = (entry.entry_hash for entry in ledger.entries())
        return build_request(note, old_size=old_size, leaf_hashes=leaf_hashes)

    return build


@contextmanager
def newest_head(home: Home) -> Iterator[tuple[VerifiedLedger, str]]:
    """Give the ledger, verified, and its newest tree head."""
    with open_remembered(home, heads=True) as ledger:
        if ledger.head is None:
            raise ProctorError("an empty ledger has no tree head to cosign")
        yield ledger, ledger.head.note


def _ask_all(
    quorum: Quorum, ledger: VerifiedLedger, note: str, *, timeout: float
) -> dict[str, Asked]:
    answers: dict[str, Asked] = {}  # in the order of the quorum
    asks = dict[str, Ask]()
    size = parse_tree_head(note).size
    for witness in quorum.witnesses:
        name = witness.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        answers[name] = Asked(outcome="failed", detail="the tree head has no room for its line")
        old = cosigned_size(ledger.head_notes(), vkey=witness.vkey)
        if witness.url is None:
            answers[name] = Asked(outcome="failed", detail="it has no URL")
        elif old == size:
            answers[name] = Asked(
                outcome="cosigned", detail=f"{counted(old, 'entry')}, since before"
            )
        else:
            asks[name] = partial(
                ask_witness,
                witness.url.rstrip("/"),
                vkey=witness.vkey,
                note=note,
                old_size=old,
                rotations=tuple(ledger.authority.rotations),
                timeout=timeout,
            )
    build, waiting = requests_for(ledger, note), [*asks]
    room = _MOST_LINES - note.count("\n\u2014 ")
    while waiting and room > 0:  # who answers without a line leaves its room to others
        first, waiting = waiting[:room], waiting[room:]
        found = _ask_side_by_side({name: asks[name] for name in first}, build)
        room -= sum(asked.cosigned is not None for asked in found.values())
        answers |= found
    return answers


def _ask_side_by_side(asks: Mapping[str, Ask], build: Callable[[int], str]) -> dict[str, Asked]:
    """Ask each witness in a thread of its own; return what all of them answered.

    Requests are built in the calling thread: it has opened the ledger, and its processor time is
    counted. No thread keeps a process that ends waiting.
    """
    wanted = SimpleQueue[tuple[int, Future[str]] | None]()

    def request(old_size: int) -> str:
        built = Future[str]()
        wanted.put((old_size, built))
        return built.result()

    def follow(ask: Ask, answered: Future[Asked]) -> None:
        _settle(answered, partial(ask, request=request))
        wanted.put(None)

    answers = {name: Future[Asked]() for name in asks}
    for name, ask in asks.items():
        threading.Thread(target=follow, args=(ask, answers[name]), daemon=True).start()
    for _ in asks:
        while (want := wanted.get()) is not None:
            _settle(want[1], partial(build, want[0]))
    return {name: answered.result() for name, answered in answers.items()}


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    """Do work for somebody who waits, who gets its error as well."""
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
