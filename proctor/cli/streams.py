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

from proctor.errors import EXIT_CLOSED, EXIT_USAGE


class _SafeStream(TextIOWrapper):
    """A text stream that escapes what it cannot encode and ends the command at a closed pipe."""

    def write(self, text: str) -> int:
        with self._dropped_on_error():
            return super().write(text)

    def flush(self) -> None:
        with self._dropped_on_error():
            super().flush()

    @contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        """Send what is still buffered nowhere: it cannot be written either, as on a full disk."""
        try:
            yield
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if isinstance(error, BrokenPipeError):
                sys.exit(EXIT_CLOSED)
            raise


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make both streams safe; streams that are not files, as in tests, stay as they are."""
    before = sys.stdout, sys.stderr
    ours = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started the command
            nowhere = open(os.devnull, "wb")  # noqa: PTH123, SIM115 - open to the end
            setattr(sys, name, _SafeStream(nowhere, encoding="utf-8"))
        elif type(stream) is TextIOWrapper:
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
