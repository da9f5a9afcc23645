"""A ledger that is written anew with its own key: what others have signed stays as it is."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from stores import tables_of

from ledger.bodies import decode_body, encode_body
from ledger.entries import Event
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.verified_entries import parse_entry

Change = Callable[[str, dict[str, Any]], dict[str, Any] | None]


def rebuild(ledger: Path, change: Change) -> None:
    """Write the entries again, the unsigned ones changed; None leaves an event out."""
    with tables_of(ledger) as tables:
        rows = tables.execute("SELECT * FROM entries ORDER BY idx").fetchall()
        found = [parse_entry(row[4], index=row[0]) for row in rows]
        tables.execute("DELETE FROM entries")
        tables.execute("DELETE FROM tree_heads")
    events: list[Event] = []
    for entry in found:
        state = entry.body
        if entry.author is None:
            body = change(entry.name, dict(decode_body(entry.body)))
            if body is None:
                continue
            state = encode_body(body)
        stream, version = entry.stream_id.bytes, entry.stream_version
        events.append((stream, version, entry.name, state, entry.author))
    database, signer = open_ledger(LedgerPaths(ledger), passphrase=None)
    with closing(database):
        SignedRecorder(database, signer=signer).append(lambda batch: batch.add(events))
