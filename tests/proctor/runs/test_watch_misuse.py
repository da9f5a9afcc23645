"""A watched loop that is used wrongly, or that breaks: each with what is said and recorded."""

import fcntl
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from frontdoor import answer, call, call_here
from judge_cases import Case, events_of, failed
from torch import nn
from torch.nn.functional import cross_entropy

import policies.errors
import proctor
from aggregates.decisions import Decision, Observation
from ledger.application import LedgerApplication
from monitor.errors import MonitorError, PolicyError, WatchError
from proctor.errors import ProctorError
from proctor.home import Home, run_ids

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = X.argmax(dim=1) % 3


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two steps on 64 examples are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all: each run is another."""
    return tmp_path_factory.mktemp("home")


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def sgd(model: nn.Module, lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def watch(
    home: Path, model: nn.Module, optimizer: Any = None, **options: Any
) -> AbstractContextManager[proctor.WatchedRun]:
    options = {"policy": "nothing", "batch_size": 32, "name": "odd", **options}
    return proctor.watch(model, optimizer or sgd(model), home=home, **options)


def loss_of(model: nn.Module) -> torch.Tensor:
    return cross_entropy(model(X), Y)


def step(model: nn.Module, run: proctor.WatchedRun, factor: float = 1.0) -> torch.Tensor:
    loss = loss_of(model) * factor
    loss.backward()  # type: ignore[no-untyped-call]  # has no types
    run.step(loss)
    return loss


def in_epoch(run: proctor.WatchedRun, act: Callable[[], object]) -> None:
    run.begin_epoch()
    act()


def end_of(home: Path, run: proctor.WatchedRun | str) -> tuple[str, str]:
    ended = events_of(home / "ledger", run if isinstance(run, str) else run.id)[-1]
    return ended.reason, ended.detail


def add_layer(model: nn.Module, optimizer: Any, run: proctor.WatchedRun) -> None:
    step(model, run)
    model.append(nn.Linear(3, 3))  # type: ignore[operator]
    run.validate(loss=1.0)


def freeze(model: nn.Module, optimizer: Any, run: proctor.WatchedRun) -> None:
    step(model, run)
    model.requires_grad_(False)
    run.validate(loss=1.0)


def own_step(model: nn.Module, optimizer: Any, run: proctor.WatchedRun) -> None:
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def step_twice(model: nn.Module, optimizer: Any, run: proctor.WatchedRun) -> None:
    step(model, run)
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def twice(model: nn.Module, optimizer: Any, run: proctor.WatchedRun) -> None:
    run.begin_epoch()


Wrong = Callable[[nn.Module, Any, proctor.WatchedRun], object]
WRONG: Sequence[tuple[str, Wrong]] = [
    ("no parameter has a gradient", lambda m, _o, run: run.step(loss_of(m))),
    (r"not one of shape \(64,\)", lambda m, _o, run: run.step(m(X)[:, 0])),
    ("scalar loss, not 'low'", lambda _m, _o, run: run.step("low")),  # type: ignore[arg-type]
    ("has no step", lambda _m, _o, run: run.validate(loss=1.0)),
    ("an epoch is open", twice),
    ("remove optimizer.step", own_step),
    ("remove optimizer.step", step_twice),
    ("has other parameters", add_layer),
    ("has no trainable parameter", freeze),
    (
        "loss must be a number, not None",
        lambda m, _o, run: (step(m, run), run.validate(loss=None)),  # type: ignore[arg-type]
    ),
    (
        "accuracy is from 0 to 1, not 93",
        lambda m, _o, run: (step(m, run), run.validate(loss=1.0, accuracy=93)),
    ),
]


@pytest.mark.parametrize(("says", "wrong"), WRONG)
def test_wrong_use_names_the_mistake(home: Path, says: str, wrong: Wrong) -> None:
    model = mlp()
    optimizer = sgd(model)
    with (
        pytest.raises(WatchError, match=says),
        watch(home, model, optimizer) as run,
    ):
        in_epoch(run, lambda: wrong(model, optimizer, run))
    with pytest.raises(WatchError, match="ended as failed"):
        run.begin_epoch()
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_wrong_use_closes_the_run(home: Path) -> None:
    model = mlp()
    with pytest.raises(ZeroDivisionError), watch(home, model) as run:
        in_epoch(run, lambda: 1 / 0)
    assert end_of(home, run) == ("failed", "ZeroDivisionError: division by zero")
    with pytest.raises(KeyboardInterrupt), watch(home, model) as run:
        signal.raise_signal(signal.SIGINT)
    assert end_of(home, run)[0] == "interrupted"
    with watch(home, model) as run:
        for _ in run.epochs(3):
            step(model, run)
            break
    assert end_of(home, run) == ("completed", "the loop left epoch 0 unfinished")


WRONG_ARGUMENTS: Sequence[tuple[str, dict[str, Any]]] = [
    ("updates no trainable parameter", {"optimizer": sgd(mlp())}),
    ("no trainable parameter", {"model": mlp().requires_grad_(False)}),
    ("a policy is a name, or an object", {"policy": object()}),
    ("batch_size", {"batch_size": 0}),
    ("classes", {"classes": 1}),
    ("lr must be a finite number from 0, not inf", {"lr": math.inf}),
    ("unknown policy|Unknown policy", {"policy": "noting"}),
]


@pytest.mark.parametrize(("says", "options"), WRONG_ARGUMENTS)
def test_wrong_argument_records_nothing(tmp_path: Path, says: str, options: dict[str, Any]) -> None:
    options = dict(options)
    model = options.pop("model", None) or mlp()
    if lr := options.pop("lr", None):
        options["optimizer"] = sgd(model, lr)
    with pytest.raises(Exception, match=says) as raised, watch(tmp_path, model, **options):
        pass
    assert isinstance(raised.value, MonitorError | ProctorError | policies.errors.PolicyError)
    assert not (tmp_path / "ledger").exists()


class Raises:
    name = "raises"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation, /) -> Sequence[Decision]:
        raise RuntimeError("no idea")


def test_nan_loss_fires_and_a_policy_that_raises_is_named(home: Path) -> None:
    model = mlp()
    with (
        pytest.raises(PolicyError, match="policy raises raised RuntimeError: no idea"),
        watch(home, model, policy=Raises()) as run,
    ):
        in_epoch(run, lambda: (step(model, run, factor=math.nan), run.validate(loss=math.nan)))
    assert run._session.run.fired() == ("R7",)
    assert end_of(home, run)[0] == "failed"


def begin_and_be_killed(home: Path) -> None:
    child = os.fork()
    if child == 0:
        with watch(home, mlp(), name="killed") as run:
            run.begin_epoch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_killed_run_is_closed_as_crashed_by_the_next_command(home: Path) -> None:
    begin_and_be_killed(home)
    with Home(home).open_log() as log:  # as any command does
        assert end_of(home, str(run_ids(log)[-1]))[0] == "crashed"


def test_run_that_begins_while_a_command_looks_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock was there and free, and is held when the ledger has been read."""
    begin_and_be_killed(home)
    (lock,) = (home / "runs").glob("*/running.lock")
    read = LedgerApplication.readable
    with lock.open("wb") as held:

        def begins(*given: Any) -> Any:
            fcntl.flock(held, fcntl.LOCK_EX)
            return read(*given)

        monkeypatch.setattr(LedgerApplication, "readable", begins)
        with Home(home).open_log():
            pass
        monkeypatch.undo()
        assert lock.is_file()  # the run was not closed
    with Home(home).open_log():
        assert end_of(home, lock.parent.name)[0] == "crashed"


