"""The distiller: a text made shorter, with everything left in it that can be checked.

What names a rule, a number, code or something set in bold stays word for word, and so do what is
ordered or forbidden and the first sentence of whatever it stands in. Whether what is left out was
needed is for the gauntlet to say: the reference tasks are run on the shorter text.
I/O: none.
"""

import re

LEAST_SAVING = 0.15  # share of the bytes; less is not worth a proposal

# Code, bold, headings, tables, numbers, rules; what is forbidden or ordered; what has a label.
_FIXED = re.compile(
    r"[`*#|]|\d|\b(must|never|no|nobody|none|nor|not|nothing|only|unless)\b|^\w+:", re.IGNORECASE
)
# Paragraphs and items of a list, with what is between them.
_BLOCK = re.compile(r"(\n\n+|\n(?=- |\* |\d+\. ))")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-Z`*])")


def saving(before: str, after: str) -> float:
    """Return by which share of its bytes a text has become shorter."""
    size = len(before.encode())
    return 1.0 - len(after.encode()) / size if size else 0.0


def distil(text: str) -> str | None:
    """Return the text without the sentences that can be spared, or None if that saves too little.

    They are left out from the longest on, until enough is saved.
    """
    parts = _BLOCK.split(text)
    blocks = [_SENTENCE.split(part) for part in parts]
    spare = [
        (len(sentence), number, place)
        for number, sentences in enumerate(blocks)
        for place, sentence in enumerate(sentences)
        if place and not _FIXED.search(sentence)
    ]
    left_out: set[tuple[int, int]] = set()
    for _, number, place in sorted(spare, key=lambda each: (-each[0], each[1:])):
        left_out.add((number, place))
        shorter = _joined(parts, blocks, left_out)
        if saving(text, shorter) >= LEAST_SAVING:
            return shorter
    return None


def _joined(parts: list[str], blocks: list[list[str]], left_out: set[tuple[int, int]]) -> str:
    """Return the text that is left; blocks that nothing is taken from stay as they are."""
    touched = {number for number, _ in left_out}
    return "".join(
        " ".join(s for place, s in enumerate(blocks[number]) if (number, place) not in left_out)
        + ("\n" if part.endswith("\n") and part.strip() else "")
        if number in touched
        else part
        for number, part in enumerate(parts)
    )
