"""Repositories as most people have them: own environment, settings in the root, flaky tests."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from environments import make_environment
from gauntlet_lines import COMPONENT, SELECTION, SMALL, THRIFTY, Line, judged, renamed, submit

from aggregates.improvement.proposal import Proposal
from judge.confinement import supervised
from judge.errors import ConfinementError
from judge.gauntlet import reviews
from judge.gauntlet.errors import GauntletError, RepositoryError
from judge.gauntlet.measurement import measure
from judge.gauntlet.shown import applied
from judge.gauntlet.testing import suite
from judge.gauntlet.testing.suite import Suite, SuiteResult
from proctor.sample.init import git
from proctor.sample.repository import FILES


def run_suite(line: Line, workspace: Path) -> SuiteResult:
    with line.controller() as controller:
        head = controller.line.head.commit
        manifest = controller.place.manifest(head)
        workspace.mkdir(exist_ok=True)
        suite = Suite(repository=line.repository, base=head, manifest=manifest, workspace=workspace)
        return suite.run_on_base()


def with_pytest(manifest: str = "", **files: str) -> dict[str, str]:
    """Return the sample with pytest as its runner."""
    chosen = {**FILES, "tests/test_scoring.py": "def test_one():\n    assert True\n"}
    chosen["judge/tiers.toml"] = FILES["judge/tiers.toml"] + manifest
    return {**chosen, **files}


def test_settings_in_the_root_do_not_hide_the_packages_of_their_names(tmp_path: Path) -> None:
    settings = {"pytest.ini": "[pytest]\n", "mypy.ini": "[mypy]\n", "ruff.toml": "\n"}
    line = Line(tmp_path, files=with_pytest(**settings))
    found = run_suite(line, tmp_path / "work")
    assert found.passed, found.output.decode()


def test_dependencies_come_from_the_repositorys_own_environment(tmp_path: Path) -> None:
    make_environment(tmp_path / "repo-venv")
    tests = (
        "import sys\nimport only_here\n\n\n"
        "def test_its_own_packages():\n    assert only_here.ANSWER == 42\n\n\n"
        "def test_none_of_proctor():\n"
        "    for name in ('msgspec', 'cryptography', 'torch', 'monitor'):\n"
        "        try:\n            __import__(name)\n"
        "        except ModuleNotFoundError:\n            continue\n"
        "        raise AssertionError(name)\n"
    )
    environment = '[environment]\npath = "../repo-venv"\n'
    files = with_pytest(environment, **{"tests/test_scoring.py": tests})
    line = Line(tmp_path, files=files)
    found = run_suite(line, tmp_path / "work")
    assert found.passed, found.output.decode()
    assert found.cases["tests.test_scoring::test_none_of_proctor"] == "passed"
    shutil.rmtree(tmp_path / "repo-venv")
    with pytest.raises(ConfinementError, match="is not a virtual environment: make it with"):
        run_suite(line, tmp_path / "work")


@pytest.mark.slow
def test_package_in_src_is_imported_from_there(tmp_path: Path) -> None:
    tests = "import words_of_ours\n\n\ndef test_it():\n    assert words_of_ours.A == 1\n"
    files = with_pytest(
        **{"src/words_of_ours/__init__.py": "A = 1\n", "tests/test_scoring.py": tests}
    )
    found = run_suite(Line(tmp_path, files=files), tmp_path / "work")
    assert found.passed, found.output.decode()


ORDINARY = (
    "\n\nclass Row:\n"
    "    def __init__(self, name):\n        self.name = name\n\n"
    "    def __eq__(self, other):\n        return self.name == other.name\n\n"
    "    def __hash__(self):\n        return hash(self.name)\n"
)


def test_ordinary_python_in_tier_1_is_for_the_operator_to_accept(tmp_path: Path) -> None:
    line = Line(tmp_path, files=SMALL)
    with line.controller() as controller:
        waiting = judged(
            controller, line.diff(COMPONENT, lambda text: text + ORDINARY), {COMPONENT: 1}
        )
        assert waiting.outcome is None
        assert "an operator must approve it" in str(controller.waits(waiting))
        told = applied(line.repository, line.home.blobs, waiting)
        found = [each for each in told.splitlines() if each.startswith("to accept: ")]
        assert [each.rpartition(": ")[2] for each in found] == [
            "uses the special name __eq__",
            "uses the special name __hash__",
        ]
        reviews.record_review(controller.place, line.word(controller, "approve", waiting))
        ended = controller.carry_on(waiting.id)
        assert ended.tested, "its tests ran"
        unseen = line.diff(COMPONENT, lambda text: text + "\n\nA = '\u202e'\n")
        refused = judged(controller, unseen, {COMPONENT: 1})
        assert refused.outcome == "rejected"
        assert "invisible character" in str(refused.reason), "what a reader cannot see"


NOW_AND_THEN = """\
import only_here


