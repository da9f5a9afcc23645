"""Lineages that are put together by hand to tell what is not so: both verifiers refuse them.

Whoever tries owns the ledger's folder, can append every event, and hands over whichever entries he
likes. He has no operator's key that is in force, and not the judge's.
"""

import argparse
import base64
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from exhaustive import EXHAUSTIVE
from handmade_ledgers import JUDGE, HandmadeLedger, Signer
from lineage_scene import (
    LineageScene,
    batch,
    change,
    line_of_export,
    make_lineage_scene,
    seal_lines,
    submitted,
    word,
)
from synthetic import CODE, synthetic_run

from aggregates.audit import STEPS, Audit
from aggregates.improvement.line import Line
from aggregates.playbook import HYPERPARAMETER_CHANGE
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.errors import LineageError
from judge.lineage.example import line_of
from judge.lineage.files import TITLES, find_lineage, open_lineage, write_lineage
from ledger.application import LedgerApplication
from ledger.bodies import decode_body
from ledger.entries import AuthorKey
from ledger.errors import VerificationError
from ledger.handover.proof_files import write_proofs
from ledger.notes import public_bytes, vkey
from ledger.recorder import SignedRecorder
from ledger.verification.reader import VerifiedLedger, open_verified
from ledger.verification.verified_entries import VerifiedEntry

SOURCE = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
SPEC = importlib.util.spec_from_file_location("second_verifier_of_attacks", SOURCE)
assert SPEC
assert SPEC.loader
SECOND = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SECOND)
OPERATOR, OUR_JUDGE, LOST, LOST_JUDGE = (
    Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (7, 8, 9, 10)
)
BY_JUDGE = AuthorKey("judge", OUR_JUDGE)
CHECKPOINTS = ("checkpoint.adopted", "checkpoint.promoted", "line.opened")
STEP = "audit.step_completed"


def answering(change: Callable[[str], str]) -> Callable[[dict[str, Any]], None]:
    """Return what changes the answer of an export's line."""

    def apply(line: dict[str, Any]) -> None:
        line["messages"][-1]["content"] = change(line["messages"][-1]["content"])

    return apply


PRAISE = {"content": "Praise whoever wrote this.", "role": "assistant"}
OTHER_WORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "other words": answering(lambda said: said.replace("R5 wants it", "I want it")),
    "one more decision": answering(lambda said: said.replace("[{", "[{}, {", 1)),
    "the decision twice": answering(
        lambda said: json.dumps({"decisions": 2 * json.loads(said)["decisions"]})
    ),
    "no decision": answering(lambda _: '{"decisions": []}'),
    "more than decisions": answering(lambda said: said.replace("{", '{"more": 1, ', 1)),
    "something else at the end": lambda line: line["messages"].append(PRAISE),
    "another column": lambda line: line.update(completion=PRAISE),
}


@dataclass
class Grounds:
    """The ledger, and what was tried on it: examples, and the audit that is to vouch for each."""

    scene: LineageScene
    log: LedgerApplication
    line: Line
    examples: dict[str, str] = field(default_factory=dict)
    audits: dict[str, UUID] = field(default_factory=dict)
    carried: tuple[UUID, UUID] | None = None  # a proposal, and what was made of it
    pretended: dict[str, UUID] = field(default_factory=dict)  # refactorings that nobody called so
    honest: bytes = b""  # line of an export
    lines: dict[str, tuple[bytes, int]] = field(default_factory=dict)  # others, and their seals

    def run(
        self,
        name: str,
        *,
        checkpoint: str | None = None,
        judged: bool = True,
        parent_run: str | None = None,
    ) -> Run:
        made = synthetic_run(
            self.log,
            dead=range(3),
            checkpoint=checkpoint or self.line.first,
            parent_run=parent_run,
        )
        self.examples[name] = f"{made.id}/1"
        if judged:
            self.judge(name, made)
        return made

    def judge(
        self,
        name: str,
        run: Run,
        *,
        by: AuthorKey | None = BY_JUDGE,
        held: bool = True,
        disabled: tuple[str, ...] = (),
        at: str = "note",
        failing: Mapping[str, Any] = MappingProxyType({}),
    ) -> UUID:
        config = {"disabled": list(disabled)}
        audit = Audit.start(run=str(run.id), tree_head=at, config=config, environment={})
        for number, step in enumerate(STEPS):
            status = "passed" if held else "failed" if number == 0 else "not_run"
            evidence = failing if status == "failed" else {}
            audit.complete_step(step, status, summary=status, evidence=evidence)
        audit.score(**SCORES, accuracy_score=0.5 * held, process_score=1.0 * held)
        self.log.save(audit, author=by)
        self.audits[name] = audit.id
        return audit.id

    def append(self, stream: UUID, kind: type, *, version: int | None = None, **told: Any) -> None:
        """Append an event past its aggregate, which would have none of it."""
        if version is None:
            (last,) = self.log.events.get(stream, desc=True, limit=1)
            version = last.originator_version + 1
        place = {"originator_id": stream, "originator_version": version}
        self.log.events.put([kind(**place, timestamp=datetime.now(UTC), **told)])

    def decide(self, run: Run) -> None:
        run.trigger_event(
            Run.DecisionMade,
            number=len(run.decisions) + 1,
            epoch=4,
            source="policy",
            event_type=HYPERPARAMETER_CHANGE,
            cites=["R5"],
            direction="decrease_lr",
            params={"lr": 1e-7},
            justification="because I say so",
        )
        self.log.save(run)


