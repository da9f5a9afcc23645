"""`proctor verify`: a ledger, bundle, report, proof, lineage, evidence or model, as the target is.

Exit code 0: what was given holds, and no entry of it is suspect. 1: it does not, or some are.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.errors import (
    ContradictionError,
    EvidenceError,
    SignatureError,
    VerificationError,
)
from ledger.handover.bundle_check import BundlePass, check_bundle, is_bundle, read_vkey
from ledger.handover.bundle_files import Place, place_of
from ledger.handover.object_store import Bucket
from ledger.handover.proof_files import ProvedEntry, open_proof
from ledger.mapper import ns_to_datetime
from ledger.paths import LedgerPaths
from ledger.verification.authority import Authority, Suspicion, suspects
from ledger.verification.memory import Remembered
from ledger.verification.reader import VerificationReport, check_ledger, check_new, open_verified
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import open_tree_head, parse_tree_head
from ledger.witnessing.evidence import (
    Contradiction,
    find_contradiction,
    format_evidence,
    open_evidence,
    signers,
    verify_signers,
)
from ledger.witnessing.quorum import Quorum, WitnessedHeads, read_quorum, witnessed_heads
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.inputs import read_text, read_vkey_file
from proctor.cli.options import HOME, HomeOption, MaxBlobBytesOption, VkeyOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.entries import describe_entry, describe_verification, print_entry
from proctor.output.files import write_output
from proctor.output.terminal import (
    console,
    error_console,
    words,
)
from proctor.remembering import memory
from proctor.state import STATE

if TYPE_CHECKING:
    from judge.lineage.files import OpenedLineage

app = CommandGroup()

_PROOF = "c2sp.org/tlog-proof@v1\n"
_DATABASE = b"SQLite format 3\0"
_STORES = {each.name for each in (LedgerPaths(Path()).database, LedgerPaths(Path()).server)}
_EVIDENCE = "ledger/evidence/v1\n"


@app.command()
def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            help="Home, bundle (also s3://BUCKET/KEY), model of `attest`, report, proof, lineage "
            "or evidence; by default --home."
        ),
    ] = None,
    vkey: VkeyOption = None,
    head: Annotated[
        Path | None,
        typer.Option("--head", help="Tree head that you kept: detects truncation and rewriting."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Write the newest tree head to this file.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="Witnesses that must have cosigned (C2SP tlog-policy)."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Verify only the entries since the last verification.")
    ] = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence", help="Write a proof of a fork or rollback to this file, if one is found."
        ),
    ] = None,
    max_blob_bytes: MaxBlobBytesOption = None,
    home: HomeOption = HOME,
) -> Output:
    """Verify every entry, link, root and signature, offline, with the public key alone.

    The newest tree head of each ledger is remembered: a ledger that is later shown shorter, or
    with another history, fails.
    """
    named = None if target is None else place_of(target)
    if isinstance(named, Path) and named.name in _STORES:
        named = named.parent  # the folder is what is verified
    place = home if named is None else named
    if isinstance(place, Path) and place.is_file():
        if head or keep or new or evidence:
            raise ProctorError(f"{place} is a file; --head, --keep, --new, --evidence do not apply")
        return _verify_file(place, vkey=vkey, policy=policy)
    owner = read_vkey_file(vkey)
    if isinstance(named, Path) and _is_handover(named):
        if head or keep or new or evidence:
            raise ProctorError(
                f"{place} is a model handed over; --head, --keep, --new, --evidence do not apply"
            )
        return _verify_handover(named, vkey=owner, policy=policy)
    if isinstance(named, Path):
        _check_one_ledger(named)
    if isinstance(place, Bucket) or (named is not None and is_bundle(named)):
        if new:
            raise ProctorError(f"{place} is a bundle, which is always read whole; leave out --new")
        check: _Ledger | _Bundle = _Bundle(place, vkey=owner, max_blob_bytes=max_blob_bytes)
    else:
        folder = _ledger_in_home(home) if named is None else _ledger_in(place)
        check = _Ledger(folder, vkey=owner, new=new)
    return _verify_ledger(
        check,
        head=None if head is None else read_text(head),
        keep=keep,
        quorum=None if policy is None else read_quorum(policy),
        evidence=evidence,
        trusting=owner is None,
    )


class _Ledger:
    """A ledger in its database."""

    def __init__(self, directory: Path, *, vkey: str | None, new: bool) -> None:
        self._directory = directory
        self._vkey = vkey
        self._new = new

    def check(self, head: str | None) -> VerificationReport:
        """Verify, against what is remembered and what is kept."""
        known = memory()
        if not self._new:
            return check_ledger(
                self._directory,
                vkey=self._vkey,
                kept_head=head,
                processes=os.cpu_count() or 1,
                memory=known,
            )
        if known is None:
            raise ProctorError(f"{STATE} is off: nothing is remembered that --new could start from")
        if head is not None:
            raise ProctorError("--new reads only what is new; leave it out to check a --head")
        return check_new(self._directory, memory=known, vkey=self._vkey)

    def walk(self, take: Callable[[VerifiedEntry], None]) -> tuple[str, Authority, list[str]]:
        """Hand on every entry; return the first vkey, the keys and the tree heads' notes."""
        with open_verified(self._directory, vkey=self._vkey) as ledger:
            for entry in ledger.entries():
                take(entry)
            return ledger.vkey, ledger.authority, list(ledger.head_notes())


