"""The wire: one attempt of a call, with bounds that no server can stretch.

The openai client decides on retries by itself; what it cannot know, it is told here: how much of
the call's time is left, that nobody was ever there, that a body is too large. The time is held at
every read of the socket, so that a server that drips, headers or body, is cut off as well.

Trust: everything that comes in is hostile.  I/O: sockets.  Units: seconds, bytes.
"""

import math
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import httpcore2
import httpx2
import openai

from policies.secrets import Secrets

MAX_BODY = 16 * 2**20  # 16 MiB
_RETRIED = (408, 409, 429)  # and everything from 500
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 8.0  # seconds; the openai client's
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
class Attempt:
    """One request of a call and what became of it."""

    started: float
    ended: float
    status: int | None = None
    error: str | None = None


class Transport(httpx2.HTTPTransport):
    """Sends one attempt, notes what became of it, and says whether another may follow."""

    def __init__(self, secrets: Secrets, query: str, *, retries: int) -> None:
        super().__init__(trust_env=False)
        self.attempts: list[Attempt] = []
        self.refused_wait: float | None = None  # seconds that the server asked for in vain
        self._secrets = secrets
        self._query = query
        self._max_retries = retries
        self._reached = False
        self._clock = _Deadline()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(),  # SSL_CERT_FILE is honoured
            network_backend=self._clock,
        )

    def begin(self, timeout: float) -> None:
        """Start the clock of a call."""
        self.attempts = []
        self.refused_wait = None
        self._clock.until = time.monotonic() + timeout

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one attempt."""
        now = time.monotonic()
        attempt = Attempt(now, now)
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
        # What was not asked for is not unpacked: a bomb stays a parcel.
        response.headers.pop("content-encoding", None)
        response.headers["x-should-retry"] = "true" if self._may_retry(response) else "false"
        response.stream = _Body(response.stream, self._watching(attempt))
        return response

    def _may_retry(self, response: httpx2.Response) -> bool:
        status = response.status_code
        if status not in _RETRIED and status < 500:
            return False
        wait = _asked_wait(response.headers)
        if wait is None or wait <= 0:
            return self._time_for_another()
        if wait <= self._clock.left():
            return True
        self.refused_wait = wait
        return False

    def _time_for_another(self) -> bool:
        wait = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2.0 ** (len(self.attempts) - 1))
        return wait < self._clock.left()

    def _watching(self, attempt: Attempt) -> "_Watching":
        return _Watching(self, attempt)

    def failed(self, attempt: Attempt, error: httpx2.TransportError) -> None:
        """Note a failed attempt; raises CallEnded where no other may follow."""
        attempt.ended = time.monotonic()
        kind, attempt.error = failure(error)
        if (
            kind == "timeout"  # of the whole call
            or not self._time_for_another()
            or (kind == "unreachable" and not self._reached)  # nobody was ever there
        ):
            raise CallEnded(kind, attempt.error) from None


class _Watching:
    """A block in which an attempt can fail."""

    def __init__(self, transport: Transport, attempt: Attempt) -> None:
        self._transport = transport
        self._attempt = attempt

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, httpx2.TransportError):
            self._transport.failed(self._attempt, error)


class _Body(httpx2.SyncByteStream):
    """A response's body, read up to MAX_BODY."""

    def __init__(self, stream: Any, watching: _Watching) -> None:
        self._stream = stream
        self._watching = watching

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        with self._watching:
            for chunk in self._stream:
                size += len(chunk)
                if size > MAX_BODY:
                    raise CallEnded("too_large", f"the body is larger than {MAX_BODY} bytes")
                yield chunk

    def close(self) -> None:
        self._stream.close()


class _Deadline(httpcore2.NetworkBackend):
    """A network in which nothing lasts beyond a point in time, however little is sent at a time."""

    def __init__(self) -> None:
        self.until = math.inf
        self._network = httpcore2.SyncBackend()

    def left(self) -> float:
        """Return the seconds that are left."""
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
        """Connect within what is left."""
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


def _asked_wait(headers: httpx2.Headers) -> float | None:
    """Return for how many seconds a server asks to be left alone; None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return None if math.isnan(seconds) else seconds
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return None if date is None else mktime_tz(date) - time.time()
    except (ValueError, OverflowError, OSError):
        return None
