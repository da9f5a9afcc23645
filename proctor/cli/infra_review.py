"""An operator's words on a line: what waits for them, and each as a signature.

Proposals and words travel as files, too: `export-pending` writes a folder that can be carried to an
operator's own machine, where `approve --pending` and its like sign without a ledger, and
`import-reviews` takes back what was signed.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from aggregates.improvement.proposal import Proposal
from judge.approvals import (
    BATCH,
    MOST_DAYS,
    SUBJECTS,
    TEXT_SHOWN,
    make_approval,
    sign,
)
from judge.errors import JudgeError
from judge.gauntlet import batches, reviews
from judge.gauntlet.controller import Controller
from judge.gauntlet.shown import digest_of_shown, facts
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.inputs import read_private_key, read_text
from proctor.cli.options import OperatorKeyOption
from proctor.cli.remedies import pasteable
from proctor.errors import ProctorError
from proctor.home import find_named
from proctor.improvement.home import (
    LineOptions,
    find_proposal,
)
from proctor.improvement.reports import (
    applied,
    describe_proposal,
    tell_alarms,
    tell_proposal,
)
from proctor.output.terminal import console, words

app = CommandGroup()

_DAY = 86_400  # s
_PROPOSAL, _DIFF, _REVIEW = "proposal.json", "change.diff", "review.json"
_BATCH = "batch"  # folder of the signature for several proposals
_APPLIED = "applied.diff"  # what the diff does, told by us
DaysOption = Annotated[
    int, typer.Option("--days", min=1, max=MOST_DAYS, help="How long the signature is valid.")
]
PendingOption = Annotated[
    Path | None,
    typer.Option(
        "--pending", help="Folder written by `export-pending`; sign there, without a ledger."
    ),
]


ReadArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROPOSAL",
        help="An id or the start of an id; optional with --pending, if the folder has only one.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Signing:
    """An operator who signs, with a comment."""

    key: OperatorKeyOption
    note: Annotated[str, typer.Option("--note", help="Comment.")] = ""

    def envelope(
        self,
        kind: str,
        *,
        line: UUID | str,
        subjects: dict[str, str],
        proposal: UUID | str | None = None,
        steps: tuple[str, ...] = (),
        days: int = 1,
    ) -> str:
        """Return the signed word of this kind on exactly these subjects."""
        payload = make_approval(
            kind,
            line=str(line),
            proposal=None if proposal is None else str(proposal),
            subjects=subjects,
            steps=steps,
            expires=int(time.time()) + days * _DAY,
            note=self.note,
        )
        return sign(payload, read_private_key(self.key))


@app.command(long=True, prints="list[improvement.Carried]")
def review(where: LineOptions) -> Iterator[Output]:
    """Show what waits for an operator: alarms, and proposals with their diffs."""
    with where.open() as controller:
        pending = controller.pending()

        def tell() -> None:
            for each in pending:
                tell_proposal(controller, each, diff=True)
            tell_alarms(
                [vars(alarm) for alarm in controller.line.open_alarms.values()], named=pasteable
            )
            console.print(f"{len(pending)} wait; approve, reject or revise PROPOSAL --key KEY")

        yield Output([_carried(controller, each) for each in pending], tell)


def _add_word(kind: str, help: str) -> None:  # noqa: A002 - as Typer calls it
    """Add the command by which an operator says a word of a proposal."""

    @app.command(kind, help=help, prints="improvement.Proposal | improvement.Signed")
    def say(
        where: LineOptions,
        signing: Signing,
        proposal: ReadArgument = None,
        days: DaysOption = 7,
        pending: PendingOption = None,
    ) -> Output:
        if pending is not None:
            return _sign_there(signing, kind, proposal, pending, days=days)
        if proposal in (None, "latest"):  # another may have come since the operator looked
            raise ProctorError(
                f"give the id of the proposal that you have read, or its beginning, as in `proctor "
                f"infra {kind} 1b2c3d`; `proctor infra review` shows what waits"
            )
        with where.open() as controller:
            found = controller.place.proposal(find_proposal(controller, proposal))
            subjects = controller.place.subjects(found)
            said = signing.envelope(
                kind, line=found.line, proposal=found.id, subjects=subjects, days=days
            )
            found = controller.review(said)
            if kind != "approve":
                found = controller.carry_on(found.id)
        then = found.outcome or "approved; continue with `proctor infra run`"
        return Output(describe_proposal(found), f"{found.id}: {then}")


@app.command("approve-batch", prints="list[improvement.Proposal] | improvement.Signed")
def approve_batch(
    where: LineOptions,
    signing: Signing,
    proposals: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROPOSAL", help="Ids or their starts; with --pending, by default all."
        ),
    ] = None,
    days: DaysOption = 7,
    pending: PendingOption = None,
) -> Output:
    """Approve several tier 1 proposals with one signature; each is judged alone."""
    if pending is not None:
        return _sign_batch_there(signing, proposals, pending, days=days)
    if not proposals or "latest" in proposals:
        raise ProctorError(
            "give the ids of the proposals that you have read, or their beginnings; `proctor infra "
            "review` shows what waits"
        )
    with where.open() as controller:
        place = controller.place
        found = [place.proposal(find_proposal(controller, each)) for each in proposals]
        subjects = batches.batch_subjects(place, found)
        said = signing.envelope(BATCH, line=controller.line.id, subjects=subjects, days=days)
        approved = controller.approve_batch(said)
    told = [describe_proposal(each) for each in approved]
    count = counted(len(approved), "proposal")
    return Output(told, f"{count} approved; continue with `proctor infra run`")


_add_word("approve", "Approve a tier 1 proposal: exactly this diff, on exactly this base.")
_add_word("reject", "Reject a proposal; it stays on record.")
_add_word("revise", "Reject a proposal and ask for a different one in the note.")


@app.command(prints="improvement.Resumed")
def resume(where: LineOptions, signing: Signing, days: DaysOption = 7) -> Output:
    """Resume a line that was halted by a proposal that touched the judge."""
    with where.open() as controller:
        line = controller.line
        if line.halted_by is None:
            raise ProctorError("the line is not halted")
        halting = controller.place.proposal(UUID(line.halted_by))
        subjects = controller.place.subjects(halting)
        controller.resume(
            signing.envelope(
                "resume", line=line.id, proposal=halting.id, subjects=subjects, days=days
            )
        )
    return Output({"line": str(line.id), "resumed": str(halting.id)}, "the line is resumed")


@app.command(prints="improvement.ValleyOpened")
def valley(
    where: LineOptions,
    signing: Signing,
    diffs: Annotated[
        list[Path], typer.Argument(metavar="DIFF...", help="Proposals of the steps, in order.")
    ],
    days: DaysOption = 7,
) -> Output:
    """Suspend the comparison for listed steps; the last must beat the starting point."""
    steps = tuple(sha256(read_text(diff).encode()).hexdigest() for diff in diffs)
    with where.open() as controller:
        subjects = batches.line_subjects(controller.place)
        line = controller.line.id
        controller.open_valley(
            signing.envelope("valley", line=line, subjects=subjects, steps=steps, days=days)
        )
    return Output(
        {"line": str(line), "steps": steps},
        f"a valley of {counted(len(steps), 'step')} is open; propose them in their order",
    )


@app.command(prints="improvement.Adopted")
def adopt(where: LineOptions, signing: Signing) -> Output:
    """Record the commits that people made on the branch as a checkpoint."""
    with where.open() as controller:
        line = controller.line.id
        subjects = reviews.adoption_subjects(controller.place)
        found = controller.adopt(signing.envelope("adopt", line=line, subjects=subjects))
    return Output(
        {"line": str(line), "checkpoint": found.active, "commit": found.head.commit},
        f"checkpoint {found.active} is commit {found.head.commit}",
    )


@app.command("export-pending", prints="improvement.PendingFolder")
def export_pending(
    where: LineOptions,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
) -> Output:
    """Export what waits for an operator to a folder, to sign elsewhere."""
    with where.open() as controller:
        pending = controller.pending()
        for each in pending:
            place = folder / str(each.id)
            place.mkdir(parents=True, exist_ok=True)
            (place / _DIFF).write_bytes(controller.place.blobs.get(each.diff))
            (place / _APPLIED).write_text(applied(controller, each) + "\n", encoding="utf-8")
            carried = {**facts(each), "subjects": controller.place.subjects(each)}
            text = json.dumps(carried, indent=1, sort_keys=True)
            (place / _PROPOSAL).write_text(text + "\n", encoding="utf-8")
    return Output(
        {"folder": folder, "proposals": [str(each.id) for each in pending]},
        f"{counted(len(pending), 'proposal')} in {folder}",
    )


@app.command("import-reviews", prints="list[improvement.Import]")
def import_reviews(
    where: LineOptions,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The signed folder.")],
) -> Output:
    """Import operators' signatures; exit code 1 if any is invalid."""
    files = sorted(folder.glob(f"*/{_REVIEW}"))
    if not files:
        raise ProctorError(f"there is no */{_REVIEW} in {folder}")
    rows: list[dict[str, Any]] = []
    with where.open() as controller:
        for file in files:
            row: dict[str, Any] = {"file": file, "proposal": None, "review": None, "error": None}
            try:
                said = read_text(file)
                if file.parent.name == _BATCH:
                    names = [str(each.id) for each in controller.approve_batch(said)]
                    row |= {"proposal": ", ".join(names), "review": "approve"}
                else:
                    found = controller.review(said)
                    row |= {"proposal": str(found.id), "review": found.review}
            except JudgeError as error:
                row["error"] = str(error)
            rows.append(row)

    def tell() -> None:
        for row in rows:
            console.print(
                words(f"{row['proposal'] or row['file']}: {row['error'] or row['review']}")
            )

    return Output(rows, tell, found=any(row["error"] for row in rows))


