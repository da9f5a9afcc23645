"""What the hooks see of one training epoch on the live model.

Everything is accumulated on the device and read once, when the epoch is over. A watch belongs to
one epoch: its hooks are set when the epoch starts and gone when it ends, so that no validation
pass can leak into it and no edit of the model can lose it.

Source: docs/reference/diagnostics.md; gradient noise: McCandlish et al. 2018, An Empirical Model of
Large-Batch Training, with the product of successive gradients in the place of two batch sizes.
I/O: none.  Units: norms in parameter units, losses in nats, shares from 0 to 1.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from monitor.model import ACTIVATION_TYPES

LOOK_EVERY = 16  # batches between two looks at the activations
RATIO_EVERY = 8  # optimizer steps between two update ratios
_ROWS = 8  # examples of a batch whose activations are counted and sampled
_SAMPLE = 2_048  # activations kept of each look


class EpochWatch:
    """Measures one epoch: loss() per batch, gradients() and updated() around each update."""

    def __init__(self, model: nn.Module, *, effective_batch: int) -> None:
        self._effective_batch = effective_batch  # examples per optimizer step
        named = list(model.named_parameters())
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        device = self._parameters[0].device
        self._batches = self._steps = self._ratios = self._examples = 0
        zero = torch.zeros((), dtype=torch.float64, device=device)
        self._loss, self._correct, self._square, self._product = (zero.clone() for _ in range(4))
        self._norm_sums = torch.zeros(len(named), dtype=torch.float64, device=device)
        self._ratio_sums = torch.zeros_like(self._norm_sums)
        self._totals: list[Tensor] = []
        self._previous: Tensor | None = None
        self._before: list[Tensor] | None = None
        self._start = _copies(self._parameters)
        self._activations = {
            name: _ActivationWatch()
            for name, module in model.named_modules()
            if isinstance(module, ACTIVATION_TYPES)
        }
        self._hooks = [self._attach(model.get_submodule(name), name) for name in self._activations]

    def loss(self, logits: Tensor, labels: Tensor, *, factor: float = 1.0) -> Tensor:
        """Return the batch's mean cross-entropy times `factor`, which is to be sent backward."""
        loss = functional.cross_entropy(logits, labels)
        if factor != 1.0:  # a provocation
            loss = loss * factor
        with torch.no_grad():
            self._loss += loss.detach() * len(labels)
            self._correct += (logits.argmax(dim=1) == labels).sum()
        self._examples += len(labels)
        self._batches += 1
        return loss

    @torch.no_grad()
    def gradients(self) -> None:
        """Look at the gradients of one optimizer step, before anything clips them."""
        gradients = [_gradient(parameter) for parameter in self._parameters]
        norms = torch.stack(torch._foreach_norm(gradients)).double()
        self._norm_sums += norms
        self._totals.append(norms.norm())
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._square += torch.dot(flat, flat)
        if self._previous is not None:
            self._product += torch.dot(flat, self._previous)
        self._previous = flat
        if self._steps % RATIO_EVERY == 0:
            self._before = _copies(self._parameters)
        self._steps += 1

    @torch.no_grad()
    def updated(self) -> None:
        """Look at the parameters behind the update that gradients() preceded."""
        if self._before is not None:
            self._ratio_sums += _relative_change(self._before, self._parameters)
            self._ratios += 1
            self._before = None

    def close(self) -> None:
        """Remove the hooks; what was seen stays readable."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @torch.no_grad()
    def measured(self) -> dict[str, Any]:
        """Return the parts train, gradients, layers and activations; reads the device."""
        steps = max(self._steps, 1)
        norms = (self._norm_sums / steps).tolist()
        ratios = (self._ratio_sums / max(self._ratios, 1)).tolist()
        epoch_ratios = _relative_change(self._start, self._parameters).tolist()
        at_zero = (torch.stack(torch._foreach_norm(self._start)) == 0).tolist()
        examples = max(self._examples, 1)
        return {
            "train": {
                "loss": float(self._loss) / examples,
                "accuracy": float(self._correct) / examples,
                "examples": self._examples,
                "steps": self._steps,
            },
            "gradients": self._gradient_signals(),
            "layers": [
                {
                    "name": name,
                    "rank": parameter.dim(),
                    "grad_norm": norm,
                    # a tensor that starts at zero has nothing that its update could be related to
                    "update_ratio": None if zero or not self._ratios else ratio,
                    "epoch_update_ratio": None if zero else epoch_ratio,
                }
                for name, parameter, norm, ratio, epoch_ratio, zero in zip(
                    self._names,
                    self._parameters,
                    norms,
                    ratios,
                    epoch_ratios,
                    at_zero,
                    strict=True,
                )
            ],
            "activations": [
                {"name": name, **watch.measured()}
                for name, watch in self._activations.items()
                if watch.peak is not None
            ],
        }

    def _gradient_signals(self) -> dict[str, Any]:
        totals = torch.stack(self._totals) if self._totals else torch.zeros(0)
        signals: dict[str, Any] = {
            "finite": bool(torch.isfinite(totals).all()),
            "total_norm_mean": float(totals.mean()) if len(totals) else None,
            "signal_to_noise": None,
            "noise_scale": None,
            "norm_noise_scale": None,
        }
        if len(totals) >= 2:
            square = float(self._square) / len(totals)
            product = float(self._product) / (len(totals) - 1)
            signals["signal_to_noise"] = signal_to_noise(square, product)
            signals["noise_scale"] = _divide(
                float(self._effective_batch), signals["signal_to_noise"]
            )
            variance, mean = torch.var_mean(totals)
            signals["norm_noise_scale"] = _divide(float(mean) ** 2, float(variance))
        return signals

    def _attach(self, module: nn.Module, name: str) -> RemovableHandle:
        watch = self._activations[name]

        def look(module: nn.Module, _inputs: Any, output: Tensor) -> None:
            if module.training and self._batches % LOOK_EVERY == 0:
                watch.look(output.detach())

        return module.register_forward_hook(look)


class _ActivationWatch:
    """What one activation module let through."""

    def __init__(self) -> None:
        self.peak: Tensor | None = None  # (C,) largest activation of each channel
        self._zeros: list[Tensor] = []
        self._samples: list[Tensor] = []

    @torch.no_grad()
    def look(self, output: Tensor) -> None:
        """Take in (B, C, H, W)."""
        peak = output.amax(dim=(0, 2, 3))
        self.peak = peak if self.peak is None else torch.maximum(self.peak, peak)
        rows = output[:_ROWS].reshape(-1)
        self._zeros.append((rows == 0).to(torch.float32).mean())
        self._samples.append(rows[:: max(1, len(rows) // _SAMPLE)].clone())

    def measured(self) -> dict[str, Any]:
        """Return units, dead units, sparsity and percentiles."""
        assert self.peak is not None, "measured() follows look()"
        sample = torch.cat(self._samples).double()
        middle, upper = torch.quantile(
            sample, torch.tensor([0.5, 0.99], dtype=sample.dtype, device=sample.device)
        ).tolist()
        return {
            "units": len(self.peak),
            "dead_units": int((self.peak <= 0).sum()),  # NaN is not dead: R7 speaks of it
            "sparsity": float(torch.stack(self._zeros).double().mean()),
            "p50": middle,
            "p99": upper,
        }


def signal_to_noise(square: float, product: float) -> float:
    """Return B / B_simple from the means of |g|^2 and of successive gradients' products.

    A product that is not above zero means that the noise drowns the signal: 0.
    """
    if math.isnan(square) or math.isnan(product):
        return math.nan
    return _divide(max(product, 0.0), square - max(product, 0.0))


def _divide(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return math.inf if numerator > 0 else math.nan
    return numerator / denominator


def _copies(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def _relative_change(before: list[Tensor], after: list[nn.Parameter]) -> Tensor:
    """Return ||after - before|| / ||before|| of each tensor."""
    moved = torch._foreach_norm(torch._foreach_sub([p.detach() for p in after], before))
    return torch.stack(moved).double() / torch.stack(torch._foreach_norm(before)).double()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "every parameter takes part in the loss"
    return parameter.grad
