"""Every measured quantity agrees with a plain computation of its definition."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aggregates.noise import NoiseProbes, pool_noise
from aggregates.signals import signals_of
from aggregates.spec import MAX_BLOCKS, BlockSpec, ModelSpec
from ledger.bodies import encode_body
from monitor import diagnostics
from monitor.activations import _Activation
from monitor.datasets import Split
from monitor.diagnostics import LOOK_EVERY, PROBE_EVERY, EpochWatch
from monitor.model import ResidualCNN
from monitor.session import validate_model

BATCH = 16


def _model(activation: str = "relu", norm: str = "batch") -> ResidualCNN:
    block = BlockSpec(6, True, norm, activation)
    return ResidualCNN(ModelSpec(10, 8, 4, (block,), norm, activation), seed=3)


def _batches(count: int, seed: int = 1, size: int = BATCH) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 3, 32, 32, generator=rng),
            torch.randint(0, 10, (size,), generator=rng),
        )
        for _ in range(count)
    ]


def _train(model: nn.Module, batches: list[tuple[Tensor, Tensor]], lr: float = 0.1) -> EpochWatch:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    watch = EpochWatch(model, effective_batch=BATCH)
    for images, labels in batches:
        optimizer.zero_grad()
        torch.autograd.backward(watch.loss(model(images), labels))
        watch.gradients()
        optimizer.step()
        watch.updated()
    watch.close()
    return watch


class _Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3 * 32 * 32, 12), nn.Linear(12, 12)
        self.last = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x.flatten(1)))  # (B, 12)
        logits: Tensor = self.last(functional.silu(self.second(hidden)))
        return logits


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(96, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.transpose(1, 2).flatten(2))  # (B, 32, 16)
        logits: Tensor = self.head(self.layer(tokens).mean(dim=1))
        return logits


def _seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return build()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "residual network": _model,
    "multilayer perceptron": lambda: _seeded(_Perceptron),
    "transformer": lambda: _seeded(_Transformer),
}


@pytest.mark.parametrize("steps", [1, 7, 8, 15, 16, 17, 40, 63, 64, 100, 703])
def test_update_ratios_of_an_unknown_number_of_steps_are_spread_over_the_epoch(steps: int) -> None:
    """In step n, the only weight changes from 1 by n: each ratio names its step."""
    model = nn.Linear(1, 1, bias=False)
    watch = EpochWatch(model, effective_batch=1, ratios=8, thin=True)
    for step in range(steps):
        model.weight.data.fill_(1.0)
        model.weight.grad = torch.ones_like(model.weight)
        watch.gradients()
        model.weight.data.add_(step)
        watch.updated()
    [layer] = watch.measured()["layers"]
    taken = range(0, steps, watch.ratio_every)
    assert layer["update_ratio"] == pytest.approx(_mean([float(step) for step in taken]))
    assert min(steps, 8) <= len(taken) < 17
    assert watch.ratio_every == 1 or steps >= 16


def _watched_epochs(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    losses: Callable[[], Tensor],
    *,
    epochs: int,
    steps: int = 8,
) -> list[dict[str, Any]]:
    """Return what each epoch measures of the layers, as in a watched loop, by name."""
    found, from_zero = [], set[str]()
    for _ in range(epochs):
        watch = EpochWatch(model, effective_batch=1, from_zero=from_zero)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward(losses())
            watch.gradients()
            optimizer.step()
            watch.updated()
        watch.close()
        found.append({layer["name"]: layer for layer in watch.measured()["layers"]})
    return found


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_an_epoch_never_touches_do_not_dilute_the_update_ratio(
    sparse: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.diagnostics._NUMBERS", 0 if large else 1_000_000)

    def ratios(words: int) -> list[tuple[float, float]]:
        torch.manual_seed(0)
        model = nn.Embedding(words, 4, sparse=sparse)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            model.weight[:3] = torch.arange(12.0).view(3, 4)
        wanted = torch.ones(3, 4)
        measured = _watched_epochs(
            *(model, optimizer),
            lambda: (model(torch.arange(3)) - wanted).pow(2).mean(),
            epochs=2,
        )
        layers = [each["weight"] for each in measured]
        return [(layer["update_ratio"], layer["epoch_update_ratio"]) for layer in layers]

    for few, many in zip(ratios(3), ratios(500), strict=True):
        assert many[1] == pytest.approx(few[1], rel=1e-5)
        assert many[0] == pytest.approx(few[0], rel=0.1)  # by the rows' length at the start


@pytest.mark.parametrize("large", [False, True])
def test_memory_format_changes_no_ratio_and_a_tensor_without_numbers_has_none(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.diagnostics._NUMBERS", 0 if large else 1_000_000)

    def layers(memory_format: torch.memory_format) -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten())
        model.register_parameter("empty", nn.Parameter(torch.zeros(0, 3)))
        model.to(memory_format=memory_format)
        x = torch.randn(4, 2, 5, 5)
        (epoch,) = _watched_epochs(
            *(model, torch.optim.SGD(model.parameters(), lr=0.1)),
            lambda: model(x).pow(2).mean(),
            epochs=1,
        )
        return epoch

    plain, last = layers(torch.contiguous_format), layers(torch.channels_last)
    for ratio in ("update_ratio", "epoch_update_ratio"):
        assert last["0.weight"][ratio] == pytest.approx(plain["0.weight"][ratio], rel=1e-4)
    assert plain["0.weight"]["update_ratio"] > 0
    assert plain["empty"]["update_ratio"] is last["empty"]["update_ratio"] is None


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_tensor_from_zero_has_no_update_ratio_until_it_no_longer_grows(factor: float) -> None:
    torch.manual_seed(0)
    second = nn.Linear(6, 6, bias=False)
    nn.init.zeros_(second.weight)
    model = nn.Sequential(nn.Linear(6, 6, bias=False), second)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-12)
    x, y = torch.randn(32, 6), torch.randn(32, 6)
    measured = _watched_epochs(
        *(model, optimizer), lambda: factor * (model(x) - y).pow(2).mean(), epochs=8
    )
    first, last = measured[0]["1.weight"], measured[-1]["1.weight"]
    assert (first["update_ratio"], first["epoch_update_ratio"]) == (None, None)
    for layer in (epoch["1.weight"] for epoch in measured[1:]):
        assert (layer["update_ratio"] is None) == (layer["epoch_update_ratio"] > 0.5)
    assert measured[1]["1.weight"]["update_ratio"] is None
    assert last["update_ratio"] > 0
    # A control: one that was never zero has a ratio while it grows.
    assert all(epoch["0.weight"]["update_ratio"] > 0 for epoch in measured)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("steps", [5, 33])
def test_gradients_losses_and_updates_agree_with_autograd(name: str, steps: int) -> None:
    """The reference repeats each step from the weights that the watched training had there."""
    model, batches = MODELS[name](), _batches(steps)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = EpochWatch(model, effective_batch=BATCH, steps=steps)
    parameters = dict(model.named_parameters())
    start = {key: value.detach().double() for key, value in parameters.items()}
    norms: dict[str, list[float]] = {key: [] for key in parameters}
    ratios: dict[str, list[float]] = {key: [] for key in parameters}
    losses, right = [], 0
    for images, labels in batches:
        optimizer.zero_grad()
        logits = model(images)
        loss = watch.loss(logits, labels)
        torch.autograd.backward(loss)
        losses.append(loss.item())
        right += int((logits.argmax(1) == labels).sum())
        watch.gradients()
        before = {key: value.detach().double() for key, value in parameters.items()}
        optimizer.step()
        watch.updated()
        for key, value in parameters.items():
            assert value.grad is not None
            norms[key].append(value.grad.double().norm().item())
            moved = (value.detach().double() - before[key]).norm()
            ratios[key].append((moved / before[key].norm()).item())
    watch.close()
    measured = watch.measured()
    assert measured["train"]["loss"] == pytest.approx(_mean(losses), rel=1e-5)
    assert measured["train"]["accuracy"] == right / (steps * BATCH)
    assert (measured["train"]["steps"], measured["train"]["examples"]) == (steps, steps * BATCH)
    assert [layer["name"] for layer in measured["layers"]] == list(parameters)
    for layer in measured["layers"]:
        key = layer["name"]
        assert layer["rank"] == parameters[key].dim()
        assert layer["grad_norm"] == pytest.approx(_mean(norms[key]), rel=1e-5, abs=1e-9), key
        if not start[key].any():
            assert layer["update_ratio"] is layer["epoch_update_ratio"] is None
            continue
        taken = ratios[key][:: 1 if steps < 32 else 2]
        assert layer["update_ratio"] == pytest.approx(_mean(taken), rel=1e-5, abs=1e-9), key
        end = parameters[key].detach().double()
        whole = ((end - start[key]).norm() / start[key].norm()).item()
        assert layer["epoch_update_ratio"] == pytest.approx(whole, rel=1e-5, abs=1e-9), key
    totals = [math.sqrt(sum(norms[key][step] ** 2 for key in parameters)) for step in range(steps)]
    gradients = measured["gradients"]
    assert gradients["total_norm_mean"] == pytest.approx(_mean(totals), rel=1e-5)
    scale = statistics.mean(totals) ** 2 / statistics.variance(totals)
    assert gradients["norm_noise_scale"] == pytest.approx(scale, rel=1e-3)  # a small difference


@pytest.mark.parametrize("steps", [1, 5, 16, 31, 32, 46, 100, 703])
def test_update_ratios_are_spread_over_the_epoch(steps: int) -> None:
    model = nn.Linear(2, 2)
    watch = EpochWatch(model, effective_batch=1, steps=steps)
    taken = [step for step in range(steps) if step % watch.ratio_every == 0]
    assert len(taken) >= min(steps, 16)
    assert steps - taken[-1] <= watch.ratio_every
    assert watch.ratio_every == 1 or steps >= 32


def _flat(gradients: Iterable[Tensor | None]) -> Tensor:
    return torch.cat([each.flatten() for each in gradients if each is not None]).double()


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_probe_compares_gradients_of_two_batches_at_the_same_weights(
    name: str, accumulation: int
) -> None:
    model, batches = MODELS[name](), _batches(2 * accumulation)
    watch = EpochWatch(model, effective_batch=BATCH * accumulation)

    def losses(first: int) -> Iterator[Tensor]:
        for images, labels in batches[first : first + accumulation]:
            yield functional.cross_entropy(model(images), labels) / accumulation

    for loss in losses(0):
        torch.autograd.backward(loss)
    own = _flat(parameter.grad for parameter in model.parameters())
    watch.gradients()
    assert watch.probe_due
    watch.probe(losses(accumulation))
    watch.updated()
    assert torch.equal(own, _flat(parameter.grad for parameter in model.parameters()))
    total = torch.stack(list(losses(accumulation))).sum()
    other = _flat(torch.autograd.grad(total, list(model.parameters())))
    watch.close()
    [[product, square]] = watch.measured()["gradients"]["probes"]
    assert product == pytest.approx(float(own @ other), rel=1e-4)
    assert square == pytest.approx(float(own @ own + other @ other) / 2, rel=1e-5)


@pytest.mark.slow  # it draws for long
def test_signal_to_noise_agrees_with_redrawn_batches() -> None:
    """At weights that stand still; |G|^2 and the noise come from gradients drawn anew."""
    model, draws = _model(), torch.Generator().manual_seed(11)
    [(images, labels)] = _batches(1, size=400)
    images = images + torch.nn.functional.one_hot(labels, 32)[:, None, None, :]  # a signal

    def losses(size: int = 64) -> Iterator[Tensor]:
        chosen = torch.randperm(400, generator=draws)[:size]
        yield functional.cross_entropy(model(images[chosen]), labels[chosen])

    def redraw() -> Tensor:
        [loss] = losses()
        return _flat(torch.autograd.grad(loss, list(model.parameters())))

    drawn = torch.stack([redraw() for _ in range(96)])
    gram = drawn @ drawn.T
    square = float(gram.diagonal().mean())
    signal = float((gram.sum() - gram.trace()) / (96 * 95))
    truth = signal / (square - signal)
    watch = EpochWatch(model, effective_batch=64)
    for _ in range(40):
        model.zero_grad()
        chosen = torch.randperm(400, generator=draws)[:64]
        torch.autograd.backward(watch.loss(model(images[chosen]), labels[chosen]))
        watch.gradients()
        watch.probe(losses())  # more often than it is due: a pool of many epochs
        watch.updated()
    watch.close()
    gradients = watch.measured()["gradients"]
    assert gradients["signal_to_noise"] == pytest.approx(truth, rel=0.3)
    assert gradients["signal_to_noise_low"] < truth * 1.15
    assert gradients["signal_to_noise_high"] > truth / 1.15
    assert gradients["noise_scale"] == pytest.approx(64 / gradients["signal_to_noise"])
    signals = signals_of(0, {**watch.measured(), "validation": {"loss": 1.0}})
    assert signals.noise is not None
    pooled = pool_noise([signals.noise, signals.noise])
    assert pooled is not None
    assert (
        pooled.high - pooled.low
        < gradients["signal_to_noise_high"] - (gradients["signal_to_noise_low"])
    )


def test_probe_is_due_in_the_first_step_and_after_every_48() -> None:
    model = nn.Linear(2, 2)
    watch = EpochWatch(model, effective_batch=1)
    due = []
    for step in range(2 * PROBE_EVERY + 1):
        torch.autograd.backward(watch.loss(model(torch.ones(1, 2)), torch.zeros(1).long()))
        watch.gradients()
        due += [step] if watch.probe_due else []
        watch.updated()
    assert due == [0, PROBE_EVERY, 2 * PROBE_EVERY]


def test_nothing_is_said_of_the_noise_in_an_epoch_of_two_steps() -> None:
    gradients = _train(_model(), _batches(2)).measured()["gradients"]
    assert gradients["signal_to_noise"] is gradients["signal_to_noise_high"] is None
    assert gradients["noise_scale"] is None


def _train_probed(batches: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    model = _model()
    watch = EpochWatch(model, effective_batch=BATCH)
    for (images, labels), (other, others) in zip(batches, reversed(batches), strict=True):
        model.zero_grad()
        torch.autograd.backward(watch.loss(model(images), labels))
        watch.gradients()
        if watch.probe_due:
            watch.probe(functional.cross_entropy(model(other), others) for _ in range(1))
        watch.updated()
    watch.close()
    found: dict[str, Any] = watch.measured()["gradients"]
    return found


def test_epochs_of_two_steps_say_something_of_the_noise_together() -> None:
    epochs = [_train_probed(_batches(2, seed)) for seed in range(3)]
    probes = [
        NoiseProbes(tuple((a, b) for a, b in each["probes"]), each["spread"], each["spread_pairs"])
        for each in epochs
    ]
    assert [each.pairs for each in probes] == [1, 1, 1]
    assert pool_noise(probes[:2]) is None
    assert pool_noise(probes) is not None


def test_epoch_without_a_step_is_measured() -> None:
    measured = EpochWatch(_model(), effective_batch=BATCH).measured()
    assert measured["gradients"]["total_norm_mean"] is None
    assert measured["train"] == {"loss": 0.0, "accuracy": 0.0, "examples": 0, "steps": 0}


def test_frozen_and_unused_parameters_are_left_out() -> None:
    model = _seeded(_Perceptron)
    first, second = model.get_submodule("first"), model.get_submodule("second")
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    first.weight.requires_grad_(False)
    model.unused = nn.Parameter(torch.ones(2, 2))
    layers = {each["name"]: each for each in _train(model, _batches(3)).measured()["layers"]}
    assert "first.weight" not in layers
    assert layers["unused"]["grad_norm"] is None
    assert layers["second.weight"]["grad_norm"] > 0


ACTIVATIONS: dict[str, tuple[Any, int]] = {  # and units that are dead of eight, see below
    "relu module": (nn.ReLU(), 2),
    "relu in place": (nn.ReLU(inplace=True), 2),
    "relu function": (functional.relu, 2),
    "torch.relu": (torch.relu, 2),
    "relu method": (lambda x: x.relu(), 2),
    "relu6": (functional.relu6, 4),
    "gelu": (nn.GELU(), 2),
    "silu": (functional.silu, 2),
    "hardswish": (functional.hardswish, 2),
    "hardtanh": (nn.Hardtanh(), 4),
    "clamp": (lambda x: x.clamp(min=0), 2),
    "elu": (nn.ELU(), 2),
    "softsign": (functional.softsign, 0),
    "tanh": (torch.tanh, 4),
    "sigmoid": (nn.Sigmoid(), 4),
    "leaky_relu": (nn.LeakyReLU(), 0),
    "prelu": (nn.PReLU(), 0),
}


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dead_units_agree_with_slopes(name: str, rank: int) -> None:
    """Units 0 and 1 lie far below zero, 2 and 3 far above."""
    activation, dead = ACTIVATIONS[name]
    first: nn.Module = nn.Linear(8, 8) if rank < 4 else nn.Conv2d(8, 8, 1)
    with torch.no_grad():
        assert isinstance(first.bias, Tensor)
        assert isinstance(first.weight, Tensor)
        first.weight.copy_(torch.eye(8).reshape(first.weight.shape))
        first.bias.copy_(torch.tensor([-24.0, -24.0, 24.0, 24.0, 0.0, 0.0, 0.0, 0.0]))
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn((16, 8, 5, 5) if rank == 4 else (16, 6, 8)[-rank:], generator=rng)
    inputs = inputs if rank != 2 else torch.randn(16, 8, generator=rng)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = first, nn.Linear(8, 3)
            self.act = activation

        def forward(self, x: Tensor) -> Tensor:
            before = self.first(x)
            out = self.act(before)
            while out.dim() > 2:
                out = out.mean(dim=-1) if rank == 4 else out.mean(dim=1)
            logits: Tensor = self.last(out)
            return logits

    model = _seeded(Model)
    watch = EpochWatch(model, effective_batch=16)
    labels = torch.randint(0, 3, (16,), generator=rng)
    torch.autograd.backward(watch.loss(model(inputs), labels))
    watch.close()
    [layer] = watch.measured()["activations"]
    assert (layer["units"], layer["dead_units"]) == (8, dead)
    assert layer["name"] == "act" if isinstance(activation, nn.Module) else layer["name"] != "act"


@pytest.mark.parametrize("activation", ["leaky_relu", "prelu"])
def test_remedy_for_dead_units_clears_them(activation: str) -> None:
    for kind, dead in (("relu", 6), (activation, 0)):
        model = _model(kind)
        with torch.no_grad():
            norm = model.blocks[0].get_submodule("norm2")
            assert isinstance(norm, nn.BatchNorm2d)
            norm.weight[:] = 0.1
            norm.bias[:] = -10
        layers = _train(model, _batches(1), lr=1e-6).measured()["activations"]
        assert {each["name"]: each["dead_units"] for each in layers}["blocks.0.act2"] == dead


def test_activations_agree_with_all_of_them() -> None:
    model = _model()
    with torch.no_grad():
        norm = model.blocks[0].get_submodule("norm2")
        assert isinstance(norm, nn.BatchNorm2d)
        norm.weight[:2] = 0  # two units of six below zero, whatever comes in
        norm.bias[:2] = -1
        norm.bias[5] = 3  # the channels differ
    outputs: list[Tensor] = []
    hook = (
        model.blocks[0]
        .get_submodule("act2")
        .register_forward_hook(lambda _module, _inputs, output: outputs.append(output.detach()))
    )
    layers = _train(model, _batches(LOOK_EVERY + 1), lr=1e-6).measured()["activations"]
    hook.remove()
    assert [entry["name"] for entry in layers] == ["blocks.0.act1", "blocks.0.act2", "act"]
    layer = layers[1]
    looked = torch.stack([outputs[0], outputs[LOOK_EVERY]])  # (looks, B, C, H, W)
    assert (layer["units"], layer["dead_units"]) == (6, 2)
    rows = looked[:, : max(8, 16_384 // looked[0, 0].numel())]
    assert layer["sparsity"] == pytest.approx((rows == 0).double().mean().item(), rel=1e-12)
    assert layer["p50"] == pytest.approx(looked.quantile(0.5).item(), abs=0.02)
    assert layer["p99"] == pytest.approx(looked.quantile(0.99).item(), rel=0.03)
    assert sum(entry["dead_units"] for entry in layers) == 2


@pytest.mark.parametrize("shape", [(64, 32, 16, 16), (64, 8, 16, 16), (128, 50, 48), (4096, 64)])
def test_percentiles_do_not_depend_on_the_order_of_channels(shape: tuple[int, ...]) -> None:
    """Every dimension in turn decides how large the values are."""
    rng = torch.Generator().manual_seed(3)
    for dim in range(len(shape)):
        sizes = [1] * len(shape)
        sizes[dim] = shape[dim]
        values = torch.rand(shape, generator=rng) + torch.arange(shape[dim]).view(sizes)
        seen = _Activation(shape[1])
        seen.look(values, 1)
        found = seen.measured()
        below = [(values <= found[name]).double().mean().item() for name in ("p50", "p99")]
        assert below == [pytest.approx(0.5, abs=0.03), pytest.approx(0.99, abs=0.005)]


def test_activations_have_one_name_for_each_call() -> None:
    measured = _train(_seeded(_Perceptron), _batches(1)).measured()["activations"]
    assert [(each["name"], each["units"]) for each in measured] == [("tanh", 12), ("silu", 12)]
    measured = _train(_seeded(_Transformer), _batches(1)).measured()["activations"]
    assert [(each["name"], each["units"]) for each in measured] == [("layer.relu", 24)]

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(32, 10), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.act(self.layer(self.act(x.mean(dim=(1, 2)) * self.layer.bias[0])))
            return logits

    measured = _train(_seeded(Twice), _batches(1)).measured()["activations"]
    assert [(each["name"], each["units"]) for each in measured] == [("act", 32), ("act:2", 10)]


def test_model_without_activations_is_watched() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    measured = _train(model, _batches(4)).measured()
    assert measured["activations"] == []
    assert signals_of(0, {**measured, "validation": {"loss": 1.0}}).dead_share is None


def test_validation_does_not_leak_into_training_statistics() -> None:
    def measure(*, validated: bool) -> dict[str, Any]:
        model = _model()
        watch = EpochWatch(model, effective_batch=BATCH)
        if validated:  # a pass whose activations would raise every peak
            labels = torch.zeros(8, dtype=torch.int64)
            validate_model(model, Split(torch.full((8, 3, 32, 32), 255, dtype=torch.uint8), labels))
        for images, labels in _batches(3):
            torch.autograd.backward(watch.loss(model(images), labels))
            watch.gradients()
            watch.updated()
        watch.close()
        return watch.measured()

    assert measure(validated=True) == measure(validated=False)


def test_watch_leaves_no_hook_behind_when_it_is_closed() -> None:
    model = _model()
    watch = EpochWatch(model, effective_batch=BATCH)
    hooked = [module for module in model.modules() if module._forward_hooks]
    assert hooked == [model]
    with pytest.raises(RuntimeError):
        model(torch.zeros(1, 5, 32, 32))  # a forward pass that fails in the middle
    watch.close()
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
        assert not any(getattr(module, hooks) for module in model.modules())
    assert torch._C._len_torch_function_stack() == 0
    every = torch.nn.modules.module
    assert not every._global_forward_hooks
    assert not every._global_forward_pre_hooks


def test_modules_of_another_model_are_not_looked_at() -> None:
    """The hooks that know which module makes a call are set for all modules."""
    other = nn.Sequential(nn.Linear(32, 32), nn.ReLU())

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(32, 10), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                other(x.mean(dim=(1, 2)))
            logits: Tensor = self.act(self.layer(x.mean(dim=(1, 2))))
            return logits

    measured = _train(_seeded(Asking), _batches(1)).measured()["activations"]
    assert [(each["name"], each["units"]) for each in measured] == [("act", 10)]


@pytest.mark.parametrize("limit", [1, 10_000, 10**9])
def test_norms_do_not_depend_on_how_many_are_taken_together(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure() -> tuple[list[float], list[float]]:
        measured = _train(_model(), _batches(6)).measured()
        names = ("grad_norm", "update_ratio", "epoch_update_ratio")
        layers = [layer[name] for layer in measured["layers"] for name in names]
        found = [value for value in layers if value is not None]
        return found, [measured["gradients"][name] for name in ("total_norm_mean", "spread")]

    expected = measure()
    monkeypatch.setattr(diagnostics, "_NUMBERS", limit)
    for found, plain in zip(measure(), expected, strict=True):
        assert found == pytest.approx(plain, rel=1e-9)


def test_model_of_one_parameter_is_watched() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10, bias=False))
    start = model.get_parameter("1.weight").detach().clone()
    measured = _train(model, _batches(2)).measured()
    [layer] = measured["layers"]
    moved = (model.get_parameter("1.weight").detach() - start).norm() / start.norm()
    assert layer["epoch_update_ratio"] == pytest.approx(float(moved), rel=1e-5)
    assert layer["grad_norm"] == pytest.approx(measured["gradients"]["total_norm_mean"])


@pytest.mark.parametrize("name", [*MODELS, "dropout"])
def test_watch_leaves_the_training_as_it_is(name: str) -> None:
    """Bit for bit, probes included, and the global generator too."""

    def build() -> nn.Module:
        if name in MODELS:
            return MODELS[name]()
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        return _seeded(lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(3_600, 10)))

    def train(model: nn.Module, *, watched: bool) -> dict[str, Tensor]:
        torch.manual_seed(8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        watch = EpochWatch(model, effective_batch=BATCH)
        for images, labels in _batches(4):
            optimizer.zero_grad()
            if watched:
                torch.autograd.backward(watch.loss(model(images), labels))
                watch.gradients()
                watch.probe(functional.cross_entropy(model(-images), labels) for _ in range(2))
            else:
                torch.autograd.backward(functional.cross_entropy(model(images), labels))
            optimizer.step()
            watch.updated()
        watch.close()
        return {**model.state_dict(), "": torch.get_rng_state()}

    model = build()
    copy = deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        old, new = train(model, watched=False), train(copy, watched=True)
    assert all(torch.equal(old[key], new[key]) for key in old)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradients_are_flagged_when_they_are_not_finite(value: float) -> None:
    model = _model()
    batches = _batches(3)
    batches[1][0][0, 0, 0, 0] = value
    measured = _train(model, batches).measured()
    assert measured["gradients"]["finite"] is False
    assert not math.isfinite(measured["train"]["loss"])
    signals = signals_of(0, {**measured, "validation": {"loss": math.nan}})
    assert signals.max_layer_grad_norm is not None
    assert not math.isfinite(signals.max_layer_grad_norm)


def test_measured_part_fits_into_an_entry_when_the_model_is_deepest() -> None:
    block = BlockSpec(4, True, "batch", "prelu")
    model = ResidualCNN(ModelSpec(10, 4, 4, (block,) * MAX_BLOCKS, "batch", "prelu"))
    measured = _train(model, _batches(2)).measured()
    assert 20_000 < len(encode_body(measured)) < 60_000  # bytes; an entry holds 65,535
