"""The witness's server, by real sockets: what it answers, and that nobody can hold it up."""

import http.client
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from witness_trees import ORIGIN, Log, root_of, submit_over_http

from ledger.verification.verified_notes import parse_note, parse_tree_head
from ledger.witnessing.client import ask_witness, post
from ledger.witnessing.cosignatures import open_cosignature
from ledger.witnessing.server import make_server, url_of
from ledger.witnessing.store import origin_hash
from ledger.witnessing.witness import MAX_REQUEST, Witness

HONEST = Log.honest(40)
FORK = HONEST.forked(5)
SERVE = """
import sys
from pathlib import Path
from ledger.witnessing.witness import Witness
from ledger.witnessing.server import make_server, url_of
with Witness.open(Path(sys.argv[1]), passphrase=None) as witness:
    server = make_server(witness, host="127.0.0.1", port=0, timeout=int(sys.argv[2]))
    print(url_of(server), flush=True)
    server.run()
"""


@contextmanager
def serving(folder: Path, *, timeout: int = 30) -> Iterator[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder), str(timeout)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Witness.create(tmp_path / "state", name="witness.example/w1", passphrase=None)
    with Witness.open(tmp_path / "state", passphrase=None) as witness:
        witness.trust(HONEST.vkey)
    return tmp_path / "state"


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def vkey_in(folder: Path) -> str:
    return (folder / "witness.vkey").read_text().strip()


def send(url: str, method: str, path: str, body: bytes = b"") -> tuple[int, str, bytes]:
    with closing(http.client.HTTPConnection(*address(url), timeout=60)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


def test_server_speaks_the_protocol(url: str, folder: Path) -> None:
    status, kind, body = send(url, "POST", "/add-checkpoint", HONEST.request(0, 11))
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    text = HONEST.head(11).rpartition("\n\n")[0]
    assert open_cosignature(parse_note(f"{text}\n\n{body.decode()}"), vkey=vkey_in(folder))
    assert send(url, "POST", "/add-checkpoint", HONEST.request(3, 12)) == (
        409,
        "text/x.tlog.size",
        b"11\n",
    )
    status, _, note = send(url, "GET", f"/{origin_hash(ORIGIN)}/checkpoint")
    assert (status, note.decode()) == (200, HONEST.head(11) + body.decode())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/add-checkpoint", b"", 405),
        ("PUT", "/add-checkpoint", b"", 405),
        ("POST", f"/{origin_hash(ORIGIN)}/checkpoint", b"", 405),
        ("GET", f"/{origin_hash(ORIGIN)}/checkpoint", b"", 404),
        ("GET", "/../witness.pem/checkpoint", b"", 404),
        ("GET", "/", b"", 404),
        ("GET", "/%ff/checkpoint", b"", 404),
        ("POST", "/add-checkpoint/", b"", 404),
        ("POST", "/add-checkpoint", b"", 400),
        ("POST", "/add-checkpoint", b"x" * MAX_REQUEST, 400),
        ("POST", "/add-checkpoint", b"x" * (MAX_REQUEST + 1), 413),
        ("POST", "/add-checkpoint", Log.honest(3, seed=2).request(0, 3), 403),
        ("POST", "/add-rotations", b"", 400),
    ],
)
def test_request_that_is_not_possible_is_rejected(
    url: str, method: str, path: str, body: bytes, status: int
) -> None:
    assert send(url, method, path, body)[0] == status
    assert send(url, "POST", "/add-checkpoint", HONEST.request(0, 11))[0] == 200


@pytest.mark.slow
def test_slow_and_broken_clients_do_not_hold_up_others(folder: Path) -> None:
    with serving(folder, timeout=20) as url, ExitStack() as stack:
        head = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 1000\r\n\r\nold"
        slow = [
            stack.enter_context(closing(socket.create_connection(address(url)))) for _ in range(60)
        ]
        for number, client in enumerate(slow):
            client.sendall((b"", b"PO", head)[number % 3])
        before = time.monotonic()
        assert send(url, "POST", "/add-checkpoint", HONEST.request(0, 11))[0] == 200
        assert time.monotonic() - before < 18  # seconds: before the first of them is closed
        # Drop by drop does not keep a connection: each is closed after its time.
        deadline = time.monotonic() + 300
        while slow and time.monotonic() < deadline:
            time.sleep(0.4)
            for client in list(slow):
                try:
                    client.sendall(b"o")
                except OSError:
                    slow.remove(client)
        assert slow == []
        assert send(url, "POST", "/add-checkpoint", HONEST.request(11, 12))[0] == 200


