"""Reads and writes a git repository independently of git's configuration and environment.

Contents are read and made in a git directory of our own beside the repository's objects, so that no
configuration, hook, attribute, filter, graft or replacement counts. Branches are moved by comparing
and swapping. No work tree is ever written to, and no file of a candidate is made by git.

Source: git(1) "Environment Variables"; gitrepository-layout(5).
Trust: the repository is its owner's; diffs, trees and paths made from them are hostile.
Units: seconds, bytes.
"""

import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self

from judge.gauntlet.errors import DiffError, MovedError, RepositoryError
from judge.gauntlet.repository.changes import EXECUTABLE, FILE, Kind, PathChange
from judge.gauntlet.repository.diffs import check_form
from ledger.held_folder import HeldFolder

MAX_DIFF = 2**20
MAX_OUTPUT = 64 * 2**20  # of one command
MAX_EXPORT = 1024 * 2**20  # bytes of all files together
MAX_MEMORY = 2 * 2**30  # of one command, where the system can bound it
SECONDS = 120  # one command
PROPOSALS = "infra/"  # where the branches of proposals are; no other branch is made or deleted
_ONLY_TEXT = (
    "the diff has binary parts; only text is allowed, and weights that the manifest names, in the "
    "form of `git diff --binary`"
)
_TREES = 8  # that are kept in mind
_NO_MORE: Mapping[str, str] = {}  # of the environment
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Gauntlet"), ("EMAIL", "gauntlet@localhost"))
}
_SETTINGS = (  # in force over what the repository's own file says, where that is read
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "protocol.allow=never",
)


@dataclass(frozen=True)
class TreeEntry:
    """One path of a tree."""

    mode: str
    object: str


