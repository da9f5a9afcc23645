"""Kinds of model and loss that are not like the built-in network, and plain loops that train them.

Each has the optimizer and the learning rate that people would take for it. Data are drawn or
computed; nothing is loaded.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import torch
from torch import Tensor, nn
from torch.nn import functional

from aggregates.run import Run
from aggregates.signals import EpochSignals
from monitor.watching import WatchedRun, keep_quiet
from proctor.home import Home
from proctor.runs.watching import watch

_TEXT = Path(__file__).resolve().parents[2] / "docs" / "reference"  # characters to learn from
_TOKENS, _BATCH = 32, 32


@dataclass(frozen=True)
class Made:
    """A model with what a loop needs of it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Sequence[Tensor]], Tensor]  # of a batch
    data: Sequence[Tensor]  # examples first; the last fifth validates
    batch: int = _BATCH
    classes: int | None = None
    clip: float | None = None
    parts: int = 1  # batches of a step
    before: Callable[[], object] | None = None  # what the loop does at an epoch's beginning
    scheduler: Any = None  # of the optimizer, stepped after each update
    half: bool = False


# Data, drawn alike for every seed of a kind


@cache
def characters() -> Tensor:
    """Return the codes of a text in this documentation, in rows (N, 33)."""
    text = "".join(path.read_text("utf-8") for path in sorted(_TEXT.glob("*.md")))
    codes = torch.tensor([min(ord(each), 127) for each in text[: 640 * (_TOKENS + 1)]])
    return codes.view(-1, _TOKENS + 1)


@cache
def _images(count: int = 640) -> tuple[Tensor, Tensor]:
    """Return gratings of ten orientations (N, 1, 16, 16) in noise, and their classes."""
    draw = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 10, (count,), generator=draw)
    angle = labels * (math.pi / 10)
    place = torch.arange(16.0) - 7.5
    x, y = place.view(1, 1, 16), place.view(1, 16, 1)
    wave = torch.cos(angle).view(-1, 1, 1) * x + torch.sin(angle).view(-1, 1, 1) * y
    phase = 2 * math.pi * torch.rand((count, 1, 1), generator=draw)
    noise = 0.5 * torch.randn((count, 16, 16), generator=draw)
    return (torch.cos(wave * 0.9 + phase) + noise).unsqueeze(1), labels


@cache
def _columns(count: int = 1280) -> tuple[Tensor, Tensor]:
    """Return columns (N, 12) and what a small function makes of them (N, 1)."""
    draw = torch.Generator().manual_seed(6)
    x = torch.randn((count, 12), generator=draw)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:4].abs()
    return x, y + 0.1 * torch.randn((count, 1), generator=draw)


@cache
def _bags(count: int = 1280) -> tuple[Tensor, Tensor]:
    """Return bags of 20 of 2,000 words (N, 20), and which of four topics each is about."""
    draw = torch.Generator().manual_seed(7)
    topics = torch.randint(0, 4, (count,), generator=draw)
    words = torch.randint(0, 2_000, (count, 20), generator=draw)
    own = topics.view(-1, 1) * 50 + torch.randint(0, 50, (count, 20), generator=draw)
    return torch.where(torch.rand((count, 20), generator=draw) < 0.3, own, words), topics


