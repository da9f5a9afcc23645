"""Two independent scores, and the ranking of several attempts.

Source: docs/explanation/scores.md.  I/O: none.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggregates.campaign import PROCESS, QUALITY

if TYPE_CHECKING:
    from judge.auditing.report import AuditReport
    from judge.config import JudgeConfig


def choose_target(own: float, classes: int, config: "JudgeConfig") -> tuple[float, str]:
    """Return the target of an audit, and whose it is: the judge's, the run's own or the floor's.

    The floor lies above chance: at twice chance (for two classes at three quarters), and nowhere
    below the configured one.
    """
    if config.target_accuracy is not None:
        return config.target_accuracy, "judge"
    floor = max(config.min_target_accuracy, min(2.0 / classes, 0.75))
    return (own, "run") if own >= floor else (floor, "floor")


def accuracy_score(test_accuracy: float, target: float) -> float:
    """Return the share of the target that was reached; nothing is gained beyond it."""
    if target <= 0.0 or test_accuracy >= target:
        return 1.0
    return max(0.0, test_accuracy / target)


def process_score(violations: int, obligations: int) -> float:
    """Return one less the violations for each firing that wanted an answer.

    The denominator counts firings and not decisions, so that needless decisions buy nothing.
    """
    if violations == 0:
        return 1.0
    return max(0.0, 1.0 - violations / obligations) if obligations else 0.0


def rank(reports: Sequence["AuditReport"], by: str = PROCESS) -> list["AuditReport"]:
    """Return the reports, the best attempt first; ties keep their order.

    A hard fail comes last. Otherwise these decide, in this order: whether the judge retrained the
    attempt (wholly, in part, not at all), whether its process score was exercised, the process
    score, and the validation accuracy if it rests on enough examples. With QUALITY, the accuracy
    decides before the process. The test set selects nothing.
    """
    return sorted(reports, key=lambda report: _merit(report, by), reverse=True)


def validation_examples(report: "AuditReport") -> int | None:
    """Return how many examples the validation accuracy rests on, None in an earlier audit."""
    found = report.step("scores").evidence.get("validation_examples")
    return found if type(found) is int else None


def _merit(report: "AuditReport", by: str) -> tuple[float, ...]:
    scores, examples = report.scores, validation_examples(report)
    enough = examples is None or examples >= report.config.get("min_validation_examples", 0)
    accuracy = scores.validation_accuracy if enough else None
    quality = (-1.0 if accuracy is None else accuracy,)
    process = (scores.process_axis_exercised, scores.process_score)
    return (
        not scores.hard_fail,
        2 if report.retrained >= 1 else 1 if report.retrained > 0 else 0,
        *((*quality, *process) if by == QUALITY else (*process, *quality)),
    )
