"""Processes that take proposals through the gauntlet and are killed: whoever carries on comes to
the same."""

import random
from pathlib import Path
from typing import Any

import pytest
from campaign_kills import count_entries, run_command
from gauntlet_lines import SELECTION, THRIFTY, UNSORTED, Line, facts, submit, to_the_last_step

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.promotion import INTENT
from ledger.verification.reader import check_ledger
from proctor.improvement.home import line_folder
from proctor.sample.init import git


def submitted(line: Line) -> None:
    """Put a change that is worse and one that is better into the queue."""
    with line.controller() as controller:
        submit(controller, line.diff(SELECTION, UNSORTED))
        submit(controller, line.diff(SELECTION, THRIFTY))


def story(line: Line) -> list[tuple[str, dict[str, Any]]]:
    """Return all that is recorded of the proposals, without what differs from run to run."""
    told = []
    with line.controller() as controller:
        for proposal in controller.records.proposals():
            for event in controller.place.log.events.get(proposal):
                told.append((type(event).__name__, facts(event)))
    return [(name, fields) for name, fields in told if name != "TaskScored"] + sorted(
        ((name, fields) for name, fields in told if name == "TaskScored"),
        key=lambda each: str(each[1]),
    )  # the order of both arms' answers is drawn


def run(line: Line, **killed: float) -> int:
    arguments = ["line", "run", "--repo", str(line.repo)]
    done = run_command(arguments, home=line.home.path, environment={}, **killed)  # type: ignore[arg-type]
    assert done.code in (0, 1, -9), done.out
    assert "Traceback" not in done.out, done.out
    return done.code


def check_in_order(line: Line, allowed: set[str], tree: tuple[str, str, str]) -> None:
    """Whatever was killed: the line is at a commit that passed, and nobody's files have changed."""
    assert line.head() in allowed
    assert line.work_tree() == tree
    assert git(line.repo, "fsck", "--strict", "--no-dangling") == ""
    check_ledger(line.home.path / "ledger")


TASKS = ("late-rows",)  # each answer is an entry to be killed after


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
    line = Line(tmp_path_factory.mktemp("control"), TASKS)
    submitted(line)
    run(line)
    told = story(line)
    assert [name for name, _ in told].count("Concluded") == 2
    assert line.text(SELECTION) == THRIFTY
    return told


@pytest.mark.slow
@pytest.mark.parametrize("events", [3, 1])
def test_killed_after_every_few_events_it_comes_to_the_same(
    tmp_path: Path, control: list[tuple[str, dict[str, Any]]], events: int
) -> None:
    line = Line(tmp_path, TASKS)
    submitted(line)
    base, tree, kills = line.head(), line.work_tree(), 0
    while run(line, kill_after=events) == -9:
        kills += 1
        passed = {base, *promoted(line)}
        check_in_order(line, passed, tree)
    assert kills >= len(control) // (2 * events)  # an event may come before the signal does
    check_same(line, control)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_time_it_comes_to_the_same(
    tmp_path: Path, control: list[tuple[str, dict[str, Any]]], seed: int
) -> None:
    line = Line(tmp_path, TASKS)
    submitted(line)
    base, tree = line.head(), line.work_tree()
    draw = random.Random(seed)
    for _ in range(12):
        if run(line, kill_in=draw.uniform(0.2, 4.0)) != -9:
            break
        check_in_order(line, {base, *promoted(line)}, tree)
    run(line)
    check_same(line, control)


def test_killed_between_the_branch_and_the_ledger_the_promotion_is_recorded(
    tmp_path: Path,
) -> None:
    line = Line(tmp_path, TASKS)
    with line.controller() as controller:
        wanted = submit(controller, line.diff(SELECTION, THRIFTY))
        to_the_last_step(line, controller, wanted)
    with line.controller() as controller:
        candidate = controller.place.proposal(wanted.id).commit
    assert candidate is not None
    entries = count_entries(line.home.path)
    (line_folder(line.home, line.id) / "work" / INTENT).write_text(candidate)
    git(line.repo, "update-ref", "refs/heads/main", candidate)
    with line.controller() as controller:
        found = controller.carry_on(wanted.id)
        assert found.outcome == "promoted"
        assert controller.line.head.commit == candidate == line.head()
    assert count_entries(line.home.path) == entries + 2


def test_branch_that_somebody_else_moved_to_a_candidate_is_no_promotion(tmp_path: Path) -> None:
    line = Line(tmp_path, TASKS)
    with line.controller() as controller:
        wanted = submit(controller, line.diff(SELECTION, THRIFTY))
        run(line, kill_after=1)  # branched, and no more
        candidate = controller.place.proposal(wanted.id).commit
        assert candidate is not None
        git(line.repo, "update-ref", "refs/heads/main", candidate)
        found = controller.carry_on(wanted.id)
        assert found.outcome is None
        assert "not at its checkpoint" in str(controller.waits(found))


def promoted(line: Line) -> set[str]:
    """Return the candidates that are recorded as better."""
    with line.controller() as controller:
        proposals = map(controller.place.proposal, controller.records.proposals())
        return {str(each.commit) for each in proposals if each.verdict == "better"}


def check_same(line: Line, control: list[tuple[str, dict[str, Any]]]) -> None:
    run(line)  # the last may have been killed before it had tidied up
    assert story(line) == control
    assert line.text(SELECTION) == THRIFTY
    assert line.repository.branches() == ("main", "work")
    with line.controller() as controller:
        (_, better) = controller.records.proposals()
        proposal: Proposal = controller.place.proposal(better)
        assert controller.line.head.proposals == (str(better),)
        assert controller.line.head.commit == proposal.commit == line.head()
