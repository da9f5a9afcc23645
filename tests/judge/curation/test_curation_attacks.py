"""Ways of getting into training data what does not belong there, each beside an honest run.

Whoever tries owns the folder: he can append every event of the registry to every stream, and has a
judge's key of his own making. He has neither the operator's key nor that of the judge.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from curation_histories import DATA, SFT, Scene, code_of, request_of
from synthetic import synthetic_call

from aggregates.audit import STEPS, Audit
from aggregates.campaign import Campaign
from aggregates.curation.corpus import Corpus
from aggregates.curation.export import Export
from aggregates.improvement.line import Line
from aggregates.playbook import HYPERPARAMETER_CHANGE
from aggregates.run import Run
from aggregates.transcript import Transcript
from judge.curation.recall import recall
from judge.curation.sealing import Drawn, verify_file
from judge.curation.tables import open_tables
from judge.errors import CurationError
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import AuthorityError
from ledger.notes import public_bytes, vkey
from ledger.recorder import SignedRecorder
from ledger.verification.reader import open_verified

JUDGE = Ed25519PrivateKey.from_private_bytes(bytes([6]) * 32)
BY_JUDGE = AuthorKey("judge", JUDGE)


@dataclass
class Grounds:
    """A ledger with a judge, and the runs that something was tried with, by what it was."""

    scene: Scene
    runs: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, *, judged: bool = True, **how: Any) -> Run:
        """Record a run under the active checkpoint; nothing is wrong with it but what is said."""
        scene = self.scene
        checkpoint = how.pop("checkpoint", scene.line.active)
        self.runs[name] = scene.run(checkpoint, group=len(self.runs), **how)
        made: Run = scene.log.repository.get(UUID(self.runs[name]))
        if judged:
            self.judge(made)
        return made

    def judge(
        self, run: Run, *, held: bool = True, by: AuthorKey | None = BY_JUDGE, at: str = "note"
    ) -> Audit:
        """Audit a run as it was at a tree head, by default as it is."""
        audit = Audit.start(run=str(run.id), tree_head=at, config={"disabled": []}, environment={})
        for number, name in enumerate(STEPS):
            status = "passed" if held else "failed" if number == 0 else "not_run"
            audit.complete_step(name, status, summary=status, evidence={})
        audit.score(
            accuracy_score=0.5 * held,
            process_score=1.0 * held,
            process_axis_exercised=True,
            test_accuracy=0.5,
            validation_accuracy=0.5,
            obligations=1,
            decisions=1,
            violations=[],
        )
        self.scene.log.save(audit, author=by)
        return audit

    def decide(self, run: Run) -> None:
        """Append one more decision to a run."""
        run.trigger_event(
            Run.DecisionMade,
            number=2,
            epoch=2,
            source="policy",
            event_type=HYPERPARAMETER_CHANGE,
            cites=["R7"],
            direction="decrease_lr",
            params={"lr": 1e-7},
            justification="because I say so",
        )
        self.scene.log.save(run)

    def ask(self, run: Run) -> None:
        """Append a transcript in which a model was asked, in words of one's own."""
        request = request_of("playbook", "Praise whoever wrote this.")
        transcript = Transcript.start(str(run.id), policy=run.policy)
        transcript.add(
            **synthetic_call(
                action="decide",
                model="playbook",
                epoch=1,
                rules=("R7",),
                request=self.scene.blobs.put(request),
                request_bytes=len(request),
            )
        )
        self.scene.log.save(transcript)

    def head(self) -> str:
        """Return the ledger's newest tree head."""
        assert isinstance(self.scene.log.recorder, SignedRecorder)
        return str(self.scene.log.recorder.tree_head())


def judged_scene(folder: Path) -> Scene:
    scene = Scene(folder)
    assert isinstance(scene.log.recorder, SignedRecorder)
    judge = vkey("judge", public_bytes(JUDGE))
    scene.log.recorder.grant_key(judge, role="judge", author=scene.author)
    for origin in (("data", DATA[0]), ("model", "playbook")):
        scene.admit(*origin)
    return scene


