"""Provocations put into a run: what a fault does to the fresh model, before its first step.

Settings are in the configuration already, and the loop asks the fault for the factor of its loss.

Source: aggregates/provocations.py.  I/O: none.
"""

import torch
from torch import Tensor, nn

from aggregates.provocations import Fault
from monitor.model import ResidualCNN
from monitor.seeds import generator


@torch.no_grad()
def put_into(model: ResidualCNN, fault: Fault) -> None:
    """Change the initial weights and biases as the fault says; which units, its seed says."""
    if weights := fault.changes.get("weights"):
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and name.startswith("head.") == (weights["part"] == "head"):
                parameter.mul_(weights["factor"])
    if biases := fault.changes.get("biases"):
        for name, bias in _norm_biases(model, everywhere=biases["part"] == "everywhere"):
            count = max(1, round(biases["share"] * len(bias)))
            chosen = torch.randperm(len(bias), generator=generator(fault.name, fault.seed, name))
            bias[chosen[:count].to(bias.device)] = biases["value"]


def _norm_biases(model: ResidualCNN, *, everywhere: bool) -> list[tuple[str, Tensor]]:
    return [
        (name, module.bias)
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d) and (everywhere or name.startswith("blocks."))
    ]
