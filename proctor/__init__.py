"""The front door: command line, wiring, reports. Imports every other package; imported by none."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitor.errors import WatchError
    from monitor.watching import WatchedRun
    from proctor.reports.notebook import Report, report
    from proctor.runs.watching import watch

__version__ = "0.1.0"
__all__ = ["Report", "WatchError", "WatchedRun", "__version__", "report", "watch"]


def __getattr__(name: str) -> Any:
    """Import the Python API when it is first used: the commands do not need torch to start."""
    if name in {"WatchError", "WatchedRun", "watch"}:
        from proctor.runs import watching  # noqa: PLC0415

        return getattr(watching, name)
    if name in {"Report", "report"}:
        from proctor.reports import notebook  # noqa: PLC0415

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _leave_working_folder() -> None:
    """Let `python -m proctor` import nothing from the folder in which it is started.

    Python puts that folder first on its path, so that a file named json.py there would be run.
    While Python looks for the module to run, `sys.argv` is `-m`.
    """
    started = sys.argv[:1] == ["-m"] and any(
        argument.removeprefix("-m").split(".")[0] == __name__ for argument in sys.orig_argv
    )
    if started and not sys.flags.safe_path and f"{sys.path[0]}/{__name__}" not in __path__:
        del sys.path[0]


_leave_working_folder()
