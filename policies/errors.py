"""Errors of the policies package."""


class PolicyError(Exception):
    """A policy cannot be built or cannot answer."""
