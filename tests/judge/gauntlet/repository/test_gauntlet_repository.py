"""git without its habits: diffs, hostile surroundings, branches, exports."""

import os
import struct
import subprocess
import sys
import tempfile
import zlib
from base64 import b85encode
from pathlib import Path
from random import Random

import pytest
from gauntlet_scene import FILES, HONEST, MANIFEST, Scene, writes

from judge.gauntlet.errors import DiffError, MovedError, RepositoryError
from judge.gauntlet.repository.diffs import check_form
from judge.gauntlet.repository.git import MAX_DIFF, Repository
from judge.gauntlet.repository.lint import check_changed
from judge.gauntlet.repository.manifest import parse_manifest


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "repository")


def candidate(scene: Scene) -> str:
    """The commit of the honest change."""
    tree = scene.repository.candidate_tree(scene.base, scene.diff(HONEST))
    return scene.repository.commit(tree, scene.base, "an honest change", 1_000_000_000)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


# Diffs.


def test_candidate_is_made_without_touching_any_file_or_index(scene: Scene) -> None:
    diff = scene.diff(HONEST)
    before = snapshot(scene.path), (scene.path / ".git/index").read_bytes()
    tree = scene.repository.candidate_tree(scene.base, diff)
    assert b"key=abs" in scene.repository.read(tree, "sample/select.py")
    assert (snapshot(scene.path), (scene.path / ".git/index").read_bytes()) == before
    assert scene.git("status", "--porcelain") == b""


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"please make it faster\n", "neither a header nor part of a hunk"),
        (b"\xff\xfe", "not UTF-8"),
        (b"+" * (MAX_DIFF + 1), "the maximum is"),
        (b"diff --git a/x b/x\n\x00", "control character"),
        (b"diff --git a/x b/x\n+\x1b[2J\n", "control character"),
        (b"--- a/sample/select.py\n+++ b/sample/select.py\n@@ -1 +1 @@\n-no\n+yes\n", "not apply"),
        (b"--- a/nothing.py\n+++ b/nothing.py\n@@ -1 +1 @@\n-no\n+yes\n", "not apply"),
    ],
)
def test_what_is_no_diff_is_rejected(scene: Scene, diff: bytes, message: str) -> None:
    assert scene.repository.candidate_tree(scene.base, scene.diff(HONEST))
    with pytest.raises(DiffError, match=message):
        scene.repository.candidate_tree(scene.base, diff)


def test_binary_patch_is_rejected(scene: Scene) -> None:
    diff = scene.diff(lambda top: (top / "notes/bytes.bin").write_bytes(bytes(range(256)) * 4))
    assert b"GIT binary patch" in diff
    with pytest.raises(DiffError, match="binary parts"):
        scene.repository.candidate_tree(scene.base, diff)


