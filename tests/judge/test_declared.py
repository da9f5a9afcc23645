"""Plain values are read into declared structures, and a problem names the field."""

import re
from typing import Any

import pytest
from msgspec import Struct

from judge.declared import read_declared


class Short(str):
    """A text of at most three characters."""

    def __init__(self, value: str) -> None:
        if len(value) > 3:
            raise ValueError("at most three characters are expected")


class Inner(Struct, forbid_unknown_fields=True):
    count: int
    name: Short


class Outer(Struct, forbid_unknown_fields=True):
    inner: tuple[Inner, ...]


def test_value_of_the_declared_form_is_read() -> None:
    found = read_declared({"inner": [{"count": 1, "name": "one"}]}, Outer)
    assert found == Outer((Inner(1, Short("one")),))
    assert isinstance(found.inner[0].name, Short)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "Expected `object`, got `array`"),
        ({}, "Object missing required field `inner`"),
        ({"inner": [], "more": 1}, "Object contains unknown field `more`"),
        ({"inner": [{"count": True, "name": "a"}]}, "inner[0].count: Expected `int`, got `bool`"),
        ({"inner": [{"count": 1, "name": 2}]}, "inner[0].name: Expected `str`, got `int`"),
        ({"inner": [{"count": 1, "name": "four"}]}, "inner[0].name: at most three characters"),
    ],
)
def test_value_of_another_form_is_rejected_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        read_declared(value, Outer)
