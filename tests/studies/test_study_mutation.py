"""Planted defects: which there are, and which of them a judge catches."""

import ast
from pathlib import Path

import pytest
from gauntlet_scene import MANIFEST
from msgspec.structs import replace
from paired_results import task
from studies.gate.mutation import (
    Equivalent,
    Mutant,
    TaskJudge,
    mutants_of,
    mutate_run,
    parse_equivalents,
    sample,
)

from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.manifest import parse_manifest

SOURCE = '''"""Says what a row is worth."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rows import Row

__all__ = ["best", "worth"]
CAP = 3


def worth(row: dict[str, int], bonus: int = 0) -> float:
    """Return the row's worth."""
    assert bonus < 10, "too much"
    if row["size"] >= 2 and not row.get("hidden"):
        return row["value"] * 2.0 + bonus
    if bonus < 0:
        raise ValueError(f"a bonus of {bonus + 1}")
    return 0.0


def best(rows):
    names = []
    for row in sorted(rows, key=worth, reverse=True)[:CAP]:
        names.append(row["name"].strip())
    return names
'''


def changes(source: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for mutant in mutants_of("rows.py", source):
        found.setdefault(mutant.kind, []).append(mutant.description)
    return found


def test_mutants_are_of_every_kind_that_the_code_has_room_for() -> None:
    found = changes(SOURCE)
    assert "row['size'] >= 2 -> row['size'] > 2" in found["comparison"]
    assert "row['size'] >= 2 -> row['size'] < 2" in found["comparison"]
    assert {"2 -> 3", "2 -> 1", "3 -> 4", "2.0 -> 4.0"} <= set(found["constant"])
    assert "'size' -> 'size_'" in found["key"]
    assert "'hidden' -> 'hidden_'" in found["key"]
    assert "not row.get('hidden') -> row.get('hidden')" in found["sign"]
    assert "bonus < 0 -> False" in found["condition"]
    assert "row['value'] * 2.0 + bonus -> row['value'] * 2.0 - bonus" in found["arithmetic"]
    assert "return names -> return None" in found["return"]
    assert "names.append(row['name'].strip()) -> nothing" in found["statement"]
    assert {
        "sorted(rows, key=worth, reverse=True) -> list(rows)",
        "sorted(rows, key=worth, reverse=True) -> sorted(rows, reverse=True)",
        "sorted(rows, key=worth, reverse=True) -> sorted(rows, key=worth)",
        "row['name'].strip() -> row['name']",
    } == set(found["call"])
    assert len(found["and/or"]) == 3


def test_mutants_leave_documentation_annotations_and_errors_alone() -> None:
    for mutant in mutants_of("rows.py", SOURCE):
        changed = ast.parse(mutant.source)
        assert ast.get_docstring(changed) == "Says what a row is worth."
        assert "assert bonus < 10" in mutant.source
        assert "row: dict[str, int]" in mutant.source
        assert "__all__ = ['best', 'worth']" in mutant.source
        if mutant.description != "raise ValueError(f'a bonus of {bonus + 1}') -> nothing":
            assert "raise ValueError(f'a bonus of {bonus + 1}')" in mutant.source


def test_mutants_are_in_order_and_no_two_are_alike() -> None:
    found = mutants_of("rows.py", SOURCE)
    assert found == mutants_of("rows.py", SOURCE)
    assert [mutant.line for mutant in found] == sorted(mutant.line for mutant in found)
    assert len({mutant.source for mutant in found}) == len(found)
    assert len({mutant.id for mutant in found}) == len(found)


def test_mutant_keeps_its_id_when_lines_are_added_above_it() -> None:
    moved = SOURCE.replace("CAP = 3", "# a cap\n\nCAP = 3")
    before = {mutant.id for mutant in mutants_of("rows.py", SOURCE)}
    assert {mutant.id for mutant in mutants_of("rows.py", moved)} == before


def test_file_that_is_no_python_is_rejected() -> None:
    with pytest.raises(GauntletError, match=r"rows\.py cannot be mutated"):
        mutants_of("rows.py", "def f(:\n")


def test_sample_is_drawn_by_its_seed_and_keeps_the_order() -> None:
    found = mutants_of("rows.py", SOURCE)
    drawn = sample(found, most=10, seed=1)
    assert drawn == sample(found, most=10, seed=1) != sample(found, most=10, seed=2)
    assert list(drawn) == [mutant for mutant in found if mutant in drawn]
    assert sample(found, most=None) == found


def answers(tree: Path) -> object:
    names: dict[str, object] = {}
    try:
        exec(compile((tree / "rows.py").read_text(), "rows.py", "exec"), names)
        best = names["best"]
        rows = [{"name": f" {n} ", "size": n, "value": v} for n, v in enumerate([9, 9, 1, 5, 3, 4])]
        return best(rows)  # type: ignore[operator]  # it is a function
    except Exception as error:  # a defect may raise anything
        return type(error).__name__


def caught(tree: Path) -> str | None:
    found = answers(tree)
    return None if found == ["3", "5", "4"] else f"answers {found}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "rows.py").write_text(SOURCE)
    return folder


def test_mutation_run_names_what_is_caught_and_what_survives(tree: Path, tmp_path: Path) -> None:
    told: list[tuple[Mutant, str | None]] = []
    report = mutate_run(
        ["rows.py"], caught, tree=tree, scratch=tmp_path, on_result=lambda *it: told.append(it)
    )
    survivors = {mutant.description for mutant in report.survivors}
    by = {mutant.description: how for mutant, how in told}
    assert by["'name' -> 'name_'"] == "answers KeyError"
    assert by["sorted(rows, key=worth, reverse=True) -> list(rows)"] == "answers ['0', '1', '2']"
    assert "'hidden' -> 'hidden_'" in survivors  # no row of ours is hidden
    assert report.found == len(told) == len(report.caught) + len(report.survivors)
    assert 0.3 < report.share < 0.9
    assert report.to_dict()["share"] == report.share
    assert (tree / "rows.py").read_text() == SOURCE
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_listed_mutant_does_not_count_unless_it_is_caught(tree: Path, tmp_path: Path) -> None:
    found = {mutant.description: mutant.id for mutant in mutants_of("rows.py", SOURCE)}
    hidden, name = "'hidden' -> 'hidden_'", "'name' -> 'name_'"
    listed = [
        Equivalent(id=found[hidden], change=hidden, reason="no row is hidden"),
        Equivalent(id=found[name], change=name, reason="wrong"),
        Equivalent(id="0" * 12, change="1 -> 2", reason="gone"),
    ]
    plain = mutate_run(["rows.py"], caught, tree=tree, scratch=tmp_path)
    report = mutate_run(["rows.py"], caught, tree=tree, scratch=tmp_path, equivalents=listed)
    assert [mutant.description for mutant in report.equivalent] == [hidden]
    assert len(report.survivors) == len(plain.survivors) - 1
    assert report.caught == plain.caught
    assert report.mistaken == (found[name],)
    assert report.unknown == ("0" * 12,)


def test_listed_mutant_counts_when_its_change_is_told_otherwise(tree: Path, tmp_path: Path) -> None:
    found = {mutant.description: mutant.id for mutant in mutants_of("rows.py", SOURCE)}
    other = Equivalent(id=found["'hidden' -> 'hidden_'"], change="1 -> 2", reason="none")
    report = mutate_run(["rows.py"], caught, tree=tree, scratch=tmp_path, equivalents=[other])
    assert report.equivalent == ()


def test_judge_that_catches_the_unchanged_tree_is_rejected(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(GauntletError, match="the unchanged tree already fails"):
        mutate_run(["rows.py"], lambda _: True, tree=tree, scratch=tmp_path)
    with pytest.raises(GauntletError, match=r"nothing\.py cannot be mutated"):
        mutate_run(["nothing.py"], caught, tree=tree, scratch=tmp_path)


def test_equivalents_are_read_from_a_list() -> None:
    data = b'[[equivalent]]\nid = "a"\nchange = "1 -> 2"\nreason = "never read"\n'
    assert parse_equivalents(data) == (Equivalent(id="a", change="1 -> 2", reason="never read"),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[[equivalent]]\nid = 'a'\n",
        b"[[equivalent]]\nid = 'a'\nchange = '1 -> 2'\nreason = ' '\n",
        b"[[equivalent]]\nid = 'a'\nchange = '1 -> 2'\nreason = 'b'\nmore = 1\n",
        b"equivalent = 1\n",
        b"\xff",
    ],
)
def test_list_of_equivalents_that_is_none_is_rejected(data: bytes) -> None:
    with pytest.raises(GauntletError, match="not a list of equivalent mutants"):
        parse_equivalents(data)


WORKER = """
import json, sys
import rows
print(json.dumps({"ready": True}), flush=True) if sys.stdin.readline() else None
for line in sys.stdin:
    table = [{"name": f" {n} ", "size": n, "value": v} for n, v in enumerate([9, 9, 1, 5, 3, 4])]
    print(json.dumps(rows.best(table)), flush=True)
"""


def test_defects_are_caught_by_the_reference_tasks(tree: Path, tmp_path: Path) -> None:
    worker = tree / "judge" / "reference_tasks" / "worker.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(WORKER)
    tasks = [
        replace(task("best"), expected={"answer": ["3", "5", "4"]}),
        replace(task("luck", stochastic=True), expected={"answer": "never asked"}),
    ]
    judge = TaskJudge(tasks, parse_manifest(MANIFEST.encode()), scratch=tmp_path)
    report = mutate_run(["rows.py"], judge, tree=tree, scratch=tmp_path, most=5, seed=3)
    found = {mutant.id: mutant.description for mutant in mutants_of("rows.py", SOURCE)}
    caught_here = {found[id_]: by for id_, by in report.caught.items()}
    assert len(report.caught) + len(report.survivors) == 5
    assert caught_here
    assert all(by.startswith("best: fails now: ") for by in caught_here.values())
    assert all(caught(tree_of(tmp_path, mutant)) is None for mutant in report.survivors)
    lost = TaskJudge(tasks[1:], parse_manifest(MANIFEST.encode()), scratch=tmp_path)
    with pytest.raises(GauntletError, match="no deterministic task succeeds"):
        lost(tree)


def tree_of(folder: Path, mutant: Mutant) -> Path:
    changed = folder / mutant.id
    changed.mkdir()
    (changed / mutant.path).write_text(mutant.source)
    return changed
