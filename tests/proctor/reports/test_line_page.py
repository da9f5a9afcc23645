"""The page of a line that was evolved: its proposals, scores and costs, as a report and live."""

import re
import shutil
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from evolved_line import make_evolved_line
from hostile_pages import HOSTILE, Elements
from live_pages import ServedHome, served_home
from scipy.stats import binomtest
from synthetic import synthetic_proposal

from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from proctor.home import Home
from proctor.output.terminal import plain, visible
from proctor.pages.charts.curves import Curve, curves
from proctor.pages.charts.drawing import RED, svg
from proctor.reports.contents import rows_about
from proctor.reports.files import Source, differences, open_report, read_source
from proctor.reports.line_page import _interval, line_charts, line_values
from proctor.reports.line_proposals import MOST_DIFF, SHOWN
from proctor.reports.pages import page_of

PROPOSALS, TASKS = 16, 4


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, str]:
    """A home with two lines, and the name of the second."""
    home = Home(tmp_path_factory.mktemp("evolved"))
    make_evolved_line(home.path, proposals=5, checkpoints=2, tasks=2, branch="other")
    made = make_evolved_line(home.path, proposals=PROPOSALS, checkpoints=8, tasks=TASKS)
    return home, made


@pytest.fixture(scope="module")
def source(line: tuple[Home, str]) -> Source:
    return read_source(*line)


@pytest.fixture(scope="module")
def shown(source: Source) -> Mapping[str, Any]:
    return line_values({**source.contents, "diffs": source.diffs})


@pytest.fixture(scope="module")
def page(source: Source) -> str:
    return page_of(source)


@pytest.fixture(scope="module")
def served(line: tuple[Home, str]) -> Iterator[ServedHome]:
    with served_home(line[0].path) as served:
        yield served


def asked(served: ServedHome, path: str) -> str:
    answered = served.client.get(f"{served.base}/{path}")
    assert answered.status_code == 200, answered.text
    return str(answered.text)


