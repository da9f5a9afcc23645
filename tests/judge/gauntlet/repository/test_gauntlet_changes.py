"""What a diff really touches: attacks on the tiers, with real git, beside an honest change."""

import unicodedata
from pathlib import Path

import pytest
from gauntlet_scene import HONEST, MANIFEST, Edit, Scene, writes

from judge.gauntlet.errors import DiffError, TierError
from judge.gauntlet.repository.changes import PathChange, check_changes
from judge.gauntlet.repository.manifest import PATH, parse_manifest


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    found = Scene(tmp_path_factory.mktemp("changes") / "repository")
    verdict = found.check(found.diff(HONEST))  # the control: an honest change passes here
    assert (verdict.tier, verdict.code) == (2, ("sample/select.py",))
    return found


def refused(scene: Scene, diff: bytes, message: str, *, halts: str = "proposal") -> None:
    with pytest.raises(TierError, match=message) as caught:
        scene.check(diff)
    assert caught.value.halts_line == (halts == "line")


def made(path: str, mode: str = "100644", line: str = "x = 1") -> bytes:
    """A diff, written by hand, that adds a file."""
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1 @@\n+{line}\n".encode()


def links(name: str, target: str) -> Edit:
    def edit(top: Path) -> None:
        (top / name).unlink(missing_ok=True)
        (top / name).symlink_to(target)

    return edit


def moves(name: str, to: str) -> Edit:
    def edit(top: Path) -> None:
        (top / to).parent.mkdir(parents=True, exist_ok=True)
        (top / name).rename(top / to)

    return edit


# What honest proposals may do.


@pytest.mark.parametrize(
    ("edits", "tier", "configuration_only"),
    [
        ([writes("prompts/task.md", "Choose better.\n")], 2, False),
        ([writes("sample/numbers.toml", "most = 4\n")], 2, True),
        ([writes("sample/numbers.toml", "most = 4\n"), HONEST], 2, False),
        ([writes("prompts/system.md", "Be brief.\n")], 1, False),
        ([writes("prompts/system.md", "Be brief.\n"), HONEST], 1, False),
        ([moves("sample/select.py", "sample/choose.py")], 2, False),
        ([writes("sample/more.py", "x = 1\n")], 2, False),
        ([writes("notes/Übung 2.txt", "Zwei\n")], 2, False),  # the base has this name
        ([writes("notes/auxiliary.com.txt", "x\n")], 2, False),
    ],
)
def test_tier_of_a_proposal_is_the_strictest_that_it_touches(
    scene: Scene, edits: list[Edit], tier: int, configuration_only: bool
) -> None:
    verdict = scene.check(scene.diff(*edits))
    assert (verdict.tier, verdict.configuration_only) == (tier, configuration_only)


def test_added_test_passes_with_tier_1_when_it_is_declared(scene: Scene) -> None:
    verdict = scene.check(scene.diff(HONEST, writes("tests/test_new.py", "def test_new(): ...\n")))
    assert verdict.tiers == {"sample/select.py": 2, "tests/test_new.py": 1}
    assert verdict.additions == ("tests/test_new.py",)
    assert verdict.code == ("sample/select.py",)


def test_rename_is_seen_as_deletion_and_addition(scene: Scene) -> None:
    diff = scene.diff(moves("sample/select.py", "sample/choose.py"))
    assert b"rename from" in diff
    tree = scene.repository.candidate_tree(scene.base, diff)
    assert scene.repository.changes(scene.base, tree) == (
        PathChange("sample/choose.py", "added", None, "100644"),
        PathChange("sample/select.py", "deleted", "100644", None),
    )
    assert scene.check(diff).code == ("sample/choose.py",)


def test_crlf_is_kept_when_the_file_has_it(scene: Scene) -> None:
    content = "one\r\nTWO\r\nthree\r\n"
    diff = scene.diff(writes("notes/windows.txt", content))
    tree = scene.repository.candidate_tree(scene.base, diff)
    assert scene.repository.read(tree, "notes/windows.txt") == content.encode()


def test_change_of_nothing_is_rejected(scene: Scene) -> None:
    manifest = parse_manifest(scene.repository.read(scene.base, PATH))
    with pytest.raises(DiffError, match="changes nothing"):
        check_changes([], {}, manifest, scene.repository.paths(scene.base))


def test_diff_that_comes_to_a_path_twice_is_rejected(scene: Scene) -> None:
    there = scene.diff(HONEST)
    again = (
        b"@@ -1,2 +1,2 @@\n-def select(rows):\n+def select(r):\n"
        b"     return sorted(rows, key=abs)[:3]\n"
    )
    with pytest.raises(DiffError, match="more than once"):
        scene.check(there + there[: there.index(b"@@")] + again)


