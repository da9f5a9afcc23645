"""A run trained on another machine: the worker's end, and the owner's.

The worker has neither key nor ledger. Its process listens at a Unix socket as a notary does, and
what arrives there is handed to the owner of the ledger as messages (proctor/runs/ray_cluster.py).
The owner answers each with one call, as a notary for this one run. Each event is in the owner's
ledger before the training goes on.

Trust: the owner believes a worker nothing that it would not believe a process of its own; less:
it writes only to the streams of its run, and the owner judges what it has trained.
I/O: a socket and a scratch home on the worker's machine; the ledger and the blobs on the owner's.
"""

import os
import platform
import shutil
import socket
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import UUID

from aggregates.registry import REGISTRY
from aggregates.run import OWN_ENDS, Run
from aggregates.transcript import Transcript
from ledger.application import LedgerApplication
from ledger.errors import ConflictError
from ledger.held_folder import HeldFolder
from ledger.notary.client import read_frame
from ledger.notary.proxy import Proxy
from ledger.notary.rules import User
from ledger.paths import LedgerPaths
from ledger.recording.recorders import EntryRecorder
from ledger.verification.reader import read_vkey
from monitor.code import code_sha256
from monitor.config import TaskConfig
from monitor.dispatch import current_variables
from monitor.submission import write_submission
from proctor.errors import ProctorError
from proctor.home import NOTARY, Home
from proctor.runs.executors import Outcome, failed
from proctor.runs.jobs import Job, recorded_run

Message = tuple[int, bytes | None] | Outcome
"""The number of a connection, and a request's frame: empty where it was opened, None where it was
closed. Or what the training has come to."""


class Station:
    """Trains one job at a time in a worker's process. Each call returns the next message."""

    def __init__(self) -> None:
        self._scratch = HeldFolder("proctor-worker-")
        self._home = self._scratch.path
        self._out: SimpleQueue[Message] = SimpleQueue()
        self._answers: dict[int, SimpleQueue[bytes]] = {}
        self._last = 0  # the connection whose message was handed out last
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.environ[NOTARY] = str(self._home / "socket")
        self._listener.bind(os.environ[NOTARY])
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def hello(self) -> dict[str, Any]:
        """Return what the owner compares with itself before it sends a job."""
        return {
            "code": code_sha256(),
            "variables": current_variables(),
            "where": platform.node(),
        }

    def begin(self, job: Job) -> Message:
        """Begin to train and return the first message."""
        threading.Thread(target=self._train, args=(job,), daemon=True).start()
        return self._next()

    def answer(self, data: bytes) -> Message:
        """Take the answer to the last message and return the next one."""
        if data:
            self._answers[self._last].put(data)
        return self._next()

    def close(self) -> None:
        """Remove what this process has written; nothing is trained any more."""
        self._listener.close()
        self._scratch.remove()

    def _next(self) -> Message:
        message = self._out.get()
        if not isinstance(message, Outcome):
            self._last, _ = message
        return message

    def _train(self, job: Job) -> None:
        found = Outcome(None, None)
        try:
            home = Home(self._home)
            log = LedgerApplication.connect(Path(os.environ[NOTARY]), REGISTRY)
            try:
                job.train(home, log)
            finally:
                log.close()
                shutil.rmtree(self._home / "runs", ignore_errors=True)
        except Exception as error:  # the owner is told, as by a process of its own
            found = failed(error)
        self._out.put(found)

    def _accept(self) -> None:
        number = 0
        with suppress(OSError):  # close() ends it
            while True:
                client, _ = self._listener.accept()
                number += 1
                self._answers[number] = SimpleQueue()
                threading.Thread(target=self._serve, args=(client, number), daemon=True).start()

    def _serve(self, client: socket.socket, number: int) -> None:
        """Hand the requests of one connection out, and the answers in."""
        with client, suppress(OSError, EOFError):
            self._ask(client, number, b"")
            while True:
                self._ask(client, number, read_frame(client))
        self._out.put((number, None))

    def _ask(self, client: socket.socket, number: int, frame: bytes) -> None:
        self._out.put((number, frame))
        client.sendall(self._answers[number].get())


def verify_worker(told: Mapping[str, Any]) -> None:
    """Raise ProctorError unless a worker would train as this process does."""
    where, code, variables = told["where"], told["code"], told["variables"]
    if code != code_sha256():
        raise ProctorError(
            f"the worker on {where} has other code (SHA-256 {code[:12]}, here "
            f"{code_sha256()[:12]}); install the same version of Proctor there"
        )
    if variables != current_variables():
        raise ProctorError(
            f"the worker on {where} computes with {variables}, not with {current_variables()}; "
            "remove what changes its environment"
        )


class Assignment:
    """A job that a worker has, at the owner's: its lock, and the notary for its run."""

    def __init__(self, job: Job, home: Home, log: LedgerApplication) -> None:
        self.job = job
        self._home, self._log = home, log
        run = UUID(job.run)
        recorder = log.recorder
        assert isinstance(recorder, EntryRecorder), "a ledger's"
        self._open = ExitStack()
        self._open.enter_context(home.running(run))  # no other command closes it as crashed
        job.allot(log)
        self._proxy = Proxy(
            recorder,
            home.blobs,
            vkey=read_vkey(LedgerPaths(home.path / "ledger").vkey),
            user=User(uid=os.getuid(), append=("run.*", "transcript.*")),
            streams=(run.bytes, Transcript.id_of(run).bytes),
            registry=REGISTRY,
        )
        self._open.callback(self._proxy.close)

    def take(self, message: Message) -> bytes | Outcome:
        """Return the answer to a worker's message, or what the training has come to."""
        if isinstance(message, Outcome):
            return Outcome(None, message.problem, message.stopped)
        connection, frame = message
        if frame is None:
            self._proxy.end(connection)
            return b""
        return self._proxy.answer(connection, frame) if frame else self._proxy.greeting()

    def hand_in(self) -> str | None:
        """Write what the run hands in, from what was recorded; return what is wrong with it."""
        run, config = recorded_run(self._log, self.job.run), self.job.config
        if run is None or run.end_reason not in OWN_ENDS:
            return "the worker has not recorded the end of its run"
        if run.config != config.to_dict():
            return "the worker has recorded another configuration than it was given"
        folder, blobs = self._home.submission(run.id), self._home.blobs
        task = blobs.get(config.task) if isinstance(config, TaskConfig) else b""
        hashes = write_submission(folder, run, blobs, config, task=task)
        *_, last = self._log.events.get(run.id)
        if not isinstance(last, Run.Ended) or hashes != last.deliverables:
            return "the worker has handed in other files than its record leads to"
        return None

    def close(self, reason: str | None = None, *, detail: str = "") -> None:
        """Let go of the run; with a reason, end it in the ledger unless it has ended."""
        with self._open:
            run = None if reason is None else recorded_run(self._log, self.job.run)
            if reason is not None and run is not None and run.end_reason is None:
                with suppress(ConflictError):  # another command was quicker
                    run.end(reason, detail=detail)
                    self._log.save(run)
