"""Proposals that an operator reads and signs on another machine, where there is no ledger.

A folder has one folder for each proposal: `proposal.json`, which names every digest to be signed;
`change.diff`; and `applied.diff`, which shows what the diff does. A signature is `review.json`
beside them, and one for several proposals `batch/review.json`.

Trust: a folder is hostile until read_carried() returns: it shows what the digests name.
I/O: reads and writes the folder.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from judge.approvals import BATCH, SUBJECTS, TEXT_SHOWN
from judge.errors import JudgeError
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller
from judge.gauntlet.shown import digest_of_shown, facts
from ledger.wording import counted
from proctor.cli.command_group import Output
from proctor.errors import ProctorError
from proctor.home import find_named
from proctor.improvement.reports import applied
from proctor.inputs import read_text

_PROPOSAL, _DIFF, _APPLIED, _REVIEW = "proposal.json", "change.diff", "applied.diff", "review.json"
_BATCH = "batch"  # folder of the signature for several proposals
Envelope = Callable[..., str]  # as Signing.envelope()


@dataclass(frozen=True)
class _Carried:
    """A proposal in a folder."""

    folder: Path
    line: str
    subjects: dict[str, str]  # what is to be signed


def export_pending(controller: Controller, folder: Path) -> Output:
    """Write what waits for an operator to a folder."""
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


def sign_there(envelope: Envelope, kind: str, names: Sequence[str], pending: Path) -> Output:
    """Sign in such a folder, by default for all proposals; several are approved by one signature.

    Raises ProctorError unless the folder shows what the digests name.
    """
    known = sorted(path.parent.name for path in pending.glob(f"*/{_PROPOSAL}"))
    if not known:
        raise ProctorError(
            f"there is no */{_PROPOSAL} in {pending}; `proctor line show --list waiting --out "
            f"{pending}` writes them, where the ledger is"
        )
    read = [_read(pending, name, known) for name in names or known]
    files = []
    if kind == "approve" and len(read) > 1:
        files.append(pending / _BATCH / _REVIEW)
        files[0].parent.mkdir(exist_ok=True)
        said = envelope(BATCH, line=read[0].line, subjects=_of_batch(read, pending))
        files[0].write_text(said, encoding="utf-8")
    else:
        for each in read:
            said = envelope(kind, line=each.line, proposal=each.folder.name, subjects=each.subjects)
            files.append(each.folder / _REVIEW)
            files[-1].write_text(said, encoding="utf-8")
    signed = [each.folder.name for each in read]
    return Output(
        {"signed": kind, "proposals": signed, "files": files},
        f"signed {kind} for {counted(len(signed), 'proposal')} in {', '.join(map(str, files))}; "
        "carry it back: `proctor line sign import DIR`",
    )


def import_reviews(controller: Controller, folder: Path) -> Output:
    """Record the signatures in a folder that came back."""
    files = sorted(folder.glob(f"*/{_REVIEW}"))
    if not files:
        raise ProctorError(f"there is no */{_REVIEW} in {folder}")
    rows = [_imported(controller, file) for file in files]
    lines = [f"{row['proposal'] or row['file']}: {row['error'] or row['review']}" for row in rows]
    return Output(rows, "\n".join(lines), found=any(row["error"] for row in rows))


def _imported(controller: Controller, file: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"file": file, "proposal": None, "review": None, "error": None}
    try:
        said = read_text(file)
        if file.parent.name == _BATCH:
            names = [str(each.id) for each in reviews.record_batch(controller.place, said)]
            return row | {"proposal": ", ".join(names), "review": "approve"}
        found = reviews.record_review(controller.place, said)
        return row | {"proposal": str(found.id), "review": found.review}
    except JudgeError as error:
        return row | {"error": str(error)}


def _of_batch(read: Sequence[_Carried], pending: Path) -> dict[str, str]:
    """Return what one signature for several proposals is about."""
    whole: dict[str, str] = {}
    for each in read:
        of_line = {name: each.subjects.get(name, "") for name in SUBJECTS[BATCH]}
        if any(whole.get(name, value) != value for name, value in of_line.items()):
            raise ProctorError(f"{each.folder} does not begin at the same base as the others")
        whole |= of_line | reviews.named_in_batch(each.folder.name, each.subjects)
    if len({each.line for each in read}) != 1:
        raise ProctorError(f"{pending} does not hold the proposals of one line")
    return whole


def _read(pending: Path, name: str, known: Sequence[str]) -> _Carried:
    """Return a proposal; raise ProctorError unless the folder shows what the digests name."""
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
    return _Carried(folder, line, subjects)
