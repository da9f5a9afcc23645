"""Where one training example comes from: the entries that lead from it to an operator's key.

Example, decision, run, audit, checkpoint, proposals with their evaluation, approvals, keys, export.
The same walk finds these entries in a ledger and checks those that somebody hands over: there every
link has to be there, and nothing else.

Source: docs/reference/lineage.md, "Links", whose numbers the comments name.
Trust: entries are the ledger's, whose tree head its key has signed; which of them were picked, and
what they say, is hostile.
I/O: none.
Not covered: what came later (a rollback, a revocation, a withdrawn origin), which takes the ledger.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from aggregates.improvement.line import Line as ChainedLine
from judge.errors import LineageError
from judge.gauntlet.approvals import Approval, read_approval
from judge.gauntlet.errors import ApprovalError
from ledger.errors import VerificationError
from ledger.mapper import decode_body
from ledger.strict_json import JSONError, read_object
from ledger.verification.authority import authority_stream
from ledger.verification.proofs import leaf_hash, verify_inclusion
from ledger.verification.verified_entries import VerifiedEntry, verify_author
from ledger.verification.verified_notes import ED25519, parse_vkey

__all__ = ["NAMES", "Line", "Lineage", "Step", "decisions_of", "trace"]

NAMES = frozenset(
    {
        "audit.scored",
        "audit.started",
        "checkpoint.adopted",
        "checkpoint.promoted",
        "export.sealed",
        "key.granted",
        "line.opened",
        "proposal.branched",
        "proposal.concluded",
        "proposal.evaluated",
        "proposal.reviewed",
        "proposal.submitted",
        "proposal.tested",
        "run.decision_made",
        "run.started",
        "valley.opened",
    }
)
"""The events that a lineage is made of."""
_SHOWN = {"cites", "direction", "event_type", "justification", "params"}  # of a decision
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SIZE = re.compile("0|[1-9][0-9]{0,17}")
_DECISION = re.compile(rf"({_UUID})/([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of an export, and its path to the root that the export was sealed with."""

    number: int  # from 0
    data: bytes  # without its line break
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class Step:
    """One entry of a lineage, and what it says in it."""

    entry: VerifiedEntry
    says: str


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """An example, and all that it came from."""

    example: str
    steps: tuple[Step, ...]  # in the order of the walk

    @property
    def indexes(self) -> tuple[int, ...]:
        """Where its entries lie in the ledger."""
        return tuple(sorted(step.entry.index for step in self.steps))


def decisions_of(example: str) -> list[tuple[UUID, int]]:
    """Return run and number of an example's decision, or of both that a preference compares."""
    found = [_DECISION.fullmatch(part) for part in example.split(">")]
    if not 1 <= len(found) <= 2 or not all(found):
        raise LineageError(
            f"an example must be RUN/NUMBER or RUN/NUMBER>RUN/NUMBER, not {example!r:.90}"
        )
    return [(UUID(match[1]), int(match[2])) for match in found if match]


def trace(
    entries: Iterable[VerifiedEntry],
    example: str,
    *,
    vkeys: Sequence[str],
    line: Line | None = None,
    whole: bool = False,
) -> Lineage:
    """Follow an example through entries of a ledger whose own keys these were, oldest first.

    With `whole`, entries that do not belong to it are an error too. Raises LineageError.
    """
    walk = _Walk(entries, vkeys)
    decisions = [walk.decision(run, number) for run, number in decisions_of(example)]
    shown = list(decisions)
    if line is not None:
        shown += walk.shown(line, example, decisions)
    for run in dict.fromkeys(entry.stream_id for entry in decisions):
        walk.run(run, [entry.index for entry in shown if entry.stream_id == run])
    if line is not None:
        walk.line(line, newest=max(entry.index for entry in shown))
    walk.authors()
    if whole and (strange := sorted(walk.rest())):
        raise LineageError(f"entry {strange[0]} does not belong to this lineage", index=strange[0])
    return Lineage(example=example, steps=tuple(walk.steps.values()))


