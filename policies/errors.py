"""Errors of the policies package."""


class PolicyError(Exception):
    """A policy cannot be built or cannot answer."""


class AnswerError(PolicyError):
    """What a model answered cannot be read as what it was asked for."""


class SilentError(PolicyError):
    """An endpoint is there, and answered no request: it may answer a later one."""
