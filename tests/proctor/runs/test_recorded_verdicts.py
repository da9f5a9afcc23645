"""What is made from recorded audits counts all violations: feedback, patterns, training data."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from figure_homes import (
    Figures,
    audit_of_an_earlier_version,
    bodies,
    of_run,
    told_violations,
    write_figures,
)
from synthetic import synthetic_audit, synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.verification.verified_entries import VerifiedEntry
from proctor.home import Home
from proctor.improvement.tuning import patterns_of
from proctor.remembering import open_remembered
from proctor.runs.campaign_feedback import make_feedback, read_verdict
from projections.projector import projected


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("verdicts"))


@pytest.fixture(scope="module")
def made(home: Home) -> Figures:
    return write_figures(home.ledger)


@pytest.fixture(scope="module")
def entries(home: Home, made: Figures) -> list[VerifiedEntry]:
    with open_remembered(home) as ledger:
        return list(ledger.entries())


@pytest.fixture(scope="module")
def log(home: Home, made: Figures) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(home.ledger, REGISTRY) as log:
        yield log


@pytest.fixture(scope="module")
def tables(entries: list[VerifiedEntry]) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(projected(entries, quarantine=True)) as tables:
        yield tables


def audit_of(entries: list[VerifiedEntry], run: str) -> str:
    [audit] = [stream for stream, body in bodies(entries, "audit.started") if body["run"] == run]
    return audit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["large", "huge"])
def test_feedback_and_patterns_count_all_violations(
    name: str, made: Figures, entries: list[VerifiedEntry], log: LedgerApplication
) -> None:
    run = getattr(made, name)
    due = told_violations(entries, run)
    verdict = read_verdict(log, audit_of(entries, run))
    assert verdict.found == due.total()
    [told] = make_feedback([verdict])["attempts"]
    assert {
        (each["kind"], each["rule"], each["emitter"]): each["count"] for each in told["violations"]
    } == dict(due)
    assert all(each["epochs"] for each in told["violations"])
    blamed = {each.key: each.count for each in patterns_of(verdict)}
    assert blamed == {
        f"violation {kind} {rule} {emitter}": count
        for (kind, rule, emitter), count in due.items()
        if emitter != "harness"
    }


def test_verdict_of_an_earlier_version_keeps_what_it_listed_and_tells_the_total(
    made: Figures, entries: list[VerifiedEntry], log: LedgerApplication
) -> None:
    verdict = read_verdict(log, audit_of(entries, made.old))
    assert (len(verdict.violations), verdict.found) == (150, 478)
    [told] = make_feedback([verdict])["attempts"]
    assert sum(each["count"] for each in told["violations"]) == 150  # as it was told then


def test_decision_counts_its_violations_or_says_that_they_are_unknown(
    made: Figures, entries: list[VerifiedEntry], tables: duckdb.DuckDBPyConnection
) -> None:
    def rewards(run: str) -> list[tuple[Any, ...]]:
        return tables.execute(
            "SELECT number, violations, reward IS NULL FROM decision_rewards WHERE run_id = ? "
            "ORDER BY number",
            [run],
        ).fetchall()

    assert len(rewards(made.large)) == of_run(entries, made.large)["decisions"]
    assert all(violations is not None for _, violations, _ in rewards(made.large))
    run = next(
        body["run"]
        for _, body in bodies(entries, "campaign.attempt_started")
        if told_violations_or_none(entries, body["run"]) == 160
    )
    assert all(violations is not None for _, violations, _ in rewards(run))


def told_violations_or_none(entries: list[VerifiedEntry], run: str) -> int | None:
    try:
        return told_violations(entries, run).total()
    except ValueError:
        return None


def test_decisions_of_an_audit_that_does_not_list_all_are_no_training_data(
    tmp_path: Path,
) -> None:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        old, new = (synthetic_run(log, epochs=60, dead=range(60)) for _ in range(2))
        audit_of_an_earlier_version(log, old)
        synthetic_audit(log, new)
    with open_remembered(Home(tmp_path)) as ledger:
        entries = list(ledger.entries())
    with closing(projected(entries)) as tables:
        why = "SELECT number, faults FROM curated_decisions WHERE run_id = ? ORDER BY number"
        faults = dict(tables.execute(why, [str(old.id)]).fetchall())
        violations = dict(
            tables.execute(
                "SELECT number, violations FROM decision_rewards WHERE run_id = ?", [str(old.id)]
            ).fetchall()
        )
        listed = {n for n, v in violations.items() if v}
        assert listed
        assert set(violations) - listed
        for number, count in violations.items():
            known = number in listed
            assert (count is not None) == known
            said = " ".join(faults[number])
            assert ("the audit does not list all violations" in said) == (not known)
        for _, told in tables.execute(why, [str(new.id)]).fetchall():
            assert "does not list" not in " ".join(told)
