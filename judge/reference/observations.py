"""Observations as JSON: what a reference task shows to a policy, there and back.

The worker reads what the scorers and the task maker write. Numbers that are not finite are written
as words, since JSON has none for them; rules are those of the reference set that have the name, and
others have the name of their profile.
Trust: plain values come from our own side.  I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from aggregates.decisions import Decision, Observation, PastDecision, Settings
from aggregates.rules import RuleEvaluation
from aggregates.signals import EpochSignals
from aggregates.spec import spec_of
from judge.reference.rules import REFERENCE_RULES

# Without the later fields, which have defaults: the reference sets were frozen before them.
_SIGNALS = tuple(item.name for item in fields(EpochSignals) if item.default is MISSING)
_EVALUATION = tuple(item.name for item in fields(RuleEvaluation))
_SAME = ("run_id", "epoch", "max_batch_size", "train_examples", "edits")


def to_plain(seen: Observation) -> dict[str, Any]:
    """Return an observation as values of JSON."""
    return {
        **{name: getattr(seen, name) for name in _SAME},
        **({"back": list(seen.back)} if seen.back else {}),
        **({"tries": seen.tries} if seen.tries else {}),
        **({"fired": list(map(list, seen.fired))} if seen.fired is not None else {}),
        "due": list(seen.due),
        "waived": list(seen.waived),
        "rules": next(
            (name for name, rules in REFERENCE_RULES.items() if rules == seen.rules),
            seen.rules.profile,
        ),
        "settings": seen.settings.to_dict(),
        "spec": seen.spec.to_dict(),
        "history": [_row(signals, _SIGNALS) for signals in seen.history],
        "evaluations": [_row(seen.evaluations[rule], _EVALUATION) for rule in seen.rules.names],
        "decisions": [
            [past.number, past.epoch, past.source, past.decision.to_dict(), past.outcome]
            for past in seen.decisions
        ],
    }


def from_plain(value: Mapping[str, Any]) -> Observation:
    """Return the observation that to_plain() has written."""
    evaluations = [RuleEvaluation(*map(_read, row)) for row in value["evaluations"]]
    return Observation(
        **{name: value[name] for name in _SAME},
        back=tuple(value.get("back", ())),
        tries=value.get("tries", 0),
        fired=tuple(map(tuple, value["fired"])) if "fired" in value else None,
        due=tuple(value["due"]),
        waived=tuple(value["waived"]),
        rules=REFERENCE_RULES[value["rules"]],
        settings=Settings(**value["settings"]),
        spec=spec_of(value["spec"]),
        history=tuple(EpochSignals(*map(_read, row)) for row in value["history"]),
        evaluations={found.rule: found for found in evaluations},
        decisions=tuple(
            PastDecision(number, epoch, source, decision_from(said), outcome)
            for number, epoch, source, said, outcome in value["decisions"]
        ),
    )


def decision_from(said: Mapping[str, Any]) -> Decision:
    """Return a decision from its plain values, as it was said and without any check."""
    return Decision(**{**said, "cites": tuple(said["cites"])})


def _row(value: object, names: Sequence[str]) -> list[Any]:
    return [_write(getattr(value, name)) for name in names]


def _write(value: Any) -> Any:
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