class _Bundle:
    """A ledger as a folder of tiles, or in object storage."""

    def __init__(self, folder: Place, *, vkey: str | None, max_blob_bytes: int | None) -> None:
        self._folder = folder
        self._vkey = vkey
        self._max_blob_bytes = max_blob_bytes

    def check(self, head: str | None) -> VerificationReport:
        """Verify, against what is remembered and what is kept."""
        known = memory()
        kept_heads = [] if head is None else [head]
        try:
            origin = (self._vkey or read_vkey(self._folder)).strip().partition("+")[0]
            recalled = known.recall(origin) if known else None
        except VerificationError:
            recalled = None  # check_bundle() will report it
        vkey = self._vkey
        if recalled is not None:
            kept_heads.append(recalled.note)
            vkey = vkey or recalled.vkey
        report = check_bundle(
            self._folder, vkey=vkey, kept_heads=kept_heads, max_blob_bytes=self._max_blob_bytes
        )
        if known is not None and report.ok and report.head and report.authority and report.state:
            first = report.authority.keys[0].vkey
            new = Remembered(vkey=first, note=report.head.note, state=report.state)
            if not known.keep(new, after=recalled):
                return self.check(head)  # another verifier has remembered more since
        return report

    def walk(self, take: Callable[[VerifiedEntry], None]) -> tuple[str, Authority, list[str]]:
        """Hand on every entry; return the first vkey, the keys and the tree heads' notes."""
        bundle = BundlePass(self._folder, vkey=self._vkey)
        notes: list[str] = []
        bundle.run(
            take=lambda row, _: take(parse_entry(row[4], index=row[0])),
            take_head=lambda _, note: notes.append(note),
        )
        return bundle.vkey, bundle.verification.authority, notes


def _check_one_ledger(place: Path) -> None:
    """Refuse a folder in which an honest ledger may hide another, which would be used."""
    homes = (place, place / "ledger")
    if is_bundle(place) + sum(LedgerPaths(each).exist for each in homes) > 1:
        raise ProctorError(f"{place} holds more than one ledger; name the one you mean")


def _ledger_in_home(place: Path) -> Path:
    home = Home(place)
    home.require_ledger()
    return home.ledger


def _ledger_in(place: Path) -> Path:
    """Return the ledger's folder in a home, or the folder itself if it is one."""
    if LedgerPaths(place).exist:
        return place
    return _ledger_in_home(place)


