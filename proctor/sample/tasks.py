"""Makes the sample repository's reference tasks, and their hidden siblings from other seeds.

A task is a query over generated documents of which some are needed: those that are about the
query's topic. What they compete with is what makes it easy, medium or hard.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SET = "judge/reference_tasks"
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstvz"
_ADDED = "2026-11-21"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a task is like."""

    name: str
    description: str
    categories: Sequence[str]
    difficulty: str
    documents: int
    needed: int
    cap: int
    late: bool = False  # what is needed stands behind more documents than the cap lets in
    partial: int = 0  # documents that share one word with the query
    long: int = 0  # documents about something else that mention the query's words in passing
    titled: bool = False  # what is needed says so in its title only


SHAPES = (
    Shape(
        name="one-row",
        description="One document is about the query.",
        categories=["ranking"],
        difficulty="easy",
        documents=6,
        needed=1,
        cap=3,
    ),
    Shape(
        name="late-rows",
        description="What is needed stands behind more documents than fit under the cap.",
        categories=["ranking", "cap"],
        difficulty="easy",
        documents=12,
        needed=2,
        cap=4,
        late=True,
    ),
    Shape(
        name="full-cap",
        description="As many documents are needed as the cap lets in.",
        categories=["cap"],
        difficulty="medium",
        documents=14,
        needed=5,
        cap=5,
        late=True,
        partial=3,
    ),
    Shape(
        name="titles",
        description="What is needed names the topic in its title only.",
        categories=["titles", "ranking"],
        difficulty="medium",
        documents=12,
        needed=2,
        cap=3,
        late=True,
        partial=2,
        titled=True,
    ),
    Shape(
        name="near-misses",
        description="Most documents share a word with the query.",
        categories=["ranking", "cap"],
        difficulty="medium",
        documents=16,
        needed=3,
        cap=4,
        late=True,
        partial=9,
    ),
    Shape(
        name="long-rivals",
        description="Long documents mention the query's words in passing, and often.",
        categories=["length"],
        difficulty="hard",
        documents=12,
        needed=2,
        cap=3,
        late=True,
        long=3,
    ),
    Shape(
        name="long-and-near",
        description="Long documents and near misses compete for a tight cap.",
        categories=["length", "cap"],
        difficulty="hard",
        documents=18,
        needed=3,
        cap=3,
        late=True,
        partial=5,
        long=2,
    ),
)


def reference_files(
    *,
    seed: int,
    shapes: Sequence[Shape] = SHAPES,
    suffix: str = "",
    source: str = "generated",
) -> dict[str, str]:
    """Return a reference set's files by path below its folder."""
    entries, files = [], {}
    for number, shape in enumerate(shapes):
        name = shape.name + suffix
        entries.append(_entry(shape, name, source))
        drawn = _draw(shape, seed=seed + number)
        for path, content in drawn.items():
            files[f"tasks/{name}/{path}"] = _text(content)
    files["manifest.json"] = _text({"version": 1, "tasks": entries})
    return files


def _entry(shape: Shape, name: str, source: str) -> dict[str, object]:
    return {
        "task_id": name,
        "source": source,
        "source_commit": None,
        "description": shape.description,
        "expected_outcome": "every needed row is chosen, within the cap",
        "expected_diff_path": None,
        "categories": list(shape.categories),
        "difficulty": shape.difficulty,
        "added_by": "proctor infra init",
        "added_at": _ADDED,
        "regression_anchor_for": None,
    }


def _draw(shape: Shape, *, seed: int) -> Mapping[str, object]:
    draw = random.Random(seed)  # noqa: S311 - documents, no secrets
    words = _words(draw, 120)
    topic, others = words[:3], words[3:]
    rest = shape.documents - shape.needed - shape.partial - shape.long
    texts = [
        *[_document(draw, others, "") for _ in range(rest)],
        *[_document(draw, others, draw.choice(topic)) for _ in range(shape.partial)],
        *[_long_document(draw, others, topic) for _ in range(shape.long)],
    ]
    draw.shuffle(texts)
    needed = [_needed(draw, others, topic, titled=shape.titled) for _ in range(shape.needed)]
    place = draw.randrange(shape.cap, len(texts) + 1) if shape.late else draw.randrange(len(texts))
    texts[place:place] = needed
    numbers = draw.sample(range(100, 1_000), len(texts))  # so that none is known by its place
    documents = [{"id": f"d{n}", **text} for n, text in zip(numbers, texts, strict=True)]
    return {
        "task.json": {
            "kind": "retrieve",
            "seed": seed,
            "stochastic": False,
            "scorer": "selection",
            "parameters": {"query": " ".join(topic), "cap": shape.cap},
        },
        "expected.json": {
            "needed": [document["id"] for document in documents[place : place + len(needed)]],
            "cap": shape.cap,
        },
        "repo_snapshot/documents.json": documents,
    }


def _words(draw: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(3))] = None
    return list(found)


def _document(draw: random.Random, others: Sequence[str], word: str) -> dict[str, str]:
    text = [draw.choice(others) for _ in range(draw.randint(20, 40))]
    if word:
        text.insert(draw.randrange(len(text)), word)
    return {"title": draw.choice(others), "text": " ".join(text)}


def _needed(
    draw: random.Random, others: Sequence[str], topic: Sequence[str], *, titled: bool
) -> dict[str, str]:
    text = [draw.choice(others) for _ in range(draw.randint(20, 40))]
    if titled:
        return {"title": " ".join(topic), "text": " ".join(text)}
    for word in topic:
        text.insert(draw.randrange(len(text)), word)
    return {"title": draw.choice(others), "text": " ".join(text)}


def _long_document(
    draw: random.Random, others: Sequence[str], topic: Sequence[str]
) -> dict[str, str]:
    text = [draw.choice(others) for _ in range(draw.randint(240, 320))]
    for word in topic:
        for _ in range(3):
            text.insert(draw.randrange(len(text)), word)
    return {"title": draw.choice(others), "text": " ".join(text)}


def _text(content: object) -> str:
    return json.dumps(content, indent=1, sort_keys=True) + "\n"
