"""Splits text into words."""

import re


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters."""
    return re.findall(r"[a-z0-9]+", text.lower())
