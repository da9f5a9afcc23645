"""Recorded approvals of operators: what each must refer to, and its effect.

An approval is recorded as the signed envelope. The controller acts on it and records that as
another event.

Source: docs/reference/gauntlet.md, "Approvals".
Trust: envelopes are hostile; keys count while the ledger says that they are operators'.
I/O: the workplace.  Units: seconds.
"""

from aggregates.improvement.line import Line
from aggregates.improvement.proposal import REVIEWS, Proposal
from judge.approvals import BATCH, LEDGER, TEXT_SHOWN, read_approval
from judge.errors import ApprovalError
from judge.gauntlet import batches
from judge.gauntlet.batches import (
    checked,
    line_subjects,
    on_record,
    record_word,
    signed,
    uuid_of,
)
from judge.gauntlet.workplace import Workplace


def record_review(place: Workplace, envelope: str) -> Proposal:
    """Record an operator's approve, reject or revise; ApprovalError where it does not count."""
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
    """Raise ApprovalError unless an approval of the proposal is on record and counts now."""
    if proposal.review != "approve" or proposal.envelope is None:
        raise ApprovalError("an operator must approve it")
    said = read_approval(proposal.envelope, operators=place.operators())
    if said.kind == BATCH:
        batches.verify_named(place, proposal, base=proposal.base)
        return
    subjects = place.subjects(proposal)
    if TEXT_SHOWN not in said.subjects:
        del subjects[TEXT_SHOWN]  # it was recorded by a version that did not name it
    subjects = on_record(place, proposal.envelope, subjects)
    checked(place, proposal.envelope, "approve", subjects, proposal=str(proposal.id))


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
    approval = checked(place, envelope, "valley", line_subjects(place))
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
    return place.change_line(
        lambda line: line.adopt(
            commit=subjects["commit"],
            tree=subjects["tree"],
            manifest=subjects["manifest"],
            reference_set=subjects["reference_set"],
            envelope=envelope,
            code=place.code(subjects["commit"]),
        )
    )


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
    return {
        "base": active.commit,
        "base_tree": active.tree,
        "commit": commit,
        LEDGER: place.ledger,
        "tree": place.repository.tree_of(commit),
        "manifest": place.manifest(commit).sha256,
        "reference_set": place.reference_set(commit).sha256,
    }