SCORES: dict[str, Any] = {
    "process_axis_exercised": True,
    "test_accuracy": 0.5,
    "validation_accuracy": 0.5,
    "obligations": 1,
    "decisions": 1,
    "violations": [],
}


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    scene = make_lineage_scene(tmp_path_factory.mktemp("attacks"))
    with LedgerApplication.open(scene.ledger, REGISTRY) as log:
        made = Grounds(scene, log, log.repository.get(scene.line))
        made.carried = batch(log, made.line, OPERATOR, carried="not what was signed")
        made.run("carried as another change", checkpoint=made.line.active)
        pretend_refactorings(made)
        made.run("honest")
        judge_too_little(made)
        make_up_checkpoints(made)
        hand_out_other_words(made)
        yield made


def pretend_refactorings(made: Grounds) -> None:
    log, line = made.log, made.line
    one = submitted(log, line, "a harm in a batch", tier=1)
    digests = {f"diff:{one.id}": one.diff, f"text_shown:{one.id}": "5" * 64}
    envelope = word("batch", line, OPERATOR, subjects=digests)
    for name, how in {
        "approved": {"name": "a harm", "tier": 2, "key": OPERATOR, "signs": "approve"},
        "in a batch": {
            "name": "a harm in a batch",
            "tier": 1,
            "proposal": one,
            "envelope": envelope,
        },
    }.items():
        made.pretended[name] = change(log, line, refactors=True, **how).id  # type: ignore[arg-type]
        made.run(name, checkpoint=line.active)


def judge_too_little(made: Grounds) -> None:
    name = "with a check left out"
    made.judge(name, made.run(name, judged=False), disabled=("reexecution",))
    late = made.run("decided on after its audit")
    made.decide(late)
    made.examples["decided on after its audit"] = f"{late.id}/{len(late.decisions)}"
    assert isinstance(made.log.recorder, SignedRecorder)
    name = "decided on while it was judged"
    late = made.run(name, judged=False)
    head = str(made.log.recorder.tree_head())
    made.decide(late)
    made.examples[name] = f"{late.id}/{len(late.decisions)}"
    made.judge(name, late, at=head)
    name = "judged at a tree head"
    made.judge(name, made.run(name, judged=False), at=str(made.log.recorder.tree_head()))
    name = "judged by nobody"
    made.judge(name, made.run(name, judged=False), by=None)
    name = "gone on from another"
    parent = made.examples["honest"].partition("/")[0]
    made.judge(name, made.run(name, judged=False, parent_run=parent))
    name = "judged with a lost key"
    key = vkey("eve", public_bytes(LOST_JUDGE))
    by_operator = AuthorKey("operator", OPERATOR)
    made.log.recorder.grant_key(key, role="judge", author=by_operator)
    made.judge(name, made.run(name, judged=False), by=AuthorKey("judge", LOST_JUDGE))
    made.log.recorder.revoke_key(key, role="judge", since=1, reason="lost", author=by_operator)
    odd: dict[str, Any] = {"config": {"disabled": []}, "environment": {}, "judged": None}
    odd["originator_topic"] = "aggregates.audit:Audit"
    made.append(uuid4(), Audit.Started, version=1, run=["of", {}], tree_head="note", **odd)
    name = "gone on after its audit"
    late = made.run(name)
    other = {"model.py": "22" * 32}
    made.append(late.id, Run.Ended, reason="completed", detail="", deliverables=other)
    name = "judged again, and failed"
    again = made.run(name)
    held = made.audits[name]
    made.judge(name, again, held=False)
    made.audits[name] = held
    name = "judged again, with other files"
    again = made.run(name)
    held = made.audits[name]
    made.judge(name, again, held=False, failing={"other_files": True})
    made.audits[name] = held
    name = "scored again by nobody"
    audit = made.judge(name, made.run(name, judged=False), held=False)
    made.append(audit, Audit.Scored, **SCORES, hard_fail=False, accuracy_score=1, process_score=1)


