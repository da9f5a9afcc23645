"""Columns of tables: each says once what it is called and what it shows of a row.

I/O: none.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Row = TypeVar("Row")
Shows = str | Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column of a table: of texts, or of numbers."""

    title: str
    shows: Shows  # the name of a value of a row, or what makes it of a row
    number: bool = False

    def of(self, row: Any) -> Any:
        """Return what a row has in this column."""
        if callable(self.shows):
            return self.shows(row)
        return row[self.shows] if isinstance(row, Mapping) else getattr(row, self.shows)


def field(title: str, shows: Shows = "") -> Column:
    """Return a column of texts; by default it shows the value that is called like it."""
    return Column(title, shows or title.replace(" ", "_"))


def figure(title: str, shows: Shows = "") -> Column:
    """Return a column of numbers; by default as field()."""
    return Column(title, shows or title.replace(" ", "_"), number=True)


def fields(*titles: str) -> list[Column]:
    """Return columns of texts that are called like the values that they show."""
    return [*map(field, titles)]


def figures(*titles: str) -> list[Column]:
    """Return columns of numbers that are called like the values that they show."""
    return [*map(figure, titles)]


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    """Return rows by what is the same in them, in the order of the first of each."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def cells(columns: Sequence[Column], rows: Iterable[Any]) -> list[list[Any]]:
    """Return the cells of a table."""
    return [[column.of(row) for column in columns] for row in rows]
