"""Errors of the monitor package; one root, so that callers catch one thing."""

__all__ = [
    "ConfigurationError",
    "DatasetError",
    "MonitorError",
    "PolicyError",
    "RemedyRefused",
    "WeightsError",
]


class MonitorError(Exception):
    """Watching or training cannot go on; a run that was open has been closed as failed."""


class ConfigurationError(MonitorError):
    """A configuration names an unknown key or holds a value that is not allowed."""


class DatasetError(MonitorError):
    """A dataset is missing, broken or too small for what is asked of it."""


class WeightsError(MonitorError):
    """Weights that are not safetensors, or not those of the model at hand."""


class PolicyError(MonitorError):
    """A policy raised, or answered with what is no decision on the rules that fired."""


class RemedyRefused(MonitorError):  # noqa: N818 - an answer on the way, not a failure
    """A decision that the live run cannot carry out; its state is untouched."""
