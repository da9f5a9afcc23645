"""Searches as tables: the posterior in SQL is that of the search, at every step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from aggregates.improvement.bisection import Bisection
from aggregates.registry import REGISTRY
from judge.bisection.reports import probes_of, search_of
from judge.bisection.search import RULES, Probe, posterior
from ledger.application import LedgerApplication
from projections.projector import projected
from projections.source import open_source

NAMES = [f"checkpoint {number}" for number in range(6)]
PROBES: list[Probe] = [(3, "bad"), (1, "good"), (2, "skip"), (3, "good"), (4, "bad"), (3, "bad")]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


def opened(*, error: float, ends_believed: bool = True, rules: int = RULES) -> Bisection:
    return Bisection.open(
        line="a line",
        good=NAMES[0],
        suspects=NAMES[1:],
        oracle={"kind": "command"},
        error=error,
        confidence=0.95,
        ends_believed=ends_believed,
        rules=rules,
    )


def connected(folder: Path) -> duckdb.DuckDBPyConnection:
    with open_source(folder / "ledger") as ledger:
        return projected(ledger.entries(start=0))


def asked(connection: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return connection.execute(statement).fetchall()


@pytest.mark.parametrize(("error", "rules"), [(0.0, RULES), (0.2, RULES), (0.2, 2), (0.2, 1)])
@pytest.mark.parametrize("ends_believed", [True, False])
def test_posterior_is_that_of_the_search_as_of_every_probe(
    log: LedgerApplication, tmp_path: Path, error: float, rules: int, ends_believed: bool
) -> None:
    search = opened(error=error, ends_believed=ends_believed, rules=rules)
    expected = [posterior(search_of(search), [])]
    for number, verdict in PROBES[: 3 if error == 0 else None]:
        search.probe(NAMES[number], verdict, {"repeat": 0})
        expected.append(posterior(search_of(search), probes_of(search)))
    log.save(search)
    connection = connected(tmp_path)
    ((first,),) = asked(connection, "SELECT idx FROM bisections")
    for step, beliefs in enumerate(expected):
        connection.execute(f"SET VARIABLE as_of = {first + step}")
        rows = asked(
            connection, "SELECT number, probability FROM bisection_posterior ORDER BY number"
        )
        assert [number for number, _ in rows] == list(search_of(search).hypotheses)
        assert [belief for _, belief in rows] == pytest.approx(beliefs)


def test_probability_is_missing_when_sure_verdicts_contradict(
    log: LedgerApplication, tmp_path: Path
) -> None:
    search = opened(error=0.0)
    search.probe(NAMES[1], "bad", {})
    search.probe(NAMES[2], "good", {})
    log.save(search)
    statement = "SELECT DISTINCT probability FROM bisection_posterior"
    assert asked(connected(tmp_path), statement) == [(None,)]


def test_standing_follows_a_search_to_its_end(log: LedgerApplication, tmp_path: Path) -> None:
    begun, done = opened(error=0.2, rules=1), opened(error=0.0)
    done.probe(NAMES[2], "good", {"repeat": 0})
    done.probe(NAMES[3], "bad", {"repeat": 0, "from": "elsewhere/1"})
    done.end(culprit=NAMES[3], candidates=[NAMES[3]], posterior=1.0, reason="it is")
    log.save(begun, done)
    rows = asked(
        connected(tmp_path),
        "SELECT suspects, probes, known, likeliest, probability, ended, culprit, candidates, "
        "reason FROM bisection_standing ORDER BY idx",
    )
    assert rows == [
        (5, 0, 0, NAMES[1], 0.2, False, None, None, None),
        (5, 2, 1, NAMES[3], 1.0, True, NAMES[3], [NAMES[3]], "it is"),
    ]