def _verify_ledger(
    check: _Ledger | _Bundle,
    *,
    head: str | None,
    keep: Path | None,
    quorum: Quorum | None,
    evidence: Path | None,
    trusting: bool,
) -> Output:
    report = check.check(head)
    if not report.ok:
        shown = _write_evidence(check, report, evidence) if evidence else None
        where = "" if report.index is None else f" at index {report.index}"
        text = f"[red]failed[/]{where}: {report.error_type}: {words(report.error)}"
        if evidence and shown:
            text += f"\n{words(evidence)} shows the {shown} {_to_whom(evidence)}"
        elif evidence:
            text += "\nno evidence was written: this is neither a fork nor a rollback"
        told = {**describe_verification(report), "evidence": shown}
        return Output(told, lambda: console.print(text), found=True)
    if keep is not None:
        if report.head is None:
            raise ProctorError("an empty ledger has no tree head to keep")
        write_output(keep, report.head.note)
    findings = _find(check, report, quorum)

    def tell() -> None:
        size = report.head.size if report.head else 0
        entries = counted(report.size, "entry")
        console.print(f"[green]held[/]: {entries}, complete to tree head {size}")
        if report.unread:
            console.print(f"{report.unread} of them were verified before and not read again")
        if head is not None:
            console.print("it contains the tree head that you kept")
        findings.tell()
        if trusting and not findings.doubtful:
            error_console.print(
                "the public key next to the ledger was trusted: this detects corruption, not "
                "forgery; give the owner's with --vkey"
            )

    return Output(
        {**describe_verification(report), **findings.to_dict()}, tell, found=findings.doubtful
    )


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """What a ledger that holds says of its witnesses and of revoked keys."""

    witnessed: WitnessedHeads | None  # None: nobody was asked for
    unasked: bool  # a policy asks for no witness
    size: int
    suspicions: tuple[tuple[Suspicion, int, int], ...]  # with the first index, and how many

    @property
    def doubtful(self) -> bool:
        unwitnessed = self.witnessed is not None and self.witnessed.size < self.size
        return bool(self.suspicions) or unwitnessed

    def to_dict(self) -> dict[str, Any]:
        return {
            "witnessed": None if self.witnessed is None else self.witnessed.size,
            "false_lines": [] if self.witnessed is None else self.witnessed.false,
            "suspect": [
                {
                    "role": each.key.role,
                    "vkey": each.key.vkey,
                    "reason": each.revocation.reason,
                    "since": ns_to_datetime(each.revocation.since),
                    "witnessed_before": each.witnessed,
                    "first": first,
                    "entries": count,
                }
                for each, first, count in self.suspicions
            ],
        }

    def tell(self) -> None:
        if self.unasked:
            console.print("not witnessed: the policy's `quorum none` asks for no witness")
        elif self.witnessed is not None and self.witnessed.note is None:
            console.print("[red]not witnessed[/]: no tree head meets the policy's quorum")
        elif self.witnessed is not None:
            short = "" if self.witnessed.size == self.size else ": the rest is yet to be witnessed"
            console.print(
                f"witnessed to {self.witnessed.size} of {counted(self.size, 'entry')}{short}"
            )
        for size, name in self.witnessed.false if self.witnessed else ():
            console.print(
                f"[red]forged or damaged[/]: a line in the name of {words(name)}, under the "
                f"tree head of {counted(size, 'entry')}; it counts as none"
            )
        for each, first, count in self.suspicions:
            since = ns_to_datetime(each.revocation.since).isoformat()
            console.print(
                f"[red]suspect[/]: {counted(count, 'entry')} from {first} on "
                f"{'rests' if count == 1 else 'rest'} on the {each.key.role} key "
                f"{words(each.key.vkey)}, not to be trusted since {since}: "
                f"{words(each.revocation.reason)}"
            )


def _find(check: _Ledger | _Bundle, report: VerificationReport, quorum: Quorum | None) -> _Findings:
    revoked = report.authority and any(key.revocations for key in report.authority.keys)
    if quorum is None and not revoked:
        return _Findings(witnessed=None, unasked=False, size=report.size, suspicions=())
    vkey, authority, notes = check.walk(lambda _: None)
    unasked = quorum is not None and quorum.rule == "none"
    if quorum is not None:
        quorum.verify_log(vkey)
    if unasked:
        quorum = None
    witnessed = (
        None if quorum is None else witnessed_heads(notes, quorum=quorum, authority=authority)
    )
    doubts = suspects(
        authority,
        witnessed=() if witnessed is None else witnessed.times,
        sizes=[parse_tree_head(note).size for note in notes],
    )
    found: dict[int, list[int]] = {}  # by the suspicion's number: first index, how many

    def take(entry: VerifiedEntry) -> None:
        for number, doubt in enumerate(doubts):
            if doubt.includes(entry):
                found.setdefault(number, [entry.index, 0])[1] += 1

    if doubts:
        check.walk(take)
    return _Findings(
        witnessed=witnessed,
        unasked=unasked,
        size=report.size,
        suspicions=tuple((doubts[n], first, count) for n, (first, count) in sorted(found.items())),
    )


def _write_evidence(check: _Ledger | _Bundle, report: VerificationReport, path: Path) -> str | None:
    """Write what shows the contradiction, if that is what failed; return its kind."""
    if report.contradiction is None:
        return None
    kept, newest = report.contradiction
    try:
        evidence = _evidence(check, kept=kept, newest=newest)
    except VerificationError:
        evidence = None  # the ledger fails in itself too, and its tree cannot be relied on
    if evidence is None:
        return None
    write_output(path, format_evidence(evidence))
    return evidence.kind


