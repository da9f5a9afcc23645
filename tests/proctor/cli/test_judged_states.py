"""What a judge has signed is the state of the run that it judged, and every reader compares it.

The attacker has the ledger's key and not the judge's: what the judge has signed can be copied.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from edge_trees import Tree
from eventsourcing.persistence import StoredEvent
from frontdoor import TINY, answer, call, call_here, with_settings
from rebuilt import Change, rebuild

from aggregates.registry import REGISTRY
from aggregates.transcript import Transcript
from judge.auditing.audit import audit_run
from judge.auditing.report import UnrecordedError
from ledger.application import LedgerApplication
from ledger.bodies import decode_body, encode_body
from ledger.entries import AuthorKey
from ledger.errors import StorageError
from ledger.keys import load_key
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified
from ledger.verification.verified_entries import VerifiedEntry
from proctor.home import Home

OTHER = "f" * 64  # the hash of other weights
KILLED = """
import os
from judge.auditing.gates import Gates
Gates.deliverables = lambda self: os._exit(9)
from proctor.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def judged_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the playbook with decisions, judged by a judge who has a key."""
    home = tmp_path_factory.mktemp("judged") / "home"
    settings = with_settings(TINY, "lr=3.0", "warm_up_epochs=0", "epochs=4")
    assert call_here(["run", *settings, "--policy", "playbook"], home=home).returncode == 0
    judge = LedgerPaths(home / "ledger").key.with_name("judge.pem")
    assert call_here(["keys", "new", "judge", judge], home=home).returncode == 0
    assert call_here(["keys", "grant", "judge", f"{judge}.vkey"], home=home).returncode == 0
    done = call_here(["judge", "--no-execute"], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


@pytest.fixture
def home(judged_home: Path, tmp_path: Path) -> Path:
    """A copy that may be tampered with."""
    shutil.copytree(judged_home, tmp_path / "home")
    return tmp_path / "home"


def entries(home: Path) -> list[VerifiedEntry]:
    with open_verified(home / "ledger") as ledger:
        return list(ledger.entries())


def run_of(home: Path) -> UUID:
    return next(entry.stream_id for entry in entries(home) if entry.name == "run.started")


@contextmanager
def recorder(home: Path) -> Iterator[SignedRecorder]:
    """Append as somebody who has the ledger's key, and whose recorder asks nothing."""
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        yield SignedRecorder(database, signer=signer)


def append(home: Path, stream: UUID, *events: tuple[str, dict[str, Any]]) -> None:
    last = max(
        (e.stream_version for e in entries(home) if e.stream_id == stream),
        default=0,
    )
    with recorder(home) as appending:
        for at, (name, fields) in enumerate(events, start=last + 1):
            body = encode_body({"v": REGISTRY.for_name(name).version, "at": 0, **fields})
            appending.insert_events([StoredEvent(stream, at, name, body)])


def body_of(home: Path, name: str) -> dict[str, Any]:
    found = [decode_body(e.body) for e in entries(home) if e.name == name]
    return {key: value for key, value in found[-1].items() if key not in ("v", "at")}


def shown(home: Path) -> dict[str, Any]:
    told: dict[str, Any] = answer(call_here(["show", "--json"], home=home))
    return told


