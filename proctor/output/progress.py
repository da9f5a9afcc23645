"""Progress with the time left, on standard error, for work of more than two seconds.

Only at a terminal, and never with --json. What is shown is what ledger/progress.py is told.

I/O: standard error.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from ledger.progress import listening
from proctor.output.terminal import error_console, words

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY = 2.0  # s; what takes less shows nothing
_shown: "_Shown | None" = None


@contextmanager
def showing(*, wanted: bool) -> Iterator[None]:
    """Show the progress of a command, if it is wanted and there is a terminal."""
    global _shown  # noqa: PLW0603 - there is one terminal
    shown = _shown = _Shown() if wanted and sys.stderr.isatty() else None
    try:
        with nullcontext() if shown is None else listening(shown.hear):
            yield
    finally:
        settle()
        _shown = None


@contextmanager
def unseen(*, when: bool) -> Iterator[None]:
    """Show nothing meanwhile: somebody may be typing."""
    if when:
        settle()
    with listening(None) if when else nullcontext():
        yield


def settle() -> None:
    """Take the lines away, for what is printed or asked now; what is heard next brings new ones."""
    if _shown is not None:
        _shown.stop()


class _Shown:
    """A line for each thing that is going on, with its own time left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, tuple[TaskID, int, int | None]] = {}  # how far it is, of how much
        self._progress: Progress | None = None

    def hear(self, what: str, done: int, total: int | None) -> None:
        """Show how far something has come; what begins again, begins with a new line."""
        with self._lock:
            progress = self._progress or self._begin()
            line, before, expected = self._lines.get(what, (None, 0, None))
            total = expected if total is None else total
            ends = total is not None and done >= total
            if line is not None and (ends or done < before):
                progress.remove_task(line)
                del self._lines[what]
                line = None
            if ends:
                return
            if line is None:
                line = progress.add_task(words(what), completed=done, total=total)
            else:
                progress.update(line, completed=done, total=total)
            self._lines[what] = line, done, total

    def stop(self) -> None:
        """Take all lines away."""
        with self._lock:
            if self._progress is not None and self._progress.live.is_started:
                for line, _, _ in self._lines.values():
                    self._progress.remove_task(line)
                self._progress.stop()
            self._lines, self._progress = {}, None

    def _begin(self) -> "Progress":
        from rich.progress import (  # noqa: PLC0415 - takes a while to import, and few need it
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=error_console,
            transient=True,
            redirect_stdout=False,  # which is the command's answer
        )
        timer = threading.Timer(DELAY, self._start, [self._progress])
        timer.daemon = True
        timer.start()
        return self._progress

    def _start(self, progress: "Progress") -> None:
        with self._lock:
            if self._progress is progress:  # it was not stopped meanwhile
                progress.start()
