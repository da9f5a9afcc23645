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
