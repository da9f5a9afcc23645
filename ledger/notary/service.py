"""The recorder as a process of its own, behind a Unix socket.

Who connects is known by the user id that the kernel reports. Each connection has one request
under way: while it is being answered nothing more is read from it, so a client that floods fills
its own socket and no memory here. Whoever is slow, stuck or broken loses their own connection.

Source: docs/reference/notary.md; Linux unix(7), SO_PEERCRED.
Trust: every byte from a client is hostile.
I/O: the socket; the ledger's directory, through desk.py.  Units: seconds.
Not covered: networks; a Unix socket is local.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import stat
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ledger.database import explained
from ledger.errors import ForbiddenError, LedgerError, MalformedError, StorageError
from ledger.notary.desk import WRITES, ClientConnection, Desk
from ledger.notary.fair_queue import FairQueue
from ledger.notary.messages import (
    PREFIX,
    Insert,
    Request,
    error_frame,
    frame_length,
    parse_request,
)
from ledger.notary.rules import User

MAX_CONNECTIONS = 8  # of one user at a time
IDLE_SECONDS = 600.0  # between two requests
SMALL = 64 << 10  # bytes of a request whose events may be appended together with others
FRAME_SECONDS = 10.0  # for the rest of a request that has begun, and for taking an answer
_BACKLOG = 64

_Asked = tuple[ClientConnection, Request, bytes]


class Notary:
    """Serves until stop() or a signal; what was read whole by then is answered."""

    def __init__(
        self,
        desk: Desk,
        *,
        users: Mapping[int, User],
        idle_seconds: float = IDLE_SECONDS,
        frame_seconds: float = FRAME_SECONDS,
        small: int = SMALL,
    ) -> None:
        """Append events of requests of up to `small` bytes together; 0 keeps all apart."""
        self._desk = desk
        self._small = small
        self._users = users
        self._idle_seconds, self._frame_seconds = idle_seconds, frame_seconds
        self._connections: dict[asyncio.Task[None], int] = {}
        self._between_requests: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take no more requests, and return from serve() when those under way are answered."""
        self._stopping.set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve; SIGTERM and SIGINT stop it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._writes = FairQueue[_Asked, bytes]("writes", self._write)
        self._reads = FairQueue[Callable[[], bytes], bytes](
            "reads", lambda jobs: [job() for job in jobs]
        )
        workers = [asyncio.create_task(lane.run()) for lane in (self._writes, self._reads)]
        door = asyncio.create_task(self._accept(listener))
        await self._stopping.wait()
        door.cancel()
        for task in self._between_requests:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        for worker in workers:
            worker.cancel()
        for lane in (self._writes, self._reads):
            lane.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as e:  # no descriptors left, or the client is gone already
                _say(f"a connection could not be accepted: {e}")
                await asyncio.sleep(0.1)
                continue
            refusal = self._admit(client)
            if refusal is not None:
                with contextlib.suppress(OSError):
                    client.send(refusal, socket.MSG_DONTWAIT)
                client.close()
            await asyncio.sleep(0)  # who connects without end takes turns with everybody else

    def _admit(self, client: socket.socket) -> bytes | None:
        """Begin to serve a client, or return the frame that says why not."""
        uid = peer_uid(client)
        user = self._users.get(uid)
        if user is None:
            return error_frame(ForbiddenError(f"user {uid} is not in this notary's rules"))
        if list(self._connections.values()).count(uid) >= MAX_CONNECTIONS:
            return error_frame(
                ForbiddenError(f"user {uid} already has {MAX_CONNECTIONS} connections; close some")
            )
        task = asyncio.get_running_loop().create_task(self._serve_client(client, user))
        self._connections[task] = uid
        task.add_done_callback(self._connections.pop)
        return None

    async def _serve_client(self, client: socket.socket, user: User) -> None:
        client.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=client)
        connection = ClientConnection(user)
        try:
            await self._converse(connection, reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # gone, stuck, or told to go: nobody but this client has lost anything
        finally:
            with contextlib.suppress(LedgerError):
                await self._reads.do(user.uid, lambda: self._end(connection))
            await _close(writer, within=self._frame_seconds)

    async def _converse(
        self, client: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._send(writer, self._desk.greeting(client.user))
        while not self._stopping.is_set():
            try:
                data = await self._receive(reader)
            except MalformedError as e:  # where the next frame begins is unknown by now
                await self._send(writer, error_frame(e))
                return
            await self._send(writer, await self._answer(client, data))

    async def _receive(self, reader: asyncio.StreamReader) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        self._between_requests.add(task)
        try:
            async with asyncio.timeout(self._idle_seconds):
                prefix = await reader.readexactly(PREFIX)
            length = frame_length(prefix)
            async with asyncio.timeout(self._frame_seconds):
                return await reader.readexactly(length)
        finally:
            self._between_requests.discard(task)

    async def _answer(self, client: ClientConnection, data: bytes) -> bytes:
        uid = client.user.uid
        try:
            request, payload = parse_request(data)
        except MalformedError as e:  # in turn: nonsense takes turns like everything else
            refusal = error_frame(e)
            return await self._reads.do(uid, lambda: refusal)
        asked = client, request, payload
        if isinstance(request, WRITES):
            small = isinstance(request, Insert) and len(payload) <= self._small
            return await self._writes.do(uid, asked, size=len(payload) if small else None)
        return await self._reads.do(uid, lambda: self._work(*asked))

    def _write(self, asked: Sequence[_Asked]) -> list[bytes]:
        """Answer requests that write; several are small ones to append events."""
        if len(asked) > 1:
            try:
                answers = self._desk.insert_each([(each[0].user, each[2]) for each in asked])
            except Exception:  # whose request it was, they are told when each is alone
                return [self._work(*each) for each in asked]
            return [e if isinstance(e, bytes) else error_frame(e) for e in answers]
        return [self._work(*each) for each in asked]

    def _work(self, client: ClientConnection, request: Request, payload: bytes) -> bytes:
        try:
            return self._desk.answer(client, request, payload)
        except LedgerError as e:
            return error_frame(e)
        except Exception:  # ours to mend; the client and all others go on
            _say(traceback.format_exc())
            return error_frame(
                StorageError("the notary failed to carry out the request; see its output")
            )

    def _end(self, client: ClientConnection) -> bytes:
        self._desk.end(client)
        return b""

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        async with asyncio.timeout(self._frame_seconds):
            await writer.drain()


def peer_uid(client: socket.socket) -> int:
    """Return the user id with which the other side connected."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iII", credentials)[1])


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that listens under this name, and remove the name in the end.

    What the socket says of itself is asked of the process that listens, so be who you want to
    be first. Raises StorageError where somebody else could exchange the socket, or one listens.
    """
    with explained(path):
        folder = path.parent.stat()
        if folder.st_uid not in (0, os.geteuid()) or folder.st_mode & 0o022:
            raise StorageError(
                f"{path.parent}: other users could place their own socket there; use a folder "
                "that the notary's user owns, with mode 0755"
            )
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.setblocking(False)
            listener.bind(str(path))
            try:
                path.chmod(0o666)  # the rules say who may do what; all others are sent away
                listener.listen(_BACKLOG)
                yield listener
            finally:
                path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StorageError(f"{path}: this is not a socket; choose another name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # so busy that its queue is full
    raise StorageError(
        f"{path}: a notary is already listening there; stop it, or choose another name"
    )


@contextlib.contextmanager
def only_notary(directory: Path) -> Iterator[None]:
    """Hold the lock that makes this the ledger's only notary."""
    with explained(directory), (directory / "notary.lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{directory}: another notary already serves this ledger") from None
        yield


async def _close(writer: asyncio.StreamWriter, *, within: float) -> None:
    writer.close()
    try:
        async with asyncio.timeout(within):
            await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
