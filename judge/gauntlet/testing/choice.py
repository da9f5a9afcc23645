"""Which test files a change can reach, found by reading imports: those run first.

A test file is left out if nothing leads from it to a changed file. What leads from a file to
another one: an import, wherever it stands; the `__init__.py` files above what is imported, and the
`conftest.py` files above a test; a string that names a module, as `python -m` and lazy imports use
it; a string that names a path. Code that lists folders reaches every file that it may find there.
In doubt a test is chosen: a changed file that is not Python, or that the tests themselves use, and
a file that cannot be parsed, reach everything.

Not covered: modules whose names are put together at run time. The tests that were left out run
before a promotion, so that a wrong choice costs time, and lets nothing through.
Source: docs/reference/gauntlet.md, "The gate of tests".
Trust: only files of the base are parsed, and what is parsed is not run.
I/O: none.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from judge.gauntlet.repository.lint import parsed, words
from judge.gauntlet.testing.plants import is_test_file

_STARTS = words(  # names in code that imports, or starts programs, by strings
    "Popen __import__ create_subprocess_exec create_subprocess_shell eval exec execv execve execvp"
    " find_spec import_module multiprocessing posix_spawn pytest_plugins run_module run_path"
    " runpy spawnv subprocess system"
)
_LISTS = words("copytree glob iglob iterdir listdir rglob scandir walk")
_HERE = "__file__"
_ANYWHERE = words("cwd getcwd parents resources")  # places beyond a file's own folder
_LISTED_BY_GIT = "ls-files"
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_OPEN_END = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.$", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)
Name = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The test files that need not run first, and why these."""

    left_out: tuple[str, ...]
    reason: str


@dataclass
class _Said:
    """What a file's code says about others."""

    imports: set[Name] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    unfinished: set[str] = field(default_factory=set)  # "a.b" of f"a.b.{name}"
    climbs: bool = False  # above its own folder


def choose(
    files: Mapping[str, bytes],
    changed: Collection[str],
    *,
    paths: Collection[str],
    is_test: Callable[[str], bool],
) -> Choice:
    """Return the choice of a repository's test files for a change.

    `files` are the base's Python files, `paths` all paths of the base and of the candidate.
    """
    tests = sorted(path for path in files if is_test(path) and is_test_file(path))
    whole = _why_whole(changed, is_test)
    if whole is not None:
        return Choice(left_out=(), reason=whole)
    reaching = _Graph(files, paths, is_test).reaching(changed)
    left_out = tuple(path for path in tests if path not in reaching)
    shown = sorted(changed)[0] + (f" and {len(changed) - 1} more" if len(changed) > 1 else "")
    count = len(tests) - len(left_out)
    return Choice(left_out=left_out, reason=f"{count} of {len(tests)} test files reach {shown}")


def closure(
    files: Mapping[str, bytes],
    start: Iterable[str],
    *,
    paths: Collection[str],
    is_test: Callable[[str], bool],
) -> set[str]:
    """Return the files that some files import, directly or through others, with themselves.

    The `__init__.py` above each is among them, the `conftest.py` above a test, and files that are
    not Python, lie in a folder of these modules, and are named there.
    """
    return _all_from(start, _Graph(files, paths, is_test).imported_by)


def _all_from(start: Iterable[str], step: Callable[[str], set[str]]) -> set[str]:
    """Return what any number of steps leads to."""
    found = set(start)
    left = list(found)
    while left:
        new = step(left.pop()) - found
        found |= new
        left += new
    return found


def _why_whole(changed: Collection[str], is_test: Callable[[str], bool]) -> str | None:
    for path in sorted(changed):
        if not path.endswith(".py"):
            return f"all test files: {path} is not Python, and imports do not tell who reads it"
        if is_test(path) or PurePosixPath(path).name == "conftest.py":
            return f"all test files: {path} is used by tests"
    return None