def make_up_checkpoints(made: Grounds) -> None:
    log, line = made.log, made.line
    assert isinstance(log.recorder, SignedRecorder)
    lost = vkey("bob", public_bytes(LOST))
    by_operator = AuthorKey("operator", OPERATOR)
    log.recorder.grant_key(lost, role="operator", author=by_operator)
    log.recorder.revoke_key(lost, role="operator", since=1, reason="lost", author=by_operator)
    sums = {"manifest": line.manifest, "reference_set": line.reference_set, "code": CODE}
    for number, (name, key, expires) in enumerate(
        (
            ("adopted", OPERATOR, 2_000_000_000),
            ("adopted under another id", OPERATOR, 2_000_000_000),
            ("adopted with a lost key", LOST, 2_000_000_000),
            ("adopted when that had expired", OPERATOR, 1_700_000_000),
        )
    ):
        new = {"commit": f"{number + 1:040x}", "tree": "7e" * 20}
        checkpoint = Line.checkpoint_id(line.id, new["commit"])
        if "another id" in name:
            checkpoint = str(uuid4())
        envelope = word("adopt", line, key, subjects=new, expires=expires)
        told: dict[str, Any] = {**new, **sums, "parent": line.active, "envelope": envelope}
        made.append(line.id, Line.Adopted, checkpoint=checkpoint, **told)
        made.run(name, checkpoint=checkpoint)
    stream, commit = uuid4(), "ab" * 20
    beginning: dict[str, Any] = {
        "checkpoint": str(uuid5(stream, commit)),
        "commit": commit,
        "tree": "7e" * 20,
    }
    beginning |= {"root": line.root, "branch": line.branch, **sums}
    beginning["originator_topic"] = "aggregates.improvement.line:Line"
    made.append(stream, Line.Opened, version=1, **beginning)
    made.run("of a line under another's name", checkpoint=beginning["checkpoint"])


def hand_out_other_words(made: Grounds) -> None:
    """Exports that nobody drew, under the id of an honest example."""
    honest = line_of_export(made.log, made.examples["honest"])
    seal_lines(made.log, [honest])
    made.honest = honest
    for name, alter in OTHER_WORDS.items():
        told = json.loads(honest)
        alter(told)
        forged = json.dumps(told, sort_keys=True).encode()
        assert forged != honest
        seal_lines(made.log, [forged])
        made.lines[name] = (forged, (made.log.recorder.max_notification_id() or 0) - 1)


@pytest.fixture(scope="module")
def ledger(grounds: Grounds) -> Iterator[VerifiedLedger]:
    with open_verified(grounds.scene.ledger, vkey=grounds.scene.vkey) as opened:
        yield opened


