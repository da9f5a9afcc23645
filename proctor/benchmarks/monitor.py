"""What the monitor costs: processor time of watched training over bare training.

    python -m proctor.benchmarks.monitor

Three arms train the same model on the same data: bare, bare again and watched. They take turns
after every optimizer step, in an order that changes, so that a disturbance of the machine meets all
three. The two bare arms tell how far equal work differs (A/A). A ratio is that of whole epochs,
start and end of the watch included; the interval is the 95% one over epochs. Validation, which
watched and bare training both need, is left out. One thread.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from statistics import fmean

import torch
from scipy.stats import ttest_1samp
from torch.nn import functional

from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.diagnostics import EpochWatch
from monitor.loop import _probe_losses, epoch_order, prepare
from monitor.schedule import learning_rate
from monitor.state import LiveState
from proctor.benchmarks.timing import timed
from proctor.output.terminal import print_table

SETTINGS = {"channels=32 width=32": (32, 8), "channels=8 width=8": (8, 16)}  # and epochs
_ARMS = (False, False, True)  # watched or not


def train_epoch(state: LiveState, splits: Splits, epoch: int, *, watched: bool) -> Iterator[None]:
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
        images, labels = train.batch(indices)
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


def time_epoch(states: Sequence[LiveState], splits: Splits, epoch: int) -> list[float]:
    """Return the processor time of the epoch in each arm, in seconds."""
    arms = [
        train_epoch(state, splits, epoch, watched=watched)
        for state, watched in zip(states, _ARMS, strict=True)
    ]
    spent = [0.0] * len(arms)
    orders = list(permutations(range(len(arms))))
    for turn in range(len(splits.train) // states[0].settings.batch_size + 1):
        for place in orders[turn % len(orders)]:
            spent[place] += timed(partial(next, arms[place], None)).processor
    return spent


def ratio_with_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Return the mean ratio of paired times and the ends of its 95% interval."""
    logs = [math.log(a / b) for a, b in zip(above, below, strict=True)]
    low, high = ttest_1samp(logs, 0.0).confidence_interval()
    return math.exp(fmean(logs)), math.exp(low), math.exp(high)


def main() -> None:
    """Print the ratio of watched to bare and of bare to bare for each model."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rows = []
    for name, (channels, epochs) in SETTINGS.items():
        config = RunConfig(channels=channels, width=channels, blocks=2, threads=1)
        splits = prepare(config)
        spec, examples = config.spec(len(splits.classes)), len(splits.train)
        states = [LiveState.start(config, spec, train_examples=examples) for _ in _ARMS]
        time_epoch(states, splits, 0)  # warms up
        times = [time_epoch(states, splits, epoch) for epoch in range(1, epochs + 1)]
        _compare_weights(states[0], states[-1])
        first, second, watched = zip(*times, strict=True)
        bare = [math.sqrt(a * b) for a, b in zip(first, second, strict=True)]
        ratios = (ratio_with_interval(watched, bare), ratio_with_interval(second, first))
        cells = [f"{ratio:.3f} [{low:.3f}, {high:.3f}]" for ratio, low, high in ratios]
        step = 1_000 * sum(bare) / epochs / (examples // config.batch_size)
        rows.append((name, *cells, f"{step:.1f}"))
    print_table(("model", "watched / bare", "bare / bare (A/A)", "ms a step"), rows)


def _compare_weights(bare: LiveState, watched: LiveState) -> None:
    pairs = zip(bare.model.parameters(), watched.model.parameters(), strict=True)
    if not all(torch.equal(a, b) for a, b in pairs):
        raise SystemExit("error: the watched training differs from the bare one")


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m proctor.benchmarks.monitor",
        description="Measure the processor time of watched over bare training.",
    ).parse_args()
    main()
