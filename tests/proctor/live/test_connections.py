"""Connections to the live view: who sends nothing, or reads nothing, locks nobody out."""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from proctor.live.connections import Connection

LARGE = 8_000_000  # bytes, more than the system keeps for who does not read
DEADLINE = 1.0


class Quick(Connection):
    most = 12
    grace_seconds = 0.2
    request_seconds = DEADLINE
    reading_seconds = DEADLINE


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * DEADLINE)
    while (await receive()).get("more_body"):
        pass
    body = b"x" * (LARGE if scope["path"] == "/large" else 4)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Quick,
            ws="none",
            lifespan="off",
            log_level="critical",
            limit_concurrency=8 * Quick.most,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()


def opened(stack: ExitStack, port: int, sent: bytes = b"") -> socket.socket:
    found = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
    with suppress(OSError):
        found.sendall(sent)
    return found


def closed(connection: socket.socket) -> bool:
    """Wait until the server has closed it, or say that it has not."""
    connection.settimeout(10 * DEADLINE)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def status(port: int, path: str = "/") -> int:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        asked.request("GET", path)
        answered = asked.getresponse()
        answered.read()
        return answered.status
    finally:
        asked.close()


NEVER_ENDING = {
    "nothing": b"",
    "half of a line": b"GET / HT",
    "headers without an end": b"GET / HTTP/1.1\r\nHost: a\r\n",
    "a form without its end": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\ntoken",
    "large answers that are not read": b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", NEVER_ENDING)
def test_connections_that_wait_for_ever_do_not_lock_others_out(what: str, port: int) -> None:
    with ExitStack() as stack:
        held = [opened(stack, port, NEVER_ENDING[what]) for _ in range(4 * Quick.most)]
        assert [status(port) for _ in range(5)] == [200] * 5
        time.sleep(2 * Quick.grace_seconds)
        assert [status(port) for _ in range(5)] == [200] * 5
        assert closed(held[0])  # the one that waited longest


def test_connection_that_waits_for_ever_is_closed_at_its_deadline(port: int) -> None:
    with ExitStack() as stack:
        silent = {what: opened(stack, port, sent) for what, sent in NEVER_ENDING.items()}
        time.sleep(2 * DEADLINE)
        assert [what for what, each in silent.items() if not closed(each)] == []


def test_connection_that_sends_a_byte_now_and_then_is_closed_at_its_deadline(port: int) -> None:
    with ExitStack() as stack:
        slow = opened(stack, port)
        sent = 0
        with suppress(OSError):
            for _ in range(100):
                slow.sendall(b"a")
                sent += 1
                time.sleep(DEADLINE / 5)
        assert sent < 30


def test_second_request_has_a_deadline_too(port: int) -> None:
    with ExitStack() as stack:
        slow = opened(stack, port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert slow.recv(1_000).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET / HT")
        assert closed(slow)


@pytest.mark.slow
def test_honest_clients_keep_their_connections(port: int) -> None:
    """A slow request, a slow reader, an answer that takes long, a connection that is used again."""
    with ExitStack() as stack:
        again = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        stack.callback(again.close)
        again.request("GET", "/")
        assert again.getresponse().read() == b"xxxx"
        used = again.sock
        for piece in (b"GET / HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n"):
            if piece.startswith(b"GET"):
                slow_request = opened(stack, port, piece)
            else:
                time.sleep(DEADLINE / 5)
                slow_request.sendall(piece)
        assert slow_request.recv(1_000).startswith(b"HTTP/1.1 200")
        slow_reader = opened(stack, port, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        got = 0  # with the headers; the socket has a time limit of its own
        while got <= LARGE:
            piece = slow_reader.recv(400_000)
            assert piece, f"closed after {got} bytes"
            got += len(piece)
            time.sleep(DEADLINE / 10)
        again.request("GET", "/")
        assert again.getresponse().read() == b"xxxx"
        assert used is not None
        assert again.sock is used
        slow_answer = opened(stack, port, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(2 * Quick.most):  # others come and stay
            opened(stack, port)
        assert slow_answer.recv(1_000).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_owner_is_served_while_others_hold_connections(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "home/ledger", REGISTRY) as log:
        synthetic_run(log, epochs=1)
    command = [sys.executable, "-P", "-m", "proctor", "serve", "--port", "0", "--home"]
    with subprocess.Popen(
        [*command, str(tmp_path / "home")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PROCTOR_STATE": str(tmp_path / "state")},
    ) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline()).port
        assert port is not None
        try:
            with ExitStack() as stack:
                held = [opened(stack, port) for _ in range(140)]
                for _ in range(3):
                    assert status(port) == 200  # a page without a secret: it asks for the token
                    time.sleep(1)
                assert closed(held[0])
                time.sleep(Connection.request_seconds)
                assert all(map(closed, held))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
