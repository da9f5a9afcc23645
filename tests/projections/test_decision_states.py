"""The view decision_states: runs are in one state where everything measured is the same."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
import synthetic
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from projections.projector import create_schema, project
from projections.source import open_source
from projections.template import copied

measured = synthetic.measured
INTERVAL = {"signal_to_noise_low": 1.0, "signal_to_noise_high": 2.0}


def states(ledger: Path) -> list[tuple[Any, ...]]:
    """Return the hashes of each run's last epoch, in the order of the runs."""
    with duckdb.connect() as connection, open_source(ledger) as source:
        copied(connection, create_schema)
        project(connection, source.entries(start=0))
        return connection.execute(
            "SELECT measured, state FROM decision_states JOIN run_starts USING (run_id) "
            "WHERE epoch = 1 ORDER BY idx"
        ).fetchall()


@pytest.mark.parametrize("name", INTERVAL)
def test_runs_with_other_noise_intervals_are_in_different_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger"
    with LedgerApplication.open(ledger, REGISTRY) as log:
        for interval in (INTERVAL, INTERVAL, {**INTERVAL, name: 1.25}):

            def epoch(*args: Any, _interval: Any = interval, **options: Any) -> dict[str, Any]:
                part = measured(*args, **options)
                return {**part, "gradients": {**part["gradients"], **_interval}}

            monkeypatch.setattr(synthetic, "measured", epoch)
            synthetic_run(log, epochs=2)
    first, same, other = states(ledger)
    assert first == same
    assert first[0] != other[0]
    assert first[1] != other[1]
