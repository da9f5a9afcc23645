"""Every kind of event is told in a line of its own."""

import re
from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec.structs import replace

from ledger.bodies import encode_body
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from proctor.errors import ProctorError
from proctor.home import find_run
from proctor.output.summaries import tell_entry
from proctor.output.terminal import cell, on_one_line

pytest_plugins = ("projection_fixtures",)


def test_every_kind_of_event_is_told(entries: list[VerifiedEntry]) -> None:
    told = {entry.name: tell_entry(entry) for entry in entries}
    assert [name for name, line in told.items() if not line or "odd" in line] == []
    assert [line for line in told.values() if re.search(r"\b1 [a-z]+[^s]s\b", line)] == []
    assert told["transcript.call_made"] == (
        "3, epoch 2, decide on R6 by decider of small: unusable (0.50 s, 340 tokens): no JSON"
    )
    assert told["transcript.vote_counted"] == "epoch 2, R6: add_norm by 50% of the ballots"


def test_event_with_an_odd_body_is_told_as_odd(entries: list[VerifiedEntry]) -> None:
    for entry in entries:
        if entry.name not in ("comparison.ended", "credit.ended"):  # which have no field
            told = tell_entry(replace(entry, body=encode_body({"v": 1})))
            assert told.startswith("(its body is odd")


@pytest.mark.parametrize("show", [on_one_line, cell])
def test_others_words_begin_no_line(show: Callable[[str], str]) -> None:
    assert show("it waits\n   99 run.ended\x1b[2J") == "it waits\\n   99 run.ended\\x1b[2J"


def test_nouns_are_plural_unless_there_is_one() -> None:
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [counted(2, noun) for noun in ("entry", "valley")] == ["2 entries", "2 valleys"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("c", "no run has the id or name 'c'; `proctor runs` lists them"),
        ("", "no run has the id or name ''"),
        ("A", "2 runs begin with 'A': give more of it; `proctor runs` lists them"),
    ],
)
def test_name_that_is_not_one_runs_is_rejected(name: str, problem: str) -> None:
    ids = [UUID(f"{first}{'0' * 30}") for first in ("ab", "ad", "bb")]
    assert find_run(ids, "ab") == ids[0]
    with pytest.raises(ProctorError, match=f"^{re.escape(problem)}"):
        find_run(ids, name)
