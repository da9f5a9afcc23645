"""The situation in which a decision was made, as a prompt, for decisions without a model call.

It is built from recorded measurements alone and not by the policies' own prompt, which the system
may change. So an export as of an index never changes. It contains no text written by a model or a
person, and no measurement that a policy does not see, such as the validation accuracy.

I/O: none.  Units: epochs from 0.
"""

import json
from collections.abc import Sequence
from typing import Any

from aggregates.decisions import Decision, PastDecision
from aggregates.rules import RuleEvaluation
from aggregates.situation import COLUMNS, SETTINGS, TASK, describe
from judge.curation.tables import Tables

Message = dict[str, str]

_EPOCH_ROWS = f"""
SELECT {", ".join(COLUMNS)}, {", ".join(SETTINGS)} FROM epochs
WHERE run_id = ? AND epoch <= ? ORDER BY epoch
"""  # noqa: S608 - our own names
_DUE_ROWS = """
SELECT rule, fired, side, value, ema, streak FROM rule_evaluations
WHERE run_id = ? AND epoch = ? AND LIST_CONTAINS(?, rule) ORDER BY precedence
"""
_EARLIER_ROWS = """
SELECT
    d.number, d.epoch, d.direction, d.params::VARCHAR AS params, r.outcome,
    (SELECT LIST(c.rule) FROM citations AS c
     WHERE c.run_id = d.run_id AND c.number = d.number) AS cites
FROM decisions AS d
LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number
WHERE d.run_id = ? AND d.epoch < ? ORDER BY d.number
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
    epochs = tables.ask(_EPOCH_ROWS, [run, epoch])
    asked = describe(
        due=[RuleEvaluation(**row) for row in tables.ask(_DUE_ROWS, [run, epoch, list(rules)])],
        settings=epochs[-1],
        spec=json.loads(tables.ask(_MODEL, [epoch, run])[0]["spec"]),
        epochs=epochs,
        earlier=[
            _decided(**{**row, "params": json.loads(row["params"])})
            for row in tables.ask(_EARLIER_ROWS, [run, epoch])
        ],
    )
    return [{"role": "system", "content": TASK}, {"role": "user", "content": asked}]


def _decided(*, number: int, epoch: int, outcome: str | None, **said: Any) -> PastDecision:
    """Return a decision as far as it is told; what was recorded may be none of the playbook's."""
    return PastDecision(number, epoch, "", Decision("", **said, justification=""), outcome)
