"""The gate of tests: an honest change passes it, and nobody talks or tricks a way through."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from gauntlet_scene import FILES, MANIFEST, Edit, Scene, writes
from msgspec.structs import replace

from judge.confinement.supervised import ISOLATION
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.repository.lint import check_code
from judge.gauntlet.repository.manifest import Manifest, parse_manifest
from judge.gauntlet.stages import base_cases
from judge.gauntlet.testing import suite
from judge.gauntlet.testing.junit import read_report
from judge.gauntlet.testing.plants import PLANTED
from judge.gauntlet.testing.suite import Suite, SuiteResult
from ledger.progress import listening

TESTS = """\
import pytest
from sample.select import select


@pytest.mark.parametrize("rows", [[], [3, 1, 2], [5, 4, 3, 2, 1]])
def test_select_orders(rows):
    assert select(rows) == sorted(rows)[:3]


def test_select_leaves_its_argument():
    rows = [2, 1]
    select(rows)
    assert rows == [2, 1]


@pytest.mark.skip(reason="of the base")
def test_that_is_skipped():
    raise AssertionError
"""
COMMAND = (
    '"-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest",'
    ' "--junitxml={report}"'
)
HERE: Mapping[str, str] = {
    **FILES,
    "judge/tiers.toml": MANIFEST.replace('"-m", "pytest", "--junitxml={report}"', COMMAND).replace(
        "seconds = 60", "seconds = 100"
    ),
    "tests/test_select.py": TESTS,
}
BETTER = "def select(rows):\n    return sorted(list(rows))[:3]\n"
PASSED = "tests.test_select::test_select_leaves_its_argument"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("suite") / "repository", HERE)


@pytest.fixture(scope="module")
def base(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    workspace = tmp_path_factory.mktemp("base")
    manifest = parse_manifest(HERE["judge/tiers.toml"].encode())
    return suite_of(scene, manifest, workspace).run_on_base()


def suite_of(scene: Scene, manifest: Manifest, workspace: Path) -> Suite:
    return Suite(
        repository=scene.repository, base=scene.base, manifest=manifest, workspace=workspace
    )


def real(base: SuiteResult) -> Mapping[str, str]:
    """The cases of the base's own tests."""
    return {case: outcome for case, outcome in base.cases.items() if case != PLANTED}


def failing(found: SuiteResult) -> bool:
    """Whether the run says that tests fail, and which."""
    told = r"the tests do not pass: it exited with status 1; \d+ cases \(.+\) failed"
    return re.fullmatch(told, found.problem or "") is not None


def judged(
    scene: Scene, base: SuiteResult, workspace: Path, *edits: Edit, seconds: int = 100
) -> SuiteResult:
    tree = scene.repository.candidate_tree(scene.base, scene.diff(*edits))
    commit = scene.repository.commit(tree, scene.base, "a candidate", 1_000_000_000)
    manifest = parse_manifest(HERE["judge/tiers.toml"].encode())
    limited = replace(manifest, tests=replace(manifest.tests, seconds=seconds))
    found = suite_of(scene, limited, workspace).run(commit, expected=base.cases)
    assert list(workspace.iterdir()) == []
    return found


def select(body: str, *, before: str = "") -> Edit:
    code = f"{before}\ndef select(rows):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    return writes("sample/select.py", code)


def test_base_passes_its_own_suite(base: SuiteResult) -> None:
    assert base.passed
    assert base.cases[PASSED] == "passed"
    assert base.cases["tests.test_select::test_that_is_skipped"] == "skipped"
    assert base.cases[PLANTED] == "failed"
    assert len(base.cases) == 7
    assert (base.isolation, base.leftovers) == (ISOLATION, 0)
    assert f"{base.planted} failed, 5 passed, 1 skipped".encode() in base.output
    assert base.planted >= 2, "beside both files of tests"


def test_honest_change_passes(scene: Scene, base: SuiteResult, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with listening(lambda *told: heard.append(told)):
        found = judged(scene, base, tmp_path, writes("sample/select.py", BETTER))
    assert (found.passed, found.problem) == (True, None)
    assert (found.cases, found.missing, found.added) == (real(base), (), ())
    assert heard == [("running tests", 0, None), ("running tests", 1, 1)]
    assert found.planted >= 2


def test_change_that_breaks_a_test_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path
) -> None:
    found = judged(scene, base, tmp_path, select("return sorted(rows)"))
    assert failing(found)
    assert [case for case, outcome in found.cases.items() if outcome == "failed"] == [
        "tests.test_select::test_select_orders[rows2]"
    ]


