"""Decodes image files in a confined process: `python -I -m judge.confinement.decoding FOLDER`.

Image decoders are large programs in C, and the files are the judged party's. So the judge's own
process never runs them. The confined one gets bytes through a pipe and gives pixels back, as many
as an image has here. It can open no file but those of Python and its libraries, and reach no
network and no other process.

Trust: what comes back are pixels or words of a hostile process: their length and form are checked.
I/O: a temporary folder, one process, its pipes.  Units: seconds, bytes.
"""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from judge.confinement.kernel import limit_resources
from judge.confinement.landlock import readable_places
from judge.confinement.pipes import ready, receive, send
from judge.confinement.withdrawal import give_up
from judge.errors import JudgeError
from ledger.held_folder import HeldFolder
from monitor.errors import DataLimitError, DatasetError
from monitor.folders import DataLimits
from monitor.images import IMAGE_BYTES, decode_image

_REQUEST = struct.Struct(">QQ")  # bytes that follow, most pixels
_ANSWER = struct.Struct(">BI")  # kind, bytes that follow
_PIXELS, _TOO_LARGE, _UNREADABLE, _READY = range(4)
_WORDS = 500  # bytes of an error's words, at most
_PATIENCE = 600.0  # s for one image; the largest takes some seconds of processor time
_BASE = 2**30  # bytes that Python and the decoders need beside an image
_PER_PIXEL = 12  # bytes: decoded with four channels, converted, and a copy
_FOR_LONG = 7 * 24 * 3_600  # s of processor time: the number of images is limited elsewhere


class _Decoder:
    """The confined process, seen from outside."""

    def __init__(self, limits: DataLimits, folder: Path) -> None:
        memory = _BASE + _PER_PIXEL * limits.image_pixels + 2 * limits.image_bytes
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command of our own
            [
                *(sys.executable, "-I", "-B", "-m", "judge.confinement.decoding"),
                *(str(folder), str(memory)),
            ],
            cwd=folder,
            env={"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            first = self._read(_ANSWER.size)
        except _EndedError as error:
            self.close()
            raise JudgeError(f"the process that decodes images did not start: {error}") from error
        if _ANSWER.unpack(first) != (_READY, 0):
            self.close()
            raise JudgeError("the process that decodes images did not start: it printed something")

    def __call__(self, content: bytes, most_pixels: int) -> bytes:
        """Return what decode_image() does, and raise as it does."""
        try:
            self._write(_REQUEST.pack(len(content), most_pixels) + content)
            kind, length = _ANSWER.unpack(self._read(_ANSWER.size))
            if kind == _PIXELS and length == IMAGE_BYTES:
                return self._read(length)
            words = self._read(min(length, _WORDS)).decode("utf-8", "replace")
        except _EndedError as error:
            raise DatasetError(f"cannot be read as an image: its decoder {error}") from error
        shown = "".join(each if each.isprintable() else "?" for each in words)
        raise (DataLimitError if kind == _TOO_LARGE else DatasetError)(shown)

    def close(self) -> None:
        """End the process, and what it may have started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        pipe, deadline = self._process.stdin.fileno(), time.monotonic() + _PATIENCE
        try:
            send(pipe, data, wait=lambda: self._wait(pipe, deadline, writing=True))
        except BrokenPipeError:
            raise _EndedError(self._how()) from None

    def _read(self, length: int) -> bytes:
        assert self._process.stdout is not None
        found, deadline = b"", time.monotonic() + _PATIENCE
        while len(found) < length:
            self._wait(self._process.stdout.fileno(), deadline)
            chunk = self._process.stdout.read(length - len(found))
            if not chunk:
                raise _EndedError(self._how())
            found += chunk
        return found

    def _wait(self, pipe: int, deadline: float, *, writing: bool = False) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not ready(pipe, seconds=left, writing=writing):
            raise _EndedError(f"took longer than {_PATIENCE:g} seconds")

    def _how(self) -> str:
        try:
            code = self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            return "closed its pipes"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"


class _EndedError(Exception):
    """The process is no more, or does not answer."""


@contextmanager
def confined_decoder(limits: DataLimits) -> Iterator[_Decoder]:
    """Yield a decoder for image files, which ends with the block; raises JudgeError."""
    with HeldFolder("proctor-images-") as held:
        (held.path / "root").mkdir()
        decoder = _Decoder(limits, held.path)
        try:
            yield decoder
        finally:
            decoder.close()


def main(folder: Path, memory_bytes: int) -> None:
    """Give up all rights, then answer requests until there are no more."""
    limit_resources(cpu_seconds=_FOR_LONG, memory_bytes=memory_bytes, file_bytes=0)
    with suppress(DatasetError):
        decode_image(b"", most_pixels=1)  # loads the decoders
    give_up(readable_places(), root=folder / "root", memory_bytes=memory_bytes, threads=None)
    _answer(_READY, b"")
    while header := receive(0, _REQUEST.size):
        length, most_pixels = _REQUEST.unpack(header)
        try:
            _answer(_PIXELS, decode_image(receive(0, length), most_pixels=most_pixels))
        except DatasetError as error:
            kind = _TOO_LARGE if isinstance(error, DataLimitError) else _UNREADABLE
            _answer(kind, str(error).encode()[:_WORDS])


def _answer(kind: int, data: bytes) -> None:
    send(1, _ANSWER.pack(kind, len(data)) + data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
