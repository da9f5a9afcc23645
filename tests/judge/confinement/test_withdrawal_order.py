"""All that runs foreign code gives up the same rights, in one order, before it runs any."""

import ast
import json
import os
import platform
import resource
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from judge.confinement import withdrawal, worker
from judge.confinement.seccomp import SUBMISSION

_WHOLE = [
    "count_tasks",
    "withdraw",
    "limit_address_space",
    "lower_limit",
    "hide_files",
    "filter_system_calls",
]


@pytest.mark.parametrize("limited", [True, False])
def test_rights_are_given_up_in_one_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limited: bool
) -> None:
    done: list[tuple[str, Any]] = []
    said: dict[str, Any] = {"count_tasks": 7, "withdraw": ["unprivileged user"]}
    for name in _WHOLE:

        def step(*given: Any, name: str = name, **named: Any) -> Any:
            done.append((name, given or named))
            return said.get(name, True)

        monkeypatch.setattr(withdrawal, name, step)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    threads = {} if limited else {"threads": None}
    found = withdrawal.give_up([Path("/lib")], root=tmp_path, memory_bytes=5, **threads)
    assert found == ["unprivileged user", "hidden files", "system-call filter"]
    left_out = () if limited else ("count_tasks", "lower_limit")
    assert [name for name, _ in done] == [name for name in _WHOLE if name not in left_out]
    given = dict(done)
    assert given["limit_address_space"] == (5,)
    assert given["hide_files"] == ([Path("/lib")],)
    assert given["filter_system_calls"] == (SUBMISSION,)
    assert given.get("lower_limit") == (
        (resource.RLIMIT_NPROC, 7 + withdrawal.THREADS) if limited else None
    )


def functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    found = (each for each in ast.iter_child_nodes(tree) if isinstance(each, ast.FunctionDef))
    return {each.name: each for each in found}


def test_rights_are_given_up_before_anything_foreign() -> None:
    code = functions(ast.parse(Path(worker.__file__).read_text("utf-8")))
    calls = [each for each in ast.walk(code["main"]) if isinstance(each, ast.Call)]
    order = [ast.unparse(each.func) for each in sorted(calls, key=lambda each: each.lineno)]
    wanted = ["limit_resources", "_KINDS[asked['kind']]", "give_up", "serve"]
    assert [name for name in order if name in wanted] == wanted
    for kind, foreign in (
        ("_submission", "load_submitted_model"),
        ("_task", "TaskWorker"),
        ("_images", "content"),
    ):
        assert worker._KINDS[kind.removeprefix("_")] is getattr(worker, kind)
        served = functions(code[kind])["serve"]  # what is called when the rights are given up

        def names(tree: ast.AST, foreign: str = foreign) -> int:
            return sum(isinstance(e, ast.Name) and e.id == foreign for e in ast.walk(tree))

        assert names(served) == names(code[kind]) > 0


@pytest.mark.parametrize(("kind", "limited"), [("submission", True), ("images", False)])
def test_threads_are_limited_where_code_of_others_runs(
    kind: str, limited: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = {"kind": kind, "limits": {"memory_bytes": 5}, "readable": []}
    (tmp_path / "request.json").write_text(json.dumps(asked))
    given: dict[str, Any] = {}

    def give_up(*_: object, **settings: Any) -> None:
        given.update(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "give_up", give_up)
    monkeypatch.setattr(worker, "limit_resources", lambda **_: None)
    monkeypatch.setattr(worker, "os", mock.Mock(os))
    monkeypatch.setitem(worker._KINDS, kind, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        worker.main(tmp_path)
    assert given["threads"] == (withdrawal.THREADS if limited else None)
