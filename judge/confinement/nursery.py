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
from dataclasses import dataclass, field

from judge.errors import ConfinementError

_SUPERVISOR = "judge.confinement.supervisor"
_PID = 8  # bytes that tell a process's number


@dataclass
class _Nursery:
    """The one process, begun when it is first asked, and again where it is gone."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    owner: int = 0  # process that began it: a fork of ours has to begin its own
    channel: socket.socket | None = None
    process: "subprocess.Popen[bytes] | None" = None

    def fork(self, descriptors: Sequence[int]) -> int:
        with self.lock:
            for _ in range(2):  # one that was killed is begun again
                channel = self._begun()
                try:
                    socket.send_fds(channel, [b"+"], descriptors)
                    if len(told := channel.recv(_PID)) == _PID:
                        return os.pidfd_open(int.from_bytes(told, "big"))
                except ProcessLookupError:  # it has ended already: its report says how
                    return -1
                except OSError:
                    pass
                self.close()
        raise ConfinementError("the process that confines candidates cannot be started")

    def _begun(self) -> socket.socket:
        if self.channel is None or self.owner != os.getpid():
            self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self.process = subprocess.Popen(  # noqa: S603 - a fixed command of our own
                    [sys.executable, "-I", "-B", "-m", _SUPERVISOR, str(theirs.fileno())],
                    cwd="/",
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self.owner = os.getpid()
        return self.channel

    def close(self) -> None:
        """Let it end, if it is this process's own."""
        if self.channel is not None and self.process is not None and self.owner == os.getpid():
            self.channel.close()
            self.process.wait()
        self.channel = self.process = None


_OWN = _Nursery()
atexit.register(_OWN.close)


def supervisor(descriptors: Sequence[int]) -> int:
    """Start a supervisor with these: standard input, output and error, request, report.

    Returns a descriptor of the process (pidfd_open(2)), or -1 where it has ended already. Raises
    ConfinementError.
    """
    return _OWN.fork(descriptors)