def weights(seed: int, rows: int = 4) -> bytes:
    """Return canonical safetensors of one tensor of noise."""
    numbers = Random(seed)
    data = struct.pack(f"<{rows * 8}f", *(numbers.random() for _ in range(rows * 8)))
    header = f'{{"w":{{"dtype":"F32","shape":[{rows},8],"data_offsets":[0,{len(data)}]}}}}'
    padded = header.ljust(-(-len(header) // 8) * 8).encode()
    return len(padded).to_bytes(8, "little") + padded + data


def test_weights_are_the_only_binary_part_that_a_diff_may_have(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "r")
    place, first = "notes/net.safetensors", weights(1, rows=200)
    commits = [scene.base]
    for data in (first, first[:-4] + weights(2)[-4:], weights(3)):  # new; a delta to it; another
        diff = scene.diff(lambda top, data=data: (top / place).write_bytes(data))  # type: ignore[misc]
        assert b"\ndelta " in diff or len(commits) != 2
        assert scene.check(diff).tiers == {place: 2}
        tree = scene.repository.candidate_tree(scene.base, diff, binary=place.__eq__)
        assert scene.repository.read(tree, place) == data
        with pytest.raises(DiffError, match="only text is allowed, and weights that the manifest"):
            scene.repository.candidate_tree(scene.base, diff)
        scene.base = scene.repository.commit(tree, scene.base, "more", 0)
        scene.git("switch", "--quiet", "--detach", scene.base)
        commits.append(scene.base)
    back = scene.repository.diff(commits[2], commits[1], [place])
    tree = scene.repository.candidate_tree(commits[2], back, binary=place.__eq__)
    assert scene.repository.read(tree, place) == first


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (weights(1), None),
        (b"words\n", "not a safetensors file"),
        (weights(1) + b"more", "has 132 bytes of tensors, and its header lists 128"),
        (weights(1, rows=1_000), "has 32072 bytes; the maximum is 20000"),
    ],
)
def test_weights_are_checked_for_form_and_size(
    data: bytes, problem: str | None, scene: Scene
) -> None:
    diff = scene.diff(lambda top: (top / "notes/net.safetensors").write_bytes(data))
    tree = scene.repository.candidate_tree(scene.base, diff, binary=lambda _: True)
    changes = scene.repository.changes(scene.base, tree)
    manifest = parse_manifest(MANIFEST.encode())
    found, accepted = check_changed(
        scene.repository, scene.base, tree, changes, scene.check(diff), manifest=manifest
    )
    assert accepted == []
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


BINARY = "diff --git a/x b/x\nindex {0}..{0} 100644\nGIT binary patch\n"
NOTHING = "literal 0\nHcmV?d00001\n\n"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("", "not as `git diff --binary` writes it"),
        (NOTHING, "not as `git diff --binary` writes it"),
        ("literal 3\nwords\n\n" + NOTHING, "malformed"),
        (NOTHING.replace("0", "1048577", 1) + NOTHING, "of more than 1048576 bytes"),
        (NOTHING + NOTHING.replace("0", "1048577", 1), "of more than 1048576 bytes"),
        ("delta 9\n{huge}\n\n" + NOTHING, "of more than 1048576 bytes"),
        (NOTHING.replace("literal", "delta") + NOTHING, "cannot be unpacked"),
        (NOTHING + NOTHING + "words\n", "neither a header nor part of a hunk"),
    ],
)
def test_binary_part_that_is_malformed_or_too_large_is_rejected(part: str, message: str) -> None:
    packed = zlib.compress(bytes([1, 0xFF, 0xFF, 0xFF, 0x7F, 1, 2, 3, 4]))
    huge = chr(ord("A") - 1 + len(packed)) + b85encode(packed, pad=True).decode()
    check_form(BINARY.format("0" * 40) + NOTHING + NOTHING)
    with pytest.raises(DiffError, match=message):
        check_form(BINARY.format("0" * 40) + part.replace("{huge}", huge))


def test_diff_that_copies_is_rejected(scene: Scene) -> None:
    diff = "diff --git a/{0} b/x\nsimilarity index 100%\ncopy from {0}\ncopy to x\n"
    with pytest.raises(DiffError, match="copies files"):
        scene.repository.candidate_tree(scene.base, diff.format("sample/core.py").encode())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing bounds another's memory")
