"""Scenarios: situations with acceptable answers, which a prompt is tested on with a live model.

A scenario is a stochastic reference task: even at temperature 0 a server may answer differently
from one time to the next. What is acceptable is a set: each due rule has the acts that are right,
or has to wait. Numbers are free within the bounds that every decision is checked against.

Source: oracle.py says what is right, situations.py makes situations.
Trust: recorded situations are the ledger's; answers have been checked as decisions.
I/O: none.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from random import Random
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DIRECTIONS
from judge.gauntlet.tasks.reference_set import Task, TaskEntry
from judge.reference.observations import from_plain, to_plain
from judge.reference.oracle import expected_answers
from judge.reference.situations import SIDES, observe

KIND = "scenario"
LENGTH = "length"
_OBSERVATION = "observation.json"
_TOGETHER = ({"R7": "high", "R2": "low"}, {"R5": "high", "R1": "high"})  # the first goes first
_DAY = date(2026, 1, 1)  # of no meaning; entries need one


@cache
def held_out() -> tuple[Task, ...]:
    """Return the scenarios that come with Proctor: each rule on each side, and rules together."""
    fired: list[Mapping[str, str]] = [{rule: side} for rule, side in SIDES]
    tasks = []
    for each in (*fired, *_TOGETHER):
        name = "-with-".join(f"{rule}-{side}" for rule, side in each.items())
        name = name.lower().replace("_", "-")
        seen = observe(Random(f"scenario {name}"), each)  # noqa: S311 - the same everywhere
        seen = replace(seen, run_id="scenario")
        tasks.append(scenario(name, seen, acceptable_answers(seen), origin="held out"))
    return tuple(tasks)


def scenario(
    name: str, seen: Observation, expected: Sequence[Mapping[str, Any]], *, origin: str
) -> Task:
    """Return a situation with its acceptable answers as a task."""
    return Task(
        entry=_entry(name, origin=origin, description=f"{', '.join(seen.due)} due"),
        kind=KIND,
        stochastic=True,
        scorer=KIND,
        files={_OBSERVATION: json.dumps(to_plain(seen), sort_keys=True).encode()},
        expected={"answers": [dict(each) for each in expected]},
    )


def length_task() -> Task:
    """Return the deterministic task of being short, for a text that is to lose only length."""
    return Task(
        entry=_entry(LENGTH, origin="built in", description="The text's length"),
        kind=LENGTH,
        stochastic=False,
        scorer=LENGTH,
        files={},
        expected={},
    )


def _entry(name: str, *, origin: str, description: str) -> TaskEntry:
    return TaskEntry(
        task_id=name,
        source=origin,
        source_commit=None,
        description=description,
        expected_outcome="every due rule gets an acceptable answer",
        expected_diff_path=None,
        categories=("prompt",),
        difficulty="medium",
        added_by=origin,
        added_at=_DAY,
        regression_anchor_for=None,
    )


def observation_of(task: Task) -> Observation:
    """Return the situation of a scenario."""
    return from_plain(json.loads(task.files[_OBSERVATION]))


def acceptable_answers(seen: Observation) -> list[dict[str, Any]]:
    """Return what is acceptable for each due rule: {rule, acts}; no acts: it has to wait."""
    found = []
    for each in expected_answers(seen):
        side = seen.evaluations[each["rule"]].side or ""
        acts = [
            {"direction": act["direction"], "params": _choices(act["params"])}
            for act in each["acts"]
        ]
        known = {act["direction"] for act in acts}
        # Directions that the playbook names as alternatives are as right where one is open.
        if each["rule"] == "R1" and acts:
            others = [name for name in DIRECTIONS["R1"].get(side, ()) if name not in known]
            acts += [{"direction": name, "params": {}} for name in others]
        found.append({"rule": each["rule"], "acts": acts})
    return found


def unaccepted(decisions: Sequence[Decision], expected: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what is not acceptable, in words of ours; None if every due rule is answered well."""
    said = {rule: decision for decision in decisions for rule in decision.cites}
    for each in expected:
        rule, acts = each["rule"], each["acts"]
        decision = said.get(rule)
        if decision is None:
            return f"{rule} has no usable answer"
        if not acts:
            if decision.acts:
                return f"{rule} is acted on, but it has to wait"
        elif not decision.acts:
            return f"{rule} is deferred, but a remedy is due"
        elif not any(_fits(decision, act) for act in acts):
            return f"{rule} is answered with {decision.direction}, which does not fit"
    return None


def _choices(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are a choice and no range of numbers."""
    return {
        name: list(values)
        for name, values in params.items()
        if not all(isinstance(value, float) for value in values)
    }


def _fits(decision: Decision, act: Mapping[str, Any]) -> bool:
    return decision.direction == act["direction"] and all(
        decision.params.get(name) in values for name, values in act["params"].items()
    )
