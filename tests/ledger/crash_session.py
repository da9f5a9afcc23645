"""A recorder's day, to be interrupted: begin, append, store a blob, overflow the WAL, reopen,
and append as a notary does for several producers at once.

Run as `python crash_session.py DIRECTORY [STEP ...]`. Says on standard output what was done
(`event STREAM VERSION`, `blob DIGEST`, `rotation VKEY`, `cosigned SIZE`, `remembered SIZE`,
`exported SIZE`) and what was refused (`error TYPE: message`).
A refusal is an answer and the session goes on; any other exception ends it with a traceback.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.entries import encode_event, join_sized
from ledger.errors import ConflictError, LedgerError
from ledger.handover.bundle import export_bundle
from ledger.mapper import EventRegistry
from ledger.notary.desk import Desk
from ledger.notary.rules import User
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.verification.memory import Memory
from ledger.verification.reader import check_ledger
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.cosignatures import sign_cosignature

STEPS = (
    *("open", "append", "append", "blob", "cosign", "rotate", "append", "large", "append", "close"),
    *("verify", "export", "open", "append", "close", "group", "verify", "export"),
)
MEMORY, BUNDLE = "memory", "bundle"  # kept in the ledger's folder here, to be checked with it
WITNESS = "witness.example"
WITNESS_KEY = Ed25519PrivateKey.from_private_bytes(b"w" * 32)
LARGE = 20  # events that together fill more pages than this:
CHECKPOINT = 200  # pages in the log, after which SQLite copies them into the database


def say(line: str) -> None:
    """One write each, so that a line is there or not."""
    os.write(1, f"{line}\n".encode())


def cosign(recorder: SignedRecorder) -> int:
    """Add a witness's line to the newest tree head, and return its size."""
    note = recorder.tree_head()
    if note is None:
        return 0
    text = note.rpartition("\n\n")[0] + "\n"
    line = sign_cosignature(text, name=WITNESS, key=WITNESS_KEY, seconds=1)
    size = parse_tree_head(note).size
    recorder.add_signature_line(size, line)
    return size


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
        # A setting of the connection: reach for the recorder's own.
        connection = self.app.recorder._store._connection  # type: ignore[attr-defined]
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")

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

    def rotate(self) -> None:
        if self.app is not None:
            assert isinstance(self.app.recorder, SignedRecorder)
            say(f"rotation {self.app.recorder.rotate_key()}")

    def cosign(self) -> None:
        if self.app is not None:
            assert isinstance(self.app.recorder, SignedRecorder)
            say(f"cosigned {cosign(self.app.recorder)}")

    def verify(self) -> None:
        report = check_ledger(self.directory, memory=Memory(self.directory / MEMORY))
        if report.ok:
            say(f"remembered {report.size}")
        else:
            say(f"error {report.error_type}: {report.error}")

    def export(self) -> None:
        say(f"exported {export_bundle(self.directory, self.directory / BUNDLE).head.size}")

    def group(self) -> None:
        """Append for three producers at once, as a notary does; a fourth repeats the first."""
        streams = [uuid4() for _ in range(3)]
        payloads = [
            join_sized([encode_event((stream.bytes, 1, "test.event", b"body", None))])
            for stream in streams
        ]
        with closing(Desk(LedgerPaths(self.directory), passphrase=None)) as desk:
            user = User(uid=1, append=("*",))
            *answers, again = desk.insert_each([(user, each) for each in (*payloads, payloads[0])])
        for stream, answer in zip(streams, answers, strict=True):
            if isinstance(answer, LedgerError):
                raise answer
            say(f"event {stream} 1")
        assert isinstance(again, ConflictError)

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
