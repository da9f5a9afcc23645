"""The stages between a proposal's submission and its end: branch, test, benchmark, evaluate.

Each does its work and records it with its evidence. What has been recorded is not done again; what
has not is done from the start, in folders that are gone when the process is.

Source: docs/reference/gauntlet.md, "Stages".
Trust: diffs and whatever they make of the repository are hostile.
I/O: the workplace; processes for tests and tasks.  Units: seconds, bytes.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aggregates.proposal import Proposal
from judge.gauntlet import lint
from judge.gauntlet.benchmark import Arm, TaskResult, export, run_task
from judge.gauntlet.changes import Change, Verdict, check_changes
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.evaluate import Evaluation, compare
from judge.gauntlet.manifest import Manifest
from judge.gauntlet.records import Records, results_of
from judge.gauntlet.reference_set import Task
from judge.gauntlet.repository import PROPOSALS
from judge.gauntlet.sequential import ErrorBudget, Plan
from judge.gauntlet.suite import run_base, run_tests
from judge.gauntlet.workplace import Workplace
from ledger.errors import ConflictError

MOST_PROBLEMS = 20  # of the lint, that are told
_ARMS: tuple[Arm, Arm] = ("base", "candidate")
_TRIES = 20
_MOST_SAID = 500  # bytes of what tests print, in an error
_AGAIN = 1  # the repeat in which a better candidate is asked each deterministic task once more
_MAX_MESSAGE = 500  # characters of the rationale


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a proposal really comes to."""

    tree: str
    changes: tuple[Change, ...]
    verdict: Verdict
    problems: tuple[str, ...]  # that the lint has found


def examine(place: Workplace, proposal: Proposal) -> Examined:
    """Apply the diff to a tree of its own and look at what it touches.

    Raises DiffError where it does not apply, TierError where it touches what it must not.
    """
    repository, manifest = place.repository, place.manifest(proposal.base)
    tree = repository.candidate_tree(proposal.base, place.blobs.get(proposal.diff))
    changes = repository.changes(proposal.base_tree, tree)
    verdict = check_changes(changes, proposal.targets, manifest, repository.paths(tree))
    kinds = {change.path: change.kind for change in changes}
    problems: list[str] = []
    for path in verdict.code:
        before = None if kinds[path] == "added" else repository.read(proposal.base, path)
        problems += lint.check_code(path, before, repository.read(tree, path), manifest)
    return Examined(tree=tree, changes=changes, verdict=verdict, problems=tuple(problems))


def branch(place: Workplace, proposal: Proposal, found: Examined, *, against: str) -> None:
    """Put the candidate on a branch of its own; `against` is the commit that it has to beat."""
    name = f"{PROPOSALS}{proposal.id}"
    commit = place.repository.commit(
        found.tree,
        proposal.base,
        _message(proposal),
        int(proposal.created_on.timestamp()),
    )
    place.repository.set_branch(name, commit)
    _record(
        place,
        proposal,
        lambda each: each.record_branch(
            name,
            commit=commit,
            tree=found.tree,
            changes=[asdict(change) for change in found.changes],
            tier=found.verdict.tier,
            configuration_only=found.verdict.configuration_only,
            manifest=place.manifest(proposal.base).sha256,
            reference_set=place.reference_set(proposal.base).sha256,
            against=against,
        ),
    )


def _message(proposal: Proposal) -> str:
    """Return the commit's message: the rationale's words are others', and go to terminals."""
    said = "".join(c if c.isprintable() else " " for c in proposal.rationale.strip())
    return f"{said[:_MAX_MESSAGE]}\n\nProposal: {proposal.id}\n"


def test(place: Workplace, records: Records, proposal: Proposal) -> None:
    """Run the base's whole suite against the candidate; of the base it is run once."""
    assert proposal.commit is not None
    manifest = place.manifest(proposal.base)
    place.tell(str(proposal.id), "testing")
    with place.scratch() as scratch:
        known = records.expected_cases(base=proposal.base)
        if known is None:
            cases = _base_cases(place, proposal.base, manifest, scratch)
            known = place.blobs.put(json.dumps(cases, sort_keys=True).encode())
        found = run_tests(
            place.repository,
            proposal.commit,
            proposal.base,
            manifest,
            workspace=scratch,
            expected=json.loads(place.blobs.get(known)),
        )
    output = place.blobs.put(found.output)
    _record(
        place,
        proposal,
        lambda each: each.record_tests(
            passed=found.passed,
            problem=found.problem,
            cases=len(found.cases),
            missing=found.missing,
            added=found.added,
            seconds=found.seconds,
            expected=known,
            output=output,
            isolation=found.isolation,
            leftovers=found.leftovers,
        ),
    )
    place.tell(str(proposal.id), f"tested: {found.problem or f'{len(found.cases)} cases passed'}")


def _base_cases(
    place: Workplace, base: str, manifest: Manifest, scratch: Path
) -> Mapping[str, str]:
    own = run_base(place.repository, base, manifest, workspace=scratch)
    if own.problem is not None:
        said = own.output[-_MOST_SAID:].decode(errors="replace")
        raise GauntletError(
            f"the line's own tests do not pass at {base}: {own.problem}. No change can be held "
            "against them; people have to mend them, and `proctor infra adopt` the repair. They "
            f"say: {said}"
        )
    return own.cases


def benchmark(place: Workplace, records: Records, proposal: Proposal) -> None:
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
                    task, trees[arm], manifest, arm=arm, scratch=scratch, repeat=repeat
                )
                proposal = _keep(place, proposal, result, cached=False)
            place.tell(str(proposal.id), f"benchmark: {len(proposal.results)} answers")
    found = measured.evaluation(proposal)
    _record(
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
            for task_id, repeat in Plan(tasks, level=self._level).more(results)
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
    return _record(
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


def _record(place: Workplace, proposal: Proposal, change: Callable[[Proposal], None]) -> Proposal:
    """Record a change of a proposal, and return it as it is then; reviews may come in between."""
    for _ in range(_TRIES):
        try:
            change(proposal)
            place.log.save(proposal)
        except ConflictError:
            proposal = place.proposal(proposal.id)
            continue
        return proposal
    raise GauntletError(f"others append to proposal {proposal.id} without end; try again later")
