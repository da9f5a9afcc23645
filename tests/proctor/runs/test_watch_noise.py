"""The gradient noise of a watched loop: from the halves of its steps, or from a probe it gives."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.run import Run
from judge.auditing.measurements import verify_watched
from judge.errors import StepError
from monitor.watching import WatchedRun

pytestmark = pytest.mark.usefixtures("one_thread")

BATCH = 8


@dataclass
class Loop:
    """A loop of its owner: dropout, BatchNorm and momentum, several batches to a step."""

    accumulation: int
    scaled: bool = False
    epochs: int = 3
    examples: int = 8 * 40
    seen: list[list[Tensor]] = field(default_factory=list)  # gradients behind each backward pass

    def __post_init__(self) -> None:
        """Make model, optimizer and data."""
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.x = torch.randn(self.examples, 6)
        self.y = torch.randint(0, 3, (self.examples,))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if self.scaled else None
        self.batch = BATCH
        self.drawn = torch.Generator().manual_seed(5)

    def loss(self, at: Tensor) -> Tensor:
        return cross_entropy(self.model(self.x[at]), self.y[at])

    def probe(self) -> Tensor:
        return self.loss(torch.randint(0, self.examples, (self.batch,), generator=self.drawn))

    def train(self, run: WatchedRun | None) -> dict[str, Tensor]:
        for epoch in range(self.epochs) if run is None else run.epochs(self.epochs):
            order = torch.randperm(
                self.examples, generator=torch.Generator().manual_seed(int(epoch))
            )
            for number, at in enumerate(torch.split(order, self.batch), start=1):
                loss = self.loss(at)
                part = loss / self.accumulation
                (part if self.scaler is None else self.scaler.scale(part)).backward()  # type: ignore[no-untyped-call]
                self.seen.append([_grad(each) for each in self.model.parameters()])
                update = number % self.accumulation == 0
                if run is not None:
                    run.step(loss, update=update, scaler=self.scaler)
                elif update and self.scaler is not None:
                    self.scaler.unscale_(self.optimizer)
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                    self.optimizer.zero_grad()
                elif update:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            if run is not None:
                run.validate(loss=1.0)
        return {name: each.clone() for name, each in self.model.state_dict().items()}

    def watch(self, home: Path, *, probe: Callable[[], Tensor] | None = None, **more: Any) -> Any:
        known = {"name": "noise", "batch_size": self.batch, "accumulation": self.accumulation}
        given: Any = {**known, "say": lambda _: None, **more}
        return proctor.watch(self.model, self.optimizer, probe=probe, home=home, **given)


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.clone()


def gradients_of(home: Path, run: str) -> list[dict[str, Any]]:
    found = events_of(home / "ledger", run)
    return [each.measured["gradients"] for each in found if isinstance(each, Run.EpochMeasured)]


@pytest.mark.parametrize(
    ("accumulation", "scaled", "probes"),
    [(1, False, False), (2, False, False), (5, True, False), (1, False, True), (2, True, True)],
)
def test_watching_the_noise_changes_no_weight(
    accumulation: int, scaled: bool, probes: bool, tmp_path: Path
) -> None:
    plain = Loop(accumulation, scaled).train(None)
    loop = Loop(accumulation, scaled)
    with loop.watch(tmp_path, probe=loop.probe if probes else None) as run:
        watched = loop.train(run)
    assert all(torch.equal(value, watched[name]) for name, value in plain.items())
    measures = accumulation > 1 or probes
    assert all(bool(each["probes"]) == measures for each in gradients_of(tmp_path, run.id))


@pytest.mark.parametrize(("accumulation", "scaled"), [(2, False), (4, True), (5, False)])
def test_halves_of_a_step_are_a_probe(accumulation: int, scaled: bool, tmp_path: Path) -> None:
    loop = Loop(accumulation, scaled, epochs=1)
    with loop.watch(tmp_path) as run:
        loop.train(run)
    (found,) = gradients_of(tmp_path, run.id)
    half, steps = accumulation // 2, 40 // accumulation
    assert found["probe_share"] == half / accumulation
    assert len(found["probes"]) == -(-steps // 16)
    first, both = loop.seen[half - 1], loop.seen[2 * half - 1]
    times = accumulation / half / (64.0 if scaled else 1.0)
    one = torch.cat([(each * times).flatten() for each in first]).double()
    two = torch.cat([(b - a).flatten() * times for a, b in zip(first, both, strict=True)]).double()
    product, square = found["probes"][0]
    assert product == pytest.approx(float(one @ two), rel=1e-5, abs=1e-9)
    assert square == pytest.approx(float(one @ one + two @ two) / 2, rel=1e-5)
    judged = answer(call_here(["judge", "--json"], home=tmp_path))
    assert not judged["hard_fail"]


def test_step_of_another_number_of_batches_is_no_probe(tmp_path: Path) -> None:
    loop = Loop(2, epochs=1)
    with loop.watch(tmp_path, accumulation=4) as run:  # the loop takes its step after two
        loop.train(run)
    (found,) = gradients_of(tmp_path, run.id)
    assert found["probes"] == []
    assert found["signal_to_noise"] is None


def test_rule_r2_acts_on_noise_in_a_watched_loop(tmp_path: Path) -> None:
    loop = Loop(2, epochs=5, examples=640)  # labels at random: nothing but noise
    sizes: list[int] = []
    with loop.watch(
        tmp_path,
        policy="playbook",
        train_examples=640,
        max_batch_size=64,
        set_batch_size=sizes.append,
        waived=("R1", "R3", "R5"),
    ) as run:
        loop.train(run)
    assert sizes
    assert sizes[0] == 2 * BATCH
    shown = call_here(["show", run.id], home=tmp_path).stdout
    assert "increase_batch_size" in shown
    assert "waived R2" not in shown


def test_pages_say_that_r2_is_waived_where_nothing_measures_the_noise(tmp_path: Path) -> None:
    loop = Loop(1, epochs=1)
    batches: Any = {"policy": "playbook", "train_examples": 320, "set_batch_size": lambda _: None}
    with loop.watch(tmp_path, **batches) as run:
        loop.train(run)
    told = "nothing measures its noise: give watch() an accumulation of 2 or more, or a probe"
    for command in (["show", run.id], ["judge"]):
        page = " ".join(call_here(command, home=tmp_path).stdout.split())
        assert f"waived R2: {told}" in page, command
    report = tmp_path / "report.html"
    call_here(["report", run.id, "--out", str(report)], home=tmp_path)
    assert f"R2, {told}" in " ".join(report.read_text().split())
    control = Loop(1, epochs=1)
    with control.watch(tmp_path / "probed", probe=control.probe, **batches) as run:
        control.train(run)
    assert "R2" not in call_here(["judge"], home=tmp_path / "probed").stdout.partition("waived")[2]


@pytest.mark.parametrize("given", [0.5, torch.tensor(0.5), torch.zeros(2, requires_grad=True)])
def test_probe_that_returns_no_loss_is_refused(given: Any, tmp_path: Path) -> None:
    loop = Loop(1)
    refused = pytest.raises(proctor.WatchError, match=r"probe\(\) must return the mean loss")
    with refused, loop.watch(tmp_path, probe=lambda: given) as run:
        loop.train(run)


def test_probe_without_a_model_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(proctor.WatchError, match="probe= needs a model")
    given: Any = {"name": "x", "batch_size": 1, "home": tmp_path}
    with refused, proctor.watch(None, None, probe=Loop(1).probe, **given):
        pass


def test_recorded_noise_that_no_watched_loop_can_have_is_rejected(tmp_path: Path) -> None:
    loop = Loop(2, epochs=1)
    with loop.watch(tmp_path) as run:
        loop.train(run)
    (event,) = [
        each
        for each in events_of(tmp_path / "ledger", run.id)
        if isinstance(each, Run.EpochMeasured)
    ]
    verify_watched(event.measured, event.reported, level="measured")
    gradients = event.measured["gradients"]
    for wrong, told in (
        ({"probe_share": 0.25}, "no half of a step"),
        ({"probes": [[0.1, 1.0]] * 3}, "3 probes, expected 2"),
        ({"signal_to_noise": math.pi}, "from the recorded probes"),
    ):
        forged = {**event.measured, "gradients": {**gradients, **wrong}}
        with pytest.raises(StepError, match=told):
            verify_watched(forged, event.reported, level="measured")