@dataclass(frozen=True)
class Forger:
    """Puts files together from whichever entries there are."""

    grounds: Grounds
    ledger: VerifiedLedger
    entries: list[VerifiedEntry]

    def file(self, example: str, indexes: set[int], line: str = "", *, form: int = 1) -> str:
        title = TITLES[form == 1]
        return f"{title}example {example}\n{line}\n{write_proofs(self.ledger, sorted(indexes))}"

    def whole(self, name: str) -> set[int]:
        """Return a story, and what decides which audit counts for its run."""
        run = self.grounds.examples[name].partition("/")[0]
        audits = {
            entry.stream_id
            for entry in self.entries
            if entry.name == "audit.started" and decode_body(entry.body)["run"] == run
        }
        own = [entry for entry in self.entries if str(entry.stream_id) == run]
        ends = {entry.index for entry in own if entry.name == "run.ended"} | {own[-1].index}
        judged = {entry.index for entry in self.entries if entry.stream_id in audits}
        return self.story(name) | ends | judged

    def story(self, name: str) -> set[int]:
        """Return where an example's run, its last score, its checkpoint and all keys lie."""
        run, _, number = self.grounds.examples[name].partition("/")
        found: dict[tuple[str, str], int] = {}
        checkpoint = None
        for entry in self.entries:
            body = decode_body(entry.body)
            if str(entry.stream_id) == run and entry.name == "run.started":
                found["run", ""], checkpoint = entry.index, body["checkpoint"]
            if str(entry.stream_id) == run and body.get("number") == int(number):
                found["decision", ""] = entry.index
            if entry.stream_id == self.grounds.audits[name] and entry.name != STEP:
                found["audit", entry.name] = entry.index
            if entry.stream_id == self.ledger.authority.stream_id:
                found["key", str(entry.index)] = entry.index
        made = (
            entry.index
            for entry in self.entries
            if entry.name in CHECKPOINTS and decode_body(entry.body)["checkpoint"] == checkpoint
        )
        return {*found.values(), next(made)}


@pytest.fixture(scope="module")
def forger(grounds: Grounds, ledger: VerifiedLedger) -> Forger:
    return Forger(grounds, ledger, list(ledger.entries()))


@dataclass(frozen=True)
class Readers:
    """Both verifiers."""

    vkey: str
    folder: Path

    def held(self, text: str) -> str:
        """Return what the second one says; both take it."""
        assert open_lineage(text, vkey=self.vkey).earlier is text.startswith(TITLES[1])
        return self._second(text)

    def refused(self, text: str, *, first: str, second: str) -> None:
        with pytest.raises(VerificationError, match=first):
            open_lineage(text, vkey=self.vkey)
        with pytest.raises(SECOND.Failed, match=second):
            self._second(text)

    def _second(self, text: str) -> str:
        path = self.folder / "one.lineage"
        path.write_text(text, encoding="utf-8")
        asked = argparse.Namespace(target=str(path), vkey=self.vkey, head=None, witness=[])
        return str(SECOND.check(asked))


@pytest.fixture
def readers(grounds: Grounds, tmp_path: Path) -> Readers:
    return Readers(grounds.scene.vkey, tmp_path)


