"""The sample repository: a small retrieval component that can be put under the gauntlet.

It scores documents against a query, sorts them, and chooses rows under a cap. Its tests do not
look at the order of what is chosen; the reference tasks do. Its files lie in the folder `files`;
none of them is ever imported here.
"""

from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).with_name("files")
FILES: Mapping[str, str] = {
    path.relative_to(_FOLDER).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(_FOLDER.rglob("*"))
    if path.is_file() and path.parent.name != "__pycache__"
}
"""Everything but the reference tasks, by path."""

SELECTION = FILES["retrieval/selection.py"]
SORT = "    ordered = sorted(scored, key=lambda row: (-row[0], row[1]))\n"
NO_SORT = "    ordered = scored\n"
UNSORTED = SELECTION.replace(SORT, NO_SORT)
"""selection.py without its sort: the tests pass, and what is needed may not be under the cap."""
THRIFTY = SELECTION.replace(
    "[name for _, name in ordered[:cap]]", "[name for score, name in ordered[:cap] if score > 0]"
)
"""selection.py that leaves out what shares no word with the query: fewer rows, the same recall."""
