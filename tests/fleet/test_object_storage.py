"""Bundles in object storage: on a server that nobody here wrote, over loopback."""

import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import answer, call_here

from ledger.blobs import BlobStore
from ledger.handover.bundle import export_bundle
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger

pytestmark = pytest.mark.foreign
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=name/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=0"
)
BLOB = 12_000_000  # bytes: an upload in three parts


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                request(url, "PUT", "/bucket")
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def request(url: str, method: str, path: str, data: bytes | None = None) -> bytes:
    """Ask the server, which checks no signature."""
    sent = urllib.request.Request(
        url + path, method=method, data=data, headers={"Authorization": SIGNED}
    )
    with urllib.request.urlopen(sent, timeout=60) as found:
        return bytes(found.read())


@pytest.fixture(autouse=True)
def _credentials(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def grow(home: Path, *, events: int, start: int = 0) -> None:
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        SignedRecorder(database, signer=signer).insert_events(
            [
                StoredEvent(UUID(int=7), number + 1, "run.test", bytes(number % 300))
                for number in range(start, start + events)
            ]
        )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    grow(home, events=700)
    blobs = BlobStore(LedgerPaths(home / "ledger").blobs)
    blobs.put(b"small")
    blobs.put(bytes(range(250)) * (BLOB // 250))
    return home


def exported(home: Path, key: str) -> str:
    place = f"s3://bucket/{key}"
    done = call_here(["export", "bundle", "--out", place], home=home)
    assert done.returncode == 0, done.stderr
    return place


def test_bundle_in_a_bucket_is_the_bundle_in_a_folder(
    home: Path, server: str, tmp_path: Path
) -> None:
    place = exported(home, "a/b")
    export_bundle(home / "ledger", tmp_path / "bundle")
    for path in (tmp_path / "bundle").rglob("*"):
        if path.is_file():
            relative = path.relative_to(tmp_path / "bundle")
            assert request(server, "GET", f"/bucket/a/b/{relative}") == path.read_bytes()
    told = answer(call_here(["verify", place, "--json"], home=tmp_path))
    assert (told["ok"], told["size"]) == (True, 700)
    told = answer(call_here(["import", place, "--json"], home=tmp_path / "imported"))
    assert (told["new"], told["blobs"], told["left_out"]) == (700, 2, [])
    assert call_here(["verify"], home=tmp_path / "imported").returncode == 0


def written_at(server: str, path: str) -> str:
    sent = urllib.request.Request(server + path, headers={"Authorization": SIGNED})
    with urllib.request.urlopen(sent, timeout=60) as found:
        return str(found.headers["Last-Modified"])


def test_bundle_in_a_bucket_is_extended(server: str, tmp_path: Path) -> None:
    grow(tmp_path / "home", events=300)
    place = exported(tmp_path / "home", "extended")
    assert answer(call_here(["import", place, "--json"], home=tmp_path / "other"))["new"] == 300
    grow(tmp_path / "home", events=300, start=300)
    full = "/bucket/extended/tile/entries/000"
    before = written_at(server, full)
    time.sleep(1.1)  # the server counts seconds
    assert exported(tmp_path / "home", "extended") == place
    assert answer(call_here(["import", place, "--json"], home=tmp_path / "other"))["new"] == 300
    assert written_at(server, full) == before
    grow(tmp_path / "another", events=10)
    done = call_here(["export", "bundle", "--out", place], home=tmp_path / "another")
    assert done.returncode == 2
    assert f"{place} contains the bundle of a different ledger" in done.stderr


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def changed(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("change", [cut, changed])
@pytest.mark.parametrize(
    ("name", "index"),
    [("tile/entries/001", range(256, 512)), ("tile/0/000", range(256)), ("checkpoint", None)],
)
def test_object_that_is_not_what_was_written_is_named(
    home: Path,
    server: str,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    name: str,
    index: range | None,
) -> None:
    place = exported(home, f"{change.__name__}/{name}")
    path = place.removeprefix("s3:/") + f"/{name}"
    request(server, "PUT", path, change(request(server, "GET", path)))
    done = call_here(["verify", place, "--json"], home=tmp_path)
    assert done.returncode == 1
    told = answer(done)
    assert not told["ok"]
    if index is not None:
        assert told["index"] in index
    assert call_here(["import", place], home=tmp_path / "new").returncode == 1
    assert not (tmp_path / "new/ledger").exists()


def test_blob_that_was_changed_is_found(home: Path, server: str, tmp_path: Path) -> None:
    place = exported(home, "blob")
    listed = request(server, "GET", "/bucket?list-type=2&prefix=blob/blobs/").decode()
    digest = listed.partition("<Key>")[2].partition("</Key>")[0]
    request(server, "PUT", f"/bucket/{digest}", b"something else")
    done = call_here(["verify", place], home=tmp_path)
    assert done.returncode == 1
    assert "the blob was changed" in done.stdout


@contextmanager
def answering(kind: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


class Refuses(http.server.BaseHTTPRequestHandler):
    """Answers as S3 does where the key's name is unknown."""

    def do_GET(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>unknown</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Cuts(Refuses):
    """Hands on what a server answers; from one object on, only half of it."""

    behind: ClassVar[str]

    def do_GET(self) -> None:
        sent = urllib.request.Request(self.behind + self.path, headers={"Authorization": SIGNED})
        with urllib.request.urlopen(sent) as found:
            body = found.read()
            self.send_response(200)
            for name in ("ETag", "Last-Modified", "Content-Type"):
                self.send_header(name, found.headers[name] or "")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            whole = "tile/entries" not in self.path
            self.wfile.write(body if whole else body[: len(body) // 2])
            self.close_connection = True

    def do_HEAD(self) -> None:
        self.do_GET()


def refused(place: str, home: Path) -> str:
    done = call_here(["verify", place], home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_what_keeps_a_bucket_from_being_read_is_said(
    home: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = exported(home, "kept")
    assert "the bucket was not found; create it" in refused("s3://nobucket/a", tmp_path)
    assert "give s3://BUCKET/KEY" in refused("s3://name:word@bucket/a", tmp_path)
    assert "bundle not found; check the path" in refused("s3://bucket/nothing", tmp_path)
    with answering(Refuses) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert "the credentials are wrong; check AWS_ACCESS_KEY_ID" in refused(place, tmp_path)
    Cuts.behind = server
    with answering(Cuts) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert "the connection failed or was cut" in refused(place, tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    assert "the connection failed or was cut" in refused(place, tmp_path)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "no credentials; set AWS_ACCESS_KEY_ID" in refused(place, tmp_path)


def peak(home: Path, *arguments: str) -> int:
    """Return how much memory a command has needed, in bytes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor", *arguments, "--home", str(home)],
        env={**os.environ, "PROCTOR_STATE": "off"},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def test_memory_does_not_grow_with_a_blob(tmp_path: Path) -> None:
    size = 200_000_000
    for name in ("small", "large"):
        grow(tmp_path / name, events=300)
        folder = LedgerPaths(tmp_path / name / "ledger").blobs
        with closing(BlobStore(folder).write()) as writer:
            for number in range(size // 1_000_000 if name == "large" else 1):
                writer.add(bytes([number]) * 1_000_000)
            writer.finish()
    needed = {
        name: max(
            peak(tmp_path / name, "export", "bundle", "--out", f"s3://bucket/memory/{name}"),
            peak(tmp_path / name, "verify", f"s3://bucket/memory/{name}"),
        )
        for name in ("small", "large")
    }
    assert needed["large"] - needed["small"] < size / 3, needed