def test_diff_that_grows_in_memory_is_rejected(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b"".join(b"%d\n" % number for number in range(500_000))
    (scene.path / "notes/large.txt").write_bytes(large)
    scene.git("add", "--all")
    scene.git("commit", "--quiet", "--message=large")
    base = scene.git("rev-parse", "HEAD").decode().strip()
    head = b"diff --git a/notes/large.txt b/notes/large.txt\n--- a/notes/large.txt\n"
    steps = [
        head + b"+++ b/notes/large.txt\n@@ -1,2 +1,2 @@\n-%d\n+%d\n 1\n" % (number, number + 1)
        for number in range(100)
    ]
    monkeypatch.setattr("judge.gauntlet.repository.git.MAX_MEMORY", 100 * 2**20)
    assert scene.repository.candidate_tree(base, steps[0])
    with pytest.raises(DiffError, match="memory"):
        scene.repository.candidate_tree(base, b"".join(steps))


def test_diff_with_other_line_ends_is_rejected(scene: Scene) -> None:
    diff = scene.diff(HONEST)
    assert scene.repository.candidate_tree(scene.base, diff)
    with pytest.raises(DiffError, match="does not apply"):
        scene.repository.candidate_tree(scene.base, diff.replace(b"\n", b"\r\n"))


def test_diff_against_another_base_is_rejected(scene: Scene) -> None:
    diff = scene.diff(HONEST)
    assert scene.repository.candidate_tree(scene.base, diff)
    scene.write("sample/select.py", "def select(rows):\n    return list(rows)\n")
    scene.git("commit", "--quiet", "--all", "--message=another")
    moved = scene.git("rev-parse", "HEAD").decode().strip()
    with pytest.raises(DiffError, match="does not apply"):
        scene.repository.candidate_tree(moved, diff)


def test_error_shows_no_marks_that_a_terminal_obeys(scene: Scene) -> None:
    diff = "--- a/no\u202ething.py\n+++ b/no\u202ething.py\n@@ -1 +1 @@\n-no\n+yes\n"
    with pytest.raises(DiffError) as caught:
        scene.repository.candidate_tree(scene.base, diff.encode())
    assert str(caught.value).isprintable()


# Surroundings.

_CONFIGURATION = """
[core]
    hooksPath = {hooks}
    fsmonitor = {tool}
    attributesFile = {attributes}
    editor = {tool}
    pager = {tool}
    autocrlf = true
    whitespace = cr-at-eol,trailing-space
    sshCommand = {tool}
[apply]
    whitespace = fix
    ignoreWhitespace = change
[diff]
    external = {tool}
    noprefix = true
    renames = copies
[diff "shown"]
    textconv = {tool}
    command = {tool}
[filter "changed"]
    clean = {tool}
    smudge = {tool}
    required = true
[merge "changed"]
    driver = {tool}
[commit]
    gpgSign = true
[gpg]
    program = {tool}
[user]
    name = Mallory
    useConfigOnly = true
[i18n]
    commitEncoding = latin1
[alias]
    ls-tree = !{tool}
    apply = !{tool}
[log]
    showSignature = true
[safe]
    directory = /nowhere
"""


def _hostile(scene: Scene) -> Path:
    """Fill everything that git listens to with a tool that leaves a trace."""
    trace = scene.path.parent / "trace"
    tool = scene.path.parent / "tool"
    tool.write_text(f"#!/bin/sh\necho $0 >> {trace}\nsed s/abs/max/\n")
    tool.chmod(0o755)
    hooks = scene.path.parent / "hooks"
    for folder in (hooks, scene.path / ".git/hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("reference-transaction", "post-index-change", "pre-commit", "post-checkout"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {trace}\nexit 1\n")
            (folder / name).chmod(0o755)
    attributes = scene.path.parent / "attributes"
    attributes.write_text("* filter=changed diff=shown merge=changed text eol=crlf ident\n")
    (scene.path / ".git/info").mkdir(exist_ok=True)
    (scene.path / ".git/info/attributes").write_text(attributes.read_text())
    written = _CONFIGURATION.format(hooks=hooks, tool=tool, attributes=attributes)
    with (scene.path / ".git/config").open("a") as file:
        file.write(written)
    (scene.path.parent / "home").mkdir()
    (scene.path.parent / "home/.gitconfig").write_text(written)
    return trace


def _all(scene: Scene, diff: bytes, into: Path) -> tuple[str, str, bytes]:
    """Everything that the gauntlet does with a repository."""
    repository = Repository(scene.path)
    base = repository.head("main")
    tree = repository.candidate_tree(base, diff)
    commit = repository.commit(tree, base, "change", 1_000_000_000)
    repository.set_branch("infra/one", commit)
    repository.export(commit, into)
    repository.advance("main", old=base, new=commit)
    repository.delete_branch("infra/one")
    return tree, commit, (into / "sample/select.py").read_bytes()


def test_configuration_hooks_and_filters_do_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Scene(tmp_path / "plain/repository")
    diff = plain.diff(writes("sample/select.py", "def select(rows):  \n    return rows\t\n"))
    wanted = _all(plain, diff, tmp_path / "plain/out")
    hostile = Scene(tmp_path / "hostile/repository")
    trace = _hostile(hostile)
    monkeypatch.setenv("HOME", str(tmp_path / "hostile/home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "hostile/home"))
    tree, _, content = _all(hostile, diff, tmp_path / "hostile/out")
    assert (tree, content) == (wanted[0], wanted[2])
    assert content == b"def select(rows):  \n    return rows\t\n"
    assert not trace.exists(), trace.read_text()


def test_hostile_configuration_would_have_been_obeyed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "repository")
    trace = _hostile(scene)
    subprocess.run(
        ["git", "add", "--all"], cwd=scene.path, check=False, capture_output=True, timeout=120
    )
    assert trace.exists()


def test_attributes_in_the_tree_change_no_exported_byte(tmp_path: Path) -> None:
    attributes = "* text eol=crlf ident\n*.md export-ignore\n*.py export-subst\n"
    files = {**FILES, ".gitattributes": attributes, "sample/id.py": "# $Id$ $Format:%H$\n"}
    scene = Scene(tmp_path / "repository", files)
    scene.repository.export(scene.base, tmp_path / "out")
    assert (tmp_path / "out/sample/id.py").read_bytes() == b"# $Id$ $Format:%H$\n"
    assert (tmp_path / "out/prompts/task.md").exists()
    tree = scene.repository.candidate_tree(scene.base, scene.diff(HONEST))
    assert b"\r" not in scene.repository.read(tree, "sample/select.py")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "environment",
    [
        {"GIT_DIR": "/nowhere"},
        {"GIT_WORK_TREE": "/"},
        {"GIT_INDEX_FILE": "/nowhere/index"},
        {"GIT_OBJECT_DIRECTORY": "/nowhere"},
        {"GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere"},
        {"GIT_NAMESPACE": "elsewhere"},
        {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "no"},
        {"GIT_CONFIG_PARAMETERS": "'apply.whitespace'='error-all'"},
        {"GIT_REPLACE_REF_BASE": "refs/other/"},
        {"GIT_AUTHOR_NAME": "Mallory", "GIT_COMMITTER_DATE": "@5 +0000"},
        {"GIT_EXEC_PATH": "/nowhere"},
        {"GIT_TRACE": "/nowhere/trace"},
        {"PATH": "/nowhere"},
        {"LD_PRELOAD": "/nowhere.so"},
    ],
)
def test_environment_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    scene = Scene(tmp_path / "repository")
    diff = scene.diff(HONEST)
    tree = scene.repository.candidate_tree(scene.base, diff)
    commit = scene.repository.commit(tree, scene.base, "change", 1_000_000_000)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _all(scene, diff, tmp_path / "out")[:2] == (tree, commit)


def test_replacement_of_an_object_does_not_count(scene: Scene) -> None:
    other = candidate(scene)
    wanted = scene.repository.tree_of(scene.base)
    scene.git("replace", scene.base, other)
    assert scene.git("rev-parse", f"{scene.base}^{{tree}}").decode().strip() != wanted
    repository = Repository(scene.path)
    assert repository.tree_of(scene.base) == wanted
    assert repository.tree_of(repository.head("main")) == wanted


def test_graft_does_not_change_the_root(scene: Scene) -> None:
    root = scene.repository.root("main")
    commit = candidate(scene)
    scene.repository.advance("main", old=scene.base, new=commit)
    (scene.path / ".git/info").mkdir(exist_ok=True)
    (scene.path / ".git/info/grafts").write_text(f"{commit}\n")
    assert Repository(scene.path).root("main") == root == scene.base


# Commits and branches.


def test_commit_is_the_same_for_the_same_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "repository")
    first, again = candidate(scene), candidate(scene)
    assert first == again
    assert scene.repository.parents_of(first) == (scene.base,)
    shown = scene.git("show", "--no-patch", "--format=%an %ae %at %cn %ct %B", first).decode()
    assert shown.split() == [
        *("Gauntlet", "gauntlet@localhost", "1000000000", "Gauntlet", "1000000000"),
        *("an", "honest", "change"),
    ]


