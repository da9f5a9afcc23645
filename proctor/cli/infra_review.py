"""An operator's words on a line: what waits for them, and each as a signature.

Proposals and words travel as files, too: `export-pending` writes a folder that can be carried to an
operator's own machine, where `approve --pending` and its like sign without a ledger, and
`import-reviews` takes back what was signed.
"""

import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregates.improvement.proposal import Proposal
from judge.gauntlet import anchors, reviews
from judge.gauntlet.approvals import MOST_DAYS, make_approval, sign
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError
from proctor.cli.commands import read_text
from proctor.cli.keys import read_private_key
from proctor.cli.options import HOME, HomeOption, JsonOption, OperatorKeyOption
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from proctor.home import Home, find_named
from proctor.improvement.home import (
    BRANCH,
    HERE,
    BranchOption,
    ProposalArgument,
    RepoOption,
    find_proposal,
    hidden_folder,
    open_controller,
)
from proctor.improvement.reports import applied, describe_proposal, tell_alarms, tell_proposal
from proctor.output.terminal import console, counted, print_json, words

app = typer.Typer()

_DAY = 86_400  # s
_PROPOSAL, _DIFF, _REVIEW = "proposal.json", "change.diff", "review.json"
_APPLIED = "applied.diff"  # what the diff does, told by us
DaysOption = Annotated[
    int, typer.Option("--days", min=1, max=MOST_DAYS, help="How long the signature is valid.")
]
NoteOption = Annotated[str, typer.Option("--note", help="Comment.")]
PendingOption = Annotated[
    Path | None,
    typer.Option("--pending", help="Folder of export-pending: sign there, without a ledger."),
]


