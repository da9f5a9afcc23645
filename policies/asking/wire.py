"""One attempt of a call, with time and size limits that no server can exceed.

The openai client decides on retries by itself; what it cannot know, it is told here: how much of
the call's time is left, that nobody was ever there, that a body is too large. The time is held at
every read of the socket, so that a server that drips, headers or body, is cut off as well.

Trust: everything that comes in is hostile.  I/O: sockets.  Units: seconds, bytes.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import httpcore2
import httpx2
import openai

from policies.asking.secrets import Secrets

MAX_BODY = 16 * 2**20  # 16 MiB
_RETRIED = (408, 409, 429)  # and everything from 500
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 8.0  # seconds; the openai client's
_LONGEST_WAIT = 120.0  # seconds; the openai client's, too
# Headers that hold nothing of the user's; the value of any other is a secret.
_PUBLIC_HEADERS = re.compile(
    r"(accept|accept-encoding|connection|content-length|content-type|host|user-agent"
    r"|idempotency-key|x-stainless-.*)"
)


class CallEnded(openai.OpenAIError):
    """Ends a call at once: the openai client hands its own errors on without another try."""

    def __init__(self, outcome: str, problem: str) -> None:
        super().__init__(problem)
        self.outcome = outcome


def failure(error: BaseException) -> tuple[str, str]:
    """Return the outcome of a failed connection and what is known of it."""
    kind = (
        "timeout"
        if isinstance(error, httpx2.TimeoutException)
        else "unreachable"
        if isinstance(error, httpx2.ConnectError)
        else "dropped"
    )
    return kind, f"{type(error).__name__}: {error}"


@dataclass
class Exchange:
    """One request of a call and what became of it."""

    started: float
    ended: float
    status: int | None = None
    error: str | None = None


class Transport(httpx2.HTTPTransport):
    """Sends one attempt, notes what became of it, and says whether another may follow."""

    def __init__(self, secrets: Secrets, query: str) -> None:
        super().__init__(trust_env=False)
        self.attempts: list[Exchange] = []
        self.refused_wait: float | None = None  # seconds that the server asked for in vain
        self.location: str | None = None  # where the server redirects to
        self._secrets = secrets
        self._query = query
        self._reached = False
        self._clock = _Deadline()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(),  # SSL_CERT_FILE is honoured
            network_backend=self._clock,
        )

    def begin(self, timeout: float) -> None:
        """Start the clock of a call."""
        self.attempts = []
        self.refused_wait = self.location = None
        self._clock.until = time.monotonic() + timeout

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one attempt; of what comes back, status and body alone are handed on.

        A server's headers would choose how its body is unpacked and decoded, where to go next and
        what to remember. The client gets headers of ours.
        """
        now = time.monotonic()
        attempt = Exchange(now, now)
        self.attempts.append(attempt)
        for name, value in request.headers.multi_items():
            if not _PUBLIC_HEADERS.fullmatch(name.lower()):
                self._secrets.add(value)
                self._secrets.add(value.partition(" ")[2])
        if self._query:  # on a copy: the original's URL is logged
            url = request.url.copy_with(query=self._query.encode())
            request = httpx2.Request(
                request.method,
                url,
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        with self._watching(attempt):
            response = super().handle_request(request)
        self._reached = True
        attempt.status = response.status_code
        attempt.ended = time.monotonic()
        self.location = response.headers.get("location")
        return httpx2.Response(
            response.status_code,
            headers={
                "content-type": "application/json; charset=utf-8",
                **self._retry_headers(response.status_code, _asked_wait(response.headers)),
            },
            stream=_Body(self._chunks(response.stream, attempt), response.close),
        )

    def _retry_headers(self, status: int, wait: float | None) -> dict[str, str]:
        """Tell the openai client whether to try again, and when."""
        if status not in _RETRIED and status < 500:
            return {"x-should-retry": "false"}
        if wait is None:
            return {"x-should-retry": "true" if self._time_for_another() else "false"}
        if wait > min(self._clock.left(), _LONGEST_WAIT):
            self.refused_wait = wait
            return {"x-should-retry": "false"}
        return {"x-should-retry": "true", "retry-after-ms": f"{wait * 1000:.3f}"}

    def _time_for_another(self) -> bool:
        wait = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2.0 ** (len(self.attempts) - 1))
        return wait < self._clock.left()

    def _chunks(self, stream: Any, attempt: Exchange) -> Iterator[bytes]:
        size = 0
        with self._watching(attempt):
            for chunk in stream:
                size += len(chunk)
                if size > MAX_BODY:
                    raise CallEnded("too_large", f"the body is larger than {MAX_BODY} bytes")
                yield chunk

    @contextmanager
    def _watching(self, attempt: Exchange) -> Iterator[None]:
        """Note where the attempt fails; raises CallEnded where no other may follow."""
        try:
            yield
        except httpx2.TransportError as error:
            attempt.ended = time.monotonic()
            kind, attempt.error = failure(error)
            if (
                kind == "timeout"  # of the whole call
                or not self._time_for_another()
                or (kind == "unreachable" and not self._reached)  # nobody was ever there
            ):
                raise CallEnded(kind, attempt.error) from None
            raise


class _Body(httpx2.SyncByteStream):
    """A response's body as it comes in."""

    def __init__(self, chunks: Iterator[bytes], close: Callable[[], None]) -> None:
        self._chunks = chunks
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._close()


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
        try:
            stream = self._network.connect_tcp(
                host, port, self.limit(), local_address, socket_options
            )
        except UnicodeError as error:  # no host can have this name
            raise httpcore2.ConnectError(str(error)) from error
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


def _asked_wait(headers: httpx2.Headers) -> float | None:
    """Return for how many seconds a server asks to be left alone; None if it says nothing sane."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return seconds if seconds > 0 else None  # NaN is not above zero either
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return None if date is None else max(0.001, mktime_tz(date) - time.time())
    except (ValueError, OverflowError, OSError):
        return None
