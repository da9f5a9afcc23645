"""Recorded approvals of operators: what each must refer to, and its effect.

An approval is recorded as the signed envelope. The controller acts on it and records that as
another event.

A batch approves several proposals of tier 1 with one signature, each still judged alone. It names
the base that all of them begin at, and of each proposal its diff and all that was shown of it. When
the first is promoted, the others no longer begin at the line's checkpoint. They are then carried
over: proposed again, word for word, on the new checkpoint. The signature counts there as long as a
person has approved everything that becomes effective: no file that the proposal touches has changed
since the signed base, and whatever else has changed came with proposals of the same signature.

Source: docs/reference/gauntlet.md, "Approvals";
docs/explanation/decisions/0036-batches-of-approvals.md.
Trust: envelopes are hostile, and so is what a proposal says of where it comes from; keys count
while the ledger says that they are operators'.
I/O: the workplace.  Units: seconds.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

from aggregates.improvement.line import Line
from aggregates.improvement.proposal import APPROVED, REVIEWS, Proposal
from judge.approvals import (
    BATCH,
    CARRIED,
    LEDGER,
    OF_EACH,
    RECORDED,
    SUBJECTS,
    TEXT_SHOWN,
    Approval,
    check_approval,
    names_of,
    of_proposal,
    read_approval,
)
from judge.errors import ApprovalError
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.workplace import Workplace
from ledger.handover.envelope import payload_of


def record_review(place: Workplace, envelope: str) -> Proposal:
    """Record an operator's word on a proposal; ApprovalError where it does not count."""
    said = read_approval(envelope, operators=place.operators())
    if said.kind not in REVIEWS:
        raise ApprovalError(f"an approval of kind {said.kind!r} does not apply to a proposal")
    proposal_id = uuid_of(said.proposal)
    proposal = place.proposal(proposal_id)
    if proposal.outcome is not None:
        raise ApprovalError(f"proposal {proposal_id} is already concluded: {proposal.outcome}")
    approval = checked(
        place, envelope, said.kind, place.subjects(proposal), proposal=str(proposal_id)
    )
    return record_word(place, [proposal], approval.kind, envelope, approval)[0]


def check_recorded(place: Workplace, proposal: Proposal) -> None:
    """Raise ApprovalError unless an approval of the proposal is on record and counts now.

    What is no worse needs the word that calls it a refactoring.
    """
    if proposal.verdict == "no worse" and proposal.review != "refactor":
        raise ApprovalError("an operator must sign `refactor` again")
    if proposal.review not in APPROVED or proposal.envelope is None:
        raise ApprovalError("an operator must approve it")
    said = read_approval(proposal.envelope, operators=place.operators())
    if said.kind == BATCH:
        verify_named(place, proposal, base=proposal.base)
        return
    subjects = place.subjects(proposal)
    if TEXT_SHOWN not in said.subjects:
        del subjects[TEXT_SHOWN]  # it was recorded by a version that did not name it
    subjects = on_record(place, proposal.envelope, subjects)
    checked(place, proposal.envelope, proposal.review, subjects, proposal=str(proposal.id))


def resume(place: Workplace, envelope: str) -> Line:
    """Let a halted line go on, with an operator's answer to what halted it."""
    line = place.line()
    if line.halted_by is None:
        raise ApprovalError("the line is not halted")
    proposal = place.proposal(uuid_of(line.halted_by))
    checked(place, envelope, "resume", place.subjects(proposal), proposal=str(proposal.id))

    def go_on(fresh: Line) -> None:
        if fresh.halted_by != line.halted_by:
            raise ApprovalError("the line was halted by a different proposal in the meantime")
        fresh.resume(envelope=envelope)

    return place.change_line(go_on)


def open_valley(place: Workplace, envelope: str) -> Line:
    """Suspend the comparison for the changes that an operator has listed.

    A valley goes by what was signed: one signature opens it once, in any envelope.
    """
    approval = checked(place, envelope, "valley", place.line_subjects(place.line().head.commit))
    valley = signed(envelope)
    events = place.log.events.get(place.line_id)
    if valley in {signed(each.envelope) for each in events if isinstance(each, Line.ValleyOpened)}:
        raise ApprovalError(f"valley {valley} was already opened; have a new one signed")
    return place.change_line(
        lambda line: line.open_valley(
            valley, steps=approval.steps, envelope=envelope, expires=approval.expires
        )
    )


def adopt(place: Workplace, envelope: str) -> Line:
    """Take over where people have moved the branch, as a checkpoint of its own."""
    subjects = adoption_subjects(place)
    checked(place, envelope, "adopt", subjects)
    contents = place.contents(subjects["commit"])
    return place.change_line(lambda line: line.adopt(**contents, envelope=envelope))


