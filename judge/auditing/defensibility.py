"""Checks each decision against the playbook: class, direction, bounds, no padding.

I/O: none.
"""

from collections import Counter
from collections.abc import Sequence

from aggregates.decisions import PastDecision, Settings, direction_problem
from aggregates.run import Run
from judge.auditing.coverage import Violation

# With true citations and no rule cited twice by one source in one epoch, an epoch cannot hold more
# decisions of that source than rules that fired: padding needs no other test.


def find_indefensible(run: Run, settings_at: Sequence[Settings]) -> list[Violation]:
    """Return a violation for each decision that the playbook does not bear out.

    `settings_at` holds the settings in force at each decision. Waived rules accuse nobody.
    """
    found = []
    answered: dict[tuple[int, str, str], int] = {}
    for past, settings in zip(run.decisions, settings_at, strict=True):
        for rule in past.decision.cites:
            if rule in run.waived:
                continue
            place = (past.epoch, past.source, rule)
            if (first := answered.setdefault(place, past.number)) != past.number:
                found.append(
                    _violation(
                        "padding", past, rule, f"repeats the answer to {rule} of decision {first}"
                    )
                )
            problem = direction_problem(rule, _side(run, past, rule), past.decision, settings)
            if problem is not None:
                found.append(_violation("direction", past, rule, problem))
    return found


def repeated_words(run: Run) -> dict[str, int]:
    """Return how often deferrals were justified in the very same words: reported, not judged."""
    words = Counter(past.decision.justification for past in run.decisions if not past.decision.acts)
    return {text[:120]: count for text, count in words.most_common(3) if count > 1}


def _side(run: Run, past: PastDecision, rule: str) -> str | None:
    """Return the side on which the rule fired last, up to the decision."""
    for epoch in range(past.epoch, max(-1, past.epoch - run.rules.action_window - 1), -1):
        evaluation = run.evaluations[epoch][rule]
        if evaluation.fired:
            return evaluation.side
    return None


def _violation(kind: str, past: PastDecision, rule: str, words: str) -> Violation:
    return Violation(
        kind=kind,
        rule=rule,
        epoch=past.epoch,
        decision=past.number,
        emitter=past.source,
        detail=f"decision {past.number}: {words}",
    )
