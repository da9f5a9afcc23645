"""What a decision tried, and which trial went on, in words.

Source: aggregates/trials.py.  Trust: what is told may be odd; it is then left out.  I/O: none.
"""

import json
from collections.abc import Mapping
from typing import Any

from aggregates.decisions import parse_decision
from aggregates.errors import DecisionError
from aggregates.playbook import FRESH, TRY_RATES
from aggregates.trials import Trials, chosen_trial


def trials_of(decision: Mapping[str, Any]) -> Trials | None:
    """Return the trials of a row of decision_outcomes; None where none were made, or it is odd."""
    if decision["direction"] != TRY_RATES or decision["outcome"] != "applied":
        return None
    try:
        told = {name: decision[name] for name in ("event_type", "direction", "justification")}
        params = json.loads(decision["params"])
        said = parse_decision({**told, "cites": [*decision["cites"]], "params": params})
    except (DecisionError, RecursionError, TypeError, ValueError):
        return None
    back = said.params["epoch"]
    return Trials(decision["number"], decision["epoch"], back, said.rates)


def told_trials(decision: Mapping[str, Any], losses: Mapping[int, float | str | None]) -> str:
    """Return what a row of decision_outcomes tried; empty for one that tried nothing.

    `losses` are the validation losses of the run by epoch; one that is not finite may be a text.
    """
    trials = trials_of(decision)
    if trials is None:
        return ""
    known = [losses.get(epoch) for epoch in trials.epochs]
    tried = [None if loss is None else float(loss) for loss in known]  # reads "NaN", too
    each = ", ".join(
        f"{rate:g} (epoch {epoch}, " + ("not measured)" if loss is None else f"{loss:.4g})")
        for rate, epoch, loss in zip(trials.rates, trials.epochs, tried, strict=True)
    )
    state = "fresh weights" if trials.epoch == FRESH else f"the state after epoch {trials.epoch}"
    told = f"tried learning rates, an epoch each from {state}, by validation loss: {each}"
    measured = [loss for loss in tried if loss is not None]
    if len(measured) < len(tried):
        return f"{told}; the run ended before one was chosen, or goes on"
    best = chosen_trial(measured)
    if best is None:
        return f"{told}; no loss is finite, so {min(trials.rates):g} went on from where all began"
    return f"{told}; {trials.rates[best]:g} was chosen and went on from epoch {trials.epochs[best]}"