def _to_whom(path: Path) -> str:
    try:
        verify_signers(open_evidence(path.read_text(encoding="utf-8")))
    except EvidenceError:
        return "to who knows that a tree head in it is older than the rotation of its key"
    return "to anyone"


def _evidence(check: _Ledger | _Bundle, *, kept: str, newest: str) -> Contradiction | None:
    leaf_hashes: list[bytes] = []
    vkey, authority, _ = check.walk(lambda entry: leaf_hashes.append(entry.entry_hash))
    rotations = authority.rotations
    known = memory()
    recalled = known.recall(authority.origin) if known else None
    if recalled is not None:  # a ledger that was cut off may have lost some
        rotations = max(rotations, recalled.state.stands(recalled.vkey).rotations, key=len)
    return find_contradiction(leaf_hashes, vkey=vkey, rotations=rotations, newest=newest, kept=kept)


def _is_handover(place: Path) -> bool:
    from proctor.handover.folder import is_handover  # noqa: PLC0415 - few need it

    held = is_bundle(place) or any(LedgerPaths(each).exist for each in (place, place / "ledger"))
    return not held and is_handover(place)


def _verify_handover(folder: Path, *, vkey: str | None, policy: Path | None) -> Output:
    from proctor.handover.folder import check_handover  # noqa: PLC0415 - few need it

    quorum = None if policy is None else read_quorum(policy)
    try:
        opened = check_handover(folder, vkey=vkey)
        proved, evidence = opened.proved[0], opened.evidence
        if quorum is not None:
            quorum.verify_log(evidence.vkeys[0])
            quorum.verify(proved.head.note)
        _hold_against_memory(proved, publisher=evidence.publisher)
    except VerificationError as e:
        return _refused(e)

    def tell() -> None:
        color = {"PASSED": "green", "WARNED": "yellow"}.get(evidence.verdict, "red")
        console.print(
            f"[green]held[/]: the model of run {evidence.run}, "
            f"{counted(len(opened.files), 'signed file')}, under the tree head of "
            f"{counted(evidence.head.size, 'entry')} of {words(evidence.head.origin)}"
        )
        console.print(
            f"verdict [{color}]{evidence.verdict}[/], evidence level {words(evidence.level)}"
        )
        for each in evidence.reservations if evidence.verdict == "WARNED" else ():
            console.print(f"warned: {words(each)}")
        if vkey is None:
            error_console.print(
                "the public key in the folder was trusted: this detects corruption, not forgery; "
                "give the owner's with --vkey"
            )

    told = {
        "ok": True,
        "run": evidence.run,
        "verdict": evidence.verdict,
        "reservations": evidence.reservations,
        "evidence_level": evidence.level,
        "files": opened.files,
        "size": evidence.head.size,
        "origin": evidence.head.origin,
    }
    return Output(told, tell)


def _verify_file(path: Path, *, vkey: Path | None, policy: Path | None) -> Output:
    with path.open("rb") as file:
        start = file.read(len(_DATABASE))
    if start == _DATABASE:
        name = LedgerPaths(path).database.name
        raise ProctorError(f"{path} is a database; name its folder, where it is called {name}")
    if start.startswith(b"<!DOCTYPE html>"):
        return _verify_report(path, vkey=vkey, policy=policy)
    text = read_text(path)
    if text.startswith(_EVIDENCE):
        return _verify_evidence(text, path=path, vkey=read_vkey_file(vkey))
    from judge.lineage.files import TITLE, OpenedLineage, open_lineage  # noqa: PLC0415 - takes long

    if not text.startswith((_PROOF, TITLE)):
        raise ProctorError(
            f"{path} is neither a report, a tlog-proof, a lineage nor an evidence file"
        )
    key = read_vkey_file(vkey)
    if key is None:
        raise ProctorError(f"{path} is a proof, which needs the ledger's public key: give --vkey")
    quorum = None if policy is None else read_quorum(policy)
    try:
        is_lineage = text.startswith(TITLE)
        opened = open_lineage(text, vkey=key) if is_lineage else open_proof(text, vkey=key)
        if quorum is not None:
            quorum.verify_log(key)
            quorum.verify(opened.head.note)
        _hold_against_memory(opened)
    except VerificationError as e:
        return _refused(e)
    witnessed = (
        ""
        if quorum is None or quorum.rule == "none"
        else ", as the policy's witnesses have cosigned"
    )
    if isinstance(opened, OpenedLineage):
        return _lineage_held(opened, witnessed)
    return _proof_held(opened, witnessed)