def test_run_begins_although_another_command_looks_at_its_lock(home: Path) -> None:
    run = uuid4()
    lock = home / "runs" / str(run) / "running.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("wb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        looked = threading.Timer(0.1, looking.close)
        looked.start()
        with Home(home).running(run):
            assert not Home(home).is_gone(run)
        looked.join()


@pytest.mark.slow
def test_runs_within_runs_keep_apart(home: Path) -> None:
    models = [mlp(), mlp()]
    with watch(home, models[0], name="outer") as outer, watch(home, models[1]) as inner:
        for _ in zip(outer.epochs(2), inner.epochs(2), strict=True):
            for model, run in zip(models, (outer, inner), strict=True):
                step(model, run)
                run.validate(loss=loss_of(model).detach())  # type: ignore[arg-type]  # a scalar
    assert outer.id != inner.id
    for run in (outer, inner):
        assert not answer(call_here(["judge", run.id, "--json"], home=home))["hard_fail"]


@pytest.mark.slow
def test_two_optimizers_are_two_runs_each_with_its_own_parameters(home: Path) -> None:
    model = mlp()
    parts = [torch.optim.SGD(model[at].parameters(), lr=0.1) for at in (0, 2)]  # type: ignore[index]
    with watch(home, model, parts[0]) as first, watch(home, model, parts[1]) as second:
        for run in (first, second):
            run.begin_epoch()
            step(model, run)
            run.validate(loss=1.0)
    sql = f"SELECT layer FROM layer_metrics WHERE run_id = '{first.id}' ORDER BY place"
    layers = answer(call_here(["sql", sql, "--json"], home=home))
    assert [row["layer"] for row in layers] == ["0.weight", "0.bias"]


