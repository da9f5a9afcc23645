"""A report as a file: what it shows, and the proofs of the entries from which all of that follows.

The file holds the proofs (C2SP tlog-proof, one for each entry, under one signed tree head). Whoever
has the ledger's public key makes the report again from the proved entries and compares the two.

Trust: a file is hostile until open_report() returns; what it shows, until differences() has found
none.
I/O: read_source() reads a ledger.
Not covered: what the ledger has that the report leaves out at the end of a stream, such as a later
audit; only the ledger itself shows that. A diff may be left out, too; the page says so.
"""

import base64
import difflib
import hashlib
import html
import re
import zlib
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

import projections
from aggregates.judged import is_as_judged
from ledger.errors import InclusionError, MalformedError
from ledger.handover.proof_files import write_proofs
from ledger.handover.selection import Selection, read_selection
from ledger.strict_json import JSONError, read_json
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from proctor import __version__, pages, reports
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import on_one_line
from proctor.pages.rendering import embedded_json
from proctor.remembering import keep_definitions, open_index, open_remembered, tell_unread
from proctor.reports.contents import contents_of
from proctor.reports.line_proposals import SHOWN, find_diffs, read_diff
from proctor.reports.subjects import BEGINNINGS, READ, Overview, Subject
from proctor.runs.story import looked_up_runs
from projections.counting import CountingAudit, counting_audits
from projections.errors import ProjectionError
from projections.reading import Session

DOCTYPE = "<!DOCTYPE html>"
MAX_FILE = 64 << 20  # bytes
_MAX_PROOFS = 256 << 20  # bytes, once they are unpacked
_JSON = re.compile(r'<script type="application/json" id="proctor-report">([^<]*)</script>')
_PROOFS = re.compile(r'<script type="text/plain" id="proctor-proofs">([A-Za-z0-9+/=]*)</script>')
_PLACE = re.compile(r'<(h1|h2|h3|figure)[^>]* id="([\w-]+)"')
_TAG = re.compile(r"<[^>]*>")
_Name = Annotated[str, msgspec.Meta(max_length=40)]
_LONGEST = 120  # characters that a message quotes
_MOST_PAIRS = 20_000_000  # of lines that are compared
_SPARE = 100_000  # characters; a page that is longer than twice its due length and this is not read
_NAMED = """
    SELECT idx FROM events WHERE version = 1 AND (
        stream_id IN (SELECT unnest(CAST($2 AS VARCHAR[])))
        OR name IN (SELECT unnest(CAST($3 AS VARCHAR[]))) AND starts_with(stream_id, LOWER($1))
    )"""
_KIN = """
    WITH RECURSIVE links AS (
        SELECT run_id, parent_run AS parent FROM run_starts WHERE parent_run IS NOT NULL
        UNION ALL SELECT run_id, parent FROM forks
    ),
    above AS (SELECT $1 AS id UNION SELECT parent FROM links JOIN above ON run_id = id),
    below AS (SELECT $1 AS id UNION SELECT run_id FROM links JOIN below ON parent = id),
    kin AS (FROM above UNION FROM below)
    SELECT idx FROM events
    WHERE stream_id IN (FROM kin) AND name IN (SELECT unnest(CAST($2 AS VARCHAR[])))
    UNION SELECT idx FROM audit_starts WHERE run_id IN (FROM kin)
    UNION SELECT idx FROM credit_starts WHERE run_id = $1"""
_OF_STREAMS = "SELECT idx FROM events WHERE stream_id IN (SELECT unnest(CAST($1 AS VARCHAR[])))"
_CODE = [Path(package.__path__[0]) for package in (projections, pages, reports)]


@dataclass(frozen=True)
class Source:
    """What a report is made from, and nothing else."""

    subject: Subject
    selection: Selection
    packed: str  # the proofs, as the file holds them
    vkey: str  # of the ledger, its first
    made_by: Mapping[str, str]  # the versions that a file names, or ours
    read: Callable[[str], str | None]  # finds a diff by its SHA-256

    @cached_property
    def diffs(self) -> dict[str, str]:
        """The diffs that the report shows, by the SHA-256 that entries record."""
        return find_diffs(self.contents, self.read)

    @cached_property
    def contents(self) -> dict[str, Any]:
        """What the report shows; raises ProctorError if its subject cannot be read."""
        keep_definitions()
        return contents_of(
            self.selection.entries, self.subject, authority=self.selection.authority.stream_id
        )

    @cached_property
    def _overview(self) -> Overview:
        return Overview.of(self.selection.entries)

    @cached_property
    def _counting(self) -> dict[str, CountingAudit]:
        keep_definitions()
        return counting_audits(self.selection.entries, authority=self.selection.authority.stream_id)

    def verify(self) -> None:
        """Raise VerificationError where a judge's verdict is shown beside another run."""
        for audit in self._counting.values():
            if audit.signed:
                is_as_judged(self.selection, audit.audit)

    @cached_property
    def verdicts(self) -> list[CountingAudit]:
        """The audits that count for the runs that the report is about."""
        runs = self._overview.runs_of(self.subject)
        return [self._counting[run] for run in runs if run in self._counting]

    @property
    def not_claimed(self) -> list[str]:
        """What does not follow from the entries, beside what Selection.as_of says."""
        overview = self._overview
        wanted = overview.wanted(self.subject)
        said = [
            f"what run {run} goes on from: run {parent} is left out, or its ledger does not have it"
            for run, parent in overview.not_here(self.subject).items()
        ]
        runs = overview.runs_of(self.subject)
        unjudged = sum(run not in self._counting for run in runs)
        if 0 < unjudged < len(runs):
            of_all = f"{unjudged} of {counted(len(runs), 'run')}"
            said.append(f"a verdict on {of_all}: no audit of it counts here")
        if parts := sum(names is not None for names in wanted.values()):
            parts_of = counted(parts, "other run")
            said.append(f"that these are all events of {parts_of}: some are chosen")
        return said

    @property
    def embedded(self) -> dict[str, Any]:
        """What the file holds as data."""
        return {
            "form": 1,
            "kind": self.subject.kind,
            "subject": self.subject.id,
            "ledger": self.selection.head.origin,
            "entries": self.selection.head.size,
            "made_by": made_by(),
            "contents": {name: _columns(part) for name, part in self.contents.items()},
            "diffs": [*self.diffs.values()],
        }


