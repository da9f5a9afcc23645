"""What the monitor costs: processor time of watched training over bare training.

Three arms train the same model on the same data: bare, bare again and watched. They take turns
after every optimizer step, in an order that changes, so that a disturbance of the machine meets all
three. The two bare arms tell how far equal work differs (A/A). A ratio is that of whole epochs,
start and end of the watch included; validation, which watched and bare training both need, is left
out. Residual networks are trained as `proctor run` does it, transformers by a loop of their own
under proctor.watch(), whose events are written to a ledger. One thread.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from aggregates.decisions import learning_rate
from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.diagnostics import EpochWatch
from monitor.loop import _probe_losses, epoch_order, prepare
from monitor.state import LiveState
from monitor.watching import WatchedRun, keep_quiet
from proctor.errors import ProctorError
from proctor.runs.watching import watch
from studies.speed.timing import Spread, timed
from studies.statistics import Table

_ARMS = (False, False, True)  # watched or not
_WIDTH, _LAYERS, _HEADS = 192, 6, 6  # of both transformers
_TOKENS = 64  # of an example
_STEPS = 48  # of an epoch of a transformer
_BATCH = 8

Epoch = Callable[
    [int], Iterator[None]
]  # trains the epoch of this number, and stops behind each step


@dataclass(frozen=True)
class MonitorCost:
    """Ratios of processor time, one for each epoch."""

    model: str
    parameters: int
    step_ms: float  # of bare training
    watched: tuple[float, ...]  # over bare
    bare: tuple[float, ...]  # the second bare arm over the first


@dataclass(frozen=True)
class MonitorBench:
    """What was measured, in so many epochs."""

    epochs: int
    models: list[MonitorCost]

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        yield Table(
            title=f"processor time, one thread, median of {self.epochs} epochs (least to most)",
            columns=("model", "parameters", "ms a step", "watched / bare", "bare / bare (A/A)"),
            rows=tuple(
                (
                    *(each.model, f"{each.parameters:,}", f"{each.step_ms:.1f}"),
                    *(Spread.of(ratios).shown(3) for ratios in (each.watched, each.bare)),
                )
                for each in self.models
            ),
        )


class Transformer(nn.Module):
    """A transformer encoder with a head; a subclass says what its tokens are."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(1, _TOKENS, _WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            _WIDTH, _HEADS, 4 * _WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, classes))


class LanguageModel(Transformer):
    """Predicts the next of 256 tokens."""

    def __init__(self) -> None:
        super().__init__(256)
        self.tokens = nn.Embedding(256, _WIDTH)
        ahead = torch.triu(torch.full((_TOKENS, _TOKENS), -math.inf), diagonal=1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, 256, T) of the tokens (B, T)."""
        x = self.tokens(tokens) + self.place
        logits: Tensor = self.head(self.layers(x, mask=self.ahead, is_causal=True))
        return logits.transpose(1, 2)


class VisionTransformer(Transformer):
    """Classifies images of 32 by 32 pixels by patches of 4 by 4."""

    def __init__(self) -> None:
        super().__init__(10)
        self.patches = nn.Conv2d(3, _WIDTH, 4, stride=4)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, 10) of the images (B, 3, 32, 32)."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.head(self.layers(x).mean(dim=1))
        return logits


def text_batch() -> tuple[Tensor, Tensor]:
    """Return random tokens and what follows them."""
    tokens = torch.randint(0, 256, (_BATCH, _TOKENS + 1))
    return tokens[:, :-1], tokens[:, 1:]


def image_batch() -> tuple[Tensor, Tensor]:
    """Return random images and labels."""
    return torch.randn(_BATCH, 3, 32, 32), torch.randint(0, 10, (_BATCH,))


def measure(*, epochs: int) -> MonitorBench:
    """Measure all models; changes the settings of this process's PyTorch."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    models = [_measure_network(channels, epochs=epochs) for channels in (32, 8)] + [
        _measure_watched(name, build, batch, epochs=epochs)
        for name, build, batch in (
            ("transformer", LanguageModel, text_batch),
            ("vision transformer", VisionTransformer, image_batch),
        )
    ]
    return MonitorBench(epochs, models)


