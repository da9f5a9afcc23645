"""Every measured quantity agrees with a plain computation of its definition."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aggregates.signals import signals_of
from aggregates.spec import MAX_BLOCKS, BlockSpec, ModelSpec
from ledger.bodies import encode_body
from monitor.datasets import Split
from monitor.diagnostics import LOOK_EVERY, RATIO_EVERY, EpochWatch, signal_to_noise
from monitor.model import ResidualCNN
from monitor.session import validate_model

BATCH = 16


def _model(activation: str = "relu", norm: str = "batch") -> ResidualCNN:
    block = BlockSpec(6, True, norm, activation)
    return ResidualCNN(ModelSpec(10, 8, 4, (block,), norm, activation), seed=3)


def _batches(count: int, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(BATCH, 3, 32, 32, generator=rng),
            torch.randint(0, 10, (BATCH,), generator=rng),
        )
        for _ in range(count)
    ]


def _train(model: ResidualCNN, batches: list[tuple[Tensor, Tensor]], lr: float = 0.1) -> EpochWatch:
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


def _reference(
    model: ResidualCNN, batches: list[tuple[Tensor, Tensor]], lr: float = 0.1
) -> list[dict[str, Any]]:
    """Train by hand and keep gradients, parameters before and after, and losses of each step."""
    steps = []
    for images, labels in batches:
        named = dict(model.named_parameters())
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        gradients = torch.autograd.grad(loss, list(named.values()))
        before = {name: value.detach().clone() for name, value in named.items()}
        with torch.no_grad():
            for parameter, gradient in zip(named.values(), gradients, strict=True):
                parameter.sub_(lr * gradient)
        steps.append(
            {
                "loss": loss.item(),
                "correct": (logits.argmax(1) == labels).sum().item(),
                "gradients": dict(zip(named, gradients, strict=True)),
                "before": before,
                "after": {name: value.detach().clone() for name, value in named.items()},
            }
        )
    return steps


def test_gradients_losses_and_updates_agree_with_autograd() -> None:
    batches = _batches(2 * RATIO_EVERY + 1)
    measured = _train(_model(), batches).measured()
    steps = _reference(_model(), batches)
    assert measured["train"]["loss"] == pytest.approx(
        sum(step["loss"] for step in steps) / len(steps), rel=1e-5
    )
    assert measured["train"]["accuracy"] == sum(s["correct"] for s in steps) / (len(steps) * BATCH)
    assert measured["train"]["steps"] == len(steps)
    for layer in measured["layers"]:
        name = layer["name"]
        norms = [step["gradients"][name].norm().item() for step in steps]
        assert layer["grad_norm"] == pytest.approx(sum(norms) / len(norms), rel=1e-4), name
        assert layer["rank"] == steps[0]["before"][name].dim()
        if not steps[0]["before"][name].any():
            assert layer["update_ratio"] is layer["epoch_update_ratio"] is None
            continue
        ratios = [
            ((s["after"][name] - s["before"][name]).norm() / s["before"][name].norm()).item()
            for s in steps[::RATIO_EVERY]
        ]
        assert layer["update_ratio"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-3), name
        start, end = steps[0]["before"][name], steps[-1]["after"][name]
        expected = ((end - start).norm() / start.norm()).item()
        assert layer["epoch_update_ratio"] == pytest.approx(expected, rel=1e-3), name


def test_noise_of_successive_gradients_agrees_with_its_formula() -> None:
    batches = (_batches(2) * 5)[:9]
    gradients = _train(_model(), batches).measured()["gradients"]
    flat = [
        torch.cat([g.flatten() for g in step["gradients"].values()]).double()
        for step in _reference(_model(), batches)
    ]
    square = sum(float(g @ g) for g in flat) / 9
    product = sum(float(a @ b) for a, b in pairwise(flat)) / 8
    assert product > 0
    assert gradients["signal_to_noise"] == pytest.approx(product / (square - product), rel=1e-3)
    norms = torch.stack([g.norm() for g in flat])
    assert gradients["norm_noise_scale"] == pytest.approx(
        float(norms.mean() ** 2 / norms.var()), rel=1e-3
    )
    assert gradients["total_norm_mean"] == pytest.approx(float(norms.mean()), rel=1e-4)


def test_noise_scale_agrees_with_per_sample_gradients() -> None:
    """At weights that stand still, B_simple is tr(Sigma) / |G|^2 of the per-sample gradients."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (512,), generator=rng)
    inputs = torch.randn(512, 8, generator=rng) + 0.5 * functional.one_hot(labels, 8)
    model = nn.Linear(8, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    singles = []
    for index in range(512):
        loss = functional.cross_entropy(model(inputs[index : index + 1]), labels[index, None])
        singles.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        )
    per_sample = torch.stack(singles).double()
    mean = per_sample.mean(0)
    truth = float((per_sample - mean).square().sum(1).mean() / mean.square().sum())
    watch = EpochWatch(model, effective_batch=8)
    for _ in range(3_000):
        chosen = torch.randint(0, 512, (8,), generator=rng)
        model.zero_grad()
        torch.autograd.backward(watch.loss(model(inputs[chosen]), labels[chosen]))
        watch.gradients()
        watch.updated()
    assert watch.measured()["gradients"]["noise_scale"] == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(
    ("square", "product", "expected"),
    [(4.0, 1.0, 1 / 3), (4.0, -1.0, 0.0), (4.0, 4.0, math.inf)],
)
def test_signal_to_noise_is_defined_at_its_ends(
    square: float, product: float, expected: float
) -> None:
    assert signal_to_noise(square, product) == pytest.approx(expected)


def test_dead_units_and_sparsity_agree_with_all_activations() -> None:
    model = _model()
    with torch.no_grad():
        norm = model.blocks[0].get_submodule("norm2")
        assert isinstance(norm, nn.BatchNorm2d)
        norm.weight[:2] = 0  # two units of six below zero, whatever comes in
        norm.bias[:2] = -1
    outputs: list[Tensor] = []
    hook = (
        model.blocks[0]
        .get_submodule("act2")
        .register_forward_hook(lambda _module, _inputs, output: outputs.append(output.detach()))
    )
    batches = _batches(LOOK_EVERY + 1)
    layers = _train(model, batches, lr=1e-6).measured()["activations"]
    hook.remove()
    layer = next(entry for entry in layers if entry["name"] == "blocks.0.act2")
    looked = torch.stack([outputs[0], outputs[LOOK_EVERY]])  # (looks, B, C, H, W)
    assert (layer["units"], layer["dead_units"]) == (6, 2)
    assert int((looked.amax(dim=(0, 1, 3, 4)) <= 0).sum()) == 2
    assert layer["sparsity"] == pytest.approx((looked[:, :8] == 0).float().mean().item(), rel=1e-5)
    assert layer["p50"] == pytest.approx(looked[:, :8].quantile(0.5).item(), abs=0.02)
    assert layer["p99"] == pytest.approx(looked[:, :8].quantile(0.99).item(), rel=0.1)
    assert sum(entry["dead_units"] for entry in layers) == 2


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
    watch.close()
    assert len(hooked) == 3
    assert not any(module._forward_hooks for module in model.modules())


def test_watch_leaves_the_training_as_it_is() -> None:
    watched, bare = _model(), _model()
    _train(watched, _batches(4))
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
    for images, labels in _batches(4):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(bare(images), labels))
        optimizer.step()
    old, new = bare.state_dict(), watched.state_dict()
    assert all(torch.equal(old[name], new[name]) for name in old)


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