def words(page: str) -> str:
    """Return the text of a page on one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def middle(page: str) -> str:
    """Return scores, lineage, proposals and cost."""
    return page[page.index('<h2 id="scores">') : page.index('<h2 id="measures">')]


# ------------------------------------------------------------------------------------------------
# Proposals


def test_each_proposal_is_below_the_checkpoint_that_it_would_change(
    source: Source, shown: Mapping[str, Any]
) -> None:
    commits = {row["commit"]: row["checkpoint_id"][:8] for row in source.contents["checkpoints"]}
    due = {row["proposal_id"]: commits[row["base"]] for row in source.contents["proposals"]}
    assert len(due) == PROPOSALS
    assert {row["id"]: at["id"] for at in shown["tree"] for row in at["proposals"]} == due
    assert [at["state"] for at in shown["tree"]].count("active") == 1
    numbers = [int(at["title"].split()[1]) for at in shown["tree"]]
    assert numbers == sorted(numbers, reverse=True)
    parents = [re.fullmatch("promoted, on checkpoint ([0-9]+)", at["how"]) for at in shown["tree"]]
    assert all(parents[:-1])
    assert shown["tree"][-1]["how"] == "began the line"


def test_waiting_proposal_comes_first_and_says_for_what(page: str) -> None:
    first, *_ = re.findall(r'<ul class="tree">\n<li>\n(.*?)</li>', page, re.DOTALL)
    assert words(first).startswith("waits ")
    assert "it waits for an operator" in first


def test_proposal_is_told_with_round_model_files_reason_and_cost(page: str) -> None:
    told = words(middle(page))
    assert re.search(
        r"rejected [0-9a-f]{8} round 1, feedback, by openai \(small\): component.py, settings.toml "
        r"rejected: so Evidence and diff; 8 answers to tasks, [0-9.]+ s, 2 s of processor time for "
        r"answers, 1,460 tokens Why proposed Change 1 answers one more task. Tier 2 Verdict worse "
        r"task-0: fails now Better: none Worse: task-0 ",
        told,
    )
    assert re.search(r"promoted [0-9a-f]{8} made checkpoint 1; round ", told)
    assert "it was worse after all" in told  # why a checkpoint was rolled back
    assert "4 unusable — no JSON" in told  # the round without a proposal


def test_costs_are_all_that_the_line_has_spent_and_not_what_another_has(
    shown: Mapping[str, Any],
) -> None:
    titles = [column.title for column in shown["costs"]["columns"]]
    rows = {row[0]: dict(zip(titles, row, strict=True)) for row in shown["costs"]["rows"]}
    empty, answers = PROPOSALS // 4, 2 * TASKS * (PROPOSALS - 1)
    due: dict[str, float] = {
        "rounds": PROPOSALS + empty,
        "proposals": PROPOSALS,
        "answers": answers,
    }
    due |= {"processor seconds of answers": answers / 4, "requests to models": PROPOSALS + empty}
    due |= {"tokens in": 300 * (PROPOSALS + empty) + 100 * answers}
    due |= {"tokens out": 40 * (PROPOSALS + empty + answers)}
    assert {name: rows["all"][name] for name in due} == due
    assert rows["all"]["US dollars"] == pytest.approx((PROPOSALS + empty) / 1_000)
    assert [*rows][-3:] == ["open", "round without a proposal", "all"]
    for name in due:
        assert sum(row[name] or 0 for row in rows.values()) == 2 * rows["all"][name]


def test_report_rests_on_all_that_was_spent(source: Source, served: ServedHome) -> None:
    with served.tables.reading() as ask:

        def ask_whole(sql: str) -> list[dict[str, Any]]:
            return ask(sql, *([source.subject.id] if "$1" in sql else ()))

        whole = plain(rows_about(source.subject, ask_whole))
    assert {name: source.contents[name] for name in whole} == whole
    assert len(whole["spent"]) == len(whole["rounds"]) == PROPOSALS + PROPOSALS // 4


@pytest.mark.slow
def test_only_the_newest_proposals_have_their_diffs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    line = make_evolved_line(home.path, proposals=SHOWN + 5, checkpoints=1, tasks=1)
    source = read_source(home, line)
    shown = line_values({**source.contents, "diffs": source.diffs})
    assert sum(len(at["proposals"]) for at in shown["tree"]) == len(source.diffs) == SHOWN
    assert len(shown["earlier"]["rows"]) == 5


# ------------------------------------------------------------------------------------------------
# Scores


@pytest.mark.parametrize(("right", "tasks"), [(0, 1), (1, 1), (3, 12), (10, 10), (450, 500)])
def test_interval_of_a_share_is_wilsons(right: int, tasks: int) -> None:
    due = binomtest(right, tasks).proportion_ci(0.95, method="wilson")
    assert _interval(right / tasks, tasks) == pytest.approx((due.low, due.high), abs=1e-6)


def test_scores_on_reference_and_on_held_out_tasks_are_apart(source: Source) -> None:
    charts = {chart.name: chart for chart in line_charts(source.contents)}
    reference, held_out = charts["reference-success"], charts["held-out"]
    assert (
        "in comparisons with proposals: 25.0% (4.6% to 69.9%) at checkpoint 0, " in reference.text
    )
    assert "hidden" not in reference.text + reference.caption
    assert "hidden siblings: 50.0% (15.0% to 85.0%) at checkpoint 1, " in held_out.text
    assert "new tasks for each evaluation: 75.0% (30.1% to 95.4%)" in held_out.text
    assert "comparisons" not in held_out.text + held_out.caption


def test_rolled_back_checkpoint_is_a_cross_beside_the_line(source: Source) -> None:
    gone = sum(row["rolled_back"] for row in source.contents["checkpoints"])
    assert gone == 2
    for chart in line_charts(source.contents)[:2]:
        assert "✕ a checkpoint that was rolled back" in chart.caption
        curves_of = 1 if chart.name == "reference-success" else 2
        assert svg(chart).count(f'stroke="{RED}"') == gone * curves_of
    points, spans = [(0, 0.2), (1, 0.9), (2, 0.4)], {1: (0.8, 1.0)}
    whole = svg(curves("x", "x", [Curve("x", points, spans)]))
    apart = svg(curves("x", "x", [Curve("x", points, spans, {1})]))
    (line,), (rest,) = (re.findall(r'd="(M[^"]*L[^"]*)"', each) for each in (whole, apart))
    assert (line.count("L"), rest.count("L")) == (2, 1)


def test_intervals_of_many_checkpoints_are_two_lines() -> None:
    for many, lines in ((20, 0), (200, 2)):
        spans = dict.fromkeys(range(many), (0.2, 0.7))
        drawn = svg(curves("x", "x", [Curve("x", [(x, 0.5) for x in spans], spans)]))
        paths = re.findall(r'd="(M[^"]*)" fill="none" stroke="#0068a8" stroke-width="1"', drawn)
        (path,) = paths
        assert (path.count("M"), path.count("V")) == ((lines, 0) if lines else (many, many))


def test_odd_scores_are_left_out(source: Source) -> None:
    odd = [{**row, "benchmark_success": "NaN"} for row in source.contents["metrics"]]
    wild = [{**row, "success": 7.0} for row in source.contents["evaluated"]]
    names = [c.name for c in line_charts({**source.contents, "metrics": odd, "evaluated": wild})]
    assert names[0] == "lineage"


# ------------------------------------------------------------------------------------------------
# Diffs in a file


def test_report_shows_diffs_that_follow_from_their_hashes(page: str, source: Source) -> None:
    assert len(source.diffs) == PROPOSALS
    assert all(text in unescape(page) for text in source.diffs.values())
    opened = open_report(page, vkey=source.vkey)
    assert opened.diffs == source.diffs
    assert page_of(opened) == page
    altered = page.replace("-x\n+7\n", "-x\n+evil\n").replace("-x\\n+7\\n", "-x\\n+evil\\n")
    assert altered.count("evil") == 2
    told = open_report(altered, vkey=source.vkey)
    found = "\n".join(differences(altered, told, page_of(told)))
    assert "data diffs: " in found
    assert "Its diff is not here" in found
    assert list(differences(page, opened, page_of(opened))) == []


def test_report_says_that_a_diff_is_missing(line: tuple[Home, str], tmp_path: Path) -> None:
    shutil.copytree(line[0].path, tmp_path / "home")
    home = Home(tmp_path / "home")
    gone, *_ = read_source(home, line[1]).diffs
    blobs = home.blobs
    assert isinstance(blobs, BlobStore)
    blobs.path(gone).unlink()
    source = read_source(home, line[1])
    page = page_of(source)
    assert page.count("Its diff is not here") == 1
    assert page_of(open_report(page, vkey=source.vkey)) == page


def test_hostile_diffs_are_text_and_are_cut(tmp_path: Path) -> None:
    home = Home(tmp_path)
    settings: dict[str, Any] = {"proposals": 2, "checkpoints": 1, "tasks": 1}
    name = make_evolved_line(home.path, diff=HOSTILE * 20, branch="hostile", **settings)
    line = make_evolved_line(home.path, diff="x" * MOST_DIFF, **settings)
    long = page_of(read_source(home, line))
    assert long.count("Its diff is not here") == 2
    with served_home(home.path) as served:
        live = asked(served, f"lines/{name}")
    page = page_of(read_source(home, name))
    assert list(Elements(page).active()) == []
    for each in (page[: page.index('<h2 id="verify">')], live):
        assert visible(HOSTILE) in unescape(each)
        assert each.count("more characters)") == 2
        assert len(each) < 200_000


# ------------------------------------------------------------------------------------------------
# The live view


def test_live_view_shows_what_the_report_shows(
    served: ServedHome, line: tuple[Home, str], page: str
) -> None:
    assert middle(asked(served, f"lines/{line[1]}")) == middle(page)


def test_live_view_lists_lines_with_their_rounds(
    served: ServedHome, line: tuple[Home, str]
) -> None:
    assert "2 lines of code that changes itself" in words(asked(served, ""))
    listed = words(asked(served, "lines"))
    assert re.search(rf"{line[1][:8]} main 7 6 of {PROPOSALS} 9 1 20 0 ", listed), listed


def test_live_page_follows_and_what_a_reader_has_opened_keeps_its_name(tmp_path: Path) -> None:
    line = make_evolved_line(tmp_path, proposals=2, checkpoints=1, tasks=1)
    with served_home(tmp_path) as served:
        before = asked(served, f"lines/{line}")
        assert asked(served, f"lines/{line}") == before
        with LedgerApplication.open(Home(tmp_path).ledger, REGISTRY) as log:
            evolution: Evolution = log.repository.get(Evolution.id_of(UUID(line)))
            known: Line = log.repository.get(UUID(line))
            synthetic_proposal(log, known, path="other.py", outcome=None)
            synthetic_proposal(log, known, path="late.py", outcome="rejected")
            evolution.end_round("nothing", proposer="tuner", reason="it knows nothing more")
            log.save(evolution)
        served.tables.look()
        after = asked(served, f"lines/{line}")
    assert "other.py" not in before
    assert words(after).count("by somebody: other.py waits for `proctor line run`") == 1
    assert after.index("other.py") < after.index("late.py")  # though it is older
    assert "it knows nothing more" in after
    parts = r'<details id="([^"]*)">(.*?)</details>'
    opened = [re.findall(parts, each, re.DOTALL) for each in (before, after)]
    assert {*opened[0]} < {*opened[1]}
    assert len(opened[1]) == len(dict(opened[1])) == len(opened[0]) + 2