@pytest.mark.slow
def test_step_that_the_scaler_skips_fires_no_rule(home: Path) -> None:
    model = mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    with watch(home, model) as run:
        run.begin_epoch()
        for number in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if number == 1:
                model[0].weight.grad[0, 0] = torch.inf  # type: ignore[index]
            run.step(loss, scaler=scaler)
        run.validate(loss=float(loss.detach()))
    assert scaler.get_scale() == 2.0**39
    (past,) = run._session.run.history
    assert past.gradients_finite
    assert "R7" not in run._session.run.fired()
    report = answer(call_here(["judge", run.id, "--json"], home=home))
    assert not report["hard_fail"]


def test_model_with_a_parameter_that_no_loss_reaches_is_judged(home: Path) -> None:
    model = mlp()
    model.register_parameter("unused", nn.Parameter(torch.ones(3, 3)))
    with watch(home, model) as run:
        run.begin_epoch()
        loss = loss_of(model)
        torch.autograd.backward(loss)
        run.step(loss)
        run.validate(loss=1.0)
    report = answer(call_here(["judge", run.id, "--json"], home=home))
    assert not report["hard_fail"], report["steps"][4]["summary"]


def test_epoch_without_any_finite_step_fires_r7(home: Path) -> None:
    model = mlp()
    scaler = torch.amp.GradScaler("cpu")
    with watch(home, model) as run:
        run.begin_epoch()
        loss = loss_of(model)
        scaler.scale(loss * torch.inf).backward()  # type: ignore[no-untyped-call]
        run.step(loss, scaler=scaler)
        run.validate(loss=1.0)
    assert run._session.run.fired() == ("R7",)
    assert failed(Case(run.id, home / "ledger", home).audit()) is None


@pytest.mark.slow
def test_half_precision_models_and_warm_up_schedules_are_watched(home: Path) -> None:
    model = mlp()
    model[2].bfloat16()  # type: ignore[index]
    optimizer = sgd(model, lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch / 2)
    with watch(home, model, optimizer) as run:
        for _ in run.epochs(2):
            hidden = model[1](model[0](X)).bfloat16()  # type: ignore[index]
            loss = cross_entropy(model[2](hidden), Y)  # type: ignore[index]
            loss.backward()  # type: ignore[no-untyped-call]
            run.step(loss)
            run.validate(loss=float(loss))
            schedule.step()
    assert run.lr == 0.5
    history = run._session.run.history
    assert all(past.max_layer_grad_norm for past in history)
    assert not answer(call_here(["judge", run.id, "--json"], home=home))["hard_fail"]


@pytest.mark.slow
def test_compiled_model_is_watched_without_its_activations(home: Path) -> None:
    model = torch.compile(mlp(), backend="eager")
    optimizer = sgd(model)  # type: ignore[arg-type]
    with watch(home, model, optimizer, profile="calibrated") as run:  # type: ignore[arg-type]
        for _ in run.epochs(2):
            step(model, run)  # type: ignore[arg-type]
            run.validate(loss=1.0)
    past = run._session.run.history[-1]
    assert (past.dead_share, past.max_layer_grad_norm is None) == (None, False)
    assert {"R5", "R6"} <= set(run._session.run.waived)
    assert not answer(call_here(["judge", run.id, "--json"], home=home))["hard_fail"]


_TWO_EPOCHS = """
import sys
import torch
import proctor
model = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with proctor.watch(model, optimizer, name=sys.argv[1], batch_size=4, policy="nothing") as run:
    for _ in run.epochs(4):
        loss = model(torch.ones(4, 6)).square().mean()
        loss.backward()
        run.step(loss)
        run.validate(loss=loss)
"""


@pytest.mark.slow
def test_runs_of_two_processes_share_a_home(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        done = both.map(lambda name: call([name], home=tmp_path, code=_TWO_EPOCHS), "ab")
        assert [each.returncode for each in done] == [0, 0]
    rows = answer(
        call_here(["sql", "SELECT dataset, state FROM run_summary", "--json"], home=tmp_path)
    )
    assert sorted(row["dataset"] for row in rows) == ["a", "b"]
    assert {row["state"] for row in rows} == {"completed"}
    assert call_here(["verify"], home=tmp_path).returncode == 0
