"""A shorter text keeps what can be checked, or there is none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.proposing.distiller import LEAST_SAVING, distil, saving

PADDED = """\
# Guide

Act on what fires. It has often been found that those who wait have come to regret it in the end.

- **Remedy.** Use `decrease_lr` by 3 to 10 times. Many have wondered why, and the reasons are many.
- **Caveat.** R7 goes first. Never act on both. This is a long story that need not be told here.
"""


def test_padding_goes_and_rules_numbers_code_and_orders_stay() -> None:
    shorter = distil(PADDED)
    assert shorter is not None
    assert saving(PADDED, shorter) >= LEAST_SAVING
    for kept in (
        "# Guide",
        "`decrease_lr` by 3 to 10 times.",
        "R7 goes first.",
        "Never act on both.",
    ):
        assert kept in shorter
    assert "regret it" not in shorter, "the longest of what can be spared goes first"


def test_text_without_padding_is_left_alone() -> None:
    tight = "# Guide\n\nAct on what fires.\n\n- Use `decrease_lr` by 3.\n- Never wait.\n"
    assert distil(tight) is None


@pytest.mark.parametrize(
    ("before", "after", "share"), [("aaaa", "aaa", 0.25), ("", "", 0.0), ("aa", "aaaa", -1.0)]
)
def test_saving_is_a_share_of_the_bytes(before: str, after: str, share: float) -> None:
    assert saving(before, after) == share


@given(
    st.lists(
        st.sampled_from(
            [
                "Plain words that can be spared go here. ",
                "R3 stays. ",
                "`code` stays. ",
                "\n\n",
                "- ",
            ]
        ),
        max_size=30,
    )
)
def test_whatever_is_written_code_and_rules_survive(parts: list[str]) -> None:
    text = "".join(parts)
    shorter = distil(text)
    if shorter is not None:
        assert saving(text, shorter) >= LEAST_SAVING
        assert re.findall(r"R3|`code`", shorter) == re.findall(r"R3|`code`", text)
