"""Standard output and standard error that never end in a traceback.

Characters that the encoding of a stream lacks are written as escapes. When nobody reads the output
any more (`proctor log | head -1`), the command ends with EXIT_CLOSED and says nothing. Where it
cannot be written, as on a full disk, it ends with an error.

I/O: replaces sys.stdout and sys.stderr while a command runs.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import NoReturn

from proctor.errors import EXIT_CLOSED, EXIT_USAGE


class _SafeStream(TextIOWrapper):
    """A text stream that escapes what it cannot encode and ends the command at a closed pipe."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._give_up()
        except OSError:  # a full disk, say: what is still buffered cannot be written either
            self._drop()
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._give_up()
        except OSError:
            self._drop()
            raise

    def _give_up(self) -> NoReturn:
        self._drop()
        sys.exit(EXIT_CLOSED)

    def _drop(self) -> None:
        """Send what is still buffered nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make both streams safe; streams that are not files, as in tests, stay as they are."""
    before = sys.stdout, sys.stderr
    if sys.stdout is None:  # closed by whoever started the command
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    ours = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is TextIOWrapper:
            stream.flush()
            safe = _SafeStream(
                stream.buffer,
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            ours.append(safe)
            setattr(sys, name, safe)
    try:
        yield
    finally:
        try:
            for stream in ours:
                stream.flush()
        except OSError as error:
            print(f"error: the output is not complete: {error.strerror}", file=sys.stderr)
            sys.exit(EXIT_USAGE)
        finally:
            for stream in ours:
                stream.detach()  # or the file would be closed with the stream
            sys.stdout, sys.stderr = before


def _nowhere() -> _SafeStream:
    return _SafeStream(open(os.devnull, "wb"), encoding="utf-8")  # noqa: PTH123
