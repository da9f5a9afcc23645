"""Errors of this package."""

from judge.errors import JudgeError


class DriftError(JudgeError):
    """Nothing can be said of drift here; the message says what is missing."""
