"""`proctor verify` of a file or a model handed over: proof, lineage, report, evidence.

I/O: reads what is verified.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from msgspec.structs import asdict, replace

from ledger.errors import ContradictionError, EvidenceError, SignatureError, VerificationError
from ledger.handover.bundle_check import is_bundle
from ledger.handover.proof_files import ProvedEntry, open_proofs
from ledger.paths import LedgerPaths
from ledger.verification.verified_notes import open_tree_head, parse_tree_head
from ledger.witnessing.evidence import open_evidence, signers, verify_signers
from ledger.witnessing.quorum import Quorum
from ledger.wording import counted
from proctor.cli.command_group import Output
from proctor.cli.failures import require_extra
from proctor.errors import ProctorError
from proctor.handover import names
from proctor.handover.vouching import Vouched, all_trusted, told_vouched, vouched
from proctor.home import Home
from proctor.inputs import read_octets, read_text
from proctor.output.entries import Entry, describe_entry, print_entry
from proctor.output.shape import Answer
from proctor.output.terminal import (
    console,
    error_console,
    on_one_line,
    print_rows,
    print_table,
    print_words,
    words,
)
from proctor.remembering import recall

if TYPE_CHECKING:
    from judge.lineage.files import OpenedLineage
    from judge.lineage.trace import Lineage
    from ledger.handover.selection import Selection

_PROOF = "c2sp.org/tlog-proof@v1\n"
_DATABASE = b"SQLite format 3\0"
_EVIDENCE = "ledger/evidence/v1\n"
_MOST = 64 << 20  # bytes of a file
_MOST_EXPORT = 1 << 30  # likewise, of training data
_NOT_OF_A_LINEAGE = "that the checkpoint was not rolled back, and the origin not withdrawn, later"
_NOT_OF_AN_EARLIER_LINEAGE = (
    "that the audit shown is the one that counts: an earlier version made this file, which leaves "
    "out what decides it; ask for a new one"
)
_SCORES = ("accuracy_score", "process_score", "test_accuracy")
LEFT_OUT = (
    "that no event was left out: an earlier version made this folder, which has no whole streams. "
    "Another judge, a revoked key or another audit can be missing; ask for a new folder"
)


class Refused(Answer):
    """What was verified is not valid; exit code 1."""

    ok: Literal[False]
    error: str
    error_type: str


class VerifiedProof(Entry):
    """An entry that a proof proves."""

    ok: Literal[True]
    size: int
    author_verified: Literal[False]


class VerifiedProofs(Answer):
    """Entries that the proofs in one file prove, as in a model handed over."""

    ok: Literal[True]
    size: int
    entries: list[Entry]
    author_verified: Literal[False]


class WithVerdicts(Answer):
    """What shows verdicts, and what they are worth."""

    ok: bool
    trusted: bool  # every verdict is signed by the judge that --judge names
    verdicts: list[Vouched]
    not_claimed: list[str]
    as_of: str  # the tree head, and what can be left out


class VerifiedModel(WithVerdicts):
    """A model handed over that is valid."""

    ok: Literal[True]
    run: UUID
    verdict: str
    accuracy_score: float | None
    process_score: float | None
    test_accuracy: float | None
    reservations: list[str]
    reported: dict[str, dict[str, float]]  # by a watched loop of its epochs, and not measured
    violations: int  # that the audit found
    violations_claimed: int  # by the folder's claim
    claim: Literal["exact", "cut_list"]  # cut_list: an earlier version counted the first ones only
    evidence_level: str
    files: dict[str, str]  # name -> SHA-256
    size: int
    origin: str


class VerifiedReport(WithVerdicts):
    """A report, compared with its proved entries; exit code 1 if it was altered."""

    kind: str
    subject: str
    entries: int
    size: int
    altered: list[str]
    unchecked: str  # why it was not compared


class Step(Answer):
    """A step of a lineage."""

    index: int
    event: str
    says: str


class VerifiedLineage(WithVerdicts):
    """A lineage file that is valid."""

    ok: Literal[True]
    size: int
    example: str
    steps: list[Step]


class VerifiedEvidence(Answer):
    """Evidence of a fork or rollback that is valid."""

    ok: Literal[True]
    kind: str
    vkey: str
    sizes: list[int]
    by: list[str]


class SealedFile(Answer):
    """A file with its seal; exit code 1 if part of it is recalled."""

    sealed: Literal[True]
    export: str
    entry: int
    as_of: int
    examples: int
    drawn_again: bool
    to_be_called_back: int


class NotSealed(Answer):
    """A file without a seal; exit code 1."""

    sealed: Literal[False]
    problem: str


def is_handover(place: Path) -> bool:
    """Tell whether a folder is a model handed over."""
    if not names.is_handover(place):
        return False
    if is_bundle(place) or any(LedgerPaths(each).exist for each in (place, place / "ledger")):
        raise ProctorError(
            f"{place} holds a model handed over and a ledger; move one of them to a folder of its "
            "own, and verify each"
        )
    return True


def refused(error: VerificationError) -> Output:
    """Return the answer where a file or a model handed over is not valid."""
    kind, says = type(error).__name__, str(error)
    return Output(
        Refused(ok=False, error=says, error_type=kind),
        lambda: console.print(f"[red]failed[/]: {kind}: {words(says)}"),
        found=True,
    )


def verify_handover(
    folder: Path, *, vkey: str | None, quorum: Quorum | None, judge: str | None
) -> Output:
    """Verify a model handed over."""
    from proctor.handover.card import NOT_CLAIMED  # noqa: PLC0415 - few need it
    from proctor.handover.evidence import says  # noqa: PLC0415 - loads DuckDB
    from proctor.handover.folder import check_handover  # noqa: PLC0415 - loads DuckDB

    opened = check_handover(folder, vkey=vkey)
    evidence, selection = opened.evidence, opened.evidence.selection
    _hold(
        selection,
        selection.vkeys[0],
        quorum,
        given=vkey is not None,
        publisher=opened.publisher,
    )
    found = vouched(selection, [evidence.counting], judge=judge)
    left_out = [LEFT_OUT] if evidence.earlier else []
    left_out += [
        f"what {name} says: this version does not write it so from the events"
        for name in opened.unchecked
    ]
    cut_list, scores = opened.cut_list, says(evidence.scored)
    told = VerifiedModel.of(
        opened,
        evidence,
        {name: scores.get(name) for name in _SCORES},
        evidence.head,
        ok=True,
        trusted=found[0].trusted and not left_out and vkey is not None,
        violations_claimed=evidence.violations if cut_list is None else cut_list,
        claim="exact" if cut_list is None else "cut_list",
        evidence_level=evidence.level,
        verdicts=found,
        not_claimed=[*left_out, *NOT_CLAIMED],
        as_of=selection.as_of,
    )

    def tell() -> None:
        color = {"PASSED": "green" if told.trusted else "yellow", "WARNED": "yellow"}
        console.print(
            f"{_held(told)}: the model of run {told.run}, "
            f"{counted(len(told.files), 'signed file')}, under the tree head of "
            f"{counted(told.size, 'entry')} of {words(told.origin)}"
        )
        figures = [f"{name.replace('_', ' ')} {_figure(getattr(told, name))}" for name in _SCORES]
        console.print(
            f"verdict [{color.get(told.verdict, 'red')}]{told.verdict}[/], evidence level "
            f"{words(told.evidence_level)}; {', '.join(figures)}"
        )
        for where, values in told.reported.items():
            said = ", ".join(f"{name} {each:.4g}" for name, each in values.items())
            line = f"reported by the training loop, not measured: {where}: {said or 'nothing'}"
            print_words(on_one_line(line))
        warned = evidence.warnings if told.verdict == "WARNED" else ()
        more = [f"warned: {words(each)}" for each in warned]
        if cut_list is not None:
            more.append(
                f"[yellow]claim counts a cut list[/]: the folder's claim says {cut_list} "
                f"violations, and the audit found {told.violations}"
            )
        _tell_judged(told, more)
        if vkey is None:
            error_console.print(
                "the public key in the folder was trusted: this detects corruption, not forgery; "
                "give the owner's with --vkey"
            )

    return Output(told, tell)


def is_export(path: Path) -> bool:
    """Tell whether a file is JSON Lines, as an export of training data is."""
    with path.open("rb") as file:
        return file.read(1) == b"{" and not is_handover(path.absolute().parent)


def verify_export(path: Path, home: Home) -> Output:
    """Verify an export of training data against its seal in a ledger."""
    if not LedgerPaths(home.ledger).exist:
        raise ProctorError(
            f"{path} is JSON: an export of training data needs the ledger that sealed it; give "
            "--home DIR"
        )
    from judge.curation.recall import recall as called_back  # noqa: PLC0415 - loads DuckDB
    from judge.curation.sealing import verify_file  # noqa: PLC0415 - likewise
    from judge.errors import CurationError  # noqa: PLC0415 - likewise
    from proctor.cli.data import opened  # noqa: PLC0415 - likewise

    home.verify_key()
    content = read_octets(path, most=_MOST_EXPORT)
    with opened(home, None) as tables:
        try:
            sealed = verify_file(tables, content, blobs=home.blobs)
        except CurationError as error:
            problem = str(error)
            told = NotSealed(sealed=False, problem=problem)
            return Output(told, f"not sealed: {problem}", found=True)
        found = list(called_back(tables, blobs=home.blobs, export=sealed["export_id"]))
    seal = SealedFile.of(
        sealed,
        sealed=True,
        export=sealed["export_id"],
        entry=sealed["idx"],
        drawn_again=sealed["drawn"],
        to_be_called_back=len(found),
    )
    return Output(seal, lambda: print_table(("", ""), asdict(seal).items()), found=bool(found))


def verify_file(
    path: Path, *, vkey: str | None, quorum: Quorum | None, judge: str | None
) -> Output:
    """Verify a file by what it is: a proof, a lineage, a report or evidence."""
    with path.open("rb") as file:
        start = file.read(len(_DATABASE))
    if start == _DATABASE:
        name = LedgerPaths(path).database.name
        raise ProctorError(f"{path} is a database; name its folder, where it is called {name}")
    if start.startswith(b"<!DOCTYPE html>"):
        return _verify_report(path, vkey=vkey, quorum=quorum, judge=judge)
    text = read_text(path, most=_MOST)
    if judge is not None and text.startswith((_EVIDENCE, _PROOF)):
        raise ProctorError(
            f"{path} shows no verdict; --judge applies to a model handed over, a report and a "
            "lineage"
        )
    if text.startswith(_EVIDENCE):
        return _verify_evidence(text, path=path, vkey=vkey)
    from judge.lineage.files import TITLES, open_lineage  # noqa: PLC0415 - takes long

    if not text.startswith((_PROOF, *TITLES)):
        folder = path.absolute().parent
        if is_handover(folder):
            raise ProctorError(f"{path} is of a model handed over; name its folder, {folder}")
        raise ProctorError(
            f"{path} is neither a report, a tlog-proof, a lineage, evidence nor an export of "
            "training data"
        )
    if vkey is None:
        raise ProctorError(f"{path} is a proof, which needs the ledger's public key: give --vkey")
    proved = open_proofs(text, vkey=vkey) if text.startswith(_PROOF) else ()
    opened = None if proved else open_lineage(text, vkey=vkey)
    _hold(proved[0] if opened is None else opened.selection, vkey, quorum)
    witnessed = (
        "" if quorum is None or quorum.rule == "none" else ", as its witnesses have cosigned"
    )
    if opened is not None:
        found = vouched(opened.selection, opened.audits, judge=judge)
        return _lineage_held(opened, found, witnessed)
    return _proofs_held(proved, witnessed)


def _verify_report(
    path: Path, *, vkey: str | None, quorum: Quorum | None, judge: str | None
) -> Output:
    """Make a report again from its proved entries, and compare the two."""
    if vkey is None:
        raise ProctorError(f"{path} is a report, which needs the ledger's public key: give --vkey")
    require_extra("report")
    from proctor.reports.pages import check_report  # noqa: PLC0415 - loads DuckDB, and an extra

    checked = check_report(path, vkey=vkey)
    source, subject = checked.source, checked.source.subject
    _hold(source.selection, vkey, quorum)
    found = vouched(source.selection, source.verdicts, judge=judge)
    told = VerifiedReport.of(
        checked,
        subject,
        source.selection.head,
        source.selection,
        subject=subject.id,
        entries=len(source.selection.entries),
        trusted=all_trusted(found) and checked.ok,
        verdicts=found,
        not_claimed=source.not_claimed,
    )
    about = (
        f"{subject.kind} {subject.id}: {counted(told.entries, 'entry')} of "
        f"{told.size} in {words(source.selection.head.origin)}"
    )

    def tell() -> None:
        if told.altered:
            console.print(
                f"[red]altered[/]: the report is not what its proved entries say, {about}"
            )
        elif told.unchecked:
            console.print(f"[yellow]not checked[/]: {words(told.unchecked)}; {about}")
        else:
            console.print(f"{_held(told)}: the whole report follows from {about}")
        for each in told.altered:
            console.print(f"  {words(each)}")
        _tell_judged(told)

    return Output(told, tell, found=not told.ok)


def _held(told: WithVerdicts) -> str:
    """Return the word; green only where the reader knows the judge."""
    return "[green]held[/]" if told.trusted else "held"


def _tell_judged(told: WithVerdicts, more: Sequence[str] = ()) -> None:
    """Print what the verdicts are worth, more lines, and what is not claimed."""
    for line in told_vouched(told.verdicts) or ["no verdict is shown"]:
        console.print(f"[{'green' if told.trusted else 'yellow'}]{words(line)}[/]")
    for line in more:
        console.print(line)
    for each in told.not_claimed:
        console.print(f"not claimed: {words(each)}")
    print_words(told.as_of)


def _figure(score: object) -> str:
    return f"{score:.3f}" if isinstance(score, int | float) else "not measured"


def _lineage_held(opened: "OpenedLineage", found: list[Vouched], witnessed: str) -> Output:
    told = VerifiedLineage.of(
        opened.lineage,
        opened.selection.head,
        opened.selection,
        ok=True,
        steps=steps_of(opened.lineage),
        trusted=all_trusted(found) and not opened.earlier,
        verdicts=found,
        not_claimed=[*[_NOT_OF_AN_EARLIER_LINEAGE] * opened.earlier, _NOT_OF_A_LINEAGE],
    )

    def tell() -> None:
        console.print(
            f"{_held(told)}: {counted(len(opened.lineage.indexes), 'entry')} of "
            f"{told.size} in {words(opened.selection.head.origin)} lead to the example{witnessed}"
        )
        tell_lineage(told.example, told.steps)
        _tell_judged(told)

    return Output(told, tell)


def steps_of(found: "Lineage") -> list[Step]:
    """Return the steps of a lineage."""
    return [
        Step(index=each.entry.index, event=each.entry.name, says=each.says) for each in found.steps
    ]


def tell_lineage(example: str, steps: Sequence[Step]) -> None:
    """Print a lineage, step by step."""
    columns = {"entry": "index", "event": "event", "says": "says"}
    print_rows(columns, steps, title=f"example {example}")


def _proofs_held(proved: Sequence[ProvedEntry], witnessed: str) -> Output:
    """Tell which entries a file proves; one with several is of a model handed over."""
    head = proved[0].head
    described = [describe_entry(each.entry) for each in proved]
    which = f"entry {proved[0].entry.index}" if len(proved) == 1 else counted(len(proved), "entry")

    def tell() -> None:
        console.print(f"[green]held[/]: {which} of {head.size} in {words(head.origin)}{witnessed}")
        for each in described:
            by = each.author and f"{each.author} (author not verified by this proof)"
            print_entry(replace(each, author=by))

    told: dict[str, Any] = {"ok": True, "size": head.size, "author_verified": False}
    told |= asdict(described[0]) if len(proved) == 1 else {"entries": described}
    return Output(told, tell)


def _hold(
    proved: "ProvedEntry | Selection",
    vkey: str,
    quorum: Quorum | None,
    *,
    given: bool = True,
    publisher: bytes | None = None,
) -> None:
    """Refuse what witnesses have not cosigned, and what contradicts the memory of this key.

    `given`: by the reader, and not read from what is verified. A key that was rotated away can go
    on signing; who remembers the rotation knows. So can the key of a `publisher` that was revoked.
    """
    if quorum is not None:
        quorum.verify_log(vkey)
        quorum.verify(proved.head.note)
    recalled = recall(vkey, given=given)
    if recalled is None:
        return
    authority = recalled.state.stands(recalled.vkey)
    head = proved.head
    if publisher is not None and any(
        each.revocations and each.ended is not None
        for each in authority.keys
        if each.public_key == publisher
    ):
        raise SignatureError("publisher.pem: the ledger has revoked this key")
    if head.size <= recalled.state.size:
        open_tree_head(head.note, vkey=authority.ledger_vkey_at(head.size))
    elif proved.rotations[: len(authority.rotations)] != authority.rotations:
        raise SignatureError("the tree head leaves out a rotation of the ledger's key")
    if head.size == recalled.state.size and head.root != recalled.open().root:
        raise ContradictionError("the tree head is beside the remembered one", kept=recalled.note)


def _verify_evidence(text: str, *, path: Path, vkey: str | None) -> Output:
    evidence = open_evidence(text)
    if vkey is not None and evidence.vkey != vkey:
        raise EvidenceError(f"{path} is about another ledger than the one of this key")
    recalled = recall(evidence.vkey, given=True)
    mine = recalled.state.stands(recalled.vkey).rotations if recalled else ()
    verify_signers(evidence, rotations=mine)
    by = [str(each) for each in signers(evidence, rotations=mine)]
    sizes = [parse_tree_head(note).size for note in (evidence.first, evidence.second)]
    what = {
        "fork": "signed two histories that contradict each other",
        "rollback": "signed both tree heads; that the shorter was shown later is its maker's word",
    }[evidence.kind]
    text = (
        f"[green]held[/]: {evidence.kind} between {sizes[0]} and {counted(sizes[1], 'entry')}: "
        f"the key of {words(parse_tree_head(evidence.first).origin)} has {what}\n"
    ) + words(f"signed by {by[0]}; and by {by[1]}")
    if recalled is None:
        text += (
            "\nThis relies on the first key and the rotations in the file: only a verification of "
            "the ledger shows whether a rotation was left out"
        )
    told = VerifiedEvidence.of(evidence, ok=True, sizes=sizes, by=by)
    return Output(told, lambda: console.print(text))
