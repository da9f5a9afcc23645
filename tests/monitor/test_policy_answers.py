"""Whatever a policy answers, the run goes on, and what cannot be used is recorded as that."""

import math
from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import SPEC, measured
from torch import nn

from aggregates.decisions import Decision, Observation, Said, parse_decision
from aggregates.playbook import EVENT_TYPES, PARAMETER_TYPES, REMEDIES
from aggregates.registry import REGISTRY
from aggregates.rulebook import RULES
from aggregates.rules import PROFILES
from aggregates.run import SOURCES, Run
from aggregates.spec import Spec
from ledger.application import LedgerApplication
from monitor.answering import answer_rules
from monitor.config import AnyConfig, RunConfig, WatchConfig
from monitor.session import Session
from monitor.state import LiveState
from monitor.watched_model import WatchedState, describe_model
from monitor.watching import WatchedRun


class Text(str):
    """No plain text."""


class Whole(int):
    """No plain number."""


class Unreadable:
    """Raises wherever it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no words for it")


class Answers:
    """A policy that gives the same answer each time."""

    name = "answers"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation, /) -> Any:
        return self._answer


def begin(config: AnyConfig, spec: Spec) -> tuple[Session, LedgerApplication]:
    run = Run.start(
        config=config.to_dict(),
        rules=PROFILES[config.profile].to_dict(),
        spec=spec.to_dict(),
        data={},
        environment={},
        policy={"name": "answers"},
    )
    log = LedgerApplication.in_memory(REGISTRY)
    return Session(run, log=log), log


def in_training(answer: Any, *, edits: str = "live") -> Run:
    """Return a run whose loss is not finite in two epochs, and whose policy answers this."""
    config = RunConfig(lr=0.1, edits=edits)
    session, log = begin(config, SPEC)
    state = LiveState.start(config, SPEC, train_examples=192)
    for epoch in range(2):
        session.record_epoch(measured(epoch, diverged=True), {})
        assert session.run.fired() == ("R7",)
        if answer_rules(session, state, Answers(answer)) != "completed":
            break
    session.record(session.run.end, "completed")
    found: Run = log.repository.get(session.run.id)
    return found


def in_watched_loop(answer: Any, *, lr: float = 0.1) -> Run:
    """Return a watched run of the same kind."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    spec = describe_model(model, batches=True, classes=None)
    config = WatchConfig(
        level="measured",
        name="loop",
        batch_size=4,
        max_batch_size=64,
        lr=lr,
        optimizer="SGD",
        waived=tuple(rule for rule in RULES if rule != "R7"),
    )
    session, log = begin(config, spec)
    state = WatchedState(
        config, model, optimizer, spec=spec, set_batch_size=print, train_examples=64
    )
    run = WatchedRun(session, state, Answers(answer), model=model, optimizer=optimizer)
    for _ in run.epochs(2):
        loss = model(torch.ones(4, 2)).square().mean()
        loss.backward()
        run.step(loss)
        run.validate(loss=math.nan)
    run.close()
    found: Run = log.repository.get(session.run.id)
    return found


def decision(**changed: Any) -> Decision:
    plain: dict[str, Any] = {
        "event_type": "hyperparameter_change",
        "cites": ("R7",),
        "direction": "decrease_lr",
        "params": {"lr": 0.01},
        "justification": "too large",
    }
    return Decision(**{**plain, **changed})


def lowers(lr: Any) -> Decision:
    return decision(params={"lr": lr})


