"""Checks each decision against the playbook: class, direction, bounds, no padding.

I/O: none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggregates.decisions import PastDecision, Settings, direction_problem
from aggregates.run import Run
from judge.auditing.coverage import Violation
from judge.auditing.effects import find_excesses, last_firing

if TYPE_CHECKING:
    from judge.auditing.replayed import Replay

# With true citations and no rule cited twice in one epoch, an epoch cannot hold more decisions than
# rules that fired: padding needs no other test.


def find_indefensible(run: Run, settings_at: Sequence[Settings]) -> list[Violation]:
    """Return a violation for each decision that the playbook does not bear out.

    `settings_at` holds the settings in force at each decision. A rule has one answer in an epoch,
    whoever gives it. Waived rules accuse nobody.
    """
    found = []
    answered: dict[tuple[int, str], int] = {}
    shown: dict[int, Settings] = {}  # before the decisions of an epoch
    for past, settings in zip(run.decisions, settings_at, strict=True):
        before = shown.setdefault(past.epoch, settings)
        back = past.decision.back is not None
        for rule in past.decision.cites:
            if rule in run.waived:
                continue
            if (first := answered.setdefault((past.epoch, rule), past.number)) != past.number:
                found.append(
                    _violation(
                        "padding", past, rule, f"repeats the answer to {rule} of decision {first}"
                    )
                )
            fired = last_firing(run, past, rule)
            problem = direction_problem(
                rule,
                fired,
                past.decision,
                before if back else settings,
                rules=run.rules,
                epoch=past.epoch,
            )
            if problem is not None:
                found.append(_violation("direction", past, rule, problem))
    return found


def find_excessive(replay: "Replay") -> list[Violation]:
    """Return a violation for decisions of one epoch that together pass the playbook's factors."""
    return [_violation("direction", *excess) for excess in find_excesses(replay)]


def repeated_words(run: Run) -> dict[str, int]:
    """Return how often deferrals were justified in the very same words: reported, not judged."""
    words = Counter(past.decision.justification for past in run.decisions if not past.decision.acts)
    return {text[:120]: count for text, count in words.most_common(3) if count > 1}


def _violation(kind: str, past: PastDecision, rule: str, words: str) -> Violation:
    return Violation(
        kind=kind,
        rule=rule,
        epoch=past.epoch,
        decision=past.number,
        emitter=past.source,
        detail=f"decision {past.number}: {words}",
    )
