"""A loop that is watched without a named policy: measured, advised, and never changed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import proctor
from aggregates.decisions import Decision, Observation
from aggregates.run import Run
from judge.auditing.measurements import verify_watched
from judge.errors import StepError
from proctor.integrations.framework_run import FrameworkRun, WatchOptions

pytestmark = pytest.mark.usefixtures("one_thread")

Data = tuple[Tensor, Tensor]


class Autoencoder(nn.Module):
    """A variational autoencoder of the usual structure; its loss is a sum over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(64, 40)
        self.mean, self.log_variance = nn.Linear(40, 5), nn.Linear(40, 5)
        self.decode = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.relu(self.encode(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(drawn), mean, log_variance


def summed_loss(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
    out, mean, log_variance = model(x)
    told = binary_cross_entropy_with_logits(out, x, reduction="sum")
    return told - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.lstm(x.reshape(len(x), 8, 8))[0][:, -1])
        return found


def class_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x), y)


def unscaled_loss(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
    return mse_loss(model(x), 100.0 * x.sum(dim=1, keepdim=True))


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(50, 16, sparse=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.words((x * 49).long()))
        return found


@dataclass(frozen=True)
class Kind:
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]
    lr: float


KINDS = {
    "autoencoder with a summed loss": Kind(Autoencoder, summed_loss, torch.optim.Adam, 1e-3),
    "lstm with adam": Kind(Recurrent, class_loss, torch.optim.Adam, 1e-2),
    "unscaled regression": Kind(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)),
        unscaled_loss,
        torch.optim.Adam,
        1e-2,
    ),
    "sparse bag with adagrad": Kind(Bag, class_loss, torch.optim.Adagrad, 1e-1),
}


def examples() -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(0)
    x = torch.rand(400, 64, generator=drawn)
    return x, x[:, :16].reshape(400, 4, 4).sum(dim=2).argmax(dim=1)


def prepared(kind: Kind) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = kind.model()
    return model, kind.optimizer(model.parameters(), lr=kind.lr)


def validated(kind: Kind, model: nn.Module) -> float:
    x, y = examples()
    with torch.no_grad():
        return float(kind.loss(model, x[320:], y[320:])) / 80


def plain(kind: Kind, epochs: int) -> tuple[list[float], list[Tensor]]:
    model, optimizer = prepared(kind)
    (x, y), losses = examples(), []
    for _ in range(epochs):
        for at in range(0, 320, 20):
            optimizer.zero_grad()
            loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            optimizer.step()
            losses.append(float(loss.detach()))
        losses.append(validated(kind, model))
    return losses, [each.detach().clone() for each in model.parameters()]


def watched(
    kind: Kind, epochs: int, home: Path, **options: Any
) -> tuple[list[float], list[Tensor], str]:
    model, optimizer = prepared(kind)
    (x, y), losses = examples(), []
    with proctor.watch(model, optimizer, name="mine", batch_size=20, home=home, **options) as run:
        for _ in run.epochs(epochs):
            for at in range(0, 320, 20):
                loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss)
                losses.append(float(loss.detach()))
            losses.append(validated(kind, model))
            run.validate(loss=losses[-1])
    return losses, [each.detach().clone() for each in model.parameters()], run.id


