"""`proctor line init --demo`: the gauntlet's story, told once on the sample repository.

A harmful change is refused although the tests pass, a good one gets onto the line, and what is
brought in behind the gauntlet's back is noticed.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.controller import Controller
from judge.gauntlet.measurement import Measurement, measure
from policies.proposing.proposer import make_diff
from proctor.cli.command_group import Output
from proctor.home import Home
from proctor.improvement.home import BRANCH, LineOptions, hidden_folder
from proctor.improvement.reports import entries_of
from proctor.output.shape import Answer
from proctor.output.terminal import on_one_line, print_words
from proctor.sample.init import WORK, git, make_sample
from proctor.sample.repository import NO_SORT, SELECTION, SORT, THRIFTY, UNSORTED
from proctor.sample.tasks import DETERMINISTIC

PATH = "retrieval/selection.py"


@dataclass(frozen=True, kw_only=True)
class DemoStep:
    """One thing that was done, whether it went as it has to, and where it is recorded."""

    what: str
    as_it_should: bool
    found: str
    id: str
    entries: tuple[int, ...]


class GauntletDemo(Answer):
    """The demonstration; exit code 1 unless it held."""

    line: str
    repository: str
    held: bool
    steps: list[DemoStep]


def tell_demo(home: Home, folder: Path) -> Output:
    """Tell the story; the exit code is 0 only if every step went as it has to."""
    # Each promotion would ask each stochastic task at least fifty times.
    line = make_sample(home, folder, shapes=DETERMINISTIC)
    steps = list(_story(home, folder))
    held = all(step.as_it_should for step in steps)

    def tell() -> None:
        for number, step in enumerate(steps, start=1):
            _tell(step, number=number)
        for number, command in enumerate(next_commands(home, folder, proposal=steps[2].id)):
            print_words(f"{'      ' if number else 'next: '}{command}")

    told = GauntletDemo(line=str(line), repository=str(folder), held=held, steps=steps)
    return Output(told, tell, found=not held)


def next_commands(home: Home, folder: Path, *, proposal: str) -> tuple[str, ...]:
    """Return what to do next, to be pasted."""
    where = f"--home {shlex.quote(str(home.path))}"
    there = f"{where} --repo {shlex.quote(str(folder))}"
    return (
        f"proctor line show {there}",
        f"proctor line show {proposal} {there}",
        f"proctor line show --list anchors {there}",
        f"proctor verify {where}",
    )


def unified(path: str, before: str, after: str) -> bytes:
    """Return the diff that makes one text of another."""
    return make_diff({path: after}, read={path: before}.get)


def _story(home: Home, folder: Path) -> Iterator[DemoStep]:
    with LineOptions(repo=folder, home=home).open() as controller:
        yield DemoStep(
            what="a sample repository is put under the gauntlet",
            as_it_should=controller.line.active == controller.line.first,
            found=f"line {controller.line.id} begins at {controller.line.head.commit[:12]}",
            id=str(controller.line.id),
            entries=_entries(controller, controller.line.id),
        )
        worse = _judged(
            controller,
            unified(PATH, SELECTION, UNSORTED),
            "Take rows as they come: the sort before the cap takes time.",
        )
        yield _told(
            controller, worse, "a change removes the sort before the cap", outcome="rejected"
        )
        better = _judged(
            controller,
            unified(PATH, SELECTION, THRIFTY),
            "Leave out rows that share no word with the query.",
        )
        yield _told(controller, better, "a change improves the same component", outcome="promoted")
        _commit_behind_its_back(folder)
        before = set(_entries(controller, controller.line.id))
        found = measure(controller.place, hidden=hidden_folder(home, controller.line.id))
        yield _drift(controller, found, before)


def _judged(controller: Controller, diff: bytes, rationale: str) -> Proposal:
    proposal = controller.submit(
        diff,
        declared={PATH: 2},
        rationale=rationale,
        trigger="operator_request",
        proposer="demo",
    )
    return controller.carry_on(proposal.id)


def _told(controller: Controller, proposal: Proposal, what: str, *, outcome: str) -> DemoStep:
    passed = bool(proposal.tested)  # both are told by the reference tasks alone
    tests = "its tests pass" if passed else f"its tests: {proposal.problem}"
    return DemoStep(
        what=what,
        as_it_should=proposal.outcome == outcome and passed,
        found=f"{proposal.outcome}; {tests}; {proposal.reason}",
        id=str(proposal.id),
        entries=_entries(controller, proposal.id),
    )


def _commit_behind_its_back(folder: Path) -> None:
    git(folder, "switch", "--quiet", BRANCH)
    (folder / PATH).write_text(THRIFTY.replace(SORT, NO_SORT), encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", "--message", "Tidy up")
    git(folder, "switch", "--quiet", WORK)


def _drift(controller: Controller, found: Measurement, before: set[int]) -> DemoStep:
    after = [each for each in _entries(controller, controller.line.id) if each not in before]
    kinds = {alarm.kind for alarm in found.alarms}
    shares = ", ".join(
        f"{name} set {base:.0%} -> {head:.0%}" for name, (base, head) in found.shares.items()
    )
    tasks = sorted({task for alarm in found.alarms for task in alarm.tasks})
    return DemoStep(
        what="somebody commits to the line behind the gauntlet's back, and the line is measured",
        as_it_should=kinds == {"not promoted", "worse"}
        and any(task.endswith("-hidden") for task in tasks),
        found=f"alarms: {', '.join(sorted(kinds)) or 'none'}; {shares}; "
        f"worse on {', '.join(tasks)}",
        id=found.commit,
        entries=tuple(after),
    )


def _entries(controller: Controller, stream: UUID) -> tuple[int, ...]:
    return tuple(each.index for each in entries_of(controller.place.log, stream))


def _tell(step: DemoStep, *, number: int) -> None:
    mark = "held" if step.as_it_should else "NOT AS IT SHOULD BE"
    print_words(f"{number}. {step.what}: {mark}")
    print_words(f"   {on_one_line(step.found)}")
    entries = f", entries {step.entries[0]} to {step.entries[-1]}" if step.entries else ""
    print_words(f"   id {step.id}{entries}")