def measure_smallest(*, epochs: int) -> MonitorCost:
    """Measure the smallest model alone, with which a watch costs the most."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return _measure_network(8, epochs=epochs)


def _measure_network(channels: int, *, epochs: int) -> MonitorCost:
    config = RunConfig(channels=channels, width=channels, blocks=2, threads=1)
    splits = prepare(config)
    spec, examples = config.spec(len(splits.classes)), len(splits.train)
    states = [LiveState.start(config, spec, train_examples=examples) for _ in _ARMS]
    arms = [
        partial(train_network, state, splits, watched=watched)
        for state, watched in zip(states, _ARMS, strict=True)
    ]
    return _compare(
        f"residual network, {channels} channels",
        [state.model for state in states],
        arms,
        steps=examples // config.batch_size,
        epochs=epochs,
    )


def _measure_watched(
    name: str,
    build: Callable[[], nn.Module],
    batch: Callable[[], tuple[Tensor, Tensor]],
    *,
    epochs: int,
) -> MonitorCost:
    torch.manual_seed(0)
    batches = [batch() for _ in range(_STEPS)]
    models, arms = [], []
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proctor-bench-")))
        for watched in _ARMS:
            torch.manual_seed(1)
            model = build()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            run = None
            if watched:
                run = stack.enter_context(
                    watch(model, optimizer, name=name, batch_size=_BATCH, home=home, say=keep_quiet)
                )
            models.append(model)
            arms.append(partial(train_own, model, optimizer, batches, run=run))
        return _compare(name, models, arms, steps=_STEPS, epochs=epochs)


def train_network(state: LiveState, splits: Splits, epoch: int, *, watched: bool) -> Iterator[None]:
    """Train one epoch as the monitor's loop does, and stop behind each step."""
    train, size = splits.train, state.settings.batch_size
    order = epoch_order(len(train), seed=state.config.seed, epoch=epoch)
    steps = len(train) // size
    watch = EpochWatch(state.model, effective_batch=size, steps=steps) if watched else None
    state.model.train()
    for step in range(steps):
        rate = learning_rate(state.settings, epoch=epoch, fraction=(step + 1) / steps)
        state.optimizer.param_groups[0]["lr"] = rate
        state.optimizer.zero_grad(set_to_none=True)
        indices = order[step * size : (step + 1) * size]
        images, labels = train.batch(indices, state.config.device)
        logits = state.model(images)
        loss = functional.cross_entropy(logits, labels) if not watch else watch.loss(logits, labels)
        torch.autograd.backward(loss)
        if watch is not None:
            watch.gradients()
            if watch.probe_due:
                watch.probe(_probe_losses(state, train, epoch=epoch, step=step, factor=1.0))
        state.optimizer.step()
        if watch is not None:
            watch.updated()
        yield
    if watch is not None:
        watch.close()
        watch.measured()


def train_own(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[tuple[Tensor, Tensor]],
    _epoch: int,
    *,
    run: WatchedRun | None,
) -> Iterator[None]:
    """Train one epoch as a loop of one's own does, and stop behind each step."""
    if run is not None:
        run.begin_epoch()
    for inputs, labels in batches:
        loss = functional.cross_entropy(model(inputs), labels)
        torch.autograd.backward(loss)
        if run is None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        else:
            run.step(loss)
        yield
    if run is not None:
        run.validate(loss=1.0)


def _compare(
    name: str, models: Sequence[nn.Module], arms: Sequence[Epoch], *, steps: int, epochs: int
) -> MonitorCost:
    time_epoch(arms, 0, steps=steps)  # warms up
    times = [time_epoch(arms, epoch, steps=steps) for epoch in range(1, epochs + 1)]
    pairs = zip(models[0].parameters(), models[-1].parameters(), strict=True)
    if not all(torch.equal(a, b) for a, b in pairs):
        raise ProctorError(f"{name}: the watched training differs from the bare one")
    bare = [math.sqrt(first * second) for first, second, _ in times]
    return MonitorCost(
        model=name,
        parameters=sum(each.numel() for each in models[0].parameters()),
        step_ms=1_000 * median(bare) / steps,
        watched=tuple(time[2] / own for time, own in zip(times, bare, strict=True)),
        bare=tuple(second / first for first, second, _ in times),
    )


def time_epoch(arms: Sequence[Epoch], epoch: int, *, steps: int) -> list[float]:
    """Return the processor time of the epoch in each arm, in seconds."""
    running = [arm(epoch) for arm in arms]
    spent = [0.0] * len(arms)
    orders = list(permutations(range(len(arms))))
    for turn in range(steps + 1):
        for place in orders[turn % len(orders)]:
            spent[place] += timed(partial(next, running[place], None)).processor
    return spent