def _verify_report(path: Path, *, vkey: Path | None, policy: Path | None) -> Output:
    """Make a report again from its proved entries, and compare the two."""
    key = read_vkey_file(vkey)
    if key is None:
        raise ProctorError(f"{path} is a report, which needs the ledger's public key: give --vkey")
    require_extra("report")
    from proctor.reports.checks import check_report  # noqa: PLC0415 - loads DuckDB, and an extra

    quorum = None if policy is None else read_quorum(policy)
    try:
        checked = check_report(path, vkey=key)
        if quorum is not None:
            quorum.verify_log(key)
            quorum.verify(checked.source.head.note)
        _hold_against_memory(checked.source.proved[0])
    except VerificationError as e:
        return _refused(e)
    source, subject = checked.source, checked.source.subject
    about = (
        f"{subject.kind} {subject.id}: {counted(len(source.proved), 'entry')} of "
        f"{source.head.size} in {words(source.head.origin)}"
    )

    def tell() -> None:
        if checked.altered:
            console.print(
                f"[red]altered[/]: the report is not what its proved entries say, {about}"
            )
        elif checked.unchecked:
            console.print(f"[yellow]not checked[/]: {words(checked.unchecked)}; {about}")
        else:
            console.print(f"[green]held[/]: the whole report follows from {about}")
        for each in checked.altered:
            console.print(f"  {words(each)}")

    told = {
        "ok": checked.ok,
        "kind": subject.kind,
        "subject": subject.id,
        "entries": len(source.proved),
        "size": source.head.size,
        "altered": checked.altered,
        "unchecked": checked.unchecked,
    }
    return Output(told, tell, found=not checked.ok)


def _lineage_held(opened: "OpenedLineage", witnessed: str) -> Output:
    from proctor.cli.lineage import describe_lineage, tell_lineage  # noqa: PLC0415 - takes long

    def tell() -> None:
        console.print(
            f"[green]held[/]: {counted(len(opened.lineage.indexes), 'entry')} of "
            f"{opened.head.size} in "
            f"{words(opened.head.origin)} lead to the example{witnessed}"
        )
        tell_lineage(opened.lineage)

    described = describe_lineage(opened.lineage)
    return Output({"ok": True, "size": opened.head.size, **described}, tell)


def _proof_held(proved: ProvedEntry, witnessed: str) -> Output:
    described = describe_entry(proved.entry)

    def tell() -> None:
        console.print(
            f"[green]held[/]: entry {proved.entry.index} of {proved.head.size} in "
            f"{words(proved.head.origin)}{witnessed}"
        )
        by = described["author"] and f"{described['author']} (author not verified by this proof)"
        print_entry({**described, "author": by})

    told = {"ok": True, "size": proved.head.size, **described, "author_verified": False}
    return Output(told, tell)


def _hold_against_memory(
    proved: "ProvedEntry | OpenedLineage", *, publisher: bytes | None = None
) -> None:
    """Refuse what a key has signed that was not, or is no longer, the ledger's there.

    A key that was rotated away can go on signing; who remembers the rotation knows. So can the
    key of a `publisher` that was revoked.
    """
    known = memory()
    recalled = known.recall(proved.head.origin) if known else None
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
    try:
        evidence = open_evidence(text)
        if vkey is not None and evidence.vkey != vkey:
            raise EvidenceError(f"{path} is about another ledger than the one of this key")
        known = memory()
        recalled = known.recall(parse_tree_head(evidence.first).origin) if known else None
        mine = recalled.state.stands(recalled.vkey).rotations if recalled else ()
        verify_signers(evidence, rotations=mine)
        by = [str(each) for each in signers(evidence, rotations=mine)]
    except VerificationError as e:
        return _refused(e)
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
    told = {"ok": True, "kind": evidence.kind, "vkey": evidence.vkey, "sizes": sizes, "by": by}
    return Output(told, lambda: console.print(text))


def _refused(error: VerificationError) -> Output:
    kind = type(error).__name__
    return Output(
        {"ok": False, "error": str(error), "error_type": kind},
        lambda: console.print(f"[red]failed[/]: {kind}: {words(error)}"),
        found=True,
    )
