"""The stages benchmark and evaluate: both arms answer the reference set, and are compared.

Every answer is recorded before the next one is asked for. What is wanted next, and what it all
says, follows from what is recorded and from nothing else.

Source: docs/reference/gauntlet.md, "Stages"; docs/explanation/calibrated-gate.md.
Trust: the candidate's code is hostile, and told neither its arm nor its task.
I/O: the workplace; processes for the tasks.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.comparison.evaluate import Evaluation, compare
from judge.gauntlet.comparison.sequential import ErrorBudget, wanted_pairs
from judge.gauntlet.records import ProposalIndex, results_of
from judge.gauntlet.stages import record
from judge.gauntlet.tasks.benchmark import Arm, TaskResult, export, run_task
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace

_ARMS: tuple[Arm, Arm] = ("base", "candidate")
_AGAIN = 1  # the repeat in which a better candidate is asked each deterministic task once more


def benchmark(place: Workplace, records: ProposalIndex, proposal: Proposal) -> None:
    """Ask both arms until nothing more is wanted, then record what the comparison says."""
    manifest, whole = place.manifest(proposal.base), place.reference_set(proposal.base)
    level = ErrorBudget().level(records.earlier(proposal.id))
    measured = _Measured(whole.tasks, manifest.benchmark.representative, level=level)
    commits = {"base": proposal.against, "candidate": proposal.commit}
    assert proposal.against is not None
    known = records.base_results(commit=proposal.against, reference_set=whole.sha256)
    with place.scratch() as scratch:
        trees: dict[Arm, Path] = {}
        while wanted := measured.wanted(proposal):
            for arm, task, repeat in wanted:
                if arm == "base" and (task.task_id, repeat) in known:
                    earlier = known[(task.task_id, repeat)]
                    proposal = _keep(place, proposal, earlier, cached=True)
                    continue
                if arm not in trees:
                    trees[arm] = Path(tempfile.mkdtemp(dir=scratch))  # its name tells no arm
                    export(place.repository, str(commits[arm]), manifest, trees[arm])
                result = run_task(
                    task,
                    trees[arm],
                    manifest,
                    scorers=place.scorers,
                    arm=arm,
                    scratch=scratch,
                    repeat=repeat,
                )
                proposal = _keep(place, proposal, result, cached=False)
            place.tell(str(proposal.id), f"benchmark: {len(proposal.results)} answers")
    found = measured.evaluation(proposal)
    record(
        place,
        proposal,
        lambda each: each.evaluate(
            found.verdict,
            level=found.level,
            regressions=found.regressions,
            improvements=found.improvements,
            reasons=found.reasons,
            comparisons=[comparison.to_dict() for comparison in found.comparisons],
        ),
    )
    place.tell(str(proposal.id), f"evaluated: {found.verdict}")


class _Measured:
    """What has been answered, what is wanted next, and what it all says.

    A candidate that is better answers each deterministic task once more: one that answers at
    random, and was lucky, has to be lucky twice.
    """

    def __init__(
        self, tasks: Sequence[Task], representative: Sequence[str], *, level: float
    ) -> None:
        self._all = tuple(tasks)
        self._exact = tuple(task for task in tasks if not task.stochastic)
        self._first = tuple(task for task in self._exact if task.task_id in representative)
        self._level = level

    def wanted(self, proposal: Proposal) -> list[tuple[Arm, Task, int]]:
        """Return the answers to ask for next: none if what is there decides."""
        if proposal.configuration_only and self._first:
            if wanted := self._more(proposal, self._first):
                return wanted
            if self._compare(proposal, self._first).regressions:
                return []
        if wanted := self._more(proposal, self._all):
            return wanted
        if self._compare(proposal, self._all).verdict != "better":
            return []
        return [
            ("candidate", task, _AGAIN)
            for task in self._exact
            if ("candidate", task.task_id, _AGAIN) not in proposal.results
        ]

    def evaluation(self, proposal: Proposal) -> Evaluation:
        """Return what the answers say, over the tasks that were asked."""
        asked = {task for _, task, _ in proposal.results}
        rest = [task for task in self._exact if task not in self._first]
        only_first = bool(rest) and not any(task.task_id in asked for task in rest)
        found = self._compare(proposal, self._first if only_first else self._all)
        luck = [task.task_id for task in self._exact if _differs(proposal, task.task_id)]
        if not luck:
            return found
        words = [f"{task}: its answer differs from one time to the next" for task in luck]
        return replace(
            found,
            verdict="worse",
            regressions=(*found.regressions, *luck),
            reasons=(*found.reasons, *words),
        )

    def _more(self, proposal: Proposal, tasks: Sequence[Task]) -> list[tuple[Arm, Task, int]]:
        by_id = {task.task_id: task for task in tasks}
        results = [result for result in self._once(proposal) if result.task_id in by_id]
        return [
            (arm, by_id[task_id], repeat)
            for task_id, repeat in wanted_pairs(results, tasks=tasks, level=self._level)
            for arm in _ARMS
            if (arm, task_id, repeat) not in proposal.results
        ]

    def _compare(self, proposal: Proposal, tasks: Sequence[Task]) -> Evaluation:
        ids = {task.task_id for task in tasks}
        results = [result for result in self._once(proposal) if result.task_id in ids]
        return compare(
            [result for result in results if result.arm == "base"],
            [result for result in results if result.arm == "candidate"],
            tasks=tasks,
            level=self._level,
        )

    def _once(self, proposal: Proposal) -> list[TaskResult]:
        """Return the answers that are compared: of a deterministic task the first."""
        exact = {task.task_id for task in self._exact}
        return [
            result
            for result in results_of(proposal)
            if result.repeat == 0 or result.task_id not in exact
        ]


def _differs(proposal: Proposal, task: str) -> bool:
    """Tell whether the candidate was asked again, and answered otherwise."""
    first = proposal.results.get(("candidate", task, 0))
    again = proposal.results.get(("candidate", task, _AGAIN))
    names = ("success", "validation_failures", "metrics")
    return again is not None and any(first is None or first[n] != again[n] for n in names)


def _keep(place: Workplace, proposal: Proposal, result: TaskResult, *, cached: bool) -> Proposal:
    return record(
        place,
        proposal,
        lambda each: each.record_result(
            result.arm,
            result.task_id,
            repeat=result.repeat,
            seed=result.seed,
            success=result.success,
            validation_failures=result.validation_failures,
            metrics=result.metrics,
            problem=result.problem,
            isolation=result.isolation,
            cached=cached,
        ),
    )
