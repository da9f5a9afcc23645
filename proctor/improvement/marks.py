"""What people have marked on a model's decisions, for its advice: gold and bad.

A decision that is marked as gold becomes a scenario: its situation, as the judge's replay of the
run gives it, with the decision's direction as the acceptable act. One that is marked as bad becomes
a pattern with an example of what not to do.

Trust: marks and notes are people's; runs are replayed from verified entries.
I/O: reads the log and the home.
"""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from aggregates.decisions import Decision, Observation
from aggregates.review import Review
from aggregates.run import Run
from judge.auditing.replay import replay_run
from judge.errors import StepError
from ledger.application import LedgerApplication
from policies.proposing.tuner import Example
from proctor.home import Home
from proctor.runs.replay import read_recording


@dataclass(frozen=True)
class Mark:
    """A mark on a decision of the model."""

    index: int  # of the decision's entry
    mark: str  # gold or bad
    note: str
    run: str
    epoch: int
    side: str | None  # of the first rule that is cited
    decision: Decision


def marks_on(log: LedgerApplication, model: str) -> list[Mark]:
    """Return the latest mark on each decision of a model, by index."""
    found: dict[int, Mark] = {}
    for each in log.notifications("decision.reviewed"):
        review: Any = log.mapper.to_domain_event(each)
        assert isinstance(review, Review.Reviewed)
        if (mark := _read(log, review, model)) is not None:
            found[mark.index] = mark
    return [found[index] for index in sorted(found)]


def bad_examples(marks: list[Mark]) -> list[Example]:
    """Return the bad ones as examples of what not to do."""
    return [
        Example(
            mark="bad",
            rule=rule,
            side=mark.side,
            direction=mark.decision.direction,
            note=mark.note,
            entry=mark.index,
            run=mark.run,
        )
        for mark in marks
        if mark.mark == "bad"
        for rule in mark.decision.cites
    ]


def situation_of(home: Home, mark: Mark) -> Observation | None:
    """Return what was observed when a decision was made; None if the run does not replay."""
    entries = read_recording(home, mark.run).entries
    try:
        replay = replay_run(entries)
    except StepError:
        return None
    return replace(replay.observation(mark.epoch), run_id="scenario", due=mark.decision.cites)


def _read(log: LedgerApplication, review: Review.Reviewed, model: str) -> Mark | None:
    run = log.readable(UUID(review.run), Run)
    if run is None or run.policy.get("model") != model:
        return None
    (entry,) = log.recorder.select_notifications(review.index + 1, 1)
    made: Any = log.mapper.to_domain_event(entry)
    if type(made) is not Run.DecisionMade or made.source != "policy":
        return None
    seen = run.evaluations.get(made.epoch, {}).get(made.cites[0])
    return Mark(
        index=review.index,
        mark=review.mark,
        note=review.note,
        run=review.run,
        epoch=made.epoch,
        side=None if seen is None else seen.side,
        decision=Decision.of(tuple(made.cites), made.direction, made.params, made.justification),
    )