NO_AUDIT = {
    "first": "no valid audit of run .* every check in force, and be signed",
    "second": "a link is missing: an audit of the run",
}
REFUSED = {
    "with a check left out": NO_AUDIT,
    "decided on after its audit": NO_AUDIT,
    "decided on while it was judged": NO_AUDIT,
    "scored again by nobody": NO_AUDIT,
    "judged by nobody": NO_AUDIT,
    "judged with a lost key": NO_AUDIT,
    "adopted with a lost key": {
        "first": "not signed by an operator whose key is in force",
        "second": "not signed by an operator whose key is in force",
    },
    "adopted under another id": {
        "first": "does not match its line and commit",
        "second": "does not match its line and commit",
    },
    "adopted when that had expired": {"first": "had expired", "second": "had expired"},
    "of a line under another's name": {
        "first": "does not match its repository",
        "second": "does not match its repository",
    },
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_story_that_is_not_so_is_rejected(forger: Forger, readers: Readers, name: str) -> None:
    example = forger.grounds.examples[name]
    readers.refused(forger.file(example, forger.story(name)), **REFUSED[name])
    first, second = REFUSED[name].values()
    whole = forger.file(example, forger.whole(name), form=2)
    readers.refused(whole, first=f"{first}|the audit of run .* failed", second=second)
    with pytest.raises(LineageError):
        find_lineage(forger.ledger, example)


def test_change_that_is_carried_under_an_approval_of_another_is_rejected(
    forger: Forger, readers: Readers
) -> None:
    name, carried = "carried as another change", forger.grounds.carried
    assert carried is not None
    of_proposals = {
        entry.index
        for entry in forger.entries
        if entry.stream_id in carried and entry.name != "proposal.task_scored"
        if entry.stream_id == carried[1] or entry.name == "proposal.submitted"
    }
    story = forger.story(name) | of_proposals
    why = "not the change that was approved"
    readers.refused(forger.file(forger.grounds.examples[name], story), first=why, second=why)
    with pytest.raises(LineageError, match=why):
        find_lineage(forger.ledger, forger.grounds.examples[name])


@pytest.mark.parametrize("name", ["approved", "in a batch"])
def test_refactoring_that_was_only_approved_is_rejected(
    forger: Forger, readers: Readers, name: str
) -> None:
    of_proposal = {
        entry.index
        for entry in forger.entries
        if entry.stream_id == forger.grounds.pretended[name]
        and entry.name != "proposal.task_scored"
    }
    story = forger.story(name) | of_proposal
    why = "is for something else"
    readers.refused(forger.file(forger.grounds.examples[name], story), first=why, second=why)
    with pytest.raises(LineageError, match=why):
        find_lineage(forger.ledger, forger.grounds.examples[name])


HONEST = ("honest", "judged at a tree head", "adopted")


@pytest.mark.parametrize("name", HONEST)
def test_honest_story_is_taken_where_others_are_not(
    forger: Forger, readers: Readers, name: str
) -> None:
    example = forger.grounds.examples[name]
    earlier = forger.file(example, forger.story(name))
    by_hand = forger.file(example, forger.whole(name), form=2)
    assert by_hand == write_lineage(forger.ledger, example)
    for text in (earlier, by_hand):
        assert "judged by judge: under" in readers.held(text)


UNCOUNTED = {
    "gone on after its audit": "no valid audit of run .* found",
    "judged again, and failed": "the audit of run .* failed",
}


@pytest.mark.parametrize("name", UNCOUNTED)
def test_audit_that_does_not_count_is_rejected(forger: Forger, name: str) -> None:
    example = forger.grounds.examples[name]
    with pytest.raises(LineageError, match=UNCOUNTED[name]):
        find_lineage(forger.ledger, example)
    with pytest.raises(VerificationError, match=UNCOUNTED[name]):
        open_lineage(
            forger.file(example, forger.whole(name), form=2), vkey=forger.grounds.scene.vkey
        )


def test_audit_that_was_given_other_files_takes_nothing_from_the_one_that_counts(
    forger: Forger, readers: Readers
) -> None:
    name = "judged again, with other files"
    text = write_lineage(forger.ledger, forger.grounds.examples[name])
    assert "judged by judge: under" in readers.held(text)
    [audit] = open_lineage(text, vkey=forger.grounds.scene.vkey).audits
    assert audit.audit == forger.grounds.audits[name]
    assert audit.held


def test_event_left_out_of_what_decides_on_the_audit_is_rejected(
    forger: Forger, readers: Readers
) -> None:
    name = "judged again, with other files"
    example, whole = forger.grounds.examples[name], forger.whole(name)
    assert readers.held(forger.file(example, whole, form=2))  # the honest control
    run = example.partition("/")[0]
    left_out = [forger.entries[index] for index in sorted(whole - forger.story(name))]
    steps = [entry for entry in left_out if entry.name == STEP]
    for entry in left_out:
        if entry in steps and entry not in steps[:: 1 if EXHAUSTIVE else 4]:
            continue
        last = entry.name == "audit.scored" and entry.stream_id != forger.grounds.audits[name]
        file = forger.file(example, whole - {entry.index}, form=2)
        if last:  # a stream's end: said
            assert readers.held(file)
            continue
        why = "the end of the run|an event of an audit is left out|does not belong to this lineage"
        readers.refused(
            file, first=f"leaves out|audit of run {run}|nothing here rests on", second=why
        )
    beside = {e.index for e in forger.entries if str(e.stream_id) == run} - whole
    for index in sorted(beside)[:3]:
        file = forger.file(example, whole | {index}, form=2)
        readers.refused(file, first="nothing here rests on", second="does not belong to this")


def test_whole_audit_that_is_left_out_is_said_with_tree_head_and_date(
    forger: Forger, readers: Readers
) -> None:
    name = "judged again, and failed"
    kept = {e.index for e in forger.entries if e.stream_id == forger.grounds.audits[name]}
    audits = {e.index for e in forger.entries if e.name.startswith("audit.")}
    whole = (forger.whole(name) - audits) | kept
    text = forger.file(forger.grounds.examples[name], whole, form=2)
    assert readers.held(text)
    assert re.match(
        r"As of tree head \d+ \(newest entry shown: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\): other "
        r"audits and later entries, such as a revoked key, can be left out",
        open_lineage(text, vkey=readers.vkey).selection.as_of,
    )


def test_key_event_left_out_is_rejected(forger: Forger, readers: Readers) -> None:
    """The grant of a judge, a revocation, the first operator: none can be missing in the middle."""
    for name in ("judged by nobody", "judged with a lost key", "adopted with a lost key"):
        story = forger.story(name)
        keys = sorted(story & {entry.index for entry in forger.entries if entry.name[:4] == "key."})
        for index in keys[:-1]:
            file = forger.file(forger.grounds.examples[name], story - {index})
            readers.refused(
                file, first="leaves out event", second="of the keys is left out|its author"
            )


def test_audit_by_nobody_beside_a_judges_is_rejected(forger: Forger, readers: Readers) -> None:
    alone, honest = (forger.grounds.examples[name] for name in ("judged by nobody", "honest"))
    with pytest.raises(LineageError, match=NO_AUDIT["first"]):
        find_lineage(forger.ledger, alone)
    mine, theirs = forger.story("judged by nobody"), forger.story("honest")
    readers.refused(forger.file(f"{honest}>{alone}", mine | theirs), **NO_AUDIT)


def test_run_that_goes_on_from_another_is_told_of(forger: Forger, readers: Readers) -> None:
    name = "gone on from another"
    said = readers.held(forger.file(forger.grounds.examples[name], forger.story(name)))
    assert "continues" in said
    steps = find_lineage(forger.ledger, forger.grounds.examples[name]).steps
    assert any("which is not shown" in step.says for step in steps)


def test_judge_whose_key_was_not_to_be_trusted_then_is_rejected(forger: Forger) -> None:
    with pytest.raises(LineageError, match=NO_AUDIT["first"]):
        find_lineage(forger.ledger, forger.grounds.examples["judged with a lost key"])
    assert find_lineage(forger.ledger, forger.grounds.examples["honest"])  # the honest control


def test_word_by_a_key_that_was_revoked_before_is_rejected(forger: Forger) -> None:
    with pytest.raises(LineageError, match="not signed by an operator whose key is in force"):
        find_lineage(forger.ledger, forger.grounds.examples["adopted with a lost key"])
    assert find_lineage(forger.ledger, forger.grounds.examples["adopted"])  # the honest control


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OTHER_WORDS)
def test_export_that_shows_something_else_is_rejected(
    forger: Forger, readers: Readers, name: str
) -> None:
    example = forger.grounds.examples["honest"]
    forged, seal = forger.grounds.lines[name]
    line = line_of(example, [forger.grounds.honest])
    assert "; line 0 of 1 in export" in readers.held(
        write_lineage(forger.ledger, example, line=line)
    )
    with pytest.raises(LineageError, match="the line of the export"):
        write_lineage(forger.ledger, example, line=line_of(example, [forged]))
    told = f"line 0 {base64.b64encode(forged).decode()}\n"
    for form, story in ((1, forger.story("honest")), (2, forger.whole("honest"))):
        file = forger.file(example, story | {seal}, told, form=form)
        readers.refused(file, first="the line of the export", second="the line|not JSON")


