"""A run that a worker trains without key and ledger, and what its owner takes from it."""

import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import TINY
from notaries import open_folder, running_notary
from synthetic import synthetic_run

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import (
    BlobError,
    EncodingError,
    ForbiddenError,
    MalformedError,
    UnknownEventError,
)
from ledger.notary.client import NotaryClient
from ledger.notary.messages import AddLine, Done, PutBlob
from ledger.notary.remote import RemoteRecorder
from ledger.notary.remote_blobs import RemoteBlobs
from monitor.config import RunConfig
from proctor.errors import ProctorError
from proctor.home import NOTARY, Home
from proctor.runs.executors import Outcome
from proctor.runs.jobs import Job
from proctor.runs.policies import PolicyChoice
from proctor.runs.remote import Assignment, Message, Station, verify_worker
from proctor.runs.run_settings import read_config
from proctor.runs.training import Told

HASHES = ("commit", "tree", "manifest", "reference_set", "code")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[Home, LedgerApplication, Job]]:
    home = Home(tmp_path / "home")
    config = read_config(None, [*TINY[:-2], "epochs=1", "threads=1"])
    job = Job(home.path, str(uuid4()), config, PolicyChoice("playbook"))
    with home.open_log() as log:
        yield home, log, job


@pytest.fixture
def station(owner: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Station]:
    monkeypatch.setenv(NOTARY, "")  # and back to what it was
    station = Station()
    yield station
    station.close()


def serve(station: Station, assignment: Assignment, message: Message) -> Outcome:
    while True:
        found = assignment.take(message)
        if isinstance(found, Outcome):
            return found
        message = station.answer(found)


def test_worker_trains_what_its_owner_records(
    owner: tuple[Home, LedgerApplication, Job], station: Station
) -> None:
    home, log, job = owner
    verify_worker(station.hello())
    assignment = Assignment(job, home, log)
    assert not home.is_gone(job.run)  # so that no other command closes it as crashed
    assert serve(station, assignment, station.begin(job)) == Outcome(None, None)
    assert assignment.hand_in() is None
    assignment.close()
    assert not home.is_gone(job.run)
    submission = home.submission(job.run)
    (*_, last) = log.events.get(UUID(job.run))
    assert isinstance(last, Run.Ended)
    assert set(last.deliverables) == {path.name for path in submission.iterdir()}
    other = replace(job, config=replace(job.config, seed=7))
    assert "another configuration" in str(Assignment(other, home, log).hand_in())


@pytest.mark.slow  # starts a notary
def test_worker_of_an_owner_with_a_notary_is_bound_by_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = f'[[user]]\nuser = {os.getuid()}\nappend = ["run.*"]\n'
    with open_folder() as folder, running_notary(folder, rules, any_events=False) as notary:
        monkeypatch.setenv(NOTARY, str(notary.socket))
        home = Home(tmp_path / "home")
        config = read_config(None, [*TINY[:-2], "epochs=1", "threads=1"])
        job = Job(home.path, str(uuid4()), config, PolicyChoice("playbook"))
        with home.open_log() as log, closing(Station()) as station:
            assert home.ledger.exists()
            assignment = Assignment(job, home, log)
            found = serve(station, assignment, station.begin(job))
            assert found == Outcome(None, None)
            assert assignment.hand_in() is None
            assignment.close()
            with pytest.raises(ForbiddenError, match=r"may not append 'line\.opened'"):
                log.save(Line.open(root="r", branch="b", **dict.fromkeys(HASHES, "0" * 64)))


def test_attempt_reaches_a_worker_as_it_was_given(
    owner: tuple[Home, LedgerApplication, Job],
) -> None:
    _, _, job = owner
    assert isinstance(job.config, RunConfig)
    told = Told({"attempts": [{"process_score": 0.5}]}, "an advice block")
    spec, campaign = job.config.spec(10), str(uuid4())
    attempt = replace(job, spec=spec, parent=str(uuid4()), campaign=campaign, told=told)
    assert pickle.loads(pickle.dumps(attempt)) == attempt  # as Ray carries it


