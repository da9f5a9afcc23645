"""What the figures and the page of the playbook study say of its table is what the table says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/studies/rules.md").read_text(encoding="utf-8")
_DIFFERENCE = re.compile(r"([+-]\d\.\d{3}) \(([+-]\d\.\d{3}) to ([+-]\d\.\d{3})\)")


def counted(column: int) -> tuple[int, int, int, int]:
    """Return the faulty rows, and how many have a mean above 0, an interval above and below 0."""
    table = PAGE.split("## Results")[1].split("##")[0]
    faulty = (line for line in table.splitlines() if line[:2] == "| " and "healthy" not in line)
    found = [_DIFFERENCE.findall(line) for line in faulty]
    rows = [tuple(map(float, each[column])) for each in found if len(each) == 2]
    return (
        len(rows),
        sum(mean > 0 for mean, _, _ in rows),
        sum(low > 0 for _, low, _ in rows),
        sum(high < 0 for _, _, high in rows),
    )


def test_figures_state_the_gain_over_chance_beside_the_gain_over_no_action() -> None:
    figures = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    for column, against in enumerate(("no action", "random answers")):
        (row,) = [line for line in figures.splitlines() if f"[Playbook minus {against}](" in line]
        rows, above, surely, below = counted(column)
        assert below == 0
        told = f"mean above 0 in {above} of {rows} rows, interval above 0 in {surely}"
        assert f"{told} and below 0 in none" in row


def test_study_page_counts_its_rows_rightly() -> None:
    text = " ".join(PAGE.split())
    rows, above, surely, _ = counted(1)
    told = f"the mean is above 0 in {above} of {rows} rows, the interval above 0 in {surely}"
    assert f"Against `random` {told}" in text