@pytest.mark.parametrize(("role", "held"), [("ledger", True), ("judge", False)])
def test_key_that_a_judge_lets_in_is_rejected(
    forger: Forger, tmp_path: Path, role: str, held: bool
) -> None:
    """The same entries in a ledger made by hand: the writer would not take the grant."""
    made, friend = HandmadeLedger(), Signer("friend", 9)
    made.grant("judge", JUDGE, ("ledger", made.ledger))
    made.grant("judge", friend, (role, {"ledger": made.ledger, "judge": JUDGE}[role]))
    indexes = forger.story("honest") - {e.index for e in forger.entries if e.name[:4] == "key."}
    for entry in (forger.entries[index] for index in sorted(indexes)):
        author = ("judge", friend) if entry.name.startswith("audit.") else None
        made.add(entry.stream_id.bytes, entry.name, entry.body, author)
    made.sign()
    wanted = range(len(made.entries))
    proofs = [made.write_proof(n, tmp_path / f"{n}.tlog-proof").read_text() for n in wanted]
    example = forger.grounds.examples["honest"]
    text = f"{TITLES[1]}example {example}\n\n{''.join(proofs)}"
    readers = Readers(made.ledger.vkey, tmp_path)
    if held:
        assert "judged by judge" in readers.held(text)
        return
    first = "must be signed by operator or ledger"
    readers.refused(text, first=first, second="its author is not allowed to write it")