@pytest.mark.parametrize("name", KINDS)
def test_loop_without_a_named_policy_trains_bit_for_bit_as_if_unwatched(
    name: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    losses, weights = plain(kind, 6)
    found, others, run = watched(kind, 6, tmp_path)
    assert found == losses
    assert all(map(torch.equal, others, weights))
    events = events_of(tmp_path / "ledger", run)
    assert not [event for event in events if isinstance(event, Run.DecisionMade)]


def test_loop_with_a_named_policy_is_changed(tmp_path: Path) -> None:
    kind = KINDS["autoencoder with a summed loss"]
    losses, _ = plain(kind, 3)
    found, _, run = watched(kind, 3, tmp_path, policy="playbook", profile="calibrated")
    assert found != losses
    events = events_of(tmp_path / "ledger", run)
    assert [event for event in events if isinstance(event, Run.RemedyApplied)]
    # A control: the rules that are the default know that a summed loss has larger gradients.
    assert watched(kind, 3, tmp_path, policy="playbook")[0] == losses


def test_first_line_says_whether_a_policy_changes_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = KINDS["lstm with adam"]
    _, _, run = watched(kind, 1, tmp_path)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        f"proctor: run {run} observes and advises; it names no policy, so nothing in your training "
        "is changed"
    )
    _, _, run = watched(kind, 1, tmp_path, policy="playbook")
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        f"proctor: run {run}: the policy playbook decides, and its decisions change your training: "
        "decrease_lr, increase_lr, warm_up_lr, cycle_lr, go_back, stop"
    )


@pytest.mark.parametrize(
    ("lr", "told", "offers"),
    [
        (0.0, "is 0 where the training begins, and no decision can change it", "stop"),
        (20.0, "decisions can lower it, but not go back", "decrease_lr, increase_lr, warm_up_lr"),
        (45.0, "is outside of what a decision can set (1e-08 to 10): decisions cannot", "stop"),
        (1e-9, "is outside of what a decision can set (1e-08 to 10): decisions cannot", "stop"),
    ],
)
@pytest.mark.sampled(2)
def test_loop_with_a_rate_that_no_decision_may_set_is_watched(
    lr: float, told: str, offers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = replace(KINDS["unscaled regression"], optimizer=torch.optim.SGD, lr=lr)
    assert str(watched(kind, 3, tmp_path)[:2]) == str(plain(kind, 3))  # nan is not equal to itself
    assert told in capsys.readouterr().err
    _, _, run = watched(kind, 3, tmp_path, policy="rescue")
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert f"its decisions change your training: {offers}" in first
    assert "go_back" not in first
    assert told in second
    verdict = answer(call_here(["judge", run, "--json"], home=tmp_path))
    assert (verdict["hard_fail"], verdict["violations"]) == (False, [])


def test_rate_of_a_loop_is_that_of_the_first_group_with_any(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.0)
    optimizer.add_param_group({"params": model[1].parameters(), "lr": 0.3})
    with proctor.watch(model, optimizer, name="mine", batch_size=20, home=tmp_path) as run:
        assert run.lr == 0.3


def test_advice_is_said_and_not_recorded_as_a_decision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = KINDS["autoencoder with a summed loss"]
    _, _, run = watched(kind, 2, tmp_path, profile="calibrated")
    said = capsys.readouterr().err
    assert "proctor: advice for R7 in epoch 0, not carried out: decrease_lr (lr 0.0001" in said
    sql = "SELECT policy_name, decisions FROM run_summary"
    (row,) = answer(call_here(["sql", sql, "--json"], home=tmp_path))
    assert row == {"policy_name": "none", "decisions": 0}
    told = " ".join(call_here(["show", run], home=tmp_path).stdout.split())
    assert "policy none" in told
    report = tmp_path / "report.html"
    call_here(["report", run, "--out", str(report)], home=tmp_path)
    for page in (told, " ".join(report.read_text().split())):
        assert "; watched: nobody decides; 1 rule asked for a decision: R7" in page


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ({}, "advice for R7 in epoch 4, not carried out: decrease_lr (lr 1e-05, clip_norm"),
        (
            {3: 0.1},
            "no remedy advised for R7 in epoch 4: the loop's own schedule has brought the "
            "learning rate from 0.0001 to 1e-05; see whether that is enough",
        ),
        (
            {1: 0.5, 2: 0.5},
            "decrease_lr (lr 2.5e-06, clip_norm 1); R7 (exploding gradients): the "
            "largest layer gradient norm is above its limit (at",
        ),
    ],
    ids=["no schedule", "a step of it", "before"],
)
def test_advice_counts_what_the_loops_own_schedule_has_done(
    by: dict[int, float], says: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x, said = torch.randn(64, 6), list[str]()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with proctor.watch(
        model, optimizer, name="own", batch_size=64, home=tmp_path, say=said.append
    ) as run:
        for epoch in run.epochs(9):
            for group in optimizer.param_groups:
                group["lr"] *= by.get(epoch, 1.0)
            loss = mse_loss(model(x), x[:, :1]) * (1e3 if epoch >= 4 else 1)
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
            run.validate(loss=1.0 / (epoch + 1))
    advised = [line for line in said if "R7 in epoch" in line]
    assert says in advised[0]
    schedule = "Before, the loop's own schedule has brought the learning rate from 0.0001 to"
    assert [schedule in line for line in advised] == [len(by) == 2, *[True] * (len(by) == 1)]


def test_verdict_on_an_observed_loop_neither_punishes_nor_rewards(tmp_path: Path) -> None:
    kind = KINDS["autoencoder with a summed loss"]
    _, _, run = watched(kind, 4, tmp_path)
    done = call_here(["judge", run], home=tmp_path)
    said = " ".join(done.stdout.split())
    why = "the loop was only observed, so no remedy could be carried out"
    assert f"waived R1, R3, R4, R5, R6, R7: {why} waived R2: nothing measures its noise" in said
    told = "unexercised: the loop was only observed, and no policy decided"
    assert f"process score 1.000 (0 violations in 0 obligations, {told})" in said
    verdict = answer(call_here(["judge", run, "--json"], home=tmp_path))
    assert (verdict["hard_fail"], verdict["violations"]) == (False, [])
    # Which answers, and so is scored.
    _, _, named = watched(kind, 10, tmp_path, policy="nothing", profile="calibrated")
    verdict = answer(call_here(["judge", named, "--json"], home=tmp_path))
    assert verdict["violations"]


class Resets:
    """A policy that asks for fresh weights whenever R7 fires."""

    name = "resets"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, seen: Observation) -> list[Decision]:
        params = {"lr": seen.settings.lr / 10, "reinitialise": True}
        return [Decision.of((rule,), "decrease_lr", params, "Begin again.") for rule in seen.due]