# Tier 0, in whatever guise.


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "edits",
    [
        [writes("sample/core.py", "LIMIT = 4\n")],
        [writes("sample/core.py", "LIMIT = 4\n"), HONEST],
        [lambda top: (top / "sample/core.py").unlink()],
        [moves("sample/core.py", "sample/kernel.py")],  # into tier 2
        [moves("sample/select.py", "judge/select.py")],  # out of it
        [writes("nobody/knows.md", "x\n")],
        [writes("tests/test_core.py", "def test_core(): ...\n")],
        [lambda top: (top / "tests/test_core.py").unlink()],
        [moves("tests/test_core.py", "tests/test_kernel.py")],
        [writes("tests/conftest.py", "x = 1\n")],
        [writes("tests/helper.py", "x = 1\n")],
        [writes("sample/conftest.py", "x = 1\n")],
        [writes("sample/sitecustomize.py", "x = 1\n")],
        [writes("sample/late.pth", "import os\n")],
        [writes("pyproject.toml", "[tool.pytest.ini_options]\n")],
        [writes("notes/pytest.ini", "[pytest]\n")],
    ],
)
def test_touching_tier_0_is_rejected(scene: Scene, edits: list[Edit]) -> None:
    refused(scene, scene.diff(*edits), "is tier 0: only people may change it")


def test_there_and_back_again_by_renames_is_rejected(scene: Scene) -> None:
    diff = (
        b"diff --git a/sample/core.py b/sample/free.py\nsimilarity index 100%\n"
        b"rename from sample/core.py\nrename to sample/free.py\n"
        + made("sample/core.py", line="LIMIT = 9").replace(b"new file mode 100644\n", b"")
    )
    with pytest.raises((TierError, DiffError), match=r"is tier 0|does not apply"):
        scene.check(diff)
    two = b"".join(
        f"diff --git a/{old} b/{new}\nsimilarity index 50%\nrename from {old}\nrename to {new}\n"
        f"--- a/{old}\n+++ b/{new}\n@@ -1 +1 @@\n-LIMIT = {was}\n+LIMIT = {then}\n".encode()
        for old, new, was, then in (
            ("sample/core.py", "sample/free.py", 3, 4),
            ("sample/free.py", "sample/core.py", 4, 5),
        )
    )
    with pytest.raises((TierError, DiffError), match=r"is tier 0|does not apply"):
        scene.check(two)


@pytest.mark.parametrize(
    "edit",
    [
        writes(PATH, "version = 1\n"),
        lambda top: (top / PATH).unlink(),
        moves(PATH, "sample/tiers.toml"),
        writes("judge/reference_tasks/tasks/easy/expected.json", "{}\n"),
        writes("judge/reference_tasks/manifest.json", "{}\n"),
        writes("sample/gate.py", "OPEN = True\n"),  # which a pattern of tier 2 matches, too
        links("sample/gate.py", "select.py"),
    ],
)
def test_touching_the_controller_is_rejected_and_halts_the_line(scene: Scene, edit: Edit) -> None:
    refused(scene, scene.diff(HONEST, edit), "belongs to the code that judges", halts="line")


# Modes.


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (links("sample/new.py", "core.py"), "symbolic link"),
        (links("sample/select.py", "core.py"), "symbolic link"),
        (links("notes/outside", "/etc/passwd"), "symbolic link"),
        (links("sample/core.py", "select.py"), "symbolic link"),
        (lambda top: (top / "latest").unlink(), "symbolic link"),
        (lambda top: (top / "sample/select.py").chmod(0o755), "executable file"),
        (lambda top: (top / "bin/run").chmod(0o644), "executable file"),
    ],
)
def test_anything_but_plain_files_is_rejected(scene: Scene, edit: Edit, message: str) -> None:
    refused(scene, scene.diff(HONEST, edit), message)


def test_content_of_an_executable_file_may_change_where_a_person_approves(scene: Scene) -> None:
    verdict = scene.check(scene.diff(writes("bin/run", "echo better\n")))
    assert (verdict.tier, verdict.tiers) == (1, {"bin/run": 1}), "tier 2 in the manifest"
    assert scene.check(scene.diff(lambda top: (top / "bin/run").unlink())).tier == 1
    tree = scene.repository.candidate_tree(scene.base, scene.diff(writes("bin/run", "echo\n#\n")))
    assert scene.repository.files(tree)["bin/run"].mode == "100755", "its mode stays"


def test_new_executable_file_is_rejected(scene: Scene) -> None:
    refused(scene, made("bin/tool", mode="100755"), "executable file")


