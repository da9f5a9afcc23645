"""Domain events to stored events and back, by a closed registry of event names.

Stored bytes name an event ("run.started"), never a Python path: what gets
imported is decided by the program that builds the registry.

Source: docs/reference/ledger-format.md, "Body".
Trust: bodies are hostile until decode_body() returns; unknown names and versions are refused.
I/O: none.  Units: "at" in nanoseconds since the POSIX epoch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, get_type_hints
from uuid import UUID

from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent
from eventsourcing.utils import get_topic
from msgspec import ValidationError, convert

from ledger.bodies import decode_body, encode_body
from ledger.errors import EncodingError, LedgerError, MalformedError, UnknownEventError

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Pure: a body of version n (without its "v") in, one of version n + 1 out."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LIBRARY_FIELDS = frozenset({"originator_id", "originator_version", "originator_topic", "timestamp"})


@dataclass(frozen=True, kw_only=True)
class EventType:
    """What the registry knows of one event name."""

    name: str
    event_class: type
    upcasters: tuple[Upcaster, ...]
    aggregate: type | None  # set for the events that create an aggregate

    @cached_property
    def version(self) -> int:
        """The newest schema version: one more than there are upcasters."""
        return len(self.upcasters) + 1

    @cached_property
    def fields(self) -> Mapping[str, Any] | None:
        """Types of what a body states besides "v" and "at", by name; None if none are declared."""
        if self.names is None:
            return None
        hints = get_type_hints(self.event_class)
        return {name: hints[name] for name in sorted(self.names)}

    @cached_property
    def names(self) -> frozenset[str] | None:
        """Names of these, without the time that it takes to find out their types."""
        declared = _declared(self.event_class)
        return None if declared is None else declared - {"at"}


class EventRegistry:
    """The event names that a program knows; built once, at the start."""

    def __init__(self) -> None:
        self._by_name: dict[str, EventType] = {}
        self._by_class: dict[type, EventType] = {}

    def register(
        self,
        name: str,
        event_class: type,
        *,
        upcasters: Sequence[Upcaster] = (),
        aggregate: type | None = None,
    ) -> None:
        """Give a class its stored name.

        upcasters[0] lifts version 1 to 2 and so on, so their number says which
        version is the newest. An event that creates an aggregate names its class.
        """
        if name in self._by_name or event_class in self._by_class:
            raise ValueError(f"{name!r} or {event_class.__name__} is registered already")
        event_type = EventType(
            name=name, event_class=event_class, upcasters=tuple(upcasters), aggregate=aggregate
        )
        self._by_name[name] = self._by_class[event_class] = event_type

    def verify(self, name: str, data: bytes) -> dict[str, Any]:
        """Return the body of an event at its newest version, if readers can read it.

        Raises UnknownEventError for a name or version that is not registered, MalformedError for
        bytes that are no body, and for fields that are not those of the event's class, or of
        other types.
        """
        event_type = self.for_name(name)
        body = self.upcast(name, decode_body(data))
        wanted = event_type.fields
        if wanted is None:
            return body
        _check_fields(event_type, body.keys() - {"v"})
        if "at" in body and type(body["at"]) is not int:
            raise MalformedError(f"{name}: 'at' is not an integer")
        for field, kind in wanted.items():
            try:
                convert(body[field], kind)
            except ValidationError as e:
                raise MalformedError(f"{name}: {field}: {e}") from e
        return body

    def verify_new(self, name: str, data: bytes, *, stream_version: int) -> None:
        """Raise as verify() does for an event that is to be appended, or if it is out of place.

        The first event of a stream is one that creates an aggregate, and no later one is.
        """
        if (self.for_name(name).aggregate is not None) != (stream_version == 1):
            word = "cannot" if stream_version == 1 else "can only"
            raise MalformedError(f"{name} {word} be the first event of a stream")
        self.verify(name, data)

    def readable(self, name: str, data: bytes) -> dict[str, Any] | None:
        """Return the body as verify() does, or None where that raises.

        For readers that look through all entries: one that cannot be read stops none of them.
        """
        try:
            return self.verify(name, data)
        except LedgerError:
            return None

    def __iter__(self) -> Iterator[EventType]:
        return iter(self._by_name.values())

    def for_name(self, name: str) -> EventType:
        """Return what is known of a stored name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownEventError(
                f"unknown event name {name!r}; was the ledger written by a newer program?"
            ) from None

    def for_class(self, event_class: type) -> EventType:
        """Return what is known of an event class."""
        try:
            return self._by_class[event_class]
        except KeyError:
            raise UnknownEventError(
                f"{event_class.__qualname__} has no event name; register it before saving"
            ) from None

    def upcast(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body at the newest version of its event, "v" included."""
        event_type = self.for_name(name)
        state = dict(body)
        version = state.pop("v", None)
        if type(version) is not int or version < 1:
            raise MalformedError(f"{name} has no schema version under 'v'")
        if version > event_type.version:
            raise UnknownEventError(
                f"{name} has schema version {version}, but this program supports up to "
                f"{event_type.version}; use the program that wrote it, or a newer one"
            )
        for upcaster in event_type.upcasters[version - 1 :]:
            try:
                state = upcaster(state)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
                raise MalformedError(
                    f"{name} of version {version} cannot be read: {type(e).__name__}: {e}"
                ) from e
        return {"v": event_type.version, **state}


class LedgerMapper(Mapper[UUID]):
    """The library's mapper, with names from a registry and strict bodies."""

    def __init__(self, registry: EventRegistry) -> None:
        super().__init__(transcoder=JSONTranscoder())  # never asked: both methods are ours
        self.registry = registry

    def to_stored_event(self, domain_event: DomainEventProtocol[UUID]) -> StoredEvent:
        """Encode an event; raise EncodingError or UnknownEventError."""
        event_type = self.registry.for_class(type(domain_event))
        state = dict(vars(domain_event))
        originator_id = state.pop("originator_id")
        originator_version = state.pop("originator_version")
        topic = state.pop("originator_topic", None)
        if topic != _topic(event_type):
            raise EncodingError(
                f"{event_type.name} creates {topic!r}, but is registered for {_topic(event_type)!r}"
            )
        body: dict[str, Any] = {"v": event_type.version}
        if "timestamp" in state:
            body["at"] = datetime_to_ns(state.pop("timestamp"))
        if not body.keys().isdisjoint(state):
            raise EncodingError(f"{event_type.name} has a field named 'v' or 'at'; rename it")
        return StoredEvent(
            originator_id=originator_id,
            originator_version=originator_version,
            topic=event_type.name,
            state=encode_body(body | state),
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[UUID]:
        """Decode an event; raise MalformedError or UnknownEventError."""
        return self.event_of(
            stored_event.topic,
            stored_event.state,
            originator_id=stored_event.originator_id,
            originator_version=stored_event.originator_version,
        )

    def event_of(
        self, name: str, body: bytes, *, originator_id: UUID | str, originator_version: int
    ) -> DomainEventProtocol[UUID]:
        """Decode an event from its parts; raise MalformedError or UnknownEventError."""
        event_type = self.registry.for_name(name)
        state = self.registry.upcast(event_type.name, decode_body(body))
        del state["v"]
        _check_fields(event_type, state.keys())
        if "at" in state:
            state["timestamp"] = ns_to_datetime(state.pop("at"))
        if event_type.aggregate is not None:
            state["originator_topic"] = _topic(event_type)
        state["originator_id"] = originator_id
        state["originator_version"] = originator_version
        event: DomainEventProtocol[UUID] = object.__new__(event_type.event_class)
        vars(event).update(state)  # as the library does: stored events skip __init__
        return event


def readable_body(data: bytes) -> dict[str, Any] | None:
    """Return the map that a body holds, as it was recorded, or None if it holds none."""
    try:
        return decode_body(data)
    except MalformedError:
        return None


def datetime_to_ns(moment: datetime) -> int:
    """Return an aware datetime as ns; exact, since datetimes count microseconds."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000


def ns_to_datetime(ns: object) -> datetime:
    """Return ns as an aware datetime in UTC, cut to whole microseconds."""
    if not isinstance(ns, int):
        raise MalformedError(f"'at' is of type {type(ns).__name__}, not an integer")
    return _EPOCH + timedelta(microseconds=ns // 1_000)  # 64 bits of ns end in the year 2554


def _topic(event_type: EventType) -> str | None:
    return None if event_type.aggregate is None else get_topic(event_type.aggregate)


def _check_fields(event_type: EventType, names: AbstractSet[str]) -> None:
    """Raise MalformedError where a body, without "v", has other fields than its class declares."""
    declared = _declared(event_type.event_class)
    if declared is not None and declared != names:
        differing = ", ".join(sorted(declared ^ names))
        raise MalformedError(f"{event_type.name}: missing or unknown fields: {differing}")


@cache
def _declared(event_class: type) -> frozenset[str] | None:
    """Return the fields of a body by its event's class, "at" included; None if it declares none."""
    if not is_dataclass(event_class):
        return None
    names = frozenset(f.name for f in fields(event_class))
    return names - LIBRARY_FIELDS | ({"at"} if "timestamp" in names else set())


def recorded_fields(event: object) -> dict[str, Any]:
    """Return what an event states, without the fields that the library adds."""
    return {key: value for key, value in vars(event).items() if key not in LIBRARY_FIELDS}
