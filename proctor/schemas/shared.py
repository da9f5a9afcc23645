"""Shapes that several commands print.

I/O: none.
"""

from typing import Any, Literal, NotRequired, TypedDict

Number = float | Literal["NaN", "Infinity", "-Infinity"]  # as terminal.print_json() writes floats

Row = dict[str, Any]  # by the names of its columns


class Failure(TypedDict):
    """What every command prints in place of its answer if it fails; exit code 1 or 2."""

    error: str  # the kind, as in ProctorError
    message: str
    exit_code: int


class Refused(TypedDict):
    """What was verified is not valid; exit code 1."""

    ok: Literal[False]
    error: str
    error_type: str


class TreeHead(TypedDict):
    """A signed tree head of a ledger."""

    origin: str
    size: int
    root: str  # hexadecimal
    note: str


class Entry(TypedDict):
    """An entry of the ledger; the list of `log` has no bodies."""

    index: int
    time: str
    stream: str
    version: int
    event: str
    author: str | None  # role and id of its key
    hash: str
    body: Any


class Difference(TypedDict):
    """A place at which two values are not the same."""

    place: str
    recorded: Any
    found: Any


class Tally(TypedDict):
    """How often a technique was better, worse or neither."""

    wins: int
    losses: int
    ties: int


class Listening(TypedDict):
    """A server that is ready; printed on one line as soon as it is."""

    address: str  # URL, or the path of a socket
    name: NotRequired[str]  # of a witness
    vkey: NotRequired[str]  # of a witness, or a notary's ledger
    user: NotRequired[int]  # the notary's, as a number
    token: NotRequired[str]  # of the live view; the URL has it, too
