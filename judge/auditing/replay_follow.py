"""What each event leads to: settings, specification and weights, and the problems found there.

Settings and specification are derived from the start through every remedy.

Trust: bodies are hostile, whoever signed them.
I/O: none.  Units: epochs from 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any

from aggregates.decisions import Decision, Settings
from aggregates.errors import RemedyRefused, SpecError
from aggregates.outcomes import Outcome, derive_outcome
from aggregates.playbook import ARCHITECTURE_DIRECTIONS, FRESH, RATE_DIRECTIONS, RESTORING
from aggregates.run import Run
from aggregates.spec import Spec, apply_edit, spec_of
from judge.auditing.measurements import overridden_steps
from judge.auditing.replayed import Replay, SavedWeights
from judge.compare import differences
from judge.errors import StepError

WRONGLY_REFUSED = "decision {} is recorded as refused, but it could have been applied"


def follow(replay: Replay, event: Any) -> None:
    """Keep what later steps compare with: measurements, settings, specification, weights."""
    match event:
        case Run.EpochMeasured():
            kinds = (float, type(None)) if replay.is_task else (float,)
            _check_measured(event.measured, (type(None),) if replay.watched else kinds)
            replay.epochs += 1
            replay.newest = event.measured
            replay.newest_dead = {
                intern(each["name"]): each["dead_units"] for each in event.measured["activations"]
            }
            replay.lengths.append(_length(event.measured))
            replay.overridden.append(overridden_steps(event.measured))
            latest = replay.in_force[-1] if replay.in_force else (None, None)
            if latest[0] is not replay.settings or latest[1] is not replay.spec:
                latest = (replay.settings, replay.spec)
            replay.in_force.append(latest)
            recorded = event.measured["settings"]
            for difference in differences(replay.settings.to_dict(), recorded):
                replay.settings_problems.append(
                    f"epoch {event.epoch} was trained with {difference.place} "
                    f"{difference.found!r}, but {difference.recorded!r} was in force"
                )
            if (step := replay.run.step()) is not None:
                replay.settings = replace(replay.settings, lr=step.lr)
        case Run.Forked() if replay.is_task:
            raise StepError("a run of a task cannot be a fork")
        case Run.Forked() if replay.watched == bool(event.state):
            raise StepError("a fork has to name its training state; a resumed loop has none")
        case Run.DecisionMade():
            replay.settings_at.append(replay.settings)
            if event.direction in ARCHITECTURE_DIRECTIONS:
                replay.dead[event.epoch] = replay.newest_dead
        case Run.RemedyApplied():
            _follow_remedy(replay, event)
        case Run.RemedyRefused():
            _check_refused(replay, event)
        case Run.RestartScheduled():
            decision = replay.run.decisions[event.decision - 1].decision
            if decision.edit is None or replay.config.edits != "restart":
                replay.spec_problems.append(
                    f"decision {event.decision} is recorded as a restart, but does not ask for one"
                )
            _follow_spec(replay, decision, event)  # for the following run: this model stays
        case Run.WeightsSaved():
            spec = replay.spec
            if replay.watched:
                raise StepError("a watched loop saves no weights in the ledger")
            if spec_of(event.spec) != spec:
                replay.spec_problems.append(
                    f"the {event.kind} weights of epoch {event.epoch} are recorded for a "
                    "different model than the edits produce"
                )
            replay.weights[event.kind] = SavedWeights(
                event.kind,
                event.epoch,
                event.sha256,
                event.size,
                spec,
                event.probe,
                replay.newest,
            )
        case Run.Ended():
            replay.deliverables = event.deliverables


def _length(measured: Mapping[str, Any]) -> float:
    """Return about how long the epoch's gradient was, infinite where that is not known."""
    norms = [layer["grad_norm"] for layer in measured["layers"] if layer["grad_norm"] is not None]
    length = math.hypot(*norms) if norms else math.inf
    return length if math.isfinite(length) else math.inf


def _check_measured(measured: Mapping[str, Any], kinds: Sequence[type]) -> None:
    """Raise where what later steps read, and no rule does, is missing or of the wrong kind."""
    accuracy = measured["validation"]["accuracy"]
    names = [layer["name"] for layer in measured["layers"]]
    if type(accuracy) not in kinds or any(type(name) is not str for name in names):
        raise ValueError("validation accuracy must be a float, and each layer must have a name")


