"""The process score of a run without its audit: nothing is retrained, and no model is loaded.

It is the score that an audit would give. An audit looks at more first, and may give none.

I/O: none; it computes in memory.
"""

from collections.abc import Sequence

from judge.auditing.coverage import project_coverage
from judge.auditing.defensibility import find_excessive, find_indefensible
from judge.auditing.replay import replay_run
from judge.auditing.scores import process_score
from ledger.verification.verified_entries import VerifiedEntry


def measure_process(entries: Sequence[VerifiedEntry]) -> tuple[float, int, int]:
    """Return a run's score, from all of its entries, its obligations and violations, in number.

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
    return process_score(len(violations), obligations), obligations, len(violations)
