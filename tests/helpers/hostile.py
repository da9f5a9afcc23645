"""What a hostile user tries against a notary. Each function runs as that user, in a process.

They return what came of it: "done", or the error's name. Nothing here is skipped because it is
hopeless: the kernel's own answer is what the tests look at.
"""

import contextlib
import ctypes
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from loose_entries import Entry, encode_entry

from ledger.entries import AuthorKey, join_sized
from ledger.errors import LedgerError
from ledger.notary.client import NotaryClient
from ledger.notary.messages import MAX_FRAME, Done, Frame, Insert, PutBlob, pack_frame, parse_frame
from ledger.notary.remote import RemoteRecorder
from ledger.notary.remote_blobs import RemoteBlobs
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.authority import authority_stream

_PTRACE_ATTACH, _PIDFD_GETFD = 16, 438


def outcome(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as e:
        return type(e).__name__
    return "done"


def read_files(home: str) -> dict[str, str]:
    """Try to look at everything that a notary keeps."""
    ledger = Path(home) / "ledger"
    found = {
        str(path.relative_to(home)): outcome(path.read_bytes)
        for path in (
            ledger / "keys" / "ledger.pem",
            ledger / "ledger.sqlite",
            ledger / "ledger.sqlite-wal",
            ledger / "ledger.sqlite-shm",
            ledger / "notary.sqlite",
            ledger / "notary.lock",
            ledger / "ledger.vkey",
        )
    }
    found["list"] = outcome(lambda: sorted(Path(home).iterdir()))
    found["enter"] = outcome(lambda: os.chdir(ledger))
    return found


def change_files(home: str, socket_path: str) -> dict[str, str]:
    """Try to write, delete, exchange and link a notary's files."""
    ledger, place = Path(home) / "ledger", Path(socket_path)
    own = Path(tempfile.gettempdir(), f"hostile{os.getpid()}")
    own.write_bytes(b"mine")
    attempts: dict[str, Callable[[], object]] = {}
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "keys/ledger.pem"):
        path = ledger / name
        attempts |= {
            f"write {name}": lambda path=path: path.write_bytes(b"x"),  # type: ignore[misc]
            f"append {name}": lambda path=path: os.open(path, os.O_WRONLY),  # type: ignore[misc]
            f"delete {name}": path.unlink,
            f"exchange {name}": lambda path=path: own.replace(path),  # type: ignore[misc]
            f"open up {name}": lambda path=path: path.chmod(0o666),  # type: ignore[misc]
            f"link {name}": lambda path=path: os.link(path, f"{own}2"),  # type: ignore[misc]
        }
    attempts |= {
        "delete home": lambda: shutil.rmtree(home),
        "rename home": lambda: Path(home).rename(f"{home}2"),
        "put a symlink into blobs": lambda: (ledger / "blobs" / "ab").symlink_to("/etc"),
        "put a file into home": lambda: (Path(home) / "x").write_bytes(b""),
        "delete the socket": place.unlink,
        "exchange the socket": lambda: own.replace(place),
        "put a symlink beside the socket": lambda: place.with_name("x").symlink_to("/etc"),
        "open the socket's folder": lambda: place.parent.chmod(0o777),
    }
    try:
        return {name: outcome(attempt) for name, attempt in attempts.items()}
    finally:
        own.unlink(missing_ok=True)


def enter_process(pid: int) -> dict[str, str]:
    """Try to look into another process and to steer it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), "refused")

    def take_descriptor() -> None:
        descriptor = os.pidfd_open(pid)
        for number in range(20):
            call(libc.syscall(_PIDFD_GETFD, descriptor, number, 0))

    attempts: dict[str, Callable[[], object]] = {
        name: lambda name=name: Path(f"/proc/{pid}/{name}").read_bytes()  # type: ignore[misc]
        for name in ("mem", "environ", "maps", "auxv", "io", "stack")
    }
    attempts |= {
        "write mem": lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR),
        "fd": lambda: sorted(Path(f"/proc/{pid}/fd").iterdir()),
        "root": lambda: sorted(Path(f"/proc/{pid}/root/").iterdir()),
        "cwd": lambda: sorted(Path(f"/proc/{pid}/cwd/").iterdir()),
        "exe": lambda: Path(f"/proc/{pid}/exe").readlink(),
        "ptrace": lambda: call(libc.ptrace(_PTRACE_ATTACH, pid, 0, 0)),
        "pidfd_getfd": take_descriptor,
        "kill": lambda: os.kill(pid, signal.SIGKILL),
        "stop": lambda: os.kill(pid, signal.SIGSTOP),
        "limit": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)),
    }
    return {name: outcome(attempt) for name, attempt in attempts.items()}


def enter_own_process() -> dict[str, str]:
    """Do the same to a child of one's own, to show that the attempts would work."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        time.sleep(0.1)
        return {
            "maps": outcome(Path(f"/proc/{child.pid}/maps").read_bytes),
            "fd": outcome(lambda: sorted(Path(f"/proc/{child.pid}/fd").iterdir())),
            "kill": outcome(child.kill),
        }


def batch(*, stream: UUID | None = None, first: int = 1, events: int = 1, size: int = 10) -> bytes:
    """Return a well-formed request to append."""
    stream = stream or uuid4()
    return pack_frame(
        {"op": "insert"},
        join_sized(
            encode_entry(
                Entry(
                    index=0,
                    stream_id=stream,
                    stream_version=version,
                    time_ns=0,
                    previous=bytes(32),
                    name="run.noise",
                    body=bytes(size),
                )
            )
            for version in range(first, first + events)
        ),
    )


