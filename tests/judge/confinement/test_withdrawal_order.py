"""All that runs foreign code gives up the same rights, in one order, before it runs any."""

import ast
import platform
from pathlib import Path
from typing import Any

import pytest

from judge.confinement import child, decoding, task_child, withdrawal
from judge.confinement.seccomp import SUBMISSION

_WHOLE = [
    "count_tasks",
    "withdraw",
    "limit_address_space",
    "limit_tasks",
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
    left_out = () if limited else ("count_tasks", "limit_tasks")
    assert [name for name, _ in done] == [name for name in _WHOLE if name not in left_out]
    given = dict(done)
    assert given["limit_address_space"] == (5,)
    assert given["hide_files"] == ([Path("/lib")],)
    assert given["filter_system_calls"] == (SUBMISSION,)
    assert given.get("limit_tasks") == ((7 + withdrawal.THREADS,) if limited else None)


@pytest.mark.parametrize(
    ("module", "foreign", "limited"),
    [
        (child, "load_submitted_model", True),
        (task_child, "TaskWorker", True),
        (decoding, "receive", False),  # the images; it runs no code of anybody's
    ],
)
def test_rights_are_given_up_before_anything_foreign(
    module: Any, foreign: str, limited: bool
) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    (main,) = (
        each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "main"
    )
    calls = [
        (each.lineno, each.func.id, each)
        for each in ast.walk(main)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    ]
    wanted = ("limit_resources", "give_up", foreign)
    order = [name for _, name, _ in sorted(calls, key=lambda each: each[0]) if name in wanted]
    assert list(dict.fromkeys(order)) == [*wanted]
    (given,) = (each for _, name, each in calls if name == "give_up")
    assert ("threads" not in {each.arg for each in given.keywords}) == limited