@app.command()
def review(
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what waits for an operator: alarms, and proposals with their diffs."""
    with open_controller(Home(home), repo, branch=branch) as controller:
        pending = controller.pending()
        if as_json:
            print_json([_carried(controller, each) for each in pending])
        else:
            for each in pending:
                tell_proposal(controller, each, diff=True)
            tell_alarms([vars(alarm) for alarm in controller.line.open_alarms.values()])
            console.print(f"{len(pending)} wait; approve, reject or revise PROPOSAL --key KEY")
    raise typer.Exit(EXIT_HELD)


@app.command()
def approve(
    key: OperatorKeyOption,
    proposal: ProposalArgument = "latest",
    days: DaysOption = 7,
    note: NoteOption = "",
    pending: PendingOption = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Approve a tier 1 proposal: exactly this diff, on exactly this base."""
    said = _Word("approve", key=read_private_key(key), days=days, note=note)
    _say(said, proposal, pending=pending, home=Home(home), repo=repo, branch=branch)


@app.command()
def reject(
    key: OperatorKeyOption,
    proposal: ProposalArgument = "latest",
    days: DaysOption = 7,
    note: NoteOption = "",
    pending: PendingOption = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Reject a proposal; it stays on record."""
    said = _Word("reject", key=read_private_key(key), days=days, note=note)
    _say(said, proposal, pending=pending, home=Home(home), repo=repo, branch=branch)


@app.command()
def revise(
    key: OperatorKeyOption,
    proposal: ProposalArgument = "latest",
    days: DaysOption = 7,
    note: NoteOption = "",
    pending: PendingOption = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Reject a proposal and ask for a different one in the note."""
    said = _Word("revise", key=read_private_key(key), days=days, note=note)
    _say(said, proposal, pending=pending, home=Home(home), repo=repo, branch=branch)


@app.command()
def resume(
    key: OperatorKeyOption,
    days: DaysOption = 7,
    note: NoteOption = "",
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Resume a line that was halted by a proposal that touched the judge."""
    said = _Word("resume", key=read_private_key(key), days=days, note=note)
    with open_controller(Home(home), repo, branch=branch) as controller:
        line = controller.line
        if line.halted_by is None:
            raise ProctorError("the line is not halted")
        place = controller.place
        halting = place.proposal(UUID(line.halted_by))
        subjects = place.subjects(halting)
        controller.resume(said.about(line=line.id, proposal=halting.id, subjects=subjects))
    _done("the line goes on")


@app.command()
def valley(
    key: OperatorKeyOption,
    diffs: Annotated[
        list[Path], typer.Argument(metavar="DIFF...", help="Proposals of the steps, in order.")
    ],
    days: DaysOption = 7,
    note: NoteOption = "",
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Suspend the comparison for listed steps; the last must beat the starting point."""
    said = _Word("valley", key=read_private_key(key), days=days, note=note)
    steps = tuple(sha256((read_text(diff) or "").encode()).hexdigest() for diff in diffs)
    with open_controller(Home(home), repo, branch=branch) as controller:
        subjects = reviews.line_subjects(controller.place)
        line = controller.line.id
        controller.open_valley(said.about(line=line, subjects=subjects, steps=steps))
    _done(f"a valley of {counted(len(steps), 'step')} is open; propose them in their order")


@app.command()
def adopt(
    key: OperatorKeyOption,
    note: NoteOption = "",
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Record the branch as people have moved it, as a checkpoint."""
    said = _Word("adopt", key=read_private_key(key), days=1, note=note)
    with open_controller(Home(home), repo, branch=branch) as controller:
        line = controller.line.id
        subjects = reviews.adoption_subjects(controller.place)
        found = controller.adopt(said.about(line=line, subjects=subjects))
    _done(f"checkpoint {found.active} is commit {found.head.commit}")


@app.command()
def admit(
    key: OperatorKeyOption,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Task from the list of `anchors`.")],
    into: Annotated[
        Path, typer.Option("--into", help="Folder of the reference set, in your work tree.")
    ],
    note: NoteOption = "",
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Make a task an anchor permanently: sign it, and write it into a work tree."""
    said = _Word("admit", key=read_private_key(key), days=1, note=note)
    place = Home(home)
    with open_controller(place, repo, branch=branch) as controller:
        line = controller.line
        folder = hidden_folder(place, line.id)
        hidden = () if folder is None else controller.place.set_in(folder).tasks
        listed = anchors.candidates(controller.place, controller.records, hidden=hidden)
        found = next((each for each in listed if each.task == task), None)
        if found is None or found.sha256 is None:
            raise ProctorError(f"{task!r} found no regression; see `proctor infra anchors`")
        own = controller.place.reference_set(line.head.commit).tasks
        content = next(each for each in (*own, *hidden) if each.task_id == task)
        envelope = said.about(line=line.id, subjects={"task": found.sha256})
        reviews.admit(controller.place, envelope, task=task, sha256=found.sha256)
        anchors.write_anchor(content, into, because=found.because[0])
    _done(f"{task} is written into {into}; commit it, and `proctor infra adopt` that commit")


@app.command("export-pending")
def export_pending(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Export what waits for an operator to a folder, to sign elsewhere."""
    with open_controller(Home(home), repo, branch=branch) as controller:
        pending = controller.pending()
        for each in pending:
            place = folder / str(each.id)
            place.mkdir(parents=True, exist_ok=True)
            (place / _DIFF).write_bytes(controller.place.blobs.get(each.diff))
            (place / _APPLIED).write_text(applied(controller, each) + "\n", encoding="utf-8")
            text = json.dumps(_carried(controller, each), indent=1, sort_keys=True)
            (place / _PROPOSAL).write_text(text + "\n", encoding="utf-8")
    _done(f"{counted(len(pending), 'proposal')} in {folder}")


@app.command("import-reviews")
def import_reviews(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The signed folder.")],
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
) -> None:
    """Import operators' signatures; exit code 1 if any is invalid."""
    refused = 0
    with open_controller(Home(home), repo, branch=branch) as controller:
        files = sorted(folder.glob(f"*/{_REVIEW}"))
        for file in files:
            try:
                found = controller.review(read_text(file) or "")
            except GauntletError as error:
                refused += 1
                console.print(words(f"{file}: {error}"))
                continue
            console.print(words(f"{found.id}: {found.review}"))
    if not files:
        raise ProctorError(f"there is no */{_REVIEW} in {folder}")
    raise typer.Exit(EXIT_FOUND if refused else EXIT_HELD)


class _Word:
    """One word of an operator, to be said of something."""

    def __init__(self, kind: str, *, key: Ed25519PrivateKey, days: int, note: str) -> None:
        self.kind = kind
        self._key = key
        self._expires = int(time.time()) + days * _DAY
        self._note = note

    def about(
        self,
        *,
        line: UUID | str,
        subjects: dict[str, str],
        proposal: UUID | str | None = None,
        steps: tuple[str, ...] = (),
    ) -> str:
        """Return the envelope that says it of exactly this."""
        payload = make_approval(
            self.kind,
            line=str(line),
            proposal=None if proposal is None else str(proposal),
            subjects=subjects,
            steps=steps,
            expires=self._expires,
            note=self._note,
        )
        return sign(payload, self._key)


def _say(
    said: _Word, name: str, *, pending: Path | None, home: Home, repo: Path, branch: str
) -> None:
    """Say a word of a proposal: on record here, or in a folder to be carried back."""
    if pending is not None:
        _done(_sign_there(said, name, pending))
    with open_controller(home, repo, branch=branch) as controller:
        proposal = controller.place.proposal(find_proposal(controller, name))
        envelope = said.about(
            line=proposal.line,
            proposal=proposal.id,
            subjects=controller.place.subjects(proposal),
        )
        found = controller.review(envelope)
        if said.kind != "approve":
            found = controller.carry_on(found.id)
    _done(f"{found.id}: {found.outcome or 'approved; `proctor infra run` carries on'}")


def _sign_there(said: _Word, name: str, pending: Path) -> str:
    """Sign in a folder of export-pending, having looked that its diff is the one that is named."""
    known = sorted(path.parent.name for path in pending.glob(f"*/{_PROPOSAL}"))
    if name == "latest" and len(known) == 1:
        (name,) = known
    folder = pending / find_named(known, name, noun="proposal", see=f"{pending} has each of them")
    diff = sha256((folder / _DIFF).read_bytes()).hexdigest()
    try:
        told: Any = json.loads(read_text(folder / _PROPOSAL) or "")
        line, proposal, subjects = told["line"], told["proposal"], dict(told["subjects"])
        named = subjects["diff"]
    except (KeyError, TypeError, ValueError) as error:
        raise ProctorError(f"{folder / _PROPOSAL} is no exported proposal") from error
    if named != diff:
        raise ProctorError(f"{folder / _DIFF} is not the diff that {_PROPOSAL} names: {named}")
    envelope = said.about(line=line, proposal=proposal, subjects=subjects)
    (folder / _REVIEW).write_text(envelope, encoding="utf-8")
    return f"signed {said.kind} in {folder / _REVIEW}; carry it back to import-reviews"


def _carried(controller: Controller, proposal: Proposal) -> dict[str, Any]:
    """Return what an operator has to know of a proposal, with what is to be signed."""
    return {
        **describe_proposal(proposal),
        "line": proposal.line,
        "subjects": controller.place.subjects(proposal),
    }


def _done(text: str) -> None:
    console.print(words(text))
    raise typer.Exit(EXIT_HELD)
