"""The manifest of tiers: strict about what it says, and the strictest pattern counts."""

import hashlib
import random
import re

import pytest
from gauntlet_scene import MANIFEST, OWN, own_paths
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from judge.gauntlet.errors import ManifestError
from judge.gauntlet.repository.manifest import (
    MAX_BYTES,
    PATH,
    Manifest,
    PathPattern,
    parse_manifest,
)


def with_tiers(tiers: dict[int, list[str]]) -> Manifest:
    tiers = {**tiers, 0: [*tiers[0], "tests/**"]}
    written = "\n".join(f"{tier} = {patterns!r}" for tier, patterns in tiers.items())
    start, end = MANIFEST.index("[tiers]"), MANIFEST.index("[controller]")
    return parse_manifest(f"{MANIFEST[:start]}[tiers]\n{written}\n{MANIFEST[end:]}".encode())


def matches(pattern: list[str], path: list[str]) -> bool:
    """What patterns mean, once more and as slowly as it can be said."""
    if not pattern:
        return not path
    head, *rest = pattern
    if head == "**":
        if not rest:
            return bool(path)
        return any(matches(rest, path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and name_matches(head, path[0]) and matches(rest, path[1:])


def name_matches(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(name_matches(pattern[1:], name[skipped:]) for skipped in range(len(name) + 1))
    return bool(name) and name[0] == pattern[0] and name_matches(pattern[1:], name[1:])


NAMES = st.sampled_from(["a", "b", "ab", "a.py", "b.py", ".a"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PARTS = st.one_of(NAMES, st.sampled_from(["*", "**", "a*", "*.py", "*a*"]))
PATTERNS = st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=5)


@settings(deadline=None)  # machines can be busy
@given(PATHS, st.tuples(PATTERNS, PATTERNS, PATTERNS), st.randoms())
def test_tier_is_that_of_the_strictest_pattern_in_any_order(
    path: str, patterns: tuple[list[str], list[str], list[str]], order: random.Random
) -> None:
    matching = [
        tier
        for tier, some in enumerate(patterns)
        if any(matches(pattern.split("/"), path.split("/")) for pattern in some)
    ]
    wanted = min(matching, default=0)
    tiers = dict(enumerate(patterns))
    assert with_tiers(tiers).tier_of(path) == wanted
    shuffled = [(tier, order.sample(some, len(some))) for tier, some in tiers.items()]
    order.shuffle(shuffled)
    assert with_tiers(dict(shuffled)).tier_of(path) == wanted


@settings(deadline=None)  # machines can be busy
@given(PATHS, PATTERNS, PATTERNS)
def test_one_more_pattern_in_a_tier_makes_no_path_freer_unless_nothing_knew_it(
    path: str, known: list[str], more: list[str]
) -> None:
    before = with_tiers({0: [], 1: known, 2: ["**"]}).tier_of(path)
    assert with_tiers({0: more, 1: known, 2: ["**"]}).tier_of(path) <= before


@pytest.mark.parametrize(
    ("pattern", "path", "held"),
    [
        ("a/**", "a/b", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**", "ab/c", False),
        ("a/*", "a/b/c", False),
        ("a/*", "a/.b", True),
        ("**/x.py", "x.py", True),
        ("**/x.py", "a/b/x.py", True),
        ("**/x.py", "a/xx.py", False),
        ("a/**/b", "a/b", True),
        ("a/*.py", "a/b.py\n", False),
        ("a.py", "a_py", False),
        ("a.py", "A.py", False),
    ],
)
def test_pattern_holds_what_it_says(pattern: str, path: str, held: bool) -> None:
    assert (with_tiers({0: [], 1: [], 2: [pattern]}).tier_of(path) == 2) is held


@pytest.mark.parametrize(
    "path",
    [
        "judge/tiers.toml",
        "judge/reference_tasks",
        "judge/reference_tasks/tasks/one/task.json",
        "sample/gate.py",
        ".gitattributes",
        "a/.git/config",
        "a/.GIT/config",
        "a/.gitmodules",
        "a/.github/x",
        "conftest.py",
        "a/CONFTEST.py",
        "a/sitecustomize.py",
        "a/usercustomize.py",
        "a/x.pth",
        "a/__pycache__/x.pyc",
        "a/pyproject.toml",
        "a/pytest.ini",
        "a/tox.ini",
        "a/setup.cfg",
        "setup.py",
        "a/pytest.toml",
        "a/.pytest.ini",
        "a/.coveragerc",
        "a/pyvenv.cfg",
        "a/sitecustomize/x.py",
        "a-1.0.dist-info/entry_points.txt",
        "a/B-1.0.Egg-Info/entry_points.txt",
        "tests/helper.py",
    ],
)
def test_path_is_tier_0_whatever_the_manifest_says(path: str) -> None:
    everything = with_tiers({0: [], 1: [], 2: ["**"]})
    assert everything.tier_of(path) == 0
    assert everything.tier_of("a/x.py") == 2


@pytest.mark.parametrize(
    ("tier_0", "tests"),
    [
        (["judge/**"], ["tests/**"]),
        (["tests/*"], ["tests/**"]),
        (["tests/test_a.py"], ["tests/test_*.py"]),
        (["tests/**"], ["tests/**", "sample/test_*.py"]),
        (["tests/unit/**"], ["tests/**/test_*.py"]),
    ],
)
def test_tests_outside_of_tier_0_are_rejected(tier_0: list[str], tests: list[str]) -> None:
    written = MANIFEST.replace('paths = ["tests/**"]', f"paths = {tests!r}")
    with pytest.raises(ManifestError, match=r"the tests .* must be tier 0") as caught:
        parse_manifest(re.sub(r"(?m)^0 = .*", f"0 = {tier_0!r}", written).encode())
    assert str(caught.value).startswith("judge/tiers.toml: ")
    assert parse_manifest(re.sub(r"(?m)^0 = .*", '0 = ["**"]', written).encode())
    assert parse_manifest(re.sub(r"(?m)^0 = .*", f"0 = {tests!r}", written).encode())


def test_strict_pattern_holds_names_with_line_breaks() -> None:
    assert with_tiers({0: ["a/**"], 1: [], 2: ["a/*"]}).tier_of("a/x\ny") == 0


def test_controller_is_the_manifest_the_reference_set_and_what_is_named() -> None:
    manifest = parse_manifest(MANIFEST.encode())
    named = ["judge/tiers.toml", "judge/reference_tasks/x", "sample/gate.py"]
    assert all(manifest.is_controller(path) for path in named)
    others = ["judge/reference_tasks_too/x", "judge/other.py", "sample/core.py"]
    assert not any(manifest.is_controller(path) for path in others)


def test_additions_are_new_tests_and_nothing_that_pytest_obeys() -> None:
    wide = MANIFEST.replace('["tests/test_*.py"]', '["**"]')
    manifest = parse_manifest(wide.encode())
    assert manifest.may_add("tests/test_new.py")
    for path in ("tests/conftest.py", "judge/tiers.toml", "sample/gate.py", ".gitattributes"):
        assert not manifest.may_add(path)


def test_manifest_says_what_is_written() -> None:
    manifest = parse_manifest(MANIFEST.encode())
    assert manifest.sha256 == hashlib.sha256(MANIFEST.encode()).hexdigest()
    assert (manifest.line, manifest.reference_set) == ("main", "judge/reference_tasks")
    assert manifest.tests.command[-1] == "--junitxml={report}"
    assert (manifest.tests.seconds, manifest.benchmark.seconds) == (60, 10)
    assert manifest.benchmark.representative == ("one", "two")
    assert manifest.is_config("sample/numbers.toml")
    assert not manifest.is_config("sample/select.py")
    assert manifest.is_test("tests/a/b.py")
    assert manifest.lint.max.file_lines == 20
    without = MANIFEST[: MANIFEST.index("[lint.max]")]
    assert parse_manifest(without.encode()).lint.max.file_lines is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 2", "version: Invalid enum value 2"),
        ("version = 1", "version = true", "version: Expected `int`, got `bool`"),
        ("version = 1\n", "", "Object missing required field `version`"),
        ("version = 1", "version = 1\nother = 1", "Object contains unknown field `other`"),
        ('line = "main"', 'line = "infra/x"', "line: Expected `str` matching regex"),
        ('line = "main"', 'line = "-x"', "line: Expected `str` matching regex"),
        ('line = "main"', 'line = ""', "line: Expected `str` matching regex"),
        ('line = "main"', 'line = "a\\u001b"', "line: Expected `str` matching regex"),
        ("judge/reference_tasks", "../tasks", "reference_set: '../tasks' is not a path in"),
        ("judge/reference_tasks", "judge/*", "reference_set: 'judge/*' is not a folder"),
        ("judge/reference_tasks", "/judge", "reference_set: '/judge' is not a path in"),
        ('1 = ["prompts', '3 = ["prompts', "tiers: Object contains unknown field `3`"),
        (
            '1 = ["prompts/system.md", "sample/order.py"]\n',
            "",
            "tiers: Object missing required",
        ),
        (
            '1 = ["prompts/system.md", "sample/order.py"]',
            '1 = "prompts/**"',
            "tiers.1: Expected `array`, got `str`",
        ),
        ('"prompts/system.md"', "7", "tiers.1[0]: Expected `str`, got `int`"),
        ('"prompts/system.md"', '"prompts/**.md"', "next to other characters"),
        ('"prompts/system.md"', '"../prompts"', "not a path"),
        ('"prompts/system.md"', '"/prompts"', "not a path"),
        ('"prompts/system.md"', '"prompts//x"', "not a path"),
        ('"prompts/system.md"', '"prompts/"', "not a path"),
        ('"prompts/system.md"', '"prompts\\\\x"', "not a path"),
        ('"prompts/system.md"', '"prompts/[a]"', "wildcards other than"),
        ('"prompts/system.md"', '"!prompts"', "wildcards other than"),
        (
            "[controller]\npaths",
            "[controller]\npath",
            "controller: Object contains unknown",
        ),
        ('[config]\npaths = ["sample/*.toml"]\n', "", "Object missing required field `config`"),
        (
            "--junitxml={report}",
            "--junitxml=x",
            "tests: command must be a command that contains {python} and",
        ),
        (
            '"{python}", "judge',
            '"python", "judge',
            "benchmark: command must be a command that contains {python}",
        ),
        (
            '"{python}", "judge',
            '"{python}", "{home}", "judge',
            "benchmark: command must be a command",
        ),
        ("seconds = 60", "seconds = 0", "tests.seconds: Expected `int` >= 1"),
        ("seconds = 60", "seconds = 1.5", "tests.seconds: Expected `int`, got `float`"),
        ("seconds = 60", "seconds = 100_000", "tests.seconds: Expected `int` <= 86400"),
        ('["one", "two"]', '["one", "one"]', "representative must name at most 5 different"),
        ('["one", "two"]', '["1", "2", "3", "4", "5", "6"]', "representative must name at most 5"),
        ('"math"', '"math.*.x"', "is not a module name"),
        ('"math"', '"*"', "is not a module name"),
        ("[code]\n", "[code]\nexports = []\n", "code: Object contains unknown field `exports`"),
        ("file_lines", "lines", "lint.max: Object contains unknown field `lines`"),
        ("[lint.max]", "[lint.min]", "lint: Object contains unknown field `min`"),
        (
            "file_lines = 20",
            "file_lines = true",
            "max.file_lines: Expected `int | null`",
        ),
        ("[lint.max]", "[[lint.max]]", "lint.max: Expected `object`, got `array`"),
        ("version = 1", "version = ", "is not TOML"),
    ],
)
def test_manifest_that_says_something_else_is_rejected(old: str, new: str, message: str) -> None:
    assert parse_manifest(MANIFEST.encode())
    assert MANIFEST.count(old) >= 1
    with pytest.raises(ManifestError, match=re.escape(message)) as caught:
        parse_manifest(MANIFEST.replace(old, new, 1).encode())
    assert "judge/tiers.toml" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\xff", b"x" * (MAX_BYTES + 1), b"a = " + b"[" * 5_000])
def test_bytes_that_are_no_manifest_are_rejected(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(data)


@settings(deadline=None)  # machines can be busy
@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_a_manifest_error(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(data)


# This repository's own.


def own() -> Manifest:
    return parse_manifest((OWN / PATH).read_bytes())


def test_every_path_of_this_repository_is_mapped() -> None:
    paths, manifest = own_paths(), own()
    everything = [pattern.split("/") for some in astuple(manifest.tiers) for pattern in some]
    unmapped = [
        path for path in paths if not any(matches(each, path.split("/")) for each in everything)
    ]
    assert not unmapped, "say in judge/tiers.toml which tier these are"


def test_what_records_and_judges_is_tier_0_here() -> None:
    paths, manifest = own_paths(), own()
    core = ("aggregates/", "docs/", "judge/", "ledger/", "monitor/", "projections/", "tests/")
    assert {manifest.tier_of(path) for path in paths if path.startswith(core)} == {0}
    alone = ("Makefile", "pyproject.toml", "requirements.lock", "policies/asking/secrets.py")
    assert {manifest.tier_of(path) for path in alone} == {0}
    assert manifest.is_controller("judge/gauntlet/repository/manifest.py")
    assert manifest.tier_of("policies/prompts/contract.md") == 1
    assert manifest.tier_of("policies/evidence.py") == 2


def test_playbook_is_read_only_here() -> None:
    manifest = own()
    assert manifest.tier_of("policies/prompts/playbook.md") == 0


def test_representative_tasks_are_in_the_reference_set_here() -> None:
    tasks = {
        path.split("/")[4]
        for path in own_paths()
        if path.startswith("docs/studies/reference_tasks/t")
    }
    assert len(own().benchmark.representative) == 5
    assert set(own().benchmark.representative) <= tasks


def test_tests_that_the_command_leaves_out_exist_here() -> None:
    paths = own_paths()
    left_out = [part.partition("=") for part in own().tests.command if "=tests/" in part]
    assert {option for option, _, _ in left_out} == {"--deselect", "--ignore", "--ignore-glob"}
    for option, _, value in left_out:
        path, _, case = value.partition("::")
        assert any(PathPattern(path).matches(each) for each in paths), f"{option} {value}"
        name = case.partition("[")[0]
        assert not case or f"def {name}(" in (OWN / path).read_text(encoding="utf-8"), value