class _Told(msgspec.Struct):
    """What a file says of itself; its `contents` are compared, and nothing is made of them."""

    form: Literal[1]
    kind: Literal["run", "campaign", "comparison", "line"]
    subject: UUID
    made_by: Annotated[dict[_Name, _Name], msgspec.Meta(max_length=8)]
    diffs: Annotated[list[str], msgspec.Meta(max_length=SHOWN)] = []


@cache
def made_by() -> dict[str, str]:
    """Return the versions that decide what a page looks like: ours, and a digest of the code."""
    sha256 = hashlib.sha256()
    for folder in _CODE:
        for path in sorted(folder.rglob("*")):
            of_reports = "live" not in (path.stem, *path.parts)
            if of_reports and path.suffix in (".py", ".html", ".css", ".sql"):
                sha256.update(path.read_bytes())
    return {"proctor": __version__, "pages": sha256.hexdigest()[:12]}


def read_source(home: Home, name: str) -> Source:
    """Return what a report about `name` is made from; raises VerificationError, ProctorError."""
    with open_remembered(home) as ledger:
        tell_unread(ledger)
        index = open_index(home, ledger)
        found = None
        if index is not None:
            with suppress(ProctorError, ProjectionError):  # looked for in the whole, it is said why
                found = _looked_up(ledger, index, name)
        subject, chosen = found or _looked_for(ledger, name)
        proofs = write_proofs(ledger, [entry.index for entry in chosen])
        owner = ledger.vkey
    selection = read_selection(proofs, vkey=owner)
    packed = base64.b64encode(zlib.compress(proofs.encode(), 9)).decode()
    read = partial(read_diff, home)
    return Source(subject, selection, packed, owner, made_by(), read)


def _looked_for(ledger: VerifiedLedger, name: str) -> tuple[Subject, list[VerifiedEntry]]:
    """Return what `name` means and the entries that a report about it rests on."""
    overview = Overview.of(ledger.select(names=READ))
    subject = overview.find(name)
    entries = ledger.select(streams=[*overview.wanted(subject), ledger.authority.stream_id])
    return subject, overview.choose(entries, subject, origin=ledger.authority.origin)


def _looked_up(
    ledger: VerifiedLedger, index: Session, name: str
) -> tuple[Subject, list[VerifiedEntry]] | None:
    """Return the same, having asked tables where the entries are; None if that may not do.

    What a run without measured decisions rests on are its own kin; other subjects, and decisions
    that were measured, rest on whatever is of the same training.
    """

    def entries(sql: str, *parameters: object) -> Iterator[VerifiedEntry]:
        return ledger.chosen(idx for (idx,) in index.query(sql, parameters).rows)

    runs = [str(each) for each in looked_up_runs(ledger, index, name)]
    subject = Overview.of(entries(_NAMED, name, runs, [*BEGINNINGS])).find(name)
    overview = Overview.of(entries(_KIN, subject.id, [*READ]))
    if subject.kind != "run" or subject.id in overview.credits:
        return None
    streams = [str(each) for each in (*overview.wanted(subject), ledger.authority.stream_id)]
    found = entries(_OF_STREAMS, streams)
    return subject, overview.choose(found, subject, origin=ledger.authority.origin)


