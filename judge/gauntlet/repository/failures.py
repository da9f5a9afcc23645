"""What a line's own commit says when its tests or its worker cannot start, and what to do about it.

A module that is missing is told apart by where it is: in the work tree and not in the commit, as
the files that a build generates are, or in no environment. Only errors of commands have these
words: they are not recorded, and no proposer reads them.

Trust: what is printed is hostile; it becomes one bounded line of printable text.
I/O: looks for files in the work tree.  Units: bytes, characters.
"""

import re

from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, Manifest

ROOTS = ("src/", "")
"""The folders of a repository that modules are imported from, the first one first."""
_READ = 2**18  # bytes of the end of what was printed
_MOST = 300  # characters
_IMPORTS = re.compile(r"\b(?:ModuleNotFound|Import|PackageNotFound)Error: |: No module named ")
_ERRORS = re.compile(r"(?:^|[\s.])[A-Za-z_]*(?:[Ee]rror|Exception|Interrupt|Exit): ")
_ABSENT = re.compile(r"No module named '?([\w.]+)", re.ASCII)
_NAME = re.compile(r"cannot import name '(\w+)' from .*?'([\w.]+)'", re.ASCII)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")  # as pytest's `--color=yes` prints it
_UNINSTALLED = "PackageNotFoundError: "
_BUILT = (".py", "/__init__.py", ".*.so", ".so", ".*.pyd", ".pyd")  # ends of a module's file


def on_one_line(printed: bytes) -> str:
    """Return the end of what was printed, printable and on one line."""
    return _plain(printed[-_MOST:].decode(errors="replace"))


def last_error(printed: bytes) -> str:
    """Return the line that names the error; of several, the last one about an import."""
    lines = _lines(printed)
    if imports := [found for line in lines if (found := _IMPORTS.search(line))]:
        return imports[-1].string[imports[-1].start() :].removeprefix(": ")[:_MOST]
    named = [line for line in lines if _ERRORS.search(line)]
    return [*lines, *named][-1].removeprefix("E ")[:_MOST] if lines else "it printed no error"


def fails_to_import(printed: bytes) -> bool:
    """Tell whether the last that a program printed is that it cannot import something."""
    lines = _lines(printed)
    return bool(lines and _IMPORTS.search(lines[-1]))


def explained(printed: bytes, repository: Repository, commit: str, manifest: Manifest) -> str:
    """Return the error that a command of a commit printed, and what corrects it."""
    error = last_error(printed)
    return f"{error}; {_remedy(error, repository, commit, manifest)}"


def not_committed(repository: Repository, commit: str, module: str) -> str | None:
    """Return the file of a module in the work tree that a commit does not have, if there is one."""
    known = repository.files(commit)
    start = module.replace(".", "/")
    for pattern in (f"{root}{start}{end}" for root in ROOTS for end in _BUILT):
        for file in sorted(repository.path.glob(pattern)):
            path = file.relative_to(repository.path).as_posix()
            if path not in known and file.is_file():
                return path
    return None


def commit_it(path: str) -> str:
    """Return how a file that git ignores becomes part of a branch."""
    return f"commit it with `git add --force {path}`"


def _remedy(error: str, repository: Repository, commit: str, manifest: Manifest) -> str:
    adopted = "then run `proctor line sign adopt --key KEY`"
    absent, name = _ABSENT.search(error), _NAME.search(error)
    words = absent[1] if absent else f"{name[2]}.{name[1]}" if name else ""
    module = ".".join(filter(None, words.split(".")))
    if module and (path := not_committed(repository, commit, module)) is not None:
        return f"{path} is in the work tree, but not in the commit: {commit_it(path)}, {adopted}"
    if absent and is_own(repository.paths(commit), module):
        return f"if a build generates {module}, commit its file, {adopted}"
    if absent or _UNINSTALLED in error:
        what = (
            "the package of this module" if absent else f"the repository itself ({repository.path})"
        )
        if manifest.interpreter is None:
            return (
                f"name a virtual environment that has {what} in [environment] of {PATH}, {adopted}"
            )
        python = f"{manifest.interpreter}/bin/python"
        return f"install {what} with `{python} -m pip install PACKAGE`, then try again"
    return f"correct it by hand, or the command in {PATH}; after a commit, {adopted[5:]}"


def is_own(paths: tuple[str, ...], module: str) -> bool:
    """Tell whether the repository has the package, or module, that a name begins with."""
    top = module.partition(".")[0]
    starts = tuple(f"{root}{top}{end}" for root in ROOTS for end in ("/", ".py"))
    return any(path.startswith(starts) for path in paths)


def _lines(printed: bytes) -> list[str]:
    text = printed[-_READ:].decode(errors="replace")
    return [line for each in text.splitlines() if (line := _plain(each))]


def _plain(text: str) -> str:
    text = _COLOUR.sub("", text)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