def append(log: LedgerApplication, stream: UUID, kind: type, **told: Any) -> None:
    """Append an event to a stream past its aggregate, which would have none of it."""
    (last,) = log.events.get(stream, desc=True, limit=1)
    place = {"originator_id": stream, "originator_version": last.originator_version + 1}
    log.events.put([kind(**place, timestamp=datetime.now(UTC), **told)])


def begin_again(log: LedgerApplication, run: Run, **changes: Any) -> None:
    """Append a second beginning to a run's own stream."""
    names = ("config", "config_hash", "rules_hash", "policy", "data", "environment", "checkpoint")
    first = next(iter(log.events.get(run.id)))
    told = {name: getattr(first, name) for name in names}
    told |= {"rules": run.rules.to_dict(), "spec": run.spec.to_dict()}
    told |= {"parent_run": None, "campaign": None, "originator_topic": "aggregates.run:Run"}
    append(log, run.id, Run.Started, **{**told, **changes})


def line_elsewhere(number: int, *, code: str) -> Line:
    """Return a line that begins on another branch with this code; nobody looked at it."""
    sums = {"manifest": "3" * 64, "reference_set": "4" * 64}
    commits = {"root": "9" * 40, "commit": f"{number:040d}", "tree": "7" * 40}
    return Line.open(branch=f"line {number}", code=code, **commits, **sums)


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    made = Grounds(judged_scene(tmp_path_factory.mktemp("attacks")))
    made.run("honest")
    add_after_the_audit(made)
    borrow_audits(made)
    forge_labels(made)
    dodge_taint(made)
    admit_oneself(made)
    made.run("honest to the end")
    score_again(made)
    return made


def add_after_the_audit(made: Grounds) -> None:
    """What the judge saw was honest."""
    made.decide(made.run("decided on after its audit"))
    while_judged = made.run("decided on while it was judged", judged=False)
    head = made.head()
    made.decide(while_judged)
    made.judge(while_judged, at=head)
    made.judge(made.run("judged at a tree head", judged=False), at=made.head())
    made.ask(made.run("asked after its audit"))
    asked = made.run("asked before its audit", judged=False)
    made.ask(asked)
    made.judge(asked)


def borrow_audits(made: Grounds) -> None:
    log = made.scene.log
    made.run("copied under another stream", judged=False)
    failed = made.run("failed, and vouched for by nobody", judged=False)
    made.judge(failed, held=False)
    made.judge(failed, by=None)
    lent = made.judge(made.run("whose audit was borrowed", judged=False))
    borrower = made.run("judged by another's audit", judged=False)
    told: dict[str, Any] = {
        "tree_head": "note",
        "config": {"disabled": []},
        "environment": {},
        "judged": None,
    }
    append(
        log,
        lent.id,
        Audit.Started,
        run=str(borrower.id),
        originator_topic="aggregates.audit:Audit",
        **told,
    )


def score_again(made: Grounds) -> None:
    """A score of one's own beside the one that the judge has signed."""
    run: Run = made.scene.log.repository.get(UUID(made.runs["honest to the end"]))
    audit = made.judge(run)
    told: dict[str, Any] = {
        "process_axis_exercised": True,
        "test_accuracy": 0.99,
        "validation_accuracy": 0.99,
    }
    told |= {"obligations": 1, "decisions": 1, "violations": [], "hard_fail": False}
    told |= {"accuracy_score": 0.99, "process_score": 0.99}
    append(made.scene.log, audit.id, Audit.Scored, **told)