class Repository:
    """The repository at a path: its top folder, a linked work tree's, or a bare repository."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._home = HeldFolder("gauntlet-git-")
        self._shared = _git_folder(self.path)
        self._own = self._home.path / "own"
        self.compiled = self._home.path / "compiled"  # modules, see compiled.py
        self._listed: dict[str, dict[str, TreeEntry]] = {}  # trees never change
        _write_bare(self._own, self._refs("rev-parse", "--show-object-format").decode().strip())

    @classmethod
    def of_files(cls, folder: Path, *versions: Mapping[str, bytes]) -> tuple[Self, str]:
        """Make a repository in a new folder; return it with its last commit.

        Each version is a commit of plain files, and the parent of the next.
        """
        _write_bare(folder)
        made = cls(folder)
        parts = []
        for files in versions:
            start = "commit refs/heads/main\ncommitter G <g@localhost> 0 +0000\ndata 0\ndeleteall\n"
            parts.append(start.encode())
            for path, content in files.items():
                if not path.isprintable() or path.startswith('"'):
                    raise RepositoryError(f"{path!r} is not the name of a file")
                parts.append(f"M {FILE} inline {path}\ndata {len(content)}\n".encode())
                parts += [content, b"\n"]
        made._objects("fast-import", "--quiet", stdin=b"".join(parts), folder=made._shared)
        return made, made.head("main")

    def root(self, branch: str) -> str:
        """Return the branch's first commit: with the branch's name, it names the line."""
        walk = ("rev-list", "--first-parent", "--max-parents=0", self.head(branch))
        return self._objects(*walk).decode().strip()

    def head(self, branch: str) -> str:
        """Return the commit that a branch is at."""
        name = f"{_ref(branch)}^{{commit}}"
        try:
            return self._refs("rev-parse", "--verify", "--quiet", name).decode().strip()
        except RepositoryError as error:
            found = self._refs(
                "for-each-ref", "--format=%(refname:short)", "--count=3", "refs/heads"
            )
            others = ", ".join(map(ascii, found.decode().split()))
            advice = f"name one with --line, as {others}" if others else "commit to it first"
            raise RepositoryError(
                f"branch {branch!r} not found in {self.path}: {advice}"
            ) from error

    def holds(self, commit: str) -> bool:
        """Tell whether a commit is in the repository, on whatever branch."""
        try:
            return bool(self.tree_of(commit))
        except RepositoryError:
            return False

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit."""
        return self._objects("rev-parse", "--verify", f"{_hash(commit)}^{{tree}}").decode().strip()

    def commit_of(self, name: str) -> str:
        """Return the commit that a name means: a hash, the beginning of one, or a branch."""
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./~^-]*", name):
            raise RepositoryError(f"{name!r} is not the name of a commit")
        try:
            found = self._refs("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except RepositoryError as error:
            raise RepositoryError(f"commit {name!r} not found in {self.path}") from error
        return found.decode().strip()

    def message_of(self, commit: str) -> str:
        """Return the message of a commit."""
        shown = self._objects("cat-file", "commit", _hash(commit)).decode(errors="replace")
        return shown.partition("\n\n")[2].strip()

    def diff(self, old: str, new: str, paths: Sequence[str]) -> bytes:
        """Return the diff between two commits or trees in some paths, as candidate_tree() reads it.

        The paths stand for themselves; with none, the diff is empty.
        """
        if not paths:
            return b""
        way = ("--literal-pathspecs", "diff-tree", "-r", "-p", "--no-renames", "--full-index")
        return self._objects(*way, "--binary", _hash(old), _hash(new), "--", *paths)

    def parents_of(self, commit: str) -> tuple[str, ...]:
        """Return the parents of a commit."""
        line = self._objects("rev-list", "--parents", "--max-count=1", _hash(commit)).decode()
        return tuple(line.split()[1:])

    def files(self, tree: str) -> Mapping[str, TreeEntry]:
        """Return every path of a tree (or of a commit's), submodules and links among them."""
        if tree not in self._listed:
            if len(self._listed) >= _TREES:
                self._listed.clear()
            found = {}
            listed = self._objects("ls-tree", "-r", "-z", "--full-tree", _hash(tree))
            for line in listed.split(b"\0")[:-1]:
                words, path = line.split(b"\t", 1)
                mode, _, name = words.decode().split(" ")
                found[path.decode(errors="surrogateescape")] = TreeEntry(mode, name)
            self._listed[tree] = found
        return self._listed[tree]

    def paths(self, tree: str) -> tuple[str, ...]:
        """Return the paths of a tree (or of a commit's)."""
        return tuple(self.files(tree))

    def read(self, commit: str, path: str, *, most: int = MAX_OUTPUT) -> bytes:
        """Return one plain file of a commit or tree; RepositoryError where it is not one."""
        entry = self.files(commit).get(path)
        if entry is None or entry.mode not in (FILE, EXECUTABLE):
            raise RepositoryError(f"file {path!r} not found in commit {commit} of {self.path}")
        size = int(self._objects("cat-file", "-s", entry.object))
        if size > most:
            raise RepositoryError(f"{path!r} of {commit} has {size} bytes; the maximum is {most}")
        return self._objects("cat-file", "blob", entry.object)

    def changes(self, base_tree: str, tree: str) -> tuple[PathChange, ...]:
        """Return the paths at which two trees differ, in order."""
        old, new = self.files(base_tree), self.files(tree)
        found = []
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path):
                before, after = (each[path].mode if path in each else None for each in (old, new))
                kind: Kind = "deleted" if after is None else "changed" if before else "added"
                found.append(PathChange(path, kind, before, after))
        return tuple(found)

    def candidate_tree(
        self, base: str, diff: bytes, *, binary: Callable[[str], bool] = lambda _: False
    ) -> str:
        """Return the tree that a diff makes of a commit's; raise DiffError where it makes none.

        It is applied to an index of its own, never to files. Only the paths that `binary` takes
        may have binary parts.
        """
        _check_diff(diff)
        with tempfile.TemporaryDirectory(dir=self._home.path) as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            self._objects("read-tree", f"{_hash(base)}^{{tree}}", extra=index)
            apply = ("apply", "--cached", "-p1", "--whitespace=nowarn", "-")
            try:
                self._objects(*apply, stdin=diff, extra=index)
                counts = self._objects("apply", "-p1", "--numstat", "-z", "-", stdin=diff)
            except RepositoryError as error:
                raise DiffError(
                    f"the diff does not apply to {base}: {error.__cause__ or error}; make it "
                    "against the head of the line with `git diff`"
                ) from error
            tree = self._objects("write-tree", extra=index).decode().strip()
        named = [line.split(b"\t", 2) for line in counts.split(b"\0")[:-1]]
        paths = [each[-1].decode(errors="surrogateescape") for each in named]
        for path, each in zip(paths, named, strict=True):
            if each[0] == b"-" and not binary(path):
                raise DiffError(_ONLY_TEXT)
        # A file that becomes a link is two parts in git's diffs; check_changes() says what it is.
        plain = {FILE, EXECUTABLE, None}
        odd = {c.path for c in self.changes(base, tree) if {c.old_mode, c.new_mode} - plain}
        if twice := [
            each for each, times in Counter(paths).items() if times > 1 and each not in odd
        ]:
            raise DiffError(f"the diff changes {twice[0]!r} more than once; combine the changes")
        return tree

    def commit(self, tree: str, parent: str, message: str, time: int) -> str:
        """Return a commit of a tree; the same arguments give the same one."""
        made = ("commit-tree", "-p", _hash(parent), "-F", "-", _hash(tree))
        when = f"@{int(time)} +0000"
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        return self._objects(*made, stdin=message.encode(), extra=dates).decode().strip()

    def set_branch(self, name: str, commit: str) -> None:
        """Make the branch of a proposal; one that is there already, at this commit, stays."""
        ref = _ref(name, proposals=True)
        nothing = "0" * len(commit)
        try:
            self._refs("update-ref", "--no-deref", ref, _hash(commit), nothing)
        except RepositoryError:
            if name in self.branches() and self.head(name) == commit:
                return
            raise RepositoryError(
                f"cannot create branch {name!r} in {self.path}: it exists at another commit, or "
                "another branch's name conflicts with it; rename or delete that branch"
            ) from None

    def delete_branch(self, name: str) -> bool:
        """Delete the branch of a proposal; return False where a work tree has it checked out."""
        ref = _ref(name, proposals=True)
        if self.checked_out(name):
            return False
        if name in self.branches():
            self._refs("update-ref", "--no-deref", "-d", ref, self.head(name))
        return True

    def branches(self) -> tuple[str, ...]:
        """Return the names of all branches."""
        listed = self._refs("for-each-ref", "--format=%(refname)", "refs/heads/")
        return tuple(line.removeprefix("refs/heads/") for line in listed.decode().splitlines())

    def checked_out(self, branch: str) -> tuple[str, ...]:
        """Return the work trees that have a branch checked out."""
        blocks = self._refs("worktree", "list", "--porcelain", "-z").decode(errors="replace")
        return tuple(
            block.split("\0")[0].removeprefix("worktree ")
            for block in blocks.split("\0\0")
            if f"branch {_ref(branch)}" in block.split("\0")
        )

    def advance(self, branch: str, *, old: str, new: str) -> None:
        """Move a branch if it is where it should be; raise MovedError if it is not.

        A branch that some work tree has checked out is not moved under it: RepositoryError.
        """
        self.verify_movable(branch)
        ref = _ref(branch)
        try:
            self._refs("update-ref", "--no-deref", ref, _hash(new), _hash(old))
        except RepositoryError as error:
            if (now := self.head(branch)) != old:
                raise MovedError(
                    f"branch {branch!r} of {self.path} is at {now}, not at {old}: it was moved in "
                    "the meantime; submit the proposal again"
                ) from error
            raise

    def verify_movable(self, branch: str) -> None:
        """Raise RepositoryError for a branch that advance() would not move."""
        if trees := self.checked_out(branch):
            raise RepositoryError(
                f"{trees[0]} has branch {branch!r} checked out and would no longer match it: run "
                "`git switch --detach` there"
            )
        ref = _ref(branch)
        if self._refs("for-each-ref", "--format=%(symref)", ref).strip():
            raise RepositoryError(
                f"{branch!r} of {self.path} is a symbolic name for another branch"
            )

    def export(
        self, tree: str, into: Path, *, keep: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Write what contents() gives, as it is; `into` may hold other files."""
        files = self.files(tree)
        into.mkdir(parents=True, exist_ok=True)
        for path, content in self.contents(tree, keep=keep):
            _write(into, path, files[path].mode, content)

    def contents(self, tree: str, *, keep: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Give the files of a tree (or of a commit's) that `keep` takes, with their bytes.

        A link is what it says; submodules are left out.
        """
        files = self.files(tree).items()
        chosen = {path: each for path, each in files if each.mode != "160000" and keep(path)}
        wanted = "".join(f"{entry.object}\n" for entry in chosen.values()).encode()
        with self._running(self._own, ("cat-file", "--batch"), stdin=wanted) as output:
            left = MAX_EXPORT
            for path in chosen:
                size = int(output.readline().split()[-1])
                left -= size
                if left < 0:
                    raise RepositoryError(f"the files of {tree} have more than {MAX_EXPORT} bytes")
                yield path, output.read(size + 1)[:-1]

    def _refs(self, *arguments: str) -> bytes:
        """Run git in the repository itself: for branches and work trees only."""
        return self._objects(*arguments, folder=self._shared)

    def _objects(
        self,
        *arguments: str,
        stdin: bytes = b"",
        extra: Mapping[str, str] = _NO_MORE,
        folder: Path | None = None,
    ) -> bytes:
        """Run git, by default in our own directory, beside the repository's objects."""
        with self._running(folder or self._own, arguments, stdin, extra) as output:
            found = output.read(MAX_OUTPUT + 1)
            if len(found) > MAX_OUTPUT:
                raise RepositoryError(
                    f"git {arguments[0]} in {self.path} prints more than {MAX_OUTPUT} bytes"
                )
        return found

    @contextmanager
    def _running(
        self,
        folder: Path,
        arguments: Sequence[str],
        stdin: bytes,
        extra: Mapping[str, str] = _NO_MORE,
    ) -> Iterator[IO[bytes]]:
        """Give what git prints; raise RepositoryError where it fails or takes too long."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = ["git", "--no-pager", *settings, *arguments]
        environment = {**self._environment(folder), **extra}
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            given.write(stdin)
            given.seek(0)
            with subprocess.Popen(  # noqa: S603 - a list of arguments, without a shell
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=self._home.path,
                env=environment,
                start_new_session=True,
            ) as process:
                if hasattr(resource, "prlimit"):
                    # A diff of a megabyte can ask for many copies of a large file.
                    most = (MAX_MEMORY, MAX_MEMORY)
                    with suppress(ProcessLookupError):
                        resource.prlimit(process.pid, resource.RLIMIT_DATA, most)
                late = threading.Event()
                timer = threading.Timer(SECONDS, _end, (process, late))
                timer.start()
                try:
                    assert process.stdout is not None
                    yield process.stdout
                    process.wait()
                finally:
                    timer.cancel()
                    _end(process)
            if late.is_set():
                raise RepositoryError(f"git {arguments[0]} in {self.path} took {SECONDS} s")
            if process.returncode:
                said.seek(0)
                words = said.read(2_000).decode(errors="replace").strip()
                raise RepositoryError(
                    f"git {arguments[0]} in {self.path} failed: {_shown(words)}"
                ) from None

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            "PATH": os.defpath + ":/usr/local/bin",
            "HOME": str(self._home.path),
            "LC_ALL": "C",
            "GIT_DIR": str(folder),
            "GIT_OBJECT_DIRECTORY": str(self._shared / "objects"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "",
            **_IDENTITY,
        }


def _write_bare(folder: Path, object_format: str = "sha1") -> None:
    """Write an empty bare repository into a new folder."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    version, extensions = 0, ""
    if object_format != "sha1":
        version, extensions = 1, f"[extensions]\n\tobjectformat = {object_format}\n"
    (folder / "config").write_text(
        f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extensions}"
    )