def _sign_there(
    signing: Signing, kind: str, name: str | None, pending: Path, *, days: int
) -> Output:
    """Sign in a folder of export-pending, if what it shows is what its digests name."""
    known = _exported(pending)
    if name in (None, "latest") and len(known) == 1:
        (name,) = known
    folder, line, subjects = _read_there(pending, name or "")
    proposal = folder.name
    said = signing.envelope(kind, line=line, proposal=proposal, subjects=subjects, days=days)
    (folder / _REVIEW).write_text(said, encoding="utf-8")
    return Output(
        {"signed": kind, "proposal": proposal, "file": folder / _REVIEW},
        f"signed {kind} in {folder / _REVIEW}; carry it back to import-reviews",
    )


def _sign_batch_there(
    signing: Signing, names: list[str] | None, pending: Path, *, days: int
) -> Output:
    """Sign for several proposals of a folder of export-pending at once."""
    read = [_read_there(pending, name) for name in names or _exported(pending)]
    whole: dict[str, str] = {}
    for folder, _, subjects in read:
        of_line = {name: subjects.get(name, "") for name in SUBJECTS[BATCH]}
        if any(whole.get(name, value) != value for name, value in of_line.items()):
            raise ProctorError(f"{folder} does not begin at the same base as the others")
        whole |= of_line | batches.named_in_batch(folder.name, subjects)
    if len({line for _, line, _ in read}) != 1:
        raise ProctorError(f"{pending} does not hold the proposals of one line")
    said = signing.envelope(BATCH, line=read[0][1], subjects=whole, days=days)
    file = pending / _BATCH / _REVIEW
    file.parent.mkdir(exist_ok=True)
    file.write_text(said, encoding="utf-8")
    signed = [folder.name for folder, _, _ in read]
    return Output(
        {"signed": BATCH, "proposals": signed, "file": file},
        f"signed for {counted(len(signed), 'proposal')} in {file}; carry it back to import-reviews",
    )


