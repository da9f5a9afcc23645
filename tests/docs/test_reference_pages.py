"""The reference pages say what the code does."""

import dataclasses
import re
from pathlib import Path

import pytest
from frontdoor import call
from studies.pages import PAGES
from studies.pages.cli import command_names

from aggregates.playbook import DIRECTIONS, REMEDIES
from aggregates.registry import REGISTRY
from aggregates.rules import PROFILES, RulesConfig
from aggregates.transcript import OUTCOMES
from judge.config import LIMITS
from monitor.config import RunConfig

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """Return the table rows of a page by the code in their first cell."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_events_page_lists_every_event_with_its_fields() -> None:
    text = page("events.md")
    sections = dict(re.findall(r"### (\S+\.\S+)\n(.*?)(?=\n### |\n## |\Z)", text, re.DOTALL))
    assert set(sections) == {each.name for each in REGISTRY}
    library = {"originator_id", "originator_version", "timestamp", "originator_topic"}
    for each in REGISTRY:
        fields = {field.name for field in dataclasses.fields(each.event_class)} - library
        first = sections[each.name].split("`measured` is made of")[0]
        assert set(re.findall(r"\*\*(\w+)\*\*", first)) == fields, each.name


def test_events_page_explains_every_outcome_of_a_call() -> None:
    explained = re.findall(
        r"^- `(\w+)`: ", page("events.md").split("### transcript.call_made")[1], re.M
    )
    assert tuple(explained) == OUTCOMES


def test_audit_page_lists_every_limit() -> None:
    limits = page("audit.md").split("## Limits")[1].split("## Where")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", limits, re.M)))
    assert sorted(named) == sorted(LIMITS)


def test_configuration_page_lists_every_key_with_its_default() -> None:
    found = rows(page("configuration.md").split("## Environment")[0])
    assert set(found) == {field.name for field in dataclasses.fields(RunConfig)}
    for field in dataclasses.fields(RunConfig):
        default = field.default
        shown = found[field.name][0].strip("`")
        if default is None:
            assert shown == "none"
        elif isinstance(default, bool):
            assert shown == str(default).lower()
        elif isinstance(default, tuple):
            assert shown == "[]"
        elif isinstance(default, float):
            assert float(shown) == default
        else:
            assert shown == str(default)


def test_rules_page_has_the_figures_of_each_profile() -> None:
    found = rows(page("rules.md"))
    names = {field.name for field in dataclasses.fields(RulesConfig)} - {"profile", "names"}
    assert set(found) >= names
    for name in names:
        for column, profile in enumerate(PROFILES):
            value, shown = getattr(PROFILES[profile], name), found[name][column]
            assert (float(shown) == value) if isinstance(value, float) else (shown == str(value))


def test_decisions_page_lists_every_direction_and_side() -> None:
    text = page("rules.md").split("## Decisions")[1]
    assert all(f"`{direction}`" in text for direction in REMEDIES)
    table = text.split("### What fits which rule")[1]
    shown = {
        (rule, side.strip()): directions
        for rule, sides, directions in re.findall(
            r"^\| (R\d) \| ([^|]+) \| ([^|]+) \|", table, re.M
        )
        for side in sides.split(",")
    }
    for rule, sides in DIRECTIONS.items():
        for side, directions in sides.items():
            assert shown[rule, side].strip() == ", ".join(directions)


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_its_writer_writes(name: str) -> None:
    assert PAGES[name]() == (DOCS / name).read_text("utf-8"), "run: python docs/studies pages"


def test_cli_page_has_every_command() -> None:
    names = command_names()
    assert {"verify", "keys rotate", "witness ask", "notary"} <= set(names)
    assert re.findall("^## (.*)$", page("cli.md"), re.M)[1:] == names


@pytest.mark.parametrize("command", ["verify", "export model", "run", "line bisect", "keys grant"])
def test_cli_page_names_each_option_that_help_shows(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = call([*command.split(), "--help"], home=None).stdout
    (told,) = re.findall(rf"^## {command}\n(.*?)(?=^## |\Z)", page("cli.md"), re.M | re.DOTALL)
    everywhere = {
        "--help",
        "--home",
        "--vkey",
        "--json",
        "--json-schema",
    }  # the page's beginning has them
    options = set(re.findall(r"^\W*(?:-\w, )?(--[a-z-]+)", shown, re.M)) - everywhere
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", told))


def test_words_are_sorted_and_each_is_told_once() -> None:
    found = re.findall(r"^- \*\*(\S.*?)\*\*: ", page("glossary.md"), re.MULTILINE)
    assert len(found) > 50
    assert found == sorted(set(found), key=str.lower)


def test_links_between_pages_lead_somewhere() -> None:
    for source in (*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")):
        text = re.sub(r"```.*?```", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert (source.parent / link).exists(), f"{source.relative_to(DOCS.parent)}: {link}"


def test_no_page_has_two_versions_of_a_merge() -> None:
    marks = re.compile(r"^(<<<<<<< |=======$|>>>>>>> )", re.MULTILINE)
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    assert len(pages) > 50
    assert not [str(page) for page in pages if marks.search(page.read_text(encoding="utf-8"))]


def test_sections_that_code_names_exist() -> None:
    named = re.compile(
        r'docs/((?:explanation|how-to|reference|studies)/[a-z-]+\.md)((?:, "[^"\n]+")*)'
    )
    seen = 0
    for package in ("aggregates", "judge", "ledger", "monitor", "policies", "proctor"):
        for source in (DOCS.parent / package).rglob("*.py"):
            for name, sections in named.findall(source.read_text(encoding="utf-8")):
                text = (DOCS / name).read_text(encoding="utf-8")
                for section in re.findall(r'"([^"]+)"', sections):
                    assert re.search(rf"^#+ {re.escape(section)}$", text, re.MULTILINE), source
                    seen += 1
    assert seen > 50


def test_figures_count_the_attacks_that_the_pages_list() -> None:
    told = (DOCS / "figures.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"(\d+) documented attacks on a ledger.*?; (\d+) \[on the gauntlet", told)
    for number, name in zip(found, ("threats.md", "gauntlet-threats.md"), strict=True):
        assert re.findall(r"all (\d+) attacks", " ".join(page(name).split())) == [number], name
