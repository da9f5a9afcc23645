"""What going back is worth in a loop of one's own: a transformer at rates that are far too high.

    python docs/studies watched-rates [--seeds 5] [--epochs 10] [--times 3]... [--best 0.002]

A character transformer (AdamW, the kind of the zoo) is trained at so many times a good rate, with
the same number of epochs by each of:

    nothing    as it is
    rescue     proctor.watch(policy="rescue")
    try three  one epoch each of the rate, a tenth and a hundredth of it; the best goes on
    plateau    ReduceLROnPlateau of PyTorch, patience 1
    clipping   gradients bounded at norm 1
    warm-up    a linear warm-up of two epochs

The table shows the mean validation loss at the end, and how `rescue` compares with `try three`,
which costs two of the epochs. Nothing is loaded.
"""

import argparse
import copy
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from types import MappingProxyType

import torch

from monitor.watching import keep_quiet
from proctor.errors import ProctorError
from proctor.runs.standings import paired_interval
from proctor.runs.watching import watch
from studies.kinds import language_model, loss_on, train_epoch
from studies.statistics import Table

_WARM_UP = 2  # epochs


def _nothing(lr: float, epochs: int) -> float:
    made = language_model(lr)
    for _ in range(epochs):
        train_epoch(made)
    return loss_on(made)


def _rescue(lr: float, epochs: int) -> float:
    made = language_model(lr)
    with (
        tempfile.TemporaryDirectory(prefix="proctor-rates-") as home,
        watch(
            *(made.model, made.optimizer),
            name="rates",
            epochs=epochs,
            batch_size=made.batch,
            policy="rescue",
            home=Path(home),
            say=keep_quiet,
        ) as run,
    ):
        for _ in run.epochs(epochs):
            train_epoch(made, run)
            run.validate(loss=loss_on(made))
    return loss_on(made)


def _try_three(lr: float, epochs: int) -> float:
    begin = copy.deepcopy(language_model(lr).model.state_dict())
    tried = []
    for rate in (lr, lr / 10, lr / 100):
        made = language_model(rate)
        made.model.load_state_dict(begin)
        train_epoch(made)
        tried.append((loss_on(made), made))
    _, best = min(tried, key=lambda each: math.inf if math.isnan(each[0]) else each[0])
    for _ in range(epochs - 3):
        train_epoch(best)
    return loss_on(best)


def _plateau(lr: float, epochs: int) -> float:
    made = language_model(lr)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(made.optimizer, patience=1)
    for _ in range(epochs):
        train_epoch(made)
        schedule.step(loss_on(made))
    return loss_on(made)


def _clipping(lr: float, epochs: int) -> float:
    made = language_model(lr, clip=1.0)
    for _ in range(epochs):
        train_epoch(made)
    return loss_on(made)


def _warm_up(lr: float, epochs: int) -> float:
    made = language_model(lr)
    for epoch in range(epochs):
        for group in made.optimizer.param_groups:
            group["lr"] = lr * min(1.0, (epoch + 0.5) / _WARM_UP)
        train_epoch(made)
    return loss_on(made)


ARMS: Mapping[str, Callable[[float, int], float]] = MappingProxyType(
    {
        "nothing": _nothing,
        "rescue": _rescue,
        "try three": _try_three,
        "plateau": _plateau,
        "clipping": _clipping,
        "warm-up": _warm_up,
    }
)


def train(arm: str, lr: float, seed: int, epochs: int) -> float:
    """Return the validation loss at the end of one training; infinite if it is no number."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    found = ARMS[arm](lr, epochs)
    return math.inf if math.isnan(found) else found


def tables(
    times: Sequence[float], found: Mapping[tuple[str, float], Sequence[float]]
) -> Iterator[Table]:
    """Yield the mean loss of each arm, and the share by which rescue is above `try three`."""
    rows = []
    for factor in times:
        own, other = found["rescue", factor], found["try three", factor]
        above = [one / two - 1 for one, two in zip(own, other, strict=True)]
        low, high = paired_interval(above)
        rows.append(
            {
                "times the good rate": f"{factor:g}",
                **{arm: f"{mean(found[arm, factor]):.3f}" for arm in ARMS},
                "rescue above try three": f"{mean(above):+.1%} ({low:+.1%} to {high:+.1%})",
            }
        )
    yield Table.of("Validation loss at the end", rows)


def main(arguments: Sequence[str]) -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(prog="python docs/studies watched-rates", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--times", type=float, action="append", help="of the good rate")
    parser.add_argument("--best", type=float, default=0.002, help="the good rate")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.seeds < 2 or given.epochs < 4:
        raise ProctorError("at least two seeds and four epochs are needed")
    times = given.times or [1.0, 3.0, 10.0, 30.0, 100.0]
    jobs = list(product(ARMS, times, range(given.seeds)))
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        losses = pool.map(
            train,
            [arm for arm, _, _ in jobs],
            [given.best * factor for _, factor, _ in jobs],
            [seed for _, _, seed in jobs],
            [given.epochs] * len(jobs),
        )
        found: dict[tuple[str, float], list[float]] = {}
        for (arm, factor, _), loss in zip(jobs, losses, strict=True):
            found.setdefault((arm, factor), []).append(loss)
    for table in tables(times, found):
        print(table.to_markdown())
