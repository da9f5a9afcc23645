"""Tasks from commits: how they are made, examined and scored, and what answers are refused."""

import json
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from gauntlet_scene import MANIFEST
from made_tasks import made_task
from msgspec.structs import replace

from judge.gauntlet.errors import CandidateError, GauntletError, TaskError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import parse_manifest
from judge.gauntlet.tasks.hidden_tests import (
    BY_MODEL,
    SNAPSHOT_FILE,
    TESTED,
    Bench,
    ByTests,
    Said,
    run_hidden,
)
from judge.gauntlet.tasks.history import Change, examine, node_of, read_change, sort_cases
from judge.gauntlet.tasks.reference_set import Task, load, write_tasks
from judge.gauntlet.tasks.scoring import SCORERS, check_expected

BEFORE = {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--strict-markers'\n",
    "slugs/__init__.py": "",
    "slugs/letters.py": "KEPT = 'a-z0-9'\n",
    "slugs/text.py": "import re\n\nfrom slugs.letters import KEPT\n\n\n"
    "def slugify(text):\n    return re.sub(f'[^{KEPT}]+', '-', text.lower())\n",
    "slugs/unused.py": "NOBODY = 'imports this'\n",
    "tests/conftest.py": "WORD = 'Hello'\n",
    "tests/test_text.py": "from slugs.text import slugify\n\n\n"
    "def test_words():\n    assert slugify('Hello, World') == 'hello-world'\n",
}
AFTER = {
    **BEFORE,
    "README.md": "Slugs.\n",
    "slugs/text.py": BEFORE["slugs/text.py"].replace(".lower())", ".lower()).strip('-')"),
    "tests/test_text.py": BEFORE["tests/test_text.py"]
    + "\n\ndef test_ends():\n    assert slugify('Hello!') == 'hello'\n",
}
FAILS, KEEPS = "tests.test_text::test_ends", "tests.test_text::test_words"


def is_test(path: str) -> bool:
    return path.startswith("tests/")


def encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def diff_of(path: str, before: str, after: str) -> bytes:
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(lines).encode()


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> Change:
    folder = tmp_path_factory.mktemp("slugs") / "repository"
    repository, commit = Repository.of_files(folder, encoded(BEFORE), encoded(AFTER))
    return read_change(repository, commit, is_test=is_test)


@pytest.fixture(scope="module")
def task(change: Change) -> Task:
    made = made_task(
        kind="implement",
        scorer=TESTED,
        files={SNAPSHOT_FILE: json.dumps(dict(change.snapshot)).encode()},
        expected={
            "tests": dict(change.tests),
            "run": list(change.run),
            "fails": [FAILS],
            "keeps": [KEEPS],
        },
        diff=change.diff,
    )
    entry = replace(made.entry, expected_diff_path="tasks/one/expected.diff")
    return replace(made, entry=entry)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(manifest=parse_manifest(MANIFEST.encode()), scratch=tmp_path)


def test_commit_gives_what_its_tests_need_and_no_more(change: Change) -> None:
    assert [*change.snapshot] == ["slugs/__init__.py", "slugs/letters.py", "slugs/text.py"]
    assert change.snapshot["slugs/text.py"] == BEFORE["slugs/text.py"]
    assert [*change.tests] == ["pyproject.toml", "tests/conftest.py", "tests/test_text.py"]
    assert change.tests["tests/test_text.py"] == AFTER["tests/test_text.py"]
    assert (change.run, change.changed) == (("tests/test_text.py",), ("slugs/text.py",))
    assert b".strip('-')" in change.diff
    assert b"README" not in change.diff


def test_commit_that_makes_no_task_is_refused_in_a_sentence(tmp_path: Path) -> None:
    def refused(*versions: Mapping[str, str]) -> str:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        repository, commit = Repository.of_files(folder, *map(encoded, versions))
        with pytest.raises(TaskError) as caught:
            read_change(repository, commit, is_test=is_test)
        return str(caught.value).partition(" ")[2].partition(" ")[2]

    untested = {**AFTER, "tests/test_text.py": BEFORE["tests/test_text.py"]}
    only_tests = {**AFTER, "slugs/text.py": BEFORE["slugs/text.py"]}
    assert refused(BEFORE) == "has 0 parents instead of one"
    assert refused(BEFORE, untested) == "changes no test file that pytest collects"
    assert refused(BEFORE, only_tests) == "changes nothing that its tests import"


