"""Questions that people have, as SQL: read from cookbook.sql, and written as a page.

`python -m projections.cookbook > docs/how-to/cookbook.md` writes the page anew.
I/O: cookbook.sql; standard output.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Recipe", "page", "recipes"]

_SOURCE = Path(__file__).with_name("cookbook.sql")
_PARTS = re.compile(
    r"^-- # (?P<section>.+)$"
    r"|^-- ## (?P<title>.+)\n-- (?P<remark>.+)\n-- = (?P<columns>.+)\n(?P<sql>[^;]+;)",
    re.MULTILINE,
)
_HEAD = """# Cookbook of questions

Written by `python -m projections.cookbook` from `projections/cookbook.sql`; change that. Each of
these runs in the test suite, and `proctor bench projections --cookbook` times them on ten million
rows.

Ask one with `proctor sql "..."`, or several in the shell that `proctor sql` opens. With
`--as-of N`, or behind `SET VARIABLE as_of = N;`, each is answered as after the ledger's entry N.
[How to ask](query.md) tells of forms, files and other tools;
[tables](../reference/tables.md) of what there is to ask.
"""


@dataclass(frozen=True)
class Recipe:
    """One question."""

    section: str
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
            found.append(Recipe(section, part["title"], part["remark"], columns, part["sql"]))
    return found


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    section = ""
    for each in recipes():
        if each.section != section:
            section = each.section
            parts.append(f"## {section}\n")
        parts.append(f"### {each.title}\n\n{each.remark}\n\n```sql\n{each.sql}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m projections.cookbook", description="Print the cookbook's page."
    ).parse_args()
    sys.stdout.write(page())
