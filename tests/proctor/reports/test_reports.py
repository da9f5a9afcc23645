"""Reports: what they show follows from their proofs, and nothing in them runs."""

import json
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import answer, call_here
from hostile_pages import HOSTILE, Elements, write_hostile_ledger
from synthetic import synthetic_audit, synthetic_run

import proctor
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.errors import InclusionError, MalformedError, SignatureError
from ledger.notes import public_bytes
from ledger.notes import vkey as vkey_of
from proctor import remembering
from proctor.home import Home
from proctor.output.columns import cells
from proctor.output.firings import violation_told
from proctor.output.terminal import told_verdict
from proctor.pages.charts.curves import curves_of
from proctor.pages.charts.drawing import COLOURS, NARROW, svg
from proctor.pages.charts.grids import layer_heatmap
from proctor.pages.charts.rows import intervals, strip
from proctor.pages.rendering import embedded_json, page_policy, seen, stylesheet
from proctor.remembering import open_index, open_remembered
from proctor.reports.files import (
    Source,
    _looked_for,
    _looked_up,
    differences,
    open_report,
    read_source,
)
from proctor.reports.pages import page_of
from proctor.reports.run_decisions import violations_told
from proctor.reports.run_verdict import _retrained, unexercised_told
from proctor.reports.subjects import KINDS, Overview
from proctor.runs.standings import told_difference
from proctor.runs.worth import COLUMNS, worths


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose ledger has a hostile text in every field."""
    home = Home(tmp_path_factory.mktemp("reports"))
    write_hostile_ledger(home.path / "ledger")
    return home


@pytest.fixture(scope="module")
def subjects(home: Home) -> dict[str, list[str]]:
    with open_remembered(home) as ledger:
        return Overview.of(ledger.entries()).subjects


@pytest.fixture(scope="module")
def source(home: Home, subjects: dict[str, list[str]]) -> Source:
    return read_source(home, subjects["run"][0])


@pytest.fixture(scope="module")
def page(source: Source) -> str:
    return page_of(source)


def test_tables_and_a_walk_over_all_entries_choose_the_same(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a large ledger the tables say where the entries are."""
    monkeypatch.setenv("PROCTOR_STATE", str(tmp_path))
    with open_remembered(home) as ledger:
        overview = Overview.of(ledger.entries())
        names = [each for known in overview.subjects.values() for each in known]
        names += ["latest", *overview.called.values()]
        chosen = {name: _looked_for(ledger, name) for name in names}
        index = open_index(home, ledger)
        assert index is None
        monkeypatch.setattr(remembering, "FEW", 0)
        index = open_index(home, ledger)
        assert index is not None
        found = {name: _looked_up(ledger, index, name) for name in names}
    runs = [name for name in names if chosen[name][0].kind == "run"]
    by_tables = [name for name in names if found[name] is not None]
    assert {*by_tables} == {name for name in runs if chosen[name][0].id not in overview.credits}
    assert len(by_tables) > len(runs) / 2
    assert {name: found[name] for name in by_tables} == {name: chosen[name] for name in by_tables}
    assert read_source(home, "latest").selection.entries == tuple(chosen["latest"][1])


def test_hostile_texts_are_shown_as_text(page: str) -> None:
    elements = Elements(page)
    assert list(elements.active()) == []
    assert elements.text.count("window.hostile=1") > 20
    assert "49" not in re.findall(r"message\" (\S+) ", elements.text)  # no template ran
    assert "\x1b" not in page
    assert page.count("<script") == page.count("</script") == 2  # its data and its proofs


@pytest.mark.parametrize("kind", KINDS)
def test_page_forbids_scripts_and_requests(
    kind: str, home: Home, subjects: dict[str, list[str]]
) -> None:
    page = page_of(read_source(home, subjects[kind][0]))
    assert f'content="{page_policy()}"'.replace("'", "&#39;") in page
    assert page_policy().startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"https?:|//", page[: page.index("<style")])


def test_every_chart_has_a_text_and_colours_for_dark_pages(page: str) -> None:
    drawings = [one for tag, one in Elements(page).found if tag == "svg"]
    assert len(drawings) == 10  # five charts, wide and narrow
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert len(drawing["aria-label"] or "") > 40
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', page)) - {"#000000"}
    shades = {colour for colour in used if not re.search(rf'\[(fill|stroke)="{colour}"\]', page)}
    assert shades == set()
    assert all(f'="{colour}"]' in stylesheet() for colour in COLOURS)


