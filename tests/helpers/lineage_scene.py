"""A ledger in which examples come from everywhere: what lineages lead through, on one line.

The original baseline, a change of tier 2, one of tier 1 that an operator approved, commits of
people's own, and a step into a valley; a judged run under each, and some that have no lineage.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from edge_trees import Tree
from synthetic import (
    CODE,
    CONFINED,
    synthetic_audit,
    synthetic_line,
    synthetic_run,
    synthetic_tests,
)

from aggregates.curation.export import Export
from aggregates.improvement.line import INSTALLED, Line
from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.approvals import make_approval, sign
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.verification.proofs import leaf_hash

EXPIRES = 2_000_000_000  # s
COMPARISONS = [  # as many as the reference set has tasks, and as long
    {
        "task_id": f"a-task-of-some-kind-{number}",
        "stochastic": True,
        "pairs": 40,
        "verdict": "unharmed",
        "success": [0.925, 0.95],
        "metrics": {name: [0.5 / 3, 0.7 / 3] for name in ("precision", "recall", "bytes")},
        "evidence": {"better": 1.0 / 3, "harmed": -2.0 / 3},
        "notes": ["40 pairs: the candidate is right in 38 and the base in 37 of them"],
    }
    for number in range(52)
]


@dataclass
class LineageScene:
    """The ledger's folder, and examples by what they rest on."""

    ledger: Path
    examples: dict[str, str] = field(default_factory=dict)
    runs: dict[str, UUID] = field(default_factory=dict)
    exported: Path = Path()  # a sealed export of three of them, JSON Lines
    line: UUID = field(default_factory=uuid4)

    @property
    def vkey(self) -> str:
        return LedgerPaths(self.ledger).vkey.read_text().strip()


@dataclass(frozen=True)
class _Signed:
    """Saves what somebody signs."""

    log: LedgerApplication
    author: AuthorKey

    def save(self, *aggregates: Any) -> object:
        return self.log.save(*aggregates, author=self.author)


def make_lineage_scene(folder: Path) -> LineageScene:
    scene = LineageScene(folder / "ledger", exported=folder / "export.jsonl")
    operator, judge = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (7, 8))
    with LedgerApplication.open(scene.ledger, REGISTRY) as log:
        recorder = log.recorder
        assert isinstance(recorder, SignedRecorder)
        recorder.grant_key(vkey("ada", public_bytes(operator)), role="operator")
        by_operator = AuthorKey("operator", operator)
        recorder.grant_key(vkey("judge", public_bytes(judge)), role="judge", author=by_operator)
        line = synthetic_line(log)
        scene.line = line.id

        by_judge = _Signed(log, AuthorKey("judge", judge))

        def judged(name: str) -> None:
            run = synthetic_run(log, dead=range(3), checkpoint=line.active)
            synthetic_audit(by_judge, run)
            scene.runs[name], scene.examples[name] = run.id, f"{run.id}/1"

        judged("baseline")
        change(log, line, "tier two", tier=2)
        judged("tier two")
        change(log, line, "tier one", tier=1, key=operator, left_out=["tests/test_apart.py"])
        judged("tier one")
        adopt(log, line, operator)
        judged("adopted")
        steps = [hashlib.sha256(name.encode()).hexdigest() for name in ("down", "up")]
        envelope = word("valley", line, operator, steps=tuple(steps))
        line.open_valley("v" * 64, steps=steps, envelope=envelope, expires=EXPIRES)
        log.save(line)
        change(log, line, "down", tier=2, valley="v" * 64)
        judged("valley")
        unlabelled = synthetic_run(log, dead=range(3))
        synthetic_audit(by_judge, unlabelled)
        scene.examples["unlabelled"] = f"{unlabelled.id}/1"
        unjudged = synthetic_run(log, dead=range(3), checkpoint=line.active)
        scene.examples["unjudged"] = f"{unjudged.id}/1"
        failed = synthetic_run(log, dead=range(3), checkpoint=line.active)
        synthetic_audit(by_judge, failed, hard_fail=True)
        scene.examples["failed"] = f"{failed.id}/1"
        elsewhere = synthetic_run(log, dead=range(3), checkpoint=str(line.id))
        synthetic_audit(by_judge, elsewhere)
        scene.examples["unknown checkpoint"] = f"{elsewhere.id}/1"
        batch(log, line, operator)
        judged("carried")
        change(log, line, "tidy", tier=2, key=operator, refactors=True)
        judged("refactored")
        change(log, line, "up", tier=2, code="another")
        judged("other code")
        baseline = {"manifest": line.manifest, "reference_set": line.reference_set, "envelope": ""}
        installed = Line.open(
            root=INSTALLED,
            branch=INSTALLED,
            commit="1",
            tree="1",
            manifest=line.manifest,
            reference_set=line.reference_set,
            code="1",
        )
        installed.adopt(commit=CODE, tree=CODE, code=CODE, **baseline)
        log.save(installed)
        run = synthetic_run(log, dead=range(3), checkpoint=installed.active)
        synthetic_audit(by_judge, run)
        scene.runs["upgraded"], scene.examples["upgraded"] = run.id, f"{run.id}/1"
        scene.examples["pair"] = f"{scene.examples['tier two']}>{scene.examples['tier one']}"
        seal(log, scene, ["tier two", "tier one", "pair"])
    return scene


