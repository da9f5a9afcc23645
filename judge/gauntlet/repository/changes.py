"""Compares what a proposal really changes with the manifest and with what it declares.

Looked at are two trees, never the diff's own headers: a rename is a deletion and an addition, and
a link, a submodule or an executable file shows by its mode. A path has to be one that every file
system takes for itself and for nothing else. A new name is plain ASCII, so that a reader sees every
character of it; names that the base has may stay.

Source: git's fsck and verify_path() for what `.git` can look like; PEP 420 and importlib's order of
finders for what takes a module's place; "Naming Files, Paths, and Namespaces" (Microsoft) for the
names of devices.
Trust: paths and declarations are hostile.
I/O: none.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from judge.gauntlet.errors import DeclarationError, DiffError, TierError
from judge.gauntlet.repository.manifest import Manifest

Kind = Literal["added", "changed", "deleted"]
FILE, EXECUTABLE = "100644", "100755"
MAX_PATHS = 1_000  # that one proposal touches
MAX_PATH = 500  # characters
MAX_PART = 200  # bytes of a name
_MODES = {EXECUTABLE: "an executable file", "120000": "a symbolic link", "160000": "a submodule"}
_PLAIN = frozenset("._-+=@,()[] ")
_TEST = re.compile(r"test_\w+\.py|\w+_test\.py", re.ASCII)  # in the top folder
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class PathChange:
    """One path at which two trees differ; a mode is None where there is no file."""

    path: str
    kind: Kind
    old_mode: str | None
    new_mode: str | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a proposal may do, given its declared tiers and the manifest."""

    tier: int  # the strictest touched: 1 or 2
    tiers: Mapping[str, int]  # of every path touched
    configuration_only: bool
    code: tuple[str, ...]  # Python that the lint has to look at
    additions: tuple[str, ...]  # tests that it brings


def tier_of_change(change: PathChange, manifest: Manifest) -> int:
    """Return the tier of a change.

    Tier 1 at least are a test that may be added, which becomes part of the gate, and an executable
    file, which need not be Python that the lint can read.
    """
    if change.kind == "added" and manifest.may_add(change.path):
        return 1
    tier = manifest.tier_of(change.path)
    return min(tier, 1) if change.old_mode == EXECUTABLE else tier


def check_changes(
    changes: Sequence[PathChange],
    declared: Mapping[str, int],
    manifest: Manifest,
    paths: Collection[str],
) -> Verdict:
    """Return what the changes amount to; raise TierError where they are not allowed.

    `paths` are those of the candidate's tree. A change that nobody could have declared, because it
    changes nothing, is a DiffError.
    """
    if not changes:
        raise DiffError("the diff changes nothing: change at least one file, or submit no proposal")
    if len(changes) > MAX_PATHS:
        raise TierError(
            f"the diff changes {len(changes)} files; the maximum is {MAX_PATHS}: propose less"
        )
    for change in changes:
        if manifest.is_controller(change.path):
            raise TierError(
                f"{change.path!r} belongs to the code that judges proposals: the line is halted "
                "until an operator has reviewed it",
                halts_line=True,
            )
    known = set(paths) - {change.path for change in changes if change.kind == "added"}
    known |= {folder for path in known for folder in _folders(path)}
    for change in changes:
        _check_path(change.path)
        if change.kind == "added":
            _check_new_names(change.path, known)
        _check_modes(change)
    _check_collisions(changes, paths)
    _check_imports(changes, paths, manifest)
    tiers = {change.path: tier_of_change(change, manifest) for change in changes}
    for path, tier in tiers.items():
        if tier == 0:
            told = f"{path!r} is tier 0: only people may change it, by their own commits"
            if manifest.is_test(path) and (instead := manifest.tests.additions):
                told += f"; a proposal may add tests in a new file, as in {str(instead[0])!r}"
            raise TierError(told)
    _check_declared(declared, tiers)
    additions = tuple(c.path for c in changes if manifest.tier_of(c.path) == 0)
    return Verdict(
        tier=min(tiers.values()),
        tiers=tiers,
        configuration_only=all(manifest.is_config(path) for path in tiers),
        code=tuple(
            change.path
            for change in changes
            if change.kind != "deleted"
            and change.path.endswith(".py")
            and change.path not in additions
        ),
        additions=additions,
    )


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(path) > MAX_PATH or any(len(p.encode(errors="replace")) > MAX_PART for p in parts):
        raise TierError(f"the path {path[:80]!r}... is too long")
    for part in parts:
        if problem := _problem_of_name(part):
            raise TierError(f"a proposal may not change the path {path!r}: {part!r} {problem}")


