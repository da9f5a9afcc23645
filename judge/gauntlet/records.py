"""The recorded proposals of a line, in the ledger's order.

The controller reads everything about earlier proposals here, so that a killed process and one that
was not reach the same result.

Trust: the ledger's events are our own; whoever doubts them verifies the ledger first.
I/O: reads the log that is passed in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aggregates.improvement.proposal import APPROVED, Proposal
from judge.gauntlet.comparison.claims import Outcome, outcome
from judge.gauntlet.tasks.benchmark import Arm, TaskResult
from ledger.application import LedgerApplication

MOST_ATTEMPTS = 3  # of one change that its tests reject: they may have been unlucky
_NEVER = 2**63  # a place that no event has
_TOPICS = (
    "proposal.submitted",
    "proposal.reviewed",
    "proposal.branched",
    "proposal.tested",
    "proposal.rest_tested",
    "proposal.evaluated",
    "proposal.concluded",
)


@dataclass
class _Seen:
    """One proposal, as far as the index has read; places are notification ids."""

    base: str
    tree: str | None = None
    against: str | None = None
    reference_set: str | None = None
    expected: str | None = None
    commit: str | None = None
    outcomes: str | None = None
    tested: int | None = None  # where it passed its tests
    free: int | None = None  # where it was evaluated without a look at repeats
    better: bool = False
    regressions: tuple[str, ...] = ()
    word: str | None = None  # of an operator
    outcome: str | None = None
    ended_at: str | None = None  # the stage
    concluded: int = 0


class ProposalIndex:
    """An index over one line's proposals, brought up to date whenever it is asked."""

    def __init__(self, log: LedgerApplication, line: UUID) -> None:
        self._log = log
        self._line = str(line)
        self._next = 1
        self._seen: dict[UUID, _Seen] = {}

    def proposals(self) -> list[UUID]:
        """Return every proposal on the line, oldest first."""
        return list(self._up_to_date())

    def open_proposals(self) -> list[UUID]:
        """Return those that have not been concluded, oldest first."""
        return [each for each, seen in self._up_to_date().items() if seen.outcome is None]

    def twin(self, proposal: UUID, *, tree: str) -> UUID | None:
        """Return another proposal that makes the same of the same base, and was judged by it.

        Under an operator's word, other terms hold: then one that had this word.
        What its tests have rejected may be tried again, some times.
        """
        index = self._up_to_date()
        base, word = index[proposal].base, index[proposal].word
        twins = [
            other
            for other, seen in index.items()
            if other != proposal
            and (seen.base, seen.tree) == (base, tree)
            and (word not in APPROVED or seen.word == word)
            and seen.outcome not in ("superseded", "withdrawn")
        ]
        by_tests = all(index[each].ended_at == "test" for each in twins)
        return None if by_tests and len(twins) < MOST_ATTEMPTS else twins[0]

    def expected_cases(self, *, base: str) -> str | None:
        """Return the blob with the outcomes of a base's own tests, if they were ever run.

        They ran when it was a base before, and also when it was the candidate of a promotion: a
        promoted commit has passed the suite that it holds itself. The latest counts: without cases
        whose names turned out to change from run to run.
        """
        seen = self._up_to_date().values()
        found = [
            *(each.outcomes for each in seen if each.commit == base and each.outcome == "promoted"),
            *(each.expected for each in seen if each.base == base),
        ]
        return next((each for each in reversed(found) if each is not None), None)

    def earlier(self, proposal: UUID) -> list[bool]:
        """Return of each proposal that spends error before this one whether it was found better.

        Those are the ones that passed their tests before it. What becomes of them after it has
        passed its own is not looked at: the answer is the same whenever it is asked. What a valley
        let through without being better was no finding.
        """
        seen = self._up_to_date()
        mine = seen[proposal].tested or _NEVER
        before = sorted(
            (each.tested, each.better and each.outcome == "promoted" and each.concluded < mine)
            for each in seen.values()
            if each.tested is not None and each.tested < mine
            if each.free is None or each.free > mine
        )
        return [promoted for _, promoted in before]

    def base_outcomes(
        self, *, commit: str, reference_set: str, without: UUID
    ) -> dict[str, set[Outcome]]:
        """Return what this commit answered to this set's tasks as the base of other proposals.

        They are looked at for contradictions only; no comparison rests on them.
        """
        found: dict[str, set[Outcome]] = {}
        for proposal, seen in self._up_to_date().items():
            if (seen.against, seen.reference_set) != (commit, reference_set) or proposal == without:
                continue
            earlier: Proposal = self._log.repository.get(proposal)
            for result in results_of(earlier):
                if result.arm == "base":
                    found.setdefault(result.task_id, set()).add(outcome(result))
        return found

    def asked(self, commit: str) -> Iterator[tuple[UUID, Arm]]:
        """Give each concluded proposal in which a commit answered tasks, and as which arm."""
        for proposal, seen in self._up_to_date().items():
            if seen.outcome is None:
                continue
            if seen.against == commit:
                yield proposal, "base"
            elif seen.commit == commit:
                yield proposal, "candidate"

    def regressions(self) -> Iterator[tuple[UUID, str]]:
        """Give each proposal with each task on which it was worse than its base."""
        for proposal, seen in self._up_to_date().items():
            for task in seen.regressions:
                yield proposal, task

    def _up_to_date(self) -> dict[UUID, _Seen]:
        for each in self._log.notifications(*_TOPICS, start=self._next):
            self._take(each.id, self._log.mapper.to_domain_event(each))
            self._next = each.id + 1
        return self._seen

    def _take(self, place: int, event: Any) -> None:
        if isinstance(event, Proposal.Submitted):
            if event.line == self._line:
                self._seen[event.originator_id] = _Seen(base=event.base)
            return
        seen = self._seen.get(event.originator_id)
        if seen is None:
            return  # another line's
        match event:
            case Proposal.Reviewed():
                seen.word = event.verdict
            case Proposal.Branched():
                seen.tree, seen.against = event.tree, event.against
                seen.commit = event.commit
                seen.reference_set = event.reference_set
            case Proposal.Tested():
                seen.tested = place if event.passed else None
                seen.expected, seen.outcomes = event.expected, event.outcomes
            case Proposal.RestTested():
                seen.outcomes = event.outcomes
            case Proposal.Evaluated():
                seen.better = event.verdict == "better"
                seen.regressions = tuple(event.regressions)
                seen.free = None if event.level > 0 else place
            case Proposal.Concluded():
                seen.outcome, seen.concluded = event.outcome, place
                seen.ended_at = event.stage


def results_of(proposal: Proposal) -> list[TaskResult]:
    """Return what both arms have answered so far, as it is recorded."""
    return [
        TaskResult(
            task_id=task,
            arm="base" if arm == "base" else "candidate",
            repeat=repeat,
            **{**result, "isolation": tuple(result["isolation"])},
        )
        for (arm, task, repeat), result in proposal.results.items()
    ]
