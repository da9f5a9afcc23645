"""A browser for the tests of pages: each page is looked at in two widths, light and dark."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
_SHOTS = Path(__file__).parents[2] / "build" / "pages"  # pictures, for people to look at
_AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"


@dataclass
class Looking:
    """A window of the browser, and what its pages did."""

    window: Any
    name: str  # of the pictures
    own: str = ""  # beginning of the addresses that may be asked
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Open a page."""
        self.window.goto(address)

    def check(self, page: str) -> None:
        """Assert that the page fits its window, has no barrier, asked nobody and said nothing."""
        _SHOTS.mkdir(parents=True, exist_ok=True)
        self.window.screenshot(path=_SHOTS / f"{page}-{self.name}.png", full_page=True)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.window.evaluate(wide) <= 0, f"{page}: it is wider than its window"
        self.window.evaluate(f"{_AXE.read_text()};0")
        found = self.window.evaluate("axe.run()")
        serious = [
            (each["id"], [node["html"] for node in each["nodes"][:3]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], page
        assert self.window.evaluate("window.hostile") is None, page
        assert self.said == [], page
        assert [address for address in self.asked if not address.startswith(self.own)] == [], page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - in another environment

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def look(chromium: Any) -> Iterator[Callable[..., Looking]]:
    """Give the function that opens a window: look(width, scheme, own="http://...")."""
    opened = []

    def new(width: int, scheme: str, *, own: str, **settings: Any) -> Looking:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **settings
        )
        opened.append(context)
        made = Looking(context.new_page(), f"{width}-{scheme}", own)
        made.window.on("request", lambda request: made.asked.append(request.url))
        made.window.on("console", lambda message: made.said.append(message.text))
        made.window.on("pageerror", lambda error: made.said.append(str(error)))
        made.window.on("dialog", lambda dialog: made.said.append(dialog.message))
        return made

    yield new
    for context in opened:
        context.close()
