"""Tests that a change cannot reach run last: real git, a real ledger, confined processes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gauntlet_lines import SELECTION, THRIFTY, Line, judged, submit

from aggregates.errors import InvariantError
from aggregates.improvement.proposal import Proposal
from judge.gauntlet.errors import RepositoryError
from proctor.sample.init import git
from proctor.sample.repository import FILES

APART = "tests/test_apart.py"
# A name that is put together at run time leads nowhere for who reads imports.
HIDDEN = """\
import importlib
import inspect


def test_selection_is_as_it_was():
    name = "".join(["retr", "ieval.sele", "ction"])
    assert "score > 0" not in inspect.getsource(importlib.import_module(name))
"""


def line_of(folder: Path, apart: str) -> Line:
    """Return the sample, whose tests are chosen by imports, with one more file of tests."""
    tiers = FILES["judge/tiers.toml"].replace("[tests]\n", '[tests]\nchoose = "imports"\n')
    return Line(folder, files={**FILES, "judge/tiers.toml": tiers, APART: apart})


@dataclass(frozen=True)
class Scene:
    """A line, and a better change that a test outside of the choice rejects, or passes."""

    line: Line
    judged: Proposal

    def events(self, proposal: Proposal) -> list[Any]:
        """What is recorded of a proposal, but for its answers."""
        with self.line.log() as log:
            found = list(log.events.get(proposal.id))
        return [each for each in found if not isinstance(each, Proposal.TaskScored)]

    def files(self, digest: str | None) -> set[str]:
        """The files that a blob has outcomes of."""
        told = json.loads(self.line.home.blobs.get(str(digest)))
        return {case.partition("::")[0] for case in told}


@pytest.fixture(scope="module")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    line = line_of(tmp_path_factory.mktemp("breaking"), HIDDEN)
    with line.controller() as controller:
        found = judged(controller, line.diff(SELECTION, THRIFTY))
        assert found.base == line.head()
        return Scene(line, found)


@pytest.fixture(scope="module")
def better(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    line = line_of(tmp_path_factory.mktemp("better"), HIDDEN)
    with line.controller() as controller:
        other = THRIFTY.replace("score > 0", "0 < score")
        waiting = submit(controller, line.diff(SELECTION, other))
        while not (found := controller.place.proposal(waiting.id)).verdict:
            controller._step(found)
        assert list(found.left_out) == [APART]
        with pytest.raises(InvariantError, match="1 test files have not run on this proposal"):
            found.conclude("promoted", stage="conclude", reason="", checkpoint="c")
    with line.controller() as controller:  # another process carries on
        return Scene(line, controller.carry_on(waiting.id))


ALL = {"tests.test_apart", "tests.test_component", "tests.test_scoring", "proctor"}


@pytest.mark.slow  # as the next one; the quick suite has the one that breaks
def test_whole_suite_has_run_when_a_change_is_promoted(better: Scene) -> None:
    found = better.judged
    assert (found.outcome, found.verdict, better.line.head()) == (
        "promoted",
        "better",
        found.commit,
    )
    _, _, tested, _, rest, _ = better.events(found)
    assert tested.left_out == [APART]
    assert tested.choice == f"2 of 3 test files reach {SELECTION}"
    assert (tested.passed, rest.passed, rest.cases, rest.missing) == (True, True, 1, [])
    assert better.files(tested.expected) == ALL
    assert better.files(tested.outcomes) == ALL - {"tests.test_apart"}
    assert better.files(rest.outcomes) == ALL


@pytest.mark.slow
def test_promoted_change_has_run_what_its_successors_are_held_against(better: Scene) -> None:
    with better.line.controller() as controller:
        known = controller.records.expected_cases(base=better.line.head())
    assert known == better.events(better.judged)[4].outcomes


@pytest.mark.slow
def test_change_that_breaks_a_test_which_was_left_out_is_rejected(breaking: Scene) -> None:
    found = breaking.judged
    assert (found.verdict, found.outcome, found.tested) == ("better", "rejected", False)
    assert "tests.test_apart::test_selection_is_as_it_was" in str(found.reason)
    *_, rest, end = breaking.events(found)
    assert (type(rest), rest.passed, end.stage) == (Proposal.RestTested, False, "test")


def test_change_of_a_branch_that_is_checked_out_is_refused_before_any_test_runs(
    tmp_path: Path,
) -> None:
    line = line_of(tmp_path, "def test_broken():\n    assert False\n")
    git(line.repo, "switch", "--quiet", "main")
    with line.controller() as controller:
        with pytest.raises(RepositoryError, match="run `git switch --detach` there"):
            judged(controller, line.diff(SELECTION, THRIFTY))
        (proposal,) = controller.queue()
        assert (proposal.stage, proposal.tested) == ("branch", None)
