"""Phases of a run and effects of remedies, from firings written by hand."""

import random

import pytest

from aggregates.decisions import Decision, PastDecision
from aggregates.playbook import DEFER, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.strategy import EFFECT_WINDOW, Effect, Phase, phases, remedy_effects


def acted(number: int, rule: str, epoch: int, outcome: str = "applied") -> PastDecision:
    decision = Decision(HYPERPARAMETER_CHANGE, (rule,), "decrease_lr", {"lr": 0.01}, "lower")
    return PastDecision(number, epoch, "policy", decision, outcome)


def test_phases_are_those_that_the_run_has_reached() -> None:
    assert phases([]) == ()
    assert [(p.name, p.first, p.last) for p in phases([()] * 5)] == [("stabilise", 0, 4)]
    assert [(p.name, p.first, p.last) for p in phases([()] * 50)] == [
        ("stabilise", 0, 4),
        ("capacity", 5, 14),
        ("tune", 15, 34),
        ("process", 35, 49),
    ]


def test_phase_is_dominated_by_the_class_whose_rules_fired_most() -> None:
    fired = [("R7", "R1"), ("R6",), (), (), ("R7",), ("R1",), ("R2", "R1"), ("R4",)]
    first, second = phases(fired)
    assert first == Phase(
        "stabilise", 0, 4, "stability", "stability", {"stability": 3, "tuning": 1}
    )
    assert second == Phase("capacity", 5, 7, "capacity", "tuning", {"capacity": 1, "tuning": 3})


def test_classes_that_fired_alike_are_told_apart_by_precedence() -> None:
    assert phases([("R3", "R1", "R5")])[0].dominant == "capacity"
    assert phases([()])[0].dominant is None


@pytest.mark.parametrize(
    ("fired", "worked"),
    [
        ([("R7",)], None),
        ([("R7",), (), ()], None),
        ([("R7",), (), (), ()], True),
        ([("R7",), ("R7",), (), ()], True),  # lagged and fell silent
        ([("R7",), (), (), ("R7",)], False),
        ([("R7",), (), (), (), ("R7",)], True),  # another trouble
        ([("R7",), ("R1",), ("R1",), ("R1",)], True),
    ],
)
def test_remedy_has_worked_if_its_rule_is_silent_three_epochs_later(
    fired: list[tuple[str, ...]], worked: bool | None
) -> None:
    assert remedy_effects(fired, [acted(1, "R7", 0)]) == (Effect(1, "R7", 0, worked),)


@pytest.mark.parametrize("between", [("R7",), ()])  # a rule may be cited two epochs later
def test_remedy_has_not_worked_if_another_was_needed_before(between: tuple[str, ...]) -> None:
    fired = [("R7",), between, (), (), ()]
    assert remedy_effects(fired, [acted(1, "R7", 0), acted(2, "R7", 1)]) == (
        Effect(1, "R7", 0, worked=False),
        Effect(2, "R7", 1, worked=True),
    )
    assert remedy_effects(fired, [acted(1, "R7", 0), acted(2, "R1", 1)])[0].worked


def test_only_what_was_applied_has_an_effect() -> None:
    deferral = Decision(NO_ACTION, ("R7",), DEFER, {}, "not now")
    decisions = [
        PastDecision(1, 0, "policy", deferral, None),
        acted(2, "R7", 0, "refused"),
        acted(3, "R7", 0, "restart"),
    ]
    assert remedy_effects([("R7",)] * 9, decisions) == ()


def test_effects_of_many_remedies_are_those_that_each_has_by_itself() -> None:
    draws = random.Random(5)
    for _ in range(40):
        epochs = sorted(draws.choices(range(12), k=9))
        decisions = [
            acted(number, draws.choice(("R1", "R7")), epoch, draws.choice(("applied", "refused")))
            for number, epoch in enumerate(epochs, start=1)
        ]
        fired = [tuple(draws.sample(("R1", "R7"), draws.randint(0, 2))) for _ in range(12)]
        applied = [past for past in decisions if past.outcome == "applied"]
        plain = []
        for past in applied:
            rule, epoch = past.decision.cites[0], past.epoch
            again = [
                e.epoch
                for e in applied
                if e.decision.cites[0] == rule and e.number > past.number and e.epoch > epoch
            ]
            told = min([epoch + EFFECT_WINDOW, *again])
            worked = None if told >= 12 else told not in again and rule not in fired[told]
            plain.append(Effect(past.number, rule, epoch, worked))
        assert remedy_effects(fired, decisions) == tuple(plain)