UNUSABLE: Mapping[str, Any] = {
    "lr must be a number from 1e-08 to 10, not 1e-09": [lowers(1e-9)],
    "lr must be a number from 1e-08 to 10, not 1e+308": [lowers(1e308)],
    "lr must be a number from 1e-08 to 10, not nan": [lowers(math.nan)],
    "lr must be a number from 1e-08 to 10, not -0.1": [lowers(-0.1)],
    "lr must be a number from 1e-08 to 10, not '0.1'": [lowers("0.1")],
    "Exceeds the limit": [lowers(10**5_000)],
    "no words for it": [lowers(Unreadable())],
    "batch_size must be a whole number from 1 to 65,536, not 0": [
        decision(direction="decrease_batch_size", params={"batch_size": 0})
    ],
    "cites must be a list": [decision(cites=["R7"] * 9 + ["R99"])],
    "cites names a rule more than once": [decision(cites=["R7"] * 100_000)],
    "R7, not None": [decision(cites=None)],
    "half of a surrogate pair": [decision(justification="\ud800")],
    "it is not a decision, but of the type str": "decrease_lr",
    "it is not a decision, but of the type Said": [Said("decrease_lr")],  # type: ignore[arg-type]
    "the driver may only answer with no action": [Said(decision(), "driver")],
    "source must be one of": [Said(decision(), "nobody")],
    "the answer is no list of decisions": None,
    "the answer has more than 64 decisions": repeat(decision()),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reason", UNUSABLE)
def test_unusable_answer_is_recorded_as_none_and_the_run_goes_on(reason: str) -> None:
    for run in (in_training(UNUSABLE[reason]), in_watched_loop(UNUSABLE[reason])):
        assert (run.epoch, run.end_reason) == (1, "completed")
        assert len(run.decisions) == 2
        for past in run.decisions:
            assert (past.source, past.decision.direction) == ("driver", "defer")
            assert past.decision.cites == ("R7",)
            assert past.decision.justification.startswith("no usable answer: ")
            assert reason in past.decision.justification


def test_usable_decisions_of_an_answer_are_carried_out_beside_unusable_ones() -> None:
    for run in (in_training([lowers(1.5e308), lowers(0.01)]), in_watched_loop([decision(), 3])):
        said = [(past.source, past.outcome) for past in run.decisions]
        assert said == [("policy", "applied"), ("policy", "refused")]  # 0.01 is no decrease again


VALUES = st.one_of(
    st.sampled_from([1, 2, 32, 64, 0.01, 1e-8, 1e-3, True, "gelu", "relu", "R1"]),
    st.sampled_from([0, -1, 2**31, 2**70, 10**5_000, 1e-9, 1e308, math.nan, math.inf, 5e-324]),
    st.sampled_from([None, b"1", "", "\ud800", Text("gelu"), Whole(2), Unreadable(), [1], {}]),
    st.sampled_from([np.float64(0.01), np.int64(2), torch.tensor(0.01), [0] * 10_000]),
)


def or_any(*usual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(usual) | VALUES if usual else VALUES


@st.composite
def decisions(draw: st.DrawFn) -> Any:
    direction = draw(or_any(*sorted(REMEDIES)))
    remedy = REMEDIES.get(direction) if type(direction) is str else None
    names = remedy.needs if remedy is not None and draw(st.booleans()) else (*PARAMETER_TYPES, 1)
    kind = remedy.event_type if remedy is not None else draw(or_any(*EVENT_TYPES))
    params = {name: draw(VALUES) for name in names if remedy is None or draw(st.integers(0, 9))}
    cites = draw(st.lists(or_any("R7", *RULES), max_size=2).map(tuple) | VALUES)
    made = Decision(
        kind,
        draw(st.sampled_from([("R7",), cites])),
        direction,
        draw(st.sampled_from([params, params, draw(VALUES)])),
        draw(or_any("because", "x" * 4_001, " ")),
    )
    return Said(made, draw(or_any(*SOURCES))) if draw(st.booleans()) else made


ANYTHING = st.lists(decisions() | VALUES, max_size=4) | VALUES


def goes_on(answer: Any) -> None:
    for run in (
        in_training(answer),
        in_training(answer, edits="restart"),
        in_watched_loop(answer),
        in_watched_loop(answer, lr=3e-9),
    ):
        assert run.end_reason in ("completed", "stopped")
        for past in run.decisions:
            parse_decision(past.decision.to_dict())


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(ANYTHING)
def test_no_answer_ends_a_run(answer: Any) -> None:
    goes_on(answer)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(ANYTHING)
def test_no_answer_of_many_ends_a_run(answer: Any) -> None:
    goes_on(answer)
