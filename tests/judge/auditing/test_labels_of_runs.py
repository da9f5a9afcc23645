"""What an audit says of a run's label, from verified entries."""

from pathlib import Path

import pytest
from synthetic import CODE, synthetic_line, synthetic_run

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from judge.auditing.events import decode_events
from judge.auditing.labels import label_problem
from judge.auditing.record import read_record
from ledger.application import LedgerApplication

NOBODYS = "0" * 8 + "-0000-5000-8000-" + "0" * 12


def problems(folder: Path) -> dict[str, str | None]:
    """Return what is wrong with the label of each run, of a ledger that has them all."""
    with LedgerApplication.open(folder / "ledger", REGISTRY) as log:
        line = synthetic_line(log)
        later = Line.checkpoint_id(line.id, "d" * 40)
        labels = {
            "honest": (line.active, CODE),
            "none": (None, CODE),
            "invented": (NOBODYS, CODE),
            "backdated": (later, CODE),
            "of other code": (line.active, "e1" * 32),
        }
        runs = {
            name: synthetic_run(log, epochs=1, checkpoint=checkpoint, code=code)
            for name, (checkpoint, code) in labels.items()
        }
        line.promote(
            commit="d" * 40,
            tree="d" * 40,
            proposals=["p"],
            manifest="m",
            reference_set="r",
            code=None,
        )
        log.save(line)
        runs["of code that nobody recorded"] = synthetic_run(log, epochs=1, checkpoint=later)
        other = synthetic_line(log, branch="other")
        other.trigger_event(
            Line.Promoted,
            checkpoint=NOBODYS,  # an id that no commit of this line has
            parent=other.active,
            proposals=[],
            commit="b" * 40,
            tree="0" * 40,
            manifest="m",
            reference_set="r",
            code=CODE,
        )
        log.save(other)
        runs["of a forged checkpoint"] = synthetic_run(log, epochs=1, checkpoint=NOBODYS)
    found = {}
    for name, run in runs.items():
        record = read_record(folder / "ledger", run.id)
        started = decode_events(record.entries)[0]
        found[name] = label_problem(
            started.checkpoint,
            started.environment.get("code_sha256"),
            start=record.entries[0].index,
            recorded=record.checkpoints,
        )
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return problems(tmp_path_factory.mktemp("labels"))


def test_nothing_is_wrong_with_an_honest_label_or_with_none(told: dict[str, str | None]) -> None:
    assert (told["honest"], told["none"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("invented", "not found in the ledger"),
        ("backdated", "after the run started"),
        ("of other code", "is not the code of checkpoint"),
        ("of code that nobody recorded", "the code hash of checkpoint"),
        ("of a forged checkpoint", "not found in the ledger"),
    ],
)
def test_false_label_is_rejected(told: dict[str, str | None], name: str, problem: str) -> None:
    assert problem in str(told[name])
    assert told["honest"] is None
