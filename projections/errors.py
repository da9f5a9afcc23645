"""Errors of the projections package; one root, so that callers catch one thing."""


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
