"""The sample repository: a small retrieval component that can be put under the gauntlet.

It scores documents against a query, sorts them, and chooses rows under a cap. Its tests do not
look at the order of what is chosen; the reference tasks do. What is written here becomes files of
another repository, and is never imported.
"""

from collections.abc import Mapping

README = """\
# Retrieval, small enough to read

`retrieval` chooses the rows that answer a query: it scores documents, sorts them, and takes as many
as fit under a cap. `judge/tiers.toml` says what of it may change by itself, and how that is judged.
"""

TIERS = """\
version = 1
line = "main"
reference_set = "judge/reference_tasks"

[tiers]
0 = ["README.md", "judge/**", "tests/**"]
1 = ["retrieval/__init__.py", "retrieval/component.py"]
2 = [
    "retrieval/scoring.py",
    "retrieval/selection.py",
    "retrieval/settings.toml",
    "retrieval/words.py",
]

[controller]
paths = ["judge/**"]

[config]
paths = ["retrieval/settings.toml"]

[tests]
command = ["{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={report}"]
paths = ["tests/**"]
additions = ["tests/test_*.py"]
seconds = 120
memory_bytes = 1_000_000_000

[benchmark]
command = ["{python}", "judge/reference_tasks/worker.py"]
seconds = 20
memory_bytes = 500_000_000
representative = ["one-row", "late-rows", "long-rivals"]

[code]
imports = ["collections", "collections.*", "dataclasses", "math", "re", "retrieval.*"]
"""

WORKER = '''\
"""Answers reference tasks with the component: one JSON line in, one out."""

import json
import sys
from pathlib import Path

from retrieval.component import choose

opening = json.loads(sys.stdin.readline())
documents = json.loads(Path(opening["input"], "documents.json").read_text(encoding="utf-8"))
print(json.dumps({"ready": True}), flush=True)
for _ in sys.stdin:
    told = opening["parameters"]
    print(json.dumps(choose(documents, told["query"], cap=told["cap"])), flush=True)
'''

COMPONENT = '''\
"""Chooses the rows that answer a query."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from retrieval.scoring import score_documents
from retrieval.selection import select

BOUNDS = {"length_penalty": (0.0, 1.0), "title_weight": (0.0, 10.0)}


@dataclass(frozen=True)
class Settings:
    """The numbers in settings.toml."""

    length_penalty: float
    title_weight: float


def read_settings(text: str) -> Settings:
    """Return the settings; raise ValueError for what is missing, unknown or out of bounds."""
    found = tomllib.loads(text)
    if set(found) != set(BOUNDS):
        raise ValueError(f"settings are {', '.join(BOUNDS)}")
    for name, (least, most) in BOUNDS.items():
        if type(found[name]) is not float or not least <= found[name] <= most:
            raise ValueError(f"{name} is a number from {least} to {most}")
    return Settings(**found)


def choose(documents: list[dict[str, str]], query: str, *, cap: int) -> list[str]:
    """Return the ids of at most `cap` documents, the best first."""
    settings = read_settings(Path(__file__).with_name("settings.toml").read_text(encoding="utf-8"))
    return select(score_documents(documents, query, settings), cap=cap)
'''

SELECTION = '''\
"""Takes rows from scored documents."""


def select(scored: list[tuple[float, str]], *, cap: int) -> list[str]:
    """Return the ids of the best documents, at most `cap`."""
    ordered = sorted(scored, key=lambda row: (-row[0], row[1]))
    return [name for _, name in ordered[:cap]]
'''

