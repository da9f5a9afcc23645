"""Proposals and checkpoints as tables: how far each has come, and what a rollback reaches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from synthetic import synthetic_line, synthetic_proposal

from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from projections.projector import create_schema, project
from projections.source import open_source
from projections.template import copied


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


def review(proposal: Proposal, verdict: str) -> None:
    proposal.record_review(
        verdict, envelope="{}", key="operator", expires=2_000_000_000, note="go on"
    )


def asked(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    copied(connection, create_schema)
    with open_source(folder / "ledger") as ledger:
        project(connection, ledger.entries(start=0))
    return connection.execute(statement).fetchall()


def test_status_follows_each_proposal_to_its_end(log: LedgerApplication, tmp_path: Path) -> None:
    line = synthetic_line(log)
    for outcome in ("promoted", "rejected", None):
        synthetic_proposal(log, line, outcome=outcome)
    approved = synthetic_proposal(log, line, outcome=None)
    review(approved, "revise")
    log.save(approved)
    statement = "SELECT status, verdict, approved_by FROM infra_proposals ORDER BY idx"
    assert asked(tmp_path, statement) == [
        ("promoted", "better", None),
        ("rejected", "worse", None),
        ("proposed", None, None),
        ("revise", None, None),
    ]
    review(approved, "approve")
    log.save(approved)
    assert asked(tmp_path, statement)[-1] == ("approved", None, "operator")


def test_rollback_reaches_all_that_descend_and_nothing_that_came_later(
    log: LedgerApplication, tmp_path: Path
) -> None:
    line = synthetic_line(log)
    for number in range(3):
        synthetic_proposal(log, line, rationale=f"change {number}")
    first, second, *_ = [each for each in line.checkpoints if each != line.first]
    assert line.roll_back(second, "worse after all") == first
    log.save(line)
    synthetic_proposal(log, line, rationale="another way")
    found = asked(tmp_path, "SELECT origin, rolled_back FROM infra_checkpoints ORDER BY idx")
    assert found == [
        ("opened", False),
        ("promoted", False),
        ("promoted", True),
        ("promoted", True),
        ("promoted", False),
    ]
    reasons = asked(tmp_path, "SELECT DISTINCT rollback_reason FROM infra_checkpoints")
    assert sorted(reasons, key=str) == [("worse after all",), (None,)]


def test_every_promoted_checkpoint_names_its_proposal(
    log: LedgerApplication, tmp_path: Path
) -> None:
    line = synthetic_line(log)
    proposal = synthetic_proposal(log, line)
    found = asked(tmp_path, "SELECT checkpoint_id, proposals FROM infra_checkpoints ORDER BY idx")
    assert found == [(line.first, None), (proposal.checkpoint, [str(proposal.id)])]
