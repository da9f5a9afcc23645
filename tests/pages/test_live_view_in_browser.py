"""The live view in Chromium, on a home whose every text is hostile and one run goes on."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from hostile_pages import make_hostile_home
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from proctor.live.subjects import KINDS

pytestmark = pytest.mark.foreign
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]


class Server(NamedTuple):
    link: str
    home: Path
    hostile: str
    going_on: str

    @property
    def own(self) -> str:
        return "http://" + urlsplit(self.link).netloc


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("pages") / "home"
    hostile, going_on = make_hostile_home(home)
    command = [sys.executable, "-P", "-m", "proctor", "serve", "--home", str(home), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), home, hostile, going_on)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def enter(looking: Any, server: Server) -> str:
    """Open the link and return the address of the list of runs."""
    looking.open(server.link)
    looking.window.wait_for_selector("#runs")
    assert "#" not in looking.window.url  # the token stays in no history
    return str(looking.window.url)


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_pages_are_readable_and_ask_only_their_server(
    look: Callable[..., Any], server: Server, width: int, scheme: str
) -> None:
    looking = look(width, scheme, own=server.own)
    base = enter(looking, server)
    looking.check("runs")
    for name, path in {
        "run": f"runs/{server.hostile}",
        "going-on": f"runs/{server.going_on}",
        "compare": f"compare?run={server.hostile}&run={server.going_on}",
        "compare-none": "compare",
        "decisions": "decisions",
        "transcripts": "calls",
        "sql": "sql?q=SELECT+*+FROM+run_starts",
        "sql-error": "sql?q=SELECT+*+FROM+nothing",
        "ledger": "ledger",
        **{f"{kind}s": f"{kind}s" for kind in KINDS},
    }.items():
        looking.open(base + path)
        looking.check(name)
    for name, path in {"call": "calls", **{kind: f"{kind}s" for kind in KINDS}}.items():
        looking.open(base + path)
        looking.window.locator("tbody th a").last.click()
        looking.check(name)
    looking.open(f"{base}absent")
    looking.said.clear()  # the browser says that the page is missing
    looking.check("absent")


def test_run_grows_on_the_page_while_it_trains(look: Callable[..., Any], server: Server) -> None:
    looking = look(1280, "light", own=server.own)
    enter(looking, server)
    with LedgerApplication.open(server.home / "ledger", REGISTRY) as log:
        run = synthetic_run(log, epochs=3, end=None)
    row = looking.window.wait_for_selector(f"a[href$='{run.id}']", timeout=30_000)
    row.click()
    looking.window.wait_for_selector("text=3 / 3")
    with LedgerApplication.open(server.home / "ledger", REGISTRY) as log:
        run.end("completed", deliverables={})
        log.save(run)
    looking.window.wait_for_selector("#tiles >> text=completed", timeout=30_000)
    assert looking.said == []


def test_all_is_reached_with_the_keyboard(look: Callable[..., Any], server: Server) -> None:
    looking = look(1280, "light", own=server.own)
    enter(looking, server)
    reached = []
    for _ in range(40):
        looking.window.keyboard.press("Tab")
        reached.append(
            looking.window.evaluate(
                "[document.activeElement.tagName, document.activeElement.textContent.trim(), "
                "getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    names = [(tag, text) for tag, text, _ in reached]
    assert names[0] == ("A", "Skip to the content")
    for wanted in (("A", "Runs"), ("A", "SQL"), ("BUTTON", "Pause updates"), ("BUTTON", "Show")):
        assert wanted in names
    assert ("A", server.going_on[:8]) in names
    assert "none" not in {outline for tag, _, outline in reached if tag != "BODY"}


def test_page_works_without_a_script(look: Callable[..., Any], server: Server) -> None:
    looking = look(1280, "light", own=server.own, java_script_enabled=False)
    looking.open(server.own)
    looking.window.fill("#token", server.link.partition("#")[2])
    looking.window.click("#enter button")
    looking.window.wait_for_selector("#runs")
    looking.window.fill("[name=q]", server.going_on)
    looking.window.click(".filters button")
    assert looking.window.locator("#runs tbody tr").count() == 1
