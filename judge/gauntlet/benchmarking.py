"""The stages benchmark and evaluate: both arms answer the reference set, and are compared.

Every answer is recorded before the next one is asked for. What is wanted next, and what it all
says, follows from what is recorded and from nothing else. No answer is taken from an earlier
proposal.

Source: docs/reference/gauntlet.md, "Stages", "The calibrated gate".
Trust: the candidate's code is hostile, and told neither its arm nor its task.
I/O: the workplace; processes for the tasks.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count

import msgspec

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.arms import answering, in_turn
from judge.gauntlet.comparison.claims import Outcome
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import Evaluation, compare
from judge.gauntlet.comparison.sequential import ErrorBudget, wanted_pairs
from judge.gauntlet.records import ProposalIndex, results_of
from judge.gauntlet.stages import record
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace
from ledger.progress import advanced

_TWICE = 2  # pairs of each deterministic task that a promotion takes


def benchmark(place: Workplace, records: ProposalIndex, proposal: Proposal) -> None:
    """Ask both arms until nothing more is wanted, then record what the comparison says."""
    manifest, whole = place.manifest(proposal.base), place.reference_set(proposal.base)
    level = ErrorBudget().level(records.earlier(proposal.id))
    assert proposal.against is not None
    measured = _Measured(
        whole.tasks,
        manifest.benchmark.representative,
        level=level,
        settings=place.settings,
        record=records.base_outcomes(
            commit=proposal.against, reference_set=whole.sha256, without=proposal.id
        ),
    )
    commits: dict[Arm, str] = {"base": proposal.against, "candidate": str(proposal.commit)}

    def wanted() -> list[tuple[Task, int]]:
        if proposal.results:
            place.tell(str(proposal.id), f"benchmark: {len(proposal.results)} answers")
        return measured.wanted(proposal)

    with answering(place, commits, manifest) as ask:
        for task, repeat, drawn, arms in in_turn(wanted, random=place.random):
            given = {arm: proposal.results.get((arm, task.task_id, repeat)) for arm in arms}
            seed = next((each["seed"] for each in given.values() if each is not None), drawn)
            for arm in arms:
                if given[arm] is None:  # else by a process that was stopped between the two
                    advanced("answers to reference tasks", len(proposal.results))
                    proposal = _keep(place, proposal, ask(task, arm, repeat=repeat, seed=seed))
    found = measured.evaluation(proposal)
    record(
        place,
        proposal,
        lambda each: each.evaluate(**msgspec.to_builtins(found)),
    )
    place.tell(str(proposal.id), f"evaluated: {found.verdict}")


class _Measured:
    """What has been answered, what is wanted next, and what it all says.

    Before a promotion both arms answer each deterministic task at least twice: a candidate that
    answers at random, and was lucky, has to be lucky twice.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        representative: Sequence[str],
        *,
        level: float,
        settings: ComparisonSettings,
        record: Mapping[str, Collection[Outcome]],
    ) -> None:
        self._all = tuple(tasks)
        self._exact = tuple(task for task in tasks if not task.stochastic)
        self._first = tuple(task for task in self._exact if task.task_id in representative)
        self._level = level
        self._settings = settings
        self._record = record

    def wanted(self, proposal: Proposal) -> list[tuple[Task, int]]:
        """Return the pairs to ask for next: none if what is there decides."""
        if proposal.configuration_only and self._first:
            if wanted := self._more(proposal, self._first):
                return wanted
            if self._compare(proposal, self._first).regressions:
                return []
        if wanted := self._more(proposal, self._all):
            return wanted
        found = self._compare(proposal, self._all)
        if found.verdict != "better":
            return []
        pairs = {each.task_id: each.pairs for each in found.comparisons}
        answers = Counter((task, repeat) for _, task, repeat in proposal.results)
        whole = {pair for pair, arms in answers.items() if arms == len(ARMS)}
        return [
            (task, next(repeat for repeat in count() if (task.task_id, repeat) not in whole))
            for task in self._exact
            if pairs[task.task_id] < _TWICE
        ]

    def evaluation(self, proposal: Proposal) -> Evaluation:
        """Return what the answers say, over the tasks that were asked."""
        asked = {task for _, task, _ in proposal.results}
        rest = [task for task in self._exact if task not in self._first]
        only_first = bool(rest) and not any(task.task_id in asked for task in rest)
        return self._compare(proposal, self._first if only_first else self._all)

    def _more(self, proposal: Proposal, tasks: Sequence[Task]) -> list[tuple[Task, int]]:
        by_id = {task.task_id: task for task in tasks}
        wanted = wanted_pairs(
            results_of(proposal),
            tasks=tasks,
            level=self._level,
            settings=self._settings,
            record=self._record,
        )
        return [(by_id[task_id], repeat) for task_id, repeat in wanted]

    def _compare(self, proposal: Proposal, tasks: Sequence[Task]) -> Evaluation:
        results = results_of(proposal)
        return compare(
            [result for result in results if result.arm == "base"],
            [result for result in results if result.arm == "candidate"],
            tasks=tasks,
            level=self._level,
            settings=self._settings,
            record=self._record,
        )


def _keep(place: Workplace, proposal: Proposal, result: TaskResult) -> Proposal:
    worth = {k: v for k, v in vars(result).items() if k not in ("arm", "task_id", "cached")}
    return record(
        place,
        proposal,
        lambda each: each.record_result(result.arm, result.task_id, **worth),
    )
