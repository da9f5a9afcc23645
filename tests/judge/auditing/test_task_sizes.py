"""Honest tasks of every size are judged, also where two draws of few examples are compared."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from frontdoor import answer, call_here
from hostile_tasks import HONEST, recorded
from task_runs import open_here

from aggregates.spec import WatchedModel
from judge.auditing.task_gates import TaskGates, tenths
from judge.config import JudgeConfig
from monitor.task_data import load_task_data
from monitor.task_worker import TRAIN
from monitor.tasks import read_task

# Around the tens, and where `chunk(10)` of torch gives fewer pieces.
SIZES = (2, 9, 10, 11, 19, 49, 50, 54, 61, 63, 72, 81, 99, 100, 101, 199, 200)


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
    assert judged(tmp_path, count) <= {"passed", "violations"}


def test_judge_without_room_blames_itself_and_not_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, HONEST, "test_rows=8")
    with monkeypatch.context() as full:
        full.setattr("monitor.stored._KEPT_FREE", 2**60)
        refused = call_here(["judge", "--json"], home=tmp_path)
    assert refused.returncode == 2
    assert "make room" in answer(refused)["message"]
    verdict = answer(call_here(["judge", "--json"], home=tmp_path))
    assert {step["status"] for step in verdict["steps"]} <= {"passed", "violations"}


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((*range(1, 13), *SIZES[4:], *range(20, 200, 17)), id="some"),
        pytest.param(range(1, 201), id="every", marks=pytest.mark.slow),
    ],
)
def test_steps_that_depend_on_the_size_pass(tmp_path: Path, sizes: Sequence[int]) -> None:
    """Steps 6, 7 and 10 without the record, and so without a run for each size."""
    source = HONEST.encode()
    text = read_task(source, "task.py")
    for count in sizes:
        config = text.configure({"test_rows": count})
        data = load_task_data(
            source, config, open_here, decoded=tmp_path, keep_test=True, draw=count
        )
        with open_here(source, config, keep=TRAIN) as worker:
            spec = worker.ask("start", {}, data.blob)[0]["spec"]
            _, weights = worker.ask("weights", {})
        gates = TaskGates.__new__(TaskGates)
        started = SimpleNamespace(spec=spec)
        parts: dict[str, Any] = {
            "replay": SimpleNamespace(task_config=config, started=started, spec_problems=[]),
            "submission": SimpleNamespace(model=source, weights=weights),
            "saved": SimpleNamespace(spec=WatchedModel.from_dict(spec)),
            "config": JudgeConfig(),
            "data": data,
            "_open": open_here,
        }
        with mock.patch.multiple(gates, create=True, **parts):
            gates.architecture()
            gates.scored = gates._score()
            assert gates._verify_metrics() == []
            assert len(gates._verify_unseen()) == (count < 50), count
            assert gates.test_metric().evidence["examples"] == count


@pytest.mark.slow  # a run each
@pytest.mark.parametrize("count", SIZES)
def test_task_of_many_a_size_is_judged(tmp_path: Path, count: int) -> None:
    with mock.patch("judge.auditing.task_gates.confined_workers", return_value=open_here):
        assert judged(tmp_path, count) <= {"passed", "violations"}
