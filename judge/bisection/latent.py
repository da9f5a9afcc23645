"""Looks for an older fault of a line that a later rejection or alarm reveals.

A rejected proposal reveals one if the active checkpoint itself failed a deterministic task that an
earlier checkpoint answers. A bisection of the checkpoints between the two then names the first that
fails the task. It is rolled back if everything that goes with it was promoted without an operator's
word; otherwise an alarm proposes the rollback. The next step follows from recorded events, so the
same call carries on what another process left.

Source: docs/how-to/bisect.md, "Find an older fault".
I/O: the workplace; processes for the probes. The caller holds the line's lock.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from aggregates.improvement.bisection import Bisection
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from judge.bisection import driver, reports
from judge.bisection.probes import Oracle, Tasks, probe, tasks_oracle, with_repeats
from judge.errors import BisectionError
from judge.gauntlet.promotion import Rollback, roll_back
from judge.gauntlet.records import ProposalIndex, results_of
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult
from judge.gauntlet.workplace import Workplace

ALARM = "latent fault"
# Alarms that say that the active checkpoint has become worse, and not which task shows it.
_WORSE = ("circuit breaker", "decline", "production", "ratchet", "three sigma")

Known = dict[tuple[str, str], str | None]
"""Active checkpoint and task -> the ancestor that answers the task, if one does."""


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """Tasks that the active checkpoint fails and an ancestor answers."""

    tasks: tuple[str, ...]
    good: str  # the newest checkpoint that is known to answer them
    by: str  # `proposal ID` or `alarm NUMBER`


@dataclass(frozen=True, kw_only=True)
class LatentFault:
    """What a search for an older fault has come to."""

    revealed: Revealed
    search: Bisection
    rollback: Rollback | None
    needs_operator: str | None  # why nothing was rolled back although there is a culprit

    @property
    def says(self) -> str:
        """The result in one sentence."""
        tasks, search = ", ".join(self.revealed.tasks), self.search
        told = f"{self.revealed.by} shows that the active checkpoint fails {tasks}"
        if not search.ended:
            return f"{told}; the search for the cause goes on with the next call"
        if search.culprit is None:
            return f"{told}; search {search.id} names no checkpoint: {reports.reason_of(search)}"
        told += f"; search {search.id} names checkpoint {search.culprit}"
        if self.needs_operator is not None:
            return f"{told}, which an operator has to roll back: {self.needs_operator}"
        return f"{told}, which was rolled back"


def look(
    place: Workplace,
    records: ProposalIndex,
    *,
    most: int | None = None,
    known: Known | None = None,
) -> LatentFault | None:
    """Search for an older fault if one is revealed, with `most` probes at most; None if none is.

    `known` keeps, between calls, what ancestors answered.
    """
    with driver.working(place) as folder:
        found = reveal(place, records, folder=folder, known={} if known is None else known)
        if found is None:
            return None
        question = driver.Question(
            good=found.good,
            bad=place.line().active,
            oracle=_oracle(place, found.tasks, revealed_by=found.by),
            ends_believed=False,  # a rollback rests on what was probed
        )
        search = driver.open_search(place, question)
        search = driver.go_on(place, search, folder=folder, most=most)
    return _concluded(place, found, search)


def reveal(
    place: Workplace, records: ProposalIndex, *, folder: Path, known: Known
) -> Revealed | None:
    """Return what rejections and alarms on the active checkpoint reveal; None if nothing.

    The record is asked first. A task that no ancestor was ever asked is asked now, of ancestors
    further and further back.
    """
    line = place.line()
    ancestors = line.ancestors(line.active)[1:]
    if not ancestors:
        return None
    failed = _failed(place, records)
    new = {task for task in failed if (line.active, task) not in known}
    if new:
        found = _answered_by(place, records, new, ancestors, folder=folder)
        known.update({(line.active, task): found.get(task) for task in new})
    good = {task: known[line.active, task] for task in failed}
    newest = next((each for each in ancestors if each in good.values()), None)
    if newest is None:
        return _by_alarm(place, line, folder=folder, known=known)
    tasks = tuple(task for task, checkpoint in good.items() if checkpoint == newest)
    return Revealed(tasks=tasks, good=newest, by=f"proposal {failed[tasks[0]]}")


def _failed(place: Workplace, records: ProposalIndex) -> dict[str, UUID]:
    """Return deterministic tasks that the active checkpoint failed whenever a proposal asked it.

    With each, the first rejected proposal that shows it; in the order of the reference set.
    """
    commit = place.line().head.commit
    failed: dict[str, UUID] = {}
    answered = set()
    for proposal, results in _answers(place, records, commit, arms=("base",)):
        for result in results:
            if result.success:
                answered.add(result.task_id)
            elif proposal.outcome == "rejected":
                failed.setdefault(result.task_id, proposal.id)
    exact = [task.task_id for task in place.reference_set(commit).tasks if not task.stochastic]
    return {task: failed[task] for task in exact if task in failed and task not in answered}


def _answers(
    place: Workplace, records: ProposalIndex, commit: str, *, arms: Sequence[Arm]
) -> Iterator[tuple[Proposal, list[TaskResult]]]:
    """Give what a commit answered in proposals, as the candidate or as the base, oldest first."""
    for name, arm in records.asked(commit):
        if arm in arms:
            proposal = place.proposal(name)
            results = results_of(proposal)
            yield proposal, [each for each in results if each.arm == arm and not each.missing]


def _answered_by(
    place: Workplace,
    records: ProposalIndex,
    tasks: Collection[str],
    ancestors: Sequence[str],
    *,
    folder: Path,
) -> dict[str, str]:
    """Return of each task the newest ancestor that is known to answer it, if one is."""
    line = place.line()
    wanted = _contents(place, line.head.commit)
    found: dict[str, str] = {}
    asked: set[str] = set()
    for ancestor in ancestors:
        said: dict[str, list[bool]] = {}
        commit = line.checkpoints[ancestor].commit
        for proposal, results in _answers(place, records, commit, arms=ARMS):
            then = _contents(place, proposal.base)
            for each in results:
                name = each.task_id
                if name in tasks and name in then and then[name] == wanted[name]:
                    said.setdefault(name, []).append(each.success)
        asked |= said.keys()
        found = {task: ancestor for task, passed in said.items() if all(passed)} | found
    # A task that was asked before and never answered is no fault of a later checkpoint.
    for task in sorted(set(tasks) - asked):
        oracle = _oracle(place, (task,))
        for checkpoint in _further_back(ancestors):
            try:
                tested = probe(place, oracle, line.checkpoints[checkpoint], repeat=0, folder=folder)
            except BisectionError:  # its answers differ, so it does not answer the task
                continue
            if tested.verdict == "good":
                found[task] = checkpoint
                break
    return found


def _further_back(ancestors: Sequence[str]) -> list[str]:
    """Return the ancestors 1, 2, 4, ... checkpoints back, and the first of all."""
    steps = {2**power - 1 for power in range(len(ancestors).bit_length())}
    return [ancestors[step] for step in sorted(steps | {len(ancestors) - 1})]


def _contents(place: Workplace, commit: str) -> dict[str, str]:
    """Return the hash of each task in a commit's reference set."""
    return {each.task_id: each.sha256 for each in place.reference_set(commit).tasks}