def ask(home: Path, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(call_here(["sql", "--json", query], home=home))
    return rows


def weights(home: Path) -> tuple[str, dict[str, Any]]:
    return "run.weights_saved", {**body_of(home, "run.weights_saved"), "sha256": OTHER}


def end(home: Path) -> tuple[str, dict[str, Any]]:
    files = dict.fromkeys(body_of(home, "run.ended")["deliverables"], OTHER)
    return "run.ended", {**body_of(home, "run.ended"), "deliverables": files}


LATER: dict[str, Callable[[Path], list[tuple[str, dict[str, Any]]]]] = {
    "other weights and another end": lambda home: [weights(home), end(home)],
    "another end alone": lambda home: [end(home)],
    "the same end again": lambda home: [("run.ended", body_of(home, "run.ended"))],
    "another start": lambda home: [("run.started", body_of(home, "run.started"))],
    "one more epoch": lambda home: [
        ("run.epoch_measured", {**body_of(home, "run.epoch_measured"), "epoch": 4})
    ],
    "one more decision": lambda home: [
        ("run.decision_made", {**body_of(home, "run.decision_made"), "number": 99})
    ],
    "an event of another kind of stream": lambda home: [
        ("campaign.ended", {"reason": "completed", "ranking": []})
    ],
    "an unreadable event": lambda home: [("run.ended", {"reason": 5})],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", LATER)
def test_verdict_on_a_run_that_went_on_after_it_is_rejected(home: Path, what: str) -> None:
    run = run_of(home)
    append(home, run, *LATER[what](home))
    assert call_here(["verify"], home=home).returncode == 0
    story = shown(home)
    assert (story["summary"]["audit_id"], story["summary"]["verdict"]) == (None, None)
    assert [each["complete"] for each in story["other_audits"]] == [False]
    assert ask(home, "SELECT * FROM counting_audits") == []
    told = call_here(["show"], home=home)
    assert told.returncode == 0
    assert "no verdict counts" in told.stdout
    assert "is not what it judged" in " ".join(told.stdout.split())
    report = home.parent / "report.html"
    done = call_here(["report", str(run), "--out", report], home=home)
    assert done.returncode == 0, done.stderr
    refused = call_here(["export", "model", str(run), "--out", home.parent / "folder"], home=home)
    assert refused.returncode == 2
    assert "no audit of run" in refused.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["other weights and another end", "another start"])
def test_entries_after_the_end_are_told_and_judged(home: Path, what: str) -> None:
    append(home, run_of(home), *LATER[what](home))
    told = call_here(["show"], home=home)
    assert "misplaced entries" in told.stdout
    last = LATER[what](home)[-1][0]
    assert {"name": last, "why": "after the end", "entries": 1} in shown(home)["misplaced"]
    done = call_here(["judge", "--no-execute"], home=home)
    assert done.returncode == 1, done.stdout + done.stderr
    assert shown(home)["summary"]["verdict"] == "failed"


def test_second_start_before_the_end_shows_the_first(home: Path) -> None:
    run = run_of(home)
    start, stop = body_of(home, "run.started"), body_of(home, "run.ended")
    rebuild(home / "ledger", lambda name, body: None if name == "run.ended" else body)
    append(home, run, ("run.started", {**start, "policy": {"name": "other"}}), ("run.ended", stop))
    story = shown(home)
    assert story["summary"]["policy_name"] == "playbook"
    assert story["misplaced"] == [{"name": "run.started", "why": "again", "entries": 1}]


def test_transcript_that_grew_after_the_verdict_is_rejected(home: Path) -> None:
    run = run_of(home)
    told = {"run": str(run), "mode": "improvement", "policy": {"name": "playbook"}}
    append(home, Transcript.id_of(run), ("transcript.started", told))
    assert shown(home)["summary"]["verdict"] is None


# The judge's signed events, repeated over other entries.


def better(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The measured accuracy of each epoch, half a point better."""
    if name == "run.epoch_measured":
        body["measured"]["validation"]["accuracy"] += 0.005
    return body


def in_another_name(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "policy": {"name": "my-great-agent"}} if name == "run.started" else body


def other_files(name: str, body: dict[str, Any]) -> dict[str, Any]:
    if name == "run.ended":
        body["deliverables"] = dict.fromkeys(body["deliverables"], OTHER)
    return body


def other_probe(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "size": body["size"] + 1} if name == "run.weights_saved" else body


def other_reason(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "detail": "nothing to see"} if name == "run.ended" else body


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change", [better, in_another_name, other_files, other_probe, other_reason]
)
def test_judges_events_over_an_edited_run_are_rejected(home: Path, change: Change) -> None:
    before = shown(home)["summary"]
    assert (before["verdict"], before["audit_signed"], before["audit_bound"]) == (
        "held",
        True,
        True,
    )
    rebuild(home / "ledger", change)
    assert call_here(["verify"], home=home).returncode == 0
    after = shown(home)
    assert after["summary"]["verdict"] is None
    assert [each["complete"] for each in after["other_audits"]] == [False]
    assert ask(home, "SELECT * FROM counting_audits") == []
    refused = call_here(["export", "model", "--out", home.parent / "folder"], home=home)
    assert refused.returncode == 2


def test_judges_events_with_another_parent_before_them_are_rejected(home: Path) -> None:
    """What came before the run is bound, too: such as a parent, a fork, a checkpoint."""
    rebuild(home / "ledger", lambda name, body: body)  # the times differ, and so does every hash
    assert shown(home)["summary"]["verdict"] is None


# What a later reader still has to accept.


def test_verdict_counts_when_nothing_but_other_streams_follow(home: Path) -> None:
    before = shown(home)["summary"]
    assert (before["verdict"], before["audit_bound"]) == ("held", True)
    assert shown(home)["misplaced"] == shown(home)["begun_audits"] == []
    settings = with_settings(TINY, "seed=1", "epochs=2")
    assert call_here(["run", *settings, "--policy", "nothing"], home=home).returncode == 0
    run = str(run_of(home))
    assert call_here(["judge", run, "--no-execute"], home=home).returncode == 0
    told = answer(call_here(["show", run, "--json"], home=home))
    assert told["summary"]["verdict"] == "held"
    told = call_here(["export", "model", run, "--out", home.parent / "folder"], home=home)
    assert told.returncode == 0, told.stderr


def test_audit_names_the_state_of_the_run_under_the_judges_key(home: Path) -> None:
    rows = entries(home)
    (started,) = [e for e in rows if e.name == "audit.started"]
    last = [e for e in rows if e.stream_id == run_of(home)][-1]
    assert started.author is not None
    assert started.author.role == "judge"
    tree = Tree()
    tree.extend([e.entry_hash for e in rows[: last.index + 1]])
    assert decode_body(started.body)["judged"] == {
        "entry": last.entry_hash.hex(),
        "root": tree.root().hex(),
        "version": last.stream_version,
        "transcript": 0,
        "files": decode_body(last.body)["deliverables"],
    }


def test_audit_of_an_earlier_version_counts_and_is_told_to_be_unbound(home: Path) -> None:
    (started,) = [e for e in entries(home) if e.name == "audit.started"]
    judge = AuthorKey(
        "judge", load_key(LedgerPaths(home / "ledger").key.with_name("judge.pem"), passphrase=None)
    )
    events = [e for e in entries(home) if e.stream_id == started.stream_id]
    other = uuid4()
    with recorder(home) as appending:
        for event in events:
            body = decode_body(event.body)
            if event.name == "audit.started":
                body = {key: value for key, value in body.items() if key != "judged"} | {"v": 1}
            stored = StoredEvent(other, event.stream_version, event.name, encode_body(body))
            appending.insert_events([stored], author=judge)
    assert shown(home)["summary"]["audit_bound"] is False
    told = call_here(["show"], home=home)
    assert "does not name the state of the run" in " ".join(told.stdout.split())


# An audit that was begun and not ended.


class _Full(LedgerApplication):
    """A log whose disk is full after so many saves."""

    def __init__(self, log: LedgerApplication, saves: int) -> None:
        self.kept, self.saves = log, saves

    def save(self, *saved: Any, **options: Any) -> Any:
        if not self.saves:
            raise StorageError("the disk is full")
        self.saves -= 1
        return self.kept.save(*saved, **options)


def test_report_is_kept_when_only_the_start_could_be_appended(home: Path) -> None:
    ledger = home / "ledger"
    told: dict[str, Any] = {
        "ledger_dir": ledger,
        "submission_dir": Home(home).submission(run_of(home)),
    }
    with LedgerApplication.open(ledger, REGISTRY) as log:
        with pytest.raises(UnrecordedError, match="the disk is full") as caught:
            audit_run(run_of(home), **told, log=_Full(log, 1))
        before = log.recorder.max_notification_id()
        with pytest.raises(StorageError):
            audit_run(run_of(home), **told, log=_Full(log, 0))
        assert log.recorder.max_notification_id() == before
    assert not caught.value.report.hard_fail
    assert caught.value.report.audit_id is None
    assert shown(home)["summary"]["audit_signed"]  # the earlier audit counts


def test_audit_that_was_broken_off_is_on_record(home: Path) -> None:
    killed = call(["judge"], home=home, code=KILLED)
    assert killed.returncode != 0
    (begun,) = ask(home, "SELECT audit_id, ended, standing FROM audits WHERE NOT ended")
    assert begun["standing"] is False
    assert [each["audit_id"] for each in shown(home)["begun_audits"]] == [begun["audit_id"]]
    told = call_here(["show"], home=home)
    assert f"audit {begun['audit_id'][:8]} was begun on" in told.stdout
    assert shown(home)["summary"]["verdict"] == "held"  # the one that ended still counts
    assert call_here(["verify"], home=home).returncode == 0
    report = home.parent / "report.html"
    assert call_here(["report", "--out", report], home=home).returncode == 0
    assert "it was begun and not ended" in report.read_text()
    again = call_here(["judge", "--no-execute"], home=home)
    assert again.returncode == 0
    assert shown(home)["summary"]["verdict"] == "held"
