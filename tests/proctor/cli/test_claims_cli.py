"""What names runs, from the front door: the key holder's comparison beside the honest one."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from forked import POOLED
from frontdoor import answer, call, call_here

from aggregates.comparison import Cell, Comparison
from proctor.home import Home

SMALL = [
    *("train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=2", "threads=1", "warm_up_epochs=0", "lr=3.0"),
]
COMMAND = ["compare", *SMALL, "--seeds", "2", "--workers", "1"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    home = tmp_path_factory.mktemp("compared") / "home"
    return home, answer(call([*COMMAND, "--json"], home=home, code=POOLED))


def forge(home: Path, told: Any, name: str, runs: dict[Cell, str]) -> None:
    """Append what `compare --name NAME` would, with other runs in its cells."""
    with Home(home).open_log() as log:
        honest: Comparison = log.repository.get(_id(told))
        forged = Comparison.start(**plan_of(log, told), name=name)
        ended = [e for e in log.events.get(honest.id) if isinstance(e, Comparison.RunEnded)]
        audits = {event.run: event.audit for event in ended}
        for cell in honest.cells:
            forged.allot(cell, runs[cell])
            audit = audits.get(runs[cell], ended[0].audit)
            forged.finish(cell, audit=audit, problem=None)
        forged.end()
        log.save(forged)


def plan_of(log: Any, told: Any) -> dict[str, Any]:
    started, *_ = log.events.get(_id(told))
    return {"policies": started.policies, "conditions": started.conditions, "seeds": started.seeds}


def _id(told: Any) -> UUID:
    return UUID(told["comparison"])


def verified(report: Path, *, home: Path) -> int:
    vkey = str(home / "ledger" / "ledger.vkey")
    return call_here(["verify", str(report), "--vkey", vkey], home=home).returncode


def runs_of(told: Any) -> dict[Cell, str]:
    return {Cell(c["policy"], c["condition"], c["seed"]): c["run_id"] for c in told["cells"]}


def test_honest_comparison_fits_and_has_no_further_draws(compared: tuple[Path, Any]) -> None:
    home, told = compared
    assert [cell["fits"] for cell in told["cells"]] == [True] * 4
    assert told["draws"] == []
    shown = call_here([*COMMAND], home=home)
    assert shown.returncode == 0
    assert "no other run with the same policy, condition and seed" in " ".join(shown.stdout.split())


def test_comparison_that_swaps_the_runs_of_another_is_rejected(
    compared: tuple[Path, Any], tmp_path: Path
) -> None:
    honest, told = compared
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    runs = runs_of(told)
    other = {"nothing": "rescue", "rescue": "nothing"}
    forge(home, told, "forged", {c: runs[c._replace(policy=other[c.policy])] for c in runs})
    done = call_here([*COMMAND, "--name", "forged", "--json"], home=home)
    forged = answer(done)
    assert done.returncode == 1
    assert "4 cells of 4 do not fit what the run itself recorded" in done.stderr
    assert forged["standings"] == []
    assert all("the policy" in " ".join(cell["why_not"]) for cell in forged["cells"])
    again = call_here([*COMMAND, "--json"], home=home)  # the honest one stands
    assert (again.returncode, answer(again)["standings"]) == (0, told["standings"])
    report = tmp_path / "report.html"
    written = call_here(["report", forged["comparison"], "--out", str(report)], home=home)
    assert written.returncode == 0
    page = report.read_text(encoding="utf-8")
    assert "4 runs do not fit" in page
    assert "names the run for another place" in page
    assert verified(report, home=home) == 0


@pytest.mark.slow  # trains four times
def test_one_more_draw_of_a_comparison_is_counted_in_both(
    compared: tuple[Path, Any], tmp_path: Path
) -> None:
    honest, told = compared
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    more = answer(call([*COMMAND, "--name", "once more", "--json"], home=home, code=POOLED))
    assert {draw["made_by"] for draw in more["draws"]} == {told["comparison"]}
    assert len(more["draws"]) == 4
    shown = call_here([*COMMAND], home=home)
    assert "4 runs of 1 other comparison" in " ".join(shown.stdout.split())
    report = tmp_path / "report.html"
    assert (
        call_here(["report", told["comparison"], "--out", str(report)], home=home).returncode == 0
    )
    assert "4 runs of 1 other comparison" in report.read_text(encoding="utf-8")
    assert verified(report, home=home) == 0


@pytest.mark.slow  # trains six times
def test_comparison_is_done_again_from_its_events(
    compared: tuple[Path, Any], tmp_path: Path
) -> None:
    honest, told = compared
    again = call(["replay", told["comparison"], "--execute", "--json"], home=honest)
    found = json.loads(again.stdout)
    assert (again.returncode, found["same"], len(found["runs"])) == (0, True, 4)
    home = Path(shutil.copytree(honest, tmp_path / "home"))
    runs = runs_of(told)
    forge(home, told, "forged", {c: runs[c._replace(seed=1 - c.seed)] for c in runs})
    shown = answer(call_here([*COMMAND, "--name", "forged", "--json"], home=home))
    again = call(["replay", shown["comparison"], "--execute", "--json"], home=home)
    found = json.loads(again.stdout)
    assert (again.returncode, found["same"]) == (1, False)
    assert any("the run has seed 1" in str(each["found"]) for each in found["differences"])
