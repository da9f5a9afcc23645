"""Words around numbers, for everything that people read.

I/O: none.
"""

import re


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which has an s, or ies, unless there is one: 2 entries."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number} {noun}"
