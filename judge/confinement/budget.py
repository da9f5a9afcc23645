"""What one audit may still use: time and bytes, for all processes of submitted code together.

Every answer of such a process is paid for here before it is read: no step needs a sum of its own.

I/O: none.  Units: seconds, bytes.
"""

import math
import threading
import time

from judge.config import JudgeConfig
from judge.errors import StepError


class BudgetError(StepError):
    """A submission has used up what its audit may use; the message names the limit."""


class Budget:
    """The time and the bytes of one audit; without limits, those of somebody's own run."""

    def __init__(self, *, seconds: float = math.inf, most_bytes: float = math.inf) -> None:
        self._seconds, self._most = seconds, most_bytes
        self._deadline = time.monotonic() + seconds
        self._used = 0
        self._lock = threading.Lock()  # examples are decoded by several threads

    @classmethod
    def of(cls, config: JudgeConfig) -> "Budget":
        """Return the whole budget of an audit that begins now."""
        return cls(
            seconds=float(config.max_audit_seconds), most_bytes=float(config.max_audit_bytes)
        )

    def seconds_left(self) -> float:
        """Return how long the audit may wait; raises BudgetError if no longer."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise BudgetError(
                f"the submission has used the {self._seconds:,.0f} seconds of its audit: judge it "
                "with --limit max_audit_seconds=SECONDS"
            )
        return left

    def take(self, count: int) -> None:
        """Pay for bytes that are about to be read; raises BudgetError if there are too many."""
        with self._lock:
            self._used += count
            if self._used > self._most:
                raise BudgetError(
                    f"the submission has sent more than the {self._most:,.0f} bytes of its audit: "
                    "judge it with --limit max_audit_bytes=BYTES"
                )
