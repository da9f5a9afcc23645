"""Folders and reports of a key holder who selects entries: refused, or they say what is left out.

The attacker has the ledger's and the publisher's private keys, but no judge's. He signs whatever
tree he likes, and hands over whichever of its entries he likes.
"""

import hashlib
import json
import re
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import call_here
from lineage_scene import _Signed as Signed
from selecting import CONTENT, KeyHolder, started
from synthetic import begun_campaign, synthetic_audit, synthetic_campaign, synthetic_run

from aggregates.registry import REGISTRY
from aggregates.transcript import Transcript
from judge.auditing.record import record_of
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.bodies import decode_body
from ledger.entries import AuthorKey
from ledger.keys import load_or_create_key
from ledger.notes import NoteKey, public_bytes, vkey
from ledger.recorder import SignedRecorder
from ledger.verification.reader import open_verified
from ledger.verification.verified_entries import VerifiedEntry
from proctor.handover.evidence import UNBOUND

OPERATOR, JUDGE, REVOKED, OWN, NEXT = (
    Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3, 4, 5)
)
BY_OPERATOR, BY_JUDGE = AuthorKey("operator", OPERATOR), AuthorKey("judge", JUDGE)
WORSE = {"model.py": b"model = 1\n", "weights.safetensors": b"other weights"}
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in WORSE.items()}


@dataclass(frozen=True)
class Scene:
    """A ledger: two runs with verdicts, one whose only judge's key is revoked, and one whose audit
    is of an earlier version, bound to no state of it."""

    home: Path
    run: UUID
    audit: UUID
    other: UUID
    other_audit: UUID
    doubtful: UUID
    doubtful_audit: UUID
    older: UUID
    older_audit: UUID

    @property
    def vkey_file(self) -> Path:
        return self.home / "ledger" / "ledger.vkey"


@dataclass(frozen=True)
class Handed:
    """What is handed over."""

    proofs: str
    run: UUID
    audit: UUID
    content: dict[str, bytes]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    home = tmp_path_factory.mktemp("selected") / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        recorder = log.recorder
        assert isinstance(recorder, SignedRecorder)
        recorder.grant_key(vkey("ada", public_bytes(OPERATOR)), role="operator")
        recorder.grant_key(vkey("judge", public_bytes(JUDGE)), role="judge", author=BY_OPERATOR)
        lost = vkey("lost", public_bytes(REVOKED))
        recorder.grant_key(lost, role="judge", author=BY_OPERATOR)
        runs = [started(log) for _ in range(4)]
        with open_verified(home / "ledger") as ledger:
            states = [record_of(ledger, run.id).judged for run in runs[:2]]
        by = [BY_JUDGE, BY_JUDGE, AuthorKey("judge", REVOKED), BY_JUDGE]
        audits = [
            synthetic_audit(Signed(log, each), run, judged=state)
            for run, each, state in zip(runs, by, [*states, None, None], strict=True)
        ]
        recorder.revoke_key(lost, role="judge", since=1, reason="lost", author=BY_OPERATOR)
        key = load_or_create_key(
            home / "ledger" / "keys" / "publisher.pem", role="publisher", passphrase=None
        )
        name = vkey("publisher", public_bytes(key), role="publisher")
        recorder.grant_key(name, role="publisher", author=BY_OPERATOR)
    ids = [each.id for pair in zip(runs, audits, strict=True) for each in pair]
    blobs = BlobStore(home / "ledger" / "blobs")
    for content in CONTENT.values():
        blobs.put(content)
    return Scene(home, *ids)


@pytest.fixture
def holder(scene: Scene) -> KeyHolder:
    return KeyHolder.of(scene.home)


