"""The violations of an audit as its last event holds them.

An entry of the ledger has room for some in words. The others are recorded by kind, rule and
emitter, with the epoch and the decision of each: `further`. Only where even these do not fit, the
last ones of a group are a number (`count` is larger than the length of `at`). Audits of earlier
versions recorded no others; the evidence of their steps 8 and 9 has the total.

Trust: what is read is hostile; KeyError, TypeError and ValueError are the caller's to expect.
I/O: none.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ledger.bodies import encode_body

LISTED = 150  # in words, at most
_ROOM = 56_000  # bytes for all of it; an entry has 65,535, and the scores need some
_PLACE = 8  # bytes that an epoch and a decision take
_NAMES = ("kind", "rule", "emitter")
_STEPS = ("coverage", "defensibility")  # that find violations


def shared_out(
    violations: Iterable[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the violations that an event lists in words, and the further ones in groups."""
    found = [dict(each) for each in violations]
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in found[LISTED:]:
        names = {name: each.get(name) for name in _NAMES}
        group = groups.setdefault(tuple(names.values()), {**names, "count": 0, "at": []})
        group["count"] += 1
    listed = found[:LISTED]
    left = _ROOM - len(encode_body({"listed": listed, "further": list(groups.values())}))
    for each in found[LISTED:]:
        left -= _PLACE
        if left >= 0:
            group = groups[tuple(each.get(name) for name in _NAMES)]
            group["at"].append([each.get("epoch"), each.get("decision")])
    return listed, list(groups.values())


def listed_violations(scored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all violations that an audit's last event holds, those in words first.

    `times` is 1, or how many violations are meant by one that stands for the end of a group.
    """
    found = [{**each, "times": 1} for each in scored["violations"]]
    for group in scored.get("further") or ():
        names = {**{name: group[name] for name in _NAMES}, "detail": None}
        for epoch, decision in group["at"]:
            found.append({**names, "epoch": epoch, "decision": decision, "times": 1})
        if (more := group["count"] - len(group["at"])) > 0:
            found.append({**names, "epoch": None, "decision": None, "times": more})
    return found


def violations_found(scored: Mapping[str, Any], steps: Iterable[Mapping[str, Any]]) -> int:
    """Return how many violations an audit found.

    There may be more where an earlier version listed all that it could, and no step has the total.
    """
    known: int = sum(each["times"] for each in listed_violations(scored))
    if scored.get("further") is not None or known < LISTED:
        return known
    return max(known, sum(_total(step) for step in steps if step.get("name") in _STEPS))


def _total(step: Mapping[str, Any]) -> int:
    """Return how many violations a step says that it found, 0 where it says nothing."""
    evidence = step.get("evidence")
    found: Any = evidence.get("violations") if isinstance(evidence, Mapping) else None
    total = found.get("total") if isinstance(found, Mapping) else None
    return total if type(total) is int and total >= 0 else 0
