"""Events that are repeated for a measurement are events like any other."""

from pathlib import Path

import pytest
from studies.speed.projections import measure, write

from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from projections.projector import projected
from projections.source import open_source

pytest_plugins = ("projection_fixtures",)


def test_repeated_events_are_read_and_belong_together(
    entries: list[VerifiedEntry], tmp_path: Path
) -> None:
    write(tmp_path / "ledger", entries, events=4 * len(entries))
    write(tmp_path / "ledger", entries, events=50, again="again")
    with open_source(tmp_path / "ledger") as ledger:
        connection = projected(ledger.entries(start=0), quarantine=True)
    with connection:
        assert connection.execute("FROM unreadable").fetchall() == []
        counted = connection.execute("SELECT COUNT(*), COUNT(DISTINCT run_id) FROM run_starts")
        runs, names = counted.fetchall()[0]
        assert runs == names > 20
        lone = connection.execute("SELECT * FROM audit_starts ANTI JOIN run_starts USING (run_id)")
        assert lone.fetchall() == []


def test_ledger_without_runs_is_no_pattern(tmp_path: Path) -> None:
    write(tmp_path / "ledger", [], events=0)
    with pytest.raises(ProctorError, match="no run is recorded here"):
        measure(tmp_path, tmp_path / "ledger", events=20_000)
