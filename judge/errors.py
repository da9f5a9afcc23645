"""Errors of the judge package; one root, so that callers catch one thing."""

__all__ = ["JudgeError", "LineageError", "SandboxError", "StepError"]

from collections.abc import Mapping
from typing import Any

from ledger.errors import VerificationError


class JudgeError(Exception):
    """An audit cannot be made at all; a run that fails its audit is no error but a report."""


class StepError(JudgeError):
    """A step does not hold: the sentence says what is wrong, `evidence` what it rests on."""

    def __init__(self, message: str, **evidence: Any) -> None:
        super().__init__(message)
        self.evidence: Mapping[str, Any] = evidence


class SandboxError(StepError):
    """Submitted code misbehaved: it raised, left, ran too long, or answered with garbage."""


class LineageError(JudgeError, VerificationError):
    """Entries that do not lead from an example to what let it come about; `index` is where."""
