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
    DEFER,
    EVENT_TYPES,
    FACTORS,
    FRESH,
    GO_BACK,
    MAX_LR,
    MIN_LR,
    REMEDIES,
    RESTORING,
    directions,
    moved_parameter,
    rises,
)
from aggregates.rulebook import RULEBOOK, told_rules
from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.spec import ACTIVATIONS
from aggregates.trials import MAX_TRIALS

NEUTRAL = "The rule is due."  # in place of both answers' words in a preference pair
MOST_EPOCHS = 8
MOST_EARLIER = 8
_KINDS = ", ".join(
    f"{kind} for {' '.join(name for name, each in REMEDIES.items() if each.event_type == kind)}"
    for kind in EVENT_TYPES
)
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
        "are evaluated on what was measured. Answer each due rule once, with one of the directions "
        "listed with it, or with a deferral: the direction `defer`, whose `params` are empty or "
        "hold `deferred_to`, the rule that goes first. "
        'The answer is one JSON object: {"decisions": [{"event_type", "cites", "direction", '
        f'"params", "justification"}}]}}. `event_type` is {_KINDS}. `cites` is a list of the rule. '
        "`params` are those listed with the direction: `epochs` from 1 to 1000; `reinitialise` "
        f"true for fresh weights; `epoch` an earlier one whose state is kept, or {FRESH} for fresh "
        f"weights; `rates` 2 to {MAX_TRIALS} learning rates to try, an epoch each; `factor` from 2 "
        f"to 8; `to` {', '.join(ACTIVATIONS)}; `block` from 0, all without it."
    )


def describe(
    *,
    due: Sequence[RuleEvaluation],
    settings: Mapping[str, Any],
    spec: Mapping[str, Any],
    epochs: Sequence[Mapping[str, Any]],
    earlier: Sequence[PastDecision],
    rules: RulesConfig,
    restoring: Sequence[str],
) -> str:
    """Return the situation in words.

    `due` is in order of precedence. `settings` has SETTINGS; `epochs` has COLUMNS of each epoch up
    to the present one, the latest last, and so has `earlier` the decisions. `restoring` are those
    of RESTORING that can be carried out.
    """
    closed = {*RESTORING} - {*restoring}
    parts = [
        f"# Epoch {epochs[-1]['epoch']}",
        "## Due rules, the one to act on first in front\n\n"
        + "\n".join(
            _due(
                one, settings, [d for d in directions(one.rule, one.side, rules) if d not in closed]
            )
            for one in due
        ),
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
        rules=seen.rules,
        restoring=RESTORING if seen.tries else (GO_BACK,) if seen.back else (),
    )


def _due(found: RuleEvaluation, settings: Mapping[str, Any], ways: Sequence[str]) -> str:
    rule = RULEBOOK[found.rule]
    told = rule.sides.get(found.side or "")
    return "; ".join(
        (
            f"- {found.rule} fired, side {found.side}: value {_number(found.value)}, "
            f"average {_number(found.ema)}, streak {found.streak}",
            *(_way(found, direction, settings) for direction in ways),
            f"{DEFER}. {rule.title.capitalize()}: {told.meaning if told else 'it fired'}.",
        )
    )


def _way(found: RuleEvaluation, direction: str, settings: Mapping[str, Any]) -> str:
    """Return a direction with all its parameters, the one that is bounded with its bounds."""
    remedy, bounds = REMEDIES[direction], _bounds(found, direction, settings)
    needs = [bounds if bounds.startswith(f"{name} ") else name for name in remedy.needs]
    may = [f"may have {', '.join(remedy.may_have)}"] if remedy.may_have else []
    return f"{direction} {', '.join((*needs, *may))}".rstrip()


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
    return f"{moved} {low!r}" if low == high else f"{moved} {within(low, high)}"


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
