"""Errors of curation."""

from judge.errors import JudgeError


class CurationError(JudgeError):
    """Training data could not be drawn, or is not what was sealed."""