def forge_labels(made: Grounds) -> None:
    scene, log = made.scene, made.scene.log
    active = scene.line.active
    made.run("labelled in capitals", checkpoint=active.upper(), code=code_of(0))
    unlabelled = made.run("labelled afterwards", checkpoint=None, judged=False)
    begin_again(log, unlabelled, checkpoint=active, environment={"code_sha256": code_of(0)})
    made.judge(unlabelled)
    commit = f"{len(scene.parents):040x}"
    future = Line.checkpoint_id(scene.line.id, commit)
    early = made.run(
        "labelled with what is to come",
        checkpoint=future,
        code=code_of(len(scene.parents)),
        judged=False,
    )
    assert scene.promote() == future
    begin_again(log, early)
    made.judge(early)
    made.run("of an unlabelled run", parent=str(unlabelled.id))
    made.run("of a run that is not here", parent=str(UUID(int=7)))
    made.run("of a parent in capitals", parent=made.runs["honest"].upper())
    campaign = Campaign.start(config={}, attempts=9, policy={"name": "playbook"}, feedback=True)
    made.run("of a campaign that does not know it", campaign=str(campaign.id))
    first = made.run("of a campaign", campaign=str(campaign.id))
    campaign.start_attempt(str(first.id))
    campaign.judge_attempt(str(first.id), str(made.judge(first).id))
    campaign.give_feedback({"scores": [0.5]})
    campaign.start_attempt(str(unlabelled.id))
    campaign.judge_attempt(str(unlabelled.id), str(made.judge(unlabelled).id))
    campaign.give_feedback({"scores": [0.5]})
    told = made.run("told of an unlabelled run", campaign=str(campaign.id))
    campaign.start_attempt(str(told.id))
    log.save(campaign)


def dodge_taint(made: Grounds) -> None:
    """A checkpoint is rolled back, and its code is to go on all the same."""
    scene, log = made.scene, made.scene.log
    original, code = scene.line.first, code_of(len(scene.parents))
    before, after, honest = (
        line_elsewhere(number, code=each) for number, each in enumerate((code, code, code_of(0)))
    )
    log.save(before, honest)
    bad = scene.promote()
    first = made.run("under what was rolled back")
    second = made.run("gone on from it", checkpoint=original, parent=str(first.id))
    made.run("gone on from that", checkpoint=original, parent=str(second.id))
    scene.roll_back(bad)
    log.save(after)
    for name, line in (("before", before), ("after", after)):
        made.run(f"of a line begun {name} the rollback", checkpoint=line.first, code=code)
    made.run("of a line begun with what stands", checkpoint=honest.first, code=code_of(0))
    commits = {"commit": "6" * 40, "tree": "6" * 40}
    sums = {"manifest": "3" * 64, "reference_set": "4" * 64}
    after.promote(proposals=["p"], code=code_of(98), **commits, **sums)
    log.save(after)
    made.run("grown on a line begun with it", checkpoint=after.active, code=code_of(98))
    back = scene.promote()
    code_back = code_of(list(scene.parents).index(back))
    scene.roll_back(back)
    scene.line.promote(commit="5" * 40, tree="5" * 40, proposals=["p"], code=code_back, **sums)
    there = line_elsewhere(4, code=code_back)
    log.save(scene.line, there)
    made.run("of a line begun with what came back", checkpoint=there.first, code=code_back)
    scene.promote()
    commits["commit"] = scene.line.checkpoints[bad].commit
    again = {"checkpoint": bad, "parent": original, "proposals": ["p"], "code": code}
    append(log, scene.line.id, Line.Promoted, **again, **commits, **sums)
    made.run("under what was put on record again", checkpoint=bad, code=code)


def admit_oneself(made: Grounds) -> None:
    log = made.scene.log
    corpus: Corpus = log.repository.get(Corpus.id_of())
    for kind, name, author in (("data", DATA[1], BY_JUDGE), ("model", "small", None)):
        corpus.admit(kind, name, "trust me")
        log.save(corpus, author=author)
    made.run("of data that a judge let in", data=DATA[1])
    made.run("of a model that nobody let in", author="small")


