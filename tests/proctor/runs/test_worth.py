"""What decisions were worth, as it is shown: from the forks, and only where they say it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from curation_histories import DATA, Scene, answer_of, code_of
from frontdoor import answer, call_here

from aggregates.credit import CHOSEN, Credit, Interval, Place
from proctor import remembering

CLEAR = [0.30, 0.32, 0.31]  # gained by the recorded decision, in each order of the examples


@pytest.fixture
def history(tmp_path: Path) -> Scene:
    history = Scene(tmp_path)
    history.admit("data", DATA[0])
    return history


def worth(history: Scene, run: str) -> list[dict[str, Any]]:
    done = call_here(["show", run, "--json"], home=history.folder, state=history.folder / "state")
    found: list[dict[str, Any]] = answer(done)["worth"]
    return found


def test_worth_is_shown_with_its_interval_by_small_and_by_large_ledgers(
    history: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = (history.run(history.line.active, group=group) for group in (0, 1))
    history.credit(run, CLEAR)
    (found,) = worth(history, run)
    assert (found["decision"], found["arm"], found["orders"]) == (1, "nothing", 3)
    assert found["accuracy"]["difference"] == pytest.approx(0.31)
    assert found["accuracy"]["low"] == pytest.approx(0.31 - 4.302652729911275 * 0.01 / 3**0.5)
    assert (found["better"], found["why_not"], found["level"]) == ("chosen", None, 0.95)
    assert worth(history, other) == []
    monkeypatch.setattr(remembering, "FEW", 0)  # so that `show` asks the tables where entries are
    assert worth(history, run) == [found]
    assert worth(history, other) == []


def test_all_orders_of_a_question_count_whichever_run_was_measured(history: Scene) -> None:
    run, again, other = (history.run(history.line.active, group=group) for group in (0, 0, 1))
    history.credit(again, [0.3, 0.3, 0.3, -0.3])
    history.credit(run, [0.3, 0.31])
    history.credit(other, CLEAR)
    found, more = worth(history, run), worth(history, again)
    assert found == more
    assert (found[0]["orders"], found[0]["better"]) == (4, None)
    assert found[0]["level"] == 0.975  # one of two looks
    assert worth(history, other)[0]["better"] == "chosen"  # the control


NOT_COUNTED: dict[str, tuple[dict[str, Any], str]] = {
    "means that the forks do not have": ({"claimed": [0.4, 0.4, 0.4]}, "contradict it"),
    "one fork for two orders": ({"named": [0, 1, 0]}, "contradict it"),
    "another policy afterwards": ({"after": "playbook"}, "contradict it"),
    "swapped arms": ({"swapped": True}, "contradict it"),
    "chosen orders": ({"seeds": [0, 1, 7]}, "not the first ones"),
    "an alternative that goes on from another state": ({"states": ("e", "f")}, "different states"),
    "an alternative of another program": ({"codes": (None, code_of(9))}, "different versions"),
}


@pytest.mark.parametrize("case", NOT_COUNTED)
def test_measurement_that_shows_something_else_is_rejected(history: Scene, case: str) -> None:
    told, why = NOT_COUNTED[case]
    run, honest = (history.run(history.line.active, group=group) for group in (0, 1))
    history.credit(run, CLEAR, **told)
    history.credit(honest, CLEAR)
    (found,) = worth(history, run)
    assert why in found["why_not"]
    assert (found["better"], found["orders"], found["accuracy"]["low"]) == (None, 0, None)
    assert worth(history, honest)[0]["better"] == "chosen"


def test_forks_of_another_run_are_rejected(history: Scene) -> None:
    run, other = (history.run(history.line.active, group=group) for group in (0, 1))
    forks = history.credit(other, CLEAR)
    claim = Credit.start(run, after="nothing", seeds=[0, 1, 2], arms={"1": ["nothing"]})
    for arm, runs in forks.items():
        for seed, (fork, gain) in enumerate(zip(runs, CLEAR, strict=True)):
            accuracy = 0.5 + gain * (arm == CHOSEN)
            claim.record_fork(*Place(1, arm, seed), fork, 3, "completed", 1.0, accuracy, 1, 0)
    said = [answer_of(acts, "anybody").to_dict() for acts in (True, False)]
    mean = asdict(Interval(0.31, 0.31, 0.31))
    told: dict[str, Any] = {"chosen": said[0], "other": said[1], "accuracy": mean}
    claim.measure(1, "nothing", epoch=1, level=0.95, loss=asdict(Interval(0, 0, 0)), **told)
    claim.end()
    history.log.save(claim)
    (found,) = worth(history, run)
    assert found["why_not"] == "the forks in the ledger contradict it"
    assert worth(history, other)[0]["better"] == "chosen"


def test_worth_by_another_version_of_the_program_says_so(history: Scene) -> None:
    run = history.run(history.line.active)
    history.credit(run, CLEAR, codes=(code_of(9), code_of(9)))
    (found,) = worth(history, run)
    assert (found["other_code"], found["better"]) == (True, "chosen")
    told = call_here(["show", run], home=history.folder).stdout.replace("\n", " ")
    assert "another version of the program trained the forks" in told
