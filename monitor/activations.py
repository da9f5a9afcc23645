"""What the activation functions of a model let through, forward and backward.

A torch function mode sees every activation, whether a module or a function makes the call. It is on
for the batches that are looked at and costs nothing in the others. The slope of an activation comes
from the gradients at its node of the autograd graph: the one that arrives from the loss ("behind")
and the one that leaves towards the input ("before").

Source: docs/reference/diagnostics.md, "Activations".  I/O: none.
"""

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from monitor.processes import Processes

DEAD_SLOPE = 1e-3  # largest gradient before over largest gradient behind
SAMPLE = 4_096  # activations kept of each look
ROWS = 8  # examples of a batch whose zeros are counted, or more
ZEROS = 16_384  # as many as have this many activations
_ONE_NODE = frozenset(  # one node in the autograd graph each
    {"celu", "clamp", "clamp_max", "clamp_min", "clip", "elu", "gelu", "hardshrink"}
    | {"hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "logsigmoid", "mish"}
    | {"prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "softshrink"}
    | {"tanh", "threshold"}
)
_SEVERAL_NODES = frozenset({"softsign", "tanhshrink"})
_UNITS_SECOND = frozenset(
    {"batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"}
    | {"conv_transpose3d", "group_norm", "instance_norm"}
)
_UNITS_LAST = frozenset({"bilinear", "embedding", "layer_norm", "linear", "matmul", "rms_norm"})


class ActivationWatch:
    """Looks at the activations of single batches; look() is a context for the forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: dict[str, _Activation] = {}
        self._mode: _Mode | None = None

    def begin(self) -> None:
        """Start to look, unless that has begun; the model's forward pass follows."""
        if self._mode is None:
            self._mode = _Mode(self._model, self._seen)
            self._mode.begin()

    def end(self) -> None:
        """Stop looking; the backward pass of this batch still tells the slopes."""
        if self._mode is not None:
            self._mode.end()
            self._mode = None

    def join(self, processes: Processes) -> None:
        """Take in what the other processes have seen of the same activations."""
        names = processes.gather_json(list(self._seen))
        shared = [name for name in names[0] if all(name in each for each in names)]
        self._seen = {name: self._seen[name] for name in shared}
        for seen in self._seen.values():
            seen.join(processes)

    def measured(self) -> list[dict[str, Any]]:
        """Return name, units, dead units, sparsity and percentiles of each activation."""
        return [{"name": name, **seen.measured()} for name, seen in self._seen.items()]


class _Mode(TorchFunctionMode):
    """Sees the calls of one forward pass and knows which module makes them."""

    def __init__(self, model: nn.Module, seen: dict[str, "_Activation"]) -> None:
        super().__init__()
        self._model = model
        self._seen = seen
        self._path: list[tuple[str, nn.Module]] = [("", model)]
        self._names: dict[nn.Module, str] = {}
        self._hooks: list[RemovableHandle] = []
        self._calls: dict[str, int] = {}
        self._second: bool | None = None  # whether the latest layer puts its units second

    def begin(self) -> None:
        self._names = {module: name for name, module in self._model.named_modules() if name}
        # two hooks for all modules: two for each would cost more than the rest of a look
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        self.__enter__()  # type: ignore[no-untyped-call]  # torch has no types for it

    def end(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # likewise
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        if (name := self._names.get(module)) is not None:  # the model's, not of another one
            self._path.append((name, module))

    def _leave(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        if module in self._names:
            self._path.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if name in _UNITS_SECOND:
            self._second = True
        elif name in _UNITS_LAST:
            self._second = False
        if name in _ONE_NODE:
            output = func(*args, **kwargs)
            if (watch := self._watch(output, name)) is not None:
                node: Any = output.grad_fn
                node.register_hook(watch.look_at_node)
            return output
        if name in _SEVERAL_NODES and args and isinstance(args[0], Tensor):
            alias: Any = args[0].view_as(args[0])  # a node that no other use of it shares
            output = func(alias, *args[1:], **kwargs)
            if alias.requires_grad and (watch := self._watch(output, name)) is not None:
                alias.register_hook(watch.look_before)
                output.register_hook(watch.look_behind)
            return output
        return func(*args, **kwargs)

    def _watch(self, output: Any, function: str) -> "_Activation | None":
        """Take in an activation's output; None if no gradient passes through it."""
        if not isinstance(output, Tensor) or output.dim() < 2 or output.grad_fn is None:
            return None
        path, module = self._path[-1]
        name = path
        if type(module).__module__ != "torch.nn.modules.activation":
            name = f"{path}.{function}" if path else function
        count = self._calls[name] = self._calls.get(name, 0) + 1
        if count > 1:
            name = f"{name}:{count}"
        second = output.dim() > 3 if self._second is None else self._second
        units = 1 if second else output.dim() - 1
        if name not in self._seen:
            self._seen[name] = _Activation(output.shape[units])
        watch = self._seen[name]
        return watch if watch.look(output.detach(), units) else None


class _Activation:
    """What one activation did in the batches that were looked at."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._axis = 1
        self._before: Tensor | None = None  # (units,) largest gradient, whatever its sign
        self._behind: Tensor | None = None
        self._zeros: list[Tensor] = []
        self._samples: list[Tensor] = []
        self._counted = 0

    def look(self, output: Tensor, axis: int) -> bool:
        """Take in the output, whose units lie along `axis`; False if it has other units."""
        if output.shape[axis] != self._units or not output.numel():
            return False
        self._axis = axis
        rows = output[: max(ROWS, ZEROS * len(output) // output.numel())]
        self._zeros.append((rows == 0).sum())
        self._counted += rows.numel()
        flat = output.reshape(-1)
        if len(flat) <= SAMPLE:
            self._samples.append(flat.clone())
        else:
            self._samples.append(flat.index_select(0, _places(len(flat), flat.device)))
        return True

    def look_at_node(self, before: tuple[Any, ...], behind: tuple[Any, ...]) -> None:
        """Take in the gradients on both sides of the activation's node."""
        if before and before[0] is not None and behind[0] is not None:
            self.look_before(before[0])
            self.look_behind(behind[0])

    def look_before(self, gradient: Tensor) -> None:
        """Take in the gradient that leaves towards the input."""
        self._before = _larger(self._before, gradient, self._axis)

    def look_behind(self, gradient: Tensor) -> None:
        """Take in the gradient that arrives from the loss."""
        self._behind = _larger(self._behind, gradient, self._axis)

    def join(self, processes: Processes) -> None:
        """Take in what the other processes have seen."""
        none = torch.full((self._units,), -math.inf)
        slopes = [none if each is None else each for each in (self._before, self._behind)]
        zeros = torch.stack(self._zeros).sum()
        numbers = [torch.tensor([float(zeros), float(self._counted)]), *slopes, *self._samples]
        parts = processes.gather(torch.cat([each.double().cpu() for each in numbers]))
        ends = 2, 2 + self._units, 2 + 2 * self._units
        self._zeros = [part[0] for part in parts]
        self._counted = sum(int(part[1]) for part in parts)
        before, behind = (
            torch.stack([part[start:end] for part in parts]).amax(dim=0)
            for start, end in pairwise(ends)
        )
        if self._before is not None and self._behind is not None:
            self._before = before.to(self._before.dtype)  # where they come from, so exactly
            self._behind = behind.to(self._behind.dtype)
        self._samples = [part[ends[-1] :] for part in parts]

    def measured(self) -> dict[str, Any]:
        dead = 0
        if self._before is not None and self._behind is not None:
            # false for NaN, which is not dead: R7 speaks of it
            flat = (self._behind > 0) & (self._before < DEAD_SLOPE * self._behind)
            dead = int(flat.sum())
        middle, upper = _percentiles(torch.cat(self._samples))
        return {
            "units": self._units,
            "dead_units": dead,
            "sparsity": sum(float(count) for count in self._zeros) / self._counted,
            "p50": middle,
            "p99": upper,
        }


def _larger(largest: Tensor | None, gradient: Tensor, axis: int) -> Tensor:
    with torch.no_grad():
        others = [dim for dim in range(gradient.dim()) if dim != axis]
        # a copy without signs would cost more than the second look
        found = torch.maximum(gradient.amax(dim=others), -gradient.amin(dim=others))
        return found if largest is None else torch.maximum(largest, found)


def _percentiles(sample: Tensor) -> tuple[float, float]:
    """Return the 50th and the 99th percentile: the smallest value with that share at or below."""
    values = sample.double().cpu().numpy()  # exact; NaN where one value is NaN
    middle, upper = np.percentile(values, (50, 99), method="inverted_cdf").tolist()
    return middle, upper


@lru_cache(maxsize=64)
def _places(count: int, device: torch.device) -> Tensor:
    """Return SAMPLE places of `count` elements, one drawn in each of SAMPLE equal stretches."""
    rng = torch.Generator().manual_seed(count)
    numbers = torch.arange(SAMPLE + 1) * count // SAMPLE
    starts, widths = numbers[:-1], numbers.diff()
    draws = torch.randint(0, 1 << 40, (SAMPLE,), generator=rng)
    return (starts + draws % widths).to(device, non_blocking=device.type != "cpu")
