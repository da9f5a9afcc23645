"""`proctor verify` of a ledger or a bundle: what was found, and the evidence of two histories.

I/O: reads what is verified; writes evidence and the tree head to keep.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ledger.errors import EvidenceError, VerificationError
from ledger.handover.bundle_check import BundlePass, check_bundle, read_vkey
from ledger.handover.bundle_files import Place
from ledger.mapper import ns_to_datetime
from ledger.paths import LedgerPaths, server_at
from ledger.verification.authority import Authority, suspects
from ledger.verification.memory import Remembered
from ledger.verification.reader import VerificationReport, check_ledger, open_verified
from ledger.verification.vectorized import Chunk
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.evidence import (
    Contradiction,
    find_contradiction,
    format_evidence,
    open_evidence,
    verify_signers,
)
from ledger.witnessing.quorum import Quorum, WitnessedHeads, witnessed_heads
from ledger.wording import counted
from proctor.cli.command_group import Output
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.entries import Verification
from proctor.output.files import write_output
from proctor.output.shape import Answer
from proctor.output.terminal import console, error_console, print_table, words
from proctor.remembering import recall
from proctor.state import STATE, memory


class Suspect(Answer):
    """Entries that rest on a revoked key."""

    role: str
    vkey: str
    reason: str
    since: datetime
    witnessed_before: int  # entries
    first: int
    entries: int


class Verified(Verification):
    """A ledger or bundle that is valid; exit code 1 if it is doubtful."""

    witnessed: int | None
    false_lines: Sequence[tuple[int, str]]
    suspect: list[Suspect]


class Invalid(Verification):
    """A ledger or bundle that is not valid; exit code 1."""

    evidence: str | None  # kind of the evidence that was written


class Rights(Answer):
    """What a user of a PostgreSQL server may do to a ledger, beside reading and appending."""

    user: str
    needless: Sequence[str]
    missing: Sequence[str]  # of what reading and appending need


@dataclass(frozen=True, kw_only=True)
class LedgerCheck:
    """A ledger in its database."""

    directory: Path
    vkey: str | None
    new: bool

    def check(self, head: str | None) -> VerificationReport:
        """Verify, against what is remembered and what is kept."""
        known = memory()
        if self.new and known is None:
            raise ProctorError(f"{STATE} is off: nothing is remembered that --new could start from")
        if self.new and head is not None:
            raise ProctorError("--new reads only what is new; leave it out to check a --head")
        return check_ledger(
            self.directory,
            vkey=self.vkey,
            kept_head=head,
            processes=1 if self.new else os.cpu_count() or 1,
            memory=known,
            new=self.new,
        )

    def walk(self, take: Callable[[VerifiedEntry], None]) -> tuple[str, Authority, list[str]]:
        """Hand on every entry; return the first vkey, the keys and the tree heads' notes."""
        with open_verified(self.directory, vkey=self.vkey) as ledger:
            for entry in ledger.entries():
                take(entry)
            return ledger.vkey, ledger.authority, list(ledger.head_notes())


@dataclass(frozen=True, kw_only=True)
class BundleCheck:
    """A ledger as a folder of tiles, or in object storage."""

    folder: Path | Place
    vkey: str | None
    max_blob_bytes: int | None

    def check(self, head: str | None) -> VerificationReport:
        """Verify, against what is remembered and what is kept."""
        known = memory()
        kept_heads = [] if head is None else [head]
        try:
            named = self.vkey or read_vkey(self.folder)
        except VerificationError:
            named = None  # check_bundle() will report it
        try:
            recalled = named and recall(named, given=self.vkey is not None)
        except VerificationError as e:
            return VerificationReport.failed(e, None, shown=None)
        if recalled:
            kept_heads.append(recalled.note)
        report = check_bundle(
            self.folder, vkey=named, kept_heads=kept_heads, max_blob_bytes=self.max_blob_bytes
        )
        if known is not None and report.ok and report.head and report.authority and report.state:
            first = report.authority.keys[0].vkey
            new = Remembered.of(vkey=first, note=report.head.note, state=report.state)
            if not known.keep(new, after=recalled or None):
                return self.check(head)  # another verifier has remembered more since
        return report

    def walk(self, take: Callable[[VerifiedEntry], None]) -> tuple[str, Authority, list[str]]:
        """Hand on every entry; return the first vkey, the keys and the tree heads' notes."""
        bundle = BundlePass(self.folder, vkey=self.vkey)
        notes: list[str] = []

        def each(chunk: Chunk) -> None:
            for data in chunk.entries:
                take(parse_entry(data))

        bundle.run(take=each, take_head=lambda row, _: notes.append(row[1]))
        return bundle.vkey, bundle.verification.authority, notes


