"""The result of a recorded search, in numbers and in words.

I/O: none.
"""

import math
from collections.abc import Mapping
from typing import Any

from aggregates.improvement.bisection import VERDICTS, Bisection
from judge.bisection.search import Probe, Search, Verdict, estimated, luck, posterior, standing

_UNLIKELY = 0.01  # that as many verdicts are wrong
_NAMED = 5  # checkpoints


def search_of(found: Bisection) -> Search:
    """Return the rules of a recorded search."""
    return Search(
        suspects=len(found.suspects),
        error=found.error,
        confidence=found.confidence,
        ends_believed=found.ends_believed,
        rules=found.rules,
    )


def probes_of(found: Bisection) -> list[Probe]:
    """Return a recorded search's verdicts, by number."""
    numbers = {name: number for number, name in enumerate((found.good, *found.suspects))}
    said: Mapping[str, Verdict] = {"bad": "bad", "good": "good", "skip": "skip"}
    return [(numbers[checkpoint], said[verdict]) for checkpoint, verdict in found.probes]


def culprit_of(found: Bisection) -> str | None:
    """Return the one suspect that a recorded search's verdicts come to, if they do."""
    search = search_of(found)
    now = standing(search, probes_of(found))
    one = len(now.likely) == 1 and 1 <= now.likely[0] <= search.suspects
    return found.suspects[now.likely[0] - 1] if one and now.over and now.probability else None


def fault_of(found: Bisection) -> str | None:
    """Say what of a recorded search cannot be; None if nothing is."""
    probed = {name for name, _ in found.probes}
    said = {verdict for _, verdict in found.probes}
    if not (probed <= {found.good, *found.suspects} and said <= set(VERDICTS)):
        return "has probes of checkpoints that are not its suspects"
    if found.ended and found.culprit != (seen := culprit_of(found)):
        return (
            f"ended with the culprit {found.culprit or 'none'}, but its probes give "
            f"{seen or 'none'}"
        )
    return None


def reason_of(found: Bisection) -> str:
    """Say in words what the verdicts come to."""
    search, order, probes = search_of(found), (found.good, *found.suspects), probes_of(found)
    now = standing(search, probes)
    first, last = now.likely[0], now.likely[-1]
    if now.probability == 0.0:
        return (
            "the verdicts contradict each other: start a new search with --error set to the "
            "expected error rate"
        )
    if first == last == 0:
        told = f"{order[0]}, the good end, is already bad; start from an earlier checkpoint"
    elif first == last == len(order):
        told = f"none of the {search.suspects} suspects is bad"
    elif first == last:
        told = f"{order[first]} is the first bad checkpoint of the {search.suspects} searched"
    else:
        names = [order[number] for number in now.likely if number < len(order)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        nobody = ", or none of them is bad" if last == len(order) else ""
        told = f"one of {', '.join(names[:_NAMED])}{more}{nobody}: "
        skipped = {number for number, verdict in probes if verdict == "skip"}
        if skipped.issuperset(now.likely[:-1]):  # no probe can tell these apart
            told += "the others cannot be tested"
        else:  # rounded down: it is stated as the least
            told += f"with probability {math.floor(1_000 * now.probability) / 10:.1f}%"
            told += (
                f" at least; further probes tell too little to reach {search.confidence:.0%} for "
                "one of them"
                if search.states_least
                else f"; none of them alone reaches {search.confidence:.0%}, because errors of one "
                "checkpoint may repeat"
            )
    if search.error > 0.0 and first == last:
        wrong, chance = luck(search, probes, first)
        said = sum(verdict != "skip" for _, verdict in probes)
        told += f"; {wrong} of {said} verdicts contradict this"
        if not search.estimates and chance < _UNLIKELY:
            told += ", more than the assumed error rate explains: start again with a larger one"
    verdicts = any(verdict != "skip" for _, verdict in probes)
    if verdicts and (rates := estimated(search, probes)) is not None:
        false_alarms, missed, independent = rates
        told += (
            f"; estimated error rate {missed:.2f}, given {search.error:g}"
            if search.states_least
            else f"; estimated: a good checkpoint fails in {false_alarms:.0%} of probes, a bad one "
            f"in {1.0 - missed:.0%}"
        )
        if not independent:
            told += "; verdicts of one checkpoint agree more than independent errors would"
    believed = believed_of(found)
    if "good" in believed:
        told += f"; {order[0]} was assumed to be good and not verified"
    if "bad" in believed:
        told += "; it was assumed to be bad and not verified"
    return told


def believed_of(found: Bisection) -> list[str]:
    """Name the ends, `good` or `bad`, on which the culprit rests although no probe saw them."""
    search = search_of(found)
    now = standing(search, probes_of(found))
    seen = not search.ends_believed or found.oracle.get("measured")
    if seen or len(now.likely) > 1 or now.probability == 0.0:
        return []
    at = {"good": 1, "bad": search.suspects}
    return [end for end, number in at.items() if now.likely[0] == number]


def summary(found: Bisection) -> dict[str, Any]:
    """Return what a search has come to so far, in terms of JSON."""
    search, probes, order = search_of(found), probes_of(found), (found.good, *found.suspects, None)
    now = standing(search, probes)
    beliefs = zip(posterior(search, probes), search.hypotheses, strict=True)
    likeliest = sorted(beliefs, key=lambda each: (-each[0], each[1]))[:_NAMED]
    return {
        "bisection": str(found.id),
        "good": found.good,
        "suspects": len(found.suspects),
        "error": found.error,
        "confidence": found.confidence,
        "probes": [
            {"number": number, "checkpoint": order[number], "verdict": verdict}
            for number, verdict in probes
        ],
        "likeliest": [
            {"number": number, "checkpoint": order[number], "probability": belief}
            for belief, number in likeliest
            if belief > 0.0
        ],
        "candidates": [order[number] for number in now.likely],
        "posterior": now.probability,
        "at_least": search.states_least,
        "false_alarms": None if (rates := estimated(search, probes)) is None else rates[0],
        "missed": None if rates is None else rates[1],
        "independent": None if rates is None else rates[2],
        "ended": found.ended is not None,
        "culprit": found.culprit,
        "believed": believed_of(found) if found.ended else [],
        "reason": reason_of(found) if found.ended else None,
    }
