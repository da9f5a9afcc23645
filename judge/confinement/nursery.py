"""A process that has imported what a supervisor needs, and forks one for each command.

To start an interpreter and import takes fifteen times the processor time of a fork. One nursery
serves this process; it ends when this one does, or when its socket is closed.

Trust: the nursery is our own process, and its memory is that of any supervisor: our code.
I/O: a process, a socket pair.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from judge.errors import ConfinementError

_SUPERVISOR = "judge.confinement.supervisor"
_PATIENCE = 30.0  # s for an answer; one that is stopped gives none


@dataclass
class _Nursery:
    """The one process, begun when it is first asked, and again where it is gone."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    channel: socket.socket | None = None
    process: "subprocess.Popen[bytes] | None" = None

    def fork(self, descriptors: Sequence[int]) -> int:
        with self.lock:
            for _ in range(2):  # one that was killed is begun again
                told, found = self._ask(self._begun(), descriptors)
                if found:
                    os.set_inheritable(found[0], False)
                    return found[0]
                if told:  # others' commands go on
                    break
                self.close()
        raise ConfinementError(
            "no process can be started for a candidate: too many processes or files may be open; "
            "end some, and try again"
        )

    def _ask(self, channel: socket.socket, descriptors: Sequence[int]) -> tuple[bytes, list[int]]:
        """Return the answer, which has a socket of its own: nobody else reads one left unread."""
        answer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answer, suppress(OSError):
            answer.settimeout(_PATIENCE)
            with theirs:
                socket.send_fds(channel, [b"+"], [*descriptors, theirs.fileno()])
            return socket.recv_fds(answer, 1, 1)[:2]
        return b"", []

    def _begun(self) -> socket.socket:
        if self.channel is None:
            self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self.process = subprocess.Popen(  # noqa: S603 - a fixed command of our own
                    [sys.executable, "-I", "-B", "-m", _SUPERVISOR],
                    cwd="/",
                    env={},
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self.channel

    def close(self) -> None:
        """End it, also where it is stopped, or another process holds its socket."""
        if self.channel is not None:
            self.channel.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.channel = self.process = None

    def forget(self) -> None:
        """Leave it to the process that this one was forked from."""
        if self.channel is not None:
            self.channel.close()
        self.lock, self.channel, self.process = threading.Lock(), None, None


_OWN = _Nursery()
atexit.register(_OWN.close)
os.register_at_fork(after_in_child=_OWN.forget)


def supervisor(descriptors: Sequence[int]) -> int:
    """Start a supervisor with these: standard input, output and error, request, report.

    Returns a descriptor of the process (pidfd_open(2)). Raises ConfinementError.
    """
    return _OWN.fork(descriptors)