def _problem_of_name(part: str) -> str | None:
    if part in ("", ".", ".."):
        return "leads elsewhere"
    if part.casefold().startswith(".git"):
        return "is git's own"
    if part[-1] in ". " or part[0] in " -":  # some file systems drop the first two
        return "starts or ends with a character that is easily lost or misread"
    for mark in part:
        # Letters, marks and digits; no `~` and `:`, which mean something in NTFS, nothing unseen.
        if mark not in _PLAIN and unicodedata.category(mark)[0] not in "LMN":
            return f"contains {mark!r}"
    if unicodedata.normalize("NFC", part) != part:
        return "is not in Unicode normal form C"
    return None


def _check_new_names(path: str, known: Collection[str]) -> None:
    """Refuse a new name that is not plain ASCII, or that is a device on some systems."""
    for name in (*_folders(path), path):
        if name in known:
            continue
        part = name.rpartition("/")[2]
        if not part.isascii():
            odd = next(mark for mark in part if not mark.isascii())
            raise TierError(
                f"a proposal may not create the path {path!r}: {part!r} contains {odd!a}; use "
                "ASCII characters in new names"
            )
        if _DEVICE.fullmatch(part):
            raise TierError(
                f"a proposal may not create the path {path!r}: {part!r} is a device on Windows"
            )


def _check_modes(change: PathChange) -> None:
    if change.old_mode == EXECUTABLE and change.new_mode in (EXECUTABLE, None):
        return  # only its content changes, or it goes
    for mode in (change.old_mode, change.new_mode):
        if mode not in (None, FILE):
            what = _MODES.get(str(mode), f"of mode {mode}")
            raise TierError(
                f"{change.path!r} is {what}: a proposal may only change the content of regular "
                "files"
            )


def _folders(path: str) -> Iterator[str]:
    """Every folder that the path lies in."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _folded(path: str) -> str:
    """What a file system that knows no case, or one that decomposes, may take the path for."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", path).casefold())


def _check_collisions(changes: Sequence[PathChange], paths: Collection[str]) -> None:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        for name in (path, *_folders(path)):
            names[_folded(name)].add(name)
    for change in changes:
        if change.kind != "added":
            continue
        for name in (change.path, *_folders(change.path)):
            if others := names[_folded(name)] - {name}:
                raise TierError(
                    f"{name!r} and {min(others)!r} are the same name on systems that ignore case "
                    "or Unicode forms"
                )


def _check_imports(
    changes: Sequence[PathChange], paths: Collection[str], manifest: Manifest
) -> None:
    """Refuse a file whose place decides which module an import finds, unless it is a new test."""
    added = {change.path for change in changes if change.kind == "added"}
    before = set(paths) - added | {c.path for c in changes if c.kind == "deleted"}
    # `src` is a folder of imports, too, as candidates are run, unless it is a package.
    roots = ("",) if "src/__init__.py" in paths else ("", "src/")
    tops = {_top(path, root) for root in roots for path in before if path.startswith(root)}
    for path in sorted(added):
        for folder in _folders(path):
            if f"{folder}.py" in before:
                raise TierError(f"{path!r} creates a package that replaces {folder + '.py'!r}")
        is_code = re.search(r"\.(py\w*|so)$", path)
        for top in [_top(path, root) for root in roots if is_code and path.startswith(root)]:
            if _TEST.fullmatch(path) and manifest.may_add(path):
                continue  # nothing imports a module of such a name
            if top not in tops or path.startswith(f"{top}/__init__."):
                raise TierError(
                    f"{path!r} creates a new top-level module, which may shadow another one"
                )


def _top(path: str, root: str) -> str:
    return root + path.removeprefix(root).split("/")[0]


def _check_declared(declared: Mapping[str, int], tiers: Mapping[str, int]) -> None:
    if unsaid := sorted(set(tiers) - set(declared)):
        raise DeclarationError(
            f"the diff changes {unsaid[0]!r}, which the proposal does not declare"
        )
    if untouched := sorted(set(declared) - set(tiers)):
        raise DeclarationError(
            f"the proposal declares {untouched[0]!r}, which the diff does not change"
        )
    for path, tier in sorted(tiers.items()):
        if type(declared[path]) is not int or declared[path] != tier:
            raise DeclarationError(
                f"{path!r} is tier {tier}, but the proposal declares tier {declared[path]!r}"
            )
