"""An event, declared once: what it says, what has to hold before it, and what follows from it.

A nested class of an aggregate is the declaration: fields with their bounds, the invariants in
`check()`, the effect in `apply()`. From it follow the stored event with its name and version
(register()), the command that records it (records(), begins()), the attributes that keep what it
says (Kept), and the upcasters from earlier versions (Since).

    class Campaign(Aggregate):
        class Ended(Event):
            reason: Annotated[str, Cut(100)]
            ranking: Kept[Sequence[str]]

        ranking: Sequence[str] | None = None
        end = records(Ended)  # campaign.end("all attempts are used", ranking=["a", "b"])

Fields are stored in the order of their declaration. Sequences and mappings are stored as lists and
dicts.

I/O: none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache, partial
from inspect import Parameter, Signature, signature
from itertools import chain
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    TypeVar,
    dataclass_transform,
    overload,
)
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate, MetaDomainEvent
from msgspec import Meta

from aggregates.declared import plain
from aggregates.errors import InvariantError
from ledger.mapper import LIBRARY_FIELDS, EventRegistry, Upcaster

if TYPE_CHECKING:
    from datetime import datetime

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound="Event")
F = TypeVar("F", bound="First")
A = TypeVar("A", bound=Aggregate)


@dataclass(frozen=True)
class Cut:
    """A text is stored up to so many characters, and half of a surrogate pair in it as `?`."""

    characters: int


@dataclass(frozen=True)
class KeptAs:
    """The aggregate keeps the latest value in this attribute; by default in one of that name.

    `by`: the attribute is a dict, with a value for each value of that other field.
    """

    attribute: str = ""
    by: str = ""


Kept = Annotated[T, KeptAs()]
Long = Annotated[int, Meta(le=(1 << 63) - 1)]
"""A number that 31 bits may not hold."""


@dataclass(frozen=True)
class OneOf:
    """A text is one of some choices; the error says what it is that has to be one."""

    what: str
    choices: Sequence[str]


@dataclass(frozen=True)
class Since:
    """The field came with this version of the event; those of earlier versions get a value."""

    version: int
    earlier: Any


def counted(
    attribute: str = "",
    *,
    after: str = "",
    default: Any = MISSING,
    init: Literal[False] = False,  # noqa: ARG001 - for type checkers
) -> Any:
    """Declare a field that the aggregate fills, not the caller.

    Its value is that of an attribute of the aggregate; or the number `after` the one that an
    attribute has, or after its items; or check() returns it. The default is for events that are
    made without a command.
    """
    count = partial(_next, after) if after else attrgetter(attribute) if attribute else None
    return field(default=default, metadata={"counted": count})


def _next(attribute: str, aggregate: Aggregate) -> int:
    found: int | Sequence[Any] = getattr(aggregate, attribute)
    return 1 + (found if isinstance(found, int) else len(found))


@dataclass_transform(frozen_default=True, field_specifiers=(field, counted))
class _Declared:
    """What is common to all events."""

    NAME: ClassVar[str] = ""
    """The stored name, if it is not that of the aggregate and of the class."""

    ENDS: ClassVar[str] = ""
    """What is said of the stream once this event has ended it: nothing can be recorded any more.

    The aggregate keeps it in its attribute `ended`. It may name `aggregate` and `event`.
    """

    @classmethod
    def event_name(cls) -> str:
        """Return the stored name: `campaign.attempt_started` of Campaign.AttemptStarted."""
        aggregate, own = cls.__qualname__.split(".")[-2:]
        return cls.NAME or f"{aggregate.lower()}.{re.sub('(?<!^)(?=[A-Z])', '_', own).lower()}"

    @classmethod
    def upcasters(cls) -> list[Upcaster]:
        """Return what lifts version 1 to 2 and so on; see Since."""
        since = list(_marks(cls, Since))
        return [
            partial(_lift, {name: each.earlier for name, each in since if each.version == version})
            for version in range(2, 1 + max((each.version for _, each in since), default=1))
        ]

    def apply(self, aggregate: Any) -> None:
        """Change the aggregate: kept values go into its attributes."""
        kept = _declaration(type(self)).kept  # type: ignore[arg-type]  # a type is hashable
        for name, mark in kept.items():
            if mark.by:
                getattr(aggregate, mark.attribute)[getattr(self, mark.by)] = getattr(self, name)
            else:
                setattr(aggregate, mark.attribute or name, getattr(self, name))
        if self.ENDS:
            aggregate.ended = self.ENDS.format(aggregate=aggregate, event=self)


class _OnceMade(MetaDomainEvent):
    """Makes no dataclass again of the subclass that the library derives for each aggregate.

    It declares nothing and is as its first base is; making it one takes as long as for the first.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        stated = [getattr(base, "__dataclass_fields__", {}) for base in bases]
        declares = names.get("__annotations__") or "__post_init__" in names
        if not declares and stated[0].keys() >= {*chain(*stated)}:
            names = {
                **names,
                "__dataclass_fields__": stated[0],  # for the library: a dataclass already
                "__setattr__": _refuse,
                "__delattr__": _refuse,
            }
        return super().__new__(cls, name, bases, names)


