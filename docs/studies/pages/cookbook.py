"""The questions of the SQL cookbook, which the page about queries ends with."""

from itertools import groupby
from pathlib import Path

from projections.cookbook import recipes

__all__ = ["query_page"]

_PAGE = Path(__file__).parents[2] / "how-to/query.md"
_HEAD = "## Questions to copy\n"
_WORDS = """
[cookbook.sql](../../projections/cookbook.sql) has a tested query for each of these. Edit it there;
`python docs/studies pages` writes this list.
"""


def query_page() -> str:
    """Return the page as Markdown: as it is, with the questions of today."""
    above, _, _ = _PAGE.read_text(encoding="utf-8").partition(_HEAD)
    parts = [above + _HEAD + _WORDS]
    for section, found in groupby(recipes(), key=lambda each: each.section):
        parts.append(f"- **{section}**: {' '.join(each.title for each in found)}")
    return "\n".join(parts) + "\n"
