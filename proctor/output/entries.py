"""Entries of a ledger in plain values, and as text."""

from typing import Any

from ledger.errors import LedgerError, MalformedError
from ledger.mapper import decode_body, ns_to_datetime
from ledger.verification.reader import VerificationReport
from ledger.verification.verified_entries import VerifiedEntry
from proctor.output.terminal import console, outline, plain, print_table

__all__ = ["describe_entry", "describe_head", "describe_verification", "print_entry"]


def describe_entry(entry: VerifiedEntry) -> dict[str, Any]:
    """Return an entry and its body as a table of names and values."""
    return {**describe_head(entry), "body": _body(entry)}


def describe_head(entry: VerifiedEntry) -> dict[str, Any]:
    """Return an entry without its body as a table of names and values."""
    return {
        "index": entry.index,
        "time": ns_to_datetime(entry.time_ns),
        "stream": str(entry.stream_id),
        "version": entry.stream_version,
        "event": entry.name,
        "author": entry.author and f"{entry.author.role} {entry.author.key_id.hex()}",
        "hash": entry.entry_hash.hex(),
    }


def describe_verification(report: VerificationReport) -> dict[str, Any]:
    """Return the report without what only other code needs."""
    return {
        "ok": report.ok,
        "size": report.size,
        "complete_to": report.head.size if report.head else 0,
        "head": plain(report.head),
        "error": report.error,
        "error_type": report.error_type,
        "index": report.index,
        "unread": report.unread,
    }


def print_entry(described: dict[str, Any]) -> None:
    """Print an entry with its body in full."""
    print_table(("", ""), [(name, value) for name, value in described.items() if name != "body"])
    console.print("body", *outline(described["body"], indent=2), sep="\n", markup=False)


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
