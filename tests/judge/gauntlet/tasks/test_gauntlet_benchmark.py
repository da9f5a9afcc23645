"""A candidate is asked in a process of its own; whatever it does there is its result, no more."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gauntlet_scene import FILES, MANIFEST, Scene
from made_tasks import made_task

from judge.confinement.supervised import ISOLATION
from judge.gauntlet.repository.manifest import Manifest, parse_manifest
from judge.gauntlet.tasks.benchmark import TaskResult, export, run_task, seed_of
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import QUESTION, SCORERS, Ask, Score

CANARY = "canary-77e0b1"
WORKER = """\
import json, sys

def answer(opening):
{body}

opening = json.loads(input())
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(opening)), flush=True)
"""
HONEST = "return sorted(opening['parameters']['rows'])[:2]"
Arms = Callable[..., TaskResult]


def task(task_id: str = f"task-{CANARY}", **fields: Any) -> Task:
    told: dict[str, Any] = {
        "kind": "choice",
        "parameters": {"rows": ["b", "a", "c"]},
        "files": {"docs/a.txt": b"a river"},
        "expected": {"needed": ["a", "b"], "cap": 2},
        "scorer": "selection",
        **fields,
    }
    return made_task(task_id, described=f"Described with {CANARY}.", **told)


@pytest.fixture
def manifest() -> Manifest:
    return parse_manifest(MANIFEST.replace("seconds = 10", "seconds = 4").encode())


@pytest.fixture
def ask(tmp_path: Path, manifest: Manifest) -> Arms:
    """Have a worker with this body, or this text, answer a task."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def ask(body: str, asked: Task | None = None, **settings: Any) -> TaskResult:
        place = tmp_path / "tree/judge/reference_tasks"
        place.mkdir(parents=True, exist_ok=True)
        whole = body if "input()" in body or "stdin" in body else None
        text = whole or WORKER.format(body=textwrap.indent(textwrap.dedent(body), "    "))
        (place / "worker.py").write_text(text)
        found = run_task(
            asked or task(),
            tmp_path / "tree",
            manifest,
            **{"scorers": SCORERS, "arm": "candidate", "scratch": scratch, **settings},
        )
        assert list(scratch.iterdir()) == []
        return found

    return ask


def test_honest_answer_is_scored(ask: Arms) -> None:
    assert ask(HONEST) == TaskResult(
        task_id=f"task-{CANARY}",
        arm="candidate",
        repeat=0,
        seed=7,
        success=True,
        validation_failures=0,
        metrics={"recall": 1.0, "precision": 1.0, "rows": 2.0},
        problem=None,
        isolation=ISOLATION,
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return ['c']", "2 of 2 needed rows missing"),
        ("return ['a', 'b', 'c']", "3 rows are chosen; the maximum is 2"),
        ("return 'a'", "the answer is not a list of row names"),
        ("return float('nan')", "the answer is malformed: NaN and infinity are not allowed"),
        (f"raise ValueError({CANARY!r})", "there is no answer: it exited with status 1"),
        ("import os; os._exit(0)", "there is no answer: it exited with status 0"),
        ("print('[]'); return ['a', 'b']", "it printed more than the replies it was asked for"),
        ("import time; time.sleep(60)", "there is no answer: it ran for more than 4 seconds"),
        (
            "import os, time\nif not os.fork(): time.sleep(60)\nreturn ['a', 'b']",
            "printed more|left 1",
        ),
        ("x = bytearray(3 * 10**9)", "there is no answer: it exited with status 1"),
        ("import sys\nsys.stdin.read()", "there is no answer: it ran for more than 4 seconds"),
        ("input()\nprint('{\"ready\": 1}')", 'the first reply is not {"ready": true}'),
        ('input()\nprint(\'{"ready": true, "a": 1}\')', "the first reply is not"),
    ],
)
@pytest.mark.sampled(3)
def test_bad_answer_is_the_candidates_result(ask: Arms, body: str, problem: str) -> None:
    found = ask(body)
    assert not found.success
    assert found.problem is not None
    assert any(each in found.problem for each in problem.split("|")), found.problem
    assert CANARY not in found.problem
    assert found.missing == problem.startswith("there is no answer")
    wrong = problem in ("2 of 2 needed rows missing",)
    assert found.validation_failures == (0 if wrong else 1)
    assert found.isolation == ISOLATION


def told(ask: Arms, body: str, **settings: Any) -> bool:
    """Tell whether the worker found something: its answer is right if it did."""
    return ask(body, **settings).success


FIND = """
import os, pathlib
text = repr(sorted(os.environ.items())) + repr(opening) + os.getcwd()
for pid in ("self", "1", str(os.getppid())):
    for name in ("cmdline", "environ", "mountinfo"):
        try: text += pathlib.Path("/proc", pid, name).read_text()
        except OSError: pass
# Of /tmp the upper folders only: a checkout there shows its interpreter, with all its packages.
places = [("**/*", opening["input"]), ("**/*", os.getcwd()), ("**/*", os.environ["HOME"])]
for pattern, top in [*places, ("*", "/tmp"), ("*/*", "/tmp")]:
    for path in pathlib.Path(top).glob(pattern):
        text += str(path)
        if path.is_file():
            try: text += path.read_text(errors="replace")
            except OSError: pass
return ["a", "b"] if WHAT in text else []
"""


