"""What a run measured and saved, checked against what its loop can have done.

Trust: bodies are hostile until check_epochs() returns.
I/O: none.  Units: epochs from 0.
"""

import math
from typing import Any

from aggregates.run import OWN_ENDS, Run
from aggregates.spec import ModelSpec
from judge.auditing.measurements import (
    has_probes,
    verify_measured,
    verify_task_measured,
    verify_watched,
)
from judge.auditing.replayed import Replay
from judge.errors import StepError
from monitor.task_loop import is_better


def check_epochs(replay: Replay, event: Any) -> None:
    """Raise StepError if weights, measurements and the end of the run are inconsistent.

    Each new minimum of the validation loss is saved as `best` before anything is decided, and
    `last` closes the last epoch; both as the loop does it. The weights of a watched loop are its
    own.
    """
    if type(event) is Run.EpochMeasured:
        _check_planned(replay, event.epoch)
    if not replay.watched:
        _check_saved(replay, event)
    if type(event) is Run.EpochMeasured:
        try:
            _check_epoch(replay, event)
        except StepError as error:
            raise StepError(f"epoch {event.epoch}: {error}", **error.evidence) from error


def _check_planned(replay: Replay, epoch: int) -> None:
    planned = replay.config.epochs  # only a watched loop may leave it open
    if planned is not None and epoch >= planned:
        how = "planned" if replay.watched else "configured"
        raise StepError(f"epoch {epoch} was measured, but only {planned} epochs are {how}")


def _check_saved(replay: Replay, event: Any) -> None:
    own_end = type(event) is Run.Ended and event.reason in OWN_ENDS
    if replay.best_due and (own_end or isinstance(event, Run.EpochMeasured | Run.DecisionMade)):
        raise StepError(
            f"the epoch with the best validation {_measure(replay)} so far has no weights saved as "
            "best"
        )
    match event:
        case Run.EpochMeasured() if "last" in replay.weights:
            raise StepError(f"epoch {event.epoch} was measured after the last weights were saved")
        case Run.SnapshotSaved() if not replay.keeps_state(event.epoch):
            raise StepError(f"a snapshot of epoch {event.epoch} is saved, but none is configured")
        case Run.WeightsSaved() if event.kind == "best":
            if not replay.best_due:
                raise StepError(
                    f"weights of epoch {event.epoch} are saved as best, but its validation "
                    f"{_measure(replay)} is not a new "
                    f"{'best' if replay.is_task else 'minimum'}"
                )
            replay.best_due = False
        case Run.Ended() if own_end:
            last, done = replay.weights.get("last"), replay.run.epoch + 1
            if last is None or last.epoch + 1 != done:
                raise StepError("the run ended, but its last weights were not saved")
            if event.reason == "completed" and done != replay.config.epochs:
                raise StepError(
                    f"the run ended as completed after {done} of {replay.config.epochs} epochs"
                )


def _measure(replay: Replay) -> str:
    """Return by what the best weights of a run are chosen."""
    return replay.task_config.metric if replay.is_task else "loss"


def _check_epoch(replay: Replay, event: Any) -> None:
    """Raise StepError if an epoch is impossible; note whether its weights are the best so far."""
    measured = event.measured
    if replay.watched:
        verify_watched(measured, event.reported, level=replay.run.level)
        return
    sizes = replay.started.data["sizes"]
    if replay.is_task:
        verify_task_measured(measured, settings=replay.settings, sizes=sizes)
    else:
        spec = replay.spec
        assert isinstance(spec, ModelSpec), "another kind of run has another configuration"
        verify_measured(measured, spec=spec, settings=replay.settings, sizes=sizes)
    if replay.without_probes is None and not has_probes(measured):
        replay.without_probes = event.epoch
    if replay.is_task:
        config = replay.task_config
        value = float(measured["validation"]["metrics"][config.metric])
        best = math.nan if event.epoch == 0 else replay.best_loss
        replay.best_due = is_better(value, best, config.better)
        replay.best_loss = value if replay.best_due else best
        return
    loss = measured["validation"]["loss"]
    replay.best_due = loss < replay.best_loss  # false for NaN
    replay.best_loss = min(replay.best_loss, loss) if replay.best_due else replay.best_loss