BROKEN = select("return sorted(rows)")


WEAKER = (
    writes("tests/test_select.py", "def test_nothing():\n    pass\n"),
    writes("tests/conftest.py", "collect_ignore = ['test_select.py']\n"),
    writes("conftest.py", "collect_ignore_glob = ['*']\n"),
    writes("pytest.ini", "[pytest]\naddopts = -k nothing\n"),
    writes("judge/tiers.toml", MANIFEST.replace('"pytest"', '"this"')),
    lambda top: (top / "tests/test_core.py").unlink(),
)


@pytest.mark.slow
def test_weakening_the_tests_is_rejected(scene: Scene, base: SuiteResult, tmp_path: Path) -> None:
    # None of these gets as far as this; and if it did, the base's tests would run all the same.
    found = judged(scene, base, tmp_path, BROKEN, *WEAKER)
    assert failing(found)
    assert found.cases.keys() == real(base).keys()
    assert judged(scene, base, tmp_path, *WEAKER).cases == real(base)


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        (select("return 0", before="import os\nos._exit(0)"), "the report was not found"),
        (select("import os\nos._exit(0)"), "the report was not found"),
        (
            select("import pytest\npytest.skip('no')"),
            r"4 cases \(.*\) passed in the base and were skipped",
        ),
        (
            select(
                "import os, time\nif not os.fork():\n    os.setsid(); time.sleep(60)\n"
                "return sorted(rows)[:3]"
            ),
            "the tests leave 4 processes behind",
        ),
        (
            select(
                "import pathlib\nfor path in pathlib.Path('tests').iterdir():\n"
                "    path.write_text('def test_nothing(): pass')\nreturn sorted(rows)"
            ),
            r"the tests do not pass: it exited with status 1; .* failed",
        ),
    ],
    ids=["exit", "exit-in-the-middle", "skip", "daemon", "tests-overwritten"],
)
@pytest.mark.sampled(3)
def test_trick_is_rejected(
    scene: Scene,
    base: SuiteResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Edit,
    problem: str,
) -> None:
    monkeypatch.setattr(suite, "LEAVING", 2.0)
    found = judged(scene, base, tmp_path, attack)
    assert not found.passed
    assert found.problem is not None
    assert re.fullmatch(problem, found.problem)


def test_sleeping_for_ever_is_rejected(scene: Scene, base: SuiteResult, tmp_path: Path) -> None:
    sleeping = select("import time\nwhile True: time.sleep(1)")
    found = judged(scene, base, tmp_path, sleeping, seconds=2)
    assert found.problem == "the tests do not pass: it ran for more than 2 seconds"


FORGED = """\
import os, sys
place = next(each[11:] for each in sys.argv if each.startswith("--junitxml="))
with open(place, "w") as file:
    file.write('<testsuite>' + ''.join(
        f'<testcase classname="tests.{{where}}" name="{{name}}"/>' for where, name in {cases!r}
    ) + '</testsuite>')
os._exit(0)
"""


def test_report_of_a_case_that_no_file_can_hold_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path
) -> None:
    code = FORGED.format(cases=[("x" * 300, 'it"><failure/></testcase><testcase name="')])
    found = judged(scene, base, tmp_path, writes("sample/select.py", code))
    assert not found.passed


def test_forged_report_that_misses_a_case_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path
) -> None:
    code = FORGED.format(cases=[("test_select", "test_select_leaves_its_argument")])
    found = judged(scene, base, tmp_path, writes("sample/select.py", code))
    assert found.problem is not None
    assert found.problem.startswith("the report is not trusted")
    assert len(found.missing) == 5


def test_report_that_is_forged_whole_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path
) -> None:
    cases = [case.removeprefix("tests.").split("::") for case in real(base)]
    code = FORGED.format(cases=cases)
    found = judged(scene, base, tmp_path, writes("sample/select.py", code))
    assert (found.cases.keys(), found.missing) == (real(base).keys(), ())
    assert not_trusted(found, "missing")
    # The code that it takes is refused before anything is run.
    manifest = parse_manifest(HERE["judge/tiers.toml"].encode())
    before = FILES["sample/select.py"].encode()
    assert any(check_code("sample/select.py", before, code.encode(), manifest))
    assert not any(check_code("sample/select.py", before, BETTER.encode(), manifest))


