"""A lineage shows the run that its judge read; decisions edited under its audit are refused."""

import argparse
import importlib.util
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from lineage_scene import LineageScene, _Signed, make_lineage_scene
from selecting import KeyHolder
from synthetic import synthetic_audit, synthetic_run

from aggregates.improvement.line import Line
from aggregates.judged import is_as_judged
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.auditing.record import record_of
from judge.lineage.files import TITLE, open_lineage, write_lineage
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import InclusionError, VerificationError
from ledger.handover.proof_files import write_proofs
from ledger.verification.reader import open_verified

SOURCE = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
SPEC = importlib.util.spec_from_file_location("second_verifier_of_judged", SOURCE)
assert SPEC
assert SPEC.loader
SECOND = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SECOND)
JUDGE = AuthorKey("judge", Ed25519PrivateKey.from_private_bytes(bytes([8]) * 32))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[LineageScene, Run, Run]:
    """A ledger whose last two runs are judged as this version does, and as one before it did."""
    scene = make_lineage_scene(tmp_path_factory.mktemp("judged"))
    with LedgerApplication.open(scene.ledger, REGISTRY) as log:
        line: Line = log.repository.get(scene.line)
        runs = [synthetic_run(log, dead=range(3), checkpoint=line.first) for _ in range(3)]
        with open_verified(scene.ledger) as ledger:
            assert ledger.head is not None
            state, note = record_of(ledger, runs[1].id).judged, ledger.head.note
        synthetic_audit(_Signed(log, JUDGE), runs[2], tree_head=note)
        synthetic_audit(_Signed(log, JUDGE), runs[1], judged=state)
    return scene, runs[1], runs[2]


def lineage_of(holder: KeyHolder, honest: str, example: str, **settings: Any) -> str:
    """Hand over the entries that the honest lineage shows, as they are now."""
    with open_verified(holder.home / "ledger") as ledger:
        shown = {entry.index for entry in ledger.entries()} & indexes_of(honest, ledger.vkey)
        before = [(each.stream_id, each.stream_version) for each in ledger.entries()]
    wanted = {before[index] for index in shown}
    proofs = holder.proofs(
        chosen=lambda each: (each.stream_id, each.stream_version) in wanted, **settings
    )
    return f"{TITLE}example {example}\n\n{proofs}"


def indexes_of(text: str, vkey: str) -> set[int]:
    return {entry.index for entry in open_lineage(text, vkey=vkey).selection.entries}


def second(text: str, path: Path, vkey: str) -> str:
    path.write_text(text)
    given = argparse.Namespace(target=str(path), vkey=vkey, head=None, witness=[])
    return str(SECOND.check(given))


@pytest.mark.parametrize("which", ["a root up to the run's end", "the tree head of its audit"])
def test_decision_edited_under_a_genuine_audit_is_rejected(
    made: tuple[LineageScene, Run, Run], which: str, tmp_path: Path
) -> None:
    scene, *runs = made
    run = runs["tree" in which]
    example, path = f"{run.id}/1", tmp_path / "one.lineage"
    with open_verified(scene.ledger) as ledger:
        honest = write_lineage(ledger, example)
    opened = open_lineage(honest, vkey=scene.vkey)
    (audit,) = opened.audits
    assert is_as_judged(opened.selection, audit.audit)
    assert ("run.ended" in honest_names(honest, scene.vkey)) == ("root" in which)
    assert "judged by judge" in second(honest, path, scene.vkey)
    holder = KeyHolder.of(scene.ledger.parent)
    ended, spare = holder.find("run.ended", run.id), holder.find("run.ended", UUID(other(made)))
    kept = holder.edit_before(ended, spare, "run.decision_made", justification="I say so")
    forged = lineage_of(holder, honest, example, kept=kept)
    with pytest.raises(InclusionError, match="is not as it was judged"):
        open_lineage(forged, vkey=scene.vkey)
    with pytest.raises(SECOND.Failed, match="another state of the ledger"):
        second(forged, path, scene.vkey)


def test_lineage_without_the_judged_end_is_rejected(
    made: tuple[LineageScene, Run, Run], tmp_path: Path
) -> None:
    scene, run, _ = made
    example = f"{run.id}/1"
    with open_verified(scene.ledger) as ledger:
        honest = write_lineage(ledger, example)
    title = "c2sp.org/tlog-proof@v1\n"
    head, *proofs = honest.split(title)
    with_end = open_lineage(honest, vkey=scene.vkey).lineage
    ended = next(step.entry.index for step in with_end.steps if step.entry.name == "run.ended")
    cut = head + "".join(title + each for each in proofs if f"index {ended}\n" not in each)
    with pytest.raises(VerificationError, match="be of the run as it ended"):
        open_lineage(cut, vkey=scene.vkey)
    with pytest.raises(SECOND.Failed, match="an audit of the run"):
        second(cut, tmp_path / "cut.lineage", scene.vkey)


def test_lineage_in_the_earlier_form_with_an_audit_of_today_is_rejected(
    made: tuple[LineageScene, Run, Run], tmp_path: Path
) -> None:
    """Which would leave out what decides whether the audit counts."""
    scene, run, before = made
    for each, ok in ((run, False), (before, True)):
        with open_verified(scene.ledger) as ledger:
            today = write_lineage(ledger, f"{each.id}/1")
            shown = open_lineage(today, vkey=scene.vkey).lineage.indexes
            text = f"proctor/lineage/v1\nexample {each.id}/1\n\n{write_proofs(ledger, shown)}"
        if ok:
            assert open_lineage(text, vkey=scene.vkey).earlier
            assert "judged by judge" in second(text, tmp_path / "one.lineage", scene.vkey)
            continue
        with pytest.raises(InclusionError, match="form of an earlier version"):
            open_lineage(text, vkey=scene.vkey)
        with pytest.raises(SECOND.Failed, match="form of an earlier version"):
            second(text, tmp_path / "one.lineage", scene.vkey)


def other(made: tuple[LineageScene, Run, Run]) -> str:
    return str(made[0].runs["baseline"])


def honest_names(text: str, vkey: str) -> set[str]:
    return {step.entry.name for step in open_lineage(text, vkey=vkey).lineage.steps}
