"""A training loop of one's own under watch, from the Python API to the verdict."""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_server import ChatServer, act, decide
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.decisions import Decision, Observation
from aggregates.playbook import REMEDIES
from aggregates.rules import PROFILES
from aggregates.run import Run
from monitor.config import RunConfig
from monitor.errors import WatchError

pytestmark = pytest.mark.usefixtures("one_thread")

X = torch.randn(1_000, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)


class Says:
    """A policy that answers the rules that are due as it is told to."""

    name = "says"

    def __init__(self, answer: Callable[[Observation], Sequence[Decision]]) -> None:
        self.decide = answer

    def describe(self) -> dict[str, Any]:
        return {}


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


@pytest.mark.parametrize("policy", [None, "playbook", "rescue"])
def test_rules_that_nobody_names_are_free_of_the_losss_scale(
    policy: str | None, tmp_path: Path
) -> None:
    with proctor.watch(None, None, name="told", batch_size=8, policy=policy, home=tmp_path) as run:
        pass
    started = events_of(tmp_path / "ledger", run.id)[0]
    assert isinstance(started, Run.Started)
    assert started.rules == PROFILES["relative"].to_dict()
    assert started.config["profile"] == "relative"
    assert RunConfig().profile == "relative"  # as in a run of ours


def test_loop_goes_on_without_its_witnesses(tmp_path: Path) -> None:
    trust: list[str | Path] = [
        "witness",
        "trust",
        _ledger(tmp_path),
        "--state",
        tmp_path / "w",
        "--name",
        "w",
    ]
    assert call_here(trust, home=tmp_path).returncode == 0
    policy = tmp_path / "policy"
    vkey = (tmp_path / "w/witness.vkey").read_text().strip()
    policy.write_text(f"witness w {vkey} http://127.0.0.1:1\nquorum w\n")
    told: list[str] = []
    with proctor.watch(
        None, None, name="told", batch_size=8, witnesses=policy, home=tmp_path, say=told.append
    ) as run:
        for _ in run.epochs(1):
            run.step(1.0)
            run.validate(loss=1.0)
    assert told[-1].endswith("does not meet the quorum (w: failed)")


def _ledger(home: Path) -> Path:
    with proctor.watch(None, None, name="first", batch_size=8, home=home, say=str):
        pass
    return home / "ledger/ledger.vkey"