def _git_folder(path: Path) -> Path:
    """The folder that holds a repository's objects and branches."""
    dot = path / ".git"
    if dot.is_dir():
        return dot
    if dot.is_file():  # a linked work tree
        own = path / dot.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        common = own / "commondir"
        return (own / common.read_text().strip()).resolve() if common.is_file() else own
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return path
    raise RepositoryError(f"{path} is not the top folder of a git repository: give its top folder")


def _check_diff(diff: bytes) -> None:
    if len(diff) > MAX_DIFF:
        raise DiffError(f"the diff has {len(diff)} bytes; the maximum is {MAX_DIFF}: propose less")
    try:
        text = diff.decode()
    except UnicodeDecodeError as error:
        raise DiffError(f"the diff is not UTF-8 text: {error}") from error
    if found := re.search(r"[\x00-\x08\x0b\x0e-\x1f\x7f]", text):
        raise DiffError(
            f"the diff contains the control character {found[0]!r}; only text is allowed"
        )
    if re.search(r"^Binary files ", text, re.MULTILINE):
        raise DiffError(_ONLY_TEXT)
    if re.search(r"^copy (from|to) ", text, re.MULTILINE):
        raise DiffError(
            "the diff copies files; make it without copies, with `git diff --no-renames`"
        )
    if not text.strip():
        raise DiffError("the diff is empty")
    check_form(text)


