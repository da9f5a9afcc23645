"""An answer is declared once: what is printed and its schema both follow."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from json_answers import faults
from msgspec import UNSET, UnsetType

from proctor.output.schemas import document
from proctor.output.shape import Answer
from proctor.output.terminal import plain

RUN = UUID(int=7)


@dataclass(frozen=True)
class Found:
    """What some code has found."""

    run: UUID
    score: float | None
    digest: bytes
    parts: tuple["Found", ...] = ()
    secret: str = "no field of the answer"

    @property
    def size(self) -> int:
        return len(self.parts)


class Part(Answer):
    """A part of an answer."""

    run: UUID
    size: int


class Told(Answer, rename={"from_": "from"}, kw_only=True):
    """An answer with a field of every kind."""

    run: UUID
    from_: int
    score: float | None
    digest: bytes
    place: Path | None
    size: int
    parts: list[Part]
    why: dict[str, int]
    default: list[Found]
    token: str | UnsetType = UNSET


FOUND = Found(RUN, float("nan"), b"\x01\x02", (Found(RUN, 0.5, b""),))
ONE = Told.of(FOUND, {"why": {"late": 2}}, from_=3, place=Path("a/b"), default=[])


def test_answer_has_fields_of_what_is_there_in_its_own_order() -> None:
    told = plain(ONE)
    assert list(told) == [
        *("run", "from", "score", "digest", "place", "size", "parts", "why", "default")
    ]
    assert (told["run"], told["from"], told["size"]) == (str(RUN), 3, 1)
    assert (told["score"], told["digest"], told["place"]) == ("NaN", "0102", "a/b")
    assert told["parts"] == [{"run": str(RUN), "size": 0}]
    assert told["why"] == {"late": 2}


def test_first_source_with_a_field_gives_it() -> None:
    assert Part.of({"size": 1}, FOUND).size == 1
    assert Part.of(FOUND, {"size": 5}).size == 1
    assert Part.of(FOUND, size=9).size == 9


def test_field_that_nothing_gives_is_an_error() -> None:
    with pytest.raises(TypeError, match="size"):
        Part.of({"run": RUN})


def test_optional_field_is_in_the_json_when_it_is_given() -> None:
    assert "token" not in plain(ONE)
    given = Told.of(FOUND, why={}, from_=0, place=None, default=[], token="word")
    assert plain(given)["token"] == "word"


def test_schema_is_of_what_is_printed_and_closed() -> None:
    schema = document("told", [Told, list[Found]])
    told = plain(ONE)
    assert faults(told, schema) == []
    assert faults(plain([FOUND]), schema) == []
    for name in set(told):
        lacking = {key: value for key, value in told.items() if key != name}
        assert faults(lacking, schema), name
    assert faults({**told, "new": 1}, schema)
    assert faults({**told, "size": "1"}, schema)
    (found,) = plain([FOUND])
    del found["secret"]  # which has a default, and is printed all the same
    assert faults([found], schema)