def test_branch_is_made_once_and_deleted_once(scene: Scene) -> None:
    commit = candidate(scene)
    for _ in range(2):
        scene.repository.set_branch("infra/one", commit)
    assert scene.repository.branches() == ("infra/one", "main")
    for _ in range(2):
        assert scene.repository.delete_branch("infra/one")
    assert scene.repository.branches() == ("main",)


def test_branch_that_is_elsewhere_already_is_rejected(scene: Scene) -> None:
    scene.git("branch", "infra/one", scene.base)
    with pytest.raises(RepositoryError, match="cannot create branch 'infra/one'"):
        scene.repository.set_branch("infra/one", candidate(scene))
    assert scene.repository.head("infra/one") == scene.base


def test_branch_in_whose_place_another_stands_is_rejected(scene: Scene) -> None:
    scene.git("branch", "infra", scene.base)
    with pytest.raises(RepositoryError, match="another branch's name conflicts"):
        scene.repository.set_branch("infra/one", candidate(scene))


@pytest.mark.parametrize("name", ["main", "other", "infra/../main", "infra", "refs/heads/main"])
def test_branch_of_no_proposal_is_rejected(scene: Scene, name: str) -> None:
    with pytest.raises(RepositoryError, match=r"not a valid branch name|not a proposal branch"):
        scene.repository.set_branch(name, candidate(scene))
    with pytest.raises(RepositoryError, match=r"not a valid branch name|not a proposal branch"):
        scene.repository.delete_branch(name)
    assert scene.repository.branches() == ("main",)


