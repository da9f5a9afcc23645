"""A watched loop goes back to an earlier state, where a policy is named that asks for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, FRESH, GO_BACK, TRY_RATES
from aggregates.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

X = torch.randn(400, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.002, momentum=0.9),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.002),
    "fused Adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.002, fused=True),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.002),
}


class Says:
    """Answers R1 as it is told to, and defers the rest."""

    name = "says"

    def __init__(
        self, answer: Callable[[Observation], dict[str, Any] | None], direction: str = GO_BACK
    ) -> None:
        self.answer = answer
        self.direction = direction
        self.seen: list[Observation] = []

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, seen: Observation) -> Sequence[Decision]:
        self.seen.append(seen)
        params = self.answer(seen)
        return [
            Decision.of((rule,), self.direction, params, "for the test")
            if params is not None and rule == "R1"
            else Decision.of((rule,), DEFER, {}, "not asked")
            for rule in seen.due
        ]


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    memory = [optimizer.state.get(each, {}) for each in model.parameters()]
    parts = [*model.state_dict().values(), *(v for each in memory for v in each.values())]
    return [each.clone() if isinstance(each, Tensor) else each for each in parts]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )


def train(
    run: proctor.WatchedRun,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    hot: int,
    losses: Sequence[float] = (1.0,) * 4,
) -> list[tuple[list[Any], list[Any]]]:
    """Train epochs, one of them in steps that are far too long; return states around each.

    `losses` are what the loop says of its validation.
    """
    states = []
    for epoch in run.epochs(len(losses)):
        for at in range(0, 400, 50):
            loss = cross_entropy(model(X[at : at + 50]), Y[at : at + 50])
            if epoch == hot:
                for group in optimizer.param_groups:
                    group["lr"] = 3.0
            torch.autograd.backward(loss)
            run.step(loss.detach())
        for group in optimizer.param_groups:
            group["lr"] = 0.002
        before = state_of(model, optimizer)
        run.validate(loss=losses[epoch])
        states.append((before, state_of(model, optimizer)))
    return states


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("to", ["sound", "start"])
def test_weights_and_the_optimizers_memory_are_those_of_the_earlier_epoch(
    name: str, to: str, tmp_path: Path
) -> None:
    model = mlp()
    optimizer = OPTIMIZERS[name](model)
    begin = state_of(model, optimizer)

    def back(seen: Observation) -> dict[str, Any] | None:
        if seen.epoch != 2:
            return None
        rate = seen.settings.lr * 0.004 / float(seen.evaluations["R1"].value or 1)
        return {"epoch": seen.back[1] if to == "sound" else FRESH, "lr": rate}

    policy = Says(back)
    with proctor.watch(
        *(model, optimizer),
        name="back",
        batch_size=50,
        policy=policy,
        home=tmp_path,
    ) as run:
        states = train(run, model, optimizer, hot=2)
    (hot,) = (seen for seen in policy.seen if seen.epoch == 2)
    assert hot.back == (FRESH, 1, 2)
    wanted = states[1][0] if to == "sound" else begin
    assert not same(states[2][0], wanted)
    assert same(states[2][1], wanted)
    events = events_of(tmp_path / "ledger", run.id)
    (applied,) = (each for each in events if type(each) is Run.RemedyApplied)
    assert {"what": "epoch", "from": 2, "to": 1 if to == "sound" else FRESH} in applied.changes
    verdict = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert not verdict["violations"]
    assert not verdict["hard_fail"]


class _Muted(nn.Module):
    """Two layers without an activation that can be swapped; R6 fires for one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.loud, self.muted = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.loud(x) + 1e-4 * self.muted(x)
        return said


