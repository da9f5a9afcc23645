"""Honest tasks of every size are judged, also where two draws of few examples are compared."""

from pathlib import Path
from unittest import mock

import pytest
from forked import tasks_forked
from frontdoor import answer, call_here
from hostile_tasks import HONEST, recorded

from judge.auditing.task_gates import tenths
from monitor.task_loop import open_here


def test_a_part_has_ten_pieces_whatever_its_size() -> None:
    for count in range(1, 201):
        pieces = tenths(count)
        assert len(pieces) == 10
        assert [place for piece in pieces for place in range(*piece)] == list(range(count))
        sizes = {stop - start for start, stop in pieces}
        assert max(sizes) - min(sizes) <= 1


def judged(home: Path, count: int) -> set[str]:
    recorded(home, HONEST, f"test_rows={count}")
    verdict = answer(call_here(["judge", "--json"], home=home))
    return {step["status"] for step in verdict["steps"]}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [1, 51])
def test_task_with_few_test_examples_is_judged(tmp_path: Path, count: int) -> None:
    with tasks_forked():
        assert judged(tmp_path, count) <= {"passed", "violations"}


@pytest.mark.slow  # 200 runs
@pytest.mark.parametrize("first", range(1, 201, 20))
def test_task_of_every_size_is_judged(tmp_path: Path, first: int) -> None:
    with mock.patch("judge.auditing.task_gates.confined_workers", return_value=open_here):
        for count in range(first, first + 20):
            home = tmp_path / str(count)
            home.mkdir()
            assert judged(home, count) <= {"passed", "violations"}, count
