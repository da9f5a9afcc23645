"""Comparisons: which cells there are, and in which order they can be recorded."""

from uuid import uuid4

import pytest

from aggregates.comparison import Cell, Comparison
from aggregates.errors import InvariantError

POLICIES = [{"name": "nothing"}, {"name": "playbook"}]
CONDITIONS = {"hot": {"lr": 3.0}, "mild": {"lr": 0.1}}


def begun() -> Comparison:
    return Comparison.start(policies=POLICIES, conditions=CONDITIONS, seeds=[0, 1])


def test_same_plan_has_the_same_id_and_another_name_another() -> None:
    assert begun().id == begun().id
    other = Comparison.start(policies=POLICIES, conditions=CONDITIONS, seeds=[0, 1], name="again")
    assert other.id != begun().id


def test_comparison_ends_when_each_cell_is_done() -> None:
    comparison = begun()
    assert len(comparison.cells) == 8
    for cell in comparison.cells:
        with pytest.raises(InvariantError, match="all of its cells"):
            comparison.end()
        comparison.allot(cell, str(uuid4()))
        comparison.finish(cell, audit="a", problem=None)
    comparison.end()
    assert comparison.ended


def test_cell_that_was_cut_off_is_given_another_run_until_it_is_done() -> None:
    comparison = begun()
    cell = Cell("nothing", "hot", 1)
    with pytest.raises(InvariantError, match="no run has started"):
        comparison.finish(cell, audit="a", problem=None)
    comparison.allot(cell, "one")
    with pytest.raises(InvariantError, match="already belongs"):
        comparison.allot(cell, "one")
    comparison.allot(cell, "two")
    with pytest.raises(InvariantError, match="give an audit"):
        comparison.finish(cell, audit=None, problem=None)
    comparison.finish(cell, audit=None, problem="it failed")
    assert comparison.runs[cell] == "two"
    with pytest.raises(InvariantError, match="is finished"):
        comparison.allot(cell, "three")
    with pytest.raises(InvariantError, match="is finished"):
        comparison.finish(cell, audit="a", problem=None)
    with pytest.raises(InvariantError, match="not part of"):
        comparison.allot(Cell("random", "hot", 1), "four")


@pytest.mark.parametrize(
    ("policies", "conditions", "seeds"),
    [
        ([], CONDITIONS, [0]),
        (POLICIES, {}, [0]),
        (POLICIES, CONDITIONS, []),
        (POLICIES * 2, CONDITIONS, [0]),
        (POLICIES, CONDITIONS, [0, 0]),
    ],
)
def test_plan_that_compares_nothing_or_anything_twice_is_rejected(
    policies: list[dict[str, str]], conditions: dict[str, dict[str, float]], seeds: list[int]
) -> None:
    with pytest.raises(InvariantError):
        Comparison.start(policies=policies, conditions=conditions, seeds=seeds)
