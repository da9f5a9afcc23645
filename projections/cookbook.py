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
_HEAD = """# SQL cookbook

Copy a query below into `proctor sql "..."`, or several into the shell that `proctor sql` opens.
With `--as-of N`, or after `SET VARIABLE as_of = N;`, the answer is as of the ledger's entry N.
[Query a ledger](query.md) describes formats, files and other tools;
[tables](../reference/tables.md) lists what can be queried.

`python -m projections.cookbook` writes this page from `projections/cookbook.sql`; edit that file.
The test suite runs each query, and `proctor bench projections --cookbook` times them on ten million
rows.
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
