"""What an answer is worth, by the scorers that every repository can use."""

from collections.abc import Mapping
from typing import Any

import pytest
from made_tasks import made_task

from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.scoring import METRICS, SCORERS, Score


def score(scorer: str, said: Any, /, **expected: Any) -> Score:
    task = made_task(scorer=scorer, expected=expected)
    asked = []

    def ask(message: object) -> Any:
        asked.append(message)
        return said

    found = SCORERS[scorer](task, ask)
    assert asked == [{"ask": "answer"}]
    return found


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ({"b": [1, None], "a": "x"}, True),
        ({"a": "x", "b": [None, 1]}, False),
        ({"a": "x", "b": [1.0, None]}, False),
        ({"a": "x", "b": [True, None]}, False),
        ({"a": "x"}, False),
        (None, False),
    ],
)
def test_exact_answer_is_the_same_json(answer: Any, right: bool) -> None:
    found = score("exact", answer, answer={"a": "x", "b": [1, None]})
    assert (found.success, found.validation_failures, found.metrics) == (right, 0, {})
    assert found.problem == (None if right else "the answer is not the expected one")


@pytest.mark.parametrize(("answer", "right"), [(1, True), ("one", True), (True, False), (2, False)])
def test_acceptable_answer_is_one_of_several(answer: Any, right: bool) -> None:
    assert score("acceptable", answer, answers=[1, "one"]).success is right


@pytest.mark.parametrize(
    ("rows", "success", "metrics", "problem"),
    [
        (["a", "b"], True, (1.0, 1.0, 2.0), None),
        (["b", "x", "a"], True, (1.0, 2 / 3, 3.0), None),
        (["a", "x"], False, (0.5, 0.5, 2.0), "1 of 2 needed rows missing"),
        ([], False, (0.0, 0.0, 0.0), "2 of 2 needed rows missing"),
        (["a", "b", "x", "y"], False, (1.0, 2 / 3, 4.0), "4 rows are chosen; the maximum is 3"),
        (["x", "y", "a", "b"], False, (0.5, 1 / 3, 4.0), "4 rows are chosen; the maximum is 3"),
    ],
)
def test_selection_is_measured_against_what_is_needed(
    rows: list[str], success: bool, metrics: tuple[float, ...], problem: str | None
) -> None:
    found = score("selection", rows, needed=["a", "b"], cap=3)
    assert (found.success, found.problem) == (success, problem)
    assert found.validation_failures == int(len(rows) > 3)
    names = ("recall", "precision", "rows")
    assert found.metrics == dict(zip(names, metrics, strict=True))


@pytest.mark.parametrize("answer", [None, "a", {"rows": ["a"]}, [1], [["a"]], ["a", "a"]])
def test_selection_of_another_form_is_rejected(answer: Any) -> None:
    with pytest.raises(CandidateError, match="the answer"):
        score("selection", answer, needed=["a"], cap=3)


def test_every_measure_of_thrift_has_a_guard() -> None:
    assert {name for name, metric in METRICS.items() if metric.better == "lower"} == {
        name for name, metric in METRICS.items() if metric.guard and metric.better == "lower"
    }
    assert all(m.guard in {None, "success", *METRICS} for m in METRICS.values())


@pytest.mark.parametrize(
    "metrics", [{"speed": 1.0}, {"recall": float("nan")}, {"rows": 3.0}, {"precision": 1.0}]
)
def test_score_with_what_is_no_metric_is_our_error(metrics: Mapping[str, float]) -> None:
    with pytest.raises(GauntletError, match="the scorer returned"):
        Score(success=True, validation_failures=0, metrics=metrics)
