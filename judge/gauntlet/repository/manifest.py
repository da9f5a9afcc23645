"""The manifest of tiers: who may change which paths of a repository, and how that is measured.

Tier 0 is changed by people only; tier 1 with an operator's approval; tier 2 by whatever passes.
Some paths are tier 0 whatever a manifest says: the manifest, the reference set, the controller,
git's own files, and files that Python and pytest obey wherever they lie.

Trust: bytes are hostile until parse_manifest() returns; the manifest of the base counts.
I/O: none.  Units: seconds, bytes, lines.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from judge.gauntlet.errors import ManifestError

PATH = "judge/tiers.toml"  # in every repository under the gauntlet
MAX_BYTES = 256 * 2**10
MAX_PATTERNS = 2_000
MAX_REPRESENTATIVE = 5  # tasks that a change of configuration is measured on first
MAX_SECONDS = 24 * 3600
MAX_MEMORY = 2**42
_OBEYED = frozenset(  # wherever they lie: by Python at its start, by pytest, by installers
    (
        "__pycache__",
        "conftest.py",
        "pyproject.toml",
        "pytest.ini",
        "setup.cfg",
        "setup.py",
        "sitecustomize.py",
        "tox.ini",
        "usercustomize.py",
    )
)
_TABLES = ("tiers", "controller", "config", "tests", "benchmark", "code", "lint")


@dataclass(frozen=True, kw_only=True)
class TestCommand:
    """How the repository's tests are run."""

    __test__ = False  # no test, whatever its name makes pytest think

    command: tuple[str, ...]
    paths: tuple[str, ...]
    additions: tuple[str, ...]  # what a proposal may add
    seconds: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class BenchmarkCommand:
    """How the repository answers a reference task."""

    command: tuple[str, ...]
    seconds: int  # one task
    memory_bytes: int
    representative: tuple[str, ...]  # task ids


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a repository says about its own paths."""

    sha256: str
    line: str
    reference_set: str
    tiers: Mapping[int, tuple[str, ...]]
    controller: tuple[str, ...]
    config: tuple[str, ...]
    tests: TestCommand
    benchmark: BenchmarkCommand
    imports: tuple[str, ...]
    file_lines: int | None = None

    def tier_of(self, path: str) -> int:
        """Return the strictest tier that the path has; 0 where nothing else is said."""
        if self.is_controller(path) or _is_obeyed(path):
            return 0
        return next((tier for tier in (0, 1, 2) if self._matches(str(tier), path)), 0)

    def is_controller(self, path: str) -> bool:
        """Return whether to touch the path is to touch what judges: it halts the line."""
        beneath = path == self.reference_set or path.startswith(f"{self.reference_set}/")
        return path == PATH or beneath or self._matches("controller", path)

    def is_config(self, path: str) -> bool:
        """Return whether the path holds configuration and nothing else."""
        return self._matches("config", path)

    def is_test(self, path: str) -> bool:
        """Return whether the path belongs to the tests."""
        return self._matches("tests", path)

    def may_add(self, path: str) -> bool:
        """Return whether a proposal may add this file, though it is tier 0."""
        forbidden = self.is_controller(path) or _is_obeyed(path)
        return not forbidden and self._matches("additions", path)

    def _matches(self, name: str, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._patterns[name])

    @cached_property
    def _patterns(self) -> Mapping[str, tuple[re.Pattern[str], ...]]:
        named = {
            **{str(tier): patterns for tier, patterns in self.tiers.items()},
            "controller": self.controller,
            "config": self.config,
            "tests": self.tests.paths,
            "additions": self.tests.additions,
        }
        return {name: tuple(map(_compiled, patterns)) for name, patterns in named.items()}


def parse_manifest(data: bytes) -> Manifest:
    """Return what the bytes say; raise ManifestError naming the key that is wrong."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{PATH} has more than {MAX_BYTES} bytes")
    try:
        whole = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{PATH} is not TOML: {error}") from error
    table = _Table("", whole)
    table.knows("version", "line", "reference_set", *_TABLES)
    if table.take("version", int) != 1:
        raise ManifestError(f"{PATH}: version must be 1, the only supported version")
    tiers, code = table.table("tiers"), table.table("code")
    tiers.knows("0", "1", "2")
    code.knows("imports")
    return Manifest(
        sha256=hashlib.sha256(data).hexdigest(),
        line=_branch(table.text("line")),
        reference_set=_folder(table.text("reference_set")),
        tiers={tier: tiers.patterns(str(tier)) for tier in (0, 1, 2)},
        controller=table.table("controller", "paths").patterns("paths"),
        config=table.table("config", "paths").patterns("paths"),
        tests=_tests(table.table("tests")),
        benchmark=_benchmark(table.table("benchmark")),
        imports=code.modules("imports"),
        file_lines=_file_lines(table),
    )


def _tests(table: "_Table") -> TestCommand:
    table.knows("command", "paths", "additions", "seconds", "memory_bytes")
    return TestCommand(
        command=table.command("command", placeholders=("python", "report")),
        paths=table.patterns("paths"),
        additions=table.patterns("additions"),
        seconds=table.whole("seconds", MAX_SECONDS),
        memory_bytes=table.whole("memory_bytes", MAX_MEMORY),
    )


