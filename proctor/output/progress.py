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
        self._heard: dict[str, tuple[int, int | None]] = {}
        self._lines: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    def hear(self, what: str, done: int, total: int | None) -> None:
        """Show how far something has come; what begins again, begins with a new line."""
        with self._lock:
            before, expected = self._heard.get(what, (0, None))
            if done < before:
                self._remove(what)
            self._heard[what] = done, expected if total is None else total
            if self._timer is None:
                self._timer = threading.Timer(DELAY, self._start)
                self._timer.daemon = True
                self._timer.start()
            self._show(what)

    def stop(self) -> None:
        """Take all lines away."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            for what in [*self._heard]:
                self._remove(what)
            if self._progress is not None:
                self._progress.stop()
            self._progress = None

    def _start(self) -> None:
        from rich.progress import (  # noqa: PLC0415 - takes a while to import, and few need it
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        with self._lock:
            if self._timer is not threading.current_thread():  # it was stopped meanwhile
                return
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
            self._progress.start()
            for what in [*self._heard]:  # what is done is removed meanwhile
                self._show(what)

    def _show(self, what: str) -> None:
        if self._progress is None:
            return
        done, total = self._heard[what]
        line = self._lines.get(what)
        if total is not None and done >= total:
            self._remove(what)
        elif line is None:
            self._lines[what] = self._progress.add_task(words(what), completed=done, total=total)
        else:
            self._progress.update(line, completed=done, total=total)

    def _remove(self, what: str) -> None:
        self._heard.pop(what)
        line = self._lines.pop(what, None)
        if line is not None and self._progress is not None:
            self._progress.remove_task(line)