def test_submodule_is_rejected(scene: Scene) -> None:
    diff = (
        "diff --git a/sample/module b/sample/module\nnew file mode 160000\nindex 0000000..1234567\n"
        f"--- /dev/null\n+++ b/sample/module\n@@ -0,0 +1 @@\n+Subproject commit {scene.base}\n"
    )
    refused(scene, diff.encode(), "submodule")


def test_link_through_which_another_file_is_written_is_rejected(scene: Scene) -> None:
    diff = made("sample/door", mode="120000", line="../judge").replace(
        b"+../judge\n", b"+../judge\n\\ No newline at end of file\n"
    ) + made("sample/door/tiers.toml", line="version = 2")
    with pytest.raises((TierError, DiffError)):
        scene.check(diff)


# Paths.


@pytest.mark.parametrize(
    "path",
    [
        "../outside.py",
        "sample/../../outside.py",
        "sample/../judge/new.py",
        "/tmp/outside.py",
        ".git/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        ".Git/config",
        "sample/.git/config",
        "git~1/config",
        ".git./config",
        ".git /config",
        ".g\u200cit/config",
        "sample/./new.py",
        "sample//new.py",
    ],
)
def test_path_that_leads_elsewhere_is_rejected(scene: Scene, path: str) -> None:
    with pytest.raises((DiffError, TierError)) as caught:
        scene.check(made(path))
    assert not isinstance(caught.value, TierError) or not caught.value.halts_line
    assert not (scene.path.parent / "outside.py").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".gitattributes", "git's own"),
        ("sample/.gitattributes", "git's own"),
        (".gitmodules", "git's own"),
        ("sample/.GitIgnore", "git's own"),
        ("sample/GATE~1.PY", "contains '~'"),
        ("sample/select.py:hidden", "contains ':'"),
        ("sample/select.py.", "lost or misread"),
        ("sample/select.py ", "lost or misread"),
        ("sample/-rf", "lost or misread"),
        ("sample/back\\slash.py", "contains"),
        ("sample/line\nbreak.py", "contains"),
        ("sample/bell\x07.py", "contains"),
        ("sample/right\u202eyp.py", "contains"),
        ("sample/se\u200blect.py", "contains"),
        ("sample/\udcff.py", "contains"),
        ("sample/u\u0308.py", "normal form C"),
        ("sample/\u3164.py", "contains '.u3164'; use ASCII"),  # letters and marks that show nothing
        ("sample/select\ufe0f.py", "contains '.ufe0f'; use ASCII"),
        ("sample/sel\u034fect.py", "contains '.u034f'; use ASCII"),
        ("sample/s\u0435lect.py", "contains '.u0435'; use ASCII"),  # Cyrillic, Greek, fullwidth
        ("sample/\u03bfrder.py", "contains '.u03bf'; use ASCII"),
        ("sample/\uff53elect.py", "contains '.uff53'; use ASCII"),
        ("s\u0430mple/new.py", "contains '.u0430'; use ASCII"),
        ("sample/aux.py", "is a device on Windows"),
        ("sample/NUL", "is a device on Windows"),
        ("sample/com1.tar.gz", "is a device on Windows"),
        ("sample/con/new.py", "is a device on Windows"),
        ("sample/CONOUT$", "contains"),
        ("sample//x.py", "leads elsewhere"),
        ("sample/../judge/x.py", "leads elsewhere"),
        ("/sample/x.py", "leads elsewhere"),
        ("sample/" + "x" * 300, "too long"),
        ("sample/" * 100 + "x", "too long"),
    ],
)
def test_odd_path_is_rejected(scene: Scene, path: str, message: str) -> None:
    manifest = parse_manifest(scene.repository.read(scene.base, PATH))
    change = PathChange(path, "added", None, "100644")
    with pytest.raises(TierError, match=message):
        check_changes([change], {path: 2}, manifest, [*scene.repository.paths(scene.base), path])


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("sample/Select.py", "sample/select.py"),
        ("Sample/new.py", "Sample"),
        ("JUDGE/tiers.toml", "JUDGE"),
    ],
)
def test_name_that_differs_by_case_or_form_only_is_rejected(
    scene: Scene, path: str, other: str
) -> None:
    refused(scene, made(path), f"{other}.*are the same name on")


def test_two_new_names_that_are_one_are_rejected(scene: Scene) -> None:
    refused(scene, made("notes/A.txt") + made("notes/a.txt"), "are the same name on")
    decomposed = unicodedata.normalize("NFD", "ä")
    refused(scene, made(f"notes/{decomposed}.txt"), "normal form C")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sample/core/__init__.py", "replaces 'sample/core.py'"),
        ("sample/core/new.toml", "replaces 'sample/core.py'"),
        ("json.py", "new top-level module"),
        ("random/__init__.py", "new top-level module"),
        ("notes/__init__.py", "new top-level module"),
    ],
)
def test_module_in_anothers_place_is_rejected(scene: Scene, path: str, message: str) -> None:
    refused(scene, made(path), message)


