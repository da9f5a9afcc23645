"""A recorder's day, to be interrupted: begin, append, store a blob, overflow the WAL, reopen.

Run as `python crash_session.py DIRECTORY [STEP ...]`. Says on standard output what was
acknowledged (`event STREAM VERSION`, `blob DIGEST`) and what was refused (`error TYPE: message`).
A refusal is an answer and the session goes on; any other exception ends it with a traceback.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.errors import LedgerError
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths

STEPS = ("open", "append", "append", "blob", "large", "append", "close", "open", "append", "close")
LARGE = 72  # events that together fill more than the 1,000 pages after which SQLite checkpoints


def say(line: str) -> None:
    """One write each, so that a line is there or not."""
    os.write(1, f"{line}\n".encode())


class Session:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app: LedgerApplication | None = None
        self.stream = uuid4()

    def open(self) -> None:
        try:
            self.app = LedgerApplication.open(self.directory, EventRegistry())
        except LedgerError as e:  # who is refused tries again, once
            say(f"error {type(e).__name__}: {e}")
            self.app = LedgerApplication.open(self.directory, EventRegistry())

    def close(self) -> None:
        if self.app is not None:
            self.app.close()
        self.app = None

    def append(self) -> None:
        self._insert(1, size=300)

    def large(self) -> None:
        self._insert(LARGE, size=60_000)

    def blob(self) -> None:
        content = os.urandom(5_000)
        say(f"blob {BlobStore(LedgerPaths(self.directory).blobs).put(content)}")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _insert(self, count: int, *, size: int) -> None:
        if self.app is None:
            return
        first = last_version(self.app, self.stream) + 1
        self.app.recorder.insert_events(
            [
                StoredEvent(self.stream, version, "test.event", bytes(size))
                for version in range(first, first + count)
            ]
        )
        say(f"event {self.stream} {first + count - 1}")


def last_version(app: LedgerApplication, stream: UUID) -> int:
    newest = app.recorder.select_events(stream, desc=True, limit=1)
    return newest[0].originator_version if newest else 0


def main(directory: Path, steps: tuple[str, ...]) -> None:
    session = Session(directory)
    for step in steps:
        action: Callable[[], None] = getattr(session, step)
        try:
            action()
        except LedgerError as e:
            say(f"error {type(e).__name__}: {e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or STEPS)
