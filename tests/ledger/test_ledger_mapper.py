"""Domain events to bodies and back, by names and never by import paths."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.bodies import decode_body, encode_body
from ledger.errors import ConflictError, EncodingError, MalformedError, UnknownEventError
from ledger.mapper import (
    EventRegistry,
    LedgerMapper,
    datetime_to_ns,
    ns_to_datetime,
)


class Counter(Aggregate):
    class Begun(Aggregate.Created):
        label: str

    class Counted(Aggregate.Event):
        step: float
        tags: list[str]

    @event(Begun)
    def __init__(self, label: str) -> None:
        self.label = label
        self.total = 0.0
        self.tags: list[str] = []

    @event(Counted)
    def count(self, step: float, tags: list[str]) -> None:
        self.total += step
        self.tags = tags


class Unregistered(Aggregate):
    pass


def rename_text(body: dict[str, Any]) -> dict[str, Any]:
    return {("label" if key == "text" else key): value for key, value in body.items()}


def registry() -> EventRegistry:
    events = EventRegistry()
    events.register("counter.begun", Counter.Begun, aggregate=Counter, upcasters=[rename_text])
    events.register("counter.counted", Counter.Counted)
    return events


def stored(name: str, body: dict[str, Any], *, version: int = 1) -> StoredEvent:
    return StoredEvent(uuid4(), version, name, encode_body(body))


@pytest.mark.parametrize("signed", [True, False])
def test_aggregate_comes_back_as_it_was_saved(tmp_path: Path, signed: bool) -> None:
    events = registry()
    app = (
        LedgerApplication.open(tmp_path, events) if signed else LedgerApplication.in_memory(events)
    )
    with app:
        counter = Counter("x")
        counter.count(0.5, ["a", "b"])
        counter.count(float("inf"), [])
        app.save(counter)
        copy: Counter = app.repository.get(counter.id)
        assert (copy.label, copy.total, copy.tags) == ("x", float("inf"), [])
        assert (copy.version, copy.created_on) == (3, counter.created_on)
        assert [n.id for n in app.recorder.select_notifications(None, 10)] == [1, 2, 3]


def test_signed_and_unsigned_applications_store_the_same_bodies(tmp_path: Path) -> None:
    bodies = []
    counter = Counter("x")
    pending = list(counter.pending_events)
    for app in (
        LedgerApplication.open(tmp_path, registry()),
        LedgerApplication.in_memory(registry()),
    ):
        with app:
            app.save(*pending)
            bodies.append([n.state for n in app.recorder.select_notifications(None, 10)])
    assert bodies[0] == bodies[1]
    body = decode_body(bodies[0][0])
    assert list(body) == ["v", "at", "label"]
    assert body == {"v": 2, "at": datetime_to_ns(counter.created_on), "label": "x"}


def test_conflict_of_two_writers_is_rejected_and_can_be_retried(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, registry()) as app:
        counter = Counter("x")
        app.save(counter)
        one: Counter = app.repository.get(counter.id)
        other: Counter = app.repository.get(counter.id)
        one.count(1.0, [])
        app.save(one)
        other.count(2.0, [])
        with pytest.raises(ConflictError, match="is at version 2, so 2 cannot follow"):
            app.save(other)
        again: Counter = app.repository.get(counter.id)
        again.count(2.0, [])
        app.save(again)
        last: Counter = app.repository.get(counter.id)
        assert last.total == 3.0


def test_topic_of_an_aggregate_is_neither_stored_nor_believed() -> None:
    mapper = LedgerMapper(registry())
    data = mapper.to_stored_event(Counter("x").pending_events[0])
    assert b"Counter" not in data.state
    assert b"test_ledger_mapper" not in data.state
    assert data.topic == "counter.begun"
    body = {"v": 2, "at": 0, "label": "x"}
    back = mapper.to_domain_event(stored("counter.begun", body))
    assert vars(back)["originator_topic"].endswith(":Counter")
    with pytest.raises(MalformedError, match="unknown fields: originator_topic"):
        mapper.to_domain_event(stored("counter.begun", body | {"originator_topic": "os:system"}))


def test_events_stay_frozen_when_read_back() -> None:
    back = LedgerMapper(registry()).to_domain_event(
        stored("counter.counted", {"v": 1, "at": 0, "step": 1.0, "tags": []})
    )
    with pytest.raises((FrozenInstanceError, AttributeError)):
        back.step = 2.0  # type: ignore[attr-defined]


def test_old_version_is_brought_forward() -> None:
    events = registry()
    old = {"v": 1, "at": 5_000, "text": "x"}
    assert events.upcast("counter.begun", old) == {"v": 2, "at": 5_000, "label": "x"}
    assert old == {"v": 1, "at": 5_000, "text": "x"}
    back = LedgerMapper(events).to_domain_event(stored("counter.begun", old))
    assert vars(back)["label"] == "x"


@pytest.mark.parametrize(
    ("name", "body", "error", "message"),
    [
        ("os:system", {"v": 1}, UnknownEventError, "unknown event name 'os:system'"),
        (
            "counter.begun",
            {"v": 3},
            UnknownEventError,
            "schema version 3, but this program supports up",
        ),
        ("counter.begun", {"v": 0}, MalformedError, "no schema version"),
        ("counter.begun", {"v": True}, MalformedError, "no schema version"),
        ("counter.begun", {}, MalformedError, "no schema version"),
        ("counter.begun", {"v": 2, "label": "x"}, MalformedError, "unknown fields: at"),
        ("counter.begun", {"v": 2, "at": 0}, MalformedError, "unknown fields: label"),
        ("counter.begun", {"v": 2, "at": 0.5, "label": ""}, MalformedError, "'at' is of type"),
        ("counter.begun", {"v": 2, "at": 2**63, "label": ""}, MalformedError, None),
    ],
)
def test_stored_event_out_of_the_registry_is_rejected(
    name: str, body: dict[str, Any], error: type[Exception], message: str | None
) -> None:
    mapper = LedgerMapper(registry())
    mapper.to_domain_event(stored("counter.begun", {"v": 2, "at": 0, "label": "x"}))
    if message is None:
        assert vars(mapper.to_domain_event(stored(name, body)))["timestamp"].year == 2262
        return
    with pytest.raises(error, match=message):
        mapper.to_domain_event(stored(name, body))
    with pytest.raises(error):
        mapper.registry.verify(name, encode_body(body))


def test_event_that_the_registry_cannot_store_is_refused() -> None:
    mapper = LedgerMapper(registry())
    with pytest.raises(UnknownEventError, match=r"Unregistered\.Created has no event name"):
        mapper.to_stored_event(Unregistered().pending_events[0])
    counter = Counter("x")
    counter.count(1.0, {"x"})  # type: ignore[arg-type]
    with pytest.raises(EncodingError, match=r"body\.tags is of type set"):
        mapper.to_stored_event(counter.pending_events[1])
    wrong = EventRegistry()
    wrong.register("counter.begun", Counter.Begun, aggregate=Unregistered)
    with pytest.raises(EncodingError, match="but is registered for"):
        LedgerMapper(wrong).to_stored_event(counter.pending_events[0])


def test_name_or_class_registered_twice_is_refused() -> None:
    events = registry()
    with pytest.raises(ValueError, match="registered already"):
        events.register("counter.begun", Unregistered.Created)
    with pytest.raises(ValueError, match="registered already"):
        events.register("counter.other", Counter.Begun)
    assert [event_type.name for event_type in events] == ["counter.begun", "counter.counted"]


def test_times_are_exact_to_the_microsecond() -> None:
    for moment in (
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2261, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ):
        assert ns_to_datetime(datetime_to_ns(moment)) == moment
