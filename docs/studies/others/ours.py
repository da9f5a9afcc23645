"""The gate on the problem: in this process, and through the front door.

In this process the gate's own functions decide (judge/gauntlet/comparison), with its settings and
its budget of error, on pairs of answers of a repository's one stochastic task; times do not count.
Through the front door it is `proctor line evolve` on a repository with that task, whose answers are
given by confined processes: the same, at a fifth of a second an answer.

I/O: folders, processes and git for the front door.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

from judge.gauntlet.comparison.evaluate import compare, error_level, wanted_pairs
from judge.gauntlet.comparison.weighing import Terms
from judge.gauntlet.tasks.benchmark import ARMS, TaskResult
from judge.gauntlet.tasks.reference_set import Task, TaskEntry, write_tasks
from proctor.sample.init import git
from studies.others import problem as problem_module
from studies.others.problem import Problem, changed

_ROOT = Path(__file__).resolve().parents[3]
_SET, _NUMBERS = "judge/reference_tasks", "numbers.toml"
_MANIFEST = f"""version = 1
line = "main"
reference_set = "{_SET}"

[tiers]
0 = ["judge/**", "tests/**"]
1 = []
2 = ["{_NUMBERS}"]

[controller]
paths = ["judge/**"]

[config]
paths = []

[tests]
command = ["{{python}}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={{report}}"]
paths = ["tests/**"]
additions = []
seconds = 120
memory_bytes = 1_000_000_000

[benchmark]
command = ["{{python}}", "{_SET}/worker.py"]
seconds = 20
memory_bytes = 500_000_000
representative = []

[code]
imports = []
"""
_WORKER = f"""import json
import sys
from pathlib import Path
from random import SystemRandom

from problem import Problem

opening = json.loads(sys.stdin.readline())
text = Path("{_NUMBERS}").read_text()
print(json.dumps({{"ready": True}}), flush=True)
for _ in sys.stdin:
    problem = Problem(**opening["parameters"])
    print(json.dumps(problem.passes(text, case=opening["seed"], luck=SystemRandom())), flush=True)
"""
_TEST = f"""import tomllib
from pathlib import Path


def test_numbers_are_digits():
    found = tomllib.loads(Path("{_NUMBERS}").read_text())
    assert len(found) == {len(problem_module.NAMES)}
    assert all(type(each) is int and 0 <= each <= 9 for each in found.values())
