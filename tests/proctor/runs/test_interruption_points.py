"""A degradation is stopped by the gauntlet, by drift detection, and by hygiene: by each alone.

The same sentence is put into a prompt each time, and the scene leaves the other two out: what
reaches the line without a proposal has met no gauntlet, and nobody measures where none is called.
"""

from pathlib import Path

import pytest
from gauntlet_lines import judged
from learning_lines import BAD, BETTER, HARMLESS, PROMPT, LearningLine

from aggregates.run import Run
from judge.curation.query import Query
from judge.curation.sealing import draw
from judge.curation.tables import open_tables
from judge.drift.history import FEWEST
from judge.drift.watch import Watched, measure_baseline, watch
from judge.gauntlet.promotion import roll_back
from ledger.verification.reader import open_verified
from proctor.sample.drift_tasks import maker_of

SIBLINGS = 6  # fresh tasks in one evaluation


@pytest.fixture
def line(tmp_path: Path) -> LearningLine:
    return LearningLine(tmp_path)


def adopt(line: LearningLine, text: str) -> str:
    """Commit behind the gauntlet's back, and have an operator adopt it unseen."""
    line.commit(PROMPT, text)
    with line.controller() as controller, controller.locked():
        return controller.adopt(line.adoption(controller)).active


def exported(line: LearningLine) -> set[str]:
    """Return the runs that an export made now would hold."""
    with open_verified(line.home.ledger) as ledger, open_tables(ledger) as tables:
        drawn = draw(tables, Query(kind="sft"), blobs=line.home.blobs)
    return {run for each in drawn.examples for run, _ in each.member.decisions}


def names(*runs: Run) -> set[str]:
    return {str(run.id) for run in runs}


@pytest.mark.slow
def test_gauntlet_alone_keeps_a_degradation_from_becoming_active(line: LearningLine) -> None:
    """Nobody measures drift, and nothing is curated."""
    before = line.head()
    with line.controller() as controller:
        bad = judged(controller, line.diff(PROMPT, BAD), {PROMPT: 2})
        assert (bad.outcome, bad.verdict) == ("rejected", "worse")
        assert (line.head(), controller.line.head.commit) == (before, before)
        good = judged(controller, line.diff(PROMPT, BETTER), {PROMPT: 2})  # the honest control
        assert good.outcome == "promoted"
        assert line.head() == controller.line.head.commit != before


def looked(line: LearningLine) -> Watched:
    with line.controller() as controller, controller.locked():
        make = maker_of(controller.place.reference_set(controller.line.head.commit), SIBLINGS)
        return watch(controller.place, make=make, production={}, pause=0.0)


@pytest.mark.slow
def test_drift_detection_alone_takes_a_degradation_back(tmp_path: Path) -> None:
    """It met no gauntlet, and nothing is curated."""
    line = LearningLine(tmp_path, ("late-rows",))
    with line.controller() as controller, controller.locked():
        first = controller.line.head
        make = maker_of(controller.place.reference_set(first.commit), SIBLINGS)
        measure_baseline(controller.place, make=make, repeats=FEWEST)
    harmless = adopt(line, HARMLESS)
    assert looked(line).raised == ()  # the honest control
    bad = adopt(line, BAD)
    found = looked(line)
    assert "circuit breaker" in {each.kind for each in found.raised}
    assert found.rollback is not None
    assert (found.rollback.checkpoint, found.rollback.to) == (bad, harmless)
    with line.controller() as controller:
        assert controller.line.active == harmless
        assert line.head() == controller.line.head.commit
        assert line.text(PROMPT) == HARMLESS


def test_hygiene_alone_keeps_runs_of_a_degradation_out_of_every_export(line: LearningLine) -> None:
    """It met no gauntlet, and nobody measures drift: nobody even knows of it."""
    line.admit()
    honest = line.run(group=1)
    bad = line.commit(PROMPT, BAD)
    line.run(group=2, commit=bad, labelled=False)
    line.run(group=3, commit=bad)  # that says to be of the checkpoint
    assert exported(line) == names(honest)


def test_hygiene_alone_takes_back_what_was_learned_from_a_degradation(line: LearningLine) -> None:
    """It met no gauntlet, nobody measures drift, and an operator takes it back some day."""
    line.admit()
    honest = line.run(group=1)
    bad = adopt(line, BAD)
    unnoticed = line.run(group=2)
    later = adopt(line, f"{BAD}\nBe brief.\n")
    descends = line.run(group=3)
    assert exported(line) == names(honest, unnoticed, descends)
    with line.controller() as controller, controller.locked():
        taken_back = roll_back(controller.place, bad, "users complain about the order")
    assert taken_back.reached == (bad, later)
    healed = line.run(group=4)  # under the checkpoint that is active again
    assert exported(line) == names(honest, healed)
