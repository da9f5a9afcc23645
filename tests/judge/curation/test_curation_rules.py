"""What is drawn, case by case: whose words, under which prompt, and what is left out."""

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from curation_histories import (
    DATA,
    OPERATOR,
    PREFERENCES,
    SFT,
    Scene,
    code_of,
    request_of,
    told_run,
)

from aggregates.improvement.proposal import Proposal
from judge.curation.query import Query
from judge.curation.recall import recall
from judge.curation.sealing import find_seal, merkle_root
from judge.curation.tables import open_tables
from judge.errors import CurationError
from ledger.bodies import encode_body
from ledger.entries import Author
from ledger.errors import BlobError
from ledger.notes import public_bytes, vkey
from ledger.recorder import SignedRecorder
from ledger.verification.authority import Authority
from ledger.verification.reader import VerifiedLedger, open_verified
from ledger.verification.verified_entries import VerifiedEntry

BOTH, SEVEN = ("R1", "R7"), ("R7",)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, dict[str, str]]:
    """Judged runs, each of a group of its own, by what is special about them."""
    scene = Scene(tmp_path_factory.mktemp("rules"))
    for origin in (("data", DATA[0]), ("model", "playbook"), ("model", "small")):
        scene.admit(*origin)
    first = scene.line.active
    half, whole = request_of("small", "R1 and R7?"), request_of("small", "R7, again?")
    cases: dict[str, dict[str, Any]] = {
        "playbook": {},
        "half answered": {"author": "small", "calls": [(BOTH, half)]},
        "repaired": {"author": "small", "calls": [(BOTH, half), (SEVEN, whole)]},
        "no messages": {"author": "small", "calls": [(SEVEN, b'{"prompt": "R7?"}')]},
        "half a character": {
            "author": "small",
            "calls": [(SEVEN, request_of("small", "R7 \ud800?"))],
        },
        "by a person": {"author": "small", "calls": [(SEVEN, whole)], "source": "human"},
        "refused": {"refuse": True},
        "foreign data": {"data": DATA[1]},
    }
    runs = {}
    for group, (name, case) in enumerate(cases.items()):
        runs[name] = scene.run(first, group=group, **case)
        scene.audit(runs[name])
    runs["after foreign data"] = scene.run(first, group=50, parent=runs["foreign data"])
    scene.audit(runs["after foreign data"])
    for name, accuracy in (("low", 0.50), ("near", 0.53), ("far", 0.54)):
        runs[name] = scene.run(first, group=99, acts=name != "low")
        scene.audit(runs[name], accuracy=accuracy)
    for acts in (True, False):  # they do different things, and the trainings stay the same
        run = scene.run(first, group=98, acts=acts, effect=False)
        scene.audit(run, accuracy=0.9 if acts else 0.1)
        runs[f"no effect {acts}"] = run
    for name, acts in (("right", True), ("waits", False)):  # and ends as well as the other
        runs[name] = scene.run(first, group=97, acts=acts)
        scene.audit(runs[name], exercised=acts, violation=not acts)
    return scene, runs


def test_example_is_what_was_asked_and_what_was_decided(
    drawn: tuple[Scene, dict[str, str]],
) -> None:
    scene, runs = drawn
    found = {each.member.decisions[0][0]: each for each in scene.draw(SFT).examples}
    names = (
        "playbook",
        "repaired",
        "low",
        "near",
        "far",
        "no effect True",
        "no effect False",
        "right",
    )
    assert set(found) == {runs[name] for name in names}
    line = json.loads(found[runs["repaired"]].line)
    assert line["messages"][1] == {"content": "R7, again?", "role": "user"}
    made = json.loads(found[runs["playbook"]].line)["messages"][1]["content"]
    assert "- R7 fired, side not_finite" in made
    assert "playbook slows it down" not in made  # what was said comes after it was asked


def test_pair_needs_an_effect_and_more_than_noise(drawn: tuple[Scene, dict[str, str]]) -> None:
    scene, runs = drawn
    found = [
        (each.member.decisions[0][0], each.member.rejected[0][0])
        for each in scene.draw(PREFERENCES).examples
    ]
    broken = (runs["right"], runs["waits"])  # which needs no difference
    # near is three points above, and noise is as large
    assert found == [(runs["far"], runs["low"]), broken]


@pytest.mark.slow
def test_pair_needs_the_margin_that_is_asked_for(drawn: tuple[Scene, dict[str, str]]) -> None:
    scene, runs = drawn
    broken = (runs["right"], runs["waits"])  # which needs no difference
    (only,) = scene.draw(replace(PREFERENCES, margin=0.05)).examples
    assert (only.member.decisions[0][0], only.member.rejected[0][0]) == broken


