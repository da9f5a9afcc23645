"""Long answers go through a pager, as those of Git do, where a person reads at a terminal.

I/O: starts the pager; while it runs, standard output leads to it.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def paged() -> Iterator[None]:
    """Lead standard output through the pager until the end; do nothing where it is no terminal.

    The pager is `PROCTOR_PAGER`, else `PAGER`, else `less` where it is installed; an empty text or
    `cat` means none. `less` ends by itself where the answer fits on the screen.
    """
    command = _pager()
    if not command or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    sys.stdout.flush()
    variables = {"LESS": "FRX", "LV": "-c", **os.environ}
    pager = None
    with suppress(OSError):  # no such program: the answer is printed as it is
        pager = subprocess.Popen(  # noqa: S603 - the command is the user's own setting
            command, stdin=subprocess.PIPE, env=variables
        )
    if pager is None or pager.stdin is None:
        yield
        return
    terminal = os.dup(sys.stdout.fileno())
    os.dup2(pager.stdin.fileno(), sys.stdout.fileno())
    pager.stdin.close()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    finally:
        os.dup2(terminal, sys.stdout.fileno())  # closes our end of the pipe: the pager sees the end
        os.close(terminal)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the pager
        try:
            pager.wait()
        except KeyboardInterrupt:  # SIGTERM: the pager leaves the terminal as it was
            pager.terminate()
            pager.wait()
            raise
        finally:
            signal.signal(signal.SIGINT, before)


def _pager() -> list[str]:
    """Return the pager's command, or an empty one."""
    asked = os.environ.get("PROCTOR_PAGER", os.environ.get("PAGER"))
    if asked is None:
        return ["less"] if shutil.which("less") else []
    with suppress(ValueError):  # a quote without its end: no pager
        words = shlex.split(asked)
        return [] if words == ["cat"] else words
    return []
