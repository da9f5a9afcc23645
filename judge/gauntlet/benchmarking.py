"""The stages benchmark and evaluate: both arms answer the reference set, and are compared.

Every answer is recorded before the next one is asked for. What is wanted next, and what it all
says, follows from what is recorded and from nothing else. No answer is taken from an earlier
proposal.

Source: docs/reference/gauntlet.md, "Stages", "The calibrated gate".
Trust: the candidate's code is hostile, and told neither its arm nor its task.
I/O: the workplace; processes for the tasks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import msgspec

from aggregates.improvement.proposal import Proposal
from judge.gauntlet import promotion
from judge.gauntlet.arms import answering, in_turn
from judge.gauntlet.comparison.evaluate import Evaluation, compare, error_level, wanted_pairs
from judge.gauntlet.comparison.weighing import Terms
from judge.gauntlet.records import ProposalIndex, results_of
from judge.gauntlet.stages import record
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult, Turn
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace
from ledger.progress import advanced

_UNRECORDED = ("arm", "task_id", "cached", "errors")  # of a result's worth
_TWICE = 2  # pairs of each deterministic task that a promotion takes


def benchmark(place: Workplace, records: ProposalIndex, proposal: Proposal) -> None:
    """Ask both arms until nothing more is wanted, then record what the comparison says.

    Before a promotion both arms answer each deterministic task at least twice: a candidate that
    answers at random, and was lucky, has to be lucky twice.
    """
    manifest, whole = place.manifest(proposal.base), place.reference_set(proposal.base)
    assert proposal.against is not None
    commits: dict[Arm, str] = {"base": proposal.against, "candidate": str(proposal.commit)}
    exact = [task for task in whole.tasks if not task.stochastic]
    first = [task for task in exact if task.task_id in manifest.benchmark.representative]
    terms: Terms = {
        "level": error_level(records.earlier(proposal.id)),
        "settings": place.settings,
        "fixes": proposal.fixes,
        "record": records.base_outcomes(
            commit=proposal.against, reference_set=whole.sha256, without=proposal.id
        ),
    }

    step = promotion.is_step(place.line(), proposal)

    def by(proposal: Proposal) -> Terms:
        """Return the terms; a word may come in while answers do, and a valley has its own."""
        word = None if step else proposal.review
        timed = not step and word != "approve"
        return {**terms, "refactoring": word == "refactor", "timed": timed}

    def compared(tasks: Sequence[Task]) -> Evaluation:
        return compare(results_of(proposal), tasks=tasks, **by(proposal))

    def wanted() -> list[tuple[str, int]]:
        """Return the pairs to ask for next: none if what is there decides."""
        if proposal.results:
            place.tell(str(proposal.id), f"benchmark: {len(proposal.results)} answers")
        if proposal.configuration_only and first:
            if pairs := wanted_pairs(results_of(proposal), tasks=first, **by(proposal)):
                return pairs
            if compared(first).regressions:
                return []
        if pairs := wanted_pairs(results_of(proposal), tasks=whole.tasks, **by(proposal)):
            return pairs
        found = compared(whole.tasks)
        if found.verdict not in ("better", "no worse"):
            return []
        counts = {each.task_id: each.pairs for each in found.comparisons}
        arms = Counter((task, repeat) for _, task, repeat in proposal.results)
        return [
            (task.task_id, next(at for at in count() if arms[task.task_id, at] < len(ARMS)))
            for task in exact
            if counts[task.task_id] < _TWICE
        ]

    def left(turn: Turn) -> Turn:
        """Return what is left of a pair that a process which was stopped may have begun."""
        given = {arm: proposal.results.get((arm, turn.task.task_id, turn.repeat)) for arm in ARMS}
        seed = next((each["seed"] for each in given.values() if each is not None), turn.seed)
        return replace(turn, seed=seed, arms=tuple(arm for arm in turn.arms if given[arm] is None))

    with answering(place, commits, manifest, whole.tasks) as asking:
        for turns in in_turn(wanted, whole.tasks, random=place.random):
            for result in asking.each([left(turn) for turn in turns]):
                advanced("answers to reference tasks", len(proposal.results))
                proposal = _keep(place, proposal, result)
    asked = {task for _, task, _ in proposal.results}
    rest = {task.task_id for task in exact} - {task.task_id for task in first}
    tasks = first if rest and not rest & asked else whole.tasks

    def evaluate(fresh: Proposal) -> None:
        found = compare(results_of(fresh), tasks=tasks, **by(fresh))
        fresh.evaluate(**msgspec.to_builtins(found))

    proposal = record(place, proposal, evaluate)
    place.tell(str(proposal.id), f"evaluated: {proposal.verdict}")


def _keep(place: Workplace, proposal: Proposal, result: TaskResult) -> Proposal:
    worth = {k: v for k, v in vars(result).items() if k not in _UNRECORDED}
    return record(
        place,
        proposal,
        lambda each: each.record_result(result.arm, result.task_id, **worth),
    )