def _ref(branch: str, *, proposals: bool = False) -> str:
    parts = branch.split("/")
    plain = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts)
    if not plain or ".." in branch or any(part.endswith((".", ".lock")) for part in parts):
        raise RepositoryError(
            f"{branch!r} is not a valid branch name: use letters, digits, - and _"
        )
    if proposals and not branch.startswith(PROPOSALS):
        raise RepositoryError(
            f"{branch!r} is not a proposal branch: its name must start with {PROPOSALS}"
        )
    return f"refs/heads/{branch}"


def _hash(name: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", name):
        raise RepositoryError(f"{name!r} is not a full git hash")
    return name


def _write(into: Path, path: str, mode: str, content: bytes) -> None:
    place = into / path
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise RepositoryError(f"{path!r} leads out of its tree")
    place.parent.mkdir(parents=True, exist_ok=True)
    if mode == "120000":
        target = content.decode(errors="surrogateescape")
        if not _stays_inside(path, target):
            raise RepositoryError(f"the link {path!r} leads out of its tree, to {target!r}")
        place.symlink_to(target)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(place, flags, 0o755 if mode == EXECUTABLE else 0o644), "wb") as file:
        file.write(content)


def _stays_inside(path: str, target: str) -> bool:
    """Whether a link leads up no further than its tree's top, and then only down."""
    parts = target.split("/")
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return bool(target) and parts[0] != "" and ".." not in parts[up:] and up <= path.count("/")


def _end(process: subprocess.Popen[bytes], late: threading.Event | None = None) -> None:
    if process.poll() is None:
        if late is not None:
            late.set()
        os.killpg(process.pid, signal.SIGKILL)


def _shown(words: str) -> str:
    """What git says, without marks that a terminal obeys."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split()) or "no word"
