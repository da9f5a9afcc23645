"""How soon the live view shows something of a large ledger, and its memory: `make bench-pages`.

Writes a ledger of 300,000 events and 1,000 runs, starts `proctor serve`, and opens pages in
Chromium several times. The time is that of the first contentful paint, from the request on. Memory
is that of all processes of the server: what each has alone, and its share of what is common (PSS).
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from studies.speed.projections import write
from synthetic import (
    synthetic_audit,
    synthetic_call,
    synthetic_campaign,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.comparison import Comparison
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from projections.source import open_source

EVENTS = 300_000
_PROPOSALS = 30
_TIMES = 5
_PAINTS = "performance.getEntriesByName('first-contentful-paint')"


def make_ledger(folder: Path) -> None:
    """Write runs of about 80 epochs with what belongs to them, again and again; then a line."""
    with tempfile.TemporaryDirectory() as name:
        with LedgerApplication.open(Path(name, "ledger"), REGISTRY) as log:
            runs, audits = [], []
            for number in range(10):
                run = synthetic_run(
                    log,
                    epochs=80 + number,
                    seed=number,
                    exploding=range(20, 24) if number % 2 else (),
                    dead=range(50, 60) if number % 3 == 0 else (),
                )
                synthetic_transcript(log, run, [synthetic_call(), synthetic_call("unusable")])
                runs.append(run)
                audits.append(synthetic_audit(log, run))
            synthetic_campaign(log, runs, audits=audits)
            comparison = Comparison.start(
                policies=[{"name": "playbook"}, {"name": "nothing"}],
                conditions={"hot": {"lr": 3.0}},
                seeds=list(range(5)),
            )
            for cell, run, audit in zip(comparison.cells, runs, audits, strict=True):
                comparison.allot(cell, str(run.id))
                comparison.finish(cell, audit=str(audit.id), problem=None)
            comparison.end()
            log.save(comparison)
        with open_source(Path(name, "ledger")) as source:
            pattern = list(source.entries(start=0))
    write(folder, pattern, events=EVENTS)
    with LedgerApplication.open(folder, REGISTRY) as log:
        line = synthetic_line(log)
        for number in range(_PROPOSALS):
            outcome = "rejected" if number % 3 else "promoted"
            synthetic_proposal(log, line, outcome=outcome, rationale=f"change {number}")


def memory(process: int) -> float:
    """Return the memory of a process and of those that it has started, MB."""
    total = 0
    for each in (process, *children(process)):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def children(process: int) -> list[int]:
    """Return the processes that one has started."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found]


def subjects(window: Any, base: str) -> dict[str, str]:
    """Return the addresses of the newest campaign, comparison and line, and of their lists."""
    found = {}
    for name in ("campaign", "comparison", "line"):
        found[f"{name}s"] = f"{base}{name}s"
        window.goto(found[f"{name}s"])
        found[f"a {name}"] = window.evaluate("document.querySelector('tbody th a').href")
    return found


def measure(window: Any, link: str, process: int) -> dict[str, Any]:
    """Open each page several times."""
    window.goto(link)
    window.wait_for_selector("#runs", timeout=300_000)
    base = window.url
    run = window.locator("tbody th a").last.get_attribute("href")
    pages = {
        "runs": base,
        "runs, best first": f"{base}?order=best",
        "a run": base + run.split("/", 2)[2],
        "decisions": f"{base}decisions?q=r7",
        "transcripts": f"{base}calls",
        "ledger": f"{base}ledger",
        **subjects(window, base),
        "SQL": f"{base}sql?q=SELECT+rule,+COUNT(*)+FROM+rule_evaluations+GROUP+BY+rule",
    }
    seconds: dict[str, list[float]] = {name: [] for name in pages}
    busy: dict[str, list[float]] = {name: [] for name in pages}
    most = 0.0
    for _ in range(_TIMES):
        for name, address in pages.items():
            before = processor(process)
            window.goto(address)
            while not window.evaluate(
                f"{_PAINTS}.length"
            ):  # the page's policy forbids to wait there
                time.sleep(0.05)
            seconds[name].append(window.evaluate(f"{_PAINTS}[0].startTime") / 1000)
            busy[name].append(processor(process) - before)
            most = max(most, memory(process))
    return {
        "least_seconds": {name: min(each) for name, each in seconds.items()},
        "median_seconds": {name: statistics.median(each) for name, each in seconds.items()},
        "processor_seconds": {name: min(each) for name, each in busy.items()},
        "memory_mb": most,
    }


def processor(process: int) -> float:
    """Return the processor time of a process and of those it has waited for, seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures as JSON."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name)
        if not (home / "ledger").exists():
            make_ledger(home / "ledger")
        command = [sys.executable, "-P", "-m", "proctor", "serve", "--home", str(home)]
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        started = time.monotonic()
        with subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            link_seconds = time.monotonic() - started
            try:
                found = measure(browser.new_page(), link, process.pid)
            finally:
                process.send_signal(signal.SIGINT)
        browser.close()
        print(
            json.dumps(
                {"events": EVENTS, "load": os.getloadavg()[0], "link_seconds": link_seconds}
                | found,
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
