"""The manifest of tiers: who may change which paths of a repository, and how that is measured.

Tier 0 is changed by people only; tier 1 with an operator's approval; tier 2 by whatever passes.
Some paths are tier 0 whatever a manifest says: the manifest, the reference set, the controller, the
tests, git's own files, and files that Python, pytest and installers obey wherever they lie.

Trust: bytes are hostile until parse_manifest() returns; the manifest of the base counts.
I/O: none.  Units: seconds, bytes, lines.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, astuple, replace

from judge.declared import read_declared
from judge.gauntlet.errors import ManifestError
from judge.gauntlet.repository.diffs import MAX_BINARY

PATH = "judge/tiers.toml"  # in every repository under the gauntlet
MAX_BYTES = 256 * 2**10
MAX_PATTERNS = 2_000
MAX_REPRESENTATIVE = 5  # tasks that a change of configuration is measured on first
_OBEYED = frozenset(  # wherever they lie: by Python at its start, by pytest, by installers
    (
        ".coveragerc",
        ".coveragerc.toml",
        ".pytest.ini",
        ".pytest.toml",
        "__pycache__",
        "conftest",
        "conftest.py",
        "pyproject.toml",
        "pytest.ini",
        "pytest.toml",
        "pyvenv.cfg",
        "setup.cfg",
        "setup.py",
        "sitecustomize",
        "sitecustomize.py",
        "tox.ini",
        "usercustomize",
        "usercustomize.py",
    )
)
_OBEYED_ENDS = (  # path files; the folders in which packages name their plugins
    ".dist-info",
    ".egg",
    ".egg-info",
    ".egg-link",
    ".pth",
)


class Text(str):
    """1 to 500 printable characters."""

    def __init__(self, value: str) -> None:
        if not value or not value.isprintable() or len(value) > 500:
            raise ValueError("1 to 500 printable characters are expected")


class PathPattern(Text):
    """Paths: `*` stays within a name, `**` is any number of folders; at the end, all beneath."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        parts = value.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in value:
            raise ValueError(f"{value!r} is not a path in the repository")
        if any("**" in part and part != "**" for part in parts):
            raise ValueError(f"{value!r} has ** next to other characters between two slashes")
        if any(mark in value for mark in "?[]{}!"):
            raise ValueError(f"{value!r} has wildcards other than * and **")
        written = ""
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            if part == "**":
                written += ".+" if last else "(?:[^/]+/)*"
            else:
                written += "[^/]*".join(map(re.escape, part.split("*"))) + ("" if last else "/")
        self._expression = re.compile(written, re.DOTALL)

    def matches(self, path: str) -> bool:
        """Return whether the pattern covers the path."""
        return self._expression.fullmatch(path) is not None

    def examples(self) -> tuple[str, ...]:
        """Return paths of several depths that it covers, with names that nothing else has."""
        depths = (1, 2, 3) if "**" in self else (1,)
        return tuple(
            "/".join(
                "/".join(["\0"] * depth) if part == "**" else part.replace("*", "\0")
                for part in self.split("/")
            )
            for depth in depths
        )


class FolderPath(PathPattern):
    """One folder of the repository."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        if "*" in value:
            raise ValueError(f"{value!r} is not a folder of the repository")


class Module(Text):
    """A module's name, with `.*` for the modules in it."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        if not re.fullmatch(r"\w+(\.\w+)*(\.\*)?", value, re.ASCII):
            raise ValueError(f"{value!r} is not a module name")


Patterns = Annotated[tuple[PathPattern, ...], Meta(max_length=MAX_PATTERNS)]
Command = Annotated[tuple[Text, ...], Meta(max_length=MAX_PATTERNS)]
Seconds = Annotated[int, Meta(ge=1, le=24 * 3600)]
Bytes = Annotated[int, Meta(ge=1, le=2**42)]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: what nobody reads, nobody obeys, so unknown keys are refused."""


class Tiers(_Table, frozen=True):
    """The patterns of each tier."""

    people: Patterns = field(name="0")
    approved: Patterns = field(name="1")
    tested: Patterns = field(name="2")


class Paths(_Table, frozen=True):
    """A table that names paths."""

    paths: Patterns


class TestCommand(Paths, frozen=True):
    """How the repository's tests are run."""

    __test__: ClassVar[bool] = False  # no test, whatever its name makes pytest think

    command: Command
    additions: Patterns  # what a proposal may add
    seconds: Seconds
    memory_bytes: Bytes
    choose: Literal["all", "imports"] = "all"  # what runs first; the rest runs before a promotion

    def __post_init__(self) -> None:
        _check_command(self.command, "python", "report")


