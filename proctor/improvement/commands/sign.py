"""`proctor line sign`: an operator's words on a line, each as a signature.

Proposals and words travel as files, too: `line show --list waiting --out` writes a folder that can
be carried to an operator's own machine, where `line sign --pending` signs without a ledger, and
`line sign import` takes back what was signed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from aggregates.improvement.proposal import APPROVED, REVIEWS
from judge.approvals import BATCH, MOST_DAYS, make_approval, sign
from judge.drift.watch import answer
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, OperatorKeyOption, Takes
from proctor.errors import ProctorError
from proctor.improvement.carried import import_reviews, sign_there
from proctor.improvement.home import LineOptions, find_proposal
from proctor.improvement.reports import tell_alarms
from proctor.improvement.shapes import Proposal
from proctor.inputs import operator_key, read_private_key, read_text
from proctor.output.terminal import print_words

app = CommandGroup()

_DAY = 86_400  # s
DaysOption = Annotated[int, "How long the signature is valid.", Takes(least=1, most=MOST_DAYS)]


@dataclass(frozen=True, kw_only=True)
class Signing:
    """An operator who signs, with a comment."""

    key: OperatorKeyOption
    note: Annotated[str, "Comment."] = ""
    days: DaysOption = 7

    def envelope(
        self,
        kind: str,
        *,
        line: UUID | str,
        subjects: dict[str, str],
        proposal: UUID | str | None = None,
        steps: tuple[str, ...] = (),
        days: int | None = None,
    ) -> str:
        """Return the signed word of this kind on exactly these subjects."""
        payload = make_approval(
            kind,
            line=str(line),
            proposal=None if proposal is None else str(proposal),
            subjects=subjects,
            steps=steps,
            expires=int(time.time()) + (days or self.days) * _DAY,
            note=self.note,
        )
        return sign(payload, read_private_key(self.key, role="operator"))


@app.command(
    "sign",
    prints="list[improvement.Proposal] | improvement.Signed | improvement.Resumed "
    "| improvement.Adopted | improvement.ValleyOpened | improvement.Answered "
    "| list[improvement.Import]",
)
def sign_(
    where: LineOptions,
    verdict: Annotated[
        Literal[
            "approve",
            "reject",
            "revise",
            "refactor",
            "resume",
            "adopt",
            "valley",
            "answer",
            "import",
        ],
        "approve (even if it is slower), reject or revise (see --note) PROPOSAL...: one "
        "signature approves several. refactor PROPOSAL...: approve, and promote "
        "it if it is shown to be no worse and no slower. resume: the line was halted, and goes on. "
        "adopt: commits that people made on the branch become a checkpoint. valley DIFF...: "
        "only the last of these steps is compared, with the starting point. answer ALARM: "
        "close it, and restart the sums that led to it. import DIR: record the signatures of "
        "a folder; exit code 1 if one is invalid.",
        Argument("VERDICT"),
    ],
    about: Annotated[
        list[str] | None,
        "Ids or their starts, or what the verdict is about; with --pending, by default "
        "all proposals of the folder.",
        Argument("PROPOSAL"),
    ] = None,
    key: Annotated[
        Path | None,
        "Private key of the operator who signs; `answer` can do with the ledger's own "
        "key, and `import` needs none.",
    ] = None,
    note: Annotated[str, "Comment."] = "",
    days: DaysOption = 7,
    pending: Annotated[
        Path | None,
        "Folder written by `line show --list waiting --out`; sign there, without a ledger.",
    ] = None,
) -> Output:
    """Sign an operator's decision on proposals, the line or an alarm."""
    subjects = about or []
    if pending is not None and verdict not in REVIEWS:
        raise ProctorError(f"--pending is for {', '.join(REVIEWS)}")
    _verify_number(verdict, subjects, pending=pending is not None)
    if verdict == "answer":
        return _answer(where, subjects[0], note, key)
    if verdict == "import":
        with where.open() as controller:
            return import_reviews(controller, Path(subjects[0]))
    if key is None:
        raise ProctorError(f"{verdict} needs --key KEY, the private key of an operator")
    signing = Signing(key=key, note=note, days=days)
    if pending is not None:
        return sign_there(signing.envelope, verdict, subjects, pending)
    act = _ACTS.get(verdict, _review)
    with where.open() as controller:
        return act(controller, signing, verdict, subjects)


