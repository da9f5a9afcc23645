"""One model, trained by two processes with DistributedDataParallel, as one watched run.

The values are those of one process with the joined batch. They differ by the order in which float32
numbers are added, about 1e-7 in a step, which the steps of an epoch make larger: hence 1e-4.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers import it: once here, not in each of the forked processes
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from aggregates.run import Run
from monitor.processes import Processes
from proctor.runs.watching import watch  # imported before the processes fork

X = torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)
EPOCHS = 3


def train(
    home: Path, rank: int, size: int, *, crash: bool = False, policy: str | None = "playbook"
) -> None:
    """Train on every size-th example of each batch, and keep the weights and what was decided."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)  # DistributedDataParallel gives all the weights of the first
    model: nn.Module = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    if size > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{home}/store", rank=rank, world_size=size
        )
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    said = []
    with watch(
        model,
        optimizer,
        name="together",
        batch_size=40 // size,
        train_examples=400,
        policy=policy,
        home=home,
    ) as run:
        for epoch in run.epochs(EPOCHS):
            for at in range(0, 400, 40):
                loss = cross_entropy(
                    model(X[at + rank : at + 40 : size]), Y[at + rank : at + 40 : size]
                )
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                if crash and rank == 1 and epoch == 1:
                    os._exit(9)
                run.step(loss)
            with torch.no_grad():
                loss = cross_entropy(model(X[400 + rank :: size]), Y[400 + rank :: size])
            said += run.validate(loss=float(loss))
        kept = {"weights": [p.detach().clone() for p in model.parameters()], "lr": run.lr}
        torch.save({**kept, "said": said, "id": run.id}, home / f"rank-{rank}.pt")


def wait(home: Path, rank: int, size: int, *, late: bool) -> None:
    """Gather values; the second process does not come before the first one has complained."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{home}/store", rank=rank, world_size=size
    )
    said = home / "said"
    if rank == 0:
        sys.stderr = said.open("w")
    while rank == 1 and late and not (said.exists() and said.read_text().endswith("\n")):
        time.sleep(0.05)
    assert Processes.joined().gather_json(rank) == [0, 1]


def start(
    home: Path, size: int, *, target: Callable[..., None] = train, **options: Any
) -> list[int | None]:
    """Train in forked processes, and return how they ended."""
    home.mkdir()
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=target, args=(home, rank, size), kwargs=options) for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def told(home: Path, rank: int) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(home / f"rank-{rank}.pt", weights_only=True)
    return loaded


def epochs_of(home: Path, run_id: str) -> list[Any]:
    events = events_of(home / "ledger", run_id)
    return [each for each in events if isinstance(each, Run.EpochMeasured)]


def assert_alike(one: Any, other: Any) -> None:
    if isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in other:
            assert_alike(one[key], other[key])
    elif isinstance(other, list):
        for each, value in zip(one, other, strict=True):
            assert_alike(each, value)
    else:
        assert one == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The homes of the same training by two processes and by one."""
    base = tmp_path_factory.mktemp("together")
    assert start(base / "two", 2) == [0, 0]
    assert start(base / "one", 1) == [0]
    return base / "two", base / "one"


def test_two_processes_measure_what_one_does_with_the_joined_batch(
    joined: tuple[Path, Path],
) -> None:
    two, one = joined
    found = epochs_of(two, told(two, 0)["id"])
    expected = epochs_of(one, told(one, 0)["id"])
    assert len(found) == EPOCHS
    for these, those in zip(found, expected, strict=True):
        assert_alike(these.measured, those.measured)
        assert_alike(these.reported["train"], those.reported["train"])
        assert_alike(these.reported["validation"], those.reported["validation"])


def test_decisions_of_the_first_process_reach_the_other(joined: tuple[Path, Path]) -> None:
    two, one = joined
    first, second, alone = told(two, 0), told(two, 1), told(one, 0)
    assert first["said"] == second["said"] == alone["said"] != []
    assert first["id"] == second["id"]
    assert first["lr"] == second["lr"] == pytest.approx(alone["lr"])
    assert first["lr"] < 2.0
    for here, there in zip(first["weights"], second["weights"], strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize("late", [True, False])
def test_process_that_waits_for_another_says_so(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        monkeypatch.setattr("monitor.processes.PATIENCE", 0.5)
    home = tmp_path / "home"
    assert start(home, 2, target=wait, late=late) == [0, 0]
    told = "proctor: process 0 of 2 has waited 0.5 seconds for the others; each process has to"
    assert (home / "said").read_text()[: len(told)] == (told if late else "")


@pytest.mark.slow
def test_run_of_two_processes_is_judged(joined: tuple[Path, Path]) -> None:
    home, _ = joined
    verdict = answer(call_here(["judge", told(home, 0)["id"], "--json"], home=home))
    assert {step["status"] for step in verdict["steps"]} == {"passed", "not_possible"}


@pytest.mark.slow
def test_crash_of_one_process_closes_the_run(tmp_path: Path) -> None:
    first, second = start(tmp_path / "home", 2, crash=True)
    assert (first, second) == (1, 9)
    (row,) = answer(
        call_here(
            ["sql", "SELECT end_reason FROM runs", "--format", "json"],
            home=tmp_path / "home",
        )
    )
    assert row == {"end_reason": "failed"}
