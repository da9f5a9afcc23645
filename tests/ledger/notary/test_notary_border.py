"""A notary as it is started by default takes in what every reader can read, and nothing else."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from notaries import RunningNotary, open_folder, running_notary
from synthetic import synthetic_audit, synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.bodies import decode_body, encode_body
from ledger.errors import MalformedError, UnknownEventError
from ledger.notary.client import NotaryClient
from ledger.notary.remote import RemoteRecorder
from ledger.verification.reader import check_ledger, open_verified

RULES = f"""\
[[user]]
user = {os.geteuid()}
append = ["run.*", "audit.*", "campaign.*"]
"""


@pytest.fixture(scope="module")
def notary() -> Iterator[RunningNotary]:
    with open_folder() as folder, running_notary(folder, RULES, any_events=False) as notary:
        yield notary


@pytest.fixture
def recorder(notary: RunningNotary) -> Iterator[RemoteRecorder]:
    client = NotaryClient(notary.socket)
    yield RemoteRecorder(client)
    client.close()


@pytest.fixture(scope="module")
def started(notary: RunningNotary) -> dict[str, Any]:
    """The body of an honest run's first event, which the notary took in."""
    with LedgerApplication.connect(notary.socket, REGISTRY) as log:
        run = synthetic_run(log, epochs=2)
        synthetic_audit(log, run)
    with open_verified(notary.ledger, vkey=notary.vkey) as ledger:
        names = [entry.name for entry in ledger.entries()]
        body = next(decode_body(e.body) for e in ledger.entries() if e.name == "run.started")
    assert {"run.started", "run.ended", "audit.scored"} <= set(names)
    return body


def size(notary: RunningNotary) -> int:
    report = check_ledger(notary.ledger, vkey=notary.vkey)
    assert report.ok
    return report.size


@pytest.mark.parametrize(
    "name",
    [
        "run.bogus",
        "run.",
        "run.../../x",
        "run.started\x00",
        "run.\x1b[2J\n",
        "run.Started",
        "run.\u202estarted",
        "run." + "x" * 190,
        "audit.aggregates.run:Run.Started",
    ],
)
def test_name_that_no_reader_knows_is_rejected(
    notary: RunningNotary, recorder: RemoteRecorder, started: dict[str, Any], name: str
) -> None:
    before = size(notary)
    with pytest.raises(UnknownEventError, match="unknown event name"):
        recorder.insert_events([StoredEvent(uuid4(), 1, name, encode_body(started))])
    assert size(notary) == before


BODIES: dict[str, Any] = {
    "no msgpack": b"x",
    "empty": b"",
    "cut": b"\xde",
    "a list": b"\x90",
    "a number": b"\x01",
    "two maps": b"\x80\x80",
    "a timestamp extension": b"\x81\xa1v\xd6\xff\x00\x00\x00\x00",
    "deep": b"\x81\xa1v" + b"\x91" * 500 + b"\x90",
    "no version": {"v": None},
    "version 0": {"v": 0},
    "version as a text": {"v": "1"},
    "version as a bool": {"v": True},
    "time as a text": {"at": "now"},
    "time as a float": {"at": 1.5},
    "a list for a map": {"config": []},
    "a number for a text": {"config_hash": 7},
    "null for a map": {"data": None},
    "a field more": {"more": 1},
}


@pytest.mark.parametrize("what", BODIES)
def test_body_that_no_reader_can_read_is_rejected(
    notary: RunningNotary, recorder: RemoteRecorder, started: dict[str, Any], what: str
) -> None:
    body = BODIES[what]
    data = body if isinstance(body, bytes) else encode_body({**started, **body})
    before = size(notary)
    with pytest.raises((MalformedError, UnknownEventError)):
        recorder.insert_events([StoredEvent(uuid4(), 1, "run.started", data)])
    assert size(notary) == before


def test_newer_version_and_missing_field_are_rejected(
    notary: RunningNotary, recorder: RemoteRecorder, started: dict[str, Any]
) -> None:
    before = size(notary)
    with pytest.raises(UnknownEventError, match="schema version 99"):
        recorder.insert_events(
            [StoredEvent(uuid4(), 1, "run.started", encode_body({**started, "v": 99}))]
        )
    lacking = {key: value for key, value in started.items() if key != "rules"}
    with pytest.raises(MalformedError, match="missing or unknown fields: rules"):
        recorder.insert_events([StoredEvent(uuid4(), 1, "run.started", encode_body(lacking))])
    assert size(notary) == before


def test_batch_with_one_odd_event_is_rejected_as_a_whole_and_the_honest_part_is_taken(
    notary: RunningNotary, recorder: RemoteRecorder, started: dict[str, Any]
) -> None:
    stream: UUID = uuid4()
    honest = StoredEvent(stream, 1, "run.started", encode_body(started))
    odd = StoredEvent(stream, 2, "run.ended", encode_body({"v": 1, "reason": 7}))
    before = size(notary)
    with pytest.raises(MalformedError):
        recorder.insert_events([honest, odd])
    assert size(notary) == before
    recorder.insert_events([honest])
    assert size(notary) == before + 1


def test_event_out_of_place_is_rejected(
    notary: RunningNotary, recorder: RemoteRecorder, started: dict[str, Any]
) -> None:
    ended = encode_body({"v": 1, "at": 0, "reason": "completed", "detail": "", "deliverables": {}})
    before = size(notary)
    with pytest.raises(MalformedError, match="cannot be the first event"):
        recorder.insert_events([StoredEvent(uuid4(), 1, "run.ended", ended)])
    with pytest.raises(MalformedError, match="can only be the first event"):
        recorder.insert_events([StoredEvent(uuid4(), 2, "run.started", encode_body(started))])
    assert size(notary) == before
