"""The figures of the live view are the whole ledger's, also where its lists are cut."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from figure_homes import Figures, bodies, of_run, told_violations, write_figures
from starlette.testclient import TestClient

from ledger.verification.verified_entries import VerifiedEntry
from proctor.home import Home
from proctor.live import queries
from proctor.live.app import live_view
from proctor.live.guard import Keys
from proctor.live.tables import Tables
from proctor.remembering import open_remembered
from projections.errors import QueryError

KEYS = Keys()


class Shown:
    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.made: Figures = write_figures(self.home.ledger)
        with open_remembered(self.home) as ledger:
            self.entries: list[VerifiedEntry] = list(ledger.entries())
        self.tables = Tables(self.home)
        self.tables.open()
        self.tables.look()
        app = live_view(self.home, self.tables, keys=KEYS, hosts=["127.0.0.1"])
        self.client = TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)
        self.client.post("/session", data={"token": KEYS.token})

    def page(self, path: str) -> str:
        answered = self.client.get(f"{KEYS.base}/{path}")
        assert answered.status_code == 200, answered.text
        shown = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", answered.text, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", shown)).split())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    made = Shown(tmp_path_factory.mktemp("live-figures"))
    yield made
    made.tables.stop()


@pytest.mark.slow
def test_run_page_tells_totals_beside_cut_lists(shown: Shown) -> None:
    text, due = shown.page(f"runs/{shown.made.large}"), of_run(shown.entries, shown.made.large)
    found = told_violations(shown.entries, shown.made.large).total()
    assert f"Violations: {found} Violations, those of one kind and rule together" in text
    assert f"Epochs {due['epochs']} / 200" in text
    assert "Charts show the last" not in text
    assert "Violations: 9000 Violations, those" in shown.page(f"runs/{shown.made.huge}")
    assert "Violations: 478 Violations, those" in shown.page(f"runs/{shown.made.old}")


def test_unmeasured_decisions_are_those_of_the_whole_run_where_charts_are_cut(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = queries._OF_RUN["done"].replace("LIMIT 4000", "LIMIT 1")
    assert cut != queries._OF_RUN["done"]
    monkeypatch.setitem(queries._OF_RUN, "done", cut)
    assert "not measured: the worth of the decisions;" in shown.page(f"runs/{shown.made.large}")


def test_lists_and_the_comparison_of_runs_count_firings_and_decisions(shown: Shown) -> None:
    started = [run for run, _ in bodies(shown.entries, "run.started")]
    assert f"{len(started)} runs" in shown.page("")
    due = of_run(shown.entries, shown.made.large)
    text = shown.page(f"compare?run={shown.made.large}&run={shown.made.huge}")
    assert f"{due['epochs']} 0.9 {due['firings']} {due['decisions']} no gate failed" in text


def test_subject_pages_have_the_figures_of_reports(shown: Shown) -> None:
    campaign = shown.page(f"campaigns/{shown.made.campaign}")
    assert "Violations 200 rules of conduct" in campaign
    assert "The first 190 of 200 violations" in campaign
    comparison = shown.page(f"comparisons/{shown.made.comparison}")
    assert "Runs finished 7 of 8" in comparison
    line = shown.page(f"lines/{shown.made.line}")
    submitted = [s for s, b in bodies(shown.entries, "proposal.submitted")]
    own = [
        s for s, b in bodies(shown.entries, "proposal.submitted") if b["line"] == shown.made.line
    ]
    assert len(own) < len(submitted)
    assert f"of {len(own)} proposed changes" in line
    assert "Tainted runs 1 of 14 under this line" in line


def test_page_that_would_need_more_rows_than_it_may_have_is_refused(shown: Shown) -> None:
    with shown.tables.reading() as ask:
        assert len(ask("SELECT * FROM RANGE(5000)")) == 5_000
        with pytest.raises(QueryError, match="more than 5,000 rows; ask with SQL"):
            ask("SELECT * FROM RANGE(5001)")
