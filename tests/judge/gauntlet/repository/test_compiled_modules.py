"""Modules are compiled once, in confinement, and nothing of a candidate's runs meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import run
from judge.gauntlet.repository.compiled import compile_modules

_LIMITS = ResourceLimits(seconds=60.0, memory_bytes=2**31, output_bytes=2**16)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/package").mkdir(parents=True)
    (tmp_path / "tree/package/module.py").write_text("VALUE = 1\n")
    (tmp_path / "scratch").mkdir()
    return tmp_path / "tree"


def _compile(tree: Path, **others: Any) -> set[str]:
    folder = tree.parent
    compile_modules(tree, kept=folder / "kept", scratch=folder / "scratch", **others)
    return {str(each.relative_to(tree)).partition(".")[0] for each in tree.rglob("*.pyc")}


def _said(tree: Path, code: str) -> str:
    scratch = tree.parent / "scratch"
    command = ["{python}", "-c", code]
    return run(command, tree=tree, scratch=scratch, limits=_LIMITS).output.decode()


def test_a_candidate_imports_what_was_compiled(tree: Path) -> None:
    assert _compile(tree) == {"package/__pycache__/module"}
    code = "import builtins; builtins.compile = None; import package.module as m; print(m.VALUE)"
    assert _said(tree, code) == "1\n"


def test_what_is_known_by_its_source_is_not_compiled_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compile(tree)
    other = tree.parent / "other"
    (other / "elsewhere").mkdir(parents=True)
    (other / "elsewhere/same.py").write_text("VALUE = 1\n")
    monkeypatch.setattr("judge.gauntlet.repository.compiled.run", pytest.fail)
    assert _compile(other) == {"elsewhere/__pycache__/same"}
    told = _said(other, "import elsewhere.same as s; print(s.__cached__[-9:], s.__name__)")
    assert "elsewhere.same" in told


@pytest.mark.parametrize(
    "shadow",
    ["compileall.py", "py_compile.py", "sitecustomize.py", "struct.py", "usercustomize.py"],
)
def test_no_code_of_a_candidate_runs_while_it_is_compiled(tree: Path, shadow: str) -> None:
    place = tree.parent / "scratch"
    (tree / shadow).write_text(f"open({str(place / 'ran')!r}, 'w')\nraise SystemExit\n")
    assert "package/__pycache__/module" in _compile(tree)
    assert not (place / "ran").exists()


def test_what_cannot_be_compiled_is_left_as_it_is(tree: Path) -> None:
    (tree / "broken.py").write_text("def\n")
    (tree / "deep.py").write_text("(" * 50_000 + ")" * 50_000)
    (tree / "link.py").symlink_to("/etc/passwd")
    (tree / "a\nb.py").write_text("")
    assert _compile(tree) == {"package/__pycache__/module"}


def test_a_folder_that_the_repository_brings_is_left_alone(tree: Path) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (tree / "package/__pycache__").symlink_to(outside)
    (tree / "left.py").write_text("")
    assert _compile(tree, leave=lambda path: path == "left.py") == set()
    assert list(outside.iterdir()) == []


def test_a_copy_of_the_tree_that_is_changed_is_compiled_anew(tree: Path) -> None:
    _compile(tree)
    code = (
        "import os, shutil, sys\n"
        "place = os.environ['HOME'] + '/copy'; shutil.copytree('.', place)\n"
        "with open(place + '/package/module.py', 'w') as file: file.write('VALUE = 2')\n"
        "sys.path.insert(0, place); import package.module as m; print(m.VALUE, place in m.__file__)"
    )
    assert _said(tree, code) == "2 True\n"


def test_a_folder_and_a_long_name_are_no_modules(tree: Path) -> None:
    (tree / "folder.py").mkdir()
    (tree / f"{'a' * 250}.py").write_text("VALUE = 1\n")
    for _ in range(2):
        assert _compile(tree) == {"package/__pycache__/module"}


def test_a_module_with_a_warning_warns_in_each_process(tree: Path) -> None:
    (tree / "warns.py").write_text("VALUE = 1 is 1\n")
    assert _compile(tree) == {"package/__pycache__/module"}


@pytest.mark.slow
def test_what_cannot_be_compiled_is_tried_once_after_the_rest(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "judge.gauntlet.repository.compiled._LIMITS",
        ResourceLimits(seconds=4.0, memory_bytes=2**31),
    )
    slow = b"# coding: punycode\n%b-%b" % (b"x" * 250_000, b"a" * 250_000)
    (tree / "a.py").write_bytes(slow)
    assert _compile(tree) == {"package/__pycache__/module"}
    monkeypatch.setattr("judge.gauntlet.repository.compiled.run", pytest.fail)
    assert _compile(tree) == {"package/__pycache__/module"}


def test_a_module_far_larger_than_its_source_is_not_kept(tree: Path) -> None:
    (tree / "large.py").write_text("\n".join(f"X = '{n:x}' * 2048" for n in range(256)))
    assert _compile(tree) == {"package/__pycache__/module"}