def report_once(value: float, home: Path, **options: Any) -> tuple[list[Tensor], list[Tensor], str]:
    """Train, report `value` as the loss of one validation; return the weights around it."""
    kind = KINDS["lstm with adam"]
    model, optimizer = prepared(kind)
    x, y = examples()
    with proctor.watch(
        model, optimizer, name="odd", batch_size=20, home=home, **{"policy": "playbook", **options}
    ) as run:
        for epoch in run.epochs(4):
            for at in range(0, 320, 20):
                loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss if epoch != 1 or math.isfinite(value) or at else float("nan"))
            before = [each.detach().clone() for each in model.parameters()]
            run.validate(loss=value if epoch == 1 else validated(kind, model))
            if epoch == 1:
                kept = before, [each.detach().clone() for each in model.parameters()]
    return *kept, run.id


@pytest.mark.parametrize("policy", ["playbook", Resets()], ids=["playbook", "own"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e9])
def test_reported_loss_never_resets_weights(value: float, policy: Any, tmp_path: Path) -> None:
    options = {"policy": policy, "classes": 4}
    before, after, run = report_once(value, tmp_path, **options)
    assert all(map(torch.equal, before, after))
    verdict = answer(call_here(["judge", run, "--json"], home=tmp_path))
    assert not verdict["hard_fail"]
    if policy == "playbook":
        assert verdict["violations"] == []