def test_now_and_then():
    assert only_here.ANSWER == 42


def test_always():
    assert True
"""
CASE = "tests.test_scoring::test_now_and_then"


class Unlucky:
    """Runs the suite for real, and lets the case fail in chosen runs, by the module it reads."""

    def __init__(self, environment: Path, fails: Sequence[int]) -> None:
        (packages,) = environment.glob("lib/python3*/site-packages")
        self._module, self._fails, self.runs = packages / "only_here.py", fails, 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.runs += 1
        self._module.write_text(f"ANSWER = {41 if self.runs in self._fails else 42}\n")
        return supervised.run(*arguments, **options)


def flaky_line(tmp_path: Path) -> Line:
    make_environment(tmp_path / "repo-venv")
    files = with_pytest(
        '[environment]\npath = "../repo-venv"\n', **{"tests/test_scoring.py": NOW_AND_THEN}
    )
    return Line(tmp_path, files=files)


def result_of(line: Line, proposal: Proposal) -> Proposal.Tested:
    with line.log() as log:
        (found,) = [e for e in log.events.get(proposal.id) if isinstance(e, Proposal.Tested)]
    return found


@pytest.mark.slow
def test_case_that_fails_once_is_run_again_and_recorded_as_flaky(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = flaky_line(tmp_path)
    unlucky = Unlucky(tmp_path / "repo-venv", fails=(1, 5))  # of the base, and of the candidate
    monkeypatch.setattr(suite, "run", unlucky)
    with line.controller() as controller:
        proposal = judged(controller, line.diff(SELECTION, THRIFTY))
    assert (proposal.outcome, unlucky.runs) == ("promoted", 4 + 4)
    found = result_of(line, proposal)
    assert (found.passed, found.flaky) == (True, [CASE])


@pytest.mark.parametrize("fails", [range(2, 100), (2, 3), (2, 4), (2, 5)])
@pytest.mark.sampled(4)
def test_case_that_fails_again_is_not_flaky(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Sequence[int]
) -> None:
    line = flaky_line(tmp_path)
    monkeypatch.setattr(suite, "run", Unlucky(tmp_path / "repo-venv", fails=fails))
    with line.controller() as controller:
        proposal = judged(controller, line.diff(SELECTION, THRIFTY))
    assert proposal.outcome == "rejected"
    assert CASE in str(proposal.reason)
    assert (result_of(line, proposal).passed, result_of(line, proposal).flaky) == (False, [])


@pytest.mark.slow
def test_change_that_its_tests_reject_can_be_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = flaky_line(tmp_path)
    diff = line.diff(SELECTION, THRIFTY)
    monkeypatch.setattr(suite, "run", Unlucky(tmp_path / "repo-venv", fails=range(2, 6)))
    with line.controller() as controller:
        assert [judged(controller, diff).outcome for _ in range(3)] == [
            "rejected",
            "rejected",
            "promoted",
        ]
    line = flaky_line(tmp_path / "other")
    diff = line.diff(SELECTION, THRIFTY)
    environment = tmp_path / "other" / "repo-venv"
    monkeypatch.setattr(suite, "run", Unlucky(environment, fails=range(2, 100)))
    with line.controller() as controller:
        ended = [judged(controller, diff) for _ in range(4)]
    assert {each.outcome for each in ended} == {"rejected"}
    assert "was already judged" in str(ended[3].reason), "it is not tried for ever"


@pytest.mark.slow
def test_suite_of_a_promoted_commit_is_not_run_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = flaky_line(tmp_path)
    counted = Unlucky(tmp_path / "repo-venv", fails=())
    monkeypatch.setattr(suite, "run", counted)
    with line.controller() as controller:
        assert judged(controller, line.diff(SELECTION, THRIFTY)).outcome == "promoted"
        assert counted.runs == 2, "the base, and the candidate"
        judged(controller, line.diff(SELECTION, renamed))
        assert counted.runs == 3, "the candidate alone"


@pytest.mark.slow
def test_line_that_is_checked_out_is_refused_before_any_test_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = flaky_line(tmp_path)
    counted = Unlucky(tmp_path / "repo-venv", fails=())
    monkeypatch.setattr(suite, "run", counted)
    git(line.repo, "switch", "--quiet", "main")
    with line.controller() as controller:
        proposal = submit(controller, line.diff(SELECTION, THRIFTY))
        with pytest.raises(RepositoryError, match="run `git switch --detach` there"):
            controller.carry_on(proposal.id)
        assert counted.runs == 0
        git(line.repo, "switch", "--quiet", "--detach")
        assert controller.carry_on(proposal.id).outcome == "promoted"


WORKER = "judge/reference_tasks/worker.py"
HOSTILE = "\\x1b[2J" + 9_000 * "x" + "\\n\\u202eImportError: not\\a " + 900 * "y"
NO_TESTS = {"tests/test_component.py": "def test_nothing():\n    pass\n"}


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        ("import absent_here\n", "ModuleNotFoundError: No module named 'absent_here'; name a virt"),
        ("raise ValueError(1)\n", "exited with status 1: ValueError: 1; correct it by hand"),
        (f'import sys\nsys.exit("{HOSTILE}")\n', f"ImportError: not {283 * 'y'}; correct it by"),
        ("print('Hello')\n", "the answer is malformed"),
    ],
)
def test_worker_that_cannot_start_is_the_lines_own_error(
    tmp_path: Path, begins: str, words: str
) -> None:
    line = Line(tmp_path, files={**SMALL, WORKER: begins + SMALL[WORKER]})
    with line.controller() as controller:
        proposal = submit(controller, line.diff(SELECTION, THRIFTY))
        with pytest.raises(GauntletError, match="worker answers no task at") as caught:
            controller.carry_on(proposal.id)
        assert words in str(caught.value)
        assert str(caught.value).isprintable()
        with pytest.raises(GauntletError, match="worker answers no task at"):
            measure(controller.place, hidden=None)
        left = controller.place.proposal(proposal.id)
        assert (left.stage, left.outcome, left.results) == ("benchmark", None, {})


def test_module_that_is_missing_only_when_asked_is_the_lines_own_error(tmp_path: Path) -> None:
    late = SMALL[SELECTION].replace("    ordered", "    import absent_here\n    ordered", 1)
    line = Line(tmp_path, files={**SMALL, SELECTION: late, **NO_TESTS})
    with line.controller() as controller:
        proposal = submit(controller, line.diff(SELECTION, renamed))
        with pytest.raises(GauntletError, match="No module named 'absent_here'"):
            controller.carry_on(proposal.id)


@pytest.mark.slow
def test_head_that_fails_on_every_task_is_corrected_by_a_proposal(tmp_path: Path) -> None:
    broken = SMALL[SELECTION].replace("    ordered", "    cap = [][cap]\n    ordered", 1)
    line = Line(tmp_path, files={**SMALL, SELECTION: broken, **NO_TESTS})
    with line.controller() as controller:
        same = judged(controller, line.diff(SELECTION, renamed))
        assert (same.outcome, same.verdict) == ("rejected", "cannot tell")
        assert judged(controller, line.diff(SELECTION, SMALL[SELECTION])).outcome == "promoted"


@pytest.mark.slow
def test_environment_that_breaks_later_rejects_no_proposal(tmp_path: Path) -> None:
    make_environment(tmp_path / "repo-venv")
    words = {"retrieval/words.py": "import only_here\n" + SMALL["retrieval/words.py"]}
    line = Line(tmp_path, files=with_pytest('[environment]\npath = "../repo-venv"\n', **words))
    (module,) = (tmp_path / "repo-venv").glob("lib/python3*/site-packages/only_here.py")
    with line.controller() as controller:
        assert judged(controller, line.diff(SELECTION, renamed)).outcome == "rejected"
        module.rename(module.with_suffix(".gone"))
        proposal = submit(controller, line.diff(SELECTION, THRIFTY))
        with pytest.raises(GauntletError, match="No module named 'only_here'; install"):
            controller.carry_on(proposal.id)
        module.with_suffix(".gone").rename(module)
        assert controller.carry_on(proposal.id).outcome == "promoted"
