"""Derives what a decision must lead to: settings, changes and model, or a refusal.

The judge has no live state, only the settings and specification that the replay has reached. The
caller checks what depends on trained weights (which may not be finite).

Trust: the decision was parsed.  I/O: none.
"""

from dataclasses import dataclass
from typing import Any

from aggregates.decisions import Decision, Settings
from aggregates.errors import SpecError
from aggregates.spec import ModelSpec, apply_edit
from monitor.config import RunConfig
from monitor.errors import RemedyRefused
from monitor.remedies import Changes, change, difference, flat_spec, settings_after
from monitor.state import LiveState


@dataclass(frozen=True)
class Outcome:
    """Everything that an applied remedy records."""

    changes: Changes
    settings: Settings
    spec: ModelSpec


def derive_outcome(
    decision: Decision,
    *,
    config: RunConfig,
    settings: Settings,
    spec: ModelSpec,
    epoch: int,
    train_examples: int,
) -> Outcome:
    """Return what carrying out `decision` after `epoch` leads to.

    Raises RemedyRefused saying why it cannot be carried out.
    """
    if decision.edit is not None:
        try:
            edited = apply_edit(spec, decision.edit)
        except SpecError as error:
            raise RemedyRefused(str(error)) from error
        return Outcome(difference(flat_spec(spec), flat_spec(edited)), settings, edited)
    nothing: Any = None  # neither model nor optimizer is looked at
    state = LiveState(config, nothing, nothing, settings, train_examples)
    after = settings_after(state, decision, since=epoch + 1)
    if (effective := after.batch_size * after.accumulation) > train_examples:
        raise RemedyRefused(f"{effective} examples a step are more than {train_examples}")
    changes = difference(settings.to_dict(), after.to_dict())
    if decision.direction == "stop":
        changes = [change("training", "running", "stopped")]
    if decision.params.get("reinitialise", False):
        changes.append(change("weights", "trained", "initialised"))
    return Outcome(changes, after, spec)