@pytest.mark.parametrize("name", ["-x", "a b", "main.lock", "a..b", "", "a/", "@{-1}", "main~1"])
def test_name_that_is_no_branchs_is_rejected(scene: Scene, name: str) -> None:
    with pytest.raises(RepositoryError, match="not a valid branch name"):
        scene.repository.head(name)


@pytest.mark.parametrize("name", ["HEAD", "main", "--all", "1234567", "0" * 39])
def test_name_that_is_no_hash_is_rejected(scene: Scene, name: str) -> None:
    with pytest.raises(RepositoryError, match="not a full git hash"):
        scene.repository.files(name)


def test_branch_that_somebody_looks_at_stays(scene: Scene) -> None:
    scene.repository.set_branch("infra/one", candidate(scene))
    scene.git("switch", "--quiet", "infra/one")
    assert not scene.repository.delete_branch("infra/one")
    scene.git("switch", "--quiet", "--detach")
    assert scene.repository.delete_branch("infra/one")


def test_line_advances_and_no_file_with_it(scene: Scene) -> None:
    commit = candidate(scene)
    before = snapshot(scene.path)
    scene.repository.advance("main", old=scene.base, new=commit)
    assert scene.repository.head("main") == commit
    assert snapshot(scene.path) == before


def test_line_that_has_moved_is_rejected(scene: Scene) -> None:
    commit = candidate(scene)
    other = scene.repository.commit(scene.repository.tree_of(scene.base), scene.base, "other", 5)
    scene.git("update-ref", "refs/heads/main", other)
    with pytest.raises(MovedError, match="it was moved in the meantime"):
        scene.repository.advance("main", old=scene.base, new=commit)
    assert scene.repository.head("main") == other


def test_line_that_is_checked_out_is_rejected(scene: Scene) -> None:
    commit = candidate(scene)
    scene.git("switch", "--quiet", "main")
    with pytest.raises(RepositoryError, match="git switch --detach"):
        scene.repository.advance("main", old=scene.base, new=commit)
    assert scene.repository.head("main") == scene.base
    scene.git("switch", "--quiet", "--detach")
    scene.repository.advance("main", old=scene.base, new=commit)