def word(kind: str, line: Line, key: Ed25519PrivateKey, **more: Any) -> str:
    head = line.head
    subjects = {
        "base": head.commit,
        "base_tree": head.tree,
        "manifest": line.manifest,
        "reference_set": line.reference_set,
        **more.pop("subjects", {}),
    }
    more.setdefault("expires", EXPIRES)
    payload = make_approval(kind, line=str(line.id), subjects=subjects, **more)
    return sign(payload, key)


def submitted(
    log: LedgerApplication,
    line: Line,
    name: str,
    *,
    tier: int,
    evidence: Sequence[Mapping[str, Any]] = (),
) -> Proposal:
    proposal = Proposal.submit(
        line=str(line.id),
        targets={"component.py": tier},
        diff=hashlib.sha256(name.encode()).hexdigest(),
        diff_bytes=120,
        base=line.head.commit,
        base_tree=line.head.tree,
        rationale="It is better so.",
        trigger="operator_request",
        proposer="somebody",
        evidence=evidence,
    )
    log.save(proposal)
    return proposal


def batch(
    log: LedgerApplication, line: Line, key: Ed25519PrivateKey, *, carried: str | None = None
) -> tuple[UUID, UUID]:
    """Promote two changes that were signed at once; the second is carried to the new checkpoint.

    Return the second as it was shown and as it was carried; `carried` is another change instead.
    """
    names = [f"{each} of two, {carried}" for each in ("first", "second")]
    one, two = (submitted(log, line, name, tier=1) for name in names)
    subjects = {
        f"{what}:{each.id}": digest
        for each in (one, two)
        for what, digest in (("diff", each.diff), ("text_shown", "5" * 64))
    }
    envelope = word("batch", line, key, subjects=subjects)
    change(log, line, names[0], tier=1, proposal=one, envelope=envelope)
    two.conclude("superseded", stage="propose", reason="the line moved")
    log.save(two)
    evidence = [{"kind": "carried", "proposal": str(two.id)}]
    again = submitted(log, line, carried or names[1], tier=1, evidence=evidence)
    change(log, line, carried or names[1], tier=1, proposal=again, envelope=envelope)
    return two.id, again.id


