"""What a chart shows, without how: for those who draw charts in another way (the live view).

I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Chain", "Dots", "Lines", "Plot"]


@dataclass(frozen=True)
class Lines:
    """Values over something that is counted; a value that is None was not measured."""

    series: Sequence[tuple[str, Sequence[tuple[float, float | None]]]]  # label, points
    over: str
    limit: tuple[float, str] | None = None  # a value to compare with, and what it is


@dataclass(frozen=True)
class Dots:
    """Values by label."""

    labels: Sequence[str]
    points: Sequence[tuple[str, float]]
    unit: str


@dataclass(frozen=True)
class Chain:
    """Checkpoints and their descent."""

    nodes: Sequence[Mapping[str, Any]]  # x, y, state, label, refused
    edges: Sequence[Mapping[str, Any]]  # x, y to x2, y2


Plot = Lines | Dots | Chain