def test_run_of_a_lost_worker_is_closed_with_what_it_recorded(
    owner: tuple[Home, LedgerApplication, Job], station: Station
) -> None:
    home, log, job = owner
    assignment = Assignment(job, home, log)
    message = station.begin(job)
    while Run.Started not in map(type, log.events.get(UUID(job.run))):
        answer = assignment.take(message)
        assert isinstance(answer, bytes)
        message = station.answer(answer)
    assignment.close("crashed", detail="the worker that trained it was lost")
    run: Run = log.repository.get(UUID(job.run))
    assert run.end_reason == "crashed"
    assert not home.is_gone(job.run)
    again = Assignment(job, home, log)
    assert again.hand_in() == "the worker has not recorded the end of its run"
    again.close("crashed")  # which it is
    Assignment(replace(job, run=str(uuid4())), home, log).close("crashed")  # never begun


@pytest.fixture
def client(owner: tuple[Home, LedgerApplication, Job], station: Station) -> Iterator[NotaryClient]:
    """A client of the worker's socket, served by a thread as the owner would."""
    home, log, job = owner
    assignment = Assignment(job, home, log)

    def run() -> None:
        serve(station, assignment, station.answer(b""))

    thread = threading.Thread(target=run)
    thread.start()
    client = NotaryClient(Path(os.environ[NOTARY]))
    yield client
    client.close()
    station._out.put(Outcome(None, None))
    thread.join()


def test_owner_takes_from_a_worker_its_own_run_only(
    owner: tuple[Home, LedgerApplication, Job], client: NotaryClient
) -> None:
    _, log, job = owner
    memory = LedgerApplication.in_memory(REGISTRY)
    (begun, *_) = memory.recorder.select_events(synthetic_run(memory).id)
    own = replace(begun, originator_id=UUID(job.run))
    recorder, key = RemoteRecorder(client), AuthorKey("judge", Ed25519PrivateKey.generate())
    for events, options, error, said in (
        ([begun], {}, ForbiddenError, "is none of this worker's run"),
        ([own, begun], {}, ForbiddenError, "is none of this worker's run"),
        ([replace(own, topic="audit.started")], {}, ForbiddenError, "may not append 'audit.star"),
        ([own], {"author": key}, ForbiddenError, "signs no events"),
        ([replace(own, state=b"odd")], {}, MalformedError, "^"),
        ([replace(own, topic="run.odd")], {}, UnknownEventError, "^"),
    ):
        with pytest.raises(error, match=said):
            recorder.insert_events(events, **options)
    with pytest.raises(ForbiddenError, match="may not ask for that"):
        client.ask(AddLine(size=1, line="line"), Done)
    before = log.recorder.max_notification_id() or 0
    assert recorder.insert_events([own]) == [before + 1]  # the control
    assert recorder.select_events(UUID(job.run)) == [own]
    assert recorder.max_notification_id() == before + 1


def test_blobs_of_a_worker_arrive_whole_or_not_at_all(
    owner: tuple[Home, LedgerApplication, Job], client: NotaryClient
) -> None:
    home, _, _ = owner
    blobs, content = RemoteBlobs(client), bytes(range(256)) * 10_000  # three pieces
    assert home.blobs.get(blobs.put(content)) == blobs.get(blobs.put(content)) == content
    assert blobs.get(blobs.put(b"")) == b""
    wrong = "0" * 64
    for request, payload, error, said in (
        (PutBlob(sha256=wrong, size=3, offset=0), b"abc", BlobError, ", not 0000"),
        (PutBlob(sha256=wrong, size=3, offset=2), b"c", MalformedError, "in order"),
        (PutBlob(sha256=wrong, size=1, offset=0), b"abc", MalformedError, "larger than announced"),
        (PutBlob(sha256=wrong, size=2**50, offset=0), b"a", EncodingError, "the limit is"),
    ):
        with pytest.raises(error, match=said):
            client.ask(request, Done, payload)
    with pytest.raises(BlobError, match="missing"):
        blobs.get(wrong)


def test_worker_with_other_code_or_other_variables_is_refused(station: Station) -> None:
    told = station.hello()
    for changed, said in (
        ({"code": "0" * 64}, f"the worker on {told['where']} has other code"),
        ({"variables": {"MKL_CBWR": "AVX2"}}, "computes with {'MKL_CBWR': 'AVX2'}, not with"),
    ):
        with pytest.raises(ProctorError, match=said):
            verify_worker({**told, **changed})