def change(
    log: LedgerApplication,
    line: Line,
    name: str,
    *,
    tier: int,
    key: Ed25519PrivateKey | None = None,
    valley: str | None = None,
    code: str = CODE,
    left_out: Sequence[str] = (),
    proposal: Proposal | None = None,
    envelope: str | None = None,
    refactors: bool = False,
    signs: str | None = None,
) -> Proposal:
    """Promote a change; `name` is its diff. Test files that are left out run before the end.

    `signs` is the word in the envelope, by default the one that is recorded.
    """
    diff = hashlib.sha256(name.encode()).hexdigest()
    commit, tree = diff[:40], diff[24:]
    proposal = proposal or submitted(log, line, name, tier=tier)
    review = "refactor" if refactors else "approve"
    if key is not None:
        named = str(proposal.id)
        subjects = {"diff": diff}
        envelope = word(signs or review, line, key, proposal=named, subjects=subjects)
    if envelope is not None:
        proposal.record_review(review, envelope=envelope, key="k", expires=EXPIRES, note="")
        log.save(proposal)
    choice = "it does not reach them" if left_out else None
    synthetic_tests(
        proposal, line, commit=commit, tree=tree, tier=tier, left_out=left_out, choice=choice
    )
    proposal.evaluate(
        "worse" if valley is not None else "no worse" if refactors else "better",
        level=0.01,
        regressions=[] if valley is None else ["first"],
        improvements=["first"] if valley is None and not refactors else [],
        reasons=["it says so"],
        comparisons=COMPARISONS,
    )
    if left_out:
        proposal.record_rest(
            passed=True,
            problem=None,
            cases=3,
            missing=[],
            seconds=0.5,
            output=diff,
            isolation=CONFINED,
            leftovers=0,
            flaky=[],
            outcomes=diff,
        )
    log.save(proposal)
    checkpoint = line.promote(
        commit=commit,
        tree=tree,
        proposals=[str(proposal.id)],
        manifest=line.manifest,
        reference_set=line.reference_set,
        code=code,
    )
    proposal.conclude(
        "promoted", stage="conclude", reason="it may", checkpoint=checkpoint, valley=valley
    )
    log.save(line, proposal)
    return proposal


def adopt(log: LedgerApplication, line: Line, key: Ed25519PrivateKey) -> None:
    """Take over people's own commits."""
    new = {"commit": "c0" * 20, "tree": "7e" * 20}
    envelope = word("adopt", line, key, subjects=new)
    line.adopt(
        **new,
        code=CODE,
        manifest=line.manifest,
        reference_set=line.reference_set,
        envelope=envelope,
    )
    log.save(line)


def line_of_export(log: LedgerApplication, example: str) -> bytes:
    """Return what an export says of an example."""
    answers = []
    for part in example.split(">"):
        run, _, number = part.partition("/")
        decided: Run = log.repository.get(UUID(run))
        said = vars(decided.decisions[int(number) - 1].decision)
        content = json.dumps({"decisions": [said]})
        answers.append([{"content": content, "role": "assistant"}])
    told = {"messages": answers[0]}
    if len(answers) > 1:
        told = {"prompt": [], "chosen": answers[0], "rejected": answers[1]}
    return json.dumps({"id": example, **told}, sort_keys=True).encode()


def seal(log: LedgerApplication, scene: LineageScene, names: list[str]) -> None:
    """Hand out examples, as JSON Lines with their ids."""
    lines = [line_of_export(log, scene.examples[name]) for name in names]
    scene.exported.write_bytes(b"".join(line + b"\n" for line in lines))
    seal_lines(log, lines)


def seal_lines(log: LedgerApplication, lines: list[bytes]) -> None:
    """Seal lines as an export, whatever they say."""
    tree = Tree()
    for line in lines:
        tree.append(leaf_hash(line))
    as_of = (log.recorder.max_notification_id() or 0) - 1
    log.save(
        Export.seal(
            kind="sft",
            as_of=as_of,
            head=f"{as_of:064x}",
            query={},
            code="ef" * 32,
            examples=len(lines),
            root=tree.root().hex(),
            sha256=hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest(),
            members="45" * 32,
        )
    )
