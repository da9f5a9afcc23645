"""A situation in which rules are due, as a short prompt: the form of exported training data.

The export of decisions that no model was asked for is in this form, and a model that was trained on
an export can be asked in it. It holds nothing that a policy does not see, and no text that a model
or a person wrote.

I/O: none.  Units: epochs from 0.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from aggregates.decisions import Observation, PastDecision
from aggregates.playbook import (
    DIRECTIONS,
    FACTORS,
    MAX_LR,
    MIN_LR,
    REMEDIES,
    moved_parameter,
    rises,
)
from aggregates.rulebook import told_rules
from aggregates.rules import RuleEvaluation

MOST_EPOCHS = 8
MOST_EARLIER = 8
COLUMNS = (  # of the table of epochs; also names of EpochSignals
    "epoch",
    "train_loss",
    "train_accuracy",
    "val_loss",
    "max_layer_grad_norm",
    "min_layer_grad_norm",
    "update_ratio",
    "signal_to_noise",
    "dead_share",
)
SETTINGS = ("lr", "batch_size", "accumulation", "clip_norm")


def task(names: Sequence[str]) -> str:
    """Return what is asked in a run with these rules."""
    return (
        f"You watch over the training of a neural network. After each epoch {told_rules(names)} "
        "are evaluated on what was measured. Answer each due rule once, with a remedy or with a "
        'deferral. The answer is one JSON object: {"decisions": [{"event_type", "cites", '
        '"direction", "params", "justification"}]}.'
    )


def describe(
    *,
    due: Sequence[RuleEvaluation],
    settings: Mapping[str, Any],
    spec: Mapping[str, Any],
    epochs: Sequence[Mapping[str, Any]],
    earlier: Sequence[PastDecision],
) -> str:
    """Return the situation in words.

    `due` is in order of precedence. `settings` has SETTINGS; `epochs` has COLUMNS of each epoch up
    to the present one, the latest last, and so has `earlier` the decisions.
    """
    parts = [
        f"# Epoch {epochs[-1]['epoch']}",
        "## Due rules, the one to act on first in front\n\n"
        + "\n".join(_due(one, settings) for one in due),
        "## Settings in force\n\n"
        + ", ".join(f"{name} {_exact(settings[name])}" for name in SETTINGS),
        f"## Model\n\n{_compact(spec)}",
        "## The last epochs, the latest below\n\n"
        + "\n".join(
            [
                " | ".join(COLUMNS),
                *(
                    " | ".join(_number(row[name]) for name in COLUMNS)
                    for row in epochs[-MOST_EPOCHS:]
                ),
            ]
        ),
    ]
    if earlier:
        told = "\n".join(map(_earlier, earlier[-MOST_EARLIER:]))
        parts.append(f"## The last decisions, the latest below\n\n{told}")
    return "\n\n".join(parts)


def describe_observation(seen: Observation) -> str:
    """Return the situation that a policy observes, in the words of the exports."""
    return describe(
        due=[seen.evaluations[rule] for rule in seen.due],
        settings=seen.settings.to_dict(),
        spec=seen.spec.to_dict(),
        epochs=[vars(signals) for signals in seen.history[-MOST_EPOCHS:]],
        earlier=seen.decisions[-MOST_EARLIER:],
    )


def _due(found: RuleEvaluation, settings: Mapping[str, Any]) -> str:
    ways = ", ".join(
        f"{direction}{_bounds(found, direction, settings)}"
        for direction in DIRECTIONS[found.rule].get(found.side or "", ())
    )
    return (
        f"- {found.rule} fired, side {found.side}: value {_number(found.value)}, "
        f"average {_number(found.ema)}, streak {found.streak}; {ways}"
    )


def allowed_values(
    rule: str, side: str | None, direction: str, settings: Mapping[str, Any]
) -> tuple[str, float, float] | None:
    """Return the parameter that a direction moves, with its least and largest value.

    The values are those of the playbook's factors. None: the direction moves no parameter.
    """
    moved = moved_parameter(direction, side)
    if moved is None:
        return None
    old = settings[str(REMEDIES[direction].moves)]
    up = rises(direction, side)
    low, high = sorted(old * factor if up else old / factor for factor in FACTORS[rule])
    if isinstance(old, int):
        return moved, int(low), int(high)
    return moved, max(low, MIN_LR), min(high, MAX_LR)


def _bounds(found: RuleEvaluation, direction: str, settings: Mapping[str, Any]) -> str:
    allowed = allowed_values(found.rule, found.side, direction, settings)
    if allowed is None:
        return ""
    moved, low, high = allowed
    if low == high:
        return f" {moved} {low!r}"
    return f" {moved} {within(low, high)}"


def within(low: float, high: float) -> str:
    """Return a range in four digits that lies within the exact one."""
    return f"{at_least(low)} to {at_most(high)}"


def at_least(low: float) -> str:
    """Return the least number of four digits that is not below `low`."""
    return repr(float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(low))))


def at_most(high: float) -> str:
    """Return the largest number of four digits that is not above `high`."""
    return repr(float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(high))))


def _earlier(past: PastDecision) -> str:
    said = past.decision
    what = f"{', '.join(sorted(said.cites))} {said.direction} {_compact(said.params)}"
    return f"- epoch {past.epoch}: {what}, {past.outcome or 'not acted on'}"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def _exact(value: Any) -> str:
    return "none" if value is None else repr(value)


def _number(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
