"""What a home's ledger holds of the runs that frameworks have made."""

from pathlib import Path
from typing import Any

import pytest
from frontdoor import answer, call_here
from judge_cases import events_of

from aggregates.run import Run


def run_ids(home: Path, *, end_reason: str = "completed") -> list[str]:
    """Return the runs that ended so."""
    found = answer(
        call_here(
            ["sql", "SELECT run_id, end_reason FROM runs ORDER BY ALL", "--format", "json"],
            home=home,
        )
    )
    return [row["run_id"] for row in found if row["end_reason"] == end_reason]


def epochs_of(home: Path, run_id: str) -> list[Any]:
    """Return the measured epochs, as events."""
    return [
        each for each in events_of(home / "ledger", run_id) if isinstance(each, Run.EpochMeasured)
    ]


def assert_verified(home: Path, run_id: str) -> None:
    """Verify the ledger, judge the run, and look for the level of its evidence."""
    assert answer(call_here(["verify", "--json"], home=home))
    verdict = answer(call_here(["judge", run_id, "--json"], home=home))
    assert not verdict["hard_fail"]
    assert {"passed", "not_possible"} <= {step["status"] for step in verdict["steps"]}
    assert "measured" in call_here(["show", run_id], home=home).stdout


def assert_alike(one: Any, other: Any, *, rel: float) -> None:
    """Compare measurements whose sums may be rounded differently."""
    if isinstance(other, dict):
        assert one.keys() == other.keys()
        for key, value in other.items():
            assert_alike(one[key], value, rel=rel)
    elif isinstance(other, list):
        for each, value in zip(one, other, strict=True):
            assert_alike(each, value, rel=rel)
    else:
        assert one == (pytest.approx(other, rel=rel) if isinstance(other, float) else other)
