"""The command, or other code, at a terminal of its own."""

import os
import pty
import sys
from collections.abc import Callable

from proctor.cli.main import main


def at_a_terminal(
    *arguments: str, run: Callable[[], None] = main, **variables: str
) -> tuple[str, int]:
    """Return what the command writes at a terminal of its own, and its exit code."""
    child, terminal = pty.fork()
    if not child:
        os.environ.update({"TERM": "xterm", "COLUMNS": "200", **variables})
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.argv = ["proctor", *arguments]
        try:
            run()
        except SystemExit as exit_:
            os._exit(exit_.code if isinstance(exit_.code, int) else 3)
        finally:
            sys.stdout.flush()
            os._exit(4)
    written = b""
    while True:
        try:
            written += os.read(terminal, 65536)
        except OSError:  # the terminal's last user has gone
            break
    os.close(terminal)
    return written.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
