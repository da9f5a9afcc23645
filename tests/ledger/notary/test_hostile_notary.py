"""A notary that lies: its client ends with an error of our own, in bounded memory."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from ledger.blobs import LARGEST
from ledger.errors import BlobError, LedgerError
from ledger.notary.client import NotaryClient
from ledger.notary.messages import PROTOCOL, Greeting, HeadsPage, NewestFound, Piece, pack_message
from ledger.notary.mirror import refresh_mirror
from ledger.notary.remote import RemoteRecorder
from ledger.notary.remote_blobs import RemoteBlobs

GREETING = pack_message(
    Greeting(protocol=PROTOCOL, origin="o", vkey="o+00000000+AA==", uid=0, append=("*",), roles=())
)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(1)
        yield listener


def say(listener: socket.socket, *answers: bytes) -> None:
    """Answer one client: the greeting, then one answer to each request."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(GREETING)
            for answer in answers:
                connection.recv(1 << 16)
                connection.sendall(answer)

    Thread(target=serve, daemon=True).start()


def test_blob_without_end_is_rejected(listener: socket.socket) -> None:
    say(listener, pack_message(Piece(size=LARGEST + 1), b"x"))
    with (
        closing(NotaryClient(Path(listener.getsockname()), patience=1.0)) as client,
        pytest.raises(BlobError, match="are read into memory"),
    ):
        RemoteBlobs(client).get("0" * 64)


def test_tree_head_of_a_size_beyond_the_format_is_rejected(
    listener: socket.socket, tmp_path: Path
) -> None:
    head = struct.pack(">QHH", 2**64 - 1, 1, 0) + b"n"
    newest = pack_message(NewestFound(last=None, head="o\n0\n"))
    say(listener, newest, pack_message(HeadsPage(more=False, known=0), head))
    with (
        closing(NotaryClient(Path(listener.getsockname()), patience=1.0)) as client,
        pytest.raises(LedgerError, match=r"2\^63"),
    ):
        refresh_mirror(RemoteRecorder(client), tmp_path / "mirror")
