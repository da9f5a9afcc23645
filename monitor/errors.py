"""Errors of the monitor package; one root, so that callers catch one thing."""

from collections.abc import Sequence


class MonitorError(Exception):
    """Watching or training cannot go on; a run that was open has been closed as failed."""


class ConfigurationError(MonitorError):
    """A configuration names an unknown key or holds a value that is not allowed."""


class DatasetError(MonitorError):
    """A dataset is missing, broken or too small for what is asked of it."""


class DataLimitError(DatasetError):
    """A dataset is larger than what is read here."""


class UnusableFileError(DatasetError):
    """A dataset holds a link, a pipe, a device or a folder where a regular file belongs."""


class OverlapError(DatasetError):
    """Splits share images; `pairs` names them."""

    def __init__(self, message: str, *, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.pairs = tuple(pairs)


class MachineError(MonitorError):
    """This machine failed, as one without free memory does: it says nothing of what it trained."""


class WatchError(MonitorError):
    """A watched loop called something out of order, or gave what cannot be recorded."""


class SnapshotError(MonitorError):
    """A training state is missing, was changed, or does not fit its run."""


class TaskError(MonitorError):
    """A task misses a part of its protocol, fails, or gives what cannot be used."""


class RoomError(MonitorError, OSError):
    """This machine has no room for what is to be stored: it says nothing of who gave it."""


class PolicyError(MonitorError):
    """A policy raised, or answered with what is no decision on the rules that fired."""
