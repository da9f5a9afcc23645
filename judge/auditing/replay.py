"""Replays a run's stream from verified entries; steps 5 and 6 depend on it.

Each event is repeated through the aggregate's own command, which checks the order, and must give
the recorded event. The rules are evaluated again from the measured values.

Trust: bodies are hostile, whoever signed them, until replay_run() returns.
I/O: none.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from aggregates.errors import AggregateError
from aggregates.forks import repeat
from aggregates.run import Run
from judge.auditing.events import HOSTILE, StreamEvents
from judge.auditing.replay_epochs import check_epochs
from judge.auditing.replay_follow import WRONGLY_REFUSED, follow
from judge.auditing.replay_start import start_replay
from judge.auditing.replayed import Replay
from judge.auditing.report import capped
from judge.compare import differences
from judge.errors import StepError
from ledger.mapper import recorded_fields
from ledger.verification.verified_entries import VerifiedEntry
from monitor.errors import MonitorError

# What a hostile body may make the aggregate raise.
_UNREPLAYABLE = (AggregateError, MonitorError, *HOSTILE)


def replay_run(entries: Sequence[VerifiedEntry]) -> Replay:
    """Replay a run's entries in order; raises StepError at the first invalid one.

    What speaks against the specification alone is collected, for step 6.
    """
    stream = StreamEvents(entries)
    events = iter(stream)
    started = next(events, None)
    if type(started) is not Run.Started:
        raise StepError("the stream does not start with run.started")
    try:
        replay = start_replay(started, stream)
    except _UNREPLAYABLE as error:
        raise _explained(entries[0], error) from error
    before = entries[0].time_ns
    for entry, event in zip(islice(entries, 1, None), events, strict=True):
        try:
            if entry.time_ns < before:
                raise StepError(f"entry {entry.index} has an earlier time than the entry before it")
            _repeat(replay.run, event)
            follow(replay, event)
            check_epochs(replay, event)
        except _UNREPLAYABLE as error:
            raise _explained(entry, error) from error
        before = entry.time_ns
    if replay.run.end_reason is None:
        raise StepError("the run has not ended: it has no run.ended event. Judge it later")
    for number, epoch in replay.superseded:
        if not any(
            past.epoch == epoch and past.number > number and past.decision.edit is not None
            for past in replay.run.decisions
        ):
            replay.settings_problems.append(WRONGLY_REFUSED.format(number))
    if replay.watched and replay.spec_problems:
        raise StepError(
            f"the model does not follow from the decisions: {replay.spec_problems[0]}",
            problems=capped(replay.spec_problems),
        )
    if replay.settings_problems:
        raise StepError(
            f"the settings do not follow from the decisions: {replay.settings_problems[0]}",
            problems=capped(replay.settings_problems),
        )
    return replay


def _explained(entry: VerifiedEntry, error: Exception) -> StepError:
    """Return as a failed step what a hostile body has made the aggregate raise."""
    return StepError(
        f"entry {entry.index} ({entry.name}) does not replay: {type(error).__name__}: {error}",
        index=entry.index,
    )


def _repeat(run: Run, event: Any) -> None:
    """Do what the event tells, once more, and compare; raises StepError or an aggregate's error."""
    repeat(run, event)
    (again,) = run.collect_events()
    found = list(differences(recorded_fields(event), recorded_fields(again)))
    if not found:
        return
    first = f"{found[0].place} is {found[0].recorded!r}, expected {found[0].found!r}"
    listed = capped([difference.to_dict() for difference in found])
    if type(event) is not Run.RulesEvaluated:
        raise StepError(first, differences=listed)
    raise StepError(
        f"the rules of epoch {event.epoch}, evaluated again from the measured values, differ from "
        f"the record: {first}",
        epoch=event.epoch,
        differences=listed,
    )
