"""A run done again from its events gives the same values; one that was told otherwise does not."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judge_cases import CONFIG, Case, train_case

from aggregates.run import Run
from judge.auditing.reexecution import reexecute
from judge.errors import JudgeError
from policies.deciding.recorded import RecordedPolicy
from policies.playbook import PlaybookPolicy


def recorded(events: list[Any]) -> RecordedPolicy:
    run: Any = None
    for event in events:
        run = event.mutate(run)
    return RecordedPolicy(run.decisions, run.policy)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"profile": "document", "lr": 0.1},
        {"profile": "document", "lr": 0.1, "edits": "restart"},
    ],
    ids=["rates", "edits", "restart"],
)
@pytest.mark.sampled(3)
def test_reexecution_gives_the_same_values_for_runs_with_remedies(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    events = train_case(tmp_path, PlaybookPolicy(), replace(CONFIG, **changes)).events()
    assert any(isinstance(event, Run.RemedyApplied | Run.RestartScheduled) for event in events)
    comparison = reexecute(events, recorded(events))
    assert comparison.differences == ()
    assert comparison.same
    assert comparison.whole
    assert comparison.environment == ()
    assert comparison.events == len(events)
    assert comparison.values > 200


def test_reexecution_of_a_part_gives_the_same_values(honest: Case) -> None:
    events = honest.events()
    comparison = reexecute(events, recorded(events), until_epoch=3)
    assert (comparison.same, comparison.epochs, comparison.whole) == (True, 4, False)
    assert comparison.events < len(events)


def test_reexecution_covers_what_there_is_when_the_run_broke_off(honest: Case) -> None:
    events = honest.events()
    cut = next(n for n, e in enumerate(events) if isinstance(e, Run.DecisionMade)) + 1
    comparison = reexecute(events[:cut], recorded(events))
    assert (comparison.same, comparison.whole, comparison.events) == (True, False, cut)


def altered(event: Any, **changes: Any) -> Any:
    copy: Any = object.__new__(type(event))
    vars(copy).update({**vars(event), **changes})
    return copy


def test_measurement_that_was_made_up_is_rejected(honest: Case) -> None:
    events = honest.events()
    place = next(n for n, e in enumerate(events) if isinstance(e, Run.EpochMeasured))
    validation = {**events[place].measured["validation"], "accuracy": 0.99}
    measured = {**events[place].measured, "validation": validation}
    events[place] = altered(events[place], measured=measured)
    comparison = reexecute(events, recorded(events))
    assert not comparison.same
    assert comparison.total == 1
    assert comparison.differences[0].place.endswith("measured.validation.accuracy")
    assert comparison.differences[0].recorded == 0.99


def test_reexecution_says_which_environment_differs(honest: Case) -> None:
    events = honest.events()
    environment = {**events[0].environment, "torch": "0.1"}
    events[0] = altered(events[0], environment=environment)
    comparison = reexecute(events, recorded(events), until_epoch=0)
    assert comparison.same
    assert [difference.place for difference in comparison.environment] == ["torch"]


@pytest.mark.parametrize(
    ("cut", "until", "words"),
    [
        (0, None, "not the events of a run"),
        (1, None, "has no measured epoch"),
        (99, 50, "epochs 0 to 7"),
    ],
)
def test_reexecution_of_what_cannot_be_done_again_is_rejected(
    honest: Case, cut: int, until: int | None, words: str
) -> None:
    events = honest.events()[:cut]
    policy = SimpleNamespace(name="none", describe=dict, decide=lambda _: ())
    with pytest.raises(JudgeError, match=words):
        reexecute(events, policy, until_epoch=until)
