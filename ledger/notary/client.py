"""A connection to a notary: one request at a time, found again when it is lost.

A request that was sent and not answered may have been carried out or not. It is sent again on a
new connection: asking twice does no harm, and appending twice is a conflict, which whoever
appends can look into (see remote.py).

Source: docs/reference/notary.md.
Trust: the notary is whoever listens at the socket; what it says it recorded can be verified.
I/O: the socket.  Units: seconds.
"""

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from ledger.errors import MalformedError, StorageError
from ledger.notary.messages import (
    PREFIX,
    PROTOCOL,
    Frame,
    Greeting,
    M,
    Request,
    frame_length,
    pack_message,
    parse_frame,
    raise_error,
    read_message,
)

_ANSWER_SECONDS = 120.0  # a notary waits 30 s itself for whoever holds the ledger
_PATIENCE = 30.0  # seconds in which a notary that went away may come back


class NotaryClient:
    """Shared by the threads of a process; they take turns."""

    def __init__(self, path: Path, *, patience: float = _PATIENCE) -> None:
        self.path = path
        self._patience = patience
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        self.greeting: Greeting = self._connect()

    def ask(
        self,
        request: Request,
        answer: type[M],
        payload: bytes = b"",
        *,
        on_loss: Callable[[], None] = lambda: None,
    ) -> tuple[M, bytes]:
        """Return the answer and its payload, or raise the error that the notary reports.

        `on_loss` is called when an answer did not come, before the request is sent again.
        Raises StorageError if the notary cannot be reached for too long; then what was asked
        for may have been done.
        """
        frame = self.exchange(pack_message(request, payload), on_loss=on_loss)
        return read_message(frame.header, answer), frame.payload

    def exchange(self, data: bytes, *, on_loss: Callable[[], None] = lambda: None) -> Frame:
        """Send a frame and return the answer's, as ask() does."""
        with self._lock:
            answer = self._exchange(data, on_loss)
        raise_error(answer.header)
        return answer

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _exchange(self, data: bytes, on_loss: Callable[[], None]) -> Frame:
        deadline = time.monotonic() + self._patience
        while True:
            if self._closed:
                raise StorageError(f"{self.path}: the connection is closed")
            try:
                if self._socket is None:
                    self._greet_again()
                assert self._socket is not None
                self._socket.sendall(data)
                return _receive(self._socket)
            except (OSError, EOFError) as e:
                self._hang_up()
                on_loss()
                self._pause(e, deadline)
            except BaseException:  # an answer that is half read must not be the next one's
                self._hang_up()
                raise

    def _greet_again(self) -> None:
        greeting = self._connect()
        if (greeting.origin, greeting.vkey) != (self.greeting.origin, self.greeting.vkey):
            self._hang_up()
            raise StorageError(f"{self.path}: the notary there now serves a different ledger")
        self.greeting = greeting

    def _pause(self, error: Exception, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise StorageError(
                f"{self.path}: no answer from the notary for {self._patience:.0f} s ({error}); "
                "check that it is running, and what it recorded"
            ) from error
        time.sleep(0.05)

    def _connect(self) -> Greeting:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Not settimeout(): a connection that waits in the kernel gets its turn, one that
            # only tries now and then does not.
            for option, seconds in (
                (socket.SO_SNDTIMEO, self._patience),
                (socket.SO_RCVTIMEO, _ANSWER_SECONDS),
            ):
                connection.setsockopt(
                    socket.SOL_SOCKET, option, struct.pack("ll", max(int(seconds), 1), 0)
                )
            connection.connect(str(self.path))
            header = _receive(connection).header
            raise_error(header)
            greeting = _greeting(header)
        except (OSError, EOFError) as e:
            connection.close()
            if not hasattr(self, "greeting"):
                raise StorageError(f"{self.path}: cannot connect to the notary: {e}") from e
            raise
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        return greeting

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _receive(connection: socket.socket) -> Frame:
    return parse_frame(read_frame(connection)[PREFIX:])


def read_frame(connection: socket.socket) -> bytes:
    """Return the next frame, prefix included; raise EOFError where the other side hung up."""
    prefix = _read(connection, PREFIX)
    return prefix + _read(connection, frame_length(prefix))


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other side closed the connection")
        data += piece
    return bytes(data)


def _greeting(header: dict[str, Any]) -> Greeting:
    protocol = header.get("protocol", PROTOCOL)
    if protocol != PROTOCOL:
        raise StorageError(f"the notary uses protocol {protocol}, this program protocol {PROTOCOL}")
    try:
        return read_message(header, Greeting)
    except MalformedError as e:
        raise MalformedError(f"the process at this socket is not a notary: {e}") from e