class _Walk:
    """Takes entries out of a pool, each by a link to one that was taken before."""

    def __init__(self, entries: Iterable[VerifiedEntry], vkeys: Sequence[str]) -> None:
        self._pool: dict[str, list[VerifiedEntry]] = {}
        for entry in entries:
            self._pool.setdefault(entry.name, []).append(entry)
        self._vkeys = vkeys
        self.origin = vkeys[0].partition("+")[0]
        self.steps: dict[int, Step] = {}  # by the entry's index

    def rest(self) -> set[int]:
        """Return where the entries lie that were not taken."""
        return {entry.index for found in self._pool.values() for entry in found} - set(self.steps)

    def decision(self, run: UUID, number: int) -> VerifiedEntry:
        """1. The decision."""
        entry, body = self._last("run.decision_made", stream=run, number=number)
        what = f"{body.get('direction')} for {_listed(body.get('cites'))} in epoch "
        self._take(entry, f"decision {number}: {what}{body.get('epoch')}, by {body.get('source')}")
        return entry

    def shown(
        self, line: Line, example: str, decisions: Sequence[VerifiedEntry]
    ) -> list[VerifiedEntry]:
        """Take and return the decisions that a line shows, each as it is on record.

        The first of an answer is the example's own; others of the same answer follow in its run.
        """
        told = _object(line.data, "the line of the export")
        if told.get("id") != example:
            named = told.get("id")
            raise LineageError(f"the line of the export is for a different example: {named!r:.90}")
        taken = []
        for said, first in zip(_answers(told, count=len(decisions)), decisions, strict=True):
            at = first.index
            for place, one in enumerate(said):
                found = [
                    entry
                    for entry, body in self._all("run.decision_made", stream=first.stream_id)
                    if (entry.index > at or (place == 0 and entry.index == at))
                    and _decided(body) == one
                ]
                if not found or (place == 0 and found[0].index != at):
                    raise LineageError(
                        "the line of the export shows a decision that is not recorded",
                        index=first.index,
                    )
                at = found[0].index
                self._take(found[0], f"shown in the line: {one['direction']}")
                taken.append(found[0])
        return taken

    def run(self, run: UUID, decisions: Sequence[int]) -> None:
        """2. The run that they were made in, and 3. an audit of it, later and with every check."""
        start, body = self._last("run.started", stream=run, before=min(decisions), created=True)
        checkpoint = body.get("checkpoint")
        if not isinstance(checkpoint, str):
            raise LineageError(
                f"run {run} names no checkpoint: it is not known which version made it",
                index=start.index,
            )
        code = _code(body)
        parent = body.get("parent_run")
        more = "" if parent is None else f"; it continues run {parent}, which is not shown"
        self._take(start, f"run {run} under checkpoint {checkpoint}{more}")
        audit, scored, scores = self._audit(run, start, newest=max(decisions))
        if scores.get("hard_fail") is not False:
            raise LineageError(f"the audit of run {run} failed", index=scored.index)
        who = "nobody" if scored.author is None else f"a key of the role {scored.author.role}"
        self._take(audit, f"audit of run {run}, signed by {who}")
        told = (f"{name} {scores.get(f'{name}_score')}" for name in ("accuracy", "process"))
        self._take(scored, f"it held: {', '.join(told)}")
        self.checkpoint(checkpoint, before=start.index, code=code)

    def _audit(
        self, run: UUID, start: VerifiedEntry, *, newest: int
    ) -> tuple[VerifiedEntry, VerifiedEntry, dict[str, Any]]:
        """Return the last audit of all that was decided, with its score and what that says.

        Where the grant of a judge's key comes before a score, that has to be signed by a judge.
        """
        for audit, told in reversed(self._all("audit.started", run=str(run))):
            if audit.stream_version != 1 or not _is_whole(told) or _seen(told, audit) <= newest:
                continue
            found = self._all("audit.scored", stream=audit.stream_id, after=audit.index)
            for scored, scores in reversed(found):
                wanted = self._all("key.granted", role="judge", before=scored.index)
                if self._is_judged(scored) or not wanted:
                    return audit, scored, scores
        raise LineageError(
            f"no valid audit of run {run} found: it must follow the decision, have every check in "
            "force, and be signed by a judge if the ledger has one",
            index=start.index,
        )

    def checkpoint(self, checkpoint: str, *, before: int, code: str | None) -> None:
        """4. The checkpoint that the run names, which was there when it began and is what ran."""
        for name in ("checkpoint.promoted", "checkpoint.adopted", "line.opened"):
            if found := self._all(name, checkpoint=checkpoint, before=before):
                entry, body = found[-1]
                break
        else:
            raise LineageError(f"no entry before entry {before} creates checkpoint {checkpoint}")
        if ChainedLine.checkpoint_id(entry.stream_id, str(body.get("commit"))) != checkpoint:
            raise LineageError(
                f"checkpoint {checkpoint} does not match its line and commit", index=entry.index
            )
        if code is None or body.get("code") != code:
            raise LineageError(
                f"the code of checkpoint {checkpoint} is not the code that the run recorded",
                index=entry.index,
            )
        if entry.index in self.steps:  # both runs of a preference name it
            return
        what = f"checkpoint {checkpoint}, commit {body.get('commit')}"
        if name == "line.opened":
            self._check_created(entry)
            if ChainedLine.id_of(str(body.get("root")), str(body.get("branch"))) != entry.stream_id:
                raise LineageError(
                    "the line's id does not match its repository and branch", index=entry.index
                )
            self._take(entry, f"{what}: the original baseline")
        elif name == "checkpoint.adopted":
            subjects = {key: body.get(key) for key in ("commit", "tree", "manifest")}
            self._take(entry, f"{what}, adopted")
            self._approved(entry, body, kind="adopt", line=entry.stream_id, subjects=subjects)
        else:
            proposals = body.get("proposals")
            if not isinstance(proposals, list) or not proposals:
                raise LineageError("the promotion names no proposal", index=entry.index)
            self._take(entry, f"{what}, promoted with {_listed(proposals)}")
            for proposal in proposals:
                branched = self.proposal(_uuid(proposal, entry), checkpoint, line=entry)
            if [branched.get(key) for key in ("commit", "tree")] != [
                body.get("commit"),
                body.get("tree"),
            ]:
                raise LineageError("the promoted commit is not the candidate's", index=entry.index)

    def proposal(self, proposal: UUID, checkpoint: str, *, line: VerifiedEntry) -> dict[str, Any]:
        """5. A proposal that was promoted, from its submission to its end; return its branch."""
        submitted, change = self._last(
            "proposal.submitted", stream=proposal, line=str(line.stream_id), before=line.index
        )
        self._check_created(submitted)
        branch, branched = self._last("proposal.branched", stream=proposal, after=submitted.index)
        test, _ = self._last("proposal.tested", stream=proposal, passed=True, after=branch.index)
        evaluation, evaluated = self._last(
            "proposal.evaluated", stream=proposal, after=test.index, before=line.index
        )
        end, concluded = self._last(
            "proposal.concluded",
            stream=proposal,
            outcome="promoted",
            checkpoint=checkpoint,
            after=evaluation.index,
        )
        self._take(submitted, f"proposal {proposal} by {change.get('proposer')}")
        if branched.get("tier") == 1:
            self._reviewed(proposal, change, line=line, before=branch.index)
        self._take(branch, f"tier {branched.get('tier')}, commit {branched.get('commit')}")
        self._take(test, "the tests passed")
        verdict = evaluated.get("verdict")
        self._take(evaluation, f"evaluated: {verdict}")
        self._take(end, f"promoted: {concluded.get('reason')}")
        if verdict != "better":  # 7. An operator has suspended the comparison for exactly this.
            valley, body = self._last(
                "valley.opened",
                stream=line.stream_id,
                valley=concluded.get("valley"),
                before=end.index,
            )
            if change.get("diff") not in (body.get("steps") or ()):
                raise LineageError("the valley is for a different proposal", index=valley.index)
            self._take(valley, f"valley {body.get('valley')}")
            said = self._approved(valley, body, kind="valley", line=line.stream_id, subjects={})
            if list(said.steps) != body.get("steps"):
                raise LineageError("the valley's steps were not signed", index=valley.index)
        return branched

    def line(self, line: Line, *, newest: int) -> None:
        """8. The export that holds the line, as it was sealed."""
        fault = "no sealed export found"
        for seal, body in reversed(self._all("export.sealed", after=newest)):
            try:
                verify_inclusion(
                    leaf_hash(line.data),
                    index=line.number,
                    size=_natural(body.get("examples")),
                    root=bytes.fromhex(str(body.get("root"))),
                    proof=line.path,
                )
            except (ValueError, VerificationError) as e:
                fault = str(e)
                continue
            if not newest <= _natural(body.get("as_of")) < seal.index:
                raise LineageError("the export is as of a different entry", index=seal.index)
            self._check_created(seal)
            what = f"export {seal.stream_id} ({body.get('kind')}) as of {body.get('as_of')}"
            self._take(seal, f"{what}, line {line.number} of {body.get('examples')}")
            return
        raise LineageError(f"the example is not in a sealed export: {fault}")

    def authors(self) -> None:
        """9. Who has signed an entry, and who let that key in."""
        done: set[int] = set()
        while todo := [step.entry for index, step in self.steps.items() if index not in done]:
            for entry in todo:
                done.add(entry.index)
                if entry.author is not None:
                    self._author(entry)
                elif entry.name == "key.granted":
                    raise LineageError("the grant of a key is not signed", index=entry.index)

    def _author(self, entry: VerifiedEntry) -> None:
        author = entry.author
        assert author is not None
        grants: dict[str, tuple[VerifiedEntry, dict[str, Any]]] = {}
        if author.role != "ledger":
            found = self._all("key.granted", role=author.role, before=entry.index)
            grants = {str(body.get("vkey")): (grant, body) for grant, body in found}
        for vkey in grants if author.role != "ledger" else self._vkeys:
            public_key = _public_key(vkey)
            if sha256(public_key).digest() == author.key_id:
                verify_author(entry, origin=self.origin, public_key=public_key)
                if vkey in grants:
                    self._granted(*grants[vkey])
                return
        raise LineageError(
            f"entry {entry.index} ({entry.name}) is signed by a key that was never granted",
            index=entry.index,
        )

    def _reviewed(
        self, proposal: UUID, change: dict[str, Any], *, line: VerifiedEntry, before: int
    ) -> None:
        """6. What touches tier 1 was approved before anything of it was run."""
        review, body = self._last(
            "proposal.reviewed", stream=proposal, verdict="approve", before=before
        )
        self._take(review, "approved by an operator")
        self._approved(
            review,
            body,
            kind="approve",
            line=line.stream_id,
            proposal=str(proposal),
            subjects={key: change.get(key) for key in ("diff", "base", "base_tree")},
        )

    def _approved(
        self,
        entry: VerifiedEntry,
        body: dict[str, Any],
        *,
        kind: str,
        line: UUID,
        subjects: dict[str, Any],
        proposal: str | None = None,
    ) -> Approval:
        """Check the envelope in an entry, and take the grant of the key that has signed it."""
        grants = [
            (grant, told)
            for grant, told in self._all("key.granted", role="operator", before=entry.index)
            if not self._is_revoked(str(told.get("vkey")), "operator", entry, granted=grant.index)
        ]
        operators = [str(grant.get("vkey")) for _, grant in grants]
        try:
            said = read_approval(str(body.get("envelope")), operators=operators)
        except ApprovalError as e:
            raise LineageError(f"entry {entry.index}: {e}", index=entry.index) from e
        wanted = {"kind": kind, "line": str(line), "proposal": proposal, **subjects}
        found = {"kind": said.kind, "line": said.line, "proposal": said.proposal, **said.subjects}
        if any(found.get(key) != value for key, value in wanted.items()):
            raise LineageError(f"entry {entry.index}: the approval is for something else")
        if entry.time_ns >= said.expires * 10**9:
            raise LineageError(f"entry {entry.index}: the approval had expired", index=entry.index)
        at = len(operators) - 1 - operators[::-1].index(said.key)
        self._granted(*grants[at])
        return said

    def _is_revoked(self, vkey: str, role: str, entry: VerifiedEntry, *, granted: int = -1) -> bool:
        """Tell whether a key was revoked before an entry, or is not to be trusted since before.

        A file does not show that; whoever makes one has the ledger.
        """
        return any(
            revoked.index < entry.index or _natural(body.get("since")) <= entry.time_ns
            for revoked, body in self._all("key.revoked", role=role, vkey=vkey, after=granted)
            if revoked.stream_id == authority_stream(self.origin)
        )

    def _is_judged(self, scored: VerifiedEntry) -> bool:
        """Tell whether a judge has signed a score whose key is to be trusted for that time."""
        author = scored.author
        if author is None or author.role != "judge":
            return False
        return not any(
            sha256(_public_key(str(body["vkey"]))).digest() == author.key_id
            and self._is_revoked(str(body["vkey"]), "judge", scored, granted=grant.index)
            for grant, body in self._all("key.granted", role="judge", before=scored.index)
        )

    def _granted(self, grant: VerifiedEntry, body: dict[str, Any]) -> Step:
        if grant.stream_id != authority_stream(self.origin):
            raise LineageError("a grant is in another stream", index=grant.index)
        if grant.author is None or grant.author.role not in ("ledger", "operator"):
            raise LineageError(
                "a key must be granted by the ledger's key or an operator", index=grant.index
            )
        return self._take(grant, f"{body.get('role')} key {body.get('vkey')} is granted")

    def _take(self, entry: VerifiedEntry, says: str) -> Step:
        return self.steps.setdefault(entry.index, Step(entry, says))

    def _last(
        self, name: str, *, created: bool = False, **wanted: Any
    ) -> tuple[VerifiedEntry, dict[str, Any]]:
        found = self._all(name, **wanted)
        if not found:
            told = ", ".join(f"{key} {value}" for key, value in wanted.items())
            raise LineageError(f"a link is missing: no {name} with {told} found")
        if created:
            self._check_created(found[-1][0])
        return found[-1]

    def _all(
        self,
        name: str,
        *,
        stream: UUID | None = None,
        before: int | None = None,
        after: int = -1,
        **fields: Any,
    ) -> list[tuple[VerifiedEntry, dict[str, Any]]]:
        """Return the entries of this name whose bodies say that, in the order of the ledger."""
        found = []
        for entry in self._pool.get(name, ()):
            place = after < entry.index and (before is None or entry.index < before)
            if not place or stream not in (None, entry.stream_id):
                continue
            body = decode_body(entry.body)
            if all(
                type(body.get(key)) is type(value) and body[key] == value
                for key, value in fields.items()
            ):
                found.append((entry, body))
        return found

    @staticmethod
    def _check_created(entry: VerifiedEntry) -> None:
        if entry.stream_version != 1:
            raise LineageError(
                f"{entry.name} is not the first event of its stream", index=entry.index
            )


