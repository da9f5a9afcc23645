"""Errors of the projections package; one root, so that callers catch one thing."""

import errno
import os


class ProjectionError(Exception):
    """The read models could not be brought up to date, or could not be asked."""


class TableError(ProjectionError):
    """DuckDB refused the rows of a batch; nothing of that batch was kept."""


class BusyError(ProjectionError):
    """Another process holds the DuckDB file; try again later."""


class AheadError(ProjectionError):
    """The tables hold entries that the caller has not verified; verify what is new, and go on."""


class QueryError(ProjectionError):
    """DuckDB refused a question, in its own words."""


class CostlyError(QueryError):
    """An answer takes more rows, time or memory than its reader gives; a part would mislead."""


_NO_ROOM = [os.strerror(number) for number in (errno.EDQUOT, errno.EFBIG, errno.ENOSPC)]


def is_no_room(error: Exception) -> bool:
    """Tell whether this says that the disk is full: DuckDB has no type of its own for it."""
    return any(reason in str(error) for reason in _NO_ROOM)
