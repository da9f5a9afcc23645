"""The page of the SQL cookbook, from projections/cookbook.sql."""

from projections.cookbook import recipes

__all__ = ["cookbook_page"]

_HEAD = """# SQL cookbook

`proctor sql NAME` runs a recipe, and `proctor sql --list` lists them. Copy a query below into
`proctor sql "..."` to change it, or several into the shell that `proctor sql` opens. With
`--as-of N`, or after `SET VARIABLE as_of = N;`, the answer is as of the ledger's entry N.
[Query a ledger](query.md) describes formats, files and other tools;
[tables](../reference/tables.md) lists what can be queried.

`python docs/studies pages` writes this page from `projections/cookbook.sql`; edit that file. The
test suite runs each query.
"""


def cookbook_page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    section = ""
    for each in recipes():
        if each.section != section:
            section = each.section
            parts.append(f"## {section}\n")
        told = f"`proctor sql {each.name}`. {each.remark}"
        parts.append(f"### {each.title}\n\n{told}\n\n```sql\n{each.sql}\n```\n")
    return "\n".join(parts)