def open_report(text: str, *, vkey: str) -> Source:
    """Return what a report file is made from, its proofs verified; raises VerificationError."""
    shown, packed = _found(_JSON, text), _found(_PROOFS, text)
    try:
        embedded = read_json(shown, most=5_000_000)
        unpack = zlib.decompressobj()
        proofs = unpack.decompress(base64.b64decode(packed, validate=True), _MAX_PROOFS).decode()
    except (JSONError, Base64Error, zlib.error, UnicodeDecodeError) as error:
        raise MalformedError(f"the report's data cannot be read: {error}") from error
    if unpack.unconsumed_tail or unpack.unused_data or not unpack.eof:
        raise MalformedError("the report's proofs are cut off, or longer than a report needs")
    selection = read_selection(proofs, vkey=vkey)
    try:
        told = msgspec.convert(embedded, _Told)
    except msgspec.ValidationError as error:
        what = "has a form that this version does not know, or does not name what it is about"
        raise MalformedError(f"the report {what}: {error}") from error
    subject = Subject(told.kind, str(told.subject))
    overview = Overview.of(selection.entries)
    if subject.id not in overview.subjects[subject.kind]:
        raise InclusionError(f"no entry of {subject.kind} {subject.id} is proved")
    selection.verify_choice(overview.wanted(subject))
    diffs = {hashlib.sha256(diff.encode()).hexdigest(): diff for diff in told.diffs}
    source = Source(subject, selection, packed, vkey, told.made_by, diffs.get)
    source.verify()
    return source


def _found(form: re.Pattern[str], text: str) -> str:
    parts = form.findall(text)
    if len(parts) != 1:
        raise MalformedError("the file is not a report: its data or its proofs are missing")
    return str(parts[0])


def differences(text: str, source: Source, page: str) -> Iterator[str]:
    """Yield what of a report's text was altered; `page` is the report, made again from `source`."""
    if len(text) > 2 * len(page) + _SPARE:
        yield f"page: it has {len(text):,} characters, and should have {len(page):,}"
        return
    shown = read_json(_found(_JSON, text), most=5_000_000)
    due = read_json(str(embedded_json(source.embedded)), most=5_000_000)
    yield from _altered(_rows(shown), _rows(due), "")
    # The page without its data, which are compared value by value.
    yield from _altered_page(*(_JSON.sub("", each).split("\n") for each in (text, page)))


def _altered(shown: Any, due: Any, path: str) -> Iterator[str]:
    if isinstance(shown, dict) and isinstance(due, dict):
        for name in sorted({*shown, *due}):
            where = f"{path}.{name}" if path else str(name)
            if name not in shown:
                yield f"data {where}: left out; the ledger has {_short(due[name])}"
            elif name not in due:
                yield f"data {where}: added"
            else:
                yield from _altered(shown[name], due[name], where)
    elif isinstance(shown, list) and isinstance(due, list) and len(shown) == len(due):
        for number, (one, other) in enumerate(zip(shown, due, strict=True)):
            yield from _altered(one, other, f"{path}[{number}]")
    elif shown != due or type(shown) is not type(due):
        yield f"data {path}: the report has {_short(shown)}, the ledger {_short(due)}"


def _altered_page(shown: Sequence[str], due: Sequence[str]) -> Iterator[str]:
    sections = []
    place = "head"
    for line in due:
        for _, name in _PLACE.findall(line):
            place = name
        sections.append(place)
    ahead = _alike(shown, due)
    behind = _alike(shown[:ahead:-1], due[:ahead:-1])
    shown, due = shown[ahead : len(shown) - behind], due[ahead : len(due) - behind]
    if len(shown) * len(due) > _MOST_PAIRS:
        yield f"page, {sections[ahead]}: line {ahead + 1} differs, and too many others to name"
        return
    matcher = difflib.SequenceMatcher(None, due, shown, autojunk=False)
    for kind, start, end, first, last in matcher.get_opcodes():
        if kind != "equal":
            where = sections[min(ahead + start, len(sections) - 1)]
            has, should = _words(shown[first:last]), _words(due[start:end])
            if has == should:
                yield f"page, {where}: what is not text, such as a chart or a style, was altered"
            else:
                at = max(0, _alike(has, should) - 40)  # most of what is alike is left out
                has, should = _short(has[at:]), _short(should[at:])
                yield f"page, {where}: the page has {has}, and should have {should}"


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many equal parts two texts, or lists of lines, begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _words(lines: Sequence[str]) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", "\n".join(lines))).split())


def _short(value: Any) -> str:
    text = on_one_line(value if isinstance(value, str) else str(value))
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def _columns(part: Any) -> Any:
    """Return rows by columns: their names are written once."""
    if not part or not isinstance(part[0], Mapping):
        return part
    names = list(part[0])
    return {"columns": names, "rows": [[row[name] for name in names] for row in part]}


def _rows(embedded: Any) -> Any:
    """Return embedded data with its parts as rows again, as far as they are what they should be."""
    if not isinstance(embedded, dict) or not isinstance(embedded.get("contents"), dict):
        return embedded
    parts = {}
    for name, part in embedded["contents"].items():
        parts[name] = part
        if isinstance(part, dict) and set(part) == {"columns", "rows"}:
            columns, rows = part["columns"], part["rows"]
            fits = isinstance(columns, list) and isinstance(rows, list)
            if fits and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
                parts[name] = [dict(zip(map(str, columns), row, strict=True)) for row in rows]
    return {**embedded, "contents": parts}
