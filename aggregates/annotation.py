"""What people say of a run, by which it is found again: tags, notes, a configuration of their own.

It is no part of the run's stream, which nobody can add to once it has ended, and no judgment reads
it. I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, First, begins
from ledger.bodies import encode_body
from ledger.errors import EncodingError

MAX_TAGS = 100
MAX_TAG = 100  # characters
MAX_NOTES = 10_000  # characters
MAX_CONFIG = 100_000  # bytes


class Annotation(Aggregate):
    """What was said of one run at one time."""

    class Given(First):
        """What somebody says of a run; the latest annotation of a run counts."""

        NAME = "run.annotated"
        run: str
        _: KW_ONLY
        tags: Sequence[str] = ()  # words to find the run by
        notes: Annotated[str, Cut(MAX_NOTES)] = ""  # in words
        config: Mapping[str, Any]  # the caller's own settings, which no rule reads

        def check(self) -> None:
            """Bound the tags and the configuration."""
            if len(self.tags) > MAX_TAGS or not all(
                isinstance(tag, str) and 0 < len(tag) <= MAX_TAG for tag in self.tags
            ):
                raise InvariantError(
                    f"a run has at most {MAX_TAGS} tags of 1 to {MAX_TAG} characters"
                )
            try:
                size = len(encode_body({"config": self.config}))
            except EncodingError as error:
                raise InvariantError(f"config must hold plain values: {error}") from error
            if size > MAX_CONFIG:
                raise InvariantError(f"config has {size:,} bytes; the maximum is {MAX_CONFIG:,}")

    run: str
    tags: list[str]
    notes: str
    config: dict[str, Any]

    give = begins(Given)
