"""Forks writers that append until they are killed; itself it imports everything only once.

Reads commands from standard input: `start DIRECTORY ACKNOWLEDGED SEED` answers a process id,
`wait PID` answers once it has ended. A writer adds to the file ACKNOWLEDGED, one write for each
line, what the ledger has acknowledged: `event STREAM VERSION INDEX`, `blob DIGEST`,
`rotation VKEY` and `cosigned SIZE`.
"""

import os
import random
import signal
import sys
from pathlib import Path
from uuid import UUID

from crash_session import cosign
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder


def write(directory: Path, acknowledged: Path, seed: str) -> None:
    rng = random.Random(seed)
    stream = UUID(int=rng.getrandbits(128))
    blobs = BlobStore(LedgerPaths(directory).blobs)
    out = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    version = 0
    with LedgerApplication.open(directory, EventRegistry()) as app:
        assert isinstance(app.recorder, SignedRecorder)
        while True:
            if rng.random() < 0.1:
                digest = blobs.put(rng.randbytes(rng.choice((10, 100_000))))
                os.write(out, f"blob {digest}\n".encode())
            if rng.random() < 0.02:
                os.write(out, f"rotation {app.recorder.rotate_key()}\n".encode())
            if rng.random() < 0.05:
                os.write(out, f"cosigned {cosign(app.recorder)}\n".encode())
            count = rng.choice((1, 1, 3, 10, 100))
            ids = app.recorder.insert_events(
                [
                    StoredEvent(stream, version + n, "test.event", rng.randbytes(300))
                    for n in range(1, count + 1)
                ]
            )
            version += count
            assert ids is not None
            os.write(out, f"event {stream} {version} {ids[-1] - 1}\n".encode())


def main() -> None:
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "start":
            pid = os.fork()
            if pid == 0:
                try:
                    write(Path(arguments[0]), Path(arguments[1]), arguments[2])
                finally:
                    os.kill(os.getpid(), signal.SIGABRT)  # a writer only ends when it is killed
            print(pid, flush=True)
        else:
            _, status = os.waitpid(int(arguments[0]), 0)
            print(os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
