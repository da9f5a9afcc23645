"""The situation in which a decision was made, as a prompt, for decisions without a model call.

It is built from recorded measurements alone and not by the policies' own prompt, which the system
may change. So an export as of an index never changes. It contains no text written by a model or a
person.

I/O: none.  Units: epochs from 0.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judge.curation.tables import Tables

Message = dict[str, str]

_EPOCHS = 8  # that are shown
_TASK = (
    "You watch over the training of a neural network. After each epoch seven rules, R1 to R7, are "
    "evaluated on what was measured. Answer each due rule once, with a remedy or with a deferral. "
    'The answer is one JSON object: {"decisions": [{"event_type", "cites", "direction", "params", '
    '"justification"}]}.'
)
_COLUMNS = (
    "epoch",
    "train_loss",
    "train_accuracy",
    "val_loss",
    "val_accuracy",
    "max_layer_grad_norm",
    "min_layer_grad_norm",
    "update_ratio",
    "signal_to_noise",
    "dead_share",
)
_SETTINGS = "lr, batch_size, accumulation, clip_norm"
_EPOCH_ROWS = f"""
SELECT {", ".join(_COLUMNS)}, {_SETTINGS} FROM epochs
WHERE run_id = ? AND epoch <= ? ORDER BY epoch DESC LIMIT {_EPOCHS}
"""  # noqa: S608 - our own names
_DUE_ROWS = """
SELECT rule, side, value, ema, streak FROM rule_evaluations
WHERE run_id = ? AND epoch = ? AND LIST_CONTAINS(?, rule) ORDER BY precedence
"""
_EARLIER_ROWS = """
SELECT
    d.epoch, d.direction, d.params::VARCHAR AS params,
    COALESCE(r.outcome, 'not acted on') AS outcome,
    (SELECT LIST(c.rule ORDER BY c.rule) FROM citations AS c
     WHERE c.run_id = d.run_id AND c.number = d.number) AS cites
FROM decisions AS d
LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number
WHERE d.run_id = ? AND d.epoch < ? ORDER BY d.number DESC LIMIT 8
"""
_MODEL = """
SELECT COALESCE(
    (SELECT ARG_MAX(spec, idx)::VARCHAR FROM remedies
     WHERE run_id = s.run_id AND outcome = 'applied' AND epoch < ?), s.spec::VARCHAR
) AS spec
FROM run_starts AS s WHERE s.run_id = ?
"""


def situation(tables: Tables, *, run: str, epoch: int, rules: Sequence[str]) -> list[Message]:
    """Return the messages that ask about these rules in this epoch of a run."""
    epochs = tables.ask(_EPOCH_ROWS, [run, epoch])[::-1]
    due = tables.ask(_DUE_ROWS, [run, epoch, list(rules)])
    earlier = tables.ask(_EARLIER_ROWS, [run, epoch])[::-1]
    spec = tables.ask(_MODEL, [epoch, run])[0]["spec"]
    now = epochs[-1]
    parts = [
        f"# Epoch {epoch}",
        "## Due rules, the one to act on first in front\n\n" + "\n".join(map(_due, due)),
        "## Settings in force\n\n"
        + ", ".join(f"{name} {_number(now[name])}" for name in _SETTINGS.split(", ")),
        f"## Model\n\n{_compact(json.loads(spec))}",
        "## The last epochs, the latest below\n\n"
        + "\n".join(
            [
                " | ".join(_COLUMNS),
                *(" | ".join(_number(row[name]) for name in _COLUMNS) for row in epochs),
            ]
        ),
    ]
    if earlier:
        told = "\n".join(map(_earlier, earlier))
        parts.append(f"## The last decisions, the latest below\n\n{told}")
    return [
        {"role": "system", "content": _TASK},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def _due(row: Mapping[str, Any]) -> str:
    numbers = f"value {_number(row['value'])}, average {_number(row['ema'])}"
    return f"- {row['rule']} fired, side {row['side']}: {numbers}, streak {row['streak']}"


def _earlier(row: Mapping[str, Any]) -> str:
    what = f"{', '.join(row['cites'])} {row['direction']} {_compact(json.loads(row['params']))}"
    return f"- epoch {row['epoch']}: {what}, {row['outcome']}"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def _number(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
