"""The mixed policy asks where the playbook is unsure, and nowhere else."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from situations import MemoryLog, observe, past, signals
from synthetic import SPEC, synthetic_run

from aggregates.decisions import Decision, Observation, Said, Settings
from aggregates.playbook import DEFER, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH
from aggregates.transcript import Transcript
from policies.asking.prompt import situation
from policies.deciding.mixed import MixedPolicy
from policies.hindsight import fired_by_epoch
from policies.playbook import PlaybookPolicy

WARM_UP = Decision(
    HYPERPARAMETER_CHANGE, ("R1",), "warm_up_lr", {"lr": 0.02, "epochs": 3}, "start slowly"
)


class Model:
    """Says what it is told to, and remembers what it was asked."""

    name = "model"

    def __init__(self, *says: Decision | Said) -> None:
        self.says = says
        self.asked: list[Observation] = []

    def describe(self) -> dict[str, Any]:
        return {"model": "a-model", "mode": "iterative_self_refine"}

    def decide(self, observation: Observation) -> Sequence[Decision | Said]:
        self.asked.append(observation)
        return self.says


def decide(
    model: Model, seen: Observation
) -> tuple[list[Decision | Said], list[Transcript.CallMade]]:
    log = MemoryLog()
    said = MixedPolicy(model, log=log).decide(seen)
    return said, log.events(Transcript.CallMade)


FAILED = past("R1", 1)  # fires again three epochs later


def seen_after(remedy: Any, **changes: Any) -> Observation:
    high = tuple(signals(epoch, update_ratio=0.5) for epoch in range(6))
    return observe(
        {"R1": "high", "R2": "low"}, decisions=(remedy,) if remedy else (), history=high, **changes
    )


def test_playbook_decides_alone_where_it_is_sure() -> None:
    model = Model(Said(WARM_UP))
    seen = seen_after(None)
    said, calls = decide(model, seen)
    assert said == PlaybookPolicy().decide(seen)
    assert model.asked == []
    (call,) = calls
    assert (call.agent, call.action, call.rules) == ("playbook", "decide", ["R1", "R2"])
    assert (call.seconds >= 0, call.model, call.usage) == (True, None, None)


def test_model_is_asked_about_the_rule_alone_whose_last_remedy_did_not_work() -> None:
    model = Model(Said(WARM_UP))
    said, _ = decide(model, seen_after(FAILED))
    assert [asked.due for asked in model.asked] == [("R1",)]
    assert said[0] == Said(WARM_UP)
    assert isinstance(said[1], Decision)
    assert (said[1].cites, said[1].params) == (("R2",), {"deferred_to": "R1"})


def test_playbook_is_sure_of_a_rule_whose_last_remedy_worked_or_is_too_young() -> None:
    quiet = tuple(signals(epoch, signal_to_noise=1.0) for epoch in range(6))
    for remedy in (past("R1", 1), past("R1", 4)):
        model = Model(Said(WARM_UP))
        decide(model, observe({"R1": "high"}, decisions=(remedy,), history=quiet))
        assert model.asked == []


def test_model_is_asked_where_every_remedy_of_the_playbook_is_at_its_limit() -> None:
    spec = dataclasses.replace(
        SPEC, blocks=(dataclasses.replace(SPEC.blocks[0], width=MAX_WIDTH),) * MAX_BLOCKS
    )
    wait = Decision(NO_ACTION, ("R4",), DEFER, {}, "it learns still")
    model = Model(Said(wait))
    said, _ = decide(model, observe({"R4": "stalled"}, spec=spec))
    assert [asked.due for asked in model.asked] == [("R4",)]
    assert said == [Said(wait)]
    control = Model(Said(wait))
    decide(control, observe({"R4": "stalled"}))
    assert control.asked == []


def test_playbook_stands_where_the_model_has_no_usable_answer() -> None:
    silence = Decision(NO_ACTION, ("R1",), DEFER, {}, "no usable answer: timeout")
    for model in (Model(Said(silence, source="driver")), Model()):
        seen = seen_after(FAILED)
        said, _ = decide(model, seen)
        assert len(model.asked) == 1
        assert said == PlaybookPolicy().decide(seen)


def test_description_names_the_model_and_the_playbook() -> None:
    told = MixedPolicy(Model(), log=MemoryLog()).describe()
    assert told["name"] == "mixed"
    assert told["model"] == "a-model"
    assert told["playbook"]["name"] == "playbook"


class Nowhere:
    """Saves nothing."""

    def save(self, *aggregates: Any) -> None:
        """Let it be."""


def seen_by(run: Run) -> Observation:
    return Observation(
        run_id=str(run.id),
        epoch=run.epoch,
        due=run.fired(),
        evaluations=run.evaluations[run.epoch],
        settings=Settings(lr=0.1, batch_size=64),
        max_batch_size=256,
        train_examples=1000,
        spec=run.spec,
        history=tuple(run.history),
        decisions=tuple(run.decisions),
        waived=(),
        rules=CALIBRATED,
        edits="live",
    )


def test_rules_that_fired_earlier_are_those_that_the_run_recorded() -> None:
    run = synthetic_run(Nowhere(), epochs=12, exploding=range(2, 7), dead=range(4, 12))
    assert any(past.outcome == "applied" for past in run.decisions)
    recorded = [fired_in_precedence(run.evaluations[epoch]) for epoch in range(12)]
    assert list(fired_by_epoch(seen_by(run))) == recorded
    assert run.fired_rules == recorded
    assert set(recorded) >= {(), ("R5",), ("R7",)}


def test_what_the_run_recorded_is_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic_run(Nowhere(), epochs=12, exploding=range(2, 7), dead=range(4, 12))
    seen = seen_by(run)
    told = dataclasses.replace(seen, fired=tuple(run.fired_rules[:-1]))
    followed = situation(seen, 40)
    monkeypatch.setattr("policies.hindsight.evaluate_epochs", None)
    assert situation(told, 40) == followed
    assert fired_by_epoch(told)[:-1] == told.fired
