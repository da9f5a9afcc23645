"""The tasks from this repository's history: their form, and that they tell worse from better.

A stand-in for a language model answers over real HTTP and solves what it is shown. One change
leaves less room for files in the prompt, so that some which are needed are not shown any more. The
other shows the files that the issue names first.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import studies.reference.seeds
from chat_server import ChatServer
from gauntlet_lines import Line
from solving_model import solving
from studies.reference.scorers import SCORERS

from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import Evaluation, compare
from judge.gauntlet.repository.manifest import parse_manifest
from judge.gauntlet.tasks.benchmark import Arm, TaskResult, run_task
from judge.gauntlet.tasks.hidden_tests import BY_MODEL, Bench, ByTests, snapshot_of
from judge.gauntlet.tasks.history import examine
from judge.gauntlet.tasks.reference_set import load
from judge.gauntlet.tasks.scoring import Scorer
from policies.asking.settings import ModelSettings
from proctor.improvement.server import LineServer
from proctor.sample.init import git

ROOT = Path(studies.reference.seeds.__file__).parents[3]
WHOLE = load(ROOT / "docs/studies/reference_tasks", scorers=SCORERS)
IMPLEMENT = WHOLE.unasked  # no server is configured here
PLAN = tuple(task for task in WHOLE.tasks if task.kind == "plan")
FROM_RUNS = tuple(task for task in WHOLE.tasks if task.entry.source.startswith("run "))
COMMITS = (*IMPLEMENT, *PLAN)
PROPOSER = "policies/proposing/proposer.py"
LESS_ROOM = {"MOST_SHOWN = 60_000": "MOST_SHOWN = 15_000"}
NAMED_FIRST = {
    "*_shown(request.files)": "*_shown(request.files, request.wanted)",
    "def _shown(files: Mapping[str, str])": "def _shown(files: Mapping[str, str], wanted: str)",
    "key=lambda item: (len(item[1]), item[0])": (
        "key=lambda item: (item[0] not in wanted, len(item[1]), item[0])"
    ),
}


def test_tasks_from_history_are_of_every_kind_and_difficulty() -> None:
    assert len(COMMITS) + len(FROM_RUNS) >= 10
    assert min(map(len, (IMPLEMENT, PLAN, FROM_RUNS))) >= 1
    assert {task.entry.difficulty for task in COMMITS} == {"easy", "medium", "hard"}
    assert sum("edge" in task.entry.categories for task in IMPLEMENT) >= 3
    assert all(task.entry.source.endswith(", verified") for task in FROM_RUNS)
    for task in COMMITS:
        assert task.entry.source == f"commit {task.entry.source_commit}"
        assert task.files.keys() == {"files.json", "issue.md"}
    for task in IMPLEMENT:
        assert (task.scorer, task.stochastic) == (BY_MODEL, False)
        assert not snapshot_of(task).keys() & task.expected["tests"].keys()
    for task in PLAN:
        assert set(task.expected["needed"]) <= snapshot_of(task).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [task.task_id for task in IMPLEMENT])
def test_hidden_tests_fail_before_the_real_change_and_pass_after_it(
    name: str, tmp_path: Path
) -> None:
    (task,) = (each for each in IMPLEMENT if each.task_id == name)
    manifest = parse_manifest((ROOT / "judge/tiers.toml").read_bytes())
    examine(task, Bench(manifest=manifest, scratch=tmp_path), repeats=1)


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Scorer]]:
    """The scorers, with the stand-in behind those for a model."""
    line = Line(tmp_path_factory.mktemp("line"), ("late-rows",))
    with ChatServer(solving(IMPLEMENT)) as chat, line.log() as log:
        settings = ModelSettings(model="stand-in", base_url=chat.url, rung="json_schema")
        server = LineServer(settings, line=line.id, log=log, blobs=line.home.blobs)
        yield {**SCORERS, BY_MODEL: ByTests(by_model=True, server=server)}


Answers = Callable[[Mapping[str, str], Arm], list[TaskResult]]


@pytest.fixture(scope="module")
def answers(scorers: Mapping[str, Scorer], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Answers to all tasks from commits, by this tree with some texts replaced."""
    manifest = parse_manifest((ROOT / "judge/tiers.toml").read_bytes())

    def ask(changes: Mapping[str, str], arm: Arm) -> list[TaskResult]:
        tree, scratch = (tmp_path_factory.mktemp(name) for name in ("tree", "scratch"))
        for path in git(ROOT, "ls-files").splitlines():
            if not path.startswith(("tests/", "docs/studies/reference_tasks/tasks/")):
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes((ROOT / path).read_bytes())
        text = (tree / PROPOSER).read_text()
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (tree / PROPOSER).write_text(text)
        return [
            run_task(task, tree, manifest, scorers=scorers, arm=arm, scratch=scratch)
            for task in COMMITS
        ]

    return ask


@pytest.fixture(scope="module")
def base(answers: Answers) -> list[TaskResult]:
    return answers({}, "base")


def evaluated(base: list[TaskResult], candidate: list[TaskResult]) -> Evaluation:
    settings = ComparisonSettings(confirmed=1)  # the stand-in's answers are steady
    return compare([*base, *candidate], tasks=COMMITS, level=0.05, settings=settings)


@pytest.mark.slow
def test_change_that_degrades_is_found_worse(base: list[TaskResult], answers: Answers) -> None:
    found = evaluated(base, answers(LESS_ROOM, "candidate"))
    assert found.verdict == "worse"
    assert {name.partition("-")[0] for name in found.regressions} == {"history", "plan"}, found


@pytest.mark.slow
def test_change_that_improves_is_found_better(base: list[TaskResult], answers: Answers) -> None:
    found = evaluated(base, answers(NAMED_FIRST, "candidate"))
    assert (found.verdict, found.regressions) == ("better", ())
    assert {name.partition("-")[0] for name in found.improvements} == {"history", "plan"}, found