def connect(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(path)
    return client


def flood_with_connections(path: str) -> None:
    """Connect without end, and hold what can be held."""
    held = []
    while True:
        with contextlib.suppress(OSError):
            held.append(connect(path))
        del held[:-200]


def flood_with_frames(path: str, kind: str) -> None:
    """Send without end, on as many connections as one gets."""
    make: Callable[[], bytes] = {
        "huge": lambda: (0xFFFFFFFF).to_bytes(4, "big") + bytes(100),
        "full": lambda: MAX_FRAME.to_bytes(4, "big") + secrets.token_bytes(MAX_FRAME),
        "tiny": lambda: (3).to_bytes(4, "big") + b"\0\1\x80",
        "half": lambda: MAX_FRAME.to_bytes(4, "big") + bytes(10_000),
        "batches": lambda: batch(events=1_000, size=100),
        "unread": lambda: pack_frame(
            {"op": "notifications", "first": 0, "last": 2**62, "limit": 2**62, "topics": []}
        ),
    }[kind]
    unsent: dict[socket.socket, memoryview] = {}
    while True:
        with contextlib.suppress(OSError):
            while len(unsent) < 8:
                client = connect(path)
                client.setblocking(False)
                unsent[client] = memoryview(make())
        for client, data in list(unsent.items()):
            try:
                with contextlib.suppress(BlockingIOError):
                    unsent[client] = data[client.send(data) :]
                    if not unsent[client] and kind != "half":
                        unsent[client] = memoryview(make())
                with contextlib.suppress(BlockingIOError):
                    if kind != "unread":
                        client.recv(1 << 20)
            except OSError:
                client.close()
                del unsent[client]


def asked(action: Callable[[], object]) -> list[str]:
    """Return the name of the error and its message, or "done"."""
    try:
        action()
    except LedgerError as e:
        return [type(e).__name__, str(e)]
    return ["done", ""]


def recorder(path: str) -> RemoteRecorder:
    return RemoteRecorder(NotaryClient(Path(path)))


def send_a_path_for_a_hash(path: str) -> list[str]:
    return asked(
        lambda: recorder(path).client.ask(
            PutBlob(sha256="../../../../tmp/x", size=1, offset=0), Done, b"x"
        )
    )


def append_a_name_that_the_rules_leave_out(path: str) -> list[str]:
    event = StoredEvent(uuid4(), 1, "audit.scored", b"")
    return asked(lambda: recorder(path).insert_events([event]))


def append_to_the_authority_stream(path: str) -> list[str]:
    client = recorder(path)
    stream = authority_stream(client.client.greeting.origin)
    return asked(lambda: client.insert_events([StoredEvent(stream, 1, "run.x", b"")]))


def append_to(path: str, stream: str, version: int) -> list[str]:
    event = StoredEvent(UUID(stream), version, "run.noise", b"")
    return asked(lambda: recorder(path).insert_events([event]))


def choose_index_and_time(path: str) -> list[str]:
    entry = Entry(
        index=5,
        stream_id=uuid4(),
        stream_version=1,
        time_ns=5,
        previous=bytes(32),
        name="run.x",
        body=b"",
    )
    payload = join_sized([encode_entry(entry)])
    return asked(lambda: recorder(path).client.ask(Insert(), Done, payload))


def act_as_judge(path: str) -> list[str]:
    key = AuthorKey("judge", Ed25519PrivateKey.generate())
    event = StoredEvent(uuid4(), 1, "run.x", b"")
    return asked(lambda: recorder(path).insert_events([event], author=key))


def judge(path: str, key: str) -> list[str]:
    """Append a verdict with this key: for the judge's own user."""
    author = AuthorKey("judge", Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key)))
    event = StoredEvent(uuid4(), 1, "audit.scored", b"")
    return asked(lambda: recorder(path).insert_events([event], author=author))


def grant(directory: str, key: str, role: str) -> int:
    """Grant a key: for the notary's own user."""
    database, signer = open_ledger(LedgerPaths(Path(directory)), passphrase=None)
    with contextlib.closing(database):
        return SignedRecorder(database, signer=signer).grant_key(key, role=role)


def rotate(directory: str) -> str:
    """Rotate the ledger's key: for the notary's own user."""
    database, signer = open_ledger(LedgerPaths(Path(directory)), passphrase=None)
    with contextlib.closing(database):
        return SignedRecorder(database, signer=signer).rotate_key()


def cosign(path: str) -> list[str]:
    return asked(lambda: recorder(path).add_signature_line(1, "x"))


def keep_more_blobs_than_allowed(path: str) -> list[str]:
    blobs = RemoteBlobs(recorder(path).client)
    blobs.put(bytes(2_000_000))
    return asked(lambda: blobs.put(b"x" + bytes(2_000_000)))


def send_another_blob_than_announced(path: str) -> list[str]:
    request = PutBlob(sha256="0" * 64, size=1, offset=0)
    return asked(lambda: recorder(path).client.ask(request, Done, b"x"))


def replay(path: str, frame: str, times: int) -> dict[str, Any]:
    """Send the very same bytes again and again; without a frame, an own one once more."""
    data = bytes.fromhex(frame) or batch()
    client = connect(path)
    receive(client)  # the greeting
    answers = []
    for _ in range(times + (not frame)):
        client.sendall(data)
        answers.append(receive(client).header.get("error", "done"))
    return {"frame": data.hex(), "answers": answers}


def receive(client: socket.socket) -> Frame:
    """Read one answer."""
    file = client.makefile("rb")
    return parse_frame(file.read(int.from_bytes(file.read(4), "big")))