class BenchmarkCommand(_Table, frozen=True):
    """How the repository answers a reference task."""

    command: Command
    seconds: Seconds  # one task
    memory_bytes: Bytes
    representative: tuple[Text, ...]  # task ids

    def __post_init__(self) -> None:
        _check_command(self.command, "python")
        named = self.representative
        if len(set(named)) != len(named) or len(named) > MAX_REPRESENTATIVE:
            raise ValueError(
                f"representative must name at most {MAX_REPRESENTATIVE} different tasks"
            )


class Code(_Table, frozen=True):
    """What changed code may do."""

    imports: Annotated[tuple[Module, ...], Meta(max_length=MAX_PATTERNS)]


class Weights(Paths, frozen=True):
    """Parameters of models: safetensors in the canonical form, the only binary files of a diff."""

    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BINARY)]


class Environment(_Table, frozen=True):
    """The virtual environment that the repository's dependencies are installed in."""

    path: Text  # absolute, or relative to the repository's top folder


class Bounds(_Table, frozen=True):
    """What no changed file may exceed."""

    file_lines: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Lint(_Table, frozen=True):
    """The table of bounds."""

    max: Bounds


class _File(_Table, frozen=True):
    version: Literal[1]
    line: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_-]{0,499}\Z")]  # a plain branch
    reference_set: FolderPath
    tiers: Tiers
    controller: Paths
    config: Paths
    tests: TestCommand
    benchmark: BenchmarkCommand
    code: Code
    lint: Lint = Lint(max=Bounds())
    environment: Environment | None = None  # None: Proctor's own
    weights: Weights | None = None  # None: there are none

    def __post_init__(self) -> None:
        for pattern in self.tests.paths:
            if not all(_matches(self.tiers.people, path) for path in pattern.examples()):
                raise ValueError(
                    f"the tests {str(pattern)!r} must be tier 0, because a proposal could weaken "
                    "them otherwise: add the pattern to tier 0"
                )


class Manifest(_File, frozen=True, kw_only=True):
    """What a repository says about its own paths."""

    sha256: str

    @property
    def interpreter(self) -> Path | None:
        """The folder of the virtual environment; None for Proctor's own."""
        return None if self.environment is None else Path(self.environment.path)

    def located(self, repository: Path) -> "Manifest":
        """Return the manifest with its paths of folders as they are for this repository."""
        if self.interpreter is None:
            return self
        return replace(self, environment=Environment(path=Text(str(repository / self.interpreter))))

    def tier_of(self, path: str) -> int:
        """Return the strictest tier that the path has; 0 where nothing else is said."""
        if self.is_controller(path) or self.is_test(path) or is_obeyed(path):
            return 0
        tiers = enumerate(astuple(self.tiers))
        return next((tier for tier, patterns in tiers if _matches(patterns, path)), 0)

    def is_controller(self, path: str) -> bool:
        """Return whether to touch the path is to touch what judges: it halts the line."""
        beneath = path == self.reference_set or path.startswith(f"{self.reference_set}/")
        return path == PATH or beneath or _matches(self.controller.paths, path)

    def is_config(self, path: str) -> bool:
        """Return whether the path holds configuration and nothing else."""
        return _matches(self.config.paths, path)

    def is_weights(self, path: str) -> bool:
        """Return whether the path holds the parameters of a model."""
        return self.weights is not None and _matches(self.weights.paths, path)

    def is_test(self, path: str) -> bool:
        """Return whether the path belongs to the tests."""
        return _matches(self.tests.paths, path)

    def may_add(self, path: str) -> bool:
        """Return whether a proposal may add this file, though it is tier 0."""
        forbidden = self.is_controller(path) or is_obeyed(path)
        return not forbidden and _matches(self.tests.additions, path)


def parse_manifest(data: bytes) -> Manifest:
    """Return what the bytes say; raise ManifestError naming the key that is wrong."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{PATH} has more than {MAX_BYTES} bytes")
    try:
        whole = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{PATH} is not TOML: {error}") from error
    try:
        found = read_declared(whole, _File)
    except ValueError as error:
        raise ManifestError(f"{PATH}: {error}") from error
    return Manifest(sha256=hashlib.sha256(data).hexdigest(), **asdict(found))


def _check_command(command: Command, *placeholders: str) -> None:
    if set(re.findall(r"\{(.*?)\}", " ".join(command))) != set(placeholders):
        wanted = " and ".join(f"{{{name}}}" for name in placeholders)
        raise ValueError(f"command must be a command that contains {wanted}")


def _matches(patterns: Iterable[PathPattern], path: str) -> bool:
    return any(pattern.matches(path) for pattern in patterns)


def is_obeyed(path: str) -> bool:
    """Tell whether Python, pytest, git or an installer obeys a file of this name."""
    return any(
        part.startswith(".git") or part in _OBEYED or part.endswith(_OBEYED_ENDS)
        for part in PurePosixPath(path.casefold()).parts
    )