def _oracle(place: Workplace, tasks: tuple[str, ...], *, revealed_by: str | None = None) -> Oracle:
    commit = place.line().head.commit
    oracle = Tasks(
        tasks=tasks,
        commit=commit,
        reference_set=place.reference_set(commit).sha256,
        measured=False,
        revealed_by=revealed_by,
    )
    return with_repeats(place, oracle, error=0.0)


def _by_alarm(place: Workplace, line: Line, *, folder: Path, known: Known) -> Revealed | None:
    """Return the tasks that got worse since the first checkpoint, if an alarm says that it did."""
    alarms = [
        each
        for each in line.open_alarms.values()
        if each.kind in _WORSE and each.checkpoint == line.active
    ]
    if not alarms or (line.active, ALARM) in known:
        return None
    try:
        found = tasks_oracle(
            place,
            good=line.checkpoints[line.first].commit,
            bad=line.head.commit,
            folder=folder,
        )
    except BisectionError:  # no deterministic task tells the two apart
        known[line.active, ALARM] = None
        return None
    return Revealed(tasks=found.tasks, good=line.first, by=f"alarm {alarms[-1].number}")


def _concluded(place: Workplace, found: Revealed, search: Bisection) -> LatentFault:
    """Do what the search's result asks for: roll back, or raise an alarm; each once."""
    rollback, needs = None, None
    if search.culprit is not None:
        needs = _needs_operator(place, place.line(), search.culprit)
        reason = (
            f"{ALARM}: it is the first checkpoint that fails {', '.join(found.tasks)}, by search "
            f"{search.id}; {found.by} revealed it"
        )
        if needs is not None:
            raised = (
                isinstance(event, Line.DriftAlarmed)
                and event.kind == ALARM
                and str(search.id) in event.detail
                for event in place.log.events.get(place.line_id)
            )
            if not any(raised):  # once, however an operator has answered it
                detail = f"{reason}. Roll back checkpoint {search.culprit}: {needs}"
                place.alarm(ALARM, detail, tasks=search.oracle.get("tasks", ()))
        else:
            rollback = roll_back(place, search.culprit, reason)
            place.tell(search.culprit, f"rolled back: {reason}")
    return LatentFault(revealed=found, search=search, rollback=rollback, needs_operator=needs)


def _needs_operator(place: Workplace, line: Line, culprit: str) -> str | None:
    """Return why a rollback needs an operator's word; None if nothing that goes needed one."""
    for name in line.descendants(culprit):
        checkpoint = line.checkpoints[name]
        if checkpoint.rolled_back is not None:
            continue
        if not checkpoint.proposals:
            return f"people made checkpoint {name}, which goes with it"
        for each in checkpoint.proposals:
            proposal = place.proposal(UUID(each))
            if proposal.real_tier != 2 or proposal.verdict != "better":
                return f"an operator approved proposal {each}, which goes with it"
    return None
