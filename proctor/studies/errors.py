"""The error that a study reports in one line."""

from proctor.errors import ProctorError


class StudyError(ProctorError):
    """A study cannot start or go on; the message says where and what to do."""