def test_measured_gradient_that_is_not_finite_brings_the_starting_weights_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = KINDS["lstm with adam"]
    model, optimizer = prepared(kind)
    start = [each.detach().clone() for each in model.parameters()]
    x, y = examples()
    with proctor.watch(
        model, optimizer, name="lost", batch_size=20, home=tmp_path, policy="playbook"
    ) as run:
        run.begin_epoch()
        for factor in (1.0, math.inf):
            loss = kind.loss(model, x[:20], y[:20]) * factor
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
        said = run.validate(loss=1.0)
    assert all(map(torch.equal, start, model.parameters()))
    assert said == [
        "decrease_lr for R7: applied: learning rate 0.01 -> 0.001, gradients clipped at norm 1, "
        "starting weights put back and the optimizer's memory emptied",
    ]
    assert f"proctor: {said[0]}" in capsys.readouterr().err
    assert not answer(call_here(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]


@pytest.mark.parametrize("policy", ["playbook", Resets()], ids=["playbook", "own"])
def test_gradients_that_are_large_and_finite_never_reset_weights(
    policy: Any, tmp_path: Path
) -> None:
    kind = KINDS["unscaled regression"]
    model, optimizer = prepared(kind)
    x, y = examples()
    with proctor.watch(
        *(model, optimizer),
        name="odd",
        batch_size=20,
        classes=4,
        home=tmp_path,
        policy=policy,
        profile="calibrated",
    ) as run:
        for _ in run.epochs(3):
            for at in range(0, 320, 20):
                loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss)
            before = [each.detach().clone() for each in model.parameters()]
            said = run.validate(loss=1e9)  # far worse than guessing, as it is told
            assert "R7" in " ".join(said)
            assert all(map(torch.equal, before, model.parameters()))
    assert not answer(call_here(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]


@pytest.mark.parametrize("policy", [None, "playbook"])
def test_callback_says_who_decides_and_what_was_done(policy: str | None, tmp_path: Path) -> None:
    said: list[str] = []
    options = (
        WatchOptions(home=tmp_path)
        if policy is None
        else WatchOptions(home=tmp_path, policy=policy)
    )
    kind = KINDS["unscaled regression"]
    model, optimizer = prepared(kind)
    x, y = examples()
    framework = FrameworkRun(options, say=said.append)
    run = framework.begin(model, optimizer, batch_size=20)
    run.begin_epoch()
    for at in range(0, 320, 20):
        loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
        loss.backward()  # type: ignore[no-untyped-call]  # has no types
        run.add_loss(loss)
        run.before_update()
        optimizer.step()
        optimizer.zero_grad()
    framework.evaluated({"val_loss": 1e9}, loss="val_loss", accuracy=None)  # nothing was learned
    framework.end()
    assert said[0].startswith(f"proctor: run {run.id}")
    if policy is None:
        assert "observes and advises" in said[0]
        assert said[1].startswith("proctor: advice for R1 in epoch 0, not carried out: decrease_lr")
    else:
        assert "the policy playbook decides" in said[0]
        assert said[1].startswith("proctor: decrease_lr for R1: applied: learning rate 0.01 -> ")
    assert run.lr == (0.01 if policy is None else 0.001)


class Lowers:
    """A policy that lowers the learning rate whenever a rule fires."""

    name = "lowers"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, seen: Observation) -> list[Decision]:
        params = {"lr": seen.settings.lr / 10}
        return [Decision.of(seen.due[:1], "decrease_lr", params, "Lower.")]


def train_with(
    home: Path, change: Callable[[torch.optim.Optimizer], object], *, inside: bool, epochs: int = 4
) -> tuple[list[list[str]], proctor.WatchedRun]:
    """Train while R7 fires in each epoch; `change` the rate in each step, or between two."""
    kind = KINDS["unscaled regression"]
    torch.manual_seed(3)
    model = kind.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x, y = examples()
    said = []

    def hook(it: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        change(it)

    with proctor.watch(
        *(model, optimizer),
        name="odd",
        batch_size=20,
        home=home,
        policy=Lowers(),
        profile="calibrated",
    ) as run:
        if inside:
            optimizer.register_step_pre_hook(hook)
        for _ in run.epochs(epochs):
            for at in range(0, 320, 20):
                loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
                loss.backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss)
                if not inside:
                    change(optimizer)
            said.append(run.validate(loss=validated(kind, model)))
    return said, run


