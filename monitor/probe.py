"""Gradient norms on a fixed batch: how the judge recognises the weights that were saved.

The batch is the first examples of the validation set, and BatchNorm is in evaluation mode: it uses
its running statistics, so that the norms follow from weights and batch alone.
I/O: none.  Shapes: images (64, 3, 32, 32) uint8, labels (64,).
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from monitor.datasets import Split

PROBE_EXAMPLES = 64
MODE = "eval"


def probe_model(model: nn.Module, validation: Split) -> dict[str, Any]:
    """Return the BatchNorm mode, the batch's hash and each parameter's gradient norm."""
    batch = Split(validation.images[:PROBE_EXAMPLES], validation.labels[:PROBE_EXAMPLES])
    named = list(model.named_parameters())
    device = named[0][1].device
    training = model.training
    model.eval()
    try:
        images, labels = batch.batch(slice(None), device)
        loss = functional.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, [parameter for _, parameter in named])
    finally:
        model.train(training)
    norms = torch.stack(torch._foreach_norm(list(gradients))).tolist()
    return {
        "mode": MODE,
        "batch_sha256": batch.fingerprint,
        "layer_norms": {name: norm for (name, _), norm in zip(named, norms, strict=True)},
    }