SCORING = '''\
"""Says how well documents answer a query."""

import math
from collections import Counter

from retrieval.words import words_of


def score_documents(documents, query, settings):
    """Return (score, id) of each document, in the documents' order."""
    texts = [words_of(document["text"]) for document in documents]
    titles = [set(words_of(document["title"])) for document in documents]
    wanted = sorted(set(words_of(query)))
    rarity = {word: _rarity(word, texts, titles) for word in wanted}
    return [
        (_score(wanted, text, title, rarity, settings), document["id"])
        for document, text, title in zip(documents, texts, titles, strict=True)
    ]


def _rarity(word, texts, titles):
    having = sum(word in text or word in title for text, title in zip(texts, titles, strict=True))
    return math.log((1 + len(texts)) / (1 + having))


def _score(wanted, text, title, rarity, settings):
    counts = Counter(text)
    found = sum(
        rarity[word] * (counts[word] + settings.title_weight * (word in title)) for word in wanted
    )
    return found / (1.0 + settings.length_penalty * len(text))
'''

WORDS = '''\
"""Splits text into words."""

import re


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters."""
    return re.findall(r"[a-z0-9]+", text.lower())
'''

SETTINGS = """\
length_penalty = 0.0
title_weight = 2.0
"""

TEST_COMPONENT = """\
import pytest

from retrieval.component import choose, read_settings
from retrieval.words import words_of

DOCUMENTS = [
    {"id": "a", "title": "Rivers", "text": "A river carries water to the sea."},
    {"id": "b", "title": "Bridges", "text": "A bridge crosses a river."},
    {"id": "c", "title": "Bread", "text": "Flour, water, salt."},
]


def test_no_more_rows_than_the_cap():
    assert len(choose(DOCUMENTS, "river water", cap=2)) == 2


def test_rows_are_documents_and_none_comes_twice():
    rows = choose(DOCUMENTS, "river", cap=3)
    assert set(rows) <= {"a", "b", "c"}
    assert len(set(rows)) == len(rows)


def test_what_answers_the_query_is_found_where_the_cap_leaves_room():
    assert {"a", "b"} <= set(choose(DOCUMENTS, "river", cap=3))


def test_words_are_small_letters():
    assert words_of("Sea, sea; SEA-7") == ["sea", "sea", "sea", "7"]


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(ValueError, match="title_weight"):
        read_settings("length_penalty = 0.0\\ntitle_weight = 11.0")
"""

TEST_SCORING = """\
from retrieval.component import Settings
from retrieval.scoring import score_documents

PLAIN = Settings(length_penalty=0.0, title_weight=2.0)


def test_more_of_the_query_scores_higher():
    documents = [
        {"id": "a", "title": "", "text": "moss"},
        {"id": "b", "title": "", "text": "moss and stone"},
        {"id": "c", "title": "", "text": "sand"},
    ]
    scores = {name: score for score, name in score_documents(documents, "moss stone", PLAIN)}
    assert scores["b"] > scores["a"] > scores["c"] == 0.0
"""

FILES: Mapping[str, str] = {
    ".gitignore": "__pycache__/\n",
    "README.md": README,
    "judge/tiers.toml": TIERS,
    "judge/reference_tasks/worker.py": WORKER,
    "retrieval/__init__.py": '"""Chooses the rows that answer a query, under a cap."""\n',
    "retrieval/component.py": COMPONENT,
    "retrieval/scoring.py": SCORING,
    "retrieval/selection.py": SELECTION,
    "retrieval/settings.toml": SETTINGS,
    "retrieval/words.py": WORDS,
    "tests/test_component.py": TEST_COMPONENT,
    "tests/test_scoring.py": TEST_SCORING,
}
"""Everything but the reference tasks, by path."""

SORT = "    ordered = sorted(scored, key=lambda row: (-row[0], row[1]))\n"
NO_SORT = "    ordered = scored\n"
UNSORTED = SELECTION.replace(SORT, NO_SORT)
"""selection.py without its sort: the tests pass, and what is needed may not be under the cap."""
THRIFTY = SELECTION.replace(
    "[name for _, name in ordered[:cap]]", "[name for score, name in ordered[:cap] if score > 0]"
)
"""selection.py that leaves out what shares no word with the query: fewer rows, the same recall."""