def _refuse(_: object, name: str, *__: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


class Event(_Declared, Aggregate.Event, metaclass=_OnceMade):
    """An event of a stream that has begun."""

    if TYPE_CHECKING:  # the library fills these
        originator_id: UUID = field(init=False)
        originator_version: int = field(init=False)
        timestamp: datetime = field(init=False)

    def check(self, aggregate: Any) -> Mapping[str, Any] | None:
        """Raise InvariantError if the event cannot follow; return what the aggregate says of it.

        Fields for which it has to return a value have none yet. It may replace a caller's value.
        """


class First(_Declared, Aggregate.Created, metaclass=_OnceMade):
    """The event that begins a stream. Its fields fill the attributes of the same name.

    An InitVar is said by the caller and not stored; stream() gets it.
    """

    if TYPE_CHECKING:
        originator_id: UUID = field(init=False)
        originator_version: int = field(init=False)
        originator_topic: str = field(init=False)
        timestamp: datetime = field(init=False)

    def __post_init__(self, *_: object) -> None:
        super().__post_init__()

    def check(self) -> Mapping[str, Any] | None:
        """Raise InvariantError if no stream begins so; return what is not the caller's to say."""

    def stream(self, *given: Any, **_: Any) -> UUID:
        """Return the stream's id: the one that is given, or a new one."""
        return next((each for each in given if each is not None), None) or uuid4()


def verify_open(aggregate: Aggregate) -> None:
    """Raise InvariantError if the stream has ended; record() asks before every event."""
    if ended := getattr(aggregate, "ended", None):
        raise InvariantError(ended)


def record(aggregate: Aggregate, kind: Callable[P, E], /, *args: P.args, **kwargs: P.kwargs) -> E:
    """Record an event; raise InvariantError if it cannot be said, or cannot follow."""
    # The library gives an aggregate subclasses of the nested classes.
    event_class = getattr(type(aggregate), kind.__name__)
    said, _ = _said(event_class, args, kwargs)
    verify_open(aggregate)
    for name, count in _declaration(event_class).counted.items():
        said[name] = plain(count(aggregate))
    found = _unfinished(event_class, said).check(aggregate)
    aggregate.trigger_event(event_class, **{**said, **plain(found or {})})
    return aggregate.pending_events[-1]  # type: ignore[return-value]


def again(aggregate: Aggregate, event: "Event") -> None:
    """Record again what an event tells, but for what the aggregate fills; raises as record()."""
    kind: Any = type(event)
    record(aggregate, kind, **{name: getattr(event, name) for name in _declaration(kind).said})


class Command(Generic[P, T]):
    """A method of an aggregate that records an event, with the event's fields as parameters."""

    def __init__(self, kind: Callable[P, E], answer: Callable[[E], T]) -> None:
        self._kind = kind
        self._answer: Callable[[Any], T] = answer

    def __get__(self, aggregate: Aggregate, owner: type[Aggregate]) -> Callable[P, T]:
        """Return the method of one aggregate."""

        def command(*args: P.args, **kwargs: P.kwargs) -> T:
            return self._answer(record(aggregate, self._kind, *args, **kwargs))

        return command


@overload
def records(kind: Callable[P, E]) -> Command[P, None]: ...
@overload
def records(kind: Callable[P, E], answer: Callable[[E], T]) -> Command[P, T]: ...
def records(kind: Callable[P, E], answer: Callable[[E], Any] = lambda _: None) -> Command[P, Any]:
    """Return the command that records an event, and returns an answer that is in it."""
    return Command(kind, answer)


class Beginning(Generic[P]):
    """A method of a class of aggregates that begins one."""

    def __init__(self, kind: Callable[P, First]) -> None:
        self._kind = kind

    def __get__(self, aggregate: A | None, owner: type[A]) -> Callable[P, A]:
        """Return the method of one class."""

        def begin(*args: P.args, **kwargs: P.kwargs) -> A:
            event_class = getattr(owner, self._kind.__name__)
            said, given = _said(event_class, args, kwargs)
            first = _unfinished(event_class, said)
            said |= plain(first.check() or {})
            stream = _unfinished(event_class, said).stream(*given)
            return owner._create(event_class, id=stream, **said)

        return begin


def begins(kind: Callable[P, F]) -> Beginning[P]:
    """Return the class method that begins an aggregate with an event."""
    return Beginning(kind)


def register(registry: EventRegistry, *aggregates: type[Aggregate]) -> None:
    """Give a registry all events that some aggregates declare."""
    for aggregate in aggregates:
        for each in vars(aggregate).values():
            if isinstance(each, type) and issubclass(each, _Declared):
                first = aggregate if issubclass(each, First) else None
                registry.register(
                    each.event_name(), each, upcasters=each.upcasters(), aggregate=first
                )


@dataclass(frozen=True, kw_only=True)
class _Declaration:
    parameters: Signature  # of the command
    said: tuple[str, ...]  # parameters that are stored
    given: tuple[str, ...]  # and those that are not
    counted: Mapping[str, Callable[[Aggregate], Any]]
    bounds: Sequence[tuple[str, Cut | OneOf]]
    kept: Mapping[str, KeptAs]


@cache
def _declaration(event_class: Any) -> _Declaration:
    own = {each.name: each for each in fields(event_class) if each.name not in LIBRARY_FIELDS}
    parameters = [
        _with_default(each, own.get(each.name))
        for each in list(signature(event_class.__init__).parameters.values())[1:]  # not self
        if each.name not in LIBRARY_FIELDS
        and not (each.name in own and "counted" in own[each.name].metadata)
    ]
    return _Declaration(
        parameters=Signature(parameters),
        said=tuple(each.name for each in parameters if each.name in own),
        given=tuple(each.name for each in parameters if each.name not in own),
        counted={name: found for name in own if (found := own[name].metadata.get("counted"))},
        bounds=[*_marks(event_class, OneOf), *_marks(event_class, Cut)],
        kept=dict(_marks(event_class, KeptAs)),
    )


def _with_default(parameter: Parameter, declared: Field[Any] | None) -> Parameter:
    """Return a parameter with what its field's factory makes as its default."""
    if declared is None or declared.default_factory is MISSING:
        return parameter
    return parameter.replace(default=declared.default_factory())


def _marks(event_class: type, kind: type[T]) -> Iterator[tuple[str, T]]:
    """Yield what the fields of an event are marked with, in the order of their declaration."""
    for each in reversed(event_class.__mro__):
        for name, hint in vars(each).get("__annotations__", {}).items():
            for mark in getattr(hint, "__metadata__", ()):
                if isinstance(mark, kind):
                    yield name, mark


def _said(
    event_class: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Return the values to store, within their bounds, and those that are only given."""
    declared = _declaration(event_class)
    bound = declared.parameters.bind(*args, **kwargs)
    bound.apply_defaults()
    given = [bound.arguments.pop(name) for name in declared.given]
    said = plain(bound.arguments)
    for name, bounds in declared.bounds:
        if name in said:
            said[name] = _bounded(said[name], bounds)
    return said, given


def _bounded(value: str | None, bounds: Cut | OneOf) -> str | None:
    match bounds:
        case Cut(characters) if value is not None:
            return cut(value, characters)
        case OneOf(what, choices) if value not in choices:
            many = len(choices) > 2
            allowed = f"one of {', '.join(choices)}" if many else " or ".join(choices)
            raise InvariantError(f"{what} must be {allowed}, not {value!r:.80}")
    return value


def cut(text: str, characters: int) -> str:
    """Return at most so many characters, all of which UTF-8 can hold."""
    return text[:characters].encode("utf-8", "replace").decode("utf-8")


def _unfinished(event_class: type[T], said: Mapping[str, Any]) -> T:
    event = object.__new__(event_class)
    vars(event).update(said)
    return event


def _lift(added: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    return {**body, **plain(added)}