def test_cases_are_sorted_by_what_the_change_does_to_them() -> None:
    before = {"m::a": "failed", "m::b": "passed", "m::c": "failed", "m::d": "passed"}
    after = {
        "m::a": "passed",
        "m::b": "passed",
        "m::c": "failed",
        "m::d": "skipped",
        "m::e": "passed",
    }
    assert sort_cases(before, after) == (("m::a", "m::e"), ("m::b",), ("m::c", "m::d"))
    assert node_of("tests.test_a.TestB::test_c[x.y]", ["tests/test_a.py"]) == (
        "tests/test_a.py::TestB::test_c[x.y]"
    )


@pytest.mark.slow
def test_task_that_fails_before_and_passes_after_is_sound(task: Task, bench: Bench) -> None:
    examine(task, bench, repeats=1)
    assert [*bench.scratch.iterdir()] == []


@pytest.mark.slow
def test_score_says_how_many_hidden_cases_pass_and_counts_tokens(task: Task, bench: Bench) -> None:
    wrong = BEFORE["slugs/text.py"].replace("'-', text.lower()", "'', text.lower()")
    answer = {"diff": diff_of("slugs/text.py", BEFORE["slugs/text.py"], wrong).decode()}
    request = {"messages": [{"role": "user", "content": "?"}], "schema": {"type": "object"}}
    replies = iter([request, request, answer])
    found = ByTests(by_model=True, server=Server()).score(
        task, lambda _: next(replies), bench=bench
    )
    assert (found.success, found.problem) == (False, "1 of 2 hidden cases pass")
    used = {"steps": 2.0, "prompt_tokens": 60.0, "tokens": 3.0, "budget": pytest.approx(0.15)}
    assert found.metrics == used


LINK = (
    "diff --git a/slugs/link b/slugs/link\nnew file mode 120000\n--- /dev/null\n"
    "+++ b/slugs/link\n@@ -0,0 +1 @@\n+../x\n\\ No newline at end of file\n"
)
NEW = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+X = 1\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, 'the answer is not {"diff": text}'),
        ({"diff": 1}, "the diff of the answer is not text"),
        ({"diff": ""}, "the diff is empty"),
        ({"diff": "make it faster\n"}, "neither a header nor part of a hunk"),
        ({"diff": NEW.format("tests/test_text.py")}, "tests/test_text.py is not for an answer"),
        ({"diff": NEW.format("slugs/conftest.py")}, "slugs/conftest.py is not for an answer"),
        ({"diff": NEW.format("pytest.py")}, "pytest.py does not lie in a folder of the snapshot"),
        ({"diff": NEW.format("_pytest/main.py")}, "does not lie in a folder of the snapshot"),
        (
            {"diff": LINK},
            "slugs/link must be a plain file",
        ),
        ({"messages": [], "schema": {}}, "asks for a language model, and the task is not for one"),
    ],
)
def test_answer_that_is_no_change_of_the_snapshot_is_refused(
    answer: Any, why: str, task: Task, bench: Bench
) -> None:
    scorer = ByTests()
    with pytest.raises(CandidateError, match=f"^[^\n]*{why.replace('{', '.').replace('}', '.')}"):
        scorer.score(task, lambda _: answer, bench=bench)


class Server:
    """Answers with one message, and keeps what it was asked."""

    seconds = 1.0

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, messages: Any, schema: Any, /, *, seed: int) -> Said:
        self.asked.append((messages, schema, seed))
        counted = {"prompt_tokens": 30, "tokens": len(self.asked), "limit": 10}
        return Said(rung="prompt", message={"content": "x"}, **counted)


