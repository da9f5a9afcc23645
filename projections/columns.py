"""Entries as the columns of tables: one way for all readers, whatever they write columns with.

An entry that is odd is found by halves, and hides no other.

Trust: whoever calls has verified the entries, or knows that it has not; bodies may be malformed.
I/O: none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from ledger.bodies import decode_body
from ledger.errors import UnknownEventError
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.verified_entries import VerifiedEntry
from projections.errors import ProjectionError
from projections.mapping import ODD, Body, Columns, Item, fitted
from projections.rows import ROWS

Tables = dict[str, dict[str, list[Any]]]
"""The rows of some entries, as a list of values for each column of a table."""

AT_ONCE = 1_000  # entries, whose bodies fit into the caches of a processor
_DECLARED: dict[str, tuple[int, frozenset[str]]] = {}


def declared() -> Mapping[str, tuple[int, frozenset[str]]]:
    """Return the version and the fields of each event, as the aggregates declare them."""
    if not _DECLARED:
        from aggregates.registry import REGISTRY  # noqa: PLC0415 - see tell_declared()

        tell_declared({each.name: (each.version, each.names or ()) for each in REGISTRY})
    return _DECLARED


def tell_declared(told: Mapping[str, tuple[int, Collection[str]]]) -> None:
    """Say what is declared, in a process for which loading all aggregates takes too long."""
    _DECLARED.update({name: (version, frozenset(names)) for name, (version, names) in told.items()})


def item_of(entry: VerifiedEntry) -> Item:
    """Return what rows need of an entry."""
    return Item(
        entry.index,
        entry.time_ns,
        str(entry.stream_id),
        entry.stream_version,
        entry.name,
        entry.body,
        entry.author,
        entry.entry_hash.hex(),
    )


def tables_of(
    items: Sequence[Item], *, authority: UUID | None = None, quarantine: bool = False
) -> Tables:
    """Return the rows of entries.

    `authority` is the stream that decides on the ledger's keys; an event about keys in another
    stream is malformed, as verification ignores it. Raises ProjectionError for the first entry that
    is unknown or malformed; with `quarantine`, it becomes a row of the table unreadable instead.
    """
    tables: Tables = {}
    for start in range(0, len(items), AT_ONCE):
        some = items[start : start + AT_ONCE]
        for table, columns in _sound(some, authority=authority, quarantine=quarantine):
            into = tables.setdefault(table, {column: [] for column in columns})
            for column, values in columns.items():
                into[column].extend(values)
    return tables


def set_aside(item: Item, reason: str) -> dict[str, Columns]:
    """Return the rows of an entry that cannot be read."""
    role = item.author.role if item.author else None
    unreadable: Columns = {"idx": [item.index], "reason": [reason], "signed_as": [role]}
    return {"events": _events([item]), "unreadable": unreadable}


def _sound(
    items: Sequence[Item], *, authority: UUID | None, quarantine: bool
) -> Iterator[tuple[str, Columns]]:
    """Yield the rows of entries, or of each half of them where one is odd."""
    try:
        yield from [*_tables(items, authority)]
    except ODD as e:
        half = len(items) // 2
        if half:
            for part in (items[:half], items[half:]):
                yield from _sound(part, authority=authority, quarantine=quarantine)
            return
        reason = _reason(items[0], e)
        if not quarantine:
            raise ProjectionError(reason) from e
        yield from set_aside(items[0], reason).items()


def _reason(item: Item, error: Exception) -> str:
    entry = f"entry {item.index}"
    match error:
        case ProjectionError() | UnknownEventError():
            return f"{entry}: {error}"
        case KeyError():
            return f"{entry} ({item.name}) has no field {error}"
    return f"{entry} ({item.name}): {error}"


def _tables(items: Sequence[Item], authority: UUID | None) -> Iterator[tuple[str, Columns]]:
    yield "events", _events(items)
    kinds: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        kinds[item.name].append(item)
    for name, own in kinds.items():
        if name in AUTHORITY_EVENTS:
            yield "authority_events", _authority_events(own, authority)
            continue
        newest, fields = declared().get(name, (0, frozenset()))
        bodies = [_body(item, newest) for item in own]
        for told in ROWS[name]:
            found = told.columns(own, bodies, fields)
            if found["idx"]:
                yield told.table, found


def _body(item: Item, newest: int) -> Body:
    """Return a body at the newest version of its event."""
    body = decode_body(item.body)
    version = body.get("v")
    if type(version) is not int or version != newest:
        from aggregates.registry import REGISTRY  # noqa: PLC0415 - see tell_declared()

        body = REGISTRY.upcast(item.name, body)
    return body


def _events(items: Sequence[Item]) -> Columns:
    return {
        "idx": [item.index for item in items],
        "time": [item.time_ns // 1_000 for item in items],
        "stream_id": [item.stream for item in items],
        "version": [item.version for item in items],
        "name": [item.name for item in items],
    }


def _authority_events(items: Sequence[Item], authority: UUID | None) -> Columns:
    if authority is not None and any(item.stream != str(authority) for item in items):
        raise ValueError("it is not in the stream that decides on the ledger's keys")
    found: Columns = {
        "idx": [item.index for item in items],
        "name": [item.name for item in items],
        "body": [decode_body(item.body) for item in items],
        "signed_as": [item.author.role if item.author else None for item in items],
        "signed_by": [item.author.key_id.hex() if item.author else None for item in items],
    }
    return fitted("authority_events", found)