def test_run_that_only_failed_is_no_example_and_can_be_rejected(
    drawn: tuple[Scene, dict[str, str]],
) -> None:
    scene, runs = drawn
    row = scene.tables().ask("SELECT * FROM curated_runs WHERE run_id = ?", [runs["waits"]])[0]
    assert (row["let_in"], row["usable"], row["why_not"]) == (False, True, ["not exercised"])


def test_what_is_not_admitted_keeps_out_what_goes_on_from_it(
    drawn: tuple[Scene, dict[str, str]],
) -> None:
    scene, runs = drawn
    for name in ("foreign data", "after foreign data"):
        row = scene.tables().ask("SELECT * FROM curated_runs WHERE run_id = ?", [runs[name]])[0]
        assert (row["let_in"], row["tainted"]) == (False, False)
        assert row["why_not"] == [f"data:{DATA[1]} is not admitted"]


def test_person_has_to_be_let_in_like_a_model(drawn: tuple[Scene, dict[str, str]]) -> None:
    scene, runs = drawn
    row = scene.tables().ask("SELECT * FROM curated_runs WHERE run_id = ?", [runs["by a person"]])
    assert row[0]["why_not"] == ["model:human is not admitted"]
    forces = scene.tables().ask("SELECT * FROM run_forces WHERE run_id = ?", [runs["by a person"]])
    assert forces[0]["decided_by"] == ["human"]
    assert forces[0]["origins"] == [f"data:{DATA[0]}", "model:human", "model:small"]


