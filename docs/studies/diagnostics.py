"""How true the monitor's diagnostics are: a study against brute force.

    python docs/studies diagnostics [CIFAR_DIR]

First table: watched training of several models. Each diagnostic is computed again in float64 from
every step and from all activations that were looked at. Second table: the 90% interval of the
signal-to-noise ratio against redrawn batches, at three stages of training. CIFAR_DIR is a folder
for `imagefolder:`. It takes at most six minutes on one core.
"""

import math
import random
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from aggregates.noise import NoiseProbes, pool_noise, spread_of
from monitor.config import RunConfig
from monitor.datasets import Split, load_splits
from monitor.diagnostics import LOOK_EVERY, EpochWatch
from monitor.loop import epoch_order
from monitor.model import ResidualCNN
from studies.statistics import print_table

_BATCH = 64
_LR = 0.05
_STAGES = (1, 4, 9)  # epochs of training before a stage
_REDRAWN = {16: 256, 64: 160, 256: 64}  # gradients that the truth comes from, by batch size
_CASES = 200  # at each stage
_POOLED = 3  # probes of a case


class _Perceptron(nn.Module):
    """Two hidden layers; activations are called as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3 * 32 * 32, 32), nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 3, 32, 32) to logits (B, 10)."""
        hidden = functional.relu(self.first(x.flatten(1)))
        logits: Tensor = self.last(functional.silu(self.second(hidden)))
        return logits


class _Transformer(nn.Module):
    """One encoder layer over the rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(96, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 3, 32, 32) to logits (B, 10)."""
        tokens = self.embed(x.transpose(1, 2).flatten(2))  # (B, 32, 32)
        logits: Tensor = self.head(self.layer(tokens).mean(dim=1))
        return logits


def run(options: Namespace) -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes = load_splits(RunConfig(train_examples=3_000)).train
    cases: list[tuple[str, Callable[[], nn.Module], Split]] = [
        ("network, shapes", _network, shapes),
        ("perceptron, shapes", _Perceptron, shapes),
        ("transformer, shapes", _Transformer, shapes),
    ]
    if options.folder is not None:
        config = RunConfig(dataset=f"imagefolder:{options.folder}", train_examples=3_000)
        cases.append(("network, images", _network, load_splits(config).train))
    print(
        "Largest relative error against brute force in float64; percentiles: share of activations\n"
        "at or below the value, less 0.5 or 0.99; dead units: wrong ones.\n"
    )
    columns = ("loss", "norms", "updates", "epoch", "probe", "sparsity", "p50", "p99", "dead")
    found = ((name, compare_epoch(build(), data)) for name, build, data in cases)
    print_table(
        ("model, data", *columns),
        ((name, *(f"{errors[column]:.1e}" for column in columns)) for name, errors in found),
    )
    print(f"\nSignal-to-noise ratio, {_POOLED} probes and the steps of one epoch to a case:\n")
    print_table(
        ("batch", "epoch", "truth", "cases", "covered", "median / truth"), _noise_rows(shapes)
    )


def _noise_rows(data: Split) -> Iterator[tuple[Any, ...]]:
    covered: list[bool] = []
    for batch in _REDRAWN:
        ratios: list[float] = []
        for stage, truth, found in noise_cases(batch, data):
            inside = [low <= truth <= high for low, _, high in found]
            each = [estimate / truth for _, estimate, _ in found]
            covered += inside
            ratios += each
            yield batch, stage, truth, len(found), fmean(inside), median(each)
        yield batch, "all", "", len(ratios), "", median(ratios)
    yield "all", "", "", len(covered), fmean(covered), ""


def _network() -> nn.Module:
    config = RunConfig(channels=8, width=8)
    return ResidualCNN(config.spec(10), seed=0)


@dataclass
class _Truth:
    """What brute force sees of an epoch."""

    losses: list[float] = field(default_factory=list)
    norms: list[list[float]] = field(default_factory=list)
    ratios: list[list[float]] = field(default_factory=list)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    slopes: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)