def test_watched_run_is_recorded_and_judged_as_what_it_is(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
    with proctor.watch(
        model,
        optimizer,
        name="my run",
        batch_size=50,
        classes=3,
        policy="playbook",
        home=tmp_path,
    ) as run:
        decided = train(model, run, 4)
    assert decided[0][0].startswith("decrease_lr for R1: applied: learning rate 0.3 -> 0.0")
    for command in ("judge", "show"):
        said = " ".join(call_here([command, run.id], home=tmp_path).stdout.split())
        why = "nothing measures its noise: give watch() an accumulation of 2 or more, or a probe"
        assert f"waived R2: {why} waived R4: no remedy for stalled" in said
    assert optimizer.param_groups[0]["lr"] == 0.3  # which belongs to the loop
    assert run.lr < 0.3
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


@pytest.mark.parametrize("fused", [False, True])
def test_step_that_a_loss_scaler_leaves_out_is_counted_and_read_by_no_rule(
    fused: bool, tmp_path: Path
) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    with proctor.watch(model, optimizer, name="scaled", batch_size=50, home=tmp_path) as run:
        for _ in run.epochs(1):
            for step, (x, y) in enumerate(batches()):
                loss = cross_entropy(model(x), y)
                sent = loss * math.inf if step == 3 else loss
                torch.autograd.backward(scaler.scale(sent))
                run.step(loss, scaler=scaler)
            run.validate(loss=1.0)
    (epoch,) = epochs_of(tmp_path, run.id)
    assert (epoch["train"]["steps"], epoch["train"]["skipped"]) == (15, 1)
    assert epoch["gradients"]["finite"]
    assert all(layer["update_ratio"] < 1 for layer in epoch["layers"])


def test_loss_that_the_loop_changes_later_is_recorded_as_it_was_told(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    told = []
    with proctor.watch(model, optimizer, name="reused", batch_size=50, home=tmp_path) as run:
        for _ in run.epochs(1):
            for x, y in batches():
                loss = cross_entropy(model(x), y)
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                told.append(float(loss.detach()))
                run.step(loss)
                loss.detach().zero_()  # as a CUDA graph does that computes the next one
            run.validate(loss=1.0)
    (epoch,) = (e for e in events_of(tmp_path / "ledger", run.id) if type(e) is Run.EpochMeasured)
    assert epoch.reported["train"]["loss"] == pytest.approx(sum(told) / len(told))


def test_losses_alone_are_a_level_of_their_own(tmp_path: Path) -> None:
    with proctor.watch(
        None, None, name="told", batch_size=8, policy="playbook", home=tmp_path
    ) as run:
        for _ in run.epochs(12):
            run.step(torch.tensor(1.0))
            said = run.validate(loss=1.0)
    assert said == ["stop for R3: applied: the training stops"]
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


def train_few(model: nn.Module, run: proctor.WatchedRun, epochs: int) -> list[str]:
    """Train two steps an epoch; return what was decided."""
    said = []
    for _ in run.epochs(epochs):
        for at in (0, 100):
            loss = cross_entropy(model(X[at : at + 100]), Y[at : at + 100])
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
        said += run.validate(loss=loss.detach())  # type: ignore[arg-type]  # a scalar
    return said


def test_playbook_swaps_an_activation_of_the_model_itself(tmp_path: Path) -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias.fill_(-100)  # type: ignore[index]  # no unit lives
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with proctor.watch(
        model, optimizer, name="dead", batch_size=100, policy="playbook", home=tmp_path
    ) as run:
        said = train_few(model, run, 8)
    assert said[0] == "swap_activation for R6: applied: 1.activation relu -> leaky_relu"
    assert type(model[1]) is nn.LeakyReLU  # type: ignore[index]
    report = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert (report["hard_fail"], report["violations"]) == (False, [])


@pytest.mark.slow  # builds tables for each question
def test_commands_name_the_level_of_a_watched_run(tmp_path: Path) -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias.fill_(-100)  # type: ignore[index]  # no unit lives
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with proctor.watch(
        model, optimizer, name="dead", batch_size=100, policy="playbook", home=tmp_path
    ) as run:
        train_few(model, run, 4)
    call_here(["judge", run.id], home=tmp_path)
    told = call_here(["replay", run.id], home=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert "dead, level measured, policy playbook" in told.stdout
    assert "1.activation relu -> leaky_relu" in told.stdout
    again = call_here(["replay", run.id, "--execute"], home=tmp_path)
    assert again.returncode == 2
    assert "a watched run cannot be trained again" in again.stderr
    why = call_here(["data", "why", run.id], home=tmp_path)
    assert why.stdout.splitlines()[0].endswith(
        "because it was watched in a loop of its owner, and nobody can train it again."
    )
    shown = call_here(["show", run.id], home=tmp_path).stdout
    assert "level measured: hooks saw the live model" in shown
    assert "not possible" in shown
    columns = "level, verdict, accuracy_score, retrained"
    sql = f"SELECT {columns} FROM run_summary"
    (row,) = answer(call_here(["sql", sql, "--json"], home=tmp_path))
    assert list(row.values()) == ["measured", "consistent", None, 0.0]


def test_starting_weights_come_back_with_an_empty_optimizer(tmp_path: Path) -> None:
    def afresh(seen: Observation) -> list[Decision]:
        params = {"lr": seen.settings.lr / 10, "clip_norm": 0.5, "reinitialise": True}
        return [Decision.of(seen.due[:1], "decrease_lr", params, "Begin again.")]

    model = mlp()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3.0)
    with proctor.watch(
        model, optimizer, name="afresh", batch_size=100, policy=Says(afresh), home=tmp_path
    ) as run:
        loss = cross_entropy(model(X[:100]), Y[:100]) * torch.inf
        run.begin_epoch()
        loss.backward()  # type: ignore[no-untyped-call]  # has no types
        run.step(loss)
        assert run.validate(loss=1.0)[0].startswith("decrease_lr for R7: applied: ")
        assert all(map(torch.equal, start, model.parameters()))
        assert not optimizer.state
        assert (run.lr, run.clip_norm) == (0.3, 0.5)


@pytest.mark.slow
def test_refusal_because_of_lost_weights_needs_no_lost_loss(tmp_path: Path) -> None:
    def lower(seen: Observation) -> list[Decision]:
        return [Decision.of(seen.due[:1], "decrease_lr", {"lr": seen.settings.lr / 10}, "Lower.")]

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    with proctor.watch(
        model, optimizer, name="lost", batch_size=100, policy=Says(lower), home=tmp_path
    ) as run:
        run.begin_epoch()
        loss = cross_entropy(model(X), Y)
        loss.backward()  # type: ignore[no-untyped-call]  # has no types
        run.step(loss)
        with torch.no_grad():
            model[0].weight[0, 0] = torch.inf  # type: ignore[index]
        said = run.validate(loss=1.0)
    assert ": refused: the weights are not finite" in said[0]
    assert not answer(call_here(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]


def test_every_direction_is_carried_out_or_refused(tmp_path: Path) -> None:
    """Nothing that a policy may say breaks the loop, and the judge replays all of it."""
    values: dict[str, Any] = {"lr": 1.0, "lr_min": 0.5, "lr_max": 1.0, "epoch": 0, "epochs": 2}
    values |= {"accumulation": 2, "factor": 2, "rates": [1.0, 0.1]}
    said = [
        (name, {key: {**values, "to": to, "batch_size": size}[key] for key in remedy.needs})
        for name, remedy in REMEDIES.items()
        for to in (("gelu", "prelu") if "to" in remedy.needs else ("",))
        for size in ((200, 999) if "batch_size" in remedy.needs else (0,))
        if name != "stop"
    ]

    def all_of_them(seen: Observation) -> list[Decision]:
        return [Decision.of(seen.due[:1], name, params, "All.") for name, params in said]

    def resize(size: int) -> None:
        assert size == 200

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    with proctor.watch(
        model,
        optimizer,
        name="all",
        batch_size=100,
        max_batch_size=400,
        train_examples=200,
        set_batch_size=resize,
        policy=Says(all_of_them),
        waived=("R2",),
        home=tmp_path,
    ) as run:
        outcomes = [
            line.replace(" for R7", "").replace(" for R1", "").split(": ")[:2]
            for line in train_few(model, run, 1)
        ]
    applied = {name for name, outcome in outcomes if outcome == "applied"}
    assert applied == {"decrease_lr", "warm_up_lr", "cycle_lr", "swap_activation"} | {
        "increase_batch_size",
        "go_back",
    }
    assert type(model[1]) is nn.GELU  # type: ignore[index]
    report = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert not report["hard_fail"], report["steps"][4]["summary"]


@pytest.mark.slow  # imports what talks to servers
def test_language_model_decides_in_a_watched_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def lower(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(str(request["messages"][-1]["content"]))
        return act(request, "R1")

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    for form in ("full", "exported"):
        with (
            ChatServer(decide(lower)) as server,
            proctor.watch(
                model,
                optimizer,
                name="asked",
                batch_size=100,
                policy="openai",
                policy_settings=["model=m", f"base_url={server.url}", f"form={form}"],
                home=tmp_path,
            ) as run,
        ):
            said = train_few(model, run, 1)
        assert said, form
        report = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
        assert not report["hard_fail"]
    assert "swap_activation takes gelu, leaky_relu, relu" in asked[0]


WITHOUT_BLOCK = """
import os, sys
import proctor
run = proctor.watch(None, None, name="flat", batch_size=8, home=sys.argv[1])
for epoch in run.epochs(2):
    run.step(1.0)
    run.validate(loss=1.0)
    if os.fork() == 0:
        sys.exit()  # a process of the loop's, which is not the one that trains
    os.wait()
"""


@pytest.mark.parametrize(
    ("last", "reason", "detail"),
    [
        ("run.close(); run.close()", "completed", ""),
        ("", "interrupted", "SystemExit: the process ended before run.close() was called"),
        ("run.save('none.pt')", "failed", "WatchError: none.pt cannot be put on record"),
    ],
)
def test_loop_without_a_block_ends_with_close_or_with_the_process(
    last: str, reason: str, detail: str, tmp_path: Path
) -> None:
    script = tmp_path / "flat.py"
    script.write_text(WITHOUT_BLOCK + last, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    home = tmp_path / "home"
    command = [sys.executable, str(script), str(home)]
    subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True)
    sql = "SELECT reason, detail, epochs FROM run_ends JOIN run_summary USING (run_id)"
    (row,) = answer(call_here(["sql", sql, "--json"], home=home))
    assert (row["reason"], row["epochs"]) == (reason, 2)
    assert row["detail"].startswith(detail)
