"""Connections that cannot be held by who sends nothing: each request has a deadline.

Any user of this machine can connect. A connection without a request is worth nothing, so it gives
way: if there are more than MOST, the one that has waited longest is closed. A connection whose
request has arrived stays until it is answered.

Not covered: thousands of new connections in each second, which fill what a process may open.
I/O: the connections of uvicorn's event loop.
Units: seconds.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 128  # connections that stay; more come and go


class Connection(H11Protocol):
    """A connection that is closed if a request, or the reading of an answer, takes too long."""

    most = MOST
    grace_seconds = 0.5  # in which a request that was sent at once is read
    request_seconds = 20.0  # until a request has arrived with its body, which is a form at most
    reading_seconds = 60.0  # in which a client reads nothing of an answer that waits for it

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._since = 0.0  # when it began to wait for the client
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether the client has to do something next."""
        cycle = self.cycle
        answering = cycle is not None and not cycle.more_body and not cycle.response_complete
        return not answering or self._unread is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; if there are too many, one that waits gives way to it."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.most:
            self.loop.call_later(self.grace_seconds, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        self._stop(self._due, self._unread)
        self._due = self._unread = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived; the deadline of a request ends when it is whole."""
        if self._due is None and self.waits:
            self._await_request()
        super().data_received(data)
        if not self.waits:
            self._stop(self._due)
            self._due = None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give a client that does not read some time."""
        super().pause_writing()
        if self._unread is None:
            self._since = self.loop.time()
            self._unread = self.loop.call_later(self.reading_seconds, self.give_up)

    def resume_writing(self) -> None:
        """It reads."""
        self._stop(self._unread)
        self._unread = None
        super().resume_writing()

    def give_up(self) -> None:
        """Close the connection now, also where an answer was not read."""
        self.connections.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _make_room(self) -> None:
        """Close those that waited longest, but none that may just not have been read yet."""
        late = self.loop.time() - self.grace_seconds
        others = (each for each in self.connections if isinstance(each, Connection))
        waiting = [each for each in others if each.waits and each._since <= late]
        waiting.sort(key=lambda each: each._since)
        for each in waiting[: max(0, len(self.connections) - self.most)]:
            each.give_up()

    def _await_request(self) -> None:
        self._since = self.loop.time()
        self._due = self.loop.call_later(self.request_seconds, self.give_up)

    def _stop(self, *clocks: asyncio.TimerHandle | None) -> None:
        for clock in clocks:
            if clock is not None:
                clock.cancel()
