"""Where one training example comes from: the entries that lead from it to an operator's key.

Example, decision, run, audit, checkpoint, proposals with their evaluation, approvals, keys, export.
The same walk finds these entries in a ledger and checks those that somebody hands over: there every
link has to be there, and nothing else.

Source: docs/reference/curation.md, "Links", whose numbers the comments name.
Trust: entries are the ledger's, whose tree head its key has signed; which of them were picked, and
what they say, is hostile.
I/O: none.
Not covered: what came later (a rollback, a revocation, a withdrawn origin), which takes the ledger;
entries' own authors, which read_selection() and the reader of a ledger verify.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aggregates.improvement.line import INSTALLED, Line
from aggregates.improvement.proposal import APPROVED
from judge.approvals import (
    BATCH,
    CARRIED,
    LEDGER,
    RECORDED,
    Approval,
    ledger_digest,
    names_of,
    of_proposal,
    read_approval,
)
from judge.errors import ApprovalError, LineageError
from judge.lineage.example import ExportLine, decisions_of, is_shown, shown_by
from ledger.errors import MalformedError, VerificationError
from ledger.handover.envelope import payload_of
from ledger.mapper import readable_body
from ledger.strict_json import read_json
from ledger.verification.authority import Authority, KeyRecord
from ledger.verification.proofs import leaf_hash, verify_inclusion
from ledger.verification.verified_entries import VerifiedEntry
from projections.counting import CountingAudit

NAMES = frozenset(
    {
        "audit.scored",
        "audit.started",
        "checkpoint.adopted",
        "checkpoint.promoted",
        "export.sealed",
        "line.opened",
        "proposal.branched",
        "proposal.concluded",
        "proposal.evaluated",
        "proposal.reviewed",
        "proposal.submitted",
        "proposal.tested",
        "proposal.rest_tested",
        "run.decision_made",
        "run.ended",
        "run.started",
        "valley.opened",
    }
)
"""The events that a lineage is made of."""
_SIZE = re.compile("0|[1-9][0-9]{0,17}")
Body = dict[str, Any]
Found = tuple[VerifiedEntry, Body]
"""An entry, and what its body says."""


@dataclass(frozen=True)
class LineageStep:
    """One entry of a lineage, and what it says in it."""

    entry: VerifiedEntry
    says: str


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """An example, and all that it came from."""

    example: str
    steps: tuple[LineageStep, ...]  # in the order of the walk

    @property
    def indexes(self) -> tuple[int, ...]:
        """Where its entries lie in the ledger."""
        return tuple(sorted(step.entry.index for step in self.steps))


def trace(
    entries: Iterable[VerifiedEntry],
    example: str,
    *,
    authority: Authority,
    line: ExportLine | None = None,
    counting: Callable[[], Mapping[str, CountingAudit]] | None = None,
    whole: bool = False,
) -> Lineage:
    """Follow an example through entries of a ledger, the whole authority stream among them.

    `authority` stands as it does after the last of them. `counting` gives the audits that count, by
    run; files of the first form do not say.
    With `whole`, entries that do not belong to it are an error too. Raises LineageError.
    """
    walk = _LineageWalk(entries, authority, counting)
    decisions = [walk.decision(run, number) for run, number in decisions_of(example)]
    shown = list(decisions)
    if line is not None:
        shown += walk.shown(line, example, decisions)
    for run in dict.fromkeys(entry.stream_id for entry in decisions):
        walk.run(run, [entry.index for entry in shown if entry.stream_id == run])
    if line is not None:
        walk.export(line, newest=max(entry.index for entry in shown))
    walk.take_keys()
    if whole and (strange := walk.rest()):
        raise LineageError(f"entry {strange[0]} does not belong to this lineage", index=strange[0])
    return Lineage(example=example, steps=tuple(walk.steps.values()))


class _LineageWalk:
    """Takes entries out of a pool, each by a link to one that was taken before.

    Which keys were in force is decided by the ledger's own rules (Authority), over the whole
    authority stream.
    """

    def __init__(
        self,
        entries: Iterable[VerifiedEntry],
        authority: Authority,
        counting: Callable[[], Mapping[str, CountingAudit]] | None,
    ) -> None:
        pooled = sorted(entries, key=lambda entry: entry.index)
        self._pool: dict[str, list[VerifiedEntry]] = {}  # by name
        for entry in pooled:
            self._pool.setdefault(entry.name, []).append(entry)
        self.steps: dict[int, LineageStep] = {}  # by the entry's index
        self._authority = authority  # after the last entry
        self._keys = [entry for entry in pooled if entry.stream_id == authority.stream_id]
        self._counting = counting

    def take(self, entry: VerifiedEntry, says: str) -> None:
        """Make an entry a step, once."""
        self.steps.setdefault(entry.index, LineageStep(entry, says))

    def rest(self) -> list[int]:
        """Return where the entries lie that were not taken."""
        pooled = {entry.index for found in self._pool.values() for entry in found}
        return sorted(pooled - set(self.steps))

    def last(self, name: str, *, created: bool = False, **wanted: Any) -> Found:
        """Return the last of all(), which with `created` has to begin its stream."""
        found = self.all(name, **wanted)
        if not found:
            told = ", ".join(f"{key} {value}" for key, value in wanted.items())
            raise LineageError(f"a link is missing: no {name} with {told} found")
        if created:
            _verify_created(found[-1][0])
        return found[-1]

    def all(
        self,
        name: str,
        *,
        stream: UUID | None = None,
        before: int | None = None,
        after: int = -1,
        **fields: Any,
    ) -> list[Found]:
        """Return the entries of this name whose bodies say that, in the order of the ledger."""
        found = []
        for entry in self._pool.get(name, ()):
            place = after < entry.index and (before is None or entry.index < before)
            if not place or stream not in (None, entry.stream_id):
                continue
            body = readable_body(entry.body)
            if body is not None and all(
                type(body.get(key)) is type(value) and body[key] == value
                for key, value in fields.items()
            ):
                found.append((entry, body))
        return found

    def decision(self, run: UUID, number: int) -> VerifiedEntry:
        """1. The decision."""
        entry, body = self.last("run.decision_made", stream=run, number=number)
        what = f"{body.get('direction')} for {_listed(body.get('cites'))} in epoch "
        self.take(entry, f"decision {number}: {what}{body.get('epoch')}, by {body.get('source')}")
        return entry

    def shown(
        self, line: ExportLine, example: str, decisions: Sequence[VerifiedEntry]
    ) -> list[VerifiedEntry]:
        """Take and return the decisions that a line shows, each as it is on record.

        The first of an answer is the example's own; others of the same answer follow in its run.
        """
        taken = []
        for said, first in zip(shown_by(line, example), decisions, strict=True):
            recorded = self.all("run.decision_made", stream=first.stream_id, after=first.index - 1)
            alike = iter(recorded)
            for place, decision in enumerate(said):
                found = next(
                    (entry for entry, body in alike if is_shown(body, decision, example)), None
                )
                if found is None or (place == 0 and found.index != first.index):
                    raise LineageError(
                        "the line of the export shows a decision that is not recorded",
                        index=first.index,
                    )
                self.take(found, f"shown in the line: {decision['direction']}")
                taken.append(found)
        return taken

    def run(self, run: UUID, decisions: Sequence[int]) -> None:
        """2. The run that they were made in, and 3. an audit of it, later and with every check."""
        start, body = self.last("run.started", stream=run, before=min(decisions), created=True)
        checkpoint = body.get("checkpoint")
        if not isinstance(checkpoint, str):
            raise LineageError(
                f"run {run} names no checkpoint: it is not known which version made it",
                index=start.index,
            )
        parent = body.get("parent_run")
        more = "" if parent is None else f"; it continues run {parent}, which is not shown"
        self.take(start, f"run {run} under checkpoint {checkpoint}{more}")
        audit, (scored, scores) = self._audit(run, start, newest=max(decisions))
        if scores.get("hard_fail") is not False:
            raise LineageError(f"the audit of run {run} failed", index=scored.index)
        who = "nobody" if scored.author is None else f"a key of the role {scored.author.role}"
        self.take(audit, f"audit of run {run}, signed by {who}")
        told = (f"{name} {scores.get(f'{name}_score')}" for name in ("accuracy", "process"))
        self.take(scored, f"it held: {', '.join(told)}")
        environment = body.get("environment")
        code = environment.get("code_sha256") if isinstance(environment, dict) else None
        self.checkpoint(checkpoint, before=start.index, code=code)

    def _audit(
        self, run: UUID, start: VerifiedEntry, *, newest: int
    ) -> tuple[VerifiedEntry, Found]:
        """Return the audit that counts, which judged all that was decided, with its score.

        Where the grant of a judge's key comes before a score, that has to be signed by a judge.
        Where it is not known which audit counts, it is the last such audit.
        """
        begun = self.all("audit.started", run=str(run))
        counts = None
        if self._counting is not None and begun:
            counts = self._counting().get(str(run))
            begun = [each for each in begun if counts and each[0].stream_id == counts.audit]
        for audit, told in reversed(begun):
            if audit.stream_version != 1 or not _is_whole(told) or _seen(told, audit) <= newest:
                continue
            ended = self._judged_end(run, told)
            if ended == []:
                continue
            scores = self.all("audit.scored", stream=audit.stream_id, after=audit.index)
            for scored in reversed(scores):
                if counts is not None and scored[0].index != counts.scored:
                    continue
                if self._accept_score(scored[0], audit=audit):
                    for entry in ended or ():
                        self.take(entry, "the run's end, up to which it was judged")
                    return audit, scored
        raise LineageError(
            f"no valid audit of run {run} found: it must follow the decision, be of the run as it "
            "ended, have every check in force, and be signed by a judge if the ledger has one",
            index=start.index,
        )

    def _judged_end(self, run: UUID, told: Body) -> list[VerifiedEntry] | None:
        """Return the run's end that an audit names, [] if it is not here, None if none is named."""
        judged = told.get("judged")
        if not isinstance(judged, dict) or "root" not in judged:  # an earlier version's audit
            return None
        ends = (entry for entry, _ in self.all("run.ended", stream=run))
        return [entry for entry in ends if entry.entry_hash.hex() == judged.get("entry")][-1:]

    def checkpoint(self, checkpoint: str, *, before: int, code: Any) -> None:
        """4. The checkpoint that the run names, which was there when it began and is what ran."""
        for name in ("checkpoint.promoted", "checkpoint.adopted", "line.opened"):
            if found := self.all(name, checkpoint=checkpoint, before=before):
                entry, body = found[-1]
                break
        else:
            raise LineageError(f"no entry before entry {before} creates checkpoint {checkpoint}")
        if Line.checkpoint_id(entry.stream_id, str(body.get("commit"))) != checkpoint:
            raise LineageError(
                f"checkpoint {checkpoint} does not match its line and commit", index=entry.index
            )
        if not isinstance(code, str) or body.get("code") != code:
            raise LineageError(
                f"the code of checkpoint {checkpoint} is not the code that the run recorded",
                index=entry.index,
            )
        if entry.index in self.steps:  # both runs of a preference name it
            return
        what = f"checkpoint {checkpoint}, commit {body.get('commit')}"
        if name == "line.opened":
            _verify_created(entry)
            if Line.id_of(str(body.get("root")), str(body.get("branch"))) != entry.stream_id:
                raise LineageError(
                    "the line's id does not match its repository and branch", index=entry.index
                )
            self.take(entry, f"{what}: the original baseline")
        elif entry.stream_id == Line.id_of(INSTALLED, INSTALLED):
            self.take(entry, f"{what}: a version that was installed, approved by nobody")
        elif name == "checkpoint.adopted":
            subjects = {key: body.get(key) for key in ("commit", "tree", "manifest")}
            self.take(entry, f"{what}, adopted")
            self._approval(entry, body, kind="adopt", line=entry.stream_id, subjects=subjects)
        else:
            self._promotion(entry, body, checkpoint, what)

    def _promotion(self, entry: VerifiedEntry, body: Body, checkpoint: str, what: str) -> None:
        proposals = body.get("proposals")
        if not isinstance(proposals, list) or not proposals:
            raise LineageError("the promotion names no proposal", index=entry.index)
        self.take(entry, f"{what}, promoted with {_listed(proposals)}")
        for proposal in proposals:
            branched = self.proposal(_id(proposal, entry), checkpoint, line=entry)
        if any(branched.get(key) != body.get(key) for key in ("commit", "tree")):
            raise LineageError("the promoted commit is not the candidate's", index=entry.index)

    def proposal(self, proposal: UUID, checkpoint: str, *, line: VerifiedEntry) -> Body:
        """5. A proposal that was promoted, from its submission to its end; return its branch."""
        take, before = self.take, line.index  # which moved the line
        stages: tuple[tuple[str, Body], ...] = (
            ("submitted", {"line": str(line.stream_id), "created": True, "before": before}),
            ("branched", {}),
            ("tested", {"passed": True}),
            ("evaluated", {"before": before}),
            ("concluded", {"outcome": "promoted", "checkpoint": checkpoint}),
        )
        found: list[Found] = []
        for name, wanted in stages:  # each after the one before it
            own: Body = {**wanted, "after": found[-1][0].index} if found else wanted
            found.append(self.last(f"proposal.{name}", stream=proposal, **own))
        (submitted, change), (branch, branched), (test, tested), *ends = found
        (evaluation, evaluated), (end, concluded) = ends
        take(submitted, f"proposal {proposal} by {change.get('proposer')}")
        if branched.get("tier") == 1:
            self._reviewed(proposal, change, line=line, before=branch.index)
        take(branch, f"tier {branched.get('tier')}, commit {branched.get('commit')}")
        left_out = tested.get("left_out")
        take(test, "the chosen tests passed" if left_out else "the tests passed")
        verdict = evaluated.get("verdict")
        take(evaluation, f"evaluated: {verdict}")
        if left_out:
            name, after = "proposal.rest_tested", evaluation.index
            rest, _ = self.last(name, stream=proposal, passed=True, after=after, before=before)
            take(rest, "the tests that were left out passed")
        take(end, f"promoted: {concluded.get('reason')}")
        if verdict == "no worse":  # which is enough on an operator's word
            self._reviewed(proposal, change, line=line, before=end.index, words=("refactor",))
        elif verdict != "better":
            self._valley(concluded.get("valley"), change, line=line, before=end.index)
        return branched

    def _reviewed(
        self,
        proposal: UUID,
        change: Body,
        *,
        line: VerifiedEntry,
        before: int,
        words: Sequence[str] = APPROVED,
    ) -> None:
        """6. What touches tier 1 was approved before anything of it was run."""
        name = "proposal.reviewed"
        found = [
            each
            for each in self.all(name, stream=proposal, before=before)
            if each[1].get("verdict") in words
        ]
        if not found:
            missing = f"{name} with stream {proposal}, verdict {' or '.join(words)}"
            raise LineageError(f"a link is missing: no {missing} found")
        review, body = found[-1]
        word = str(body["verdict"])
        as_what = " as a refactoring" if word == "refactor" else ""
        self.take(review, f"approved{as_what} by an operator")
        if word == "approve" and _said(body) == BATCH:
            shown, told = self._shown(proposal, change, line=line, before=review.index)
            subjects = {key: told.get(key) for key in ("base", "base_tree")}
            subjects[of_proposal("diff", str(shown))] = change.get("diff")
            self._approval(review, body, kind=BATCH, line=line.stream_id, subjects=subjects)
            return
        self._approval(
            review,
            body,
            kind=word,
            line=line.stream_id,
            proposal=str(proposal),
            subjects={key: change.get(key) for key in ("diff", "base", "base_tree")},
        )

    def _shown(
        self, proposal: UUID, change: Body, *, line: VerifiedEntry, before: int
    ) -> tuple[UUID, Body]:
        """Return the proposal that an operator was shown, which this one may be carried from."""
        evidence = change.get("evidence")
        told = [
            each.get("proposal")
            for each in (evidence if isinstance(evidence, list) else ())
            if isinstance(each, dict) and each.get("kind") == CARRIED
        ]
        if not told:
            return proposal, change
        shown = _id(told[0], line)
        entry, first = self.last(
            "proposal.submitted",
            stream=shown,
            line=str(line.stream_id),
            before=before,
            created=True,
        )
        if any(first.get(key) != change.get(key) for key in ("diff", "targets")):
            raise LineageError("it is not the change that was approved", index=entry.index)
        self.take(entry, f"approved as proposal {shown}")
        return shown, first

    def _valley(self, valley: Any, change: Body, *, line: VerifiedEntry, before: int) -> None:
        """7. An operator has suspended the comparison for exactly this proposal."""
        entry, body = self.last(
            "valley.opened", stream=line.stream_id, valley=valley, before=before
        )
        if change.get("diff") not in (body.get("steps") or ()):
            raise LineageError("the valley is for a different proposal", index=entry.index)
        self.take(entry, f"valley {body.get('valley')}")
        said = self._approval(entry, body, kind="valley", line=line.stream_id, subjects={})
        if list(said.steps) != body.get("steps"):
            raise LineageError("the valley's steps were not signed", index=entry.index)

    def export(self, line: ExportLine, *, newest: int) -> None:
        """8. The export that holds the line, as it was sealed."""
        fault = "no sealed export found"
        for seal, body in reversed(self.all("export.sealed", after=newest)):
            try:
                verify_inclusion(
                    leaf_hash(line.data),
                    index=line.number,
                    size=_natural(body.get("examples"), seal),
                    root=bytes.fromhex(str(body.get("root"))),
                    proof=line.path,
                )
            except (ValueError, VerificationError) as e:
                fault = str(e)
                continue
            if not newest <= _natural(body.get("as_of"), seal) < seal.index:
                raise LineageError("the export is as of a different entry", index=seal.index)
            _verify_created(seal)
            what = f"export {seal.stream_id} ({body.get('kind')}) as of {body.get('as_of')}"
            self.take(seal, f"{what}, line {line.number} of {body.get('examples')}")
            return
        raise LineageError(f"the example is not in a sealed export: {fault}")

    def take_keys(self) -> None:
        """9. Take the authority stream."""
        for entry in self._keys:
            told = readable_body(entry.body) or {}
            about = " ".join(str(told[name]) for name in ("role", "vkey") if name in told)
            self.take(entry, f"{entry.name.partition('.')[2]} {about}".strip())

    def _before(self, entry: VerifiedEntry) -> Authority:
        """Return the keys as they stood where an entry is."""
        authority = Authority(self._authority.keys[0].vkey)
        for each in self._keys:
            if each.index < entry.index:
                authority.apply(each)
        return authority

    def _approval(
        self,
        entry: VerifiedEntry,
        body: Body,
        *,
        kind: str,
        line: UUID,
        subjects: dict[str, Any],
        proposal: str | None = None,
    ) -> Approval:
        """Check the envelope in an entry, which an operator in force has signed."""
        operators = [
            key.vkey
            for key in self._before(entry).keys
            if key.role == "operator" and key.ended is None and not self._is_doubted(key, entry)
        ]
        try:
            said = read_approval(str(body.get("envelope")), operators=operators)
        except ApprovalError as e:
            raise LineageError(f"entry {entry.index}: {e}", index=entry.index) from e
        wanted = {"kind": kind, "line": str(line), "proposal": proposal, **subjects}
        found = {"kind": said.kind, "line": said.line, "proposal": said.proposal, **said.subjects}
        if any(found.get(key) != value for key, value in wanted.items()):
            raise LineageError(f"entry {entry.index}: the approval is for something else")
        ledger = said.subjects.get(LEDGER)
        earlier = (body for name in RECORDED for _, body in self.all(name, before=entry.index))
        if ledger is None and any(LEDGER in names_of(str(b.get("envelope"))) for b in earlier):
            raise LineageError(f"entry {entry.index}: the approval names no ledger")
        if ledger not in (None, ledger_digest(self._authority.keys[0].vkey)):
            raise LineageError(f"entry {entry.index}: the approval is for another ledger")
        if entry.time_ns >= said.expires * 10**9:
            raise LineageError(f"entry {entry.index}: the approval had expired", index=entry.index)
        return said

    def _accept_score(self, scored: VerifiedEntry, *, audit: VerifiedEntry) -> bool:
        """Tell whether a judge has signed a score, where a judge's key was granted before it.

        And the start of its audit with the same key: the score does not say which run it is of.
        """
        judges = [key for key in self._before(scored).keys if key.role == "judge"]
        if not judges:
            return True
        if scored.author is None or audit.author is None:
            return False
        named = scored.author.key_id
        return audit.author.key_id == named and any(
            key.key_id == named and not self._is_doubted(key, scored) for key in judges
        )

    def _is_doubted(self, key: KeyRecord, entry: VerifiedEntry) -> bool:
        """Tell whether a key was revoked since a time before an entry."""
        found = (each for each in self._authority.keys if each.key_id == key.key_id)
        return any(
            revoked.since <= entry.time_ns
            and (revoked.lifted is None or entry.index <= revoked.lifted)
            for revoked in next(found).revocations
        )