def test_candidate_reaches_the_model_through_us_a_few_times_only(task: Task, bench: Bench) -> None:
    server = Server()
    said: list[Any] = []
    request = {"messages": [{"role": "user", "content": "?"}], "schema": {"type": "object"}}

    def ask(message: Any) -> Any:
        said.append(message)
        return request

    scorer = ByTests(by_model=True, server=server)
    with pytest.raises(CandidateError, match="the answer is not"):
        scorer.score(task, ask, bench=bench)
    assert server.asked == [(request["messages"], request["schema"], task.seed)] * 4
    assert said[0] == {"ask": "answer"}
    assert said[1:] == [{"ask": "read", "rung": "prompt", "message": {"content": "x"}}] * 4
    request["messages"] = [{"role": "tool", "content": "?"}]
    with pytest.raises(CandidateError, match="has another form"):
        scorer.score(task, ask, bench=bench)


def test_tasks_for_a_model_are_not_asked_without_one(task: Task, tmp_path: Path) -> None:
    other = replace(task, scorer=BY_MODEL, entry=replace(task.entry, task_id="two"))
    other = replace(other, entry=replace(other.entry, expected_diff_path="tasks/two/expected.diff"))
    write_tasks(tmp_path, [task, other])
    without = load(tmp_path)
    served = load(tmp_path, scorers={**SCORERS, BY_MODEL: ByTests(by_model=True, server=Server())})
    assert ([t.task_id for t in without.tasks], [t.task_id for t in without.unasked]) == (
        ["one"],
        ["two"],
    )
    assert [t.task_id for t in served.tasks] == ["one", "two"]
    assert without.sha256 == served.sha256
    assert without.tasks[0] == task
    assert without.tasks[0].sha256 != replace(task, diff=None).sha256
    with pytest.raises(GauntletError, match="without a place to run its tests in"):
        SCORERS[TESTED](task, lambda _: None)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("run", ["tests/other.py"], "run: one of the tests is expected of each"),
        ("fails", [], "fails"),
        ("keeps", [FAILS], "no case is expected in both"),
        ("seconds", 0, "seconds"),
        ("more", 1, "more"),
    ],
)
def test_expectation_that_cannot_be_met_is_refused(
    field: str, value: Any, why: str, task: Task
) -> None:
    with pytest.raises(ValueError, match=why):
        check_expected(TESTED, {**task.expected, field: value})


def unsound(task: Task, bench: Bench, **expected: Any) -> str:
    with pytest.raises(TaskError) as caught:
        examine(replace(task, expected={**task.expected, **expected}), bench, repeats=6)
    return str(caught.value)


@pytest.mark.slow
def test_task_that_is_not_sound_is_refused_in_a_sentence(task: Task, bench: Bench) -> None:
    swapped = {"fails": [KEEPS], "keeps": []}
    assert unsound(task, bench, **swapped) == f"{KEEPS} passes already in run 1 without the change"
    never = task.expected["tests"] | {
        "tests/test_text.py": AFTER["tests/test_text.py"].replace("'hello'", "'other'")
    }
    assert "do not pass with the change" in unsound(task, bench, tests=never)
    flaky = AFTER["tests/test_text.py"] + "    import random\n    assert random.random() < 0.1\n"
    told = unsound(task, bench, tests=never | {"tests/test_text.py": flaky})
    assert "so the task is not deterministic" in told or "do not pass with the change" in told
    with pytest.raises(TaskError, match="has no right answer"):
        examine(replace(task, diff=None), bench)


FORGED = """
import _pytest.reports as reports
real = reports.TestReport.from_item_and_call
def forge(item, call):
    report = real(item, call)
    report.outcome = "passed"
    report.longrepr = None
    return report
reports.TestReport.from_item_and_call = staticmethod(forge)
"""


@pytest.mark.slow
def test_answer_that_makes_every_test_pass_is_not_trusted(task: Task, bench: Bench) -> None:
    before = BEFORE["slugs/text.py"]
    found = run_hidden(task, diff_of("slugs/text.py", before, before + FORGED), bench)
    assert found.problem is not None
    assert "the report is not trusted" in found.problem
