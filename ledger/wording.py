"""Words around numbers, for everything that people read.

I/O: none.
"""

import re
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which has an s, or ies, unless there is one: 2 entries."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number} {noun}"


def listed(numbers: Sequence[int]) -> str:
    """Return numbers for a sentence: three and more that follow each other as a range."""
    parts: list[list[int]] = []
    for each in sorted(set(numbers)):
        if parts and each == parts[-1][-1] + 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    told = [
        text
        for part in parts
        for text in ([f"{part[0]} to {part[-1]}"] if len(part) > 2 else map(str, part))
    ]
    shown = ", ".join(told[:12])
    return shown if len(told) <= 12 else f"{shown} and {len(told) - 12} more"