class _Graph:
    """Which file leads to which: by running it, which goes on from there, or by reading it."""

    def __init__(
        self, files: Mapping[str, bytes], paths: Collection[str], is_test: Callable[[str], bool]
    ) -> None:
        self._python = frozenset(path for path in paths if path.endswith(".py"))
        self._is_test = is_test
        self._modules = self._named()
        self._ends: defaultdict[str, set[str]] = defaultdict(set)  # end of a path -> paths
        self._beneath: defaultdict[str, set[str]] = defaultdict(set)  # folder -> paths
        for path in paths:
            parts = PurePosixPath(path).parts
            for at in range(len(parts)):
                self._ends["/".join(parts[at:])].add(path)
                self._beneath["/".join(parts[:at])].add(path)
        self._said = {path: _read(path, content) for path, content in files.items()}
        self._runs: dict[str, set[str]] = {}
        self._reads: dict[str, Callable[[str], bool]] = {}
        for path, said in self._said.items():
            if said is None:
                self._runs[path], self._reads[path] = set(), _everything
            else:
                self._runs[path] = self._run_by(path, said)
                self._reads[path] = self._read_by(path, said)

    def imported_by(self, path: str) -> set[str]:
        """Return the files that this one imports, and those that lie above it and run first."""
        said = self._said.get(path)
        if said is None:
            return set()
        found = self._with_above(path, self._all_named(said.imports))
        folder = path.rpartition("/")[0]
        data = {each for each in self._beneath[folder] if not each.endswith(".py")}
        return found | {each for each in data if PurePosixPath(each).name in said.strings}

    def reaching(self, changed: Collection[str]) -> set[str]:
        """Return the files that lead to a changed one, the changed ones among them."""
        comes_from: defaultdict[str, set[str]] = defaultdict(set)
        for path, others in self._runs.items():
            for other in others:
                comes_from[other].add(path)
        reading = {path for path, reads in self._reads.items() if any(map(reads, changed))}
        return _all_from({*changed, *reading}, comes_from.__getitem__)

    def _named(self) -> Mapping[Name, set[str]]:
        """Return the files by the names that they can be imported by.

        A name begins in any folder that is no package: which folders are on Python's path is
        decided at run time.
        """
        found: defaultdict[Name, set[str]] = defaultdict(set)
        for path in self._python:
            parts = PurePosixPath(path).with_suffix("").parts
            name = parts[:-1] if parts[-1] == "__init__" else parts
            for at in range(len(name)):
                if not at or "/".join((*parts[:at], "__init__.py")) not in self._python:
                    found[name[at:]].add(path)
        return found

    def _run_by(self, path: str, said: _Said) -> set[str]:
        """Return the files that run if this one does."""
        found = self._all_named(said.imports)
        starts = bool(said.names & _STARTS)
        for text in said.strings:
            dotted = (each for each in _DOTTED.findall(text) if each not in self._ends)
            found |= self._all_named(tuple(each.split(".")) for each in dotted)
            if starts:
                found |= self._started(text, said_by_test=self._is_test(path))
                found |= {each for each in self._pointed_at(text) if each in self._python}
        for text in said.unfinished:
            name = tuple(text.split("."))
            begun = (files for each, files in self._modules.items() if each[: len(name)] == name)
            found = found.union(*begun)
        return self._with_above(path, found) - {path}

    def _all_named(self, names: Iterable[Name]) -> set[str]:
        """Return the modules of names, and those that their beginnings name."""
        cut = {name[:length] for name in names for length in range(1, len(name) + 1)}
        return set().union(*(self._modules.get(name, ()) for name in cut))

    def _started(self, text: str, *, said_by_test: bool) -> set[str]:
        """Return what `python -m WORD`, and the like, would start.

        Words in a test's longer texts count too: they may be a program.
        """
        words = set(_WORD.findall(text)) if said_by_test else {text}
        found: set[str] = set()
        for word in words:
            named = self._modules.get((word,), ())
            is_package = any(each.endswith("/__init__.py") for each in named)
            if is_package or word == text or "import" in text:
                found |= {*named, *self._modules.get((word, "__main__"), ())}
        return found

    def _pointed_at(self, text: str) -> set[str]:
        """Return the files that paths in a text name, or that lie beneath such a folder."""
        found: set[str] = set()
        for each in _PATH.findall(text):
            if "/" in each or "." in each:
                found |= self._ends.get(each, set())
            if "/" in each:
                found |= self._beneath.get(each, set())
        return found

    def _with_above(self, path: str, found: set[str]) -> set[str]:
        """Return the files that a file leads to, and what lies above all of them and runs first."""
        above = [self._above(each, "__init__.py") for each in (*found, path)]
        if self._is_test(path):
            above.append(self._above(path, "conftest.py"))
        return found.union(*above)

    def _above(self, path: str, name: str) -> set[str]:
        """Return the files of a name in a file's folder and in the folders above it."""
        folders = PurePosixPath(path).parents
        return {each for folder in folders if (each := str(folder / name)) in self._python}

    def _read_by(self, path: str, said: _Said) -> Callable[[str], bool]:
        """Return which files this one may read."""
        if _LISTED_BY_GIT in said.strings:
            return _everything
        if said.names & _LISTS:
            if said.climbs or said.names & _ANYWHERE:
                return _everything
            if self._is_test(path):
                helpers = filter(self._is_test, self._all_named(said.imports))
                known = [self._said.get(each) for each in helpers]
                if any(each is None or {_HERE, *_ANYWHERE} & each.names for each in known):
                    return _everything
        found = set().union(*map(self._pointed_at, said.strings))
        if said.names & _LISTS and _HERE in said.names:
            found |= self._beneath["" if "/" not in path else path.rpartition("/")[0]]
        return found.__contains__


def _everything(_: str) -> bool:
    return True


def _read(path: str, content: bytes) -> _Said | None:
    """Return what a file says; None if it cannot be parsed."""
    if (tree := parsed(content)) is None:
        return None
    said = _Said()
    package = PurePosixPath(path).parts[:-1]
    prose = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                said.imports |= {tuple(each.name.split(".")) for each in names}
                said.names |= {part for each in names for part in each.name.split(".")}
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: max(0, len(package) - level + 1)] if level else ()
                start = (*above, *(module.split(".") if module else ()))
                said.imports |= {start, *((*start, each.name) for each in names)}
                said.names |= {*start, *(each.name for each in names)}
            case ast.Name(id=name):
                said.names.add(name)
            case ast.Attribute(value=inner, attr=name):
                said.names.add(name)
                said.climbs |= name == "parent" and getattr(inner, "attr", None) == "parent"
            case ast.Expr(value=ast.Constant() as text):
                prose.add(text)
            case ast.JoinedStr(values=parts):
                for part in parts[:-1]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        said.unfinished |= set(_OPEN_END.findall(part.value))
            case ast.Constant(value=str(text)) if node not in prose:
                said.strings.add(text)
    return said
