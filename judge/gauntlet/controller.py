"""The controller: takes proposals through their stages, one at a time, and moves the line.

Each stage is an event with its evidence. A process that is killed at any point leaves the line at
a commit that has passed, and whoever carries on comes to what would have come of it. One process
at a time works on a line.

Source: docs/reference/gauntlet.md, "Stages".
Trust: diffs, rationales and envelopes are hostile; the log and the folder are our own.
I/O: the log, the repository's objects and branches (no work tree), the blobs, the folder.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from judge.errors import ApprovalError
from judge.gauntlet import benchmarking, promotion, reviews, stages
from judge.gauntlet.errors import DeclarationError, DiffError, GauntletError, TierError
from judge.gauntlet.records import ProposalIndex
from judge.gauntlet.repository.changes import tier_of_change
from judge.gauntlet.repository.git import MAX_DIFF
from judge.gauntlet.workplace import SCRATCH, Workplace
from ledger.files import locked

_PATIENCE = 5.0  # seconds; a process that was killed may leave others that end after it


class Controller:
    """One line of one repository under the gauntlet."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.records = ProposalIndex(place.log, place.line_id)
        self._conclude = partial(promotion.conclude, self.place)
        self._held = False

    @property
    def line(self) -> Line:
        """The line as it is recorded; put on record now if it is not."""
        return self.place.line()

    def submit(
        self,
        diff: bytes,
        *,
        declared: Mapping[str, int],
        rationale: str,
        trigger: str,
        proposer: str,
        task: str | None = None,
        evidence: Sequence[Mapping[str, Any]] = (),
        proposal_id: UUID | None = None,
    ) -> Proposal:
        """Put a change on record and look at what it touches; one of this id is not made twice.

        Raises InvariantError, DiffError or GauntletError for what is no proposal at all.
        """
        if len(diff) > MAX_DIFF:
            raise DiffError(
                f"the diff has {len(diff)} bytes; the maximum is {MAX_DIFF}: propose less"
            )
        with self.locked():
            head = self.line.head
            if proposal_id is not None and proposal_id in self.place.log.repository:
                return self.place.proposal(proposal_id)
            proposal = Proposal.submit(
                line=str(self.place.line_id),
                targets=declared,
                diff=self.place.blobs.put(diff),
                diff_bytes=len(diff),
                base=head.commit,
                base_tree=head.tree,
                rationale=rationale,
                trigger=trigger,
                proposer=proposer,
                task=task,
                evidence=evidence,
                proposal_id=proposal_id,
            )
            self.place.log.save(proposal)
            self.place.tell(str(proposal.id), "submitted")
            if self.line.halt is None:
                self._examine(proposal, anew=True)
            return self.place.proposal(proposal.id)

    def tiers(self, diff: bytes) -> dict[str, int]:
        """Return the tier of each file that a diff changes in the line's checkpoint.

        Nothing is recorded. Raises DiffError where it does not apply, which says where the line is.
        """
        line, repository = self.line, self.place.repository
        commit, branch = line.head.commit, self.place.branch
        manifest = self.place.manifest(commit)
        try:
            tree = repository.candidate_tree(commit, diff, binary=manifest.is_weights)
            changes = repository.changes(line.head.tree, tree)
            return {each.path: tier_of_change(each, manifest) for each in changes}
        except DiffError as error:
            astray = self.astray(line)
            where = f"{branch!r} at {commit[:12]}"
            told = str(error).replace(commit, f"the checkpoint of {where}" if astray else where)
            raise DiffError(f"{told}; {astray}" if astray else told) from error

    def carry_on(self, proposal_id: UUID) -> Proposal:
        """Take a proposal on until it is concluded, or waits(); the same call goes on later."""
        with self.locked():
            while True:
                promotion.settle(self.place, self.records)
                proposal = self.place.proposal(proposal_id)
                if proposal.outcome is not None:
                    if proposal.branch is not None:
                        self.place.repository.delete_branch(proposal.branch)
                    return proposal
                if self.waits(proposal) is not None:
                    return proposal
                self._step(proposal)

    def waits(self, proposal: Proposal) -> str | None:
        """Return what an open proposal waits for; None if it can be carried on."""
        line = self.line
        if proposal.outcome is not None:
            return None
        if line.halt is not None:
            to_go_on = "`proctor line sign resume --key KEY`"
            return f"the line is halted: {line.halt}. To continue, see {to_go_on}"
        if proposal.base != line.head.commit or proposal.review in ("reject", "revise"):
            return None  # its end is all that is left
        if astray := self.astray(line):
            return astray
        if line.valley is not None and not promotion.is_step(line, proposal):
            return (
                f"valley {line.valley['id'][:12]} is open, but this proposal is not its next step"
            )
        return self._waits_for_approval(line, proposal)

    def queue(self) -> list[Proposal]:
        """Return the proposals that are not concluded, oldest first."""
        return [self.place.proposal(each) for each in self.records.open_proposals()]

    def pending(self) -> list[Proposal]:
        """Return the proposals that wait for an operator's word, oldest first."""
        line = self.line
        return [each for each in self.queue() if self._waits_for_approval(line, each) is not None]

    def open_valley(self, envelope: str) -> Line:
        """Suspend the comparison for the changes that an operator has listed."""
        with self.locked():
            return reviews.open_valley(self.place, envelope)

    def adopt(self, envelope: str) -> Line:
        """Take over where people have moved the branch."""
        with self.locked():
            return reviews.adopt(self.place, envelope)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one process that works on this line, with what another left undone settled."""
        if self._held:
            yield
            return
        lock = self.place.folder / "controller.lock"
        busy = GauntletError(
            f"another process is using this line (it holds {lock}); try again later"
        )
        with locked(lock, patience=_PATIENCE, busy=busy):
            self._held = True
            try:
                shutil.rmtree(self.place.folder / SCRATCH, ignore_errors=True)
                _ = self.line
                promotion.settle(self.place, self.records)
                promotion.sweep(self.place, self.records)
                yield
            finally:
                self._held = False

    def astray(self, line: Line) -> str | None:
        """Return where the branch is, if that is not its checkpoint; else None."""
        head = self.place.repository.head(self.place.branch)
        if head == line.head.commit:
            return None
        return (
            f"branch {self.place.branch!r} is at {head[:12]}, not at its checkpoint "
            f"{line.head.commit[:12]}: evaluate it with `proctor line run --measure`, then make it "
            "a checkpoint with `proctor line sign adopt --key KEY`"
        )

    def _waits_for_approval(self, line: Line, proposal: Proposal) -> str | None:
        """Return why a proposal cannot go on without an operator; else None.

        Looked at twice of tier 1: before anything of it is run, and before the line moves. What is
        no worse moves it on an operator's word in every tier.
        """
        first, last = proposal.stage == "branch", promotion.is_let_through(line, proposal)
        word = proposal.tier == 1 or (last and proposal.verdict == "no worse")
        if not word or proposal.base != line.head.commit or not (first or last):
            return None
        try:
            reviews.check_recorded(self.place, proposal)
        except ApprovalError as error:
            return f"tier {proposal.tier}: {error} (`proctor line show --list waiting`)"
        return None

    def _step(self, proposal: Proposal) -> None:
        """Do the one thing that comes next."""
        line = self.line
        if proposal.review in ("reject", "revise"):
            outcome = "rejected" if proposal.review == "reject" else "withdrawn"
            reason = f"an operator says {proposal.review}: {proposal.note}"
            self._conclude(proposal, outcome, stage="propose", reason=reason)
        elif proposal.base != line.head.commit:
            again = self._carried(proposal, to=line.head.commit)
            then = "propose it again from there" if again is None else f"carried over as {again.id}"
            reason = f"the line moved to {line.head.commit}; {then}"
            self._conclude(proposal, "superseded", stage=proposal.stage, reason=reason)
        elif proposal.stage == "branch":
            found = self._examine(proposal)
            if found is not None:
                self.place.repository.verify_movable(self.place.branch)  # before hours of tests
                against = promotion.opponent(line, proposal)
                stages.branch(self.place, proposal, found, against=against)
        elif proposal.stage == "test":
            stages.test(self.place, self.records, proposal)
        elif proposal.stage == "benchmark":
            benchmarking.benchmark(self.place, self.records, proposal)
        elif promotion.is_let_through(line, proposal) and proposal.left_out:
            stages.test_rest(self.place, proposal)
        elif promotion.is_let_through(line, proposal):
            promotion.promote(self.place, proposal)
            self.place.tell(str(proposal.id), "promoted")
        elif proposal.tested:
            reason = f"{proposal.verdict}: {'; '.join(proposal.reasons)}"
            self._conclude(proposal, "rejected", stage="evaluate", reason=reason)
        else:
            self._conclude(proposal, "rejected", stage="test", reason=str(proposal.problem))

    def _carried(self, proposal: Proposal, *, to: str) -> Proposal | None:
        """Submit a proposal again on the line's checkpoint, if it can be carried there."""
        said = reviews.carry(self.place, proposal, to=to)
        if said is None:
            return None
        again = self.submit(self.place.blobs.get(proposal.diff), **said)
        return reviews.approve_carried(self.place, again, by=proposal)

    def _examine(self, proposal: Proposal, *, anew: bool = False) -> stages.Examined | None:
        """Look at what a proposal touches; None if that was the end of it.

        One that is submitted `anew` can still be given a word that its twin had not.
        """
        try:
            found = stages.examine(self.place, proposal)
        except DiffError as error:
            self._conclude(proposal, "rejected", stage="branch", reason=str(error))
            return None
        except TierError as error:
            # A wrong declaration says nothing of the change, which may be a valley's next step.
            self._conclude(
                proposal,
                "halted",
                stage="propose",
                reason=str(error),
                stops_line=error.halts_line,
                ends_valley=not isinstance(error, DeclarationError),
            )
            return None
        twin = None if anew else self.records.twin(proposal.id, tree=found.tree)
        if twin is not None and not promotion.is_step(self.line, proposal):
            reason = (
                f"proposal {twin} makes the same change to the same base and was already judged"
            )
        elif found.problems:
            reason = "; ".join(found.problems[: stages.MOST_PROBLEMS])
        else:
            return found
        self._conclude(proposal, "rejected", stage="branch", reason=reason)
        return None
