"""Errors of the judge package; one root, so that callers catch one thing."""

from collections.abc import Mapping
from typing import Any

from ledger.errors import VerificationError


class JudgeError(Exception):
    """An audit is not possible. A run that fails its audit gives a report, not this error."""


class ConfinementError(JudgeError):
    """A candidate cannot be confined here, or what it left cannot be removed."""


class StepError(JudgeError):
    """A step failed: the message says what is wrong, `evidence` holds the values it is based on."""

    def __init__(self, message: str, **evidence: Any) -> None:
        super().__init__(message)
        self.evidence: Mapping[str, Any] = evidence


class SandboxError(StepError):
    """Submitted code failed: it raised, exited, ran too long, or returned a malformed answer."""


class LineageError(JudgeError, VerificationError):
    """Entries that do not lead from an example to what let it come about; `index` is where."""


class ApprovalError(JudgeError):
    """An operator's word is missing, has expired, or is for something else."""


class BisectionError(JudgeError):
    """A search cannot be made, or its oracle says nothing; the sentence says what to do."""


class CurationError(JudgeError):
    """Training data could not be drawn, or is not what was sealed."""


class DriftError(JudgeError):
    """Nothing can be said of drift here; the message says what is missing."""