def admit(place: Workplace, envelope: str, *, task: str, sha256: str) -> Line:
    """Record that an operator lets a task into the reference set."""
    checked(place, envelope, "admit", {LEDGER: place.ledger, "task": sha256})
    return place.change_line(lambda line: line.admit_task(task, sha256=sha256, envelope=envelope))


def verify_carried(place: Workplace, envelope: str, *, sha256: str) -> None:
    """Raise ApprovalError unless an operator has signed exactly these drafts for this line."""
    checked(place, envelope, "carry", {LEDGER: place.ledger, "set": sha256})


def adoption_subjects(place: Workplace) -> dict[str, str]:
    """Return what an operator who takes over people's commits has to sign."""
    active = place.line().head
    commit = place.repository.head(place.branch)
    if commit == active.commit:
        raise ApprovalError("the branch is at its checkpoint: there is nothing to adopt")
    subjects = {**place.contents(commit), "base": active.commit, "base_tree": active.tree}
    return {**{name: subjects[name] for name in subjects if name != "code"}, LEDGER: place.ledger}


def batch_subjects(place: Workplace, proposals: Iterable[Proposal]) -> dict[str, str]:
    """Return what an operator signs who approves all of these at once.

    Raises ApprovalError for one that is not of tier 1, or does not begin at the line's checkpoint.
    """
    subjects = place.line_subjects(place.line().head.commit)
    for proposal in proposals:
        if proposal.outcome is not None:
            raise ApprovalError(f"proposal {proposal.id} is already concluded: {proposal.outcome}")
        if proposal.tier != 1 or proposal.base != subjects["base"]:
            raise ApprovalError(
                f"proposal {proposal.id} is not a proposal of tier 1 on the line's checkpoint"
            )
        if origin_of(proposal) != proposal.id:
            raise ApprovalError(
                f"proposal {proposal.id} was carried over from another; approve it by itself"
            )
        subjects |= named_in_batch(proposal, place.subjects(proposal))
    return subjects


def named_in_batch(proposal: Proposal | str, subjects: Mapping[str, str]) -> dict[str, str]:
    """Return a proposal's own subjects of a batch."""
    name = proposal if isinstance(proposal, str) else str(proposal.id)
    return {of_proposal(what, name): subjects[what] for what in OF_EACH}


def record_batch(place: Workplace, envelope: str) -> list[Proposal]:
    """Record a batch as the approval of each of its proposals; ApprovalError if it does not count.

    All of them have to be open, and as they were when it was signed.
    """
    said = read_approval(envelope, operators=place.operators())
    if said.kind != BATCH:
        raise ApprovalError(f"an approval of kind {said.kind!r} is no batch")
    names = sorted({name.partition(":")[2] for name in said.subjects if ":" in name})
    proposals = [place.proposal(uuid_of(name)) for name in names]
    approval = checked(place, envelope, BATCH, batch_subjects(place, proposals))
    return record_word(place, proposals, "approve", envelope, approval)


def verify_named(place: Workplace, proposal: Proposal, *, base: str) -> Approval:
    """Return the batch on record for a proposal if it counts on a base; raise ApprovalError.

    `base` is the commit of a checkpoint: the proposal's own, or one that it may be carried to.
    """
    if proposal.review != "approve" or proposal.envelope is None:
        raise ApprovalError("an operator must approve it")
    origin = place.proposal(origin_of(proposal))
    subjects = place.subjects(origin)
    named = {name: subjects[name] for name in SUBJECTS[BATCH]} | named_in_batch(origin, subjects)
    approval = checked(place, proposal.envelope, BATCH, on_record(place, proposal.envelope, named))
    if (proposal.diff, proposal.targets) != (origin.diff, origin.targets):
        raise ApprovalError("it is not the change that was approved")
    _verify_between(place, origin, proposal.envelope, base=base)
    return approval


def carry(place: Workplace, proposal: Proposal, *, to: str) -> dict[str, Any] | None:
    """Return what a proposal is submitted with again on another base; None if nothing carries it.

    A batch that approves it there does; so do people's own commits that touch none of its files.
    It has one successor on each base, so that a crash on the way makes no second one.
    """
    if not (_is_approved(place, proposal, base=to) or _is_untouched(place, proposal, to)):
        return None
    return again(proposal, uuid5(proposal.id, to), CARRIED, proposal=str(origin_of(proposal)))


def again(proposal: Proposal, proposal_id: UUID, kind: str, /, **why: str) -> dict[str, Any]:
    """Return what a proposal is submitted with once more; evidence of a kind says why.

    Its other evidence comes along: what taints it taints the new one.
    """
    others = [each for each in proposal.evidence if each.get("kind") != kind]
    return {
        "declared": proposal.targets,
        "rationale": proposal.rationale,
        "trigger": proposal.trigger,
        "proposer": proposal.proposer,
        "task": proposal.task,
        "evidence": [*others, {"kind": kind, **why}],
        "proposal_id": proposal_id,
    }


