"""Line coverage in processes that coverage.py does not save, or must not measure.

Without `coverage run` nothing here does anything. coverage.py measures a process that starts with
its variable in the environment, and saves at exit. A process forked from a measured one inherits
the tracer, but ends without the exit functions.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _current() -> Any:
    """Return what measures this process, None if nothing does."""
    coverage = sys.modules.get("coverage")
    return None if coverage is None else coverage.Coverage.current()


def stop() -> None:
    """Stop measuring this process, and write nothing."""
    if (measuring := _current()) is not None:
        measuring.stop()


@contextmanager
def paused() -> Iterator[None]:
    """Do not measure what this thread runs meanwhile."""
    if _current() is None:
        yield
        return
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@contextmanager
def saved() -> Iterator[None]:
    """Write the lines of a forked process that ends here."""
    try:
        yield
    finally:
        if (measuring := _current()) is not None:
            measuring.stop()
            measuring.save()