def test_test_in_the_top_folder_is_added_where_the_manifest_allows_it() -> None:
    manifest = parse_manifest(MANIFEST.replace('["tests/test_*.py"]', '["*.py"]').encode())

    def check(new: str) -> int:
        change = PathChange(new, "added", None, "100644")
        return check_changes([change], {new: 1}, manifest, ["sample/__init__.py", new]).tier

    assert (check("test_new.py"), check("new_test.py")) == (1, 1)
    for path in ("random.py", "test_.so.py", "src/random.py", "test_new/__init__.py"):
        with pytest.raises(TierError):
            check(path)


def test_changed_test_is_told_where_a_new_one_may_lie(scene: Scene) -> None:
    changed = writes("tests/test_core.py", "def test_core(): ...\n")
    refused(scene, scene.diff(changed), r"own commits; .* a new file, as in 'tests/test_\*.py'")


@pytest.mark.parametrize("path", ["src/random.py", "src/json/__init__.py", "src/tests/new.py"])
def test_module_beside_the_packages_in_src_is_rejected(path: str) -> None:
    manifest = parse_manifest(MANIFEST.replace('"sample/**"', '"src/**"').encode())
    paths = ["src/sample/__init__.py", "tests/new.py", "json/notes.txt"]

    def check(new: str) -> int:
        change = PathChange(new, "added", None, "100644")
        return check_changes([change], {new: 2}, manifest, [*paths, new]).tier

    assert check("src/sample/random.py") == 2  # which is imported as sample.random
    with pytest.raises(TierError, match="creates a new top-level module"):
        check(path)


# Declarations.


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"sample/select.py": 1}, "is tier 2, but the proposal declares tier 1"),
        ({"sample/select.py": 0}, "is tier 2, but the proposal declares tier 0"),
        ({"sample/select.py": True}, "is tier 2, but the proposal declares tier True"),
        ({}, "which the proposal does not declare"),
        ({"sample/other.py": 2}, "which the proposal does not declare"),
        ({"sample/select.py": 2, "sample/other.py": 2}, "which the diff does not change"),
    ],
)
def test_wrong_declaration_is_rejected(
    scene: Scene, declared: dict[str, int], message: str
) -> None:
    diff = scene.diff(HONEST)
    assert scene.check(diff, {"sample/select.py": 2}).tier == 2
    with pytest.raises(TierError, match=message) as caught:
        scene.check(diff, declared)
    assert not caught.value.halts_line


def test_tier_1_declared_as_tier_2_is_rejected(scene: Scene) -> None:
    diff = scene.diff(writes("prompts/system.md", "Be brief.\n"))
    assert scene.check(diff, {"prompts/system.md": 1}).tier == 1
    with pytest.raises(TierError, match="is tier 1, but the proposal declares tier 2"):
        scene.check(diff, {"prompts/system.md": 2})
    with pytest.raises(TierError, match="is tier 1, but the proposal declares tier True"):
        scene.check(diff, {"prompts/system.md": True})


def test_added_test_declared_as_tier_2_is_rejected(scene: Scene) -> None:
    diff = scene.diff(writes("tests/test_new.py", "x = 1\n"))
    assert scene.check(diff, {"tests/test_new.py": 1}).tier == 1
    with pytest.raises(TierError, match="is tier 1, but the proposal declares tier 2"):
        scene.check(diff, {"tests/test_new.py": 2})


def test_tier_0_declared_as_tier_2_is_rejected(scene: Scene) -> None:
    diff = scene.diff(writes("sample/core.py", "LIMIT = 4\n"))
    with pytest.raises(TierError, match="is tier 0"):
        scene.check(diff, {"sample/core.py": 2})


def test_manifest_of_the_candidate_does_not_count(scene: Scene) -> None:
    softer = scene.path.joinpath(PATH).read_text().replace('"sample/core.py"', '"nothing"')
    diff = scene.diff(writes(PATH, softer), writes("sample/core.py", "LIMIT = 4\n"))
    refused(scene, diff, "belongs to the code that judges", halts="line")


def test_too_many_files_are_rejected(scene: Scene) -> None:
    diff = b"".join(made(f"notes/{number}.txt") for number in range(1_001))
    refused(scene, diff, "changes 1001 files; the maximum is 1000")
    assert scene.check(b"".join(made(f"notes/{number}.txt") for number in range(50))).tier == 2