def compare_epoch(model: nn.Module, data: Split, steps: int = 46) -> dict[str, float]:
    """Train an epoch under watch and return the largest error of each diagnostic."""
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR, momentum=0.9)
    order = epoch_order(len(data), seed=0, epoch=0)
    parameters = list(model.parameters())
    start = [each.detach().double() for each in parameters]
    watch, truth = EpochWatch(model, effective_batch=_BATCH, steps=steps), _Truth()
    probe = math.nan
    for step in range(steps):
        images, labels = data.batch(order[step * _BATCH : (step + 1) * _BATCH])
        optimizer.zero_grad()
        with _Outputs(truth, active=step % LOOK_EVERY == 0):
            loss = watch.loss(model(images), labels)
            torch.autograd.backward(loss)
        truth.losses.append(loss.item())
        truth.norms.append([float(_grad(each).norm()) for each in parameters])
        watch.gradients()
        if watch.probe_due:
            probe = _probe(model, watch, data)
        before = [each.detach().double() for each in parameters]
        optimizer.step()
        watch.updated()
        truth.ratios.append(_ratios(parameters, before))
    watch.close()
    measured = watch.measured()
    layers = measured["layers"]
    taken = truth.ratios[:: watch.ratio_every]
    return {
        "loss": _error(measured["train"]["loss"], fmean(truth.losses)),
        "norms": _largest(layers, "grad_norm", map(fmean, zip(*truth.norms, strict=True))),
        "updates": _largest(layers, "update_ratio", map(fmean, zip(*taken, strict=True))),
        "epoch": _largest(layers, "epoch_update_ratio", _ratios(parameters, start)),
        "probe": probe,
        **_compare_activations(measured["activations"], truth),
    }


def _probe(model: nn.Module, watch: EpochWatch, data: Split) -> float:
    """Probe the noise and return the error of the product, relative to the mean square."""
    parameters = list(model.parameters())
    images, labels = data.batch(torch.arange(_BATCH))

    def losses() -> Iterator[Tensor]:
        yield functional.cross_entropy(model(images), labels)

    watch.probe(losses())
    own = torch.cat([_grad(each).flatten() for each in parameters])
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    [loss] = losses()
    found = torch.autograd.grad(loss, parameters)
    for name, value in model.named_buffers():
        value.copy_(buffers[name])
    other = torch.cat([each.double().flatten() for each in found])
    product, square = map(float, watch.measured()["gradients"]["probes"][0])
    wrong = abs(product - float(own @ other)) / square
    return max(wrong, _error(square, float(own @ own + other @ other) / 2))