def test_witness_whose_memory_fails_says_so_and_cosigns_nothing(url: str, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "witness.sqlite")) as c:
        c.execute("ALTER TABLE logs RENAME TO gone")
        status, _, body = send(url, "POST", "/add-checkpoint", HONEST.request(0, 11))
        assert (status, body) == (503, b"the witness cannot answer now; try again later\n")
        c.execute("ALTER TABLE gone RENAME TO logs")
    assert send(url, "POST", "/add-checkpoint", HONEST.request(0, 11))[0] == 200


def test_of_two_forks_submitted_at_once_one_is_cosigned(url: str, folder: Path) -> None:
    children = [submit_over_http(url, forked=bool(number % 2), seed=number) for number in range(6)]
    notes = [note for child in children for note in child()]
    for note in notes:
        open_cosignature(parse_note(note), vkey=vkey_in(folder))
    cosigned = {(head.size, head.root) for head in map(parse_tree_head, notes) if head.size}
    honest = {(size, root_of(HONEST.leaves[:size])) for size in range(1, 41)}
    forked = {(size, root_of(HONEST.forked(0).leaves[:size])) for size in range(1, 41)}
    assert cosigned
    assert cosigned <= honest or cosigned <= forked


def ask(url: str, log: Log, size: int, *, old: int, vkey: str, timeout: float = 5) -> str:
    return ask_witness(
        url,
        vkey=vkey,
        note=log.head(size),
        old_size=old,
        request=lambda old_size: log.request(old_size, size).decode(),
        timeout=timeout,
    ).outcome


def test_client_is_told_what_came_of_asking(url: str, folder: Path, tmp_path: Path) -> None:
    vkey = vkey_in(folder)
    stranger = Log(HONEST.leaves, HONEST.key, origin="proctor.local/stranger")
    assert ask(url, HONEST, 11, old=0, vkey=vkey) == "cosigned"
    assert ask(url, HONEST, 20, old=0, vkey=vkey) == "cosigned"  # after it was told the size
    assert ask(url, HONEST, 15, old=0, vkey=vkey) == "behind"
    assert ask(url, FORK, 30, old=20, vkey=vkey) == "fork"
    assert ask(url, stranger, 30, old=20, vkey=vkey) == "refused"
    assert ask(url + "/nowhere", HONEST, 30, old=20, vkey=vkey) == "refused"
    assert ask("http://127.0.0.1:1", HONEST, 30, old=20, vkey=vkey) == "failed"
    assert ask("file:///etc/passwd", HONEST, 30, old=20, vkey=vkey) == "failed"
    other = Witness.create(tmp_path / "other", name="witness.example/w1", passphrase=None)
    assert ask(url, HONEST, 30, old=20, vkey=other) == "failed"  # signed by an unknown key


def test_client_hands_over_rotations_when_the_key_is_refused(url: str, folder: Path) -> None:
    successor = HONEST.signed_by(2)
    assert ask(url, successor, 11, old=0, vkey=vkey_in(folder)) == "refused"
    asked = ask_witness(
        url,
        vkey=vkey_in(folder),
        note=successor.head(11),
        old_size=0,
        request=lambda old: successor.request(old, 11).decode(),
        rotations=[HONEST.rotation_to(successor)],
        timeout=60,
    )
    assert asked.outcome == "cosigned"


@contextmanager
def answering(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve as a hostile witness would."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with closing(client):
                    try:
                        client.recv(100_000)
                        behave(client)
                    except OSError:
                        pass

        Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def drip(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        client.sendall(b"X: y\r\n")
        time.sleep(0.05)


def flood(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        client.sendall(b"x" * 65_536)


def always_conflict(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n3\n")


def redirect(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")


@pytest.mark.parametrize("behave", [drip, flood, always_conflict, redirect, lambda client: None])
def test_hostile_witness_is_not_waited_for(
    behave: Callable[[socket.socket], None], folder: Path
) -> None:
    before = time.monotonic()
    with answering(behave) as url:
        assert ask(url, HONEST, 11, old=0, vkey=vkey_in(folder), timeout=1) == "failed"
    assert time.monotonic() - before < 5


def test_url_names_host_and_port(folder: Path) -> None:
    with Witness.open(folder, passphrase=None) as witness:
        server = make_server(witness, host="127.0.0.1", port=0)
        try:
            assert url_of(server).startswith("http://127.0.0.1:")
        finally:
            server.task_dispatcher.shutdown()
            server.close()


def test_url_without_a_host_is_rejected() -> None:
    with pytest.raises(ValueError, match="must start with http"):
        post("http://", "", timeout=1)