HONEST = (
    "honest",
    "honest to the end",
    "judged at a tree head",
    "asked before its audit",
    "whose audit was borrowed",
    "of a line begun with what stands",
    "of a line begun with what came back",
    "of a campaign",
)
REJECTED = {
    "decided on after its audit": "not judged",
    "decided on while it was judged": "not judged",
    "asked after its audit": "not judged",
    "copied under another stream": "not judged",
    "failed, and vouched for by nobody": "did not hold",
    "judged by another's audit": "not judged",
    "labelled in capitals": "label unknown",
    "labelled afterwards": "no label",
    "labelled with what is to come": "label unknown",
    "of an unlabelled run": "derived from an unlabelled run",
    "of a run that is not here": "derived from an unlabelled run",
    "of a parent in capitals": "derived from an unlabelled run",
    "of a campaign that does not know it": "derived from an unlabelled run",
    "told of an unlabelled run": "derived from an unlabelled run",
    "under what was rolled back": "tainted",
    "gone on from it": "tainted",
    "gone on from that": "tainted",
    "of a line begun before the rollback": "tainted",
    "of a line begun after the rollback": "tainted",
    "grown on a line begun with it": "tainted",
    "under what was put on record again": "tainted",
    "of data that a judge let in": f"data:{DATA[1]} is not admitted",
    "of a model that nobody let in": "model:small is not admitted",
}


@pytest.fixture(scope="module")
def standing(grounds: Grounds) -> dict[str, tuple[bool, list[str]]]:
    """What is said of each run, by what was tried with it."""
    rows = grounds.scene.tables().ask("SELECT run_id, let_in, why_not FROM curated_runs")
    told = {row["run_id"]: (row["let_in"], row["why_not"]) for row in rows}
    return {name: told[run] for name, run in grounds.runs.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REJECTED)
def test_run_that_does_not_belong_there_is_rejected(
    standing: dict[str, tuple[bool, list[str]]], name: str
) -> None:
    assert standing[name] == (False, [REJECTED[name]])


def test_honest_runs_are_let_in_where_attacks_are_not(
    standing: dict[str, tuple[bool, list[str]]],
) -> None:
    assert {name: standing[name] for name in HONEST} == dict.fromkeys(HONEST, (True, []))
    assert standing.keys() == {*HONEST, *REJECTED}


@pytest.fixture(scope="module")
def drawn(grounds: Grounds) -> Drawn:
    """An honest export of what is left, sealed."""
    made = grounds.scene.draw(SFT)
    assert {each.member.decisions[0][0] for each in made.examples} == {
        grounds.runs[n] for n in HONEST
    }
    grounds.scene.blobs.put(made.members)
    grounds.scene.log.save(made.seal())
    return made


def test_score_beside_the_signed_one_is_rejected(grounds: Grounds) -> None:
    tables, run = grounds.scene.tables(), grounds.runs["honest to the end"]
    forces = "SELECT accuracy_score, validation_accuracy FROM run_forces WHERE run_id = ?"
    assert tables.ask(forces, [run]) == [{"accuracy_score": 0.5, "validation_accuracy": 0.5}]


def test_export_as_of_before_a_rollback_is_called_back(tmp_path: Path) -> None:
    """Asked as of then it is what it was then, and it is on record with what came since."""
    scene = judged_scene(tmp_path)
    scene.promote()
    made = Grounds(scene)
    run = made.run("under what will be rolled back")
    before = scene.tables().as_of
    scene.roll_back(scene.line.active)
    drawn = scene.draw_again(SFT, as_of=before, anew=False)
    scene.blobs.put(drawn.members)
    scene.log.save(drawn.seal())
    (found,) = recall(scene.tables(), blobs=scene.blobs)
    assert (found.example, found.tainted) == (f"{run.id}/1", True)


def sealed_by_hand(grounds: Grounds, drawn: Drawn, lines: list[bytes], **told: Any) -> bytes:
    """Seal other lines as if they had been drawn; return the file."""
    forged = replace(drawn, **{"code": "00" * 32, **told})
    examples = [replace(each, line=line) for each, line in zip(drawn.examples, lines, strict=False)]
    forged = replace(forged, examples=tuple(examples))
    grounds.scene.blobs.put(forged.members)
    grounds.scene.log.save(forged.seal())
    return forged.lines


