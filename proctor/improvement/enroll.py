"""Puts an ordinary repository under the gauntlet: a manifest, and a worker that answers tasks.

What is written is a proposal for people to read, change and commit; nothing here opens a line. The
tiers follow from the layout: tests and settings are tier 0, package modules tier 2, their entry
points and their data tier 1, and everything else is tier 0.

I/O: reads the repository's branch and files, and enrolled.toml; writes into its work tree.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from string import Template

from judge.gauntlet.errors import ManifestError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, parse_manifest
from proctor.errors import ProctorError
from proctor.improvement.functions import Functions

SET = "judge/reference_tasks"
WORKER = f"{SET}/worker.py"
ENVIRONMENTS = (".venv", "venv")  # usual folders of virtual environments
_TESTS = re.compile(r"(^|/)(tests?/|test_[^/]*\.py$|[^/]*_test\.py$|conftest\.py$)")
_ENTRIES = ("__init__.py", "__main__.py")
_DATA = (".csv", ".json", ".md", ".toml", ".txt", ".yaml", ".yml")
_MANIFEST = Template(Path(__file__).with_name("enrolled.toml").read_text(encoding="utf-8"))
_WORKER = '''\
"""Answers reference tasks: calls the task's function, and prints what it returns as JSON."""

import json
import sys

answers, sys.stdout = sys.stdout, sys.stderr  # what modules and functions print is no answer

{imports}

FUNCTIONS = {{
{table}
}}

told = json.loads(sys.stdin.readline())["parameters"]
print(json.dumps({{"ready": True}}), file=answers, flush=True)
for _ in sys.stdin:
    result = FUNCTIONS[told["function"]](*told["arguments"])
    print(json.dumps(result), file=answers, flush=True)
'''


def enroll(
    folder: Path, *, functions: Sequence[str], branch: str, environment: str | None
) -> list[Path]:
    """Write the manifest and the worker into a work tree; return the files that were written.

    Raises ProctorError where the repository has a manifest already, or a function is not in it.
    """
    repository = Repository(folder)
    commit = repository.head(branch)
    paths = repository.paths(commit)
    if PATH in paths or (folder / PATH).exists():
        raise ProctorError(
            f"{folder / PATH} already exists: edit it, or see the line with `proctor line show`"
        )
    found = Functions(repository, commit, branch)
    modules = [found.find(function) for function in functions]
    if environment is None:
        environment = next((each for each in ENVIRONMENTS if (folder / each).is_dir()), None)
    elif not (folder / environment / "pyvenv.cfg").is_file():
        raise ProctorError(
            f"{folder / environment} is not a virtual environment; make it with `python -m venv`"
        )
    covers = environment and any((folder / environment).glob("lib/python3*/*/pytest_cov"))
    manifest = _manifest(paths, modules, branch=branch, environment=environment)
    if covers:  # it would write into the tree, and time what it traces
        manifest = manifest.replace('"-q",', '"-q", "--no-cov",')
    try:
        parse_manifest(manifest.encode())
    except ManifestError as error:
        raise ProctorError(f"no manifest can be proposed for this repository: {error}") from error
    files = {PATH: manifest, WORKER: _worker(functions)}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def left_out(folder: Path, branch: str) -> list[str]:
    """Return the modules of packages that are in the work tree, and not on the branch."""
    repository = Repository(folder)
    known = repository.files(repository.head(branch))
    found = (
        file.relative_to(folder).as_posix()
        for package in _packages(known)
        for file in (folder / package).glob("*")
        if file.suffix in (".py", ".pyd", ".so")
    )
    return sorted(path for path in found if path not in known and not _TESTS.search(path))


def _packages(paths: Iterable[str]) -> set[str]:
    """Return the folders that hold packages, each with a slash at its end."""
    return {
        f"{PurePosixPath(path).parent}/"
        for path in paths
        if path.endswith("/__init__.py") and not _TESTS.search(path)
    }


def _manifest(
    paths: Sequence[str], modules: Sequence[str], *, branch: str, environment: str | None
) -> str:
    """Return the manifest's text; `modules` are the files of the functions."""
    packages = _packages(paths)
    tiers: dict[int, list[str]] = {0: ["judge/**"], 1: [], 2: []}
    tests = sorted({_test_pattern(path) for path in paths if _TESTS.search(path)}) or ["tests/**"]
    tiers[0] += tests
    for path in paths:
        name = PurePosixPath(path).name
        if _TESTS.search(path) or not (path in modules or path.startswith(tuple(packages))):
            continue
        if path.endswith(".py"):
            tiers[1 if name in _ENTRIES else 2].append(path)
        elif path.endswith(_DATA):
            tiers[1].append(path)
    names = (each.removeprefix("src/").split("/")[0] for each in (*packages, *modules))
    tops = sorted({each.removesuffix(".py") for each in names})
    place = "" if environment is None else f"\n[environment]\npath = {json.dumps(environment)}\n"
    text = _MANIFEST.substitute(
        line=json.dumps(branch),
        set=json.dumps(SET),
        worker=json.dumps(WORKER),
        tests=_array(tests),
        additions=_array([_addition(each) for each in tests if not each.endswith("conftest.py")]),
        own="\n    ".join(f"{json.dumps(f'{top}.*')}," for top in tops),
        **{f"tier_{tier}": _array(patterns) for tier, patterns in tiers.items()},
    )
    return text + place


def _test_pattern(path: str) -> str:
    """Return the pattern of the tests that a path belongs to: its tests folder, or its likes."""
    parts = path.split("/")
    for place, part in enumerate(parts[:-1]):
        if part in ("test", "tests"):
            return "/".join([*parts[: place + 1], "**"])
    name = re.sub(r"^test_.*\.py$", "test_*.py", re.sub(r"^.*_test\.py$", "*_test.py", parts[-1]))
    return "/".join([*parts[:-1], name])


def _addition(tests: str) -> str:
    """Return which files a proposal may add to such tests."""
    return f"{tests.removesuffix('**')}test_*.py" if tests.endswith("**") else tests


def _array(values: Sequence[str]) -> str:
    if not values:
        return "[]"
    return "[\n" + "".join(f"    {json.dumps(value)},\n" for value in values) + "]"


def _worker(functions: Sequence[str]) -> str:
    imports, table = [], []
    for number, function in enumerate(functions, start=1):
        module, _, name = function.partition(":")
        imports.append(f"from {module} import {name} as function_{number}  # noqa: E402")
        table.append(f'    "{function}": function_{number},')
    return _WORKER.format(imports="\n".join(sorted(imports)), table="\n".join(table))
