"""Questions that people have, as SQL: read from cookbook.sql.

I/O: cookbook.sql.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("cookbook.sql")
_PARTS = re.compile(
    r"^-- # (?P<section>.+)$"
    r"|^-- ## (?P<name>[a-z-]+): (?P<title>.+)\n-- (?P<remark>.+)\n-- = (?P<columns>.+)\n"
    r"(?P<sql>[^;]+;)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Recipe:
    """One question."""

    section: str
    name: str  # for `proctor sql`
    title: str
    remark: str
    columns: tuple[str, ...]  # of the answer
    sql: str


def recipes() -> list[Recipe]:
    """Return all questions, in their order."""
    found: list[Recipe] = []
    section = ""
    for part in _PARTS.finditer(_SOURCE.read_text(encoding="utf-8")):
        if part["section"]:
            section = part["section"]
        else:
            columns = tuple(part["columns"].split(", "))
            said = {name: part[name] for name in ("name", "title", "remark", "sql")}
            found.append(Recipe(section=section, columns=columns, **said))
    return found
