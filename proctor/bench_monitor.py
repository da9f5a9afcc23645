"""What the monitor costs: processor time of watched training over bare training.

    python -m proctor.bench_monitor

Three arms train the same model on the same data, one epoch at a time, in an order that changes from
round to round: bare, bare again and watched. The two bare arms tell how far equal work differs on
this machine (A/A). Each ratio is a mean over rounds of logarithms, with a 95% interval. Validation,
which watched and bare training need alike, is left out. One thread.
"""

import math
import time
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from monitor.config import RunConfig
from monitor.diagnostics import EpochWatch
from monitor.loop import _train_epoch, prepare
from monitor.state import LiveState

SETTINGS = {"channels=32 width=32": (32, 14), "channels=8 width=8": (8, 40)}  # and rounds
_BLOCKS = 2
_T = 2.0  # 95% quantile of Student's distribution, about, at these numbers of rounds


class _Bare:
    """Stands in for a watch and measures nothing."""

    probe_due = False

    def loss(self, logits: Tensor, labels: Tensor, *, factor: float = 1.0) -> Tensor:  # noqa: ARG002
        return functional.cross_entropy(logits, labels)

    def gradients(self) -> None:
        pass

    def updated(self) -> None:
        pass


class _Arm:
    """One training that goes on from round to round."""

    def __init__(self, config: RunConfig, *, watched: bool) -> None:
        self._splits = prepare(config)
        spec = config.spec(len(self._splits.classes))
        self._state = LiveState.start(config, spec, train_examples=len(self._splits.train))
        self._watched = watched
        self._epoch = 0

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._state.model

    def train(self) -> float:
        """Train one epoch and return its processor time in seconds."""
        size = self._state.settings.batch_size
        started = time.process_time()
        if self._watched:
            steps = len(self._splits.train) // size
            watch = EpochWatch(self._state.model, effective_batch=size, steps=steps)
            _train_epoch(self._state, watch, self._splits, self._epoch, None)
            watch.close()
            watch.measured()
        else:
            _train_epoch(
                self._state, cast(EpochWatch, _Bare()), self._splits, self._epoch, None
            )
        self._epoch += 1
        return time.process_time() - started


def ratio_with_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Return the mean ratio of paired times and the ends of its 95% interval."""
    logs = [math.log(a / b) for a, b in zip(above, below, strict=True)]
    mean = sum(logs) / len(logs)
    variance = sum((each - mean) ** 2 for each in logs) / (len(logs) - 1)
    half = _T * math.sqrt(variance / len(logs))
    return tuple(math.exp(mean + shift) for shift in (0, -half, half))


def main() -> None:
    """Print the ratio of watched to bare and of bare to bare for each model."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print("model                     watched / bare           bare / bare (A/A)        ms a step")
    import os; SETTINGS_=dict([list(SETTINGS.items())[1]]) if os.environ.get("SMALL") else SETTINGS
    for name, (channels, rounds) in SETTINGS_.items():
        config = RunConfig(channels=channels, width=channels, blocks=_BLOCKS, threads=1)
        arms = [_Arm(config, watched=watched) for watched in (False, False, True)]
        times: list[list[float]] = [[], [], []]
        for number in range(-1, rounds):  # the first round warms up and is not counted
            for place in range(3):
                chosen = (number + place) % 3
                spent = arms[chosen].train()
                if number >= 0:
                    times[chosen].append(spent)
        if any(
            not torch.equal(a, b)
            for a, b in zip(arms[0].model.parameters(), arms[2].model.parameters(), strict=True)
        ):
            raise SystemExit("the watched training is not the bare one")
        both = [math.sqrt(a * b) for a, b in zip(times[0], times[1], strict=True)]
        cells = [
            f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
            for ratio, low, high in (
                ratio_with_interval(times[2], both),
                ratio_with_interval(times[1], times[0]),
            )
        ]
        step = 1_000 * sum(both) / len(both) / (3_000 // 64)
        print(f"{name:24}  {cells[0]:23}  {cells[1]:23}  {step:.1f}")


if __name__ == "__main__":
    main()