def test_seal_that_is_made_by_hand_is_rejected(grounds: Grounds, drawn: Drawn) -> None:
    blobs = grounds.scene.blobs
    lines = [each.line for each in drawn.examples]
    praise = [line.replace(b"slows it down", b"is always right") for line in lines]
    stranger = [lines[0].replace(grounds.runs["honest"].encode(), b"0" * 36), *lines[1:]]
    forged = sealed_by_hand(grounds, drawn, praise, code=drawn.code, head="11" * 32)
    renamed = sealed_by_hand(grounds, drawn, stranger)
    tables = grounds.scene.tables()
    assert verify_file(tables, drawn.lines, blobs=blobs)["drawn"]  # the honest control
    for file, why in (
        (forged, "its query gives different examples as of entry"),
        (renamed, "its list of members does not match its examples"),
    ):
        with pytest.raises(CurationError, match=f"was not made by this program: .*({why})"):
            verify_file(tables, file, blobs=blobs)


def test_list_of_members_that_hides_some_is_called_back_whole(
    grounds: Grounds, drawn: Drawn
) -> None:
    scene = grounds.scene
    first = drawn.examples[0].member.decisions
    hidden, others = (
        [
            replace(each, member=msgspec.structs.replace(each.member, decisions=decisions))
            for each in drawn.examples
        ]
        for decisions in ((), first)
    )
    for code, members in (("a", hidden), ("b", drawn.examples[1:]), ("c", others)):
        forged = replace(drawn, code=code * 64, examples=tuple(members))
        scene.blobs.put(forged.members)
        seal = replace(forged, examples=drawn.examples).seal()
        scene.log.save(
            Export.seal(
                **{name: getattr(seal, name) for name in ("kind", "as_of", "head", "query")},
                **{name: getattr(seal, name) for name in ("code", "examples", "root", "sha256")},
                members=forged.seal().members,
            )
        )
    found = {(each.export, each.example) for each in recall(scene.tables(), blobs=scene.blobs)}
    assert len(found) == 3
    assert all(example is None for _, example in found)
    assert str(drawn.seal().id) not in {export for export, _ in found}  # the honest control


def test_checkpoint_on_record_in_anothers_stream_is_rejected(tmp_path: Path) -> None:
    """It is set aside; the runs of the other line are kept out, and no other run is."""
    scene = judged_scene(tmp_path)
    scene.run(scene.line.active)
    asked = "SELECT run_id, why_not FROM run_standing ORDER BY run_id"

    def found(sql: str, *parameters: str) -> list[dict[str, Any]]:
        with open_verified(scene.ledger) as ledger, open_tables(ledger) as tables:
            return tables.ask(sql, parameters)

    before = found(asked)
    other = line_elsewhere(1, code=code_of(5))
    scene.log.save(other)
    commits = {"commit": scene.line.head.commit, "tree": "2" * 40}
    sums = {"manifest": "3" * 64, "reference_set": "4" * 64}
    told = {"checkpoint": scene.line.active, "parent": other.first, "proposals": ["p"]}
    append(scene.log, other.id, Line.Promoted, **told, code=code_of(5), **commits, **sums)
    told_of = "SELECT line_id FROM checkpoint_starts WHERE checkpoint_id = ?"
    assert found(told_of, scene.line.active) == [{"line_id": str(scene.line.id)}]
    assert found(asked) == before
    assert before
    assert not any("entry unreadable" in row["why_not"] for row in before)
    commits["commit"] = "9" * 40  # not that of the checkpoint's id
    append(scene.log, scene.line.id, Line.Promoted, **told, code=code_of(5), **commits, **sums)
    assert all("entry unreadable" in row["why_not"] for row in found(asked))


def test_operator_whom_a_judge_lets_in_is_rejected(grounds: Grounds) -> None:
    recorder = grounds.scene.log.recorder
    assert isinstance(recorder, SignedRecorder)
    mine = vkey("mine", public_bytes(Ed25519PrivateKey.generate()))
    with pytest.raises(AuthorityError, match="must be signed by operator"):
        recorder.grant_key(mine, role="operator", author=BY_JUDGE)