def verify_ledger(
    check: LedgerCheck | BundleCheck,
    *,
    head: str | None,
    keep: Path | None,
    quorum: Quorum | None,
    evidence: Path | None,
    trusting: bool,
) -> Output:
    """Verify a ledger or a bundle, and tell which of its entries are suspect."""
    report = check.check(head)
    if not report.ok:
        shown = _write_evidence(check, report, evidence) if evidence else None
        where = "" if report.index is None else f" at index {report.index}"
        text = f"[red]failed[/]{where}: {report.error_type}: {words(report.error)}"
        if evidence and shown:
            text += f"\n{words(evidence)} shows the {shown} {_to_whom(evidence)}"
        elif evidence:
            text += "\nno evidence was written: this is neither a fork nor a rollback"
        told = Invalid.of(report, evidence=shown)
        return Output(told, lambda: console.print(text), found=True)
    if keep is not None:
        if report.head is None:
            raise ProctorError("an empty ledger has no tree head to keep")
        write_output(keep, report.head.note)
    witnessed, suspected = _find(check, report, quorum)
    held = Verified.of(
        report,
        witnessed=None if witnessed is None else witnessed.size,
        false_lines=[] if witnessed is None else witnessed.false,
        suspect=suspected,
    )
    unwitnessed = witnessed is not None and witnessed.size < report.size
    doubtful = bool(suspected) or unwitnessed

    def tell() -> None:
        entries = counted(report.size, "entry")
        console.print(f"[green]held[/]: {entries}, complete to tree head {report.complete_to}")
        if report.unread:
            console.print(f"{report.unread} of them were verified before and not read again")
        if head is not None:
            console.print("it contains the tree head that you kept")
        if quorum is not None and witnessed is None:
            console.print("not witnessed: `quorum none` asks for no witness")
        elif witnessed is not None and witnessed.note is None:
            console.print("[red]not witnessed[/]: no tree head meets the quorum")
        elif witnessed is not None:
            short = ": the rest is yet to be witnessed" if unwitnessed else ""
            console.print(f"witnessed to {witnessed.size} of {entries}{short}")
        for size, name in held.false_lines:
            console.print(
                f"[red]forged or damaged[/]: a line in the name of {words(name)}, under the "
                f"tree head of {counted(size, 'entry')}; it counts as none"
            )
        for each in held.suspect:
            console.print(
                f"[red]suspect[/]: {counted(each.entries, 'entry')} from {each.first} on "
                f"{'rests' if each.entries == 1 else 'rest'} on the {each.role} key "
                f"{words(each.vkey)}, not to be trusted since {each.since.isoformat()}: "
                f"{words(each.reason)}"
            )
        if trusting and not doubtful:
            error_console.print(
                "the public key next to the ledger was trusted: this detects corruption, not "
                "forgery; give the owner's with --vkey"
            )

    return Output(held, tell, found=doubtful)


def _find(
    check: LedgerCheck | BundleCheck, report: VerificationReport, quorum: Quorum | None
) -> tuple[WitnessedHeads | None, list[Suspect]]:
    """Return what witnesses have cosigned, if any were asked for, and what revoked keys signed."""
    revoked = report.authority and any(key.revocations for key in report.authority.keys)
    if quorum is None and not revoked:
        return None, []
    vkey, authority, notes = check.walk(lambda _: None)
    witnessed = None
    if quorum is not None:
        quorum.verify_log(vkey)
        if quorum.rule != "none":
            witnessed = witnessed_heads(notes, quorum=quorum, authority=authority)
    doubts = suspects(
        authority,
        witnessed=() if witnessed is None else witnessed.times,
        sizes=[parse_tree_head(note).size for note in notes],
    )
    found: dict[int, Suspect] = {}  # by the suspicion's number

    def take(entry: VerifiedEntry) -> None:
        for number, doubt in enumerate(doubts):
            if doubt.includes(entry):
                if number not in found:
                    found[number] = Suspect.of(
                        doubt.key,
                        reason=doubt.revocation.reason,
                        since=ns_to_datetime(doubt.revocation.since),
                        witnessed_before=doubt.witnessed,
                        first=entry.index,
                        entries=0,
                    )
                found[number].entries += 1

    if doubts:
        check.walk(take)
    return witnessed, [each for _, each in sorted(found.items())]


def _write_evidence(
    check: LedgerCheck | BundleCheck, report: VerificationReport, path: Path
) -> str | None:
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


def _evidence(check: LedgerCheck | BundleCheck, *, kept: str, newest: str) -> Contradiction | None:
    leaf_hashes: list[bytes] = []
    vkey, authority, _ = check.walk(lambda entry: leaf_hashes.append(entry.entry_hash))
    rotations = authority.rotations
    known = memory()
    recalled = known.recall(vkey) if known else None
    if recalled is not None:  # a ledger that was cut off may have lost some
        rotations = max(rotations, recalled.state.stands(recalled.vkey).rotations, key=len)
    return find_contradiction(leaf_hashes, vkey=vkey, rotations=rotations, newest=newest, kept=kept)


def check_rights(home: Home) -> Output:
    """Tell which rights a user of a server has beyond appending, and which lack."""
    home.require_ledger()
    paths = LedgerPaths(home.ledger)
    if not paths.server.exists():
        raise ProctorError(
            f"{paths.database}: this ledger is in a file; whoever may write the file may do all "
            "to it. Rights are checked for a ledger on a server"
        )
    server = server_at(paths.server)
    rights = server.rights(paths.server)
    told = Rights.of(rights)
    rows = [(kind, text) for kind in ("needless", "missing") for text in getattr(told, kind)]
    if not rows:
        return Output(told, f"user {rights.user}: may read, append and no more")
    return Output(
        told,
        lambda: print_table((f"user {rights.user}", "right"), rows),
        found=True,
        note=f"{server.PAGE} lists the rights that a producer needs",
    )
