"""One attempt of a call, with time and size limits that no server can exceed.

The time is held at every read of the socket, so that a server that drips, headers or body, is cut
off as well. Nothing that a server says chooses how its body is unpacked or decoded, where to go
next, or what to remember; the environment's proxies are not used.

Trust: everything that comes in is hostile.  I/O: sockets.  Units: seconds, bytes.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import httpcore2

MAX_BODY = 16 * 2**20  # 16 MiB
_RETRIED = (408, 409, 429)  # and everything from 500
_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    UnicodeError,  # a host's name that cannot be one
)


@dataclass
class Exchange:
    """One request of a call and what became of it."""

    started: float
    ended: float = math.nan
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""  # whole, where nothing failed
    failed: str | None = None  # the outcome of a failed connection
    error: str | None = None  # what is known of it

    @property
    def busy(self) -> bool:
        """Whether the server may answer otherwise when it is asked again."""
        status = self.status or 0
        return self.failed is None and (status in _RETRIED or status >= 500)

    @property
    def asked_wait(self) -> float | None:
        """For how many seconds the server asks to be left alone; None if it says nothing sane."""
        for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            try:
                seconds = float(self.headers.get(name, "")) / unit
            except ValueError:
                continue
            return seconds if seconds > 0 else None  # NaN is not above zero either
        date = parsedate_tz(self.headers.get("retry-after", ""))
        try:
            return None if date is None else max(0.001, mktime_tz(date) - time.time())
        except (ValueError, OverflowError, OSError):
            return None


class Wire:
    """Sends requests to one address. Not for several threads at a time."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.reached = False  # whether somebody was ever there
        self._url = url
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._clock = _Deadline()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpcore2.default_ssl_context(),  # SSL_CERT_FILE is honoured
            network_backend=self._clock,
        )

    def begin(self, timeout: float) -> None:
        """Start the clock of a call."""
        self._clock.until = time.monotonic() + timeout

    def left(self) -> float:
        """Return the seconds that are left of the call."""
        return self._clock.left()

    def send(self, request: bytes) -> Exchange:
        """Send a request's body once and return what came of it."""
        found = Exchange(time.monotonic())
        try:
            with self._pool.stream(
                "POST", self._url, headers=self._headers, content=request
            ) as response:
                self.reached, found.status = True, response.status
                found.headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                body = bytearray()
                for chunk in response.iter_stream():
                    body += chunk
                    if len(body) > MAX_BODY:
                        found.failed = "too_large"
                        found.error = f"the body is larger than {MAX_BODY} bytes"
                        break
                found.body = bytes(body)
        except _FAILURES as error:
            found.failed, found.error = _outcome(error), f"{type(error).__name__}: {error}"
        found.ended = time.monotonic()
        return found

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _outcome(error: Exception) -> str:
    if isinstance(error, httpcore2.TimeoutException):
        return "timeout"
    gone = isinstance(error, httpcore2.ConnectError | UnicodeError)
    return "unreachable" if gone else "dropped"


class _Deadline(httpcore2.NetworkBackend):
    """A network in which nothing lasts beyond a point in time, however little is sent at a time."""

    def __init__(self) -> None:
        self.until = math.inf
        self._network = httpcore2.SyncBackend()

    def left(self) -> float:
        return self.until - time.monotonic()

    def limit(self) -> float:
        """Return the seconds that are left; raises ReadTimeout if there are none."""
        left = self.left()
        if left <= 0:
            raise httpcore2.ReadTimeout("the time for the whole call is over")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the clock rules
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._network.connect_tcp(host, port, self.limit(), local_address, socket_options)
        return _Stream(stream, self)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, clock: _Deadline) -> None:
        self._stream = stream
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the clock rules
        return self._stream.read(max_bytes, self._clock.limit())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the clock rules
        self._stream.write(buffer, self._clock.limit())

    def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the clock rules
    ) -> httpcore2.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._clock.limit())
        return _Stream(stream, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()
