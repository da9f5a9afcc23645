"""The interfaces for recording calls and storing bytes that a model policy writes to.

I/O: none of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from aggregates.decisions import Decision
from aggregates.transcript import Call


class CallLog(Protocol):
    """What policies write to: a Transcript, or a log in which what was written is durable."""

    def add(self, call: Call, /) -> int:
        """Record a call and return its number, from 1."""

    def count_votes(
        self,
        *,
        epoch: int,
        rule: str,
        votes: Mapping[str, int],
        chosen: str | None,
        calls: Sequence[int],
    ) -> float:
        """Record the ballots on one rule; return the share that agreed."""

    def review_proposal(
        self,
        *,
        epoch: int,
        proposed: Decision,
        verdict: str,
        decision: Decision,
        mark: str | None = None,
        note: str = "",
    ) -> None:
        """Record what a person made of a proposed decision."""


class Answers(Protocol):
    """What was answered earlier."""

    def find(self, request_sha256: str, /) -> str | None:
        """Return the SHA-256 of the body that answered this very request usably."""
