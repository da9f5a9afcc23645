"""A training loop of one's own under watch, from the Python API to the verdict."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.run import Run
from monitor.errors import WatchError

X = torch.randn(1_000, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))


def epochs_of(home: Path, run_id: str) -> list[Any]:
    events = events_of(home / "ledger", run_id)
    return [event.measured for event in events if isinstance(event, Run.EpochMeasured)]


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for at in range(0, 800, 50):
        yield X[at : at + 50], Y[at : at + 50]


def train(model: nn.Module, run: proctor.WatchedRun, epochs: int) -> list[list[str]]:
    decided = []
    for _ in run.epochs(epochs):
        for x, y in batches():
            loss = cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
        with torch.no_grad():
            out = model(X[800:])
        right = (out.argmax(dim=1) == Y[800:]).float().mean()
        decided.append(run.validate(loss=float(cross_entropy(out, Y[800:])), accuracy=float(right)))
    return decided


def test_watched_run_is_recorded_and_judged_as_what_it_is(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with proctor.watch(
        model, optimizer, name="my run", batch_size=50, classes=3, home=tmp_path
    ) as run:
        decided = train(model, run, 4)
    assert decided[0] == ["decrease_lr for R1: applied"]
    assert optimizer.param_groups[0]["lr"] == 0.01  # which belongs to the loop
    assert run.lr < 0.01
    verdict = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    by_name = {step["name"]: step["status"] for step in verdict["steps"]}
    assert {name for name, status in by_name.items() if status == "passed"} == {
        "coverage",
        "defensibility",
        "ledger",
        "scores",
    }
    assert set(by_name.values()) == {"passed", "not_possible"}
    assert verdict["scores"]["accuracy_score"] is None
    (row,) = answer(
        call_here(
            ["sql", "SELECT level, dataset, epochs_planned FROM runs", "--format", "json"],
            home=tmp_path,
        )
    )
    assert row == {"level": "measured", "dataset": "my run", "epochs_planned": None}


def test_values_are_those_of_a_loop_that_nobody_watches(tmp_path: Path) -> None:
    plain, watched = mlp(), mlp()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    for _ in range(2):
        for x, y in batches():
            optimizer.zero_grad()
            cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]  # has no types
            optimizer.step()
    own = torch.optim.SGD(watched.parameters(), lr=0.01)
    with proctor.watch(
        watched, own, name="same", batch_size=50, policy="nothing", home=tmp_path
    ) as run:
        train(watched, run, 2)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_losses_alone_are_a_level_of_their_own(tmp_path: Path) -> None:
    with proctor.watch(None, None, name="told", batch_size=8, home=tmp_path) as run:
        for _ in run.epochs(12):
            run.step(torch.tensor(1.0))
            said = run.validate(loss=1.0)
    assert said == ["stop for R3: applied"]
    assert run.stopped
    verdict = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert not verdict["hard_fail"]
    found = call_here(["show", run.id], home=tmp_path).stdout
    assert "stopped after" in found


def test_wrong_order_is_an_error_and_closes_the_run(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with (
        pytest.raises(WatchError, match=r"call run\.validate"),
        proctor.watch(model, optimizer, name="odd", batch_size=50, home=tmp_path) as run,
    ):
        for _ in run.epochs(2):
            pass
    (row,) = answer(
        call_here(
            ["sql", "SELECT end_reason FROM runs", "--format", "json"],
            home=tmp_path,
        )
    )
    assert row == {"end_reason": "failed"}


def test_step_that_the_loss_scaler_leaves_out_is_not_measured(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    with proctor.watch(
        model, optimizer, name="half", batch_size=50, policy="nothing", home=tmp_path
    ) as run:
        for epoch in run.epochs(2):
            for number, (x, y) in enumerate(batches()):
                loss = cross_entropy(model(x), y) * (1e20 if number < 2 and epoch == 0 else 1.0)
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss, scaler=scaler)
            run.validate(loss=1.0)
    first, second = epochs_of(tmp_path, run.id)
    assert first["gradients"]["finite"]
    assert (first["train"]["steps"], second["train"]["steps"]) == (14, 16)


def test_framework_that_takes_the_step_itself_gives_the_same_measurements(tmp_path: Path) -> None:
    found = []
    for halves in (False, True):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        home = tmp_path / str(halves)
        with proctor.watch(
            model, optimizer, name="halves", batch_size=50, policy="nothing", home=home
        ) as run:
            for _ in run.epochs(2):
                for x, y in batches():
                    loss = cross_entropy(model(x), y)
                    loss.backward()  # type: ignore[no-untyped-call]  # has no types
                    if halves:
                        run.add_loss(loss)
                        run.before_update()
                        optimizer.step()
                        optimizer.zero_grad()
                    else:
                        run.step(loss)
                run.validate(loss=1.0)
        found.append(epochs_of(home, run.id))
    assert found[0] == found[1]
