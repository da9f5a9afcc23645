"""A reference set is read strictly, and what a candidate is told of it is little."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gauntlet_scene import Scene

from judge.gauntlet.errors import TaskError
from judge.gauntlet.tasks.reference_set import (
    ReferenceSet,
    Task,
    gaps,
    load,
    message_of,
    write_snapshot,
)

ENTRY = {
    "task_id": "one",
    "source": "by hand",
    "source_commit": None,
    "description": "Choose the rows that answer the query.",
    "expected_outcome": "the rows",
    "expected_diff_path": None,
    "categories": ["selection", "cap"],
    "difficulty": "easy",
    "added_by": "ada",
    "added_at": "2026-11-21",
    "regression_anchor_for": None,
}
TASK = {
    "kind": "selection",
    "seed": 7,
    "stochastic": False,
    "scorer": "selection",
    "parameters": {"query": "river", "cap": 2},
}
EXPECTED = {"needed": ["a"], "cap": 2}
Change = Callable[[dict[str, Any]], object]


def make_set(folder: Path) -> Path:
    """Write a reference set of two tasks."""
    entries = [ENTRY, {**ENTRY, "task_id": "two", "difficulty": "hard", "categories": ["cap"]}]
    write(folder / "manifest.json", {"version": 1, "tasks": entries})
    for name in ("one", "two"):
        write(folder / "tasks" / name / "task.json", TASK)
        write(folder / "tasks" / name / "expected.json", EXPECTED)
    rows = folder / "tasks/one/repo_snapshot/docs"
    rows.mkdir(parents=True)
    (rows / "a.txt").write_bytes(b"a river\r\n")
    (folder / "worker.py").write_text("print('no part of the tasks')\n")
    return folder


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(tmp_path / "reference_tasks")


def test_set_is_read_as_it_is_written(folder: Path) -> None:
    found = load(folder)
    one, two = found.tasks
    assert (one.task_id, one.kind, one.seed, one.stochastic) == ("one", "selection", 7, False)
    assert (one.entry.categories, one.entry.difficulty) == (("selection", "cap"), "easy")
    assert (one.parameters, one.expected) == (TASK["parameters"], EXPECTED)
    assert msgspec.to_builtins(one.entry) == {**ENTRY, "categories": ("selection", "cap")}
    assert (one.scorer, two.files) == ("selection", {})
    assert one.files == {"docs/a.txt": b"a river\r\n"}
    assert found.task("two") is two
    with pytest.raises(TaskError, match="task 'three' not found in the reference set"):
        found.task("three")


def test_set_in_a_commit_is_the_one_in_the_folder(tmp_path: Path, folder: Path) -> None:
    files = {
        f"set/{path.relative_to(folder)}": path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }
    scene = Scene(tmp_path / "repository", files)
    assert load(scene.repository, commit=scene.base, path="set") == load(folder)


def test_hash_is_of_everything_that_counts(folder: Path) -> None:
    before = load(folder)
    (folder / "tasks/one/baseline.json").write_text('{"success": true}')
    (folder / "worker.py").write_text("# another\n")
    assert load(folder) == before
    seen = {before.sha256}
    for path, content in (
        ("tasks/one/repo_snapshot/docs/a.txt", "another river"),
        ("tasks/one/repo_snapshot/docs/b.txt", "a file more"),
        ("tasks/one/task.json", {**TASK, "seed": 8}),
        ("tasks/one/expected.json", {**EXPECTED, "cap": 3}),
        ("manifest.json", {"version": 1, "tasks": [ENTRY, {**ENTRY, "task_id": "two"}]}),
        ("manifest.json", {"version": 1, "tasks": [{**ENTRY, "task_id": "two"}, ENTRY]}),
    ):
        write(folder / path, content)
        seen.add(load(folder).sha256)
    assert len(seen) == 7


def entry(**fields: Any) -> Change:
    def change(whole: dict[str, Any]) -> None:
        whole["tasks"][0].update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda whole: whole.update(version=2), "manifest.json: version: Invalid enum value 2"),
        (lambda whole: whole.update(tasks=[]), "tasks: Expected `array` of length >= 1"),
        (lambda whole: whole.update(more=1), "manifest.json: Object contains unknown field `more`"),
        (lambda whole: whole["tasks"].append("two"), r"tasks\[2\]: Expected `object`"),
        (lambda whole: whole["tasks"].append(ENTRY), "tasks/one does not exist or is used twice"),
        (lambda whole: whole["tasks"].pop(), "tasks/two: is not in manifest.json"),
        (
            lambda whole: whole["tasks"][0].pop("source"),
            r"tasks\[0\]: Object missing required field `source`",
        ),
        (entry(extra=1), r"tasks\[0\]: Object contains unknown field `extra`"),
        (entry(task_id="../one"), r"tasks\[0\].task_id: Expected `str` matching regex"),
        (entry(task_id=1), r"tasks\[0\].task_id: Expected `str`, got `int`"),
        (entry(task_id="three"), "tasks/three does not exist"),
        (entry(description=" "), r"tasks\[0\].description: Expected `str` matching"),
        (entry(source_commit=""), r"tasks\[0\].source_commit: Expected `str` matching"),
        (entry(difficulty="harder"), r"tasks\[0\].difficulty: Invalid enum value"),
        (entry(categories=[]), r"tasks\[0\].categories: Expected `array`"),
        (entry(categories=["a", "a"]), r"tasks\[0\]: a category is repeated"),
        (entry(categories=["A b"]), r"tasks\[0\].categories\[0\]: Expected `str` matching"),
        (entry(added_at="yesterday"), r"tasks\[0\].added_at: Invalid RFC3339 encoded date"),
        (entry(expected_diff_path="tasks/one/no.diff"), "expected_diff_path: not a file"),
        (entry(expected_diff_path="tasks/two/task.json"), "expected_diff_path: not a file"),
    ],
)
def test_manifest_of_another_form_is_rejected(folder: Path, change: Change, problem: str) -> None:
    whole = json.loads((folder / "manifest.json").read_text())
    change(whole)
    write(folder / "manifest.json", whole)
    with pytest.raises(TaskError, match=problem):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("task.json", "{", "tasks/one/task.json: it is not JSON"),
        ("task.json", "[]", "tasks/one/task.json: it is not an object"),
        ("task.json", '{"seed": 1, "seed": 2}', "tasks/one/task.json: a key is repeated"),
        ("task.json", {**TASK, "seed": True}, "task.json: seed: Expected `int`, got `bool`"),
        ("task.json", {**TASK, "seed": -1}, "task.json: seed: Expected `int` >= 0"),
        ("task.json", {**TASK, "seed": 2**63}, "task.json: seed: Expected `int` <= "),
        ("task.json", {**TASK, "stochastic": 0}, "task.json: stochastic: Expected `bool`"),
        (
            "task.json",
            {**TASK, "scorer": "mine"},
            "task.json: scorer: one of acceptable, drawn_selection, exact",
        ),
        ("task.json", {**TASK, "scorer": ["exact"]}, "task.json: scorer: Expected `str`"),
        ("task.json", {**TASK, "parameters": []}, "task.json: parameters: Expected `object`"),
        ("task.json", {**TASK, "kind": "A"}, "task.json: kind: Expected `str` matching"),
        ("task.json", {**TASK, "hint": 1}, "task.json: Object contains unknown field `hint`"),
        ("expected.json", '{"needed": [NaN]}', "expected.json: NaN and infinity"),
        ("expected.json", "[1]", "tasks/one/expected.json: it is not an object"),
        ("expected.json", {"needed": ["a"]}, "expected.json: cap and needed and nothing else"),
        ("expected.json", {**EXPECTED, "hint": 1}, "expected.json: cap and needed and nothing"),
        ("expected.json", {"needed": [1], "cap": 2}, "expected.json: needed: a list of rows"),
        ("expected.json", {"needed": [], "cap": 2}, "expected.json: cap: a whole number"),
        ("expected.json", {"needed": ["a", "a"], "cap": 2}, "expected.json: cap: a whole number"),
        ("expected.json", {"needed": ["a", "b"], "cap": 1}, "expected.json: cap: a whole number"),
        ("task.json", {**TASK, "scorer": "exact"}, "expected.json: answer and nothing else"),
        ("task.json", {**TASK, "scorer": "acceptable"}, "expected.json: answers and nothing"),
        ("notes.txt", "hello", "tasks/one/notes.txt: does not belong to a task"),
        ("../stray.json", "{}", "tasks/stray.json: does not belong to a task"),
    ],
)
def test_task_of_another_form_is_rejected(
    folder: Path, name: str, content: Any, problem: str
) -> None:
    write(folder / "tasks/one" / name, content)
    with pytest.raises(TaskError, match=problem):
        load(folder)


@pytest.mark.parametrize("name", ["task.json", "expected.json"])
def test_task_without_a_part_is_rejected(folder: Path, name: str) -> None:
    (folder / "tasks/one" / name).unlink()
    with pytest.raises(TaskError, match=f"tasks/one/{name}: is missing"):
        load(folder)


def test_link_in_a_set_is_rejected(folder: Path) -> None:
    (folder / "tasks/one/repo_snapshot/link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="repo_snapshot/link: links are not allowed"):
        load(folder)


def test_folder_without_a_set_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"manifest\.json: cannot be read"):
        load(tmp_path)


def test_expected_diff_lies_in_the_tasks_folder(folder: Path) -> None:
    whole = json.loads((folder / "manifest.json").read_text())
    entry(expected_diff_path="tasks/one/expected.diff")(whole)
    write(folder / "manifest.json", whole)
    write(folder / "tasks/one/expected.diff", "--- a\n+++ b\n")
    assert load(folder).task("one").entry.expected_diff_path == "tasks/one/expected.diff"


def test_gaps_are_listed_with_the_rarest_first(folder: Path) -> None:
    assert gaps(load(folder).tasks) == (
        ("selection", {"easy": 1, "medium": 0, "hard": 0}),
        ("cap", {"easy": 1, "medium": 0, "hard": 1}),
    )
    assert gaps([]) == ()


def test_candidate_is_told_neither_the_task_nor_what_is_expected(
    folder: Path, tmp_path: Path
) -> None:
    found: ReferenceSet = load(folder)
    task: Task = found.task("one")
    message = message_of(task, Path("/somewhere"))
    assert message == {
        "protocol": 1,
        "kind": "selection",
        "seed": 7,
        "parameters": {"query": "river", "cap": 2},
        "input": "/somewhere",
    }
    message["parameters"]["cap"] = 9
    assert task.parameters["cap"] == 2
    place = tmp_path / "place"
    place.mkdir()
    write_snapshot(task, place)
    assert [path.name for path in place.rglob("*")] == ["docs", "a.txt"]
    assert (place / "docs/a.txt").read_bytes() == b"a river\r\n"
