"""The model that is trained: a residual network that can be built from its specification.

Blocks are pre-activation, so that a block whose last convolution is zero is the identity whatever
its activation is (He et al. 2016, Identity Mappings in Deep Residual Networks). Convolutions have
no bias. Every activation is a module of its own, so that hooks see each place apart.

I/O: none.  Shapes: input (B, 3, 32, 32), logits (B, classes).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from aggregates.spec import BlockSpec, Edit, ModelSpec, apply_edit
from monitor.seeds import generator, normal_draws

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "relu": nn.ReLU,
}
ACTIVATION_TYPES = tuple(_ACTIVATIONS.values())


class Block(nn.Module):
    """Norm, activation, 3x3 convolution, twice; added to the input if residual."""

    def __init__(self, channels: int, spec: BlockSpec) -> None:
        super().__init__()
        self.residual = spec.residual
        self.norm1 = _norm(spec.norm, channels)
        self.act1 = _ACTIVATIONS[spec.activation]()
        self.conv1 = nn.Conv2d(channels, spec.width, 3, padding=1, bias=False)
        self.norm2 = _norm(spec.norm, spec.width)
        self.act2 = _ACTIVATIONS[spec.activation]()
        self.conv2 = nn.Conv2d(spec.width, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, channels, H, W) to the same shape."""
        hidden = self.conv1(self.act1(self.norm1(x)))  # (B, width, H, W)
        out: Tensor = self.conv2(self.act2(self.norm2(hidden)))
        return x + out if self.residual else out


class ResidualCNN(nn.Module):
    """A model built from its specification, He-initialised from a seed.

    `salt` names the occasion: each parameter is drawn by (seed, salt, its name), independent of
    the other parameters and of any global generator.
    """

    def __init__(self, spec: ModelSpec, *, seed: int = 0, salt: str = "start") -> None:
        super().__init__()
        self._spec = spec
        self.stem = nn.Conv2d(3, spec.channels, 3, stride=spec.stem_stride, padding=1, bias=False)
        self.blocks = nn.ModuleList(Block(spec.channels, block) for block in spec.blocks)
        self.norm = _norm(spec.norm, spec.channels)
        self.act = _ACTIVATIONS[spec.activation]()
        self.head = nn.Linear(spec.channels, spec.classes)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() >= 2 and not parameter.is_meta:  # which has a shape alone
                    deviation = math.sqrt(2.0 / parameter[0].numel())
                    drawn = normal_draws(parameter.shape, generator(seed, salt, name))
                    parameter.copy_(drawn * deviation)
            self.head.bias.zero_()

    def spec(self) -> ModelSpec:
        """Return the specification that the model has now."""
        return self._spec

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 3, 32, 32) to logits (B, classes)."""
        x = self.stem(x)  # (B, channels, H, W)
        for block in self.blocks:
            x = block(x)
        pooled = self.act(self.norm(x)).mean(dim=(2, 3))  # (B, channels)
        logits: Tensor = self.head(pooled)
        return logits

    def adopt(self, other: "ResidualCNN") -> None:
        """Become `other`: take its modules and its specification, on the own device and mode."""
        other.to(self.head.weight.device).train(self.training)
        for name, child in other.named_children():
            setattr(self, name, child)
        self._spec = other.spec()


def edit_model(model: ResidualCNN, edit: Edit, *, seed: int, salt: str) -> None:
    """Change the live model; raises SpecError, the model untouched, if the edit cannot be applied.

    add_block and widen leave the function as it was: what is new writes into zero weights. What
    has the same name and shape as before keeps its values.
    """
    edited = ResidualCNN(apply_edit(model.spec(), edit), seed=seed, salt=salt)
    old: dict[str, Tensor] = model.state_dict()
    with torch.no_grad():
        for name, value in edited.state_dict().items():
            if name in old:
                if name.endswith("conv2.weight") and value.shape != old[name].shape:
                    value.zero_()  # the columns that the new units write through
                value[region(old[name])] = old[name].to(value.device)
            elif edit.op == "add_block" and name.endswith("conv2.weight"):
                value.zero_()
    model.adopt(edited)


def region(smaller: Tensor) -> Any:
    """Return the index of the leading part of a grown tensor that has `smaller`'s shape."""
    return tuple(slice(0, size) for size in smaller.shape)


def _norm(kind: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.Identity()
