"""What the monitor sees of one training epoch on the live model.

Everything is kept on the device and read once, when the epoch is over. A watch belongs to one
epoch: its hooks are set when the epoch starts and removed when it ends, so that no validation pass
can leak into it and no edit of the model can lose it. It works for any torch module.

Source: docs/reference/diagnostics.md; aggregates/noise.py for the gradient's noise.
I/O: none.  Units: norms in parameter units, losses in nats, shares from 0 to 1.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from aggregates.noise import NoiseProbes, pool_noise, spread_of
from aggregates.sums import added
from monitor.activations import ActivationWatch
from monitor.processes import Processes

LOOK_EVERY = 16  # batches between two looks at the activations
PROBE_EVERY = 48  # optimizer steps between two probes of the gradient's noise
HALVES_EVERY = 16  # steps between two that are compared half by half, which costs no backward pass
RATIOS = 16  # update ratios that an epoch of as many steps has at least
SETTLED = 0.5  # of its length, by which an epoch changes a tensor that no longer grows
_FLUSH = 64  # batches or steps after which what was kept is summed up
_LOGITS = 1_000_000  # kept, at most, beside those of one batch
HALF = (torch.bfloat16, torch.float16)
_NUMBERS = 1_000_000  # gradient or weight values kept, at most, of several steps


class EpochWatch:
    """Measures one epoch: loss() per batch, gradients() and updated() around each update.

    probe() may follow gradients() where probe_due says so. `steps` is the number of optimizer steps
    that the epoch will have, of which `ratios` or more have their update ratio taken. Without it,
    all have; or, with `thin`, all at first, and whenever there are twice as many as `ratios`, every
    other one is dropped and left out from then on. Of a model with more than a million parameters
    no gradient is copied, and its weights are copied at most twice.
    `only` are the parameters to look at, by default all. With `parts` of 2 and more, a step's
    gradient is the sum of that many batches' ones: part() follows the backward pass of each, and
    the halves of a step take the place of a probe. Without `activations`, the model gets no
    hooks: those would have a compiled model compiled again and again.
    `from_zero` is a set that the epochs of a run share, and that is filled here: the names of
    tensors that were zero when an epoch began. With it, update ratios are those of the rows that
    the epoch has changed, such as the words of an embedding that occurred, and a tensor from zero
    has none until it no longer grows: what it is related to would be its own updates.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        effective_batch: int,
        steps: int | None = None,
        ratios: int = RATIOS,
        thin: bool = False,
        parts: int = 1,
        only: Iterable[Tensor] | None = None,
        activations: bool = True,
        from_zero: set[str] | None = None,
    ) -> None:
        self._model = model
        self._from_zero = from_zero
        self._effective_batch = effective_batch  # examples per optimizer step
        self.ratio_every = _stride(steps, ratios)  # steps from one update ratio to the next
        self._most_ratios = 2 * ratios if thin and steps is None else None
        wanted = None if only is None else {id(each) for each in only}
        named = [
            (name, each)
            for name, each in model.named_parameters()
            if each.requires_grad and (wanted is None or id(each) in wanted)
        ]
        if not named:
            raise ValueError("the model has no trainable parameter")
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._counts = [parameter.numel() for parameter in self._parameters]
        kinds = {(parameter.dtype, parameter.device) for parameter in self._parameters}
        self._alike = len(kinds) == 1
        self._large = sum(self._counts) > _NUMBERS or not self._alike  # which no tensor holds
        self._device = _gathering_place(self._parameters)
        self._batches = self._steps = self._ratios = 0
        self.skips = 0  # steps that were left out
        self._kept: list[tuple[Tensor, Tensor]] = []  # logits and labels of a batch
        self._told: list[Tensor] = []  # losses, scalars
        self._waiting = 0  # logits that are kept
        self._correct: Tensor | int = 0
        self._losses: list[Tensor] = []  # of each batch, in blocks
        self._sizes: list[int] = []  # examples of each batch
        self._spans: list[tuple[int, int]] = []  # batches of each step, from and up to
        self._behind = 0  # batches seen at the end of the latest step
        self._gradient_rows: list[Tensor] = []  # of each step: see _row()
        self._norm_sums: list[Tensor] = []  # (parameters,) of each block
        self._squares: list[Tensor] = []  # of all gradients together, by step, in blocks
        self._before: list[Tensor] | None = None  # the weights while an update is looked at
        self._weight_rows: list[Tensor] = []  # before each update that was looked at
        self._change_rows: list[Tensor] = []  # by it
        self._ratio_sums: list[Tensor] = []  # (parameters,) of each block, or of each where thinned
        self._used: set[int] = set()  # parameters that have had a gradient
        self._all_used = False
        self._probes: list[tuple[Tensor, Tensor]] = []  # product and mean square
        self._parts, self._part = parts, 0  # batches of a step, and those seen of this one
        self._first: list[Tensor] | None = None  # the gradient of the first half of a step
        self._halves: tuple[Tensor, Tensor] | None = None  # product and mean square
        # Gradients that an earlier epoch has left are of no half.
        self._carried = parts > 1 and any(each.grad is not None for each in self._parameters)
        self._start = self._weights()
        self._activations = ActivationWatch(model)
        self._probing = False
        self._probed = False  # whether the latest step was
        self._looks = activations
        self._hooks: list[RemovableHandle] = []
        if activations:
            self._hooks = [
                model.register_forward_pre_hook(self.begin_forward),
                model.register_forward_hook(self.end_forward, always_call=True),
            ]

    def loss(self, logits: Tensor, labels: Tensor, *, factor: float = 1.0) -> Tensor:
        """Return the batch's mean cross-entropy times `factor`, which is to be sent backward."""
        loss = functional.cross_entropy(logits, labels)
        if factor != 1.0:  # a provocation
            loss = loss * factor
        self._kept.append((logits.detach(), labels))
        self._waiting += logits.numel()
        self.told_loss(loss, examples=len(labels))
        return loss

    def told_loss(self, loss: Tensor, *, examples: int) -> None:
        """Take in the loss of a batch, a scalar, as a watched loop says it.

        Of a copy: the loop may go on with its own, and CUDA graphs use its memory again.
        """
        self._told.append(self._gathered(loss.detach()).reshape(()).clone())
        self._sizes.append(examples)
        self._batches += 1
        if len(self._told) == _FLUSH or self._waiting > _LOGITS:
            self._flush_losses()

    @torch.no_grad()
    def part(self) -> None:
        """Look at the gradients behind the backward pass of a batch, the last of a step too."""
        self._part += 1
        half = self._parts // 2
        if not half or self._carried or self._steps % HALVES_EVERY:
            return
        if self._part == half:
            self._first = [gradient.clone() for gradient in self._gradients()]
        elif self._part == 2 * half and self._first is not None:
            second = torch._foreach_sub(self._gradients(), self._first)
            times = self._parts / half  # each half is a gradient of its own
            product, square = self._compared(zip(self._first, second, strict=True))
            self._halves, self._first = (product * times**2, square * times**2), None

    def unscale(self, scale: Callable[[], float]) -> None:
        """Divide what part() has kept by what the loss was multiplied by; nobody asks in vain."""
        if self._halves is not None:
            product, square = self._halves
            self._halves = product / scale() ** 2, square / scale() ** 2

    @torch.no_grad()
    def gradients(self, *, scale: Tensor | None = None) -> None:
        """Look at the gradients of one optimizer step, before anything clips them.

        `scale` is what the loss was multiplied by, where the gradients still are.
        """
        if self._enough(self._gradient_rows):  # not the latest, which skipped() may take back
            self._flush_gradients()
        row = self._row(self._gradients())
        self._gradient_rows.append(row if scale is None else row / scale)
        if self._steps % self.ratio_every == 0:
            self._before = self._weights()
        self._steps += 1
        if scale is not None:
            self.unscale(lambda: float(scale))
        self._probed = self._halves is not None and self._part == self._parts
        if self._halves is not None and self._probed:
            self._probes.append(self._halves)
        self._first, self._halves, self._part, self._carried = None, None, 0, False
        self._spans.append((self._behind, self._batches))
        self._behind = self._batches

    def skipped(self) -> None:
        """Take back the step that gradients() looked at: the loss scaler has left it out."""
        self._gradient_rows.pop()
        self._spans.pop()
        if self._probed:
            self._probes.pop()
        self._before = None
        self._steps -= 1
        self.skips += 1

    @torch.no_grad()
    def updated(self) -> None:
        """Look at the parameters behind the update that gradients() preceded."""
        if self._before is None:
            return
        before, self._before = self._before, None
        self._weight_rows.append(self._row(before) if self._large else before[0])
        if self._large:  # in place: another copy would be large
            torch._foreach_sub_(before, list[Tensor](self._parameters))
            self._change_rows.append(self._row(before))
        else:
            self._change_rows.append(before[0] - self._weights()[0])
        self._ratios += 1
        if self._enough(self._weight_rows) or self._ratios == self._most_ratios:
            self._flush_updates()
        if self._ratios == self._most_ratios:
            del self._ratio_sums[1::2]
            self._ratios, self.ratio_every = len(self._ratio_sums), 2 * self.ratio_every

    @property
    def probe_due(self) -> bool:
        """Whether the gradient's noise is to be probed in the step that gradients() looked at."""
        return (self._steps - 1) % PROBE_EVERY == 0

    def probe(
        self, losses: Iterable[Tensor], *, scale: float = 1.0, own_scale: Tensor | None = None
    ) -> None:
        """Compare the step's gradient with the one of other examples at the same weights.

        `losses` gives, one by one, the losses that make up a step: of batches drawn at random from
        all training examples, each computed when it is asked for and divided by their number; a
        loss scaler has multiplied them by `scale`, and the step's own by `own_scale`. The model is
        in training mode. Its buffers and the state of the global generators are put back, so that
        the training goes on as if there had been no probe.
        """
        own = self._gradients()
        other: list[Tensor] | None = None
        with self._as_it_was():
            for loss in losses:
                found = torch.autograd.grad(
                    loss, self._parameters, allow_unused=True, materialize_grads=True
                )
                if other is None:
                    other = list(found)
                else:
                    torch._foreach_add_(other, found)
        if other is None:
            return
        with torch.no_grad():
            if own_scale is not None:
                own = [gradient / own_scale for gradient in own]
            pairs = ((a, b.double() / scale) for a, b in zip(own, other, strict=True))
            self._probes.append(self._compared(pairs))
            self._probed = True

    def _compared(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the product of two gradients and their mean square, parameter by parameter."""
        products, squares = [], []
        for one, other in pairs:
            a, b = one.double(), other.double()
            products.append(self._gathered((a * b).sum()))
            squares.append(self._gathered((a * a).sum() + (b * b).sum()))
        return torch.stack(products).sum(), torch.stack(squares).sum() / 2

    def close(self) -> None:
        """Remove the hooks; what was seen stays readable."""
        self._activations.end()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @torch.no_grad()
    def join(self, processes: Processes) -> None:
        """Take in the losses and activations that the other processes have seen.

        Gradients and updates are the same in all of them, as DistributedDataParallel makes them.
        """
        self._flush_losses()
        own = torch.cat(self._losses).cpu() if self._losses else torch.zeros(0).double()
        losses = processes.gather(own)
        sizes = processes.gather(torch.tensor(self._sizes, dtype=torch.float64))
        most = max(map(len, losses))
        shape = (len(losses), most)
        told, weights = torch.zeros(shape).double(), torch.zeros(shape).double()
        for place, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
            told[place, : len(loss)], weights[place, : len(size)] = loss, size
        self._losses = [(told * weights).sum(dim=0) / weights.sum(dim=0)]
        self._sizes = [int(size) for size in weights.sum(dim=0)]
        self._activations.join(processes)

    @torch.no_grad()
    def measured(self) -> dict[str, Any]:
        """Return the parts train, gradients, layers and activations; reads the device."""
        self._flush_losses()
        self._flush_gradients()
        self._flush_updates()
        losses, examples = _numbers(self._losses), sum(self._sizes)
        total = added(loss * size for loss, size in zip(losses, self._sizes, strict=True))
        return {
            "train": {
                "loss": total / max(examples, 1),
                "accuracy": int(self._correct) / max(examples, 1),
                "examples": examples,
                "steps": self._steps,
            },
            "gradients": self._gradient_signals(losses),
            "layers": self._layers(),
            "activations": self._activations.measured(),
        }

    def _gradient_signals(self, losses: list[float]) -> dict[str, Any]:
        squares = _numbers(self._squares)
        totals = [math.sqrt(square) for square in squares]
        probes = [[float(product), float(square)] for product, square in self._probes]
        spread = spread_of(squares, self._by_step(losses))
        value, pairs = (None, 0) if spread is None else spread
        share = (self._parts // 2) / self._parts if self._parts > 1 else 1.0
        noise = pool_noise([NoiseProbes(tuple((p, s) for p, s in probes), value, pairs, share)])
        return {
            "finite": all(map(math.isfinite, totals)) and not (self.skips and not totals),
            "total_norm_mean": added(totals) / len(totals) if totals else None,
            "signal_to_noise": None if noise is None else noise.estimate,
            "signal_to_noise_low": None if noise is None else noise.low,
            "signal_to_noise_high": None if noise is None else noise.high,
            "noise_scale": (
                None if noise is None else _divide(float(self._effective_batch), noise.estimate)
            ),
            "norm_noise_scale": _mean_squared_over_variance(totals),
            "probes": probes,
            "spread": value,
            "spread_pairs": pairs,
            **({} if self._parts == 1 else {"probe_share": share}),
        }

    def _by_step(self, losses: list[float]) -> list[float]:
        """Return the loss of each step, the mean over its batches."""
        return [added(losses[start:end]) / max(end - start, 1) for start, end in self._spans]

    def _layers(self) -> list[dict[str, Any]]:
        count = len(self._parameters)
        norms, ratios = _sums(self._norm_sums, count), _sums(self._ratio_sums, count)
        lengths, distances = self._since_start().tolist()
        parts = lengths if self._from_zero is None else self._changed_lengths().tolist()
        layers = []
        for place, (name, parameter) in enumerate(zip(self._names, self._parameters, strict=True)):
            length, distance = lengths[place], distances[place]
            part = parts[place] if distance != 0 else length
            # a tensor that starts at zero has nothing that its update could be related to
            change = distance / part if part != 0 else None
            ratio = None
            if change is not None and self._ratios and not self._still_grows(name, change):
                ratio = ratios[place] / self._ratios * (length / part)
            if change is None and self._from_zero is not None:
                self._from_zero.add(name)
            layers.append(
                {
                    "name": name,
                    "rank": parameter.dim(),
                    "grad_norm": (
                        norms[place] / max(self._steps, 1) if self._has_gradient(place) else None
                    ),
                    "update_ratio": ratio,
                    "epoch_update_ratio": change,
                }
            )
        return layers

    def _still_grows(self, name: str, change: float) -> bool:
        return self._from_zero is not None and name in self._from_zero and change > SETTLED

    def _has_gradient(self, place: int) -> bool:
        if not self._steps:  # of steps that were all skipped, nothing is known
            return not self.skips
        return self._all_used or place in self._used

    def _gradients(self) -> list[Tensor]:
        """Return the gradients of all parameters; a zero for one that has none."""
        found = (parameter.grad for parameter in self._parameters)
        gradients = [
            each.to_dense() if each is not None and each.is_sparse else each for each in found
        ]
        dense = [gradient for gradient in gradients if gradient is not None]
        if len(dense) == len(gradients):
            self._all_used = True
            return dense
        self._used.update(place for place, each in enumerate(gradients) if each is not None)
        return [
            torch.zeros_like(parameter) if gradient is None else gradient
            for gradient, parameter in zip(gradients, self._parameters, strict=True)
        ]

    @torch.no_grad()
    def _weights(self) -> list[Tensor]:
        """Return a copy of all parameters, flat and in one piece where they are few."""
        parameters = list[Tensor](self._parameters)
        if self._large:
            return [parameter.detach().clone() for parameter in parameters]
        return [_flat(parameters)]

    def _row(self, tensors: list[Tensor]) -> Tensor:
        """Return what is kept of tensors, one of each parameter, until norms are summed up.

        All values, flat, of a small model: norms of many steps at once take far fewer calls. Of a
        large model the norms, so that nothing is copied.
        """
        if not self._large:
            return _flat(tensors)
        half = any(tensor.dtype in HALF for tensor in tensors)
        norms = torch._foreach_norm(tensors, 2, dtype=torch.float32 if half else None)
        if self._alike:
            return torch.stack(norms).double()  # three times faster than one by one
        return torch.stack([self._gathered(norm.double()) for norm in norms])

    def _gathered(self, number: Tensor) -> Tensor:
        """Return a scalar where all are gathered; nobody waits for a GPU to take it."""
        return number.to(self._device, non_blocking=self._device.type != "cpu")

    def _norms(self, rows: list[Tensor]) -> Tensor:
        """Return the norms (rows, parameters) of what rows hold of each parameter."""
        block = torch.stack(rows) if len(rows) > 1 else rows[0][None]
        if self._large:
            return block
        dtype = torch.float32 if block.dtype in HALF else None
        parts = torch.split(block, self._counts, dim=1)
        norms = [torch.linalg.vector_norm(part, dim=1, dtype=dtype) for part in parts]
        return torch.stack(norms, dim=1)

    def _since_start(self) -> Tensor:
        """Return the norm of each parameter at the epoch's start, and that of its change since."""
        if not self._large:
            return self._norms([self._start[0], self._weights()[0] - self._start[0]])
        pairs = zip(self._parameters, self._start, strict=True)
        changes = [
            self._gathered(torch.linalg.vector_norm(now - start).double()) for now, start in pairs
        ]
        return torch.stack([self._row(self._start), torch.stack(changes)])

    def _changed_lengths(self) -> Tensor:
        """Return the norm of each parameter at the epoch's start, in the rows changed since."""
        now = list[Tensor](self._parameters)
        starts = self._start if self._large else torch.split(self._start[0], self._counts)
        found = []
        for start, parameter in zip(starts, now, strict=True):
            rows = parameter.shape[0] if parameter.dim() > 1 else 1
            shape = (rows, parameter.numel() // max(rows, 1))
            before = start.reshape(shape)
            changed = (before != parameter.reshape(shape)).any(dim=1)
            dtype = torch.float32 if before.dtype in HALF else None
            norms = torch.linalg.vector_norm(before, dim=1, dtype=dtype)
            found.append(self._gathered(torch.linalg.vector_norm(norms * changed).double()))
        return torch.stack(found)

    def _enough(self, rows: list[Tensor]) -> bool:
        return len(rows) == _FLUSH or sum(map(len, rows)) > _NUMBERS

    def _flush_losses(self) -> None:
        if self._kept:
            logits, labels = map(torch.cat, zip(*self._kept, strict=True))
            self._correct = self._correct + (logits.argmax(dim=1) == labels).sum()
        if self._told:
            self._losses.append(torch.stack(self._told).double())
        self._kept, self._told, self._waiting = [], [], 0

    def _flush_gradients(self) -> None:
        if self._gradient_rows:
            norms = self._norms(self._gradient_rows).double()
            self._norm_sums.append(norms.sum(dim=0))
            self._squares.append((norms * norms).sum(dim=1))
        self._gradient_rows = []

    def _flush_updates(self) -> None:
        if self._weight_rows:
            changes = self._norms(self._change_rows).double()
            ratios = changes / self._norms(self._weight_rows).double()
            self._ratio_sums += [ratios.sum(dim=0)] if self._most_ratios is None else [*ratios]
        self._weight_rows, self._change_rows = [], []

    def begin_forward(self, *_: Any) -> None:
        """Look at the activations of the forward pass that follows, if it is its turn."""
        wanted = self._looks and self._batches % LOOK_EVERY == 0 and not self._probing
        if wanted and self._model.training and torch.is_grad_enabled():
            self._activations.begin()

    def end_forward(self, *_: Any) -> None:
        """Say that the forward pass is over."""
        self._activations.end()

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Put buffers and the global generators' states back, and look at no activation."""
        held = [
            (module._buffers, name, buffer, buffer.clone())
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        cuda: Any = torch.cuda
        # a GPU that nothing has used yet is not started up for this
        devices = list(range(cuda.device_count())) if cuda.is_initialized() else []
        self._probing = True
        try:
            with torch.random.fork_rng(devices=devices):
                yield
        finally:
            self._probing = False
            with torch.no_grad():
                for buffers, name, buffer, value in held:
                    buffers[name] = buffer.copy_(value)


def _stride(steps: int | None, ratios: int) -> int:
    """Return the steps from one update ratio to the next; a short epoch has all of them."""
    return max(1, ((steps or 1) - 1) // (ratios - 1)) if (steps or 1) >= 2 * ratios else 1


def _gathering_place(parameters: Sequence[Tensor]) -> torch.device:
    """Return where numbers of all parameters are gathered: the first GPU, if there is one.

    To take a number from there would be to wait for it.
    """
    devices = [parameter.device for parameter in parameters]
    return next((device for device in devices if device.type != "cpu"), devices[0])


def _flat(tensors: list[Tensor]) -> Tensor:
    """Return a detached copy of all elements, in one dimension.

    Norms of many steps at once take far fewer calls than norms of each step.
    """
    if len(tensors) == 1:  # the function below would return a view
        return tensors[0].detach().flatten().clone()
    return torch._C._nn.flatten_dense_tensors(tensors).detach()


def _numbers(parts: Sequence[Tensor]) -> list[float]:
    return torch.cat(list(parts)).tolist() if parts else []


def _sums(parts: Sequence[Tensor], count: int) -> list[float]:
    return torch.stack(list(parts)).sum(dim=0).tolist() if parts else [0.0] * count


def _mean_squared_over_variance(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = added(values) / len(values)
    variance = added((value - mean) * (value - mean) for value in values) / (len(values) - 1)
    return _divide(mean * mean, variance)


def _divide(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return math.inf if numerator > 0 else math.nan
    return numerator / denominator