def _public_key(vkey: str) -> bytes:
    return parse_vkey(vkey, type=ED25519).public_key


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a count is not a number")
    return value


def _code(body: dict[str, Any]) -> str | None:
    environment = body.get("environment")
    found = environment.get("code_sha256") if isinstance(environment, dict) else None
    return found if isinstance(found, str) else None


def _listed(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)


def _uuid(text: Any, entry: VerifiedEntry) -> UUID:
    try:
        return UUID(text)
    except (ValueError, TypeError, AttributeError) as e:
        raise LineageError(f"{text!r:.90} is not a proposal id", index=entry.index) from e


def _is_whole(body: dict[str, Any]) -> bool:
    """Tell whether an audit had every check in force."""
    config = body.get("config")
    return isinstance(config, dict) and config.get("disabled") == []


def _seen(body: dict[str, Any], audit: VerifiedEntry) -> int:
    """Return how many entries an audit has looked at: those under the tree head that it names."""
    size = [*str(body.get("tree_head")).split("\n"), ""][1]
    return min(int(size), audit.index) if _SIZE.fullmatch(size) else audit.index


def _answers(told: dict[str, Any], *, count: int) -> list[list[dict[str, Any]]]:
    """Return what a line of an export shows as decided, answer by answer; _SHOWN of each."""
    try:
        if count == 1:
            parts, answers = {"id", "messages"}, [told["messages"][-1]]
        else:
            parts = {"chosen", "id", "prompt", "rejected"}
            (answers,) = map(list, zip(told["chosen"], told["rejected"], strict=True))
        found = [
            _object(answer["content"], "an answer in the line of the export") for answer in answers
        ]
        alone = all(
            answer["role"] == "assistant"
            and set(each) == {"decisions"}
            and each["decisions"]
            and all(set(one) == _SHOWN for one in each["decisions"])
            for answer, each in zip(answers, found, strict=True)
        )
    except (IndexError, KeyError, TypeError, ValueError) as e:
        raise LineageError(f"the line of the export is not an example: {e}") from e
    if set(told) != parts or not alone:
        raise LineageError("the line of the export contains more than decisions")
    return [each["decisions"] for each in found]


def _decided(body: dict[str, Any]) -> dict[str, Any]:
    """Return what an export shows of a decision."""
    cites = body.get("cites")
    shown = {name: body.get(name) for name in _SHOWN}
    return {**shown, "cites": sorted(map(str, cites)) if isinstance(cites, list) else None}


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, str | bytes):
        raise LineageError(f"{what} is not text")
    try:
        return read_object(data)
    except JSONError as e:
        raise LineageError(f"{what} is not a strict JSON object: {e}") from e