# Tests that have to fail


def not_trusted(found: SuiteResult, outcome: str) -> bool:
    told = rf"the report is not trusted: of \d+ planted tests, .* \d+ are reported as {outcome}"
    return re.fullmatch(told, found.problem or "") is not None


FROM_WITHIN = {
    "a test that is not run": """\
        import sys
        sys.modules["_pytest.python"].Function.runtest = lambda item: None
    """,
    "a report that says otherwise": """\
        import gc
        for kind in gc.get_objects():
            if isinstance(kind, type) and kind.__name__ == "TestReport":
                make = kind.from_item_and_call.__func__
                def made(cls, item, call, make=make):
                    report = make(cls, item, call)
                    report.outcome, report.longrepr = "passed", None
                    return report
                kind.from_item_and_call = classmethod(made)
    """,
    "an exception that is swallowed": """\
        import sys
        runner = sys.modules["_pytest.runner"]
        whole = runner.CallInfo.from_call.__func__
        def from_call(cls, func, *rest, **more):
            def quiet():
                try:
                    return func()
                except AssertionError:
                    return None
            return whole(cls, quiet, *rest, **more)
        runner.CallInfo.from_call = classmethod(from_call)
    """,
    "a failing test that passes by its name": """\
        import sys
        kind = sys.modules["_pytest.python"].Function
        whole = kind.runtest
        def runtest(item):
            if not item.name.startswith("test_select_orders"):
                whole(item)
        kind.runtest = runtest
    """,
}


@pytest.mark.parametrize("attack", FROM_WITHIN.values(), ids=FROM_WITHIN)
@pytest.mark.sampled(2)
def test_making_tests_pass_from_within_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path, attack: str
) -> None:
    edit = select("return sorted(rows)", before=textwrap.dedent(attack))
    found = judged(scene, base, tmp_path, edit)
    assert set(found.cases.values()) <= {"passed", "skipped"}
    assert not_trusted(found, "passed")


PLUGIN = "def pytest_pyfunc_call(pyfuncitem):\n    return True\n"


@pytest.mark.parametrize(
    "edits",
    [
        (
            writes("sample/test_hooks.py", 'pytest_plugins = ["sample.hooks"]\n'),
            writes("sample/hooks.py", PLUGIN),
        ),
        (writes("sample/test_hooks.py", "import pytest\npytest.exit('done', 0)\n"),),
    ],
    ids=["plugin", "exit"],
)
@pytest.mark.sampled(2)
def test_file_that_only_the_candidate_has_pytest_collect_is_passed_over(
    scene: Scene, base: SuiteResult, tmp_path: Path, edits: tuple[Edit, ...]
) -> None:
    assert failing(judged(scene, base, tmp_path, BROKEN, *edits))
    assert judged(scene, base, tmp_path, *edits).problem is None


@pytest.mark.slow
def test_planted_tests_end_no_honest_run(tmp_path: Path) -> None:
    stops = {**HERE, "judge/tiers.toml": HERE["judge/tiers.toml"].replace('"-q"', '"-q", "-x"')}
    lists = "from pathlib import Path\n\n\ndef test_all():\n    found = Path(__file__).parent\n"
    lists += "    assert len(list(found.glob('test_*.py'))) == 3\n"
    for name, files, planted in (
        ("stops", stops, True),
        ("lists", {**HERE, "tests/test_files.py": lists}, False),
    ):
        scene = Scene(tmp_path / name, files)
        manifest = parse_manifest(files["judge/tiers.toml"].encode())
        suite = suite_of(scene, manifest, tmp_path)
        own = suite.run_on_base()
        assert (own.problem, PLANTED in own.cases) == (None, planted)
        tree = scene.repository.candidate_tree(
            scene.base, scene.diff(writes("sample/select.py", BETTER))
        )
        commit = scene.repository.commit(tree, scene.base, "a candidate", 1_000_000_000)
        found = suite.run(commit, expected=own.cases)
        assert (found.problem, found.planted > 0) == (None, planted)


# Tests that a proposal adds

ADDED = "from sample.select import select\n\n\ndef test_more():\n    assert select([]) == []\n"


