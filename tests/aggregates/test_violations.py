"""What an audit's last event records of its violations."""

from collections import Counter

import pytest
from figure_homes import violations

from aggregates.violations import (
    LISTED,
    listed_violations,
    shared_out,
    violations_found,
)
from ledger.bodies import encode_body


def kinds(found: list[dict[str, object]]) -> Counter[object]:
    return Counter((v["kind"], v["rule"], v["emitter"]) for v in found)


@pytest.mark.parametrize("count", [0, 1, 149, 150, 151, 478, 3_000, 9_000, 200_000])
def test_each_violation_is_recorded_or_counted_and_the_event_fits_an_entry(count: int) -> None:
    found = violations(count)
    listed, further = shared_out(found)
    body = {"violations": listed, "further": further}
    assert len(encode_body(body)) < 60_000
    assert listed == found[:LISTED]
    rows = listed_violations(body)
    told: Counter[object] = Counter()
    for row in rows:
        told[row["kind"], row["rule"], row["emitter"]] += row["times"]
    assert told == kinds(found)
    assert violations_found(body, []) == count
    if count <= 3_000:
        assert {row["times"] for row in rows} <= {1}
        places = Counter((v["kind"], v["rule"], v["epoch"], v["decision"]) for v in rows)
        assert places == Counter((v["kind"], v["rule"], v["epoch"], v["decision"]) for v in found)


def test_long_words_leave_room_for_the_scores() -> None:
    found = [{**each, "detail": "\U0001f9ea" * 50} for each in violations(5_000)]
    listed, further = shared_out(found)
    assert len(encode_body({"violations": listed, "further": further})) < 60_000
    assert violations_found({"violations": listed, "further": further}, []) == 5_000


def test_total_of_an_earlier_audit_is_that_of_its_steps() -> None:
    old = {"violations": violations(478)[:LISTED], "further": None}
    steps = [
        {"name": "coverage", "evidence": {"violations": {"total": 400}}},
        {"name": "defensibility", "evidence": {"violations": {"total": 78}}},
        {"name": "probe", "evidence": {"violations": {"total": 9}}},
    ]
    assert violations_found(old, steps) == 478


def test_total_of_an_earlier_audit_without_evidence_is_a_least_number() -> None:
    old = {"violations": violations(478)[:LISTED], "further": None}
    assert violations_found(old, [{"name": "coverage", "evidence": {}}]) == 150
    assert violations_found({"violations": violations(3), "further": None}, []) == 3