class _Outputs:
    """Keeps the outputs of activations and the slopes that autograd finds for single elements."""

    def __init__(self, truth: _Truth, *, active: bool) -> None:
        self._truth, self._active = truth, active
        self._patched: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        if self._active:
            for owner, name in ((torch, "relu"), (torch._C._nn, "silu")):
                plain = getattr(owner, name)
                self._patched.append((owner, name, plain))
                setattr(owner, name, self._watched(plain))

    def __exit__(self, *error: object) -> None:
        for owner, name, plain in self._patched:
            setattr(owner, name, plain)

    def _watched(self, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        places = iter(range(1_000))

        def call(x: Tensor, *rest: Any, **options: Any) -> Tensor:
            alias: Any = x.view_as(x)
            output = plain(alias, *rest, **options)
            place = f"{plain.__name__} {next(places)}"
            self._truth.outputs.setdefault(place, []).append(output.detach().clone())
            sides: list[Tensor] = []
            behind: Any = output
            behind.register_hook(lambda gradient: sides.append(gradient.clone()))

            def before(gradient: Tensor) -> None:
                pair = (gradient.clone(), sides[0])
                self._truth.slopes.setdefault(place, []).append(pair)

            alias.register_hook(before)
            return output

        return call


def _compare_activations(layers: list[dict[str, Any]], truth: _Truth) -> dict[str, float]:
    errors = {"sparsity": 0.0, "p50": 0.0, "p99": 0.0, "dead": 0.0}
    for layer, place in zip(layers, truth.outputs, strict=True):
        outputs = torch.stack(truth.outputs[place])  # (looks, B, ...)
        axis = 1 if outputs.dim() == 5 else outputs.dim() - 2  # of one look
        rows = outputs[:, : max(8, 16_384 // outputs[0, 0].numel())]
        zeros = (rows == 0).double().mean().item()
        errors["sparsity"] = max(errors["sparsity"], abs(layer["sparsity"] - zeros))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            below = (outputs < layer[name]).double().mean().item()
            upto = (outputs <= layer[name]).double().mean().item()
            off = max(below - share, share - upto, 0.0)  # 0 where the value is a tie
            errors[name] = max(errors[name], off)
        sides = [
            torch.stack([_largest_of(pair[side], axis) for pair in truth.slopes[place]]).amax(dim=0)
            for side in (0, 1)
        ]
        dead = int(((sides[1] > 0) & (sides[0] < 1e-3 * sides[1])).sum())
        errors["dead"] += abs(layer["dead_units"] - dead)
    return errors


def _largest_of(gradient: Tensor, axis: int) -> Tensor:
    return gradient.abs().movedim(axis, 0).flatten(1).amax(dim=1)


def noise_cases(batch: int, data: Split) -> Iterator[tuple[int, float, list[tuple[float, ...]]]]:
    """Yield the stage, the true ratio and low, estimate and high of each case."""
    model, rng = _network(), random.Random(batch)  # noqa: S311 - repeatable draws
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR, momentum=0.9)
    for epoch in range(max(_STAGES) + 1):
        if epoch in _STAGES:
            yield (epoch, *_cases(model, batch, data, rng))
        order = epoch_order(len(data), seed=1, epoch=epoch)
        for step in range(len(data) // _BATCH):  # at one batch size: the stages are alike
            images, labels = data.batch(order[step * _BATCH : (step + 1) * _BATCH])
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(model(images), labels))
            optimizer.step()


def _cases(
    model: nn.Module, batch: int, data: Split, rng: random.Random
) -> tuple[float, list[tuple[float, ...]]]:
    """Redraw batches at the present weights; each case takes its probes and steps among them."""
    parameters = list(model.parameters())
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    draws = torch.Generator().manual_seed(batch)
    gradients, losses = [], []
    for _ in range(_REDRAWN[batch]):
        images, labels = data.batch(torch.randperm(len(data), generator=draws)[:batch])
        loss = functional.cross_entropy(model(images), labels)
        found = torch.autograd.grad(loss, parameters)
        gradients.append(torch.cat([each.flatten() for each in found]))
        losses.append(loss.item())
    for name, value in model.named_buffers():
        value.copy_(buffers[name])
    stacked = torch.stack(gradients).double()
    products = stacked @ stacked.T
    gram, count = products.tolist(), len(products)
    square = float(products.trace()) / count
    signal = (float(products.sum()) - count * square) / (count * (count - 1))
    found_all: list[tuple[float, ...]] = []
    for _ in range(_CASES):
        chosen = rng.sample(range(count), 2 * _POOLED)
        probes = tuple(
            (gram[a][b], (gram[a][a] + gram[b][b]) / 2)
            for a, b in zip(chosen[::2], chosen[1::2], strict=True)
        )
        steps = rng.sample(range(count), min(len(data) // batch, count))
        spread = spread_of([gram[a][a] for a in steps], [losses[a] for a in steps])
        noise = None if spread is None else pool_noise([NoiseProbes(probes, *spread)])
        if noise is not None:
            found_all.append((noise.low, noise.estimate, noise.high))
    return signal / (square - signal), found_all


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None, "every parameter takes part in the loss"
    return parameter.grad.double()


def _ratios(after: Sequence[Tensor], before: Sequence[Tensor]) -> list[float]:
    """Return how far each tensor has come, relative to its length before (NaN for length 0)."""
    return [
        float((now.detach().double() - old).norm() / length) if (length := old.norm()) else math.nan
        for now, old in zip(after, before, strict=True)
    ]


def _error(found: float, truth: float) -> float:
    return abs(found - truth) / abs(truth)


def _largest(layers: list[dict[str, Any]], name: str, truths: Iterable[float]) -> float:
    pairs = [(layer[name], truth) for layer, truth in zip(layers, truths, strict=True)]
    known = [_error(found, truth) for found, truth in pairs if found is not None and truth > 1e-7]
    return max(known, default=0.0)
