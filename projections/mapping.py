"""How an event becomes rows of a table: defined once, for one event or for many of a kind.

Columns are named in one text: `tree_head run_id=run` takes two, the second from the key `run`.

Trust: bodies may be malformed; KeyError, TypeError, AttributeError, ValueError and AggregateError
are the caller's to expect.
I/O: none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ledger.verification.verified_entries import AuthorBlock

__all__ = ["Body", "Row", "Rows", "named", "rows"]

Body = Mapping[str, Any]
Row = tuple[str, dict[str, Any]]  # table, column -> value
Parts = Callable[[Body, str], Sequence[Body]]
"""What of a body, in the stream of this id, are rows of their own."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that an event becomes in one table: one, or one for each of its parts.

    All have the entry's index in `idx`.
    """

    table: str
    stream: str | None  # the column that takes the stream's id
    body: Mapping[str, str]  # column -> key
    parts: Parts | None
    part: Mapping[str, str]  # column -> key
    place: str | None  # the column that takes a part's number, from 0
    always: Mapping[str, Any]  # column -> value
    signer: str | None  # the role that may sign; `signed_by` takes its key

    def of(self, body: Body, stream: str, idx: int, author: AuthorBlock | None) -> Iterator[Row]:
        """Yield an event's rows."""
        outer = {"idx": idx, **self.always, **named(body, self.body)}
        if self.stream is not None:
            outer[self.stream] = stream
        if self.signer is not None:
            outer["signed_by"] = self.signed_by(author)
        if self.parts is None:
            yield self.table, outer
            return
        for place, part in enumerate(self.parts(body, stream)):
            row = {**outer, **named(part, self.part)}
            if self.place is not None:
                row[self.place] = place
            yield self.table, row

    def signed_by(self, author: AuthorBlock | None) -> str | None:
        """Return the key that an event was signed with, if it was by who may."""
        return author.key_id.hex() if author is not None and author.role == self.signer else None


def rows(
    table: str,
    stream: str | None,
    body: str,
    *,
    parts: Parts | None = None,
    part: str = "",
    place: str | None = None,
    always: Mapping[str, Any] = _NOTHING,
    signer: str | None = None,
) -> Rows:
    """Return what becomes of an event in a table; `body` and `part` name columns."""
    return Rows(
        table=table,
        stream=stream,
        body=_columns(body),
        parts=parts,
        part=_columns(part),
        place=place,
        always=always,
        signer=signer,
    )


def named(source: Body, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a map's values by the columns that take them; raises KeyError for a missing one."""
    return {column: source[key] for column, key in columns.items()}


def _columns(text: str) -> dict[str, str]:
    split = [word.partition("=") for word in text.split()]
    return {column: key or column for column, _, key in split}