def put_back(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 1e-6


def test_rate_that_a_hook_puts_back_is_measured_and_no_decision_on_it_is_applied(
    tmp_path: Path,
) -> None:
    said, run = train_with(tmp_path, put_back, inside=True, epochs=4)
    assert said[0] == [
        "decrease_lr for R7: applied: learning rate 1e-06 -> 1e-07"
    ]  # before it is known
    why = (
        "the learning rate was 1e-06 in epoch {}, not 1e-07 as decisions have it: in 16 of 16 "
        "steps, a hook of the optimizer put another value there"
    )
    for epoch in (1, 2, 3):
        told = why.format(epoch)
        assert said[epoch] == [told, f"decrease_lr for R7: refused: {told}"]
    assert run.lr == 1e-7
    events = events_of(tmp_path / "ledger", run.id)
    epochs = [event for event in events if isinstance(event, Run.EpochMeasured)]
    assert epochs[1].measured["rates"] == {"least": 1e-6, "most": 1e-6, "overridden": 16}
    assert epochs[1].reported["lr"] == [1e-6]
    verdict = answer(call_here(["judge", run.id, "--json"], home=tmp_path))
    assert not verdict["hard_fail"]
    assert verdict["scores"]["process_score"] < 1.0
    assert "put another rate in its place in 16 steps of epoch 1" in str(verdict)


def test_schedule_of_the_loop_itself_is_no_offence(tmp_path: Path) -> None:
    def decay(optimizer: torch.optim.Optimizer) -> None:  # as scheduler.step() does
        for group in optimizer.param_groups:
            group["lr"] *= 0.9

    said, run = train_with(tmp_path, decay, inside=False)
    assert said[0] == ["decrease_lr for R7: applied: learning rate 1e-06 -> 1e-07"]
    assert not [line for each in said for line in each if "hook" in line or "refused" in line]
    events = events_of(tmp_path / "ledger", run.id)
    epochs = [event for event in events if isinstance(event, Run.EpochMeasured)]
    rates = epochs[1].measured["rates"]
    assert rates["overridden"] == 0
    assert rates["most"] == pytest.approx(1e-7 * 0.9**16)
    assert rates["least"] == pytest.approx(1e-7 * 0.9**31)
    assert not answer(call_here(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]


def test_rate_that_a_hook_changes_once_stays_in_a_loop_that_is_only_observed(
    tmp_path: Path,
) -> None:
    kind, rates = KINDS["lstm with adam"], []
    model, optimizer = prepared(kind)
    x, y = examples()

    def halve_once(it: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        rates.append(it.param_groups[0]["lr"])
        if len(rates) == 2:
            it.param_groups[0]["lr"] /= 2

    with proctor.watch(model, optimizer, name="own", batch_size=20, home=tmp_path) as run:
        optimizer.register_step_pre_hook(halve_once)
        run.begin_epoch()
        for at in range(0, 80, 20):
            loss = kind.loss(model, x[at : at + 20], y[at : at + 20])
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
        run.validate(loss=1.0)
    assert rates == [0.01, 0.01, 0.005, 0.005]


@pytest.mark.parametrize("forged", [{"overridden": 17}, {"overridden": -1}, {"overridden": "all"}])
def test_forged_measurement_of_rates_is_rejected(forged: dict[str, Any]) -> None:
    measured = {
        "train": {"loss": None, "accuracy": None, "steps": 16, "skipped": 0},
        "validation": {"loss": None, "accuracy": None},
        "layers": [],
        "activations": [],
        "gradients": {"finite": True, "probes": [], "spread": None, "spread_pairs": 0},
        "rates": {"least": 1.0, "most": 1.0, **forged},
    }
    reported: dict[str, Any] = {"train": {}, "validation": {}}
    with pytest.raises(StepError, match=r"rates\.overridden"):
        verify_watched(measured, reported, level="reported")
