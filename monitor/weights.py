"""A model's parameters and buffers as canonical safetensors, and back.

Trust: bytes are hostile until load_weights() returns.  I/O: none.
"""

from collections.abc import Mapping

import safetensors
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from aggregates.errors import WeightsError
from aggregates.weights import verify_canonical


def dump_weights(model: nn.Module) -> bytes:
    """Return the model's parameters and buffers; equal models give equal bytes."""
    state = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    return save(state)


def is_finite(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> bool:
    """Return whether training can go on with a model's parameters, or with others in their place.

    Running variances may overflow, and it still can.
    """
    return all(
        bool(torch.isfinite(value if weights is None else weights[name]).all())
        for name, value in model.named_parameters()
    )


def load_weights(model: nn.Module, data: bytes) -> None:
    """Put `data` into `model`; raises WeightsError, the model untouched, unless all of it fits."""
    verify_canonical(data)
    try:
        state = load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise WeightsError(f"not a safetensors file: {error}") from error
    put_tensors(model, state)


def put_tensors(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put tensors into `model`; raises WeightsError, the model untouched, unless all of it fits."""
    own = model.state_dict()
    if set(state) != set(own):
        raise WeightsError(
            f"the weights do not match the model: missing {sorted(set(own) - set(state))}, "
            f"unexpected {sorted(set(state) - set(own))}"
        )
    for name, value in state.items():
        if value.shape != own[name].shape or value.dtype != own[name].dtype:
            raise WeightsError(
                f"{name} is {tuple(value.shape)} {value.dtype} in the weights and "
                f"{tuple(own[name].shape)} {own[name].dtype} in the model"
            )
    model.load_state_dict(state)
