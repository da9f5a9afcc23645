"""A witness over HTTP: add-checkpoint for ledgers, the latest tree heads for monitors.

Requests are read whole by one thread that waits for all clients at once, and only then given to
a worker; so a slow client costs a connection and nothing else.

Source: C2SP tlog-witness, "HTTP Interface"; PEP 3333. Our own: POST /add-rotations.
Trust: clients are hostile. Put a proxy with TLS in front where others have to reach it.
I/O: a listening socket.  Units: bytes, seconds.
"""

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server

from ledger.errors import LedgerError
from ledger.witnessing.rules import Response
from ledger.witnessing.witness import MAX_REQUEST, Witness

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_log = logging.getLogger(__name__)
_THREADS = 4  # they wait for the disk more than for the processor
_MAX_CONNECTIONS = 500
_MAX_HEADERS = 16_384  # bytes
_TIMEOUT = 30  # s in which a request has to be there


class WitnessApplication:
    """The witness as a WSGI application."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer one request."""
        try:
            answer = self._answer(environ)
        except LedgerError as e:  # what is wrong with us is none of a client's business
            _log.error("%s", e)
            answer = Response(status=503, body="the witness cannot answer now; try again later\n")
        body = answer.body.encode()
        start_response(
            f"{answer.status} {HTTPStatus(answer.status).phrase}",
            [("Content-Type", answer.content_type), ("Content-Length", str(len(body)))],
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: "WSGIEnvironment") -> Response:
        method = "GET" if environ["REQUEST_METHOD"] == "HEAD" else environ["REQUEST_METHOD"]
        match method, environ["PATH_INFO"].split("/"):
            case "POST", ["", "add-checkpoint"]:
                return self._witness.add_checkpoint(environ["wsgi.input"].read(MAX_REQUEST + 1))
            case "POST", ["", "add-rotations"]:
                return self._witness.add_rotations(environ["wsgi.input"].read(MAX_REQUEST + 1))
            case "GET", ["", log, "checkpoint"]:
                return self._witness.checkpoint(log)
            case _, ["", "add-checkpoint" | "add-rotations"] | ["", _, "checkpoint"]:
                return Response(status=405, body=f"{method} is not possible here\n")
        return Response(status=404, body="there is nothing here\n")


class _Channel(HTTPChannel):
    """A connection on which part of a request is no sign of life: drop by drop is too slow."""

    def handle_read(self) -> None:
        """Read what is there."""
        before = self.last_activity
        super().handle_read()
        if self.request is not None:
            self.last_activity = before


def make_server(
    witness: Witness, *, host: str, port: int, timeout: int = _TIMEOUT
) -> BaseWSGIServer:
    """Return a server that listens on an IP address; its run() serves until the process ends.

    Raises OSError if it cannot listen there.
    """
    settings: Any = {  # Any: the stubs give each setting the type of all of them
        "host": host,
        "port": port,
        "threads": _THREADS,
        "connection_limit": _MAX_CONNECTIONS,
        "channel_timeout": timeout,
        "cleanup_interval": max(1, timeout // 6),
        "max_request_body_size": MAX_REQUEST + 1,
        "max_request_header_size": _MAX_HEADERS,
        "asyncore_use_poll": True,  # select() stops at 1,024 files
        "expose_tracebacks": False,
        "ident": None,
    }
    server = create_server(WitnessApplication(witness), **settings)
    assert isinstance(server, BaseWSGIServer)  # of several only where a name has several addresses
    server.channel_class = _Channel
    return server


def url_of(server: BaseWSGIServer) -> str:
    """Return the URL at which a server listens."""
    host, port = server.getsockname()
    return f"http://[{host}]:{port}" if ":" in str(host) else f"http://{host}:{port}"
