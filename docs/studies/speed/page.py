"""Put figures that commands printed into a page: `python docs/studies figures PAGE FILE...`.

Each file replaces what the page has between `<!-- figures: NAME -->`, where NAME is the name of the
file without its ending, and `<!-- end -->`. `make bench-speed` makes the files and calls this.

I/O: reads the files; replaces the page.
"""

import argparse
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
    parser = argparse.ArgumentParser(prog="python docs/studies figures", description=__doc__)
    parser.add_argument("page", metavar="PAGE", type=Path)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    for file in options.files:
        text = filled(text, file.stem, file.read_text(encoding="utf-8"))
    options.page.write_text(text, encoding="utf-8")
