"""Siblings of reference tasks that are calls: the same functions with other arguments.

Arguments are varied by their types. What is expected of a sibling is what the newest checkpoint
that people made answers, twice the same, in two confined processes. Only a call that this
checkpoint answers rightly has siblings: nobody knows the right answers to variants of the others.

Trust: the seed is secret until the siblings were asked; no proposer's code says what is expected.
I/O: the workplace; processes; writes folders.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

from msgspec.structs import replace

from aggregates.improvement.line import Line
from judge.drift.evaluation import Maker
from judge.gauntlet.arms import Asking, answering
from judge.gauntlet.tasks.benchmark import Turn
from judge.gauntlet.tasks.reference_set import Task, write_tasks
from judge.gauntlet.tasks.scoring import QUESTION, Ask, Score
from judge.gauntlet.workplace import Workplace
from ledger.strict_json import read_json
from proctor.errors import ProctorError

_HIDDEN = 4  # siblings for each call in the hidden set
_TRIES = 4  # for each sibling: most errors, repeats and different answers that are left out
_KEPT = 1 / 3  # share of values that stay as they are
_LARGEST = 2**18  # characters of a sibling, as JSON
_WORN = 20  # measurements, after which the hidden set is drawn anew
_SOURCE = "drawn: "
_ITSELF = f"{_SOURCE}no sibling, but the task itself"
_ALPHABETS = (ascii_lowercase, ascii_uppercase, digits)


def maker_of_calls(place: Workplace, siblings: int) -> Maker | None:
    """Return what makes `siblings` tasks for each of the line's; None if none of these is a call.

    Where too few can be made, the tasks stand for themselves: evaluations have the same number.
    """
    tasks = place.reference_set(place.line().head.commit).tasks
    return partial(_make, place, tasks, siblings) if _calls(tasks) else None


def hidden_set(place: Workplace, folder: Path, *, fresh: bool) -> Path | None:
    """Return the folder of the hidden set; drawn now if there is none, it is worn, or `fresh`.

    None where there is none, and no sibling of a call can be drawn.
    """
    if folder.is_dir() and not (fresh or _is_worn(place, folder)):
        return folder
    calls = _calls(place.reference_set(place.line().head.commit).tasks)
    siblings = _draw(place, calls, _HIDDEN * len(calls), secrets.token_hex(16)) if calls else []
    if siblings:
        with place.scratch() as scratch:
            write_tasks(scratch / folder.name, siblings)
            # A home may lie in a work tree, whose files are all added.
            (scratch / folder.name / ".gitignore").write_text("*\n")
            if folder.exists():
                folder.rename(scratch / "old")  # a process that is killed leaves no part of one
            (scratch / folder.name).rename(folder)
    elif fresh:
        raise ProctorError(
            "--fresh: no siblings can be drawn: no reference task is a call that is answered "
            "correctly, and the same each time, with other arguments; add one with "
            "`proctor line task new NAME --function MODULE:NAME`"
        )
    return folder if folder.is_dir() else None


def _is_worn(place: Workplace, folder: Path) -> bool:
    """Tell whether a set that was drawn here was answered so often that it may be known."""
    found, events = place.set_in(folder), place.log.events.get(place.line_id)
    used = sum(isinstance(e, Line.DriftMeasured) and e.sha256 == found.sha256 for e in events)
    return used >= _WORN and all(task.entry.source.startswith(_SOURCE) for task in found.tasks)


def _calls(tasks: Sequence[Task]) -> list[Task]:
    """Return those that are one deterministic call, as `proctor line task new` writes it."""
    return [
        task
        for task in tasks
        if (task.kind, task.scorer, task.stochastic) == ("call", "exact", False)
        and isinstance(task.parameters.get("arguments"), list)
    ]


def _make(place: Workplace, tasks: Sequence[Task], count: int, folder: Path) -> str:
    calls, seed = _calls(tasks), secrets.token_hex(16)
    siblings = _draw(place, calls, count * len(calls), seed)
    kept = [task for task in tasks if task not in calls] * count
    kept += islice(cycle(calls), count * len(calls) - len(siblings))
    siblings += [_named(each, f"{seed}/-{n}", _ITSELF) for n, each in enumerate(kept)]
    write_tasks(folder, siblings)
    return seed


def _draw(place: Workplace, calls: Sequence[Task], wanted: int, seed: str) -> list[Task]:
    """Return at most so many siblings, in turn of the calls that are answered rightly."""
    line, seen, siblings = place.line(), {*map(_text, calls)}, list[Task]()
    draw = Random(seed)  # noqa: S311 - repeatable from the record
    manifest = place.manifest(line.head.commit)
    with answering(place, {"base": line.trusted.commit}, manifest, calls) as asking:
        right = [task for task in calls if asking.ask(task).success]
        for number in range(_TRIES * wanted if right else 0):
            if len(siblings) == wanted:
                break
            sibling = _varied(right[number % len(right)], f"{seed}/{number}", draw)
            if _fits(sibling) and _text(sibling) not in seen:
                seen.add(_text(sibling))
                siblings += _answered(asking, sibling)
    return siblings


def _answered(asking: Asking, task: Task) -> list[Task]:
    """Return the task with its answer as what is expected; nothing if there is no lasting one."""
    answers = []

    def keep(_: Task, ask: Ask) -> Score:
        answers.append(ask(QUESTION))
        return Score(success=True, validation_failures=0, metrics={})

    turn = Turn(task=task, seed=task.seed)
    if not next(asking.arms.answer(turn, {task.scorer: keep})).success:
        return []
    task = replace(task, expected={"answer": answers[0]})
    return [task] if _fits(task) and asking.ask(task).success else []


def _fits(task: Task) -> bool:
    """Tell whether a set with the task can be written, and read again."""
    try:
        text = json.dumps([task.parameters, task.expected])
        return len(text) <= _LARGEST and bool(read_json(text))
    except ValueError:
        return False


def _varied(task: Task, seed: str, draw: Random) -> Task:
    """Return the call with other arguments."""
    others = [_other(each, draw) for each in task.parameters["arguments"]]
    task = replace(task, parameters={**task.parameters, "arguments": others})
    return _named(task, seed, f"{_SOURCE}a sibling of {task.task_id}")


def _named(task: Task, seed: str, text: str) -> Task:
    """Return the task with another name, and the text in place of all that people were told."""
    end = hashlib.sha256(f"{seed}/{task.task_id}".encode()).hexdigest()[:16]
    told = dict.fromkeys(("source", "description", "expected_outcome"), text)
    told["task_id"] = f"{task.task_id[:60]}-{end}"
    nothing = dict.fromkeys(("regression_anchor_for", "expected_diff_path"))
    return replace(task, entry=replace(task.entry, **nothing, **told))


def _text(task: Task) -> str:
    return json.dumps(task.parameters, sort_keys=True)


def _other(value: Any, draw: Random) -> Any:
    """Return another JSON value of the same type; some parts of it stay as they are."""
    if draw.random() < _KEPT:
        return value
    match value:
        case bool():
            return not value
        case int():
            return draw.randint(*sorted((0, 2 * value + (2 if value >= 0 else -2))))
        case float():
            return draw.uniform(0.5, 1.0) * (value or 1.0)
        case str():
            words = value.split(" ")
            share, own = draw.random(), draw.random() < 0.5
            pools = [[c for c in value if c in each] if own else each for each in _ALPHABETS]
            return "".join(
                next((draw.choice(pool) for pool in pools if c in pool), c)
                if draw.random() < share
                else c
                for c in " ".join(draw.choices(words, k=draw.randint(1, len(words) + 1)))
            )
        case list():
            if len({*map(type, value)}) == 1 and draw.random() < 0.5:
                value = draw.choices(value, k=draw.randint(1, len(value) + 1))
            return [_other(each, draw) for each in value]
        case dict():
            return {name: _other(each, draw) for name, each in value.items()}
    return value
