"""Tests that must fail, planted beside the real ones: a report in which one passes is not trusted.

Code that is tested shares a process with pytest, and can make every test pass from within. So the
gate adds tests that cannot pass, at names that nobody is told: in the folders of real tests, with
function names of real tests, at random places. Code that makes failing tests pass, or that writes
the report itself, would have to know which tests are planted.

Not covered: code that makes only some real tests pass, which it knows by their files' names.
Source: docs/reference/gauntlet.md, "The gate of tests".
I/O: writes into the tree that is passed in.
"""

import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

PLANTED = "proctor::planted"
"""Among the cases of a base: its own run reported the planted tests as failed."""
_MOST_FILES = 20
_MOST_TESTS = 3  # in a file


def runs_pytest(command: Sequence[str]) -> bool:
    """Tell whether a command runs pytest, which collects what is planted."""
    return any(PurePosixPath(part).name in ("pytest", "py.test") for part in command)


def module_of(path: str) -> str:
    """Return how a report calls a file of tests."""
    return path.removesuffix(".py").replace("/", ".")


def uncollected(paths: Iterable[str], cases: Iterable[str]) -> list[str]:
    """Return those Python files that no case of a report comes from."""
    known = {f"{case.partition('::')[0]}." for case in cases}
    python = (path for path in paths if path.endswith(".py"))
    return [p for p in python if not any(each.startswith(f"{module_of(p)}.") for each in known)]


def within(cases: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Return those cases of a report that come from files of tests."""
    modules = {module_of(path) for path in paths}

    def stands_there(name: str) -> bool:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return bool(name)

    return frozenset(case for case in cases if stands_there(case.partition("::")[0]))


def plant(tree: Path, tests: Iterable[str], cases: Mapping[str, str]) -> frozenset[str]:
    """Write failing tests into a tree, beside some of its tests; return their names in a report.

    `tests` are paths of tier 0, `cases` the outcomes of the base, or empty where nothing is known.
    """
    draw = random.Random(secrets.randbits(128))  # noqa: S311 - seeded by the system's own
    found = [
        PurePosixPath(path)
        for path in tests
        if is_test_file(path) and (not cases or not uncollected([path], cases))
    ]
    taken = {each.name for each in found}
    planted: set[str] = set()
    for each in draw.sample(found, k=min(len(found), _MOST_FILES)):
        name = _new_name(each, found, taken, draw)
        taken.add(name)
        path, known = each.with_name(name), _functions(str(each), cases)
        names = draw.sample(known, k=min(len(known), _MOST_TESTS)) or ["test_it"]
        (tree / path).write_text("\n\n".join(_failing(test, draw) for test in names), "utf-8")
        planted |= {f"{module_of(str(path))}::{test}" for test in names}
    return frozenset(planted)


def is_test_file(path: str) -> bool:
    """Tell whether pytest takes a file for one of tests, by its name."""
    stem = PurePosixPath(path).stem
    return path.endswith(".py") and (stem.startswith("test_") or stem.endswith("_test"))


def _functions(path: str, cases: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a file's test functions, as far as a report tells them."""
    parts = [case.partition("::") for case in cases]
    names = {name.partition("[")[0] for where, _, name in parts if where == module_of(path)}
    return tuple(sorted(name for name in names if name.startswith("test") and name.isidentifier()))


def _new_name(
    beside: PurePosixPath,
    others: Sequence[PurePosixPath],
    taken: Iterable[str],
    draw: random.Random,
) -> str:
    """Return a file name that looks like those of the others."""
    known = sorted({word for each in others for word in each.stem.split("_")} - {"test"})
    while True:
        words = [draw.choice(known or ["more"]), draw.choice(known or ["cases"])]
        if draw.random() < 0.5:
            words.append(str(draw.randrange(100)))
        stem = "_".join(words)
        ends = beside.stem.endswith("_test")
        name = f"{stem}_test.py" if ends else f"test_{stem}.py"
        if name not in taken:
            return name


def _failing(name: str, draw: random.Random) -> str:
    one, other = draw.sample(range(1_000), k=2)
    return f"def {name}():\n    assert {one} == {other}\n"