def test_line_that_is_checked_out_elsewhere_is_rejected(scene: Scene) -> None:
    commit = candidate(scene)
    linked = scene.path.parent / "linked\nplace"
    scene.git("worktree", "add", "--quiet", str(linked), "main")
    with pytest.raises(RepositoryError, match="git switch --detach"):
        scene.repository.advance("main", old=scene.base, new=commit)
    assert Repository(linked).head("main") == scene.base


def test_line_that_is_another_branchs_name_is_rejected(scene: Scene) -> None:
    commit = candidate(scene)
    scene.git("branch", "release", scene.base)
    scene.git("symbolic-ref", "refs/heads/main", "refs/heads/release")
    with pytest.raises(RepositoryError, match="a symbolic name for another branch"):
        scene.repository.advance("main", old=scene.base, new=commit)
    assert scene.repository.head("release") == scene.base


def test_line_does_not_advance_to_what_is_no_commit(scene: Scene) -> None:
    for wrong in (scene.repository.tree_of(scene.base), "1" * 40):
        with pytest.raises(RepositoryError):
            scene.repository.advance("main", old=scene.base, new=wrong)
    assert scene.repository.head("main") == scene.base


# Exports and kinds of repositories.


def test_export_holds_the_files_as_they_are(scene: Scene) -> None:
    into = scene.path.parent / "out"
    scene.repository.export(scene.base, into)
    assert snapshot(into) == snapshot(scene.path)
    assert (into / "bin/run").stat().st_mode & 0o100
    assert not (into / "sample/core.py").stat().st_mode & 0o100
    assert (into / "latest").readlink() == Path("sample/core.py")
    assert not (into / ".git").exists()


def test_export_leaves_out_what_is_asked(scene: Scene) -> None:
    into = scene.path.parent / "out"
    left_out = ("judge/", "bin/run", "n")
    scene.repository.export(scene.base, into, keep=lambda path: not path.startswith(left_out))
    left = {name for name in FILES if not name.startswith(("judge/", "notes/"))}
    assert set(snapshot(into)) == left | {"latest"}


def test_exports_that_overlap_are_rejected(scene: Scene) -> None:
    into = scene.path.parent / "out"
    for keep in (True, False):
        scene.repository.export(scene.base, into, keep=lambda path: ("sample/" in path) is keep)  # noqa: B023 - called at once
    for name in ("sample/core.py", "latest"):
        with pytest.raises(FileExistsError):
            scene.repository.export(scene.base, into, keep=lambda path: path == name)  # noqa: B023 - called at once
    (into / "sample/core.py").unlink()
    (into / "sample/core.py").symlink_to(into / "outside")
    with pytest.raises(FileExistsError):
        scene.repository.export(scene.base, into, keep=lambda path: path == "sample/core.py")
    assert not (into / "outside").exists()


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "sample/../../outside", "sample/core.py/../..", ""]
)
def test_link_out_of_the_tree_is_rejected(scene: Scene, target: str) -> None:
    linked = scene.git("hash-object", "-w", "--stdin", given=target.encode()).decode().strip()
    tree = scene.git("mktree", given=f"120000 blob {linked}\tlink\n".encode()).decode().strip()
    with pytest.raises(RepositoryError, match="leads out of its tree"):
        scene.repository.export(tree, scene.path.parent / "out")


def test_tree_with_a_path_that_leads_out_is_rejected(scene: Scene) -> None:
    blob = scene.git("hash-object", "-w", "--stdin", given=b"x").decode().strip()
    inner = scene.git("mktree", given=f"100644 blob {blob}\tx\n".encode()).decode().strip()
    tree = scene.git("mktree", given=f"040000 tree {inner}\t..\n".encode()).decode().strip()
    with pytest.raises(RepositoryError, match="leads out of its tree"):
        scene.repository.export(tree, scene.path.parent / "inner/out")


def test_file_that_is_none_or_too_large_is_rejected(scene: Scene) -> None:
    read = scene.repository.read
    assert read(scene.base, "sample/core.py", most=10) == b"LIMIT = 3\n"
    with pytest.raises(RepositoryError, match="the maximum is 9"):
        read(scene.base, "sample/core.py", most=9)
    for path in ("sample", "nothing", "latest", "../x", "./sample/core.py", ":(top)sample/core.py"):
        with pytest.raises(RepositoryError, match="not found in commit"):
            read(scene.base, path)


