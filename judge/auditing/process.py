"""The process score of a run without its audit: nothing is retrained, and no model is loaded.

It is the score that an audit would give. An audit looks at more first, and may give none.

I/O: none; it computes in memory.
"""

from collections.abc import Sequence
from typing import NamedTuple

from judge.auditing.coverage import project_coverage
from judge.auditing.defensibility import find_excessive, find_indefensible
from judge.auditing.replay import replay_run
from judge.auditing.scores import process_score
from ledger.verification.verified_entries import VerifiedEntry


class Process(NamedTuple):
    """How the rules of a run were answered."""

    score: float
    obligations: int
    violations: int
    exercised: bool  # by the limits of an audit's default; else the score says nothing of a policy


def measure_process(entries: Sequence[VerifiedEntry]) -> Process:
    """Return how the rules of a run were answered, from all of its entries.

    Raises StepError.
    """
    replay = replay_run(entries)
    coverage = project_coverage(entries, replay)
    violations = (
        *coverage.violations,
        *find_indefensible(replay.run, replay.settings_at),
        *find_excessive(replay),
    )
    obligations = coverage.obligations(violations)
    score = process_score(len(violations), obligations)
    return Process(score, obligations, len(violations), coverage.why_unexercised() is None)
