"""Errors of bisection."""

from judge.errors import JudgeError

__all__ = ["BisectionError"]


class BisectionError(JudgeError):
    """A search cannot be made, or its oracle says nothing; the sentence says what to do."""
