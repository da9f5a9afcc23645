"""Reports in Chromium: nothing runs or is asked, nothing is cut off, everybody can read them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frontdoor import call_here
from hostile_pages import write_hostile_ledger

from proctor.home import Home
from proctor.remembering import open_remembered
from proctor.reports.subjects import KINDS, Overview

pytestmark = pytest.mark.foreign
GOLDEN = Path(__file__).parents[1] / "golden/calibrated_2"
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
# Charts that are shown, and have nothing in them or are cut off at their figure's edge.
_BROKEN_CHARTS = """
[...document.querySelectorAll('figure svg')].filter(each => {
    const box = each.getBoundingClientRect(), around = each.parentElement.getBoundingClientRect();
    return box.width && (box.height < 40 || box.right > around.right + 1
        || !each.querySelector('path[d], line, text'));
}).map(each => each.parentElement.id)
"""
_BROKEN_TABLES = """
[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1
    && each.checkVisibility({contentVisibilityAuto: true}))
    .map(each => each.getAttribute('aria-label'))
"""
_PAPER = 690  # pixels of A4 within its margins
_OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of reports of every kind, all about hostile texts; and one of a real run."""
    place = tmp_path_factory.mktemp("reports")
    hostile, golden = Home(place / "hostile"), place / "golden"
    write_hostile_ledger(hostile.path / "ledger")
    shutil.copytree(GOLDEN, golden)
    with open_remembered(hostile) as ledger:
        subjects = Overview.of(ledger.entries()).subjects
    made = {}
    for name, home, subject in [
        *((kind, hostile.path, subjects[kind][0]) for kind in KINDS),
        ("real", golden, "latest"),
    ]:
        out = place / f"{name}.html"
        done = call_here(["report", subject, "--out", out], home=home)
        assert done.returncode == 0, done.stderr
        made[name] = out.as_uri()
    return made


@pytest.mark.parametrize("name", [*KINDS, "real"])
def test_report_is_quiet_whole_and_accessible(
    name: str, look: Callable[..., Any], reports: dict[str, str]
) -> None:
    for width, scheme in LOOKS:
        looking = look(width, scheme, own=reports[name], offline=True)
        looking.open(reports[name])
        assert looking.window.evaluate(_BROKEN_CHARTS) == []
        looking.check(f"report-{name}")
        if (width, scheme) in LOOKS[1:3]:  # a dark wide page, and a light narrow one
            looking.window.evaluate(_OPEN_ALL)
            looking.check(f"report-{name}-open")
        assert looking.asked == [reports[name]]


@pytest.mark.parametrize("name", [*KINDS, "real"])
def test_report_is_whole_on_paper(
    name: str, look: Callable[..., Any], reports: dict[str, str]
) -> None:
    window = (looking := look(_PAPER, "light", own=reports[name])).window
    looking.open(reports[name])
    window.emulate_media(media="print")
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert window.evaluate(wide) <= 0
    assert window.evaluate(_BROKEN_CHARTS) == []
    assert window.evaluate(_BROKEN_TABLES) == []
    assert window.pdf(format="A4").startswith(b"%PDF")


def test_keyboard_reaches_what_opens_and_shows_where_it_is(
    look: Callable[..., Any], reports: dict[str, str]
) -> None:
    window = (looking := look(390, "light", own=reports["real"])).window
    looking.open(reports["real"])
    reached = []
    for _ in range(40):
        window.keyboard.press("Tab")
        reached.append(window.evaluate("document.activeElement.tagName"))
        style = window.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style in ("solid", "auto"), reached
        if reached[-1] == "SUMMARY":
            break
    assert reached[0] == "A"  # skips to the content
    assert reached[-1] == "SUMMARY"
    is_open = "document.activeElement.parentElement.open"
    before = window.evaluate(is_open)
    window.keyboard.press("Enter")
    assert window.evaluate(is_open) != before