def handed(
    holder: KeyHolder,
    run: UUID,
    audit: UUID,
    *more: UUID,
    without: Callable[[VerifiedEntry], bool] = lambda _: False,
    content: dict[str, bytes] = CONTENT,
    **settings: Any,
) -> Handed:
    """Choose a run, its audit, the authority stream and more; leave some out."""
    streams = {run, Transcript.id_of(run), audit, holder.authority, *more}
    proofs = holder.proofs(
        chosen=lambda each: each.stream_id in streams and not without(each), **settings
    )
    return Handed(proofs, run, audit, content)


def verified(scene: Scene, path: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    done = call_here(["verify", path, "--vkey", scene.vkey_file, "--json", *more], home=scene.home)
    return done.returncode, json.loads(done.stdout)


# ------------------------------------------------------------------------------------------------
# The run goes on after its verdict


def goes_on_to_another_end(holder: KeyHolder, scene: Scene) -> Handed:
    saved = decode_body(holder.find("run.weights_saved", scene.run).body)
    ended = decode_body(holder.find("run.ended", scene.run).body)
    weights = {"sha256": HASHES["weights.safetensors"], "size": len(WORSE["weights.safetensors"])}
    holder.add(scene.run, "run.weights_saved", {**saved, **weights})
    holder.add(scene.run, "run.ended", {**ended, "deliverables": HASHES})
    return handed(holder, scene.run, scene.audit, content=WORSE)


def goes_on_with_other_weights(holder: KeyHolder, scene: Scene) -> Handed:
    saved = decode_body(holder.find("run.weights_saved", scene.run).body)
    weights = {"sha256": HASHES["weights.safetensors"], "size": len(WORSE["weights.safetensors"])}
    holder.add(scene.run, "run.weights_saved", {**saved, **weights})
    return handed(holder, scene.run, scene.audit)


def calls_after_its_verdict(holder: KeyHolder, scene: Scene) -> Handed:
    body = {"v": 1, "originator_topic": "", "run": str(scene.run), "mode": "live", "policy": {}}
    holder.add(Transcript.id_of(scene.run), "transcript.started", body)
    return handed(holder, scene.run, scene.audit)


def hides_the_judged_end(holder: KeyHolder, scene: Scene) -> Handed:
    judged = holder.find("run.ended", scene.run)
    goes_on_to_another_end(holder, scene)
    return handed(
        holder, scene.run, scene.audit, without=lambda each: each == judged, content=WORSE
    )


def hands_over_other_weights(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(holder, scene.run, scene.audit, content=WORSE)


def replaces_the_judged_end(holder: KeyHolder, scene: Scene) -> Handed:
    """Another history of the same run, under the judge's genuine words."""
    return replaced_end(holder, scene, judged={"files": HASHES})


def replaced_end(holder: KeyHolder, scene: Scene, **start: Any) -> Handed:
    """Judge files other than those that the run hands in."""
    audit = uuid4()
    holder.copy_stream(scene.audit, audit, by=BY_JUDGE, **start)
    return handed(holder, scene.run, audit, without=lambda e: e.stream_id == scene.audit)


def edits_the_run_before_its_judged_end(holder: KeyHolder, scene: Scene) -> Handed:
    """The judge signed the hash of the end, which covers what was before it; links have gaps."""
    ended, spare = (holder.find("run.ended", each) for each in (scene.other, scene.run))
    kept = holder.edit_before(ended, spare, "run.started", policy={"name": "another"})
    return handed(holder, scene.other, scene.other_audit, kept=kept)


def judged_other_weights_in_step_3(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    for each in [each for each in holder.entries if each.stream_id == scene.audit]:
        body = decode_body(each.body)
        if body.get("name") == "weights":
            body["evidence"] = {"sha256": HASHES["weights.safetensors"]}
        holder.add(audit, each.name, body, by=BY_JUDGE)
    return handed(holder, scene.run, audit)


# ------------------------------------------------------------------------------------------------
# Keys


def own_judge_although_an_operator_exists(holder: KeyHolder, scene: Scene) -> Handed:
    by_ledger = AuthorKey("ledger", holder.key())
    holder.grant("judge", vkey("mine", public_bytes(OWN)), by=by_ledger)
    audit = uuid4()
    holder.copy_stream(scene.audit, audit, by=AuthorKey("judge", OWN))
    return handed(holder, scene.run, audit)


def own_judge_with_the_operator_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    made = own_judge_although_an_operator_exists(holder, scene)
    mine = holder.find("key.granted", role="judge", vkey=vkey("mine", public_bytes(OWN)))
    publisher = holder.find("key.granted", role="publisher")
    keep = (mine, publisher)
    return handed(
        holder,
        scene.run,
        made.audit,
        without=lambda e: e.stream_id == holder.authority and e not in keep,
    )


def key_of_another_role(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    holder.copy_stream(scene.audit, audit, by=AuthorKey("judge", OPERATOR))
    return handed(holder, scene.run, audit)


def grant_in_another_stream(holder: KeyHolder, scene: Scene) -> Handed:
    body = {"v": 1, "role": "judge", "vkey": vkey("mine", public_bytes(OWN))}
    stream, audit = uuid4(), uuid4()
    holder.add(stream, "key.granted", body, by=AuthorKey("ledger", holder.key()))
    holder.copy_stream(scene.audit, audit, by=AuthorKey("judge", OWN))
    return handed(holder, scene.run, audit, stream)


def judge_after_its_revocation(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    holder.copy_stream(scene.audit, audit, by=AuthorKey("judge", REVOKED))
    return handed(holder, scene.run, audit)


def revocation_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(
        holder, scene.doubtful, scene.doubtful_audit, without=lambda e: e.name == "key.revoked"
    )


def revoked_judge_shown(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(holder, scene.doubtful, scene.doubtful_audit)


def rotation_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    note = NoteKey(holder.origin, holder.key()).rotation_to(NoteKey(holder.origin, NEXT))
    holder.add(holder.authority, "key.rotated", {"v": 1, "note": note})
    return handed(
        holder, scene.run, scene.audit, without=lambda e: e.name == "key.rotated", key=NEXT
    )


# ------------------------------------------------------------------------------------------------
# Audits


def audit_that_nobody_signed(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    holder.copy_stream(scene.audit, audit)
    return handed(holder, scene.run, audit, without=lambda e: e.stream_id == scene.audit)


def audit_signed_by_the_ledger(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    holder.copy_stream(scene.audit, audit, by=AuthorKey("ledger", holder.key()))
    return handed(holder, scene.run, audit)


def unsigned_audit_with_the_judges_grant_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    made = audit_that_nobody_signed(holder, scene)
    judges = [each for each in holder.entries if decode_body(each.body).get("role") == "judge"]
    return handed(holder, scene.run, made.audit, without=lambda each: each in judges)


def audit_of_another_run(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(holder, scene.run, scene.other_audit)


def judges_words_moved_to_another_audit(holder: KeyHolder, scene: Scene) -> Handed:
    audit = uuid4()
    for each in [each for each in holder.entries if each.stream_id == scene.other_audit]:
        holder.add(audit, each.name, each.body, author=each.author)
    return handed(holder, scene.other, audit)


def start_exchanged(holder: KeyHolder, scene: Scene) -> Handed:
    """The judge's genuine steps and scores, after a start that names another run."""
    start = holder.find("audit.started", scene.other_audit)
    at = holder.entries.index(start)
    holder.entries.remove(start)
    body = {**decode_body(start.body), "run": str(scene.run)}
    after = holder.entries[at]
    holder.add(scene.other_audit, start.name, body, version=1, before=after)
    return handed(holder, scene.run, scene.other_audit)


def step_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    step = holder.find("audit.step_completed", scene.audit, step=9)
    return handed(holder, scene.run, scene.audit, without=lambda each: each == step)


# ------------------------------------------------------------------------------------------------
# Entries


def decision_left_out(holder: KeyHolder, scene: Scene) -> Handed:
    evaluated = holder.find("run.rules_evaluated", scene.run)
    return handed(holder, scene.run, scene.audit, without=lambda each: each == evaluated)


def proof_twice(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(holder, scene.run, scene.audit, twice=True)


def proofs_in_another_order(holder: KeyHolder, scene: Scene) -> Handed:
    made = handed(holder, scene.run, scene.audit)
    title = "c2sp.org/tlog-proof@v1\n"
    first, second, *rest = made.proofs.split(title)[1:]
    proofs = title + title.join([second, first, *rest])
    return Handed(proofs, made.run, made.audit, made.content)


def event_of_a_stream_twice(holder: KeyHolder, scene: Scene) -> Handed:
    ended = holder.find("run.ended", scene.run)
    holder.add(scene.run, "run.ended", ended.body, version=ended.stream_version)
    return handed(holder, scene.run, scene.audit)


def entries_of_another_run_added(holder: KeyHolder, scene: Scene) -> Handed:
    return handed(holder, scene.run, scene.audit, scene.other)


COUNTS = "no audit of run .* counts"
LEFT_OUT = "leaves out event"
FOLDERS: dict[Callable[[KeyHolder, Scene], Handed], str] = {
    goes_on_to_another_end: COUNTS,
    goes_on_with_other_weights: COUNTS,
    calls_after_its_verdict: COUNTS,
    hides_the_judged_end: LEFT_OUT,
    hands_over_other_weights: "does not have the files that the run handed in",
    replaces_the_judged_end: "no audit of run .* counts",
    edits_the_run_before_its_judged_end: "is not as it was judged",
    judged_other_weights_in_step_3: "is not the file that the judge judged",
    own_judge_although_an_operator_exists: "must be signed by operator",
    own_judge_with_the_operator_left_out: LEFT_OUT,
    key_of_another_role: "not in force",
    grant_in_another_stream: "not in force",
    judge_after_its_revocation: "not in force",
    revocation_left_out: LEFT_OUT,
    revoked_judge_shown: COUNTS,
    rotation_left_out: "leaves out a rotation",
    audit_that_nobody_signed: COUNTS,
    audit_signed_by_the_ledger: COUNTS,
    unsigned_audit_with_the_judges_grant_left_out: LEFT_OUT,
    audit_of_another_run: "entries are proved that nothing here rests on",
    judges_words_moved_to_another_audit: "author's signature is invalid",
    start_exchanged: COUNTS,
    step_left_out: LEFT_OUT,
    decision_left_out: LEFT_OUT,
    proof_twice: "out of order",
    proofs_in_another_order: "out of order",
    event_of_a_stream_twice: "repeats an event of its stream",
    entries_of_another_run_added: "2 starts of a run",
}
REPORTS: dict[Callable[[KeyHolder, Scene], Handed], str] = {
    hides_the_judged_end: LEFT_OUT,
    edits_the_run_before_its_judged_end: "is not as it was judged",
    own_judge_although_an_operator_exists: "must be signed by operator",
    own_judge_with_the_operator_left_out: LEFT_OUT,
    key_of_another_role: "not in force",
    judge_after_its_revocation: "not in force",
    revocation_left_out: LEFT_OUT,
    rotation_left_out: "leaves out a rotation",
    unsigned_audit_with_the_judges_grant_left_out: LEFT_OUT,
    audit_of_another_run: "entries are proved that nothing here rests on",
    judges_words_moved_to_another_audit: "author's signature is invalid",
    step_left_out: LEFT_OUT,
    decision_left_out: LEFT_OUT,
    proof_twice: "out of order",
    proofs_in_another_order: "out of order",
    event_of_a_stream_twice: "repeats an event of its stream",
}


LAID_IN = (proof_twice, proofs_in_another_order, event_of_a_stream_twice)  # an honest file


def honest_proofs(scene: Scene) -> str:
    return handed(KeyHolder.of(scene.home), scene.run, scene.audit).proofs


@pytest.mark.parametrize("attack", FOLDERS, ids=lambda attack: attack.__name__)
def test_folder_of_selected_entries_is_rejected(
    attack: Callable[[KeyHolder, Scene], Handed], scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made = attack(holder, scene)
    proofs = made.proofs if attack not in LAID_IN else honest_proofs(scene)
    folder = holder.folder(
        tmp_path / "out", proofs, run=made.run, audit=made.audit, content=made.content
    )
    (folder / "events.tlog-proof").write_text(made.proofs)
    code, told = verified(scene, folder)
    assert (code, told["ok"]) == (1, False)
    with pytest.raises(AssertionError, match=FOLDERS[attack]):
        raise AssertionError(told["error"])


@pytest.mark.sampled(4)  # of each of these, a folder is rejected above
@pytest.mark.parametrize("attack", REPORTS, ids=lambda attack: attack.__name__)
def test_report_of_selected_entries_is_rejected(
    attack: Callable[[KeyHolder, Scene], Handed], scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made = attack(holder, scene)
    proofs = made.proofs if attack not in LAID_IN else honest_proofs(scene)
    page = holder.report(tmp_path / "page.html", proofs, run=made.run)
    packed = KeyHolder.packed
    page.write_text(page.read_text().replace(packed(proofs), packed(made.proofs)))
    code, told = verified(scene, page)
    assert (code, told["ok"]) == (1, False)
    with pytest.raises(AssertionError, match=REPORTS[attack]):
        raise AssertionError(told["error"])


def test_honest_folder_and_report_are_held(scene: Scene, holder: KeyHolder, tmp_path: Path) -> None:
    """The control: the same hand, the same files, nothing left out."""
    made = handed(holder, scene.run, scene.audit)
    folder = holder.folder(tmp_path / "out", made.proofs, run=made.run, audit=made.audit)
    page = holder.report(tmp_path / "page.html", made.proofs, run=made.run)
    for path in (folder, page):
        code, told = verified(scene, path)
        assert (code, told["ok"]) == (0, True), told
        (one,) = told["verdicts"]
        assert one["judge"] == vkey("judge", public_bytes(JUDGE))
        assert one["granted_as"] == "operator"
        assert not told["trusted"]
        assert told["as_of"].startswith(f"As of tree head {told['size']} (")


def test_audit_that_no_judge_signed_is_no_verdict_in_a_report(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made, judge = audit_that_nobody_signed(holder, scene), vkey("judge", public_bytes(JUDGE))
    code, told = verified(scene, holder.report(tmp_path / "page.html", made.proofs, run=scene.run))
    assert (code, told["verdicts"]) == (0, [])
    code, told = verified(scene, tmp_path / "page.html", "--judge", judge)
    assert (code, "no verdict is shown" in told["error"]) == (1, True)
    page = (tmp_path / "page.html").read_text()
    assert "no audit counts for this run" in page


def test_what_is_left_out_at_the_end_is_said(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    """A later revocation cannot be excluded; the answer says so."""
    revoked = holder.find("key.granted", role="publisher")
    later = {"v": 1, "role": "judge", "vkey": vkey("judge", public_bytes(JUDGE))}
    later |= {"since": 1, "reason": "stolen"}
    made = holder.add(holder.authority, "key.revoked", later, by=BY_OPERATOR)
    assert revoked in holder.entries
    cut = handed(holder, scene.run, scene.audit, without=lambda each: each == made)
    folder = holder.folder(tmp_path / "out", cut.proofs, run=cut.run, audit=cut.audit)
    page = holder.report(tmp_path / "page.html", cut.proofs, run=cut.run)
    for path in (folder, page):
        done = call_here(["verify", path, "--vkey", scene.vkey_file], home=scene.home)
        said = " ".join(done.stdout.split())
        assert done.returncode == 0
        assert "later entries, such as a revoked key, can be left out; verify the ledger" in said
    shown = handed(holder, scene.run, scene.audit)
    folder = holder.folder(tmp_path / "all", shown.proofs, run=cut.run, audit=cut.audit)
    assert verified(scene, folder)[0] == 1  # and whoever sees it refuses


def test_whole_audit_that_is_left_out_is_said_with_tree_head_and_date(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    start = holder.find("audit.started", scene.audit)
    holder.add(uuid4(), "audit.started", decode_body(start.body), by=BY_JUDGE)
    cut = handed(holder, scene.run, scene.audit)
    paths = (
        holder.folder(tmp_path / "out", cut.proofs, run=cut.run, audit=cut.audit),
        holder.report(tmp_path / "page.html", cut.proofs, run=cut.run),
    )
    for path in paths:
        done = call_here(["verify", path, "--vkey", scene.vkey_file], home=scene.home)
        assert done.returncode == 0
        assert AS_OF.search(" ".join(done.stdout.split())), done.stdout
        assert AS_OF.fullmatch(verified(scene, path)[1]["as_of"])


AS_OF = re.compile(
    r"As of tree head \d+ \(newest entry shown: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\): other audits "
    r"and later entries, such as a revoked key, can be left out; verify the ledger or a bundle to "
    r"exclude that\."
)


@pytest.mark.parametrize("shown", [True, False])
def test_parent_of_a_fork_that_is_left_out_of_a_report_is_said(
    scene: Scene, holder: KeyHolder, tmp_path: Path, shown: bool
) -> None:
    forked = {"v": 1, "parent": str(scene.other), "epoch": 0, "digest": "d1" * 32}
    forked |= {"state": "5a" * 32, "orders": [], "at": 0}
    holder.add(scene.run, "run.forked", forked)
    more = (scene.other, scene.other_audit) if shown else ()
    made = handed(holder, scene.run, scene.audit, *more, without=of_a_parent(scene))
    code, told = verified(scene, holder.report(tmp_path / "p.html", made.proofs, run=made.run))
    assert (code, told["ok"]) == (0, True), told
    due = f"what run {scene.run} goes on from: run {scene.other} is left out, or its ledger"
    assert any(each.startswith(due) for each in told["not_claimed"]) is not shown


def of_a_parent(scene: Scene) -> Callable[[VerifiedEntry], bool]:
    """Tell which entries of a parent a report of its fork does not rest on."""
    edges = ("run.started", "run.ended")
    return lambda each: each.stream_id == scene.other and each.name not in edges


def test_folder_in_the_form_of_an_earlier_version_says_what_it_lacks(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made = revocation_left_out(holder, scene)
    folder = holder.folder(
        tmp_path / "out", made.proofs, run=made.run, audit=made.audit, earlier=True
    )
    judge = vkey("lost", public_bytes(REVOKED))
    code, told = verified(scene, folder, "--judge", judge)
    assert (code, told["trusted"]) == (0, False)
    assert any("an earlier version made this folder" in each for each in told["not_claimed"])
    bound = handed(holder, scene.run, scene.audit)
    folder = holder.folder(
        tmp_path / "new", bound.proofs, run=scene.run, audit=scene.audit, earlier=True
    )
    code, told = verified(scene, folder)
    assert (code, "the form of an earlier version" in told["error"]) == (1, True)
    unsigned = audit_that_nobody_signed(holder, scene)
    folder = holder.folder(
        tmp_path / "no", unsigned.proofs, run=scene.run, audit=unsigned.audit, earlier=True
    )
    assert verified(scene, folder)[0] == 1


def test_judge_that_the_reader_names_is_pinned(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made = handed(holder, scene.run, scene.audit)
    folder = holder.folder(tmp_path / "out", made.proofs, run=made.run, audit=made.audit)
    page = holder.report(tmp_path / "page.html", made.proofs, run=made.run)
    named = tmp_path / "judge.vkey"
    named.write_text(vkey("whatever", public_bytes(JUDGE)))
    for path in (folder, page):
        code, told = verified(scene, path, "--judge", named)
        assert (code, told["trusted"]) == (0, True)
        code, told = verified(scene, path, "--judge", vkey("mine", public_bytes(OWN)))
        assert (code, "is not signed by mine+" in told["error"]) == (1, True)
    done = call_here(["verify", folder, "--vkey", scene.vkey_file], home=scene.home)
    said = " ".join(done.stdout.split())
    assert "signed by the judge judge+" in said
    assert "granted by an operator of the ledger" in said
    assert "accuracy score 0.900" in said
    assert "not claimed: any level of SLSA" in said
    wrong = call_here(["verify", folder, "--judge", "x"], home=scene.home)
    assert (wrong.returncode, "neither a vkey nor a file" in wrong.stderr) == (2, True)
    for name, said in (("events.tlog-proof", "shows no verdict"), ("model.sig", "name its folder")):
        done = call_here(
            ["verify", folder / name, "--vkey", scene.vkey_file, "--judge", named], home=scene.home
        )
        assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True)
    ledger = call_here(["verify", "--judge", named], home=scene.home)
    assert (ledger.returncode, "--judge applies to" in ledger.stderr) == (2, True)


def test_verdict_of_an_earlier_version_is_not_bound_to_a_state_of_the_run(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    made = handed(holder, scene.older, scene.older_audit)
    folder = holder.folder(tmp_path / "out", made.proofs, run=made.run, audit=made.audit)
    code, told = verified(scene, folder, "--judge", vkey("judge", public_bytes(JUDGE)))
    assert (code, told["trusted"], told["verdicts"][0]["as_judged"]) == (0, False, False)
    assert UNBOUND in told["reservations"]


def test_run_of_an_earlier_version_is_held_against_the_tree_head_of_its_audit(
    tmp_path: Path,
) -> None:
    """Its judge signed no root of its own; the tree head beside the audit's start is one."""
    home = tmp_path / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        recorder = log.recorder
        assert isinstance(recorder, SignedRecorder)
        recorder.grant_key(vkey("judge", public_bytes(JUDGE)), role="judge")
        spare, run = started(log), started(log)
        with open_verified(home / "ledger") as ledger:
            assert ledger.head is not None
            note = ledger.head.note
        audit = synthetic_audit(Signed(log, BY_JUDGE), run, tree_head=note)
    holder = KeyHolder.of(home)
    scene = Scene(home, *[run.id, audit.id] * 4)
    honest = handed(holder, run.id, audit.id)
    page = holder.report(tmp_path / "page.html", honest.proofs, run=run.id)
    code, told = verified(scene, page, "--judge", vkey("judge", public_bytes(JUDGE)))
    assert (code, told["trusted"], told["verdicts"][0]["as_judged"]) == (0, True, True)
    ended, other = (holder.find("run.ended", each.id) for each in (run, spare))
    kept = holder.edit_before(ended, other, "run.started", policy={"name": "another"})
    edited = handed(holder, run.id, audit.id, kept=kept)
    page = holder.report(tmp_path / "page.html", edited.proofs, run=run.id)
    code, told = verified(scene, page)
    assert (code, "is not as it was judged" in told["error"]) == (1, True)


# ------------------------------------------------------------------------------------------------
# Somebody without any key, who has a genuine folder


@pytest.fixture
def folder(scene: Scene, holder: KeyHolder, tmp_path: Path) -> Path:
    made = handed(holder, scene.run, scene.audit)
    return holder.folder(tmp_path / "folder", made.proofs, run=made.run, audit=made.audit)


@pytest.mark.parametrize("place", ["ledger", "."])
def test_other_model_beside_a_genuine_ledger_is_rejected(
    scene: Scene, folder: Path, place: str
) -> None:
    """Else the ledger would be verified, and nobody would look at the model."""
    (folder / "model" / "weights.safetensors").write_bytes(b"other weights")
    shutil.copytree(scene.home / "ledger", folder / place, dirs_exist_ok=True)
    done = call_here(["verify", folder, "--vkey", scene.vkey_file], home=scene.home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds a model handed over and a ledger" in " ".join(done.stderr.split())


def test_page_that_does_not_follow_from_the_events_is_said(
    scene: Scene, holder: KeyHolder, tmp_path: Path
) -> None:
    """The publisher signed it, and the events say something else."""
    made = handed(holder, scene.run, scene.audit)
    card = b"# The best model\n\nTest accuracy: 0.999\n"
    named = ("--judge", vkey("judge", public_bytes(JUDGE)))
    for folder, said in (
        (holder.folder(tmp_path / "a", made.proofs, run=made.run, audit=made.audit), False),
        (holder.folder(tmp_path / "b", made.proofs, run=made.run, audit=made.audit, card=card), 1),
    ):
        code, told = verified(scene, folder, *named)
        found = any("what model/README.md says" in each for each in told["not_claimed"])
        assert (code, found, told["trusted"]) == (0, said, not said)


def test_weights_of_another_size_are_not_read(scene: Scene, folder: Path) -> None:
    """A file of a terabyte that takes no room on the disk."""
    for name in ("weights.safetensors", "model.py"):
        content = (folder / "model" / name).read_bytes()
        with (folder / "model" / name).open("r+b") as file:
            file.truncate(1 << 40)
        code, told = verified(scene, folder)
        assert (code, f"{name} is not the file that was signed" in told["error"]) == (1, True)
        (folder / "model" / name).write_bytes(content)
    assert verified(scene, folder)[0] == 0


@pytest.mark.parametrize("padding", ["\n" * 12_000_000, "{}\n[" + "[]," * 2_000_000 + "[]]\n{}\n"])
def test_padded_claims_cost_little(scene: Scene, folder: Path, padding: str) -> None:
    (folder / "claims.jsonl").write_text(padding)
    tracemalloc.start()
    try:
        code, told = verified(scene, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (code, told["error"].startswith("claims.jsonl")) == (1, True)
    assert peak < 96 * 2**20  # bytes; a file has at most 64 MiB, and its buffer takes that


def test_report_says_what_is_not_there(tmp_path: Path) -> None:
    """Attempts that no judge has judged, and the run on which one follows."""
    home = tmp_path / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        recorder = log.recorder
        assert isinstance(recorder, SignedRecorder)
        recorder.grant_key(vkey("judge", public_bytes(JUDGE)), role="judge")
        begun, (first, second) = begun_campaign(log, 2, epochs=1)
        campaign = str(begun.id)
        parent = synthetic_run(log, epochs=1, run_id=first, campaign=campaign)
        run = synthetic_run(
            log, epochs=1, run_id=second, campaign=campaign, parent_run=str(parent.id)
        )
        synthetic_audit(log, parent)
        audit = synthetic_audit(Signed(log, BY_JUDGE), run)
        synthetic_campaign(log, [parent, run], begun=begun)
    holder = KeyHolder.of(home)
    scene = Scene(home, *[run.id, audit.id] * 4)
    told = {}
    for subject in (campaign, str(run.id)):
        page = tmp_path / f"{subject}.html"
        assert call_here(["report", subject, "--out", page], home=home).returncode == 0
        told[subject] = verified(scene, page)[1]["not_claimed"]
    inside = call_here(
        ["export", "model", str(run.id), "--out", home / "ledger" / "new"], home=home
    )
    assert (inside.returncode, "keeps what is its own" in inside.stderr) == (2, True)
    assert any("a verdict on 1 of 2 runs" in each for each in told[campaign])
    assert not any("left out" in each for each in told[str(run.id)])  # the control
    cut = handed(holder, run.id, audit.id)
    page = holder.report(tmp_path / "cut.html", cut.proofs, run=run.id)
    code, found = verified(scene, page)
    assert (code, f"run {parent.id} is left out" in " ".join(found["not_claimed"])) == (0, True)
