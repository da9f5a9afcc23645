"""A report says of what runs are named for what the whole ledger says of it."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from curation_histories import DATA, Scene
from synthetic import begun_campaign, run_config, synthetic_audit, synthetic_run

from aggregates.comparison import Comparison
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.paths import LedgerPaths
from ledger.verification.reader import open_verified
from proctor.reports.contents import contents_of
from proctor.reports.subjects import Overview, Subject


def reported(ledger: Path, subject: Subject, name: str) -> list[dict[str, Any]]:
    """Return a part of a report, which has to be the same as by all entries of the ledger."""
    vkey = LedgerPaths(ledger).vkey.read_text().strip()
    with open_verified(ledger, vkey=vkey) as verified:
        entries = list(verified.entries())
        origin, keys = verified.authority.origin, verified.authority.stream_id
    chosen = Overview.of(entries).choose(entries, subject, origin=origin)
    assert len(chosen) < len(entries)
    found: list[dict[str, Any]] = contents_of(chosen, subject, authority=keys)[name]
    assert found == contents_of(entries, subject, authority=keys)[name]
    return found


def test_report_of_a_campaign_has_all_further_draws(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, REGISTRY) as log:
        campaigns = [begun_campaign(log, 1, epochs=1) for _ in range(2)]
        for begun, (run,) in campaigns:
            synthetic_audit(log, synthetic_run(log, epochs=1, run_id=run, campaign=str(begun.id)))
        (asked, _), (sister, (of_sister,)) = campaigns
        left_out = synthetic_run(log, epochs=2, campaign=str(asked.id))
        alone = synthetic_run(log, epochs=1)
        synthetic_run(log, epochs=1, seed=1)
    rows = reported(tmp_path, Subject("campaign", str(asked.id)), "draws")
    assert {(row["run_id"], row["made_by"], row["says_so"]) for row in rows} == {
        (str(of_sister), str(sister.id), False),
        (str(left_out.id), None, True),
        (str(alone.id), None, False),
    }


def test_report_of_a_comparison_has_the_draw_that_a_made_up_one_names(tmp_path: Path) -> None:
    def compare(log: LedgerApplication, policy: str, epochs: int) -> tuple[Comparison, str]:
        begun = Comparison.start(
            policies=[{"name": policy}], conditions={"x": run_config(epochs=epochs)}, seeds=[0]
        )
        run = uuid4()
        begun.allot(begun.cells[0], str(run))
        log.save(begun)
        synthetic_audit(log, synthetic_run(log, epochs=1, run_id=run))
        begun.finish(begun.cells[0], audit="x", problem=None)
        log.save(begun)
        return begun, str(run)

    with LedgerApplication.open(tmp_path, REGISTRY) as log:
        decoy, hidden = compare(log, "another", 9)
        asked, _ = compare(log, "synthetic", 1)
        synthetic_run(log, epochs=3)
    rows = reported(tmp_path, Subject("comparison", str(asked.id)), "draws")
    assert [(row["run_id"], row["made_by"]) for row in rows] == [(hidden, str(decoy.id))]


def test_report_of_a_run_knows_measurements_of_one_that_was_trained_again(tmp_path: Path) -> None:
    history = Scene(tmp_path)
    history.admit("data", DATA[0])
    run, again, other = (history.run(history.line.active, group=group) for group in (0, 0, 1))
    history.credit(again, [0.3, 0.3, 0.3, -0.3])
    history.credit(run, [0.3, 0.3])
    history.credit(other, [0.3, 0.3])
    (row,) = reported(history.ledger, Subject("run", run), "credits")
    assert row["why_not"] == "4 orders were measured, and it has 2"
    (worth,) = reported(history.ledger, Subject("run", run), "worth")
    assert len(worth["loss_saved"]) == 4
