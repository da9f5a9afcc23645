"""Makes the sample repository's reference tasks, and their hidden siblings from other seeds.

A task is a query over generated documents of which some are needed: those that are about the
query's topic. What they compete with is what makes it easy, medium or hard. A stochastic task has a
pool of documents about several topics, and each evaluation draws a query and documents from it.
"""

import json
import random
import tomllib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from judge.declared import read_declared
from judge.gauntlet.tasks.reference_set import Difficulty, Task, TaskEntry

SET = "judge/reference_tasks"
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstvz"
_ADDED = date(2026, 11, 21)


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a task is like."""

    name: str
    description: str
    categories: tuple[str, ...]
    difficulty: Difficulty
    documents: int
    needed: int
    cap: int
    late: bool = False  # what is needed stands behind more documents than the cap lets in
    partial: int = 0  # documents that share one word with the query
    long: int = 0  # documents about something else that mention the query's words in passing
    titled: bool = False  # what is needed says so in its title only
    topics: int = 0  # of the pool that a stochastic task is drawn from; 0: it is deterministic

    @property
    def stochastic(self) -> bool:
        """Whether each evaluation draws another query."""
        return self.topics > 0


SHAPES = read_declared(
    tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))["tasks"],
    tuple[Shape, ...],
)
DETERMINISTIC = tuple(shape for shape in SHAPES if not shape.stochastic)


def make_tasks(
    *,
    seed: int,
    shapes: Sequence[Shape] = SHAPES,
    suffix: str = "",
    source: str = "generated",
) -> list[Task]:
    """Return one task of each shape."""
    return [
        (_draw_pool if shape.stochastic else _draw)(
            shape, _entry(shape, shape.name + suffix, source), seed=seed + number
        )
        for number, shape in enumerate(shapes)
    ]


def _entry(shape: Shape, name: str, source: str) -> TaskEntry:
    return TaskEntry(
        task_id=name,
        source=source,
        source_commit=None,
        description=shape.description,
        expected_outcome="every needed row is chosen, within the cap",
        expected_diff_path=None,
        categories=shape.categories,
        difficulty=shape.difficulty,
        added_by="proctor line init",
        added_at=_ADDED,
        regression_anchor_for=None,
    )


def _draw(shape: Shape, entry: TaskEntry, *, seed: int) -> Task:
    draw = random.Random(seed)  # noqa: S311 - documents, no secrets
    words = _words(draw, 120)
    topic, others = words[:3], words[3:]
    rest = shape.documents - shape.needed - shape.partial - shape.long
    texts = [
        *[_document(draw, others) for _ in range(rest)],
        *_rivals(draw, others, topic, shape),
    ]
    draw.shuffle(texts)
    needed = [_document(draw, others, topic, titled=shape.titled) for _ in range(shape.needed)]
    place = draw.randrange(shape.cap, len(texts) + 1) if shape.late else draw.randrange(len(texts))
    texts[place:place] = needed
    numbers = draw.sample(range(100, 1_000), len(texts))  # so that none is known by its place
    documents = [{"id": f"d{n}", **text} for n, text in zip(numbers, texts, strict=True)]
    return Task(
        entry=entry,
        kind="retrieve",
        seed=seed,
        scorer="selection",
        parameters={"query": " ".join(topic), "cap": shape.cap},
        expected={
            "needed": [document["id"] for document in documents[place : place + len(needed)]],
            "cap": shape.cap,
        },
        files={"documents.json": (json.dumps(documents, indent=1) + "\n").encode()},
    )


def _draw_pool(shape: Shape, entry: TaskEntry, *, seed: int) -> Task:
    """Return a stochastic task: judge/gauntlet/tasks/scoring.py draws from its pool."""
    draw = random.Random(seed)  # noqa: S311 - documents, no secrets
    words = _words(draw, 120)
    queries = [words[3 * number : 3 * number + 3] for number in range(shape.topics)]
    others = words[3 * shape.topics :]
    documents: list[dict[str, str]] = []
    topics: list[dict[str, Any]] = []

    def add(texts: Sequence[dict[str, str]]) -> list[str]:
        names = [f"p{len(documents) + number}" for number in range(len(texts))]
        documents.extend({"id": name, **text} for name, text in zip(names, texts, strict=True))
        return names

    for topic in queries:
        needed = [_document(draw, others, topic, titled=shape.titled) for _ in range(shape.needed)]
        rivals = _rivals(draw, others, topic, shape)
        topics.append({"query": " ".join(topic), "needed": add(needed), "rivals": add(rivals)})
    add([_document(draw, others) for _ in range(2 * shape.documents)])
    return Task(
        entry=entry,
        kind="retrieve",
        seed=seed,
        stochastic=True,
        scorer="drawn_selection",
        expected={"cap": shape.cap, "documents": shape.documents, "topics": topics},
        files={"documents.json": (json.dumps(documents, indent=1) + "\n").encode()},
    )


def _words(draw: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(3))] = None
    return list(found)


def _rivals(
    draw: random.Random, others: Sequence[str], topic: Sequence[str], shape: Shape
) -> list[dict[str, str]]:
    """Return what competes with the needed documents."""
    return [
        *[_document(draw, others, [draw.choice(topic)]) for _ in range(shape.partial)],
        *[_document(draw, others, topic, long=True) for _ in range(shape.long)],
    ]


def _document(
    draw: random.Random,
    others: Sequence[str],
    about: Sequence[str] = (),
    *,
    titled: bool = False,
    long: bool = False,
) -> dict[str, str]:
    """Return a document that has these words, or has them in its title only.

    A `long` one mentions them three times, in passing.
    """
    text = [draw.choice(others) for _ in range(draw.randint(*((240, 320) if long else (20, 40))))]
    if titled:
        return {"title": " ".join(about), "text": " ".join(text)}
    for word in about:
        for _ in range(3 if long else 1):
            text.insert(draw.randrange(len(text)), word)
    return {"title": draw.choice(others), "text": " ".join(text)}