def _exported(pending: Path) -> list[str]:
    return sorted(path.parent.name for path in pending.glob(f"*/{_PROPOSAL}"))


def _read_there(pending: Path, name: str) -> tuple[Path, str, dict[str, str]]:
    """Return a proposal's folder, its line, and what is to be signed.

    Raises ProctorError unless the folder shows what the digests name.
    """
    known = _exported(pending)
    folder = pending / find_named(known, name, noun="proposal", see=f"{pending} has each of them")
    diff = sha256((folder / _DIFF).read_bytes()).hexdigest()
    try:
        told: Any = json.loads(read_text(folder / _PROPOSAL))
        line, proposal, subjects = told["line"], told["proposal"], dict(told["subjects"])
        named = subjects["diff"]
        changes = read_text(folder / _APPLIED).removesuffix("\n")
        shown = digest_of_shown(told, changes=changes)
    except (KeyError, TypeError, ValueError) as error:
        raise ProctorError(f"{folder / _PROPOSAL} is no exported proposal") from error
    if named != diff:
        raise ProctorError(f"{folder / _DIFF} is not the diff that {_PROPOSAL} names: {named}")
    if told["diff"] != diff or subjects.get(TEXT_SHOWN) != shown:
        raise ProctorError(
            f"{folder / _APPLIED} or {_PROPOSAL} does not show what the digest {TEXT_SHOWN} in "
            f"{_PROPOSAL} names; export the proposal again"
        )
    if proposal != folder.name:
        raise ProctorError(f"{folder / _PROPOSAL} is proposal {proposal!r}, not the folder's")
    return folder, line, subjects


def _carried(controller: Controller, proposal: Proposal) -> dict[str, Any]:
    """Return what an operator has to know of a proposal, with what is to be signed."""
    return {
        **describe_proposal(proposal),
        "line": proposal.line,
        "subjects": controller.place.subjects(proposal),
    }
