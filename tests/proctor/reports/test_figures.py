"""Every figure of every page is the whole ledger's: counted again by other means, and compared."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any
from uuid import UUID

import pytest
from figure_homes import Figures, bodies, of_run, told_violations, write_figures
from frontdoor import answer, call_here

from ledger.handover.proof_files import write_proofs
from ledger.handover.selection import choose
from ledger.verification.authority import authority_stream
from ledger.verification.verified_entries import VerifiedEntry
from proctor.cli.campaign_jobs import describe_campaign
from proctor.cli.compare_jobs import describe_comparison, tell_comparison
from proctor.handover.card import model_card
from proctor.handover.evidence import evidence_of
from proctor.home import Home
from proctor.output.terminal import as_records, console, plain
from proctor.remembering import open_remembered
from proctor.reports.contents import contents_of, rows_about
from proctor.reports.files import read_source
from proctor.reports.line_page import line_charts
from proctor.reports.pages import page_of
from proctor.reports.run_verdict import _firings
from proctor.reports.subjects import KINDS, Overview, Subject, _trainings
from projections.counting import streams_of
from projections.projector import projected


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("figures"))


@pytest.fixture(scope="module")
def made(home: Home) -> Figures:
    return write_figures(home.ledger)


@pytest.fixture(scope="module")
def entries(home: Home, made: Figures) -> list[VerifiedEntry]:
    with open_remembered(home) as ledger:
        return list(ledger.entries())


@pytest.fixture(scope="module")
def overview(entries: list[VerifiedEntry]) -> Overview:
    return Overview.of(entries)


@pytest.fixture(scope="module")
def whole(
    entries: list[VerifiedEntry],
) -> Iterator[Callable[[Subject], Any]]:
    """What the queries of a report answer on the tables of the whole ledger."""
    with closing(projected(entries, quarantine=True)) as tables:
        tables.execute("SET threads = 1")

        def of(subject: Subject) -> Any:
            def ask(sql: str) -> list[dict[str, Any]]:
                found = tables.execute(sql, [subject.id] if "$1" in sql else None)
                return as_records([column[0] for column in found.description], found.fetchall())

            return plain(rows_about(subject, ask))

        yield of


@pytest.fixture(scope="module")
def page(home: Home, made: Figures) -> Callable[[str], str]:
    pages: dict[str, str] = {}

    def of(name: str) -> str:
        if name not in pages:
            pages[name] = words_of(page_of(read_source(home, name)))
        return pages[name]

    return of


def words_of(page: str) -> str:
    """Return the text of a page on one line, without charts, styles and data."""
    shown = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", shown)).split())


# Reports rest on chosen entries: each value must be that of all entries


def compare(
    entries: Sequence[VerifiedEntry],
    overview: Overview,
    whole: Callable[[Subject], Any],
    subject: Subject,
) -> None:
    with_origin = next(str(e.stream_id) for e in entries)
    assert with_origin
    origin = ORIGIN[0]
    chosen = overview.choose(entries, subject, origin=origin)
    shown, due = contents_of(chosen, subject, authority=authority_stream(origin)), whole(subject)
    family = {*overview.family(subject.id), subject.id}
    for part, rows in due.items():
        wanted = rows
        if part == "family":  # of all runs in the tables
            wanted = [row for row in rows if row["run_id"] in family]
        assert shown[part] == wanted, part


ORIGIN: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _origin(home: Home, made: Figures) -> None:
    with open_remembered(home) as ledger:
        ORIGIN[:] = [ledger.authority.origin]


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_a_report_is_the_whole_ledgers(
    kind: str,
    made: Figures,
    entries: list[VerifiedEntry],
    overview: Overview,
    whole: Callable[[Subject], Any],
) -> None:
    named = {"run": made.large}.get(kind) or getattr(made, kind)
    compare(entries, overview, whole, Subject(kind, named))


@pytest.mark.slow
def test_every_value_of_every_report_is_the_whole_ledgers(
    entries: list[VerifiedEntry], overview: Overview, whole: Callable[[Subject], Any]
) -> None:
    for kind in KINDS:
        for each in overview.subjects[kind]:
            compare(entries, overview, whole, Subject(kind, each))


@pytest.mark.parametrize("value", [b"\xff", float("nan"), "\ud800", [{"a": b""}], 2**64 - 1])
def test_overview_takes_any_value_of_a_configuration(value: object) -> None:
    told: dict[str, Any] = {"config": {"seed": 0, "lr": value}, "data": {"dataset": value}}
    odd = _trainings(told)
    assert odd == _trainings({**told, "config": {"seed": 1, "lr": value}})
    assert odd == _trainings({"conditions": {"hot": {"lr": value}, "no": value}})
    assert odd != _trainings({"config": {"seed": 0, "lr": 0.1}})


# The page of a run


def test_run_page_counts_all_violations(
    made: Figures, entries: list[VerifiedEntry], page: Callable[[str], str]
) -> None:
    told = told_violations(entries, made.large)
    assert told.total() == 478
    text = page(made.large)
    assert "Violations 478 rules of conduct" in text
    assert "The process score is 0.006: 1 minus 478 violations divided by 481 obligations" in text
    authors = {"driver": "By the driver", "harness": "By the harness", "policy": "By the policy"}
    for emitter, author in authors.items():
        due = sum(count for (_, _, by), count in told.items() if by == emitter)
        found = re.findall(rf"{author}[^:]*: (\d+) violations? ", text)
        assert sum(map(int, found)) == due
    first, *_ = text.split("Why the score is what it is")  # the first screen: a row for each kind
    assert "Where points were lost rule what violations epoch decision" in first
    assert all(kind.replace("_", " ") in first for kind, _, _ in told)
    assert len(first) < 12_000  # and none for each of 478


def test_page_says_how_many_violations_there_are_where_an_entry_has_no_room(
    made: Figures, entries: list[VerifiedEntry], page: Callable[[str], str]
) -> None:
    assert told_violations(entries, made.huge).total() == 9_000
    text = page(made.huge)
    assert "Violations 9000 rules of conduct" in text
    assert sum(map(int, re.findall(r"By the [^:]*: (\d+) violations", text))) == 9_000


def test_page_of_an_earlier_audit_tells_the_total_of_its_steps(
    made: Figures, page: Callable[[str], str]
) -> None:
    text = page(made.old)
    assert "1 minus 478 violations divided by 481 obligations" in text
    assert "Violations 478 rules of conduct" in text
    assert "recorded the first 150; only these are counted below" in text


def test_run_page_counts_its_firings_and_decisions(
    made: Figures, entries: list[VerifiedEntry], page: Callable[[str], str]
) -> None:
    due, text = of_run(entries, made.large), page(made.large)
    assert due["epochs"] == 200
    assert due["layers"] == 156
    assert f"{due['epochs']} of 200 epochs; the run" in text
    assert f"Rules fired {due['firings']} times: " in text
    assert f"made {due['decisions']} decisions: " in text
    for name, words in (
        ("applied", "changed the training"),
        ("refused", "could not be carried out"),
        ("deferred", "put the problem off"),
    ):
        assert not due[name] or f"{due[name]} {words}" in text
    assert min(due["applied"], due["deferred"], due["waived"]) > 0
    assert f"{due['layers']} layers" in text
    assert "Requests to a language model 38 (small)" in text


def test_page_says_what_became_of_all_firings() -> None:
    rules = [{"fired": True, "waived": waived} for waived in (True, False, False, False)]
    data = {"rules": [*rules, {"fired": False, "waived": False}]}
    told = _firings({"firings": 4}, {**data, "coverage": [{"needed": 2, "answered": 1}]})
    assert "Rules fired 4 times: 1 could be put off" in told
    assert "1 are of waived rules, and 2 needed an answer, of which 1 got one" in told
    for row in ({"needed": None, "answered": None}, {"needed": 9, "answered": 1}):
        assert _firings({"firings": 4}, {**data, "coverage": [row]}) == "Rules fired 4 times. "


# Campaigns, comparisons, lines


def test_campaign_page_counts_attempts_violations_and_decisions(
    made: Figures,
    home: Home,
    entries: list[VerifiedEntry],
    page: Callable[[str], str],
) -> None:
    rows = [e for e in entries if str(e.stream_id) == made.campaign]
    runs = [body["run"] for _, body in bodies(rows, "campaign.attempt_started")]
    left = [body["run"] for _, body in bodies(rows, "campaign.attempt_abandoned")]
    kept = [run for run in runs if run not in left]
    due = [told_violations(entries, run).total() for run in kept]
    assert due == [160, 40, 0]
    text = page(made.campaign)
    assert f"Attempts {len(kept)} at most" in text
    assert f"Violations {sum(due)} rules of conduct" in text
    assert "The first 190 of 200 violations" in text
    shown = contents(home, made.campaign)["attempts"]
    assert sum(row["decisions"] for row in shown) > 5
    for row in shown:
        figures = of_run(entries, row["run_id"])
        assert (row["decisions"], row["epochs"]) == (figures["decisions"], figures["epochs"])
        if not row["abandoned"]:
            assert row["violations"] == told_violations(entries, row["run_id"]).total()


def contents(home: Home, name: str) -> Any:
    return read_source(home, name).contents


def test_comparison_page_counts_cells_failures_and_violations(
    made: Figures, home: Home, entries: list[VerifiedEntry], page: Callable[[str], str]
) -> None:
    rows = [e for e in entries if str(e.stream_id) == made.comparison]
    ended = [body for _, body in bodies(rows, "comparison.run_ended")]
    runs = [body["run"] for body in ended]
    found = sum(told_violations(entries, run).total() for run in runs)
    text = page(made.comparison)
    assert f"Runs finished {len(ended)} of 8" in text
    assert f"Failed {sum(body['problem'] is not None for body in ended)} runs" in text
    assert f"found by the audits that count: {found}." in text
    assert f"The first {found - 20} of {found} violations" in text


def test_line_page_counts_proposals_alarms_and_tainted_runs(
    made: Figures, entries: list[VerifiedEntry], page: Callable[[str], str]
) -> None:
    own = [e for e in entries if str(e.stream_id) == made.line]
    submitted = [s for s, b in bodies(entries, "proposal.submitted") if b["line"] == made.line]
    promoted = bodies(own, "checkpoint.promoted")
    alarms = bodies(own, "drift.alarmed")
    answers = bodies(own, "drift.answered")
    text = page(made.line)
    assert f"Checkpoints {1 + len(promoted)} 0 of them rolled back" in text
    assert f"Promoted {len(promoted)} of {len(submitted)} proposed changes" in text
    assert f"Open alarms {len(alarms) - len(answers)} {len(alarms)} alarms in all" in text
    assert "Tainted runs 1 of 14 under this line" in text


def test_drift_of_each_set_and_commit_is_a_curve_of_its_own(
    made: Figures, home: Home, entries: list[VerifiedEntry]
) -> None:
    due: dict[tuple[str, bool], list[float]] = {}
    heads = {body["commit"] for _, body in bodies(entries, "checkpoint.promoted")}
    for _, body in bodies([e for e in entries if str(e.stream_id) == made.line], "drift.measured"):
        due.setdefault((body["set"], body["commit"] in heads), []).append(body["success"])
    [chart] = [each for each in line_charts(contents(home, made.line)) if each.name == "drift"]
    for (name, of_checkpoint), values in due.items():
        what = "active checkpoint" if of_checkpoint else "commit that is no checkpoint"
        assert f"{name} tasks, {what}: from {values[0]:.4g} to {values[-1]:.4g}" in chart.text
    assert len(due) == 4


# Commands


def test_show_tells_the_total(made: Figures, home: Home, entries: list[VerifiedEntry]) -> None:
    told = call_here(["show", made.large], home=home.path)
    assert told.returncode == 0, told.stderr
    assert "478 violations" in told.stdout
    story = answer(call_here(["show", made.large, "--json"], home=home.path))
    alike = {(row["emitter"], row["kind"], row["rule"]) for row in story["violations"]}
    assert told.stdout.count("violation: ") == len(alike) < 150  # a line for those of one kind
    more = map(int, re.findall(r"; and (\d+) more of this kind", told.stdout))
    assert sum(more) == 478 - len(alike)
    due = of_run(entries, made.large)
    assert story["summary"]["violations"] == 478
    assert sum(row["times"] for row in story["violations"]) == 478
    assert len(story["epochs"]) == due["epochs"]
    assert {name: story["summary"][name] for name in ("epochs", "firings", "decisions")} == {
        name: due[name] for name in ("epochs", "firings", "decisions")
    }
    assert len(story["decisions"]) == due["decisions"]
    assert sum(row["fired"] for row in story["rules"]) == due["firings"]


def test_views_count_all_violations(
    made: Figures, home: Home, entries: list[VerifiedEntry]
) -> None:
    def ask(sql: str) -> list[list[Any]]:
        rows = json.loads(call_here(["sql", sql, "--json"], home=home.path).stdout)
        return [list(row.values()) for row in rows]

    runs = {made.large: 478, made.huge: 9_000, made.old: 478}
    for rows in ("run_summary", "(FROM audits WHERE standing)"):
        counted = ask(f"SELECT run_id, violations FROM {rows}")
        assert {run: total for run, total in counted if run in runs} == runs
    by_kind = ask("SELECT run_id, kind, rule, emitter, SUM(times) FROM violations GROUP BY ALL")
    for run in (made.large, made.huge):
        counts = {(kind, rule, by): count for of, kind, rule, by, count in by_kind if of == run}
        assert counts == dict(told_violations(entries, run))
    rewards = "SELECT number, violations FROM decision_rewards WHERE run_id = '{}'"
    due = recorded_by_decision(entries, made.large)
    assert {n: v for n, v in ask(rewards.format(made.large))} == {  # noqa: C416 - pairs
        number: due.get(number, 0)
        for number in range(1, of_run(entries, made.large)["decisions"] + 1)
    }


def recorded_by_decision(entries: list[VerifiedEntry], run: str) -> dict[int, int]:
    [audit] = [stream for stream, body in bodies(entries, "audit.started") if body["run"] == run]
    [scored] = [body for stream, body in bodies(entries, "audit.scored") if stream == audit]
    found: dict[int, int] = {}
    places = [v["decision"] for v in scored["violations"]]
    places += [decision for group in scored["further"] for _, decision in group["at"]]
    for decision in places:
        if decision is not None:
            found[decision] = found.get(decision, 0) + 1
    return found


def test_campaign_command_counts_all_violations(made: Figures, home: Home) -> None:
    with home.open_log() as log:
        told = describe_campaign(home, log, log.repository.get(UUID(made.campaign)))
    assert [each.violations for each in told.attempts] == [160, 40, 0]


@pytest.mark.parametrize("which", [None, "hot", "cold"])
def test_table_of_a_comparison_counts_the_whole_ledger(
    which: str | None, made: Figures, home: Home, entries: list[VerifiedEntry]
) -> None:
    own = [e for e in entries if str(e.stream_id) == made.comparison]
    due: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for _, cell in bodies(own, "comparison.run_ended"):
        if which in (None, cell["condition"]):
            figures = figures_of_cell(entries, cell)
            due.setdefault(cell["policy"], {})[cell["condition"], cell["seed"]] = figures
    found = describe_comparison(home, made.comparison, policies=[*due], conditions=["hot", "cold"])
    told = plain(found)
    table = told["standings"] if which is None else told["conditions"][which]
    assert [row["policy"] for row in table] == ["synthetic", "nothing"]
    for row in table:
        cells, base = due[row["policy"]], due["synthetic"]
        assert row["cells"] == len(cells)
        for name in ("applied", "refused", "unusable", "failed", "exercised", "firings"):
            total = sum(cell[name] for cell in cells.values())
            assert row[name] == (total / len(cells) if name == "firings" else total), name
        for name, gain in (("accuracy", "gain"), ("process", "process_gain")):
            assert row[name] == pytest.approx(fmean(cell[name] for cell in cells.values()))
            if row["policy"] != "synthetic":
                apart = [cells[key][name] - base[key][name] for key in cells if key in base]
                assert row[gain] == pytest.approx(fmean(apart))
                if name == "accuracy":
                    signs = [row["wins"], row["ties"]]
                    assert signs == [sum(a > 0 for a in apart), sum(a == 0 for a in apart)]
    if which is None:
        assert sum(row["failed"] for row in table) == 1
        assert min(row["applied"] for row in table) > 0
        with console.capture() as shown:
            tell_comparison(found)
        for row in table:
            answers = row["applied"] + row["refused"] + row["unusable"]
            line = next(each for each in shown.get().splitlines() if row["policy"] in each[:14])
            assert f"{row['applied']} of {answers}" in line


def figures_of_cell(entries: list[VerifiedEntry], cell: Mapping[str, Any]) -> dict[str, Any]:
    run, failed = of_run(entries, cell["run"]), cell["problem"] is not None
    own = [e for e in entries if str(e.stream_id) == cell["run"]]
    [(_, scored)] = [each for each in bodies(entries, "audit.scored") if each[0] == cell["audit"]]
    return {
        **run,
        "unusable": sum(b["source"] == "driver" for _, b in bodies(own, "run.decision_made")),
        "failed": failed,
        "accuracy": 0.0 if failed else scored["test_accuracy"],
        "process": 0.0 if failed else scored["process_score"],
        "exercised": scored["process_axis_exercised"],
    }


# What is handed over


def test_model_card_counts_the_whole_ledger(
    made: Figures, home: Home, entries: list[VerifiedEntry]
) -> None:
    run = UUID(made.large)
    with open_remembered(home) as ledger:
        chosen = choose(entries, streams_of(entries, run), origin=ledger.authority.origin)
        proofs = write_proofs(ledger, [each.index for each in chosen])
        vkey = ledger.vkey
    card = model_card(evidence_of(proofs, vkey=vkey))
    due = of_run(entries, made.large)
    assert told_violations(entries, made.large).total() == 478
    assert "- violations: 478\n" in card
    _, told = card.split("## Decisions\n")
    told, steps = told.split("## Audit\n")
    rows = told.split("| --- | --- | --- | --- | --- | --- |\n")[1].strip().splitlines()
    assert len(rows) == due["decisions"]
    outcomes = Counter(row.split(" | ")[4] for row in rows)
    assert outcomes["applied"] == due["applied"]
    assert outcomes["refused"] == due["refused"]
    assert outcomes["no action"] == due["deferred"]
    assert "These are the first" not in card
    assert steps.split("## Configuration")[0].count("\n| ") == 2 + 11
    [audit] = [s for s, body in bodies(entries, "audit.started") if body["run"] == made.large]
    done = {b["name"]: b for s, b in bodies(entries, "audit.step_completed") if s == audit}
    epochs = done["ledger"]["evidence"]["epochs"]
    assert f"| epochs that the judge trained again | 0 of {epochs} |" in card