def _benchmark(table: "_Table") -> BenchmarkCommand:
    table.knows("command", "seconds", "memory_bytes", "representative")
    representative = table.texts("representative")
    if len(set(representative)) != len(representative) or len(representative) > MAX_REPRESENTATIVE:
        raise ManifestError(
            f"{PATH}: benchmark.representative must name at most {MAX_REPRESENTATIVE} different "
            "tasks"
        )
    return BenchmarkCommand(
        command=table.command("command", placeholders=("python",)),
        seconds=table.whole("seconds", MAX_SECONDS),
        memory_bytes=table.whole("memory_bytes", MAX_MEMORY),
        representative=representative,
    )


def _file_lines(table: "_Table") -> int | None:
    if "lint" not in table.values:
        return None
    bounds = table.table("lint", "max").table("max", "file_lines")
    return bounds.whole("file_lines", 1_000_000) if bounds.values else None


class _Table:
    """One table of the file, whose keys are taken with their types."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.values = values

    def knows(self, *keys: str) -> None:
        """Refuse what is not among the keys: what nobody reads, nobody obeys."""
        if unknown := sorted(set(self.values) - set(keys)):
            raise ManifestError(f"{PATH}: unknown key {self._key(unknown[0])!r}")

    def take(self, key: str, kind: type) -> Any:
        if key not in self.values:
            raise ManifestError(f"{PATH}: {self._key(key)} is missing")
        value = self.values[key]
        if type(value) is not kind:  # a bool is no int here
            raise ManifestError(f"{PATH}: {self._key(key)} must be of type {kind.__name__}")
        return value

    def table(self, key: str, *known: str) -> "_Table":
        found = _Table(self._key(key), self.take(key, dict))
        if known:
            found.knows(*known)
        return found

    def text(self, key: str) -> str:
        value: str = self.take(key, str)
        if not value or not value.isprintable() or len(value) > 500:
            raise ManifestError(f"{PATH}: {self._key(key)} must be 1 to 500 printable characters")
        return value

    def whole(self, key: str, most: int) -> int:
        value: int = self.take(key, int)
        if not 1 <= value <= most:
            raise ManifestError(f"{PATH}: {self._key(key)} must be from 1 to {most}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if len(values) > MAX_PATTERNS:
            raise ManifestError(f"{PATH}: {self._key(key)} has more than {MAX_PATTERNS} entries")
        entry = _Table(self._key(key), {str(place): value for place, value in enumerate(values)})
        return tuple(entry.text(place) for place in entry.values)

    def patterns(self, key: str) -> tuple[str, ...]:
        for pattern in (found := self.texts(key)):
            if problem := _problem_of_pattern(pattern):
                raise ManifestError(f"{PATH}: {self._key(key)}: {pattern!r} {problem}")
        return found

    def command(self, key: str, *, placeholders: tuple[str, ...]) -> tuple[str, ...]:
        parts = self.texts(key)
        named = set(re.findall(r"\{(.*?)\}", " ".join(parts)))
        if not parts or named != set(placeholders):
            wanted = " and ".join(f"{{{name}}}" for name in placeholders)
            raise ManifestError(
                f"{PATH}: {self._key(key)} must be a command that contains {wanted}"
            )
        return parts

    def modules(self, key: str) -> tuple[str, ...]:
        for name in (found := self.texts(key)):
            if not re.fullmatch(r"\w+(\.\w+)*(\.\*)?", name, re.ASCII):
                raise ManifestError(f"{PATH}: {self._key(key)}: {name!r} is not a module name")
        return found

    def _key(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def _branch(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", name):
        raise ManifestError(f"{PATH}: line must be a plain branch name, not {name!r}")
    return name


def _folder(path: str) -> str:
    if "*" in path or _problem_of_pattern(path):
        raise ManifestError(
            f"{PATH}: reference_set must be a folder of the repository, not {path!r}"
        )
    return path


def _problem_of_pattern(pattern: str) -> str | None:
    parts = pattern.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in pattern:
        return "is not a path in the repository"
    if any("**" in part and part != "**" for part in parts):
        return "has ** next to other characters between two slashes"
    if any(mark in pattern for mark in "?[]{}!"):
        return "has wildcards other than * and **"
    return None


def _compiled(pattern: str) -> re.Pattern[str]:
    """`*` stays within a name, `**` is any number of folders; at the end, all that lies beneath."""
    written, parts = "", pattern.split("/")
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            written += ".+" if last else "(?:[^/]+/)*"
        else:
            written += "[^/]*".join(map(re.escape, part.split("*"))) + ("" if last else "/")
    return re.compile(written, re.DOTALL)


def _is_obeyed(path: str) -> bool:
    return any(
        part.startswith(".git") or part in _OBEYED or part.endswith(".pth")
        for part in PurePosixPath(path.casefold()).parts
    )
