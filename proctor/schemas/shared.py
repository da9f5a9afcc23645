"""Shapes that several commands print.

I/O: none.
"""

from typing import TypedDict

from msgspec import UNSET, UnsetType

from proctor.output.shape import Answer


class Failure(TypedDict):
    """What every command prints in place of its answer if it fails; exit code 1 or 2."""

    error: str  # the kind, as in ProctorError
    message: str
    exit_code: int


class Listening(Answer, kw_only=True):
    """A server that is ready; printed on one line as soon as it is."""

    address: str  # URL, or the path of a socket
    name: str | UnsetType = UNSET  # of a witness
    vkey: str | UnsetType = UNSET  # of a witness, or a notary's ledger
    user: int | UnsetType = UNSET  # the notary's, as a number
    token: str | UnsetType = UNSET  # of the live view; the URL has it, too
