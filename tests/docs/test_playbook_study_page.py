"""What the figures and the page of the playbook study say of its table is what the table says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/studies/rules.md").read_text(encoding="utf-8")
_DIFFERENCE = re.compile(r"([+-]\d\.\d{3}) \(([+-]\d\.\d{3,5}) to ([+-]\d\.\d{3})\)")


def counted(column: int) -> tuple[int, int, int, int]:
    """Return the faulty rows, and how many have a mean above 0, an interval above and below 0."""
    table = PAGE.split("## What the policies are worth")[1].split("\n## ")[0]
    found = [_DIFFERENCE.findall(line) for line in table.splitlines() if line[:2] == "| "]
    rows = [tuple(map(float, each[column])) for each in found if len(each) == 2]
    return (
        len(rows),
        sum(mean > 0 for mean, _, _ in rows),
        sum(low > 0 for _, low, _ in rows),
        sum(high < 0 for _, _, high in rows),
    )


def test_figures_and_readme_state_the_gain_over_chance() -> None:
    figures = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    (row,) = [line for line in figures.splitlines() if "[Rescue minus random answers](" in line]
    rows, above, surely, below = counted(0)
    assert (rows, below) == (22, 0)
    told = f"Mean above 0 in {above} of {rows} faulty rows, interval above 0 in {surely}"
    assert f"{told} and below 0 in none" in row
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"better than `random` in {surely} of {rows} rows, and significantly worse" in readme
    (row,) = [line for line in figures.splitlines() if "[Playbook minus random answers](" in line]
    (found,) = re.findall(r"`playbook` against `random`: (\d+), (\d+) and (\d+)", PAGE)
    above, surely, below = map(int, found)
    told = f"Mean above 0 in {above} of {rows} faulty rows, interval above 0 in {surely} and below"
    assert f"{told} 0 in {below}" in row


def test_study_page_counts_its_rows_rightly() -> None:
    text = " ".join(PAGE.split()).replace("**", "")
    for column, against in enumerate(("random", "playbook")):
        rows, above, surely, below = counted(column)
        assert (rows, below) == (22, 0)
        told = f"{above}, {surely} and {below}"
        if against == "random":
            told = (
                f"the mean is above 0 in {above} of {rows} rows, the interval above 0 in {surely}"
            )
        assert f"gainst `{against}`: {told}" in text
