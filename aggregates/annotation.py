"""What people say of a run, by which it is found again: tags, notes, a configuration of their own.

It is no part of the run's stream, which nobody can add to once it has ended, and no judgment reads
it. I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any

from eventsourcing.domain import Aggregate
from msgspec import Meta

from aggregates.declared import check_fields
from aggregates.errors import InvariantError
from aggregates.events import Cut, First, begins
from ledger.bodies import encode_body
from ledger.errors import EncodingError

MAX_TAGS = 100
MAX_TAG = 100  # characters
MAX_NOTES = 10_000  # characters
MAX_CONFIG = 100_000  # bytes
_Tag = Annotated[str, Meta(min_length=1, max_length=MAX_TAG)]
_SAID = f"at most {MAX_TAGS} words of 1 to {MAX_TAG} characters"
_Tags = Annotated[Sequence[_Tag], Meta(max_length=MAX_TAGS, extra={"allowed": _SAID})]


class Annotation(Aggregate):
    """What was said of one run at one time."""

    class Given(First):
        """What somebody says of a run; the latest annotation of a run counts."""

        NAME = "run.annotated"
        run: Annotated[str, Meta(pattern=r"\A[0-9a-f-]{36}\Z", extra={"allowed": "a run's id"})]
        _: KW_ONLY
        tags: _Tags = ()  # words to find the run by
        notes: Annotated[str, Cut(MAX_NOTES)] = ""  # in words
        config: Mapping[str, Any]  # the caller's own settings, which no rule reads

        def check(self) -> None:
            """Bound what is said."""
            check_fields(self, InvariantError)
            try:
                size = len(encode_body({"config": self.config}))
            except EncodingError as error:
                raise InvariantError(f"config must have only plain values: {error}") from error
            if size > MAX_CONFIG:
                raise InvariantError(f"config has {size:,} bytes; the maximum is {MAX_CONFIG:,}")

    run: str
    tags: list[str]
    notes: str
    config: dict[str, Any]

    give = begins(Given)
