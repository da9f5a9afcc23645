"""Entries of a ledger in plain values, and as text."""

from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from ledger.bodies import decode_body
from ledger.errors import LedgerError, MalformedError
from ledger.mapper import ns_to_datetime
from ledger.verification.verified_entries import VerifiedEntry
from ledger.verification.verified_notes import TreeHead
from proctor.output.shape import Answer
from proctor.output.terminal import console, outline, print_table


class Entry(Answer):
    """An entry of the ledger; the list of `log` has no bodies."""

    index: int
    time: datetime
    stream: str
    version: int
    event: str
    author: str | None  # role and id of its key
    hash: str
    body: Any


class Verification(Answer):
    """What a verification of a ledger or bundle found."""

    ok: bool
    size: int  # entries that fit together, up to the fault if there is one
    complete_to: int
    head: TreeHead | None
    error: str | None
    error_type: str | None
    index: int | None
    unread: int  # verified before, and not read this time


def describe_entry(entry: VerifiedEntry, *, body: bool = True) -> Entry:
    """Return an entry, with its body or without."""
    return Entry.of(
        entry,
        time=ns_to_datetime(entry.time_ns),
        stream=str(entry.stream_id),
        version=entry.stream_version,
        event=entry.name,
        author=entry.author and f"{entry.author.role} {entry.author.key_id.hex()}",
        hash=entry.entry_hash.hex(),
        body=_body(entry) if body else None,
    )


def print_entry(entry: Entry) -> None:
    """Print an entry with its body in full."""
    fields = asdict(entry)
    body = fields.pop("body")
    print_table(("", ""), fields.items())
    console.print("body", *outline(body, indent=2), sep="\n", markup=False)


def _body(entry: VerifiedEntry) -> Any:
    """Return what an entry's body says, as far as this program knows its kind."""
    try:
        body = decode_body(entry.body)
    except MalformedError:
        return entry.body
    from aggregates.registry import REGISTRY  # noqa: PLC0415 - loads all aggregates

    try:
        return REGISTRY.upcast(entry.name, body)
    except LedgerError:
        return body
