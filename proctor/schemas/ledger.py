"""Shapes of what `verify` says of files that show verdicts.

I/O: none.
"""

from typing import Literal
from uuid import UUID

from proctor.handover.vouching import Vouched
from proctor.output.shape import Answer


class Step(Answer):
    """A step of a lineage."""

    index: int
    event: str
    says: str


class VerifiedModel(Answer):
    """A model handed over that is valid."""

    ok: Literal[True]
    run: UUID
    verdict: str
    trusted: bool  # every verdict is signed by the judge that --judge names
    accuracy_score: float | None
    process_score: float | None
    test_accuracy: float | None
    reservations: list[str]
    violations: int  # that the audit found
    violations_claimed: int  # by the folder's claim
    claim: Literal["exact", "cut_list"]  # cut_list: an earlier version counted the first ones only
    evidence_level: str
    files: dict[str, str]  # name -> SHA-256
    size: int
    origin: str
    verdicts: list[Vouched]
    not_claimed: list[str]
    as_of: str  # the tree head, and what can be left out


class VerifiedReport(Answer):
    """A report, compared with its proved entries; exit code 1 if it was altered."""

    ok: bool
    kind: str
    subject: str
    entries: int
    size: int
    altered: list[str]
    unchecked: str  # why it was not compared
    trusted: bool  # every verdict is signed by the judge that --judge names
    verdicts: list[Vouched]
    not_claimed: list[str]
    as_of: str  # the tree head, and what can be left out


class VerifiedLineage(Answer):
    """A lineage file that is valid."""

    ok: Literal[True]
    size: int
    example: str
    steps: list[Step]
    trusted: bool  # every verdict is signed by the judge that --judge names
    verdicts: list[Vouched]
    not_claimed: list[str]
    as_of: str  # the tree head, and what can be left out
