"""The state of a training between an epoch and its decisions, as canonical safetensors, and back.

It is the model's parameters and buffers and the optimizer's momentum. Nothing else is needed: every
generator is seeded anew for its purpose (monitor/seeds.py), diagnostics begin with each epoch, and
settings, specification, averages and the best loss so far follow from the run's events.

Trust: bytes are hostile until restore() returns.  I/O: none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import safetensors
from safetensors.torch import load, save
from torch import Tensor

from aggregates.decisions import Settings
from aggregates.errors import WeightsError
from aggregates.run import Run
from aggregates.spec import ModelSpec
from aggregates.weights import verify_canonical
from monitor.config import RunConfig
from monitor.errors import SnapshotError
from monitor.state import LiveState
from monitor.weights import put_tensors


@dataclass(frozen=True)
class Start:
    """Where a training goes on from: what was recorded before, and the state."""

    events: Sequence[Any]  # that follow the run's start; up to the state's epoch
    state: bytes


def capture(state: LiveState) -> bytes:
    """Return the state; equal states give equal bytes."""
    tensors = {f"model.{name}": value for name, value in state.model.state_dict().items()}
    tensors |= {f"momentum.{name}": value for name, value in state.momentum().items()}
    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def restore(config: RunConfig, run: Run, state: bytes, *, train_examples: int) -> LiveState:
    """Return the live state of a run that has come as far as these bytes; raises SnapshotError."""
    assert isinstance(run.spec, ModelSpec), "only runs of our own model have a state"
    live = LiveState.start(config, run.spec, train_examples=train_examples)
    live.settings = Settings(**run.settings) if run.settings else live.settings
    try:
        momentum = _put(live, state)
    except (WeightsError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise SnapshotError(
            f"the training state of run {run.id} cannot be used: {error}"
        ) from error
    live.renew_optimizer({name: value.to(config.device) for name, value in momentum.items()})
    return live


def _put(live: LiveState, state: bytes) -> dict[str, Tensor]:
    """Put the model's part into the live model and return the momentum by parameter."""
    verify_canonical(state)
    model: dict[str, Tensor] = {}
    momentum: dict[str, Tensor] = {}
    for name, value in load(state).items():
        part, _, rest = name.partition(".")
        {"model": model, "momentum": momentum}[part][rest] = value
    put_tensors(live.model, model)
    shapes = {name: (value.shape, value.dtype) for name, value in live.model.named_parameters()}
    if any(shapes.get(name) != (value.shape, value.dtype) for name, value in momentum.items()):
        raise WeightsError("its momentum does not fit the model")
    return momentum