def test_linked_work_tree_and_bare_repository_are_the_same_repository(scene: Scene) -> None:
    scene.git("worktree", "add", "--quiet", "--detach", str(scene.path.parent / "linked"))
    scene.git("clone", "--quiet", "--bare", ".", str(scene.path.parent / "bare"))
    for place in ("linked", "bare"):
        repository = Repository(scene.path.parent / place)
        assert repository.root("main") == scene.base
        tree = repository.candidate_tree(scene.base, scene.diff(HONEST))
        commit = repository.commit(tree, scene.base, "an honest change", 1_000_000_000)
        repository.advance("main", old=scene.base, new=commit)
        assert repository.head("main") == commit
        repository.advance("main", old=commit, new=scene.base)


def test_repository_with_longer_hashes_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    made = tmp_path / "long"
    environment = {**os.environ, "GIT_DEFAULT_HASH": "sha256"}
    people = {
        f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    for command in (
        ("init", "--quiet", "--initial-branch=main", str(made)),
        ("-C", str(made), "commit", "--quiet", "--allow-empty", "--message=one"),
    ):
        subprocess.run(["git", *command], check=True, env={**environment, **people})
    repository = Repository(made)
    head = repository.head("main")
    assert len(head) == 64
    diff = b"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
    assert repository.paths(repository.candidate_tree(head, diff)) == ("x",)


@pytest.mark.parametrize("name", ["nothing", "empty", "repository/sample"])
def test_what_is_no_repositorys_top_is_rejected(scene: Scene, name: str) -> None:
    (scene.path.parent / "empty").mkdir()
    with pytest.raises(RepositoryError, match="not the top folder of a git repository"):
        Repository(scene.path.parent / name)


def test_repository_without_the_branch_is_rejected(scene: Scene) -> None:
    with pytest.raises(RepositoryError, match="branch 'other' not found"):
        scene.repository.head("other")


def test_git_that_takes_too_long_is_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.path / ".git/objects/11").mkdir(exist_ok=True)
    os.mkfifo(scene.path / ".git/objects/11" / ("1" * 38))  # nobody ever writes to it
    monkeypatch.setattr("judge.gauntlet.repository.git.SECONDS", 0.5)
    with pytest.raises(RepositoryError, match=r"took 0\.5 s"):
        scene.repository.files("1" * 40)


def test_output_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judge.gauntlet.repository.git.MAX_OUTPUT", 100)
    with pytest.raises(RepositoryError, match="prints more than 100 bytes"):
        scene.repository.files(scene.base)
    monkeypatch.setattr("judge.gauntlet.repository.git.MAX_EXPORT", 50)
    monkeypatch.setattr("judge.gauntlet.repository.git.MAX_OUTPUT", 10_000)
    with pytest.raises(RepositoryError, match="more than 50 bytes"):
        scene.repository.export(scene.base, scene.path.parent / "out")


def test_nothing_is_left_in_the_temporary_folder(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    program = (
        "import sys; from pathlib import Path;"
        "from judge.gauntlet.repository.git import Repository;"
        "Repository(Path(sys.argv[1])).head('main')"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    subprocess.run([sys.executable, "-c", program, scene.path], check=True, env=environment)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_git_folder_of_a_killed_process_is_removed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", repository], check=True)
    code = (
        "import os, pathlib\nfrom judge.gauntlet.repository.git import Repository\n"
        f"kept = Repository(pathlib.Path({str(repository)!r}))\nos.kill(os.getpid(), 9)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ})
    assert len(list(tmp_path.glob("gauntlet-git-*"))) == 1  # the second removed the first's
    opened = Repository(repository)
    assert len(list(tmp_path.glob("gauntlet-git-*"))) == 1
    del opened
    assert not list(tmp_path.glob("gauntlet-git-*"))
