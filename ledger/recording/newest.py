"""The ledger's end, as an append needs it: the tree's edge, the last entry, the keys in force.

Source: docs/reference/ledger-format.md, "Database" and "Keys".
Trust: entries and the last tree head have to fit together, and authority events are verified;
whether the entries below are sound is for a verifier to say.
I/O: reads through a connection that is in a transaction.
"""

import base64
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.entries import entry_hash
from ledger.errors import ConsistencyError, VerificationError
from ledger.store import Rows
from ledger.verification.authority import Authority
from ledger.verification.states import State
from ledger.verification.verified_entries import parse_entry

_HEAD = "SELECT size, note, edge FROM tree_heads ORDER BY size DESC LIMIT 1"
_LAST = "SELECT idx, entry FROM entries ORDER BY idx DESC LIMIT 1"
_ENTRY = "SELECT entry FROM entries WHERE idx = ?"
_AUTHORITY = """
    SELECT idx, stream_version, entry FROM entries
    WHERE stream_id = ? AND stream_version > ? ORDER BY stream_version"""


@dataclass(frozen=True, kw_only=True)
class Newest:
    """The end of a ledger, as of some tree head; none of it is changed in place."""

    authority: Authority
    authority_version: int = -1  # of the authority stream's last event, if it has one
    state: State  # its tree and last entry; what stands is said by `authority` alone


def read_newest(c: Rows, *, path: Path, known: Newest) -> Newest:
    """Return the ledger's end as it is now, continuing from an end that was seen before.

    Raises ConsistencyError for an end that does not fit together or does not continue the one
    that is known; VerificationError for authority events that mean nothing.
    """
    head = c.execute(_HEAD).fetchone()
    last = c.execute(_LAST).fetchone()
    size, note, edge = head or (0, "", b"")
    state = State(size=size, edge=tuple(edge[at : at + 32] for at in range(0, len(edge), 32)))
    root = base64.b64encode(state.root).decode()
    fits = last is None if head is None else last is not None and last[0] == size - 1
    fits = fits and len(state.edge) == size.bit_count()
    if not fits or (head and note.split("\n")[1:3] != [str(size), root]):
        raise ConsistencyError(
            f"{path}: entries and tree heads do not match at size {size}; nothing was appended, "
            "verify the ledger to find what was changed",
            index=size,
        )
    if not has_end(c, known):
        raise ConsistencyError(
            f"{path}: the ledger does not continue its earlier {known.state.size} entries; "
            "nothing was appended, restore the file from a copy",
            index=min(size, known.state.size - 1),
        )
    if last is not None:
        entry = parse_entry(last[1], index=last[0])
        state = replace(state, last_hash=entry.entry_hash, time_ns=entry.time_ns)
    authority, version = read_authority(
        c, known.authority, after=known.authority_version, path=path
    )
    return Newest(authority=authority, authority_version=version, state=state)


def has_end(c: Rows, end: Newest) -> bool:
    """Tell whether the ledger is this one, or continues it."""
    if not end.state.size:
        return True
    row = c.execute(_ENTRY, (end.state.size - 1,)).fetchone()
    return row is not None and entry_hash(row[0]) == end.state.last_hash


def read_authority(
    c: Rows, authority: Authority, *, after: int, path: Path
) -> tuple[Authority, int]:
    """Return what stands now, and its stream's last version, having seen it up to a version."""
    rows = c.execute(_AUTHORITY, (authority.stream_id.bytes, after)).fetchall()
    version = after
    if rows:
        authority = authority.copy()
        try:
            for index, version, entry in rows:  # noqa: B007  (the last one's is wanted)
                authority.apply(parse_entry(entry, index=index))
        except VerificationError as e:
            raise type(e)(f"{path}: {e}; verify the ledger", index=e.index) from e
    return authority, version
