"""Puts figures that commands printed into a page: `python docs/studies figures PAGE FILE...`.

Each file replaces what the page has between `<!-- figures: NAME -->`, where NAME is the name of the
file without its ending, and `<!-- end -->`. `make bench-speed` makes the files and calls this.

I/O: reads the files; replaces the page.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import ProctorError

__all__ = ["filled"]

_PLACE = r"(<!-- figures: {} -->\n).*?(<!-- end -->)"


def filled(page: str, name: str, figures: str) -> str:
    """Return the page with other figures in the place of this name."""
    place = re.compile(_PLACE.format(re.escape(name)), re.DOTALL)
    if len(place.findall(page)) != 1:
        raise ProctorError(f"the page has not one place for the figures {name!r}")
    return place.sub(lambda found: f"{found[1]}\n{figures.strip()}\n\n{found[2]}", page)


def main(arguments: Sequence[str]) -> None:
    """Put the files' figures into the page."""
    if len(arguments) < 2:  # noqa: PLR2004 - a page and a file
        raise ProctorError("name the page, then the files: figures PAGE FILE...")
    page, *files = map(Path, arguments)
    text = page.read_text(encoding="utf-8")
    for file in files:
        text = filled(text, file.stem, file.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