def approve_carried(place: Workplace, proposal: Proposal, *, by: Proposal) -> Proposal:
    """Record for a carried proposal the batch that approves the one that it comes from, if any."""
    envelope = by.envelope
    if envelope is None or proposal.outcome is not None or proposal.review is not None:
        return proposal
    if not _is_approved(place, by, base=proposal.base):
        return proposal
    approval = read_approval(envelope, operators=place.operators())
    return record_word(place, [proposal], "approve", envelope, approval)[0]


def _is_approved(place: Workplace, proposal: Proposal, *, base: str) -> bool:
    """Tell whether a batch approves a proposal on a base."""
    try:
        envelope = proposal.envelope or ""
        if read_approval(envelope, operators=place.operators()).kind != BATCH:
            return False
        verify_named(place, proposal, base=base)
    except (ApprovalError, GauntletError):
        return False
    return True


def _is_untouched(place: Workplace, proposal: Proposal, to: str) -> bool:
    """Tell whether only people's commits lie between, and none of its files differs."""
    line = place.line()
    chain = {each.commit: each for each in line.checkpoints.values()}
    at = chain.get(to)
    while at is not None and at.commit != proposal.base and not at.proposals:
        at = None if at.parent is None else line.checkpoints[at.parent]
    if at is None or at.commit != proposal.base:
        return False
    then, now = place.repository.files(proposal.base), place.repository.files(to)
    return all(then.get(path) == now.get(path) for path in proposal.targets)


def origin_of(proposal: Proposal) -> UUID:
    """Return the proposal that an operator was shown: the first that this one was carried from."""
    told = [each for each in proposal.evidence if each.get("kind") == CARRIED]
    return uuid_of(str(told[0].get("proposal"))) if told else proposal.id


def _verify_between(place: Workplace, origin: Proposal, envelope: str, *, base: str) -> None:
    """Raise ApprovalError unless the line came from one base to the other by this batch alone."""
    line = place.line()
    chain = {each.commit: each for each in line.checkpoints.values()}
    at = chain.get(base)
    while at is not None and at.commit != origin.base:
        for name in at.proposals:
            with_it = place.proposal(uuid_of(name)).envelope
            if with_it is None or signed(with_it) != signed(envelope):
                raise ApprovalError(
                    f"checkpoint {at.id[:8]} came with a change that this batch does not name"
                )
        if not at.proposals:
            raise ApprovalError(f"checkpoint {at.id[:8]} was made by people after the signature")
        at = None if at.parent is None else line.checkpoints[at.parent]
    if at is None:
        raise ApprovalError("the line no longer descends from the base that was signed")
    then, now = place.repository.files(origin.base), place.repository.files(base)
    for path in origin.targets:
        if then.get(path) != now.get(path):
            raise ApprovalError(f"{path!r} has changed since the base that was signed")


def record_word(
    place: Workplace, proposals: Iterable[Proposal], word: str, envelope: str, approval: Approval
) -> list[Proposal]:
    """Record an operator's word on all of these, and return them as they are then.

    An approval from before must not undo another word.
    """
    ids = [each.id for each in proposals]

    def make() -> list[Proposal]:
        fresh = [place.proposal(each) for each in ids]
        for each in fresh:
            if each.review in ("reject", "revise"):
                raise ApprovalError(
                    f"an operator has already answered {each.review} to proposal {each.id}"
                )
            each.record_review(
                word,
                envelope=envelope,
                key=approval.key,
                expires=approval.expires,
                note=approval.note,
            )
        return fresh

    place.save(make)
    return [place.proposal(each) for each in ids]


def checked(
    place: Workplace,
    envelope: str,
    kind: str,
    subjects: Mapping[str, str],
    *,
    proposal: str | None = None,
) -> Approval:
    """Return an operator's word if it is this one, about exactly this; raise ApprovalError."""
    return check_approval(
        envelope,
        operators=place.operators(),
        now=place.clock(),
        kind=kind,
        line=str(place.line_id),
        proposal=proposal,
        subjects=subjects,
    )


def on_record(place: Workplace, envelope: str, subjects: Mapping[str, str]) -> dict[str, str]:
    """Return what a recorded approval has to name: no ledger, if it is from before they did.

    It is from before if it was on record here before any approval that names a ledger.
    """
    for each in place.recorded(RECORDED):
        told = getattr(each, "envelope", "")
        named = LEDGER in names_of(told)
        if named or told == envelope:
            return {k: v for k, v in subjects.items() if named or k != LEDGER}
    return dict(subjects)


def signed(envelope: str) -> str:
    """Return the SHA-256 of what the envelope's signatures sign."""
    return hashlib.sha256(payload_of(envelope)).hexdigest()


def uuid_of(text: str | None) -> UUID:
    """Return a proposal's id; raise ApprovalError for what is none."""
    try:
        return UUID(text or "")
    except ValueError as e:
        raise ApprovalError(f"{text!r} is not a proposal id") from e
