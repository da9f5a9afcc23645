"""An event is declared once: its command, stored form, name, versions and effect follow from it."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, FrozenInstanceError, InitVar, field
from types import MappingProxyType
from typing import Annotated, Any
from uuid import UUID

import pytest
from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import (
    Cut,
    Event,
    First,
    Kept,
    KeptAs,
    OneOf,
    Since,
    begins,
    counted,
    record,
    records,
    register,
)
from ledger.bodies import decode_body
from ledger.mapper import EventRegistry, LedgerMapper


class Ship(Aggregate):
    """What is declared of a ship."""

    class Built(First):
        """A ship with a name, from a yard."""

        _: KW_ONLY
        letters: int = counted()
        name: str
        decks: int = 1
        yard: InitVar[str] = "home"

        def check(self) -> dict[str, Any]:
            """Refuse a ship without a name."""
            if not self.name:
                raise InvariantError("a ship has a name")
            return {"letters": len(self.name)}

        def stream(self, yard: str) -> UUID:
            """Return the id that follows from the yard."""
            return UUID(int=len(yard))

    class Sailed(Event):
        """A voyage."""

        since: str | None = counted("to")
        number: int = counted()
        to: Annotated[Kept[str], Cut(8)]
        _: KW_ONLY
        under: Annotated[str, OneOf("a flag", ("red", "white", "blue")), KeptAs("flag")] = "red"
        crew: Annotated[Sequence[str] | None, Since(2, None)] = ()
        cargo: Annotated[Mapping[str, Any], Since(3, {"kind": "unknown"})]

        def check(self, ship: "Ship") -> dict[str, Any]:
            """Number the voyage."""
            return {"number": len(ship.voyages) + 1}

        def apply(self, ship: "Ship") -> None:
            """Keep the voyage."""
            super().apply(ship)
            ship.voyages.append(self.number)

    class WentDown(Event):
        """The end."""

        NAME = "wreck.found"
        ENDS = "the ship has sunk"

    name: str
    decks: int
    to: str | None = None
    flag: str = ""
    ended: str | None = None
    voyages: list[int] = field(default_factory=list)

    build = begins(Built)
    sail = records(Sailed)
    sail_numbered = records(Sailed, lambda told: told.number)
    sink = records(WentDown)


CARGO: Mapping[str, Any] = MappingProxyType({"tea": (1, 2)})


def registry() -> EventRegistry:
    found = EventRegistry()
    register(found, Ship)
    return found


def test_command_stores_plain_values_in_the_declared_order_and_answers() -> None:
    ship = Ship.build(name="Argo")
    assert ship.sail_numbered("Colchis", cargo=CARGO) == 1
    ship.sail("Iolkos, and home", under="white", crew=("Jason",), cargo={})
    mapper = LedgerMapper(registry())
    built, first, second = map(mapper.to_stored_event, ship.collect_events())
    assert list(decode_body(built.state)) == ["v", "at", "letters", "name", "decks"]
    told = decode_body(first.state)
    assert list(told) == ["v", "at", "since", "number", "to", "under", "crew", "cargo"]
    assert (told["v"], told["since"], told["number"], told["to"]) == (3, None, 1, "Colchis")
    assert (told["under"], told["crew"], told["cargo"]) == ("red", [], {"tea": [1, 2]})
    told = decode_body(second.state)
    assert (told["since"], told["to"]) == ("Colchis", "Iolkos, ")
    again: Any = None
    for each in (built, first, second):
        event: Any = mapper.to_domain_event(each)
        again = event.mutate(again)
    assert isinstance(again, Ship)
    assert (again.name, again.to, again.flag) == ("Argo", "Iolkos, ", "white")
    assert again.voyages == [1, 2]


def test_what_is_only_given_decides_the_stream_and_is_not_stored() -> None:
    assert Ship.build(name="Argo").id == UUID(int=4)
    ship = Ship.build(name="Argo", yard="elsewhere")
    assert ship.id == UUID(int=9)
    assert "yard" not in vars(ship.pending_events[0])


def test_name_and_versions_follow_from_the_declaration() -> None:
    found = registry()
    assert [each.name for each in found] == ["ship.built", "ship.sailed", "wreck.found"]
    sailed = found.for_name("ship.sailed")
    assert (sailed.version, sailed.aggregate) == (3, None)
    assert found.for_name("ship.built").aggregate is Ship
    old = {"v": 1, "number": 1, "to": "x", "under": "red"}
    lifted = {"crew": None, "cargo": {"kind": "unknown"}}
    assert found.upcast("ship.sailed", old) == {**old, "v": 3, **lifted}
    assert found.upcast("ship.sailed", {**old, "v": 2, "crew": ["a"]})["crew"] == ["a"]


def test_event_out_of_its_bounds_or_of_turn_is_refused_and_leaves_nothing() -> None:
    with pytest.raises(InvariantError, match="a ship has a name"):
        Ship.build(name="")
    ship = Ship.build(name="Argo")
    with pytest.raises(InvariantError, match="a flag must be one of red, white, blue, not 'black'"):
        ship.sail("Colchis", under="black", cargo={})
    ship.sink()
    with pytest.raises(InvariantError, match="the ship has sunk"):
        ship.sail("Colchis", cargo={})
    with pytest.raises(InvariantError, match="the ship has sunk"):
        ship.sink()
    assert (ship.version, len(ship.pending_events), ship.voyages, ship.to) == (2, 2, [], None)


def test_counted_field_cannot_be_passed_to_a_command() -> None:
    ship = Ship.build(name="Argo")
    with pytest.raises(TypeError, match="number"):
        ship.sail("Colchis", cargo={}, number=7)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="cargo"):
        ship.sail("Colchis")  # type: ignore[call-arg]


def test_event_holds_copies_and_text_that_can_be_stored() -> None:
    ship, cargo = Ship.build(name="Argo"), {"tea": [1]}
    sailed = record(ship, Ship.Sailed, "a\ud800b", cargo=cargo)
    cargo["tea"].append(2)
    assert (sailed.to, sailed.cargo) == ("a?b", {"tea": [1]})


def test_event_of_an_aggregate_is_the_declared_one_made_once_and_frozen() -> None:
    declared, derived = Ship.Sailed.__mro__[1], Ship.Sailed
    assert declared.__qualname__ == derived.__qualname__ == "Ship.Sailed"
    assert not {"__init__", "__eq__", "__repr__"} & vars(derived).keys()
    ship, other = Ship.build(name="Argo"), Ship.build(name="Argo")
    for each in (ship, other):
        each.sail("Colchis", cargo=CARGO)
    event = ship.pending_events[-1]
    assert event == copy(event)
    assert event != other.pending_events[-1]  # the time is another
    assert repr(event).startswith("Ship.Sailed(originator_id=")
    for name in ("to", "unheard_of"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(event, name, "Iolcus")
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(event, name)