def _follow_remedy(replay: Replay, event: Any) -> None:
    """Record a problem where the applied change is not exactly what the decision leads to."""
    decision = replay.run.decisions[event.decision - 1].decision
    found = []
    if decision.edit is not None and replay.config.edits == "restart":
        found.append(
            f"decision {event.decision} is recorded as applied, but should have restarted the run"
        )
    try:
        expected = _derive(replay, decision, event.epoch)
    except RemedyRefused as error:
        found.append(f"decision {event.decision} is recorded as applied: {error}")
    else:
        parts = {"settings": expected.settings.to_dict(), "changes": expected.changes}
        recorded = {"settings": event.settings, "changes": event.changes}
        if (gone := replay.run.why_refused(decision)) is not None:
            found.append(f"decision {event.decision} is recorded as applied, but {gone}")
        found += [
            f"decision {event.decision} leads to {difference.place} {difference.recorded!r}, but "
            f"{difference.found!r} is recorded as applied"
            for difference in differences(parts, recorded)
        ]
    replay.settings_problems += found
    replay.settings = _read_settings(event.settings)
    replay.spec = _follow_spec(replay, decision, event)


def _check_refused(replay: Replay, event: Any) -> None:
    """Record a problem for a refusal that has no valid reason.

    Weights that are not finite show in what was measured. Where edits restart the run, one that is
    superseded by another is refused, which the decisions that follow have to show.
    """
    decision = replay.run.decisions[event.decision - 1].decision
    if replay.run.falsely_cited(decision):  # which step 8 finds
        return
    if replay.run.resets_unproven(decision) or replay.run.why_refused(decision) is not None:
        return
    if replay.overridden[-1] and decision.direction in (*RATE_DIRECTIONS, *RESTORING):
        return
    try:
        _derive(replay, decision, event.epoch)
    except RemedyRefused:
        return
    if decision.edit is not None and replay.config.edits == "restart":
        replay.superseded.append((event.decision, event.epoch))
        return
    if replay.watched and decision.direction in ("decrease_batch_size", "increase_batch_size"):
        return  # only the loop's owner can change it
    back = event.epoch if decision.back is None else decision.back
    fresh = back == FRESH or decision.params.get("reinitialise", False)
    if replay.watched and (fresh or back != event.epoch):
        return  # only the model itself shows whether a state fits; a task is trained again
    seen = replay.run.history[back]  # the weights that would go on; of fresh ones, any epoch's
    sound = seen.gradients_finite and math.isfinite(seen.val_loss)
    if replay.watched:  # whose loop may report any loss: the weights show in their own change
        changes = [layer["epoch_update_ratio"] for layer in replay.newest["layers"]]
        sound = sound and all(math.isfinite(each) for each in changes if each is not None)
    if sound or decision.direction == "stop" or fresh:
        replay.settings_problems.append(WRONGLY_REFUSED.format(event.decision))


def _derive(replay: Replay, decision: Decision, epoch: int) -> Outcome:
    return derive_outcome(
        decision,
        settings=replay.settings,
        spec=replay.spec,
        epoch=epoch,
        max_batch_size=replay.config.max_batch_size,
        train_examples=replay.started.data["sizes"]["train"],
    )


def _follow_spec(replay: Replay, decision: Decision, event: Any) -> Spec:
    """Return the specification that the decision leads to, noting where another is recorded."""
    expected = replay.spec
    if decision.edit is not None:
        try:
            expected = apply_edit(replay.spec, decision.edit)
        except SpecError as error:
            replay.spec_problems.append(f"the edit of epoch {event.epoch} is impossible: {error}")
    if spec_of(event.spec) != expected:
        replay.spec_problems.append(
            f"after epoch {event.epoch} the recorded specification is not the one that "
            f"{decision.direction} leads to"
        )
    return expected


def _read_settings(value: Mapping[str, Any]) -> Settings:
    settings = Settings(**value)
    for name, kind in (("lr", float), ("batch_size", int), ("accumulation", int)):
        number = getattr(settings, name)
        if type(number) is not kind or not math.isfinite(number) or number <= 0:
            raise ValueError(f"{name} must be a positive {kind.__name__}, not {number!r}")
    if settings.clip_norm is not None and type(settings.clip_norm) is not float:
        raise ValueError(f"clip_norm must be a float or none, not {settings.clip_norm!r}")
    return settings
