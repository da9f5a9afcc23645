"""What there is to tell of a line and its proposals, in plain values and as text."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import structs

from aggregates.improvement.line import Alarm
from aggregates.improvement.proposal import Proposal
from judge.gauntlet import shown
from judge.gauntlet.controller import Controller
from ledger.application import LedgerApplication
from ledger.recording.recorders import EntryRecorder, OfStream
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from policies.asking.settings import ModelSettings
from policies.proposing.tuner import Tally
from proctor.cli.remedies import pasteable
from proctor.improvement import shapes
from proctor.improvement.shapes import AdviceRound, ChainLink, EvolutionRound, Line, Queued
from proctor.output.columns import Shows, field, fields
from proctor.output.summaries import tell_entry
from proctor.output.terminal import cell, print_rows, print_table, print_words

_SHORT = 12  # characters of a hash
_REASON = 160  # characters of a round's
_CHAIN: Mapping[str, Shows] = {
    "checkpoint": lambda each: each.checkpoint[:8],
    "parent": lambda each: (each.parent or "-")[:8],
    "commit": lambda each: each.commit[:_SHORT],
    "proposals": lambda each: ", ".join(name[:8] for name in each.proposals) or "-",
    "state": lambda each: "active" if each.active else each.rolled_back or "",
}
_QUEUE: Mapping[str, Shows] = {
    "proposal": lambda each: each.proposal[:8],
    "tier": "tier",
    "stage": "stage",
    "waits for": lambda each: each.waits_for or "nothing",
}


def describe_line(controller: Controller, *, server: ModelSettings | None = None) -> Line:
    """Return the line: its chain of checkpoints, what stops it, and what is queued.

    `server`: the model that answers its tasks for one.
    """
    line = controller.line
    place = controller.place
    head = place.repository.head(place.branch)
    return Line.of(
        line,
        line=str(line.id),
        branch=place.branch,
        head=head,
        checkpoint=line.active,
        at_checkpoint=head == line.head.commit,
        halted=line.halt,
        valley=line.valley
        and {name: value for name, value in line.valley.items() if name != "envelope"},
        server=None if server is None else server.to_dict(),
        open_alarms=list(line.open_alarms.values()),
        checkpoints=[
            ChainLink.of(each, checkpoint=each.id, active=each.id == line.active)
            for each in line.checkpoints.values()
        ],
        queue=[Queued.told(each, waits_for=controller.waits(each)) for each in controller.queue()],
    )


def entries_of(log: LedgerApplication, stream: UUID) -> list[VerifiedEntry]:
    """Return the entries of a stream."""
    recorder = log.recorder
    assert isinstance(recorder, EntryRecorder), "a ledger's recorder has entries"
    query = OfStream(stream=stream.bytes, gt=None, lte=None, desc=False, limit=None)
    return list(recorder.entries(query))


def tell_line(told: Line) -> None:
    """Print a line for people."""
    print_words(
        f"line {told.line}: branch {told.branch} at {told.head[:_SHORT]}, "
        f"{counted(len(told.checkpoints), 'checkpoint')}, "
        f"{counted(told.alarms, 'alarm')}"
    )
    if not told.at_checkpoint:
        text = "the branch is NOT at its active checkpoint; see `proctor line run --measure`"
        print_words(pasteable(text))
    if told.halted:
        print_words(f"HALTED by {told.halted_by}: {told.halted}")
    tell_alarms(told.open_alarms)
    if told.server:
        print_words(f"tasks for a model are answered by {told.server['model']}")
    if told.valley:
        passed, steps = told.valley["passed"], counted(len(told.valley["steps"]), "step")
        print_words(f"valley {told.valley['id'][:_SHORT]}: {passed} of {steps}")
    print_rows(_CHAIN, told.checkpoints)
    if told.queue:
        print_rows(_QUEUE, told.queue)


def tell_rounds(
    rounds: Sequence[EvolutionRound] | Sequence[AdviceRound],
    board: Mapping[str, Tally],
    *,
    about: str,
) -> None:
    """Print rounds of proposing, with the column that says what each was about; and the board."""
    reason = field("reason", lambda each: str(each.reason or "")[:_REASON])  # odd events
    print_rows([*fields("round", "outcome", "technique", about), reason], rounds)
    for name, tally in board.items():
        said = f"{name}: {tally.wins} won, {tally.losses} lost, {tally.ties} neither"
        print_words(said)


def tell_alarms(alarms: Collection[Alarm]) -> None:
    """Print what waits for an operator's answer."""
    for each in alarms:
        print_words(f"ALARM {each.number}, {each.kind}: {each.detail}")
    if alarms:
        text = "look into them, then: `proctor line sign answer ALARM --note TEXT --key KEY`"
        print_words(pasteable(text))


def tell_proposal(controller: Controller, proposal: Proposal, *, diff: bool) -> None:
    """Print a proposal for people: who wants what, why, and what became of it."""
    told = structs.asdict(shapes.Proposal.told(proposal))
    rows = [(name, cell_of(value)) for name, value in told.items() if value not in (None, [], "")]
    print_table(("", ""), rows)
    if diff:
        print_words(applied(controller, proposal))


def applied(controller: Controller, proposal: Proposal) -> str:
    """Return what a proposal does to the files, whatever its diff looks like; or why nothing."""
    return shown.applied(controller.place.repository, controller.place.blobs, proposal)


def tell_events(log: LedgerApplication, stream: UUID) -> None:
    """Print the events of a stream."""
    rows = [(each.index, each.name, tell_entry(each)) for each in entries_of(log, stream)]
    print_table(("entry", "event", "what it says"), rows)


def cell_of(value: Any) -> str:
    """Return a value of a description as one cell."""
    if isinstance(value, dict):
        return ", ".join(f"{name} (tier {tier})" for name, tier in value.items())
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return cell(value)
