"""Columns of tables, which the terminal and pages share."""

from types import SimpleNamespace

from proctor.output.columns import cells, field, fields, figure, figures
from proctor.output.terminal import dotted
from proctor.reports.tables import table

COLUMNS = [
    *fields("run"),
    figure("accuracy score"),
    figure("cells", "runs"),
    field("ended", lambda row: "yes"),
]


def test_column_shows_the_value_that_is_called_like_it_of_a_map_or_an_object() -> None:
    row = {"run": "a", "accuracy_score": 0.5, "runs": 3}
    shown = [["a", 0.5, 3, "yes"]]
    assert cells(COLUMNS, [row]) == cells(COLUMNS, [SimpleNamespace(**row)]) == shown
    part = table("Runs", COLUMNS, [row])
    assert part["rows"] == shown
    assert part["columns"] == COLUMNS
    assert [column.title for column in COLUMNS] == ["run", "accuracy score", "cells", "ended"]
    assert [column.number for column in COLUMNS] == [False, True, True, False]
    assert [column.number for column in (*figures("a"), *fields("a"))] == [True, False]


def test_dotted_names_lead_to_what_a_map_says() -> None:
    said = {"a": {"b": 1, "c": [], "d": {}}, "e": None}
    assert list(dotted(said)) == [("a.b", 1), ("a.c", []), ("a.d", {}), ("e", None)]
    assert list(dotted([1])) == list(dotted({})) == []
