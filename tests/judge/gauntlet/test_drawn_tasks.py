"""Stochastic tasks of the sample: what is drawn, and what the gate decides by them alone."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from gauntlet_lines import SELECTION, SETTINGS, Line

import proctor.sample.tasks
from aggregates.improvement.proposal import Proposal
from judge.bisection.probes import tasks_oracle, with_repeats
from judge.errors import BisectionError
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import compare, error_level
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError, TaskError
from judge.gauntlet.tasks.benchmark import Arm, TaskResult, drawn_seed
from judge.gauntlet.tasks.reference_set import Task, load, write_tasks
from judge.gauntlet.tasks.scoring import SCORERS, Ask, drawn, told_seed
from proctor.sample.tasks import make_tasks

TASKS = {task.task_id: task for task in make_tasks(seed=1)}
STOCHASTIC = [task for task in TASKS.values() if task.stochastic]
# What 20 pairs show by default, fewer show in fewer processes.
FEWER = ComparisonSettings(confirmed=2, first=8)


def judged(controller: Controller, line: Line, path: str, before: str, after: str) -> Proposal:
    diff = line.diff(path, lambda text: text.replace(before, after))
    proposal = controller.submit(
        diff,
        declared={path: 2},
        rationale="Try it.",
        trigger="operator_request",
        proposer="a test",
    )
    return controller.carry_on(proposal.id)


def test_at_least_a_third_of_the_samples_tasks_are_stochastic() -> None:
    assert len(STOCHASTIC) >= len(TASKS) / 3


@pytest.mark.parametrize("task", STOCHASTIC, ids=lambda task: str(task.task_id))
def test_drawn_task_is_another_for_each_seed_and_can_be_answered(task: Task) -> None:
    drawings = [drawn(task.with_seed(seed), SCORERS) for seed in range(40)]
    assert len({each.sha256 for each in drawings}) == 40
    assert drawn(task.with_seed(7), SCORERS).sha256 == drawings[7].sha256
    assert len({each.parameters["query"] for each in drawings}) == len(task.expected["topics"])
    for seed, each in enumerate(drawings):
        documents = json.loads(each.files["documents.json"])
        names = [document["id"] for document in documents]
        assert len(set(names)) == len(names) == task.expected["documents"]
        assert set(each.expected["needed"]) <= set(names)
        assert (each.seed, each.scorer) == (told_seed(seed), "selection")
        found = SCORERS["selection"](each, repeating(each.expected["needed"]))
        assert found.success


def test_pool_that_is_too_small_is_rejected() -> None:
    (task, *_) = STOCHASTIC
    expected = {**task.expected, "documents": 10_000}
    with pytest.raises(GauntletError, match=r"has too few documents to draw from"):
        drawn(msgspec.structs.replace(task, expected=expected), SCORERS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cap": 1.5}, "whole numbers are expected"),
        ({"topics": []}, "at least one is expected"),
        ({"topics": [{"query": "a"}]}, "query, needed and rivals are expected"),
        ({"cap": 1}, "as many documents are needed as the cap lets in"),
        ({"more": 1}, "nothing else is expected"),
    ],
)
def test_pool_that_nothing_can_be_drawn_from_is_rejected(
    tmp_path: Path, change: Mapping[str, Any], words: str
) -> None:
    (task, *_) = STOCHASTIC
    write_tasks(tmp_path, [msgspec.structs.replace(task, expected={**task.expected, **change})])
    with pytest.raises(TaskError, match=words):
        load(tmp_path)


def repeating(answer: object) -> Ask:
    return lambda _: answer


def answers(
    names: Sequence[str], arm: Arm, seeds: Sequence[int], choose: Callable[..., list[str]]
) -> list[TaskResult]:
    """Answer each task once for each seed, in this process."""
    results = []
    for name, (repeat, seed) in product(names, enumerate(seeds)):
        task = drawn(TASKS[name].with_seed(seed), SCORERS)
        query, cap = task.parameters["query"], task.parameters["cap"]
        said = choose(json.loads(task.files["documents.json"]), query, cap)
        score = SCORERS[task.scorer](task, repeating(said))
        results.append(
            TaskResult(
                task_id=name,
                arm=arm,
                repeat=repeat,
                seed=seed,
                success=score.success,
                validation_failures=score.validation_failures,
                metrics=dict(score.metrics),
                problem=score.problem,
                isolation=(),
            )
        )
    return results


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"length_penalty": 0.05, "title_weight": 2.0}, "better"),
        ({"length_penalty": 0.0, "title_weight": 2.0}, "cannot tell"),
        ({"length_penalty": 0.05, "title_weight": 0.0}, "worse"),
    ],
)
def test_gate_decides_by_the_samples_stochastic_tasks_alone(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, float], verdict: str
) -> None:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(Path(proctor.sample.tasks.__file__).with_name("files"))
    component, scoring, selection = (
        importlib.import_module(f"retrieval.{name}")
        for name in ("component", "scoring", "selection")
    )

    def chooser(told: Mapping[str, float]) -> Callable[..., list[str]]:
        numbers = component.Settings(**told)
        return lambda documents, query, cap: list(
            selection.select(scoring.score_documents(documents, query, numbers), cap=cap)
        )

    names = [task.task_id for task in STOCHASTIC]
    seeds = [drawn_seed(STOCHASTIC[0], Random(number)) for number in range(50)]
    base = chooser({"length_penalty": 0.0, "title_weight": 2.0})
    found = compare(
        [
            *answers(names, "base", seeds, base),
            *answers(names, "candidate", seeds, chooser(settings)),
        ],
        tasks=STOCHASTIC,
        level=error_level([]),
    )
    assert found.verdict == verdict
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "retrieval":
            del sys.modules[name]


@pytest.mark.slow
def test_change_is_promoted_for_what_only_a_stochastic_task_shows(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows", "drawn-long-rivals"), settings=FEWER)
    with line.controller() as controller:
        penalty = "length_penalty = 0.0", "length_penalty = 0.05"
        found = judged(controller, line, SETTINGS, *penalty)
    assert (found.outcome, found.verdict) == ("promoted", "better")
    assert found.improvements == ["drawn-long-rivals"]
    seeds: dict[int, set[int]] = {}
    for (_, task, repeat), result in found.results.items():
        if task == "drawn-long-rivals":
            seeds.setdefault(repeat, set()).add(result["seed"])
    assert len(seeds) >= FEWER.first
    assert all(len(each) == 1 for each in seeds.values())  # one of both arms
    assert len(set.union(*seeds.values())) == len(seeds)  # and another for each pair


@pytest.mark.slow
def test_change_that_harms_a_stochastic_task_is_rejected_and_one_without_effect(
    tmp_path: Path,
) -> None:
    line = Line(tmp_path, ("late-rows", "drawn-titles"), settings=ComparisonSettings())
    with line.controller() as controller:
        worse = judged(controller, line, SETTINGS, "title_weight = 2.0", "title_weight = 0.0")
        assert (worse.outcome, worse.verdict) == ("rejected", "worse")
        assert worse.regressions == ["drawn-titles"]
        null = judged(controller, line, SELECTION, "ordered[:cap]", "ordered[0:cap]")
        assert (null.outcome, null.verdict) == ("rejected", "cannot tell")


def test_bisection_by_a_stochastic_task_needs_an_error_rate(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows", "drawn-rows"))
    with line.controller() as controller:
        place, commit = controller.place, controller.line.head.commit
        oracle, sure = (
            tasks_oracle(place, good=commit, bad=commit, folder=tmp_path, tasks=[name])
            for name in ("drawn-rows", "late-rows")
        )
        with pytest.raises(BisectionError, match=r"'drawn-rows' is stochastic.*add --error"):
            with_repeats(place, oracle, error=0.0)
        with_repeats(place, oracle, error=0.1)
        with_repeats(place, sure, error=0.0)  # the honest control
