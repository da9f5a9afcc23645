"""JSON with two readings, or none, is rejected in words that never quote it."""

import pytest

from ledger.strict_json import MAX_VALUES, JSONError, read_json, read_json_at, read_object


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[NaN]", "NaN"),
        (b"[1e400]", "too large for a float"),
        (b'{"a": 1, "a": 1}', "repeated"),
        (b'"\\udc00"', "not JSON"),
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b"[" * 100_000, "deeper than 32"),
        (b"[" + b"," * MAX_VALUES + b"]", "more than"),
        (b"1" * 5_000, "not JSON"),
    ],
)
def test_json_with_two_readings_or_none_is_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(JSONError, match=problem) as caught:
        read_json(data)
    assert len(str(caught.value)) < 100  # nothing of the text is repeated


def test_json_is_read() -> None:
    assert read_json(' {"a": [1, 2.5, "ü", null]} '.encode()) == {"a": [1, 2.5, "ü", None]}
    assert read_object(b"{}") == {}
    with pytest.raises(JSONError, match="not an object"):
        read_object(b"[]")


def test_value_in_the_middle_of_a_text_is_read_with_its_end() -> None:
    assert read_json_at('so {"a": 1} it is', 3) == ({"a": 1}, 11)
    with pytest.raises(JSONError, match="not JSON"):
        read_json_at("so", 0)