def test_added_tests_run_beside_the_others(scene: Scene, base: SuiteResult, tmp_path: Path) -> None:
    found = judged(scene, base, tmp_path, writes("tests/test_more.py", ADDED))
    assert (found.problem, found.added) == (None, ("tests/test_more.py",))
    assert found.cases["tests.test_more::test_more"] == "passed"
    assert real(base).items() < found.cases.items()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ADDED.replace("== []", "== [1]"), "1 cases (tests.test_more::test_more) failed"),
        ("import os\nos._exit(0)\n", "the report was not found"),
        ("x = 1\n", "it exited with status 5"),  # pytest's word for no tests at all
    ],
)
@pytest.mark.sampled(3)
def test_added_tests_that_do_not_pass_are_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path, text: str, problem: str
) -> None:
    found = judged(scene, base, tmp_path, writes("tests/test_more.py", text))
    assert found.problem is not None
    assert found.problem.startswith("in the added tests: ")
    assert found.problem.endswith(problem)


def test_added_test_that_mends_the_code_for_others_is_rejected(
    scene: Scene, base: SuiteResult, tmp_path: Path
) -> None:
    mends = (
        "import sample.select\nsample.select.select = lambda rows: sorted(rows)[:3]\n"
        "def test_more(): pass\n"
    )
    found = judged(scene, base, tmp_path, BROKEN, writes("tests/test_a.py", mends))
    assert failing(found)


def test_base_that_fails_is_nobodys_yardstick(tmp_path: Path) -> None:
    broken = {**HERE, "sample/select.py": "def select(rows):\n    return rows\n"}
    scene = Scene(tmp_path / "repository", broken)
    manifest = parse_manifest(HERE["judge/tiers.toml"].encode())
    with pytest.raises(GauntletError, match=f"the line's own tests fail at {scene.base}"):
        base_cases(suite_of(scene, manifest, tmp_path))


@pytest.mark.slow
def test_base_that_fails_by_itself_is_not_run_whole_a_second_time(tmp_path: Path) -> None:
    broken = {**HERE, "sample/select.py": "def select(rows):\n    return rows\n"}
    scene = Scene(tmp_path / "repository", broken)
    manifest = parse_manifest(HERE["judge/tiers.toml"].encode())
    found = suite_of(scene, manifest, tmp_path).run_on_base()
    assert failing(found)
    summaries = re.findall(rb"^(\d+ failed.*?) in \d", found.output, flags=re.MULTILINE)
    assert len(summaries) == 3, "whole; its file again; its file with nothing planted"
    assert [b"passed" in each for each in summaries] == [True, True, True]
    assert found.planted > 0


# Reports

CASE = '<testcase classname="a" name="b">{}</testcase>'


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (CASE.format(""), "passed"),
        (CASE.format("<skipped/>"), "skipped"),
        (CASE.format("<failure/>"), "failed"),
        (CASE.format("") + CASE.format("<error/>"), "failed"),
        (CASE.format("<failure/>") + CASE.format(""), "failed"),
        (CASE.format("<skipped/>") + CASE.format(""), "skipped"),
    ],
)
def test_worst_word_on_a_case_counts(tmp_path: Path, text: str, outcome: str) -> None:
    (tmp_path / "report.xml").write_text(f"<testsuite>{text}</testsuite>")
    assert read_report(tmp_path / "report.xml") == {"a::b": outcome}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not XML"),
        ("<testsuite>", "not XML"),
        ("\x00", "not XML"),
        ("<testsuite/>", "has no test cases"),
        ("<testsuite><failure/></testsuite>", "an outcome without a test case"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>', "contains XML definitions"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "contains XML definitions"),
        (f'<testcase name="{"x" * 3_000}"/>', "a name that is too long"),
    ],
)
def test_what_is_no_report_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "report.xml").write_text(text)
    with pytest.raises(CandidateError, match=problem):
        read_report(tmp_path / "report.xml")


def test_report_that_is_no_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "true.xml").write_text(f"<testsuite>{CASE.format('')}</testsuite>")
    (tmp_path / "report.xml").symlink_to(tmp_path / "true.xml")
    with pytest.raises(CandidateError, match="the report is a link"):
        read_report(tmp_path / "report.xml")
    (tmp_path / "report").mkdir()
    with pytest.raises(CandidateError, match="the report cannot be read"):
        read_report(tmp_path / "report")
    with pytest.raises(CandidateError, match="the report was not found"):
        read_report(tmp_path / "none.xml")
    assert read_report(tmp_path / "true.xml") == {"a::b": "passed"}