def test_report_opens_with_the_key_and_needs_no_ledger(page: str, source: Source) -> None:
    opened = open_report(page, vkey=source.vkey)
    assert (opened.subject, opened.selection.entries) == (source.subject, source.selection.entries)


def test_report_of_another_key_is_rejected(page: str, source: Source) -> None:
    other = vkey_of(source.selection.head.origin, public_bytes(Ed25519PrivateKey.generate()))
    with pytest.raises(SignatureError):
        open_report(page, vkey=other)


def test_unaltered_report_has_no_differences(page: str, source: Source) -> None:
    assert list(differences(page, source, page)) == []


ALTERATIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "a score in a tile": (
        lambda page: page.replace("<b>0.900</b>", "<b>0.999</b>"),
        r"page, run: the page has '.*0\.999.*', and should have '.*0\.900.*'",
    ),
    "a score in the data": (
        lambda page: re.sub(r'("rows":\[\["[^]]*?)0\.9,', r"\g<1>0.99,", page, count=1),
        r"data contents\.\w+\[0\]\.accuracy_score: the report has '0\.99', the ledger '0\.9'",
    ),
    "a chart": (
        lambda page: re.sub(r'(id="chart-loss".*?<path[^>]* d="M)\d', r"\g<1>9", page, flags=re.S),
        "page, chart-loss: what is not text, such as a chart or a style, was altered",
    ),
    "an added sentence": (
        lambda page: page.replace('<h2 id="cost"', '<p>Excellent.</p>\n<h2 id="cost"'),
        "page, .*: the page has 'Excellent.', and should have ''",
    ),
    "a removed violation": (
        lambda page: re.sub(r"<h3>By .*?</table>", "", page, flags=re.S),
        "page, .*should have 'By ",
    ),
    "a script": (
        lambda page: page.replace("</main>", "<script>1</script></main>"),
        "page, .*the page has '1",
    ),
    "the policy": (
        lambda page: page.replace("default-src &#39;none&#39;", "default-src *"),
        "page, head: what is not text",
    ),
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_what_was_altered_is_named(what: str, page: str, source: Source) -> None:
    alter, message = ALTERATIONS[what]
    altered = alter(page)
    assert altered != page
    found = list(differences(altered, source, page))
    assert any(re.match(message, each) for each in found), found


def test_padded_page_is_refused_before_it_is_compared(page: str, source: Source) -> None:
    padded = page + "\n" * 8_000_000
    tracemalloc.start()
    found = list(differences(padded, source, page))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [f"page: it has {len(padded):,} characters, and should have {len(page):,}"]
    assert peak < 10_000_000
    (one,) = differences(page + "\n", source, page)  # a little is named as ever
    assert one.startswith("page, ")


def test_page_of_equal_lines_is_not_compared_line_by_line(page: str, source: Source) -> None:
    """Every line of one against every line of the other would take minutes."""
    long = page.replace("</main>", "<p>x</p>\n" * 6_000 + "</main>")
    other = page.replace("</main>", "<p>x</p>\n" * 5_000 + "<p>y</p>\n" * 500 + "</main>")
    filled = other.replace("<main", "<p>x</p>\n<main")
    found = list(differences(filled, source, long))
    assert any("too many others to name" in each for each in found)


def test_report_that_leaves_out_an_entry_is_rejected(home: Home, source: Source) -> None:
    left_out = next(each for each in source.selection.entries if each.name == "run.decision_made")
    entries = tuple(each for each in source.selection.entries if each is not left_out)
    selection = replace(source.selection, entries=entries)
    with pytest.raises(InclusionError, match="leaves out event"):
        selection.verify_choice(Overview.of(entries).wanted(source.subject))


@pytest.mark.parametrize(
    "alter",
    [
        lambda page: page.replace('id="proctor-proofs">', 'id="proctor-proofs">AAAA'),
        lambda page: page.replace('"kind":"run"', '"kind":"run/../x"'),
        lambda page: page.replace('{"contents"', '{{"contents"'),
        lambda page: page.replace('id="proctor-report"', 'id="other"'),
        lambda page: "<!DOCTYPE html>",
    ],
)
def test_what_is_no_report_is_malformed(
    alter: Callable[[str], str], page: str, source: Source
) -> None:
    with pytest.raises(MalformedError):
        open_report(alter(page), vkey=source.vkey)


