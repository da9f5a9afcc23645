"""The outcome of a step: whatever a submission makes of it, there is one.

An audit ends without a verdict only for reasons that lie with the judge: its disk, its memory, its
installation, data that it lacks, a run above its limits. A run that could bring about any other
error would be judged until it passes, and nothing would be on record.

I/O: none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any

import duckdb

from judge.errors import JudgeError, StepError
from ledger.errors import StorageError
from monitor.errors import MachineError

# Errors that say nothing of a submission. Ctrl-C and exits are no `Exception` at all.
JUDGES_OWN = (
    JudgeError,  # data or limits of the judge; a StepError, which it includes, is a failed step
    StorageError,  # the ledger cannot be read or written
    duckdb.OperationalError,  # the same of its tables
    OSError,  # no room on the disk, no process can be started
    MemoryError,
    MachineError,  # the same of a GPU
    ImportError,  # a package is missing here
)
_NO_MEMORY = ("DefaultCPUAllocator", "not enough memory")  # torch has no type of its own for that


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step."""

    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    status: str = "passed"


def performed(step: Callable[[], StepOutcome]) -> StepOutcome:
    """Carry a step out and return its outcome; raises only what is the judge's own problem."""
    try:
        return step()
    except StepError as error:
        return failure(error)
    except JUDGES_OWN:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and any(each in str(error) for each in _NO_MEMORY):
            raise MemoryError(str(error)) from error
        return failure(_unforeseen(error))


def failure(error: StepError) -> StepOutcome:
    """Return the outcome of a step that failed."""
    return StepOutcome(str(error), error.evidence, status="failed")


def _unforeseen(error: Exception) -> StepError:
    """Return what no check has foreseen as a failed step, with the place in the judge's code."""
    last = extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    kind = type(error).__name__
    words = " ".join(str(error).split())
    return StepError(
        f"the judge cannot use what was submitted: {kind}: {words}", error=kind, place=place
    )