"""


def _task(kind: str, seed: int) -> Task:
    """Return the task: is a drawn case passed?"""
    return Task(
        entry=TaskEntry(
            task_id="cases",
            source="the study of others",
            source_commit=None,
            description="A drawn case is passed.",
            expected_outcome="true",
            expected_diff_path=None,
            categories=("cases",),
            difficulty="medium",
            added_by="the study",
            added_at=date(2026, 11, 27),
            regression_anchor_for=None,
        ),
        kind="case",
        stochastic=True,
        scorer="exact",
        parameters={"kind": kind, "seed": seed},
        expected={"answer": True},
        files={},
    )


def in_process(*, kind: str, seed: int, calls: int, building: float = 0.0) -> Mapping[str, Any]:
    """Return the heads with what was measured of them, and the cases spent.

    In a share `building` of the calls, the proposer is shown no head but a change that was given up
    undecided, drawn by what it seemed to gain.
    """
    problem, task = Problem(kind, seed), _task(kind, seed)
    luck = Random(f"{kind} {seed}")  # noqa: S311 - repeatable
    best: list[list[Any]] = [[None, problem.text]]
    earlier, judged, spent = list[bool](), set[str](), 0
    given_up: list[tuple[float, str, str]] = []  # seeming gain, the head then, the candidate
    for call in range(1, calls + 1):
        head = shown = best[-1][1]
        parents = {_carried(*change, to=head): gain for gain, *change in given_up if gain > 0}
        parents.pop(head, None)
        if building and parents and luck.random() < building:
            (shown,) = luck.choices([*parents], weights=[*parents.values()])
        _, _, candidate = changed(shown, seed=seed, call=call)
        if candidate in judged or candidate == head:  # the fence ends it
            continue
        judged.add(candidate)
        texts, results = dict(zip(ARMS, (head, candidate), strict=True)), list[TaskResult]()
        terms: Terms = {"level": error_level(earlier), "timed": False}
        while pairs := wanted_pairs(results, tasks=[task], **terms):
            for _, repeat in pairs:
                case = luck.getrandbits(63)
                for arm in luck.sample(ARMS, k=len(ARMS)):
                    success = problem.passes(texts[arm], case=case, luck=luck)
                    results.append(_result(arm, repeat, case, success=success))
        found = compare(results, tasks=[task], **terms)
        spent += len(results)
        earlier.append(found.verdict == "better")
        ((before, claimed),) = (each.success or (0.0, 0.0) for each in found.comparisons)
        if found.verdict == "cannot tell":
            given_up.append((float(claimed or 0) - float(before or 0), head, candidate))
        if found.verdict == "better":
            best.append([claimed, candidate])
            judged.clear()  # it is another base now
    return {"best": best, "cases": spent}


def _carried(base: str, candidate: str, *, to: str) -> str:
    """Return a change carried to another head; the head itself where it does not apply."""
    old, new, lines = base.splitlines(), candidate.splitlines(), to.splitlines()
    edits = {place: b for place, (a, b) in enumerate(zip(old, new, strict=True)) if a != b}
    if any(lines[place] != old[place] for place in edits):
        return to
    return "".join(f"{edits.get(place, line)}\n" for place, line in enumerate(lines))


def climbing(*, kind: str, seed: int, calls: int, cases: int) -> Mapping[str, Any]:
    """Return the same of a plain search, from the best so far: the higher share of cases wins."""
    problem = Problem(kind, seed)
    luck = Random(f"{kind} {seed}")  # noqa: S311 - repeatable

    def share(text: str) -> float:
        drawn = [problem.passes(text, case=luck.random(), luck=luck) for _ in range(cases)]
        return sum(drawn) / cases

    best = [(share(problem.text), problem.text)]
    for call in range(1, calls + 1):
        _, _, candidate = changed(best[-1][1], seed=seed, call=call)
        if (score := share(candidate)) > best[-1][0]:
            best.append((score, candidate))
    return {"best": best, "cases": cases * (calls + 1)}


def _result(arm: Any, repeat: int, seed: int, *, success: bool) -> TaskResult:
    return TaskResult(
        task_id="cases",
        arm=arm,
        repeat=repeat,
        seed=seed,
        success=success,
        validation_failures=0,
        metrics={},
        problem=None,
        isolation=(),
    )


def front_door(*, kind: str, seed: int, calls: int, url: str, folder: Path) -> Mapping[str, Any]:
    """Return the same, of a repository in a new folder that is put under the gauntlet."""
    repo, home = folder / "repo", folder / "home"
    files = {
        _NUMBERS: Problem(kind, seed).text,
        "judge/tiers.toml": _MANIFEST,
        f"{_SET}/worker.py": _WORKER,
        f"{_SET}/problem.py": Path(str(problem_module.__file__)).read_text(encoding="utf-8"),
        "tests/test_numbers.py": _TEST,
    }
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text, encoding="utf-8")
    write_tasks(repo / _SET, [_task(kind, seed)])
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "Twelve numbers")
    git(repo, "switch", "--quiet", "--create", "work")

    def proctor(*words: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}
        return subprocess.run(  # noqa: S603 - arguments are our own
            (sys.executable, "-m", "proctor", *words),
            cwd=folder,
            env={**environment, "PROCTOR_HOME": str(home), "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    model = ("--set", "model=mutator", "--set", f"base_url={url}")
    proctor(
        *("line", "evolve", "--proposals", str(calls), "--probes", "0", "--repo", str(repo)), *model
    )
    asked = "SELECT commit, e.comparisons FROM infra_proposals JOIN infra_evaluations e"
    asked += " USING (proposal_id) WHERE status = 'promoted' ORDER BY e.idx"
    best: list[list[Any]] = [[None, Problem(kind, seed).text]]
    for each in json.loads(proctor("sql", asked, "--json")):
        compared = each["comparisons"]
        (one,) = json.loads(compared) if isinstance(compared, str) else compared
        best.append([one["success"][1], git(repo, "show", f"{each['commit']}:{_NUMBERS}")])
    (told,) = json.loads(proctor("sql", "SELECT count(*) n FROM infra_task_scores", "--json"))
    return {"best": best, "cases": told["n"]}


def processor_seconds() -> float:
    """Return what this process and those that it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
