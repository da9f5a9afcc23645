"""Lineages as files: the example, its line in an export, and a proof of each entry.

Source: docs/reference/curation.md, "File"; C2SP tlog-proof.
Trust: a file is hostile until open_lineage() returns.
I/O: none; write_lineage() walks twice over a ledger that was verified.
"""

import base64
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from aggregates.judged import is_as_judged
from aggregates.transcript import Transcript
from judge.lineage.example import ExportLine, decisions_of
from judge.lineage.trace import NAMES, Lineage, trace
from ledger.errors import InclusionError, MalformedError
from ledger.handover.proof_files import write_proofs
from ledger.handover.selection import Selection, Wanted, choose, read_selection
from ledger.mapper import readable_body
from ledger.verification.proofs import MAX_PROOF
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from ledger.verification.verified_notes import decode_base64
from projections.counting import ENDS, CountingAudit, counting_audits, streams_of

TITLE = "proctor/lineage/v2\n"
TITLES = (TITLE, "proctor/lineage/v1\n")
_MAX_FILE = 4_000_000  # characters
_LARGE = 200_000  # bytes that a lineage is meant to have at most
_OF_RUN = {"audit.scored", "audit.started", "run.decision_made", "run.ended", "run.started"}
_FORM = re.compile(
    r"proctor/lineage/v(?P<form>[12])\n"
    r"example (?P<example>[0-9a-f/>-]{1,200})\n"
    r"(?:line (?P<number>0|[1-9][0-9]{0,18}) (?P<line>[A-Za-z0-9+/=]+)\n"
    rf"(?P<path>(?:[A-Za-z0-9+/]{{43}}=\n){{0,{MAX_PROOF}}}))?"
    r"\n"
    r"(?P<proofs>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class OpenedLineage:
    """A lineage that holds, as of a tree head that the ledger's key has signed."""

    lineage: Lineage
    selection: Selection
    line: ExportLine | None  # of an export
    audits: tuple[CountingAudit, ...]  # that it shows; each held
    earlier: bool  # an earlier version made it, which did not say which audit counts


def find_lineage(
    ledger: VerifiedLedger, example: str, *, line: ExportLine | None = None
) -> Lineage:
    """Return what an example came from; raise LineageError where a link is missing."""
    return _find(ledger, example, line)[0]


def _find(
    ledger: VerifiedLedger, example: str, line: ExportLine | None
) -> tuple[Lineage, list[VerifiedEntry]]:
    """Return what an example came from, and the entries that the verdicts on its runs rest on."""
    runs = _runs_of(example)
    names = {str(run) for run in runs}
    near = {*runs, *map(Transcript.id_of, runs)}  # streams

    def is_near(entry: VerifiedEntry) -> bool:
        if entry.name == "audit.started":
            run = (readable_body(entry.body) or {}).get("run")
            if isinstance(run, str) and run in names:
                near.add(entry.stream_id)
        own = entry.stream_id == ledger.authority.stream_id
        elsewhere = entry.name in NAMES and entry.name not in _OF_RUN
        return own or elsewhere or entry.stream_id in near

    entries = [*filter(is_near, ledger.entries())]
    chosen = choose(entries, _wanted(entries, runs), origin=ledger.authority.origin)
    found = trace(
        entries,
        example,
        authority=ledger.authority,
        line=line,
        counting=cache(lambda: counting_audits(chosen, authority=ledger.authority.stream_id)),
    )
    return found, chosen


def _runs_of(example: str) -> list[UUID]:
    return [*dict.fromkeys(run for run, _ in decisions_of(example))]


def _wanted(entries: Sequence[VerifiedEntry], runs: Iterable[UUID]) -> Wanted:
    """Return the streams that decide which audits of the runs count."""
    wanted: dict[UUID, Collection[str] | None] = {}
    for run in runs:
        wanted |= streams_of(entries, run, own=ENDS)
    return wanted


def write_lineage(ledger: VerifiedLedger, example: str, *, line: ExportLine | None = None) -> str:
    """Return a file that shows where an example comes from, with proofs under one tree head."""
    found, beside = _find(ledger, example, line)
    text = f"{TITLE}example {example}\n"
    if line is not None:
        text += f"line {line.number} {_base64(line.data)}\n"
        text += "".join(f"{_base64(each)}\n" for each in line.path)
    indexes = {*found.indexes, *(entry.index for entry in beside)}
    text += f"\n{write_proofs(ledger, indexes)}"
    open_lineage(text, vkey=ledger.vkey)  # what is handed out holds
    return text


def open_lineage(text: str, *, vkey: str) -> OpenedLineage:
    """Return the lineage that a file shows, in the ledger with this vkey.

    Raises VerificationError: what open_proofs() raises, and LineageError where an entry is
    missing, does not fit, or does not belong to it.
    """
    match = _FORM.fullmatch(text) if len(text) <= _MAX_FILE else None
    if match is None:
        raise MalformedError("not a lineage file: it must hold an example and tlog-proofs")
    line, example = None, match["example"]
    if match["line"]:
        path = tuple(decode_base64(each) for each in match["path"].splitlines())
        line = ExportLine(number=int(match["number"]), data=decode_base64(match["line"]), path=path)
    try:
        selection = read_selection(match["proofs"], vkey=vkey)
    except InclusionError as e:
        raise type(e)(f"{e}; if an earlier version made it, have it made again") from e
    entries, authority = selection.entries, selection.authority
    if earlier := match["form"] == "1":
        lineage = trace(entries, example, authority=authority, line=line, whole=True)
        audits = _shown(lineage)
    else:
        counting = cache(lambda: counting_audits(entries, authority=authority.stream_id))
        lineage = trace(entries, example, authority=authority, line=line, counting=counting)
        runs = _runs_of(example)
        selection.verify_choice(_wanted(entries, runs), beside=lineage.indexes)
        for run in runs:
            if not any(e.stream_id == run and e.name == "run.ended" for e in entries):
                raise InclusionError(f"the file leaves out the end of run {run}")
        audits = tuple(counting()[str(run)] for run in runs)
    for audit in audits:
        if audit.signed:
            is_as_judged(selection, audit.audit)
    return OpenedLineage(
        lineage=lineage, selection=selection, line=line, audits=audits, earlier=earlier
    )


def _shown(lineage: Lineage) -> tuple[CountingAudit, ...]:
    """Return the audits of a file of the first form, of which nothing says that they count."""
    runs: dict[UUID, str] = {}
    found = []
    for entry in (step.entry for step in lineage.steps):
        body, stream = readable_body(entry.body) or {}, entry.stream_id
        if entry.name == "audit.started":
            judged = body.get("judged")
            if isinstance(judged, dict) and "root" in judged:
                raise InclusionError(
                    "the lineage has the form of an earlier version, whose audits name no root of "
                    "the ledger; have it made again"
                )
            runs[stream] = str(body.get("run"))
        elif entry.name == "audit.scored":
            signed = entry.author is not None and entry.author.role == "judge"
            audit = CountingAudit(runs[stream], stream, entry.index, held=True, signed=signed)
            found.append(audit)
    return tuple(found)


def remark_on_size(text: str, opened: OpenedLineage, *, large: int = _LARGE) -> str | None:
    """Say what a file that is large is made of, for the most part; None for one that is not."""
    size = len(text.encode())
    if size <= large:
        return None
    parts: Counter[str] = Counter()
    for step in opened.lineage.steps:
        parts[step.entry.name] += len(step.entry.body)
        parts["key.rotated"] += sum(len(note.encode()) for note in opened.selection.rotations)
    if opened.line is not None:
        parts["the line of the export"] = len(opened.line.data)
    name, most = parts.most_common(1)[0]
    return f"{size} bytes, more than {large}: some {most * 4 // 3} of them are {name}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