def test_policy_of_ones_own_cannot_name_another_as_the_author(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    inside = {"name": "playbook"}
    described: dict[str, tuple[str, dict[str, Any]]] = {
        "playbook in mine": ("mine", {"playbook": inside}),
        "proposer of mine": ("mine", {"proposer": inside}),
        "both of mine": ("mine", {"proposer": {"name": "mixed", "playbook": inside}}),
        "mixed": ("mixed", {"playbook": inside}),
        "human": ("human", {"proposer": inside}),
        "human and mixed": ("human", {"proposer": {"name": "mixed", "playbook": inside}}),
        "human and a model": ("human", {"proposer": {"model": "small"}}),
    }
    runs = {}
    for group, (case, (name, more)) in enumerate(described.items()):
        run = told_run(
            checkpoint=None,
            code=code_of(0),
            data=DATA[0],
            author=name,
            parent=None,
            group=group,
            acts=True,
            described=more,
        )
        scene.log.save(run)
        runs[str(run.id)] = case
    rows = scene.tables().ask("SELECT run_id, author FROM decision_authors")
    found = {runs[row["run_id"]]: row["author"] for row in rows}
    assert found == {
        **{case: "mine" for case in described if case.endswith("mine")},
        **dict.fromkeys(("mixed", "human", "human and mixed"), "playbook"),
        "human and a model": "small",
    }


def test_own_data_and_policy_need_no_admission_until_an_operator_has_a_key(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operated=False)
    first = scene.line.active
    own = scene.run(first)
    others = [
        scene.run(first, author="small", temperature=0.5),
        scene.run(first, calls=[(SEVEN, request_of("playbook", "R7?"))]),  # a model of that name
        scene.run(first, source="human"),
    ]
    for run in (own, *others):
        scene.audit(run)
    asked = "SELECT run_id FROM curated_runs WHERE let_in"
    assert scene.tables().ask(asked) == [{"run_id": own}]
    assert isinstance(scene.log.recorder, SignedRecorder)
    scene.log.recorder.grant_key(vkey("ada", public_bytes(OPERATOR)), role="operator")
    assert scene.tables().ask(asked) == []


@pytest.mark.slow
def test_lost_request_is_an_error_and_no_smaller_export_is_made(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.admit("data", DATA[0])
    scene.admit("model", "small")
    run = scene.run(scene.line.active, author="small", temperature=0.1)
    scene.audit(run)
    assert len(scene.draw(SFT).examples) == 1
    for path in scene.blobs.directory.rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(BlobError, match="the blob is missing"):
        scene.draw(SFT)


class Spoilt(VerifiedLedger):
    """A ledger in which the body of one kind of event says nothing."""

    def __init__(self, kept: list[VerifiedEntry], authority: Authority) -> None:
        self.kept, self.size, self.authority = kept, len(kept), authority

    def entries(self, *, start: int = 0) -> Iterator[VerifiedEntry]:
        return iter(self.kept[start:])


def test_runs_are_kept_out_when_a_rollback_on_their_line_is_unreadable(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    promoted = scene.promote()
    scene.audit(scene.run(promoted, author="small", temperature=0.1))
    scene.roll_back(promoted)
    with open_verified(scene.ledger) as ledger:
        entries, authority = list(ledger.entries()), ledger.authority
    at = next(each.index for each in entries if each.name == "checkpoint.rolled_back")
    entries[at] = msgspec.structs.replace(entries[at], body=encode_body({"v": 1}))
    asked = "SELECT why_not FROM run_standing"
    with open_tables(Spoilt(entries, authority)) as tables:
        assert tables.ask(asked) == [{"why_not": ["entry unreadable"]}]
    with open_tables(
        Spoilt(entries, authority), as_of=at - 1
    ) as tables:  # before it, nothing is hidden
        assert tables.ask(asked) == [{"why_not": []}]
    signed = Author(role="operator", key_id=bytes(32), signature=bytes(64))
    entries[at] = msgspec.structs.replace(entries[at], author=signed)
    unreadable = pytest.raises(CurationError, match=rf"entry {at} .* an operator and cannot")
    with unreadable, open_tables(Spoilt(entries, authority)):
        pass
    with (
        pytest.raises(CurationError, match=r"entry .* not found"),
        open_tables(Spoilt(entries[:at], authority), as_of=at),
    ):
        pass


def test_other_bytes_under_a_seal_are_rejected(drawn: tuple[Scene, dict[str, str]]) -> None:
    scene, _ = drawn
    made = scene.draw(Query(kind="sft", min_accuracy=0.5))
    sealed = made.seal()
    scene.log.save(sealed)
    assert find_seal(scene.tables(), made) is not None
    with pytest.raises(CurationError, match=r"was sealed in entry .* with sha256"):
        find_seal(scene.tables(), replace(made, examples=made.examples[1:]))


def test_root_is_that_of_the_tree_over_lines() -> None:
    lines = [b"a", b"b", b"c"]
    assert merkle_root(lines) == tree(lines).hex()
    assert merkle_root([]) == tree([]).hex()


def tree(lines: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, by the letter."""
    if not lines:
        return sha256(b"").digest()
    if len(lines) == 1:
        return sha256(b"\x00" + lines[0]).digest()
    k = 1 << ((len(lines) - 1).bit_length() - 1)
    return sha256(b"\x01" + tree(lines[:k]) + tree(lines[k:])).digest()


def test_query_that_cannot_be_met_is_rejected() -> None:
    with pytest.raises(CurationError, match="the kind of an export"):
        Query(kind="rewards")
    with pytest.raises(CurationError, match="margin must be a finite number"):
        Query(kind="preferences", margin=float("nan"))
    assert Query(kind="sft", min_accuracy=1).to_dict() == {"min_accuracy": 1.0}
    assert Query(kind="sft", provoked=False).to_dict() == {"provoked": False}


def propose(scene: Scene, outcome: str | None, *, proposer: str = "tuner") -> str:
    """Submit a change of the line's head, and end it."""
    proposal = Proposal.submit(
        line=str(scene.line.id),
        targets={"prompts/task.md": 2},
        diff=scene.blobs.put(b"--- a/prompts/task.md\n+++ b/prompts/task.md\n"),
        diff_bytes=44,
        base=scene.line.head.commit,
        base_tree=scene.line.head.tree,
        rationale="it names the rule",
        trigger="error_pattern",
        proposer=proposer,
        evidence=[{"kind": "pattern", "key": "k", "says": "R2 was left out"}, {"kind": "entry"}],
    )
    if outcome is not None:
        proposal.conclude(outcome, stage="test", reason="1 of 3 cases failed")
    scene.log.save(proposal)
    return str(proposal.id)


def test_rejected_proposal_is_an_example_with_its_evidence(tmp_path: Path) -> None:
    scene, query = Scene(tmp_path), Query(kind="proposals")
    scene.admit("model", "tuner")
    rejected = propose(scene, "rejected")
    propose(scene, None)
    propose(scene, "withdrawn")
    foreign = propose(scene, "rejected", proposer="eve")
    (made,) = scene.draw(query).examples
    line = json.loads(made.line)
    assert (line["id"], line["label"]) == (f"{rejected}/1", False)
    assert [each["role"] for each in line["prompt"]] == ["system", "user"]
    assert "R2 was left out" in line["prompt"][1]["content"]
    assert "failed" not in line["prompt"][1]["content"]
    said = json.loads(line["completion"][0]["content"])
    assert said["diff"].startswith("--- a/prompts/task.md")
    assert json.loads(line["evidence"])["reason"] == "1 of 3 cases failed"
    asked = "SELECT why_not FROM curated_proposals WHERE proposal_id = ?"
    assert scene.tables().ask(asked, [foreign]) == [{"why_not": ["model:eve is not admitted"]}]
    assert not scene.draw(replace(query, decided_by=("eve",))).examples
    done = scene.export(query)
    assert list(recall(scene.tables(), blobs=scene.blobs)) == []
    scene.withdraw("model", "tuner")
    (back,) = recall(scene.tables(), blobs=scene.blobs)
    assert (back.export, back.example, back.tainted) == (str(done.seal), f"{rejected}/1", True)
    assert back.why == (f"proposal {rejected}: model:tuner is not admitted",)
    with pytest.raises(CurationError, match="gold: proposals can be chosen by decided_by alone"):
        replace(query, gold=True)
