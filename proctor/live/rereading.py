"""Reads the entries again that were verified before, so that a later change of the file is seen.

A look at the ledger reads what is new. What lies before was verified then, and somebody may change
it in the file since. Each entry is compared with the hashes that were remembered of it.

Trust: as of ledger/verification/reader.py, whose code does this.
I/O: reads the ledger, some entries at a time, each time in a read transaction of its own.
Units: seconds.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from ledger.errors import VerificationError
from ledger.verification.memory import Memory
from ledger.verification.reader import VerifiedLedger, check_ledger

_STEP = 8_192  # entries in one transaction
_SHARE = 5  # of the time, one part is spent reading
_NICE = 10


@dataclass(frozen=True)
class Reread:
    """A pass over all entries that were verified when it began."""

    entries: int
    ended_at: datetime


def reread(
    directory: Callable[[], Path], *, memory: Memory, vkey: str, stopped: threading.Event
) -> Reread | None:
    """Read all entries again; None if that was stopped.

    Raises VerificationError if one is not as it was verified.
    """
    at, done, size = 0, 0, 1

    def take(ledger: VerifiedLedger) -> None:
        nonlocal done, size
        size = ledger.size
        done = at + sum(1 for _ in islice(ledger.raw_entries(start=at), _STEP))

    while at < size:
        done, began = at, time.monotonic()
        report = check_ledger(
            directory(), vkey=vkey, signatures="newest", memory=memory, new=True, read=take
        )
        if not report.ok:
            raise VerificationError(report.error or "the ledger does not verify")
        if done == at:
            break
        at = done
        if stopped.wait((_SHARE - 1) * (time.monotonic() - began)):
            return None
    return Reread(at, datetime.now(UTC))


def lower_priority() -> None:
    """Let this thread wait for others, where the operating system can do that for one thread."""
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