def _verify_number(verdict: str, subjects: Sequence[str], *, pending: bool) -> None:
    """Raise ProctorError unless a verdict is about as many things as it can be about."""
    if verdict in REVIEWS:  # another proposal may have come since the operator looked
        if "latest" in subjects or not (subjects or pending):
            raise ProctorError(
                "give the ids of the proposals that you have read, or their beginnings, as in "
                f"`proctor line sign {verdict} 1b2c3d`; `proctor line show --list waiting` shows "
                "what waits"
            )
    elif verdict in ("answer", "import") and len(subjects) != 1:
        what = "the number of one alarm" if verdict == "answer" else "one folder"
        raise ProctorError(f"{verdict} needs {what}")
    elif verdict == "valley" and not subjects:
        raise ProctorError("valley needs the diffs of its steps, in their order")
    elif verdict in ("resume", "adopt") and subjects:
        raise ProctorError(f"{verdict} is about the line; leave out {' '.join(subjects)}")


def _review(controller: Controller, signing: Signing, kind: str, names: Sequence[str]) -> Output:
    place = controller.place
    found = [place.proposal(find_proposal(controller, each)) for each in names]
    if kind == "approve" and len(found) > 1:
        subjects = reviews.batch_subjects(place, found)
        said = signing.envelope(BATCH, line=controller.line.id, subjects=subjects)
        found = reviews.record_batch(controller.place, said)
    else:
        for number, each in enumerate(found):
            subjects = place.subjects(each)
            said = signing.envelope(kind, line=each.line, proposal=each.id, subjects=subjects)
            found[number] = reviews.record_review(controller.place, said)
            if kind not in APPROVED:
                found[number] = controller.carry_on(each.id)
    lines = [
        f"{each.id}: {each.outcome or 'approved; continue with `proctor line run`'}"
        for each in found
    ]
    return Output([Proposal.told(each) for each in found], "\n".join(lines))


def _resume(controller: Controller, signing: Signing, kind: str, _: Sequence[str]) -> Output:
    line = controller.line
    if line.halted_by is None:
        raise ProctorError("the line is not halted")
    halting = controller.place.proposal(UUID(line.halted_by))
    subjects = controller.place.subjects(halting)
    said = signing.envelope(kind, line=line.id, proposal=halting.id, subjects=subjects)
    reviews.resume(controller.place, said)
    return Output({"line": str(line.id), "resumed": str(halting.id)}, "the line is resumed")


def _valley(controller: Controller, signing: Signing, kind: str, diffs: Sequence[str]) -> Output:
    steps = tuple(sha256(read_text(Path(diff)).encode()).hexdigest() for diff in diffs)
    subjects = controller.place.line_subjects(controller.line.head.commit)
    line = controller.line.id
    controller.open_valley(signing.envelope(kind, line=line, subjects=subjects, steps=steps))
    return Output(
        {"line": str(line), "steps": steps},
        f"a valley of {counted(len(steps), 'step')} is open; propose them in their order",
    )


def _adopt(controller: Controller, signing: Signing, kind: str, _: Sequence[str]) -> Output:
    line = controller.line.id
    subjects = reviews.adoption_subjects(controller.place)
    found = controller.adopt(signing.envelope(kind, line=line, subjects=subjects))
    return Output(
        {"line": str(line), "checkpoint": found.active, "commit": found.head.commit},
        f"checkpoint {found.active} is commit {found.head.commit}",
    )


_ACTS: Mapping[str, Callable[[Controller, Signing, str, Sequence[str]], Output]] = {
    "adopt": _adopt,
    "resume": _resume,
    "valley": _valley,
}


def _answer(where: LineOptions, alarm: str, note: str, key: Path | None) -> Output:
    if not note:
        raise ProctorError("answer needs --note TEXT: what you found, and what you did")
    author = operator_key(key)
    with where.open() as controller, controller.locked():
        place = controller.place
        known = {str(number): number for number in place.line().open_alarms}
        if alarm not in known:
            raise ProctorError(f"alarm {alarm} is not open; open: {', '.join(known) or 'none is'}")
        answered = answer(place, known[alarm], note, author=author)
        left = [*answered.open_alarms.values()]

    def tell() -> None:
        print_words(f"alarm {alarm} is answered")
        tell_alarms(left)

    return Output({"answered": known[alarm], "open": left}, tell)