def test_embedded_data_cannot_end_its_element() -> None:
    value = {"x": HOSTILE, "y": [float("nan"), float("inf"), None]}
    text = str(embedded_json(value))
    assert "<" not in text
    assert json.loads(text) == {"x": HOSTILE, "y": ["NaN", "Infinity", None]}


def test_command_says_what_is_missing(home: Home, tmp_path: Path) -> None:
    wrong: list[tuple[list[str | Path], str]] = [
        ([], "Missing option '--out'"),
        (["--out", tmp_path / "a.svg"], "name it with --chart, one of: "),
        (["--out", tmp_path / "a.html", "--chart", "loss"], "end the name of --out in .svg or"),
        (
            ["ffff", "--out", tmp_path / "a.html"],
            "no run, campaign, comparison or line has the id or name",
        ),
        ([tmp_path / "a.html", "--out", tmp_path / "b.html"], "give --vkey"),
    ]
    for arguments, message in wrong:
        done = call_here(["report", *arguments], home=home.path)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------
# All kinds, from one end to the other


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_report_is_verified_offline(
    kind: str, home: Home, subjects: dict[str, list[str]], tmp_path: Path
) -> None:
    vkey = home.ledger / "ledger.vkey"
    out = tmp_path / "report.html"
    made = answer(call_here(["report", subjects[kind][0], "--out", out, "--json"], home=home.path))
    assert made["kind"] == kind
    page = out.read_text()
    assert list(Elements(page).active()) == []
    elsewhere = tmp_path / "no-home"
    held = call_here(["verify", out, "--vkey", vkey], home=elsewhere)
    assert held.returncode == 0, held.stdout + held.stderr
    assert held.stdout.startswith("held: the whole report follows from")
    again = tmp_path / "again.html"
    done = call_here(["report", out, "--out", again, "--vkey", vkey], home=elsewhere)
    assert done.returncode == 0, done.stderr
    assert again.read_text() == page
    out.write_text(page.replace("<h1", "<h1 class=x", 1).replace('"entries":', '"entries":1', 1))
    failed: dict[str, Any] = json.loads(
        call_here(["verify", out, "--vkey", vkey, "--json"], home=elsewhere).stdout
    )
    assert not failed["ok"]
    assert any(each.startswith("data entries: ") for each in failed["altered"])
    older = re.sub(r'"proctor":"[^"]*"', '"proctor":"0.0.1"', page)
    out.write_text(older)
    other = call_here(["verify", out, "--vkey", vkey], home=elsewhere)
    assert other.returncode == 1
    assert "the page was made by other versions (" in other.stdout
    assert "proctor 0.0.1" in other.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_text_of_every_row_may_be_hostile(
    kind: str, home: Home, subjects: dict[str, list[str]]
) -> None:
    source = read_source(home, subjects[kind][0])
    source.__dict__["contents"] = _spoilt(source.contents)
    elements = Elements(page_of(source))
    assert list(elements.active()) == []
    assert "window.hostile=1" in elements.text


