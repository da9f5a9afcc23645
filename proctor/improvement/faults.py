"""What there is to tell of a bisection, and of the older fault that it found.

I/O: none.
"""

from dataclasses import asdict
from typing import Any

from aggregates.improvement.bisection import Bisection
from aggregates.improvement.line import Line
from judge.bisection import latent, reports


def describe_fault(line: Line, found: latent.LatentFault) -> dict[str, Any]:
    """Return what a search for an older fault has come to, in terms of JSON."""
    return {
        "says": found.says,
        "revealed_by": found.revealed.by,
        "tasks": list(found.revealed.tasks),
        "rollback": None if found.rollback is None else asdict(found.rollback),
        "needs_operator": found.needs_operator,
        **describe_search(line, found.search),
    }


def describe_search(line: Line, found: Bisection) -> dict[str, Any]:
    """Return what a search has come to, with the culprit's commit and proposals."""
    told = reports.summary(found)
    if found.culprit is not None:
        culprit = line.checkpoints[found.culprit]
        told |= {"commit": culprit.commit, "proposals": list(culprit.proposals)}
    return told