@pytest.mark.parametrize("policy", [None, "playbook", "random", "rescue"])
def test_firing_that_asks_for_another_activation_is_survived_where_there_is_none(
    policy: str | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = _Muted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(20, 4)
    with proctor.watch(
        model, optimizer, name="muted", batch_size=20, policy=policy, home=tmp_path
    ) as run:
        for _ in run.epochs(3):
            for _ in range(4):
                loss = (model(x) - 1.0).pow(2).mean()
                torch.autograd.backward(loss)
                run.step(loss)
            run.validate(loss=1.0)
    events = events_of(tmp_path / "ledger", run.id)
    evaluated = [event for event in events if isinstance(event, Run.RulesEvaluated)]
    assert any(event.evaluations["R6"]["fired"] for event in evaluated)


@pytest.mark.parametrize(
    ("name", "to"), [*zip(OPTIMIZERS, ("sound", "start", "present", "start"), strict=True)]
)
def test_rates_are_tried_from_one_state_and_the_best_goes_on(
    name: str, to: str, tmp_path: Path
) -> None:
    model = mlp()
    optimizer = OPTIMIZERS[name](model)
    begin = state_of(model, optimizer)
    rates = [0.002, 0.0005, 0.0001]

    def tries(seen: Observation) -> dict[str, Any] | None:
        epoch = {"sound": 1, "start": FRESH, "present": 2}[to]
        return {"epoch": epoch, "rates": rates} if seen.epoch == 2 else None

    said: list[str] = []
    with proctor.watch(
        *(model, optimizer),
        name="tries",
        epochs=8,
        batch_size=50,
        policy=Says(tries, TRY_RATES),
        home=tmp_path,
        say=said.append,
    ) as run:
        losses = (1.0, 1.0, 9.0, 0.7, 0.5, 0.6, 0.5, 0.5)
        states = train(run, model, optimizer, hot=2, losses=losses)
    wanted = {"sound": states[1][0], "start": begin, "present": states[2][0]}[to]
    assert all(same(states[epoch][1], wanted) for epoch in (2, 3, 4))
    assert same(states[5][1], states[4][0])  # the best trial's
    measured = [e for e in events_of(tmp_path / "ledger", run.id) if type(e) is Run.EpochMeasured]
    tried = [*rates, 0.0005, 0.0005]
    assert [each.measured["settings"]["lr"] for each in measured[3:]] == tried
    assert [max(each.reported["lr"]) for each in measured[3:]] == pytest.approx(tried)
    assert "learning rate 0.0005 was tried: loss 0.5; 0.0001 next" in said
    assert "learning rate 0.0001 was tried: loss 0.6; 0.0005 from the end of epoch 4" in said
    verdict = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert not verdict["violations"] or to == "present"  # what was ruined fires again
    assert not verdict["hard_fail"]


def test_loop_without_a_known_end_tries_nothing(tmp_path: Path) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["AdamW"](model)
    policy = Says(lambda _: None)
    with proctor.watch(
        *(model, optimizer),
        name="open",
        batch_size=50,
        policy=policy,
        home=tmp_path,
    ) as run:
        train(run, model, optimizer, hot=2)
    assert all(seen.back and not seen.tries for seen in policy.seen)


def test_loop_that_is_only_observed_is_never_sent_back(tmp_path: Path) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["AdamW"](model)
    with proctor.watch(model, optimizer, name="seen", batch_size=50, home=tmp_path) as run:
        states = train(run, model, optimizer, hot=2)
    assert all(same(before, after) for before, after in states)


def test_reported_loss_that_is_not_finite_sends_nothing_back(tmp_path: Path) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["AdamW"](model)
    with proctor.watch(
        *(model, optimizer),
        name="nan",
        batch_size=50,
        policy="rescue",
        home=tmp_path,
    ) as run:
        for _ in run.epochs(2):
            loss = cross_entropy(model(X[:50]), Y[:50])
            torch.autograd.backward(loss)
            run.step(loss.detach())
            before = state_of(model, optimizer)
            run.validate(loss=float("nan"))
            assert same(before, state_of(model, optimizer))


class _Counting(torch.optim.SGD):
    """Remembers something beside the parameters' own memory, and shows all of it to others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.002, momentum=0.9)
        self.counts = cast(Any, self.state)
        self.counts["all"] = {"steps": 0}

    def step(self, closure: Any = None) -> Any:
        self.counts["all"]["steps"] += 1
        return super().step(closure)


def test_what_an_optimizer_remembers_beside_and_shares_is_put_back(tmp_path: Path) -> None:
    model = mlp()
    optimizer = _Counting(model)
    policy = Says(lambda seen: {"epoch": 1, "lr": 0.001} if seen.epoch == 2 else None)
    steps = []
    with proctor.watch(
        *(model, optimizer), name="own", batch_size=50, policy=policy, home=tmp_path
    ) as run:
        for _ in train(run, model, optimizer, hot=2):
            steps.append(optimizer.counts["all"]["steps"])
    assert optimizer.counts is optimizer.state
    assert steps == [24] * 4  # 8 an epoch, and 8 of the four epochs' 32 were undone


def test_buffer_of_another_shape_is_a_reason_to_refuse(tmp_path: Path) -> None:
    model = mlp()
    model.register_buffer("table", torch.zeros(1))
    optimizer = OPTIMIZERS["SGD"](model)

    def back(seen: Observation) -> dict[str, Any] | None:
        if seen.epoch != 2:
            return None
        model.table = torch.ones(20)
        return {"epoch": FRESH, "lr": 0.001}

    with proctor.watch(
        *(model, optimizer), name="grown", batch_size=50, policy=Says(back), home=tmp_path
    ) as run:
        train(run, model, optimizer, hot=2)
    events = events_of(tmp_path / "ledger", run.id)
    (refused,) = (each for each in events if type(each) is Run.RemedyRefused)
    assert "table had another shape in the state that was kept" in refused.reason
    assert torch.equal(dict(model.named_buffers())["table"], torch.ones(20))
    assert not answer(call_here(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]