def test_task_is_not_known_by_its_name_and_answer(ask: Arms) -> None:
    assert not told(ask, FIND.replace("WHAT", f"{CANARY[:7]!r} + {CANARY[7:]!r}"))
    asked = task(expected={"needed": ["a", "b"], "cap": 3})
    assert not told(ask, FIND.replace("WHAT", "'need' + 'ed'"), asked=asked)
    assert not told(ask, FIND.replace("WHAT", "'selec' + 'tion'"))
    # The controls: what it is meant to see it does see.
    assert told(ask, FIND.replace("WHAT", "'a ri' + 'ver'"))
    assert told(ask, FIND.replace("WHAT", "'cho' + 'ice'"))


def test_export_lacks_the_tasks(tmp_path: Path, manifest: Manifest) -> None:
    files = {
        **FILES,
        "judge/reference_tasks/worker.py": "pass\n",
        "judge/reference_tasks/tasks/one/expected.json": json.dumps(CANARY),
    }
    scene = Scene(tmp_path / "repository", files)
    export(scene.repository, scene.base, manifest, tmp_path / "tree")
    names = {path.name for path in (tmp_path / "tree").rglob("*")}
    assert {"worker.py", "select.py"} <= names
    assert not {"tasks", "one", "expected.json", ".git"} & names


SPOIL = """
import os, pathlib
for path in pathlib.Path(opening["input"]).rglob("*"):
    for spoil in (
        lambda: path.write_text("spoilt"),
        lambda: path.unlink(),
        lambda: path.chmod(0o777),
        lambda: path.rename(path.with_name("moved")),
        lambda: (path / "more").write_text("spoilt"),
    ):
        try: spoil()
        except OSError: pass
text = "".join(p.read_text() for p in pathlib.Path(opening["input"]).rglob("*") if p.is_file())
return ["a", "b"] if text == "a river" else []
"""


def test_tampering_with_the_input_is_rejected(ask: Arms) -> None:
    for repeat in range(3):
        assert told(ask, SPOIL, repeat=repeat)


LEAVE = """
import os, pathlib
places = [os.environ["HOME"], "/tmp", "/dev/shm", opening["input"], os.getcwd(), "/var/tmp", "/"]
found = [place for place in places if pathlib.Path(place, "for-the-other").exists()]
for place in places:
    try: pathlib.Path(place, "for-the-other").write_text("hello")
    except OSError: pass
mine = [place for place in places if pathlib.Path(place, "for-the-other").exists()]
return ["a", "b"] if FOUND else []
"""


def test_leaving_files_for_the_other_arm_is_rejected(ask: Arms) -> None:
    assert told(ask, LEAVE.replace("FOUND", "not found and mine"), arm="base")
    assert told(ask, LEAVE.replace("FOUND", "not found and mine"), arm="candidate")
    assert not told(ask, LEAVE.replace("FOUND", "found"), arm="candidate")


def test_input_lies_under_another_name_each_time(ask: Arms) -> None:
    body = "import sys\nreturn [opening['input'], sys.argv[0]]"
    names = set()
    for _ in range(2):
        asked = task(scorer="exact", expected={"answer": None})
        names.add(repr(replace(ask(body, asked=asked), seconds=None, cpu_seconds=None)))
    # What it said is not repeated, so two different answers have one and the same result.
    assert len(names) == 1
    assert "the answer is not the expected one" in names.pop()


def test_repeats_of_a_stochastic_task_are_paired() -> None:
    stochastic, other = task(stochastic=True), task(stochastic=True, seed=8)
    seeds = [seed_of(stochastic, repeat) for repeat in range(20)]
    assert len(set(seeds)) == 20
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert not set(seeds) & {seed_of(other, repeat) for repeat in range(20)}
    assert [seed_of(task(), repeat) for repeat in range(3)] == [7, 7, 7]


def test_both_arms_are_given_the_repeats_seed(ask: Arms) -> None:
    asked = task(stochastic=True)
    body = f"return ['a', 'b'] if opening['seed'] == {seed_of(asked, 5)} else []"
    for arm in ("base", "candidate"):
        found = ask(body, asked=asked, arm=arm, repeat=5)
        assert (found.success, found.seed) == (True, seed_of(asked, 5))
    assert not ask(body, asked=asked, repeat=4).success


def test_worker_that_is_missing_gives_no_answer(
    tmp_path: Path, ask: Arms, manifest: Manifest
) -> None:
    ask(HONEST)  # writes the worker
    where: dict[str, Any] = {"scorers": SCORERS, "arm": "base", "scratch": tmp_path / "scratch"}
    first = run_task(task(), tmp_path / "tree", manifest, **where)
    assert (first.task_id, first.arm, first.repeat) == (f"task-{CANARY}", "base", 0)
    (tmp_path / "tree/judge/reference_tasks/worker.py").unlink()
    second = run_task(task(task_id="two"), tmp_path / "tree", manifest, repeat=1, **where)
    assert (second.task_id, second.repeat, second.success) == ("two", 1, False)
    assert second.problem == "there is no answer: it exited with status 2"


def test_answer_that_a_scorer_fails_on_is_the_candidates_failure(ask: Arms) -> None:
    def divides(_: Task, ask: Ask) -> Score:
        return Score(success=1 / ask(QUESTION) > 0, validation_failures=0, metrics={})

    def misses(_: Task, _ask: Ask) -> Score:
        raise ImportError("torch")

    found = ask("return 0", scorers={"selection": divides})
    assert (found.success, found.validation_failures, found.missing) == (False, 1, False)
    assert found.problem == "the scorer selection fails on the answer: ZeroDivisionError"
    assert ask("return 2", scorers={"selection": divides}).success
    with pytest.raises(ImportError):  # no answer of anybody's is to blame
        ask("return 2", scorers={"selection": misses})