# Models


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU], width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.cells = kind(width, width, batch_first=True)
        self.head = nn.Linear(width, 128)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.cells(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits


class _Transformer(nn.Module):
    def __init__(self, *, width: int = 64, layers: int = 2, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.place = nn.Parameter(torch.randn(_TOKENS, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 128, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        ahead = torch.full((_TOKENS, _TOKENS), -math.inf).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens) + self.place
        logits: Tensor = self.head(self.norm(self.layers(states, mask=self.ahead)))
        return logits


class _Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.place = nn.Parameter(torch.randn(16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        states = self.patches(images).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.head(self.layers(states).mean(1))
        return logits


class _Lora(nn.Module):
    """A frozen layer with a low-rank addition that is trained."""

    def __init__(self, inner: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, inner.in_features) / inner.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(inner.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.inner(x) + x @ self.down.T @ self.up.T
        return added


class _Gated(nn.Module):
    """A branch beside the states, whose last layer begins at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide, self.back = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.back.weight)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = x + self.back(torch.relu(self.wide(x)))
        return states


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU())
        self.mean, self.spread = nn.Linear(128, 8), nn.Linear(128, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 256))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states = self.encoder(images)
        mean, spread = self.mean(states), self.spread(states)
        drawn = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decoder(drawn), mean, spread


def _mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    parts: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        parts += [nn.Linear(wide, narrow), activation()]
    return nn.Sequential(*parts[:-1])


def _cnn(*, norm: bool) -> nn.Sequential:
    def block(wide: int, narrow: int) -> list[nn.Module]:
        between = [nn.BatchNorm2d(narrow)] if norm else []
        return [nn.Conv2d(wide, narrow, 3, 2, 1), *between, nn.ReLU()]

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*block(1, 16), *block(16, 32), *block(32, 64), *head)


# Kinds: what is trained, by which optimizer, on which loss


def _classify(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Sequence[Tensor], **more: Any
) -> Made:
    classes = int(data[1].max()) + 1

    def loss(batch: Sequence[Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    return Made(model, optimizer, loss, data, classes=classes, **more)


def _language(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, summed: bool = False, **more: Any
) -> Made:
    def loss(batch: Sequence[Tensor]) -> Tensor:
        tokens = batch[0]
        found = functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1),
            tokens[:, 1:].flatten(),
            reduction="sum" if summed else "mean",
        )
        return found / len(tokens) if summed else found  # a sum over tokens, a mean over examples

    return Made(model, optimizer, loss, (characters(),), **more)


def _regress(model: nn.Module, optimizer: torch.optim.Optimizer, *, scale: float = 1.0) -> Made:
    def loss(batch: Sequence[Tensor]) -> Tensor:
        return functional.mse_loss(model(batch[0]), scale * batch[1])

    return Made(model, optimizer, loss, _columns())


def _adam(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=lr)


def _adamw(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    trained = [each for each in model.parameters() if each.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, weight_decay=0.01)


def _sgd(model: nn.Module, lr: float, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)


def _lora() -> Made:
    model = _mlp(256, 64, 64, 10)
    body = nn.Sequential(
        nn.Flatten(), *(_Lora(p) if isinstance(p, nn.Linear) else p for p in model)
    )
    return _classify(body, _adamw(body, 3e-3), _images())


def _frozen_norm() -> Made:
    model = _cnn(norm=True)

    def freeze() -> None:
        for each in model.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.eval()

    return _classify(model, _sgd(model, 0.05), _images(), before=freeze)


def _vae(reduction: str) -> Made:
    model = _Vae()

    def loss(batch: Sequence[Tensor]) -> Tensor:
        images = batch[0].flatten(1)
        made, mean, spread = model(batch[0])
        apart = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum()
        found: Tensor = functional.mse_loss(made, images, reduction="sum") + apart
        return found if reduction == "sum" else found / images.numel()

    return Made(model, _adam(model), loss, (_images()[0],))


def _autoencoder() -> Made:
    model = _mlp(256, 64, 16, 64, 256)

    def loss(batch: Sequence[Tensor]) -> Tensor:
        images = batch[0].flatten(1)
        return functional.mse_loss(model(images), images)

    return Made(model, _adam(model), loss, (_images()[0],))


def _contrastive() -> Made:
    model = nn.Sequential(nn.Flatten(), _mlp(256, 128, 32))

    def loss(batch: Sequence[Tensor]) -> Tensor:
        views = [batch[0] + 0.3 * torch.randn_like(batch[0]) for _ in "12"]
        first, second = (functional.normalize(model(view), dim=1) for view in views)
        told: Tensor = first @ second.T / 0.2
        return functional.cross_entropy(told, torch.arange(len(first)))

    return Made(model, _adam(model), loss, (_images()[0],), batch=64)


def _distilled() -> Made:
    teacher = nn.Sequential(nn.Flatten(), _mlp(256, 64, 10)).requires_grad_(requires_grad=False)
    model = nn.Sequential(nn.Flatten(), _mlp(256, 32, 10))

    def loss(batch: Sequence[Tensor]) -> Tensor:
        wanted = functional.softmax(5 * teacher(batch[0]), 1)
        return functional.cross_entropy(model(batch[0]), wanted)

    return Made(model, _adam(model, 3e-3), loss, (_images()[0],))


def _graph() -> Made:
    """Two rounds of messages between the 12 columns of an example."""
    model = nn.ModuleDict(
        {"into": nn.Linear(1, 32), "round": nn.Linear(32, 32), "out": _mlp(32, 1)}
    )
    place = nn.Parameter(torch.randn(12, 32) * 0.1)
    model.register_parameter("place", place)

    def loss(batch: Sequence[Tensor]) -> Tensor:
        states = torch.relu(model["into"](batch[0].unsqueeze(2)) + place)
        for _ in "12":
            states = torch.relu(model["round"](states + states.mean(1, keepdim=True)) + states)
        return functional.mse_loss(model["out"](states.mean(1)), batch[1])

    return Made(model, _adam(model, 3e-3), loss, _columns())


def _warmed() -> Made:
    model = _Transformer()
    optimizer = _adamw(model, 3e-3)
    steps = 16 * 10
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1)
    return _language(model, optimizer, scheduler=schedule, clip=1.0)


def _bag() -> Made:
    model = nn.Sequential(nn.EmbeddingBag(2_000, 16, sparse=True), nn.Linear(16, 4))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    return _classify(model, optimizer, _bags())


def _words() -> Made:
    """Most of the words never occur."""
    model = nn.EmbeddingBag(20_000, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.03)
    return _classify(model, optimizer, _bags())


def _gates() -> Made:
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), *(_Gated(64) for _ in "123"))
    model.append(nn.Linear(64, 10))
    return _classify(model, _adam(model), _images())


def _probed() -> Made:
    body = nn.Sequential(nn.Flatten(), _mlp(256, 256), nn.ReLU()).requires_grad_(False)
    head = nn.Linear(256, 10)
    nn.init.zeros_(head.weight)
    model = nn.Sequential(body, head)
    return _classify(model, _adamw(model, 0.01), _images())


def _with(
    model: nn.Module, optimizer: Callable[..., torch.optim.Optimizer], *args: Any
) -> tuple[nn.Module, torch.optim.Optimizer]:
    return model, optimizer(model, *args)


KINDS: Mapping[str, Callable[[], Made]] = MappingProxyType(
    {
        "transformer, AdamW": lambda: _language(*_with(_Transformer(), _adamw)),
        "transformer, tied": lambda: _language(*_with(_Transformer(tied=True), _adamw)),
        "transformer, one cycle, clipped": _warmed,
        "transformer, bfloat16": lambda: _language(*_with(_Transformer(), _adamw), half=True),
        "transformer, loss a sum over tokens": lambda: _language(
            *_with(_Transformer(), _adamw), summed=True
        ),
        "transformer, accumulated": lambda: _language(
            *_with(_Transformer(), _adamw), parts=4, batch=8
        ),
        "LSTM, Adam": lambda: _language(*_with(_Recurrent(nn.LSTM), _adam, 3e-3)),
        "LSTM, loss a sum over tokens": lambda: _language(
            *_with(_Recurrent(nn.LSTM), _adam, 3e-3), summed=True
        ),
        "GRU, SGD": lambda: _language(*_with(_Recurrent(nn.GRU), _sgd, 0.5), clip=1.0),
        "CNN, Adam, no norm": lambda: _classify(*_with(_cnn(norm=False), _adam), _images()),
        "CNN, SGD, BatchNorm": lambda: _classify(*_with(_cnn(norm=True), _sgd, 0.05), _images()),
        "CNN, BatchNorm in eval": _frozen_norm,
        "vision transformer, AdamW": lambda: _classify(*_with(_Patches(), _adamw), _images()),
        "LoRA, AdamW": _lora,
        "VAE, summed loss": partial(_vae, "sum"),
        "VAE, mean loss": partial(_vae, "mean"),
        "autoencoder, Adam": _autoencoder,
        "contrastive, Adam": _contrastive,
        "distillation, Adam": _distilled,
        "graph, Adam": _graph,
        "regression, Adam": lambda: _regress(*_with(_mlp(12, 64, 64, 1), _adam, 3e-3)),
        "regression, targets times 100": lambda: _regress(
            *_with(_mlp(12, 64, 64, 1), _adam, 3e-3), scale=100.0
        ),
        "regression, tanh, SGD": lambda: _regress(
            *_with(_mlp(12, 64, 64, 1, activation=nn.Tanh), _sgd, 0.02)
        ),
        "sparse bag, Adagrad": _bag,
        "sparse bag, SGD": lambda: _classify(
            *_with(
                nn.Sequential(nn.EmbeddingBag(2_000, 16, sparse=True), nn.Linear(16, 4)),
                *(_sgd, 1.0, 0.0),
            ),
            _bags(),
        ),
        "sparse words, SparseAdam": _words,
        "branches from zero, Adam": _gates,
        "probe from zero, AdamW": _probed,
    }
)


def train_watched(
    made: Made,
    kind: str,
    epochs: int,
    factor: Callable[[int], float] = lambda _: 1.0,
    policy: str | None = None,
) -> tuple[Sequence[EpochSignals], float, list[str]]:
    """Train under watch; return the signals, the validation loss at the end, what was done.

    `factor` tells what an epoch's training loss is multiplied by. Without `policy` nobody acts.
    """
    acted = list[str]()
    with tempfile.TemporaryDirectory(prefix="proctor-zoo-") as name:
        home = Path(name)
        with watch(
            *(made.model, made.optimizer),
            name=kind,
            epochs=epochs,
            batch_size=made.batch,
            accumulation=made.parts,
            train_examples=len(made.data[0]) * 4 // 5,
            classes=made.classes,
            clip_norm=made.clip,
            policy=policy,
            home=home,
            say=keep_quiet,
        ) as run:
            for epoch in run.epochs(epochs):
                train_epoch(made, run, factor=factor(epoch))
                acted += [f"{epoch}: {line}" for line in run.validate(loss=loss_on(made))]
        with Home(home).open_log() as log:
            recorded: Run = log.repository.get(UUID(run.id))
        after = loss_on(made)  # of the weights that the last decision has left
        return recorded.history, after, acted if policy is not None else []


def language_model(lr: float, *, clip: float | None = None) -> Made:
    """Return the first kind, at another rate."""
    model = _Transformer()
    return _language(model, _adamw(model, lr), clip=clip)


def train_epoch(made: Made, run: WatchedRun | None = None, factor: float = 1.0) -> None:
    """Train one epoch, watched or not; the loss is multiplied by `factor`."""
    count = len(made.data[0]) * 4 // 5
    made.model.train()
    if made.before is not None:
        made.before()
    order = torch.randperm(count)
    batches = [order[at : at + made.batch] for at in range(0, count - made.batch + 1, made.batch)]
    for number, rows in enumerate(batches[: len(batches) // made.parts * made.parts]):
        with torch.autocast("cpu", torch.bfloat16, enabled=made.half):
            loss = factor * made.loss([part[rows] for part in made.data])
        torch.autograd.backward(loss / made.parts)
        update = number % made.parts == made.parts - 1
        if run is not None:
            run.step(loss.detach(), update=update)
        elif update:
            if made.clip is not None:
                torch.nn.utils.clip_grad_norm_(made.model.parameters(), made.clip)
            made.optimizer.step()
            made.optimizer.zero_grad()
        if made.scheduler is not None:
            made.scheduler.step()


def loss_on(made: Made) -> float:
    """Return the validation loss."""
    made.model.eval()
    count = len(made.data[0]) * 4 // 5
    with torch.no_grad():
        return float(made.loss([part[count:] for part in made.data]))
