"""Many questions, one after the other: a prompt on a terminal, or what is piped in.

I/O: standard input, output and error.
"""

import sqlite3
import sys
from collections.abc import Iterator
from io import TextIOWrapper

from ledger.errors import LedgerError
from proctor.errors import EXIT_HELD, EXIT_USAGE, ProctorError, Terminated
from proctor.output.answers import Form, print_answer
from proctor.output.progress import settle
from proctor.output.terminal import error_console, is_text, words
from projections.errors import ProjectionError
from projections.reading import Session, statements

_LEAVING = {"exit", "quit", ".exit", ".quit"}
_WELCOME = (
    "End a question with a semicolon; exit leaves. SHOW TABLES lists tables and views, DESCRIBE one"
    " of them its columns; SET VARIABLE as_of = 41 shows all as of the entry 41, RESET VARIABLE"
    " as_of as of now."
)


def shell(session: Session, *, form: Form) -> int:
    """Answer what is typed or piped in; an error ends only its own statement."""
    interactive = sys.stdin.isatty()
    failed = False
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no text ends its own statement
    if interactive:
        import readline  # noqa: F401, PLC0415 - gives input() its history

        error_console.print(_WELCOME)
        settle()
    for text in _texts(interactive=interactive):
        try:
            for statement in statements(_verified(text)):
                print_answer(session, statement, form=form)
            sys.stdout.flush()
        except (LedgerError, ProctorError, ProjectionError) as error:
            error_console.print(f"[bold]error:[/] {words(error)}")
            failed = True
        except KeyboardInterrupt as stop:
            if not interactive or isinstance(stop, Terminated):
                raise
            error_console.print("interrupted")
    return EXIT_USAGE if failed and not interactive else EXIT_HELD


def _verified(text: str) -> str:
    if not is_text(text):
        raise ProctorError(f"{text.strip()!a} is not text in UTF-8")
    return text


def _texts(*, interactive: bool) -> Iterator[str]:
    """Yield statements as they end, so that one that is wrong takes no other with it."""
    text = ""
    while True:
        try:
            line = _typed(again=bool(text)) if interactive else sys.stdin.readline()
        except KeyboardInterrupt as stop:
            if not interactive or isinstance(stop, Terminated):
                raise
            print()
            text = ""
            continue
        if interactive and not text and line.strip().rstrip(";") in _LEAVING:
            return
        text += line
        if text.strip() and (not line or _ends(text)):
            yield text
            text = ""
        if not line:
            return


def _typed(*, again: bool) -> str:
    """Return the next line, empty at the end; `again`: its statement has begun."""
    try:
        return input("    ...> " if again else "proctor> ") + "\n"
    except EOFError:
        print()
        return ""


def _ends(text: str) -> bool:
    """Tell whether a statement ends here; what is no text in UTF-8 is looked at all the same."""
    return sqlite3.complete_statement(text.encode(errors="replace").decode())
