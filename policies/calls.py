"""The interfaces for recording calls and storing bytes that a model policy writes to.

I/O: none of its own.
"""

from collections.abc import Callable
from typing import Protocol


class CallLog(Protocol):
    """What policies write to: a Transcript, or a log in which what was written is durable.

    Each takes what the method of that name of a Transcript takes.
    """

    @property
    def add(self) -> Callable[..., int]:
        """Record a call and return its number, from 1."""

    @property
    def count_votes(self) -> Callable[..., float]:
        """Record the ballots on one rule; return the share that agreed."""

    @property
    def review_proposal(self) -> Callable[..., None]:
        """Record what a person made of a proposed decision."""


class Answers(Protocol):
    """What was answered earlier."""

    def find(self, request_sha256: str, /) -> str | None:
        """Return the SHA-256 of the body that answered this very request usably."""
