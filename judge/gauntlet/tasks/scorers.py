"""The closed table of scorers: a task names one of these, and there is no other way to score.

I/O: none.
"""

from collections.abc import Mapping

from judge.gauntlet.tasks.own_scorers import REFERENCE_SCORERS
from judge.gauntlet.tasks.scoring import (
    METRICS,
    Ask,
    Metric,
    Score,
    Scorer,
    acceptable,
    exact,
    selection,
)

__all__ = ["METRICS", "SCORERS", "Ask", "Metric", "Score", "Scorer"]

SCORERS: Mapping[str, Scorer] = {
    "acceptable": acceptable,
    "exact": exact,
    "selection": selection,
    **REFERENCE_SCORERS,
}