def _verify_created(entry: VerifiedEntry) -> None:
    """Raise LineageError unless an entry begins its stream."""
    if entry.stream_version != 1:
        raise LineageError(f"{entry.name} is not the first event of its stream", index=entry.index)


def _natural(value: Any, entry: VerifiedEntry) -> int:
    """Return a whole number from 0, or raise LineageError."""
    if type(value) is not int or value < 0:
        raise LineageError(f"{entry.name} has a count that is no number", index=entry.index)
    return value


def _said(body: Body) -> str | None:
    """Return what kind of approval an envelope says that it is; _approval() verifies it."""
    try:
        found = read_json(payload_of(str(body.get("envelope"))))["predicate"]["kind"]
    except (MalformedError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _id(proposal: Any, named_in: VerifiedEntry) -> UUID:
    try:
        return UUID(proposal)
    except (ValueError, TypeError, AttributeError) as e:
        raise LineageError(f"{proposal!r:.90} is not a proposal id", index=named_in.index) from e


def _listed(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)


def _is_whole(body: Body) -> bool:
    """Tell whether an audit had every check in force."""
    config = body.get("config")
    return isinstance(config, dict) and config.get("disabled") == []


def _seen(body: Body, audit: VerifiedEntry) -> int:
    """Return how many entries an audit has looked at: those under the tree head that it names."""
    size = [*str(body.get("tree_head")).split("\n"), ""][1]
    return min(int(size), audit.index) if _SIZE.fullmatch(size) else audit.index