def _spoilt(value: Any, name: str = "") -> Any:
    """Return rows in which every text is hostile, but for moments and for ids that join rows."""
    if isinstance(value, dict):
        return {key: _spoilt(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_spoilt(inner, name) for inner in value]
    if not isinstance(value, str) or name.endswith(("_at", "time")):
        return value
    return f"{value} {HOSTILE}"


@pytest.mark.slow
def test_single_charts_are_files(
    home: Home, subjects: dict[str, list[str]], tmp_path: Path
) -> None:
    svg, png = tmp_path / "loss.svg", tmp_path / "loss.png"
    run = subjects["run"][0]
    for out in (svg, png):
        done = call_here(["report", run, "--chart", "loss", "--out", out], home=home.path)
        assert done.returncode == 0, done.stderr
    assert svg.read_text().startswith("<svg ")
    assert png.read_bytes().startswith(b"\x89PNG")
    unknown = call_here(["report", run, "--chart", "x", "--out", svg], home=home.path)
    assert "takes one of: loss, accuracy, rules, lr, gradients" in unknown.stderr


def test_intervals_are_shown_as_they_are_written() -> None:
    row = {"decision": 1, "epoch": 2, "arm": "nothing", "after": "nothing", "looks": 1}
    row |= {"loss_saved": [0.1, 0.3], "accuracy_gained": [0.1, None], "other_code": False}
    (found,) = worths([{**row, "why_not": None}])
    told = cells(COLUMNS, [found])[0]
    assert [*map(seen, told[4:])] == [
        "cannot be told",
        "+0.2000 (-1.0706 to +1.4706)",
        "undecided",
    ]
    assert seen(told_difference(0.1, 0.0, 0.2)) == "+0.100 (+0.000 to +0.200)"


@pytest.mark.parametrize(
    ("retrained", "verdict", "told"),
    [
        (1.0, "held", "retrained the whole run"),
        (1.0, "failed", "retrained the whole run"),
        (0.0, "held", "no epoch: the recorded measurements were trusted"),
        (0.0, "failed", "no epoch: a gate failed"),
        (None, None, "a judge can train it again"),
    ],
)
def test_tile_says_what_was_retrained(
    retrained: float | None, verdict: str | None, told: str
) -> None:
    assert told in _retrained({"retrained": retrained, "verdict": verdict})


def test_page_says_why_a_score_is_unexercised_and_what_would_have_avoided_violations() -> None:
    steps = [{"name": "scores", "summary": "process 0.5 (unexercised: no remedy took effect); 9"}]
    assert unexercised_told(steps) == "unexercised: no remedy took effect"
    row = {"kind": "unresolved_deferral", "rule": "R5", "epoch": 4, "decision": 3}
    row |= {"emitter": "policy", "cause": "policy", "detail": "R5, deferred in epoch 4"}
    fired = {"rule": "R5", "side": "high", "epoch": 4, "fired": True, "waived": False}
    causes = [{**row, "violations": 1}]
    told_of = {"violations": [row], "causes": causes, "calls": [], "rules": [fired]}
    (group,) = violations_told(told_of)
    assert group["title"] == "By the policy: 1 violation"
    assert "remedy is to swap activation where R5 high (activations) fires" in group["text"]
    told = "unresolved_deferral, by the policy: R5, deferred in epoch 4"
    assert violation_told(row) == told
    assert violation_told(row | {"detail": "x"}).startswith("unresolved_deferral R5 (epoch 4), by")
    assert told_verdict("held", violations=True) == ("no gate failed", "")


@pytest.mark.slow
@pytest.mark.parametrize("wild", [1e17, 1e-17])
def test_one_wild_value_is_told_and_does_not_flatten_a_curve(wild: float) -> None:
    rows = [{"epoch": epoch, "loss": 2 - epoch / 10} for epoch in range(12)]
    honest = curves_of("loss", "Loss", rows, {"loss": "loss"})
    assert "beyond the axis" not in honest.caption
    rows[3]["loss"] = wild
    odd = curves_of("loss", "Loss", rows, {"loss": "loss"})
    told = f"{wild:.3g}".replace("e+", "e")
    assert f"eyond the axis, drawn at its end: {told} in epoch 3" in odd.caption
    assert "logarithmic" not in odd.caption


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 0.0, -0.0, 2**62])
def test_charts_take_any_number(value: float) -> None:
    rows: list[dict[str, Any]] = [
        {"epoch": 0, "x": value},
        {"epoch": 2**31 - 1, "x": 1.0},
        {"epoch": 7, "x": "NaN"},
    ]
    svg(curves_of("x", "X", rows, {"x": "x"}))
    layers = [
        {"epoch": row["epoch"], "place": 0, "layer": "a", "grad_norm": row["x"]} for row in rows
    ]
    svg(layer_heatmap(layers), NARROW)
    svg(strip("s", "S", rows={"0": [value, 1.0], "7": ["NaN"]}, unit=""))
    more = {"unit": "", "caption": ""}
    svg(intervals("d", "D", rows=[("a", value, -value, value), ("b", 1.0, None, None)], **more))


@pytest.mark.slow
def test_notebooks_show_the_page_in_a_frame_where_nothing_runs(home: Home, tmp_path: Path) -> None:
    made = proctor.report(home=home.path)
    assert made.kind == "run"
    shown = Elements(made._repr_html_())
    assert [tag for tag, _ in shown.found] == ["iframe"]
    assert shown.found[0][1]["sandbox"] is None  # nothing is allowed
    assert shown.found[0][1]["srcdoc"] == made.html
    made.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text() == made.html
    assert made.svg(made.charts[0]).startswith("<svg ")


@pytest.mark.slow
def test_report_of_a_long_run_is_small(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with LedgerApplication.open(home.ledger, REGISTRY) as log:
        run = synthetic_run(log, epochs=200, exploding=range(0, 200, 20), dead=range(5, 200, 9))
        synthetic_audit(log, run)
    assert len(page_of(read_source(home, "latest"))) < 1_000_000  # of real runs: 5 million
