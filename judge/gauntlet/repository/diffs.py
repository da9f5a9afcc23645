"""The form of a diff: headers and hunks, and nothing that git would skip.

What git skips (words between hunks, a file that is named a second time) makes a diff say one thing
and do another, to whoever reads it.

Source: git-diff(1), "Generating patch text with -p"; git-apply(1).
Trust: diffs are hostile.
I/O: none.
"""

import re
from collections import Counter
from collections.abc import Iterable

from judge.gauntlet.errors import DiffError

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@(?: .*)?")
_HEADERS = (
    "--- ",
    "+++ ",
    "deleted file mode ",
    "diff --git ",
    "dissimilarity index ",
    "index ",
    "new file mode ",
    "new mode ",
    "old mode ",
    "rename from ",
    "rename to ",
    "similarity index ",
)
_BEGINS = ("diff --git ", "--- ")


def check_form(text: str) -> None:
    """Raise DiffError for a line that is neither a header nor part of a hunk."""
    old = new = 0  # lines of the hunk that are yet to come
    begun = in_hunk = False
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        kind = line[:1]
        if (old and kind in ("-", " ", "")) or (new and kind in ("+", " ", "")):
            old -= kind != "+"
            new -= kind != "-"
            if min(old, new) < 0:
                raise DiffError(
                    f"line {number} of the diff exceeds the length that its hunk header states"
                )
        elif kind == "\\" and in_hunk:
            continue  # "\ No newline at end of file"
        elif old or new:
            raise DiffError(f"line {number} of the diff comes before its hunk is complete")
        elif found := _HUNK.fullmatch(line.rstrip("\r")) if begun else None:
            old, new = (1 if each is None else int(each) for each in found.groups())
            in_hunk = True
        elif line.startswith(_HEADERS) and (begun or line.startswith(_BEGINS)):
            begun, in_hunk = True, False
        else:
            raise DiffError(
                f"line {number} of the diff is neither a header nor part of a hunk: git would "
                "ignore it, but a reader would not; make the diff with `git diff`"
            )
    if old or new:
        raise DiffError("the diff ends in the middle of a hunk")


def check_once(paths: Iterable[str]) -> None:
    """Raise DiffError where a diff comes to one path twice."""
    for path, times in Counter(paths).items():
        if times > 1:
            raise DiffError(f"the diff changes {path!r} more than once; combine the changes")
