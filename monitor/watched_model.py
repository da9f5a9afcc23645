"""The model of a training whose loop belongs to somebody else, and its changes by decisions.

A decision is carried out as far as the loop allows: learning rate, clipping, stop, starting
weights or those of an earlier epoch, another activation, and the batch size where the loop can
change it. The rules whose remedies cannot be carried out are waived when the run starts.

I/O: none.  Units: learning rates per step.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from aggregates.canonical import digest
from aggregates.decisions import Decision, Settings
from aggregates.errors import RemedyRefused, SpecError
from aggregates.outcomes import Changes
from aggregates.playbook import (
    FRESH,
    MAX_LR,
    RATE_DIRECTIONS,
    rate_remedies,
    unanswered_sides,
)
from aggregates.rules import RulesConfig
from aggregates.run import Run
from aggregates.spec import MAX_BLOCKS, WatchedActivation, WatchedModel, apply_edit
from aggregates.trials import Step
from monitor.config import TaskConfig, WatchConfig, initial_settings
from monitor.errors import WatchError
from monitor.processes import Processes
from monitor.stored import tensor_bytes
from monitor.trained import outcome_of
from monitor.weights import is_finite

SetBatchSize = Callable[[int], object]  # tells the loop to use batches of so many examples

_ACTIVATIONS: Mapping[type[nn.Module], str] = {
    nn.GELU: "gelu",
    nn.LeakyReLU: "leaky_relu",
    nn.ReLU: "relu",
}
_MODULES = {kind: module for module, kind in _ACTIVATIONS.items()}
_BATCHES = ("increase_batch_size", "decrease_batch_size")
_COMPILED = "_orig_mod"  # the name by which a compiled model has the original


def describe_model(
    model: nn.Module | None,
    *,
    batches: bool,
    classes: int | None,
    compiled: bool = False,
    accumulates: bool = False,
    lr: float = MAX_LR,
    restoring: Sequence[str] = (),
) -> WatchedModel:
    """Return what a run records of a model, and which remedies can be carried out on it.

    `restoring` are the directions that put an earlier state back, `lr` is the learning rate that
    the training begins with. Without a model, the loop can only be stopped. Raises WatchError.
    """
    shapes = shapes_of(model)
    named = () if model is None or compiled else model.named_modules()
    activations = [
        WatchedActivation(name, _ACTIVATIONS[type(module)])
        for name, module in named
        if name and type(module) in _ACTIVATIONS
    ]
    offers = (
        *(() if model is None else rate_remedies(lr, restoring)),
        *(_BATCHES if batches else ()),
        *(("accumulate_gradients",) if accumulates else ()),
        "stop",
        *(("swap_activation",) if activations else ()),
    )
    try:
        return WatchedModel(
            model="none" if model is None else type(model).__qualname__[:500],
            parameters=sum(math.prod(shape) for shape in shapes.values()),
            sha256=digest(shapes),
            activations=tuple(activations[:MAX_BLOCKS]),
            offers=offers,
            classes=classes,
        )
    except SpecError as error:
        raise WatchError(str(error)) from error


def is_compiled(model: nn.Module) -> bool:
    """Return whether torch.compile() has made the model, or any part of it."""
    return any(
        _COMPILED in each._modules or getattr(each, "_compiled_call_impl", None) is not None
        for each in model.modules()
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model that torch.compile() or DistributedDataParallel was given; others as is."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    return inner._modules.get(_COMPILED) or inner


def check_trainable(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise WatchError if the optimizer has nothing of the model to train."""
    trainable = {id(each) for each in model.parameters() if each.requires_grad}
    if not trainable:
        raise WatchError("the model has no trainable parameter")
    if any(hasattr(each, "placements") for each in model.parameters()):
        raise WatchError("a model whose parameters are divided (FSDP2) cannot be watched")
    if not trainable & {id(each) for each in optimized_by(optimizer)}:
        raise WatchError(
            "the optimizer updates no trainable parameter of the model; make it from "
            "model.parameters()"
        )


def optimized_by(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters that an optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def shapes_of(model: nn.Module | None) -> dict[str, list[int]]:
    """Return the shape of each parameter, by name."""
    named = () if model is None else model.named_parameters()
    return {name: list(parameter.shape) for name, parameter in named}


def waived_without(spec: WatchedModel, rules: RulesConfig) -> tuple[str, ...]:
    """Return the rules with a side that no offered remedy answers."""
    return tuple(rule for rule in rules.names if unanswered_sides(rule, spec.offers))


class WatchedState:
    """Model, optimizer and settings of a watched loop, as decisions change them."""

    def __init__(
        self,
        config: WatchConfig | TaskConfig,
        model: nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        *,
        spec: WatchedModel,
        set_batch_size: SetBatchSize | None,
        train_examples: int | None = None,
        processes: Processes | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.config = config
        self.train_examples = train_examples or 0  # 0: nobody said
        self.settings = initial_settings(config)
        self._model = nn.Module() if model is None else model  # one that has nothing
        self._optimizer = optimizer
        self._scaler = scaler  # where it goes back with the state
        self.spec = spec  # the model as it is now
        self._set_batch_size = set_batch_size
        self.processes = processes or Processes()  # which train it together
        # Where nothing may be changed, nothing is ever put back.
        self._start = self._copied() if spec.offers else _Copied({}, [], {}, {})
        self._kept: dict[int, _Copied] = {}  # the latest epoch whose state can be gone back to
        self._begun: _Copied | None = None  # what each of the present trials begins with
        self._best: dict[int, _Copied] = {}  # the best of them so far
        self.rate_overridden: str | None = None  # why decisions about the rate have no effect

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out after `epoch`; raises RemedyRefused if that cannot be."""
        back = FRESH if decision.params.get("reinitialise", False) else decision.back
        copied = None  # what is put back
        if back is not None and back != epoch:
            copied = self._start if back == FRESH else self._kept[back]
            if back != FRESH and not is_finite(self._model, copied.weights):
                raise RemedyRefused(f"the weights after epoch {back} are not finite")
            self._verify_fits(copied)
        elif decision.direction != "stop" and not is_finite(self._model):
            raise RemedyRefused(
                "the weights are not finite, and only the starting weights bring them back"
            )
        moves_rate = decision.back is not None or decision.direction in RATE_DIRECTIONS
        if self.rate_overridden is not None and moves_rate:
            raise RemedyRefused(self.rate_overridden)
        outcome = outcome_of(decision, self, epoch=epoch)
        if decision.edit is not None:
            self.become(apply_edit(self.spec, decision.edit))
        elif outcome.settings.batch_size != self.settings.batch_size:
            self._resize(outcome.settings.batch_size)
        self.settings = outcome.settings
        if copied is not None:
            self._put_back(copied)
            if self._scaler is not None and decision.back is not None:
                self._scaler.load_state_dict(dict(copied.scaler))
        if decision.rates:
            self._begun = self._start if back == FRESH else self._copied()
        return outcome.changes

    def go_on(self, step: Step, *, epoch: int, best: bool) -> None:
        """Go on as the trial of `epoch` leads to; `best`: no trial before had a smaller loss."""
        assert self._begun is not None, "a decision has begun the trials"
        if best:
            self._best = {epoch: self._copied()}
        self.settings = replace(self.settings, lr=step.lr)
        over = step.epoch in self._best
        self._put_back(self._best[step.epoch] if over else self._begun)
        if over:
            self._kept, self._best, self._begun = self._best, {}, None

    def resume(self, run: Run) -> None:
        """Take on the settings and the specification that a run has come to."""
        assert isinstance(run.spec, WatchedModel), "a watched run's"
        self.become(run.spec)
        settings = Settings(**run.settings) if run.settings else self.settings
        if settings.batch_size != self.settings.batch_size:
            self._resize(settings.batch_size)
        self.settings = settings

    def keep_resumed(self, epoch: int, *, sound: bool) -> None:
        """Take the model as it is now for what it starts from, and for the state after an epoch."""
        if self.spec.offers:
            self._start = self._copied()
            self._kept = {epoch: self._start} if sound else {}

    def keep(self, epoch: int) -> None:
        """Keep the state after an epoch, before its decisions, in the place of an earlier one."""
        self._kept = {epoch: self._copied()}

    def fingerprint(self) -> str:
        """Return the SHA-256 of all parameters, buffers and tensors of the optimizer's memory."""
        sha = hashlib.sha256()
        for name, value in self._tensors():
            sha.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
            sha.update(tensor_bytes(value.cpu()))
        return sha.hexdigest()

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._named()
        memories = {f"{n}": self._memory.get(each, {}) for n, each in enumerate(self._optimized)}
        for number, shared in enumerate(self._shared().values()):
            memories[f"beside {number}"] = shared if isinstance(shared, Mapping) else {"": shared}
        for key, memory in memories.items():
            for name, value in memory.items():
                if isinstance(value, Tensor):
                    yield f"{key}.{name}", value

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._model.named_parameters()
        yield from self._model.named_buffers()

    def become(self, spec: WatchedModel) -> None:
        """Change the activations to those of another specification of the same model."""
        for before, after in zip(self.spec.activations, spec.activations, strict=True):
            if before.kind != after.kind:
                now = self._model.get_submodule(before.name)
                new = _MODULES[after.kind]().train(now.training)
                self._model.set_submodule(before.name, new)
        self.spec = spec

    def _resize(self, size: int) -> None:
        assert self._set_batch_size is not None, "it is not offered without"
        count = self.processes.size
        if size % count:
            raise RemedyRefused(f"batches of {size} cannot be divided over {count} processes")
        reason = None
        try:
            self._set_batch_size(size // count)
        except Exception as error:
            reason = f"the loop cannot use batches of {size}: {type(error).__name__}: {error}"
        reasons = [each for each in self.processes.gather_json(reason) if each is not None]
        if reasons:
            if reason is None:  # it was another process that could not
                self._set_batch_size(self.settings.batch_size // count)
            raise RemedyRefused(reasons[0])

    def _verify_fits(self, copied: "_Copied") -> None:
        """Raise RemedyRefused where a state cannot be put into the model as it is now."""
        buffers = dict(self._model.named_buffers())
        for name, value in self._named():
            kept = copied.weights.get(name)
            if kept is None and name in buffers:
                raise RemedyRefused(f"the buffer {name} is not in the state that was kept")
            if kept is not None and kept.shape != value.shape:
                raise RemedyRefused(f"{name} had another shape in the state that was kept")
            if any(
                step == 0 and size > 1
                for step, size in zip(value.stride(), value.shape, strict=True)
            ):
                raise RemedyRefused(f"the elements of {name} share memory, so it is not put back")

    @property
    def _optimized(self) -> list[Tensor]:
        return [] if self._optimizer is None else optimized_by(self._optimizer)

    @property
    def _memory(self) -> Any:
        """What the optimizer remembers: of each parameter by itself, and beside."""
        return {} if self._optimizer is None else self._optimizer.state

    def _shared(self) -> dict[Any, Any]:
        """Return what the optimizer remembers beside each parameter's own memory."""
        return {key: each for key, each in self._memory.items() if not isinstance(key, Tensor)}

    def _copied(self) -> "_Copied":
        """Return a copy of all parameters, buffers and the optimizer's memory, in main memory."""
        memory = [
            {
                name: (_copy(value), value.device if isinstance(value, Tensor) else None)
                for name, value in self._memory.get(each, {}).items()
            }
            for each in self._optimized
        ]
        scaler = {} if self._scaler is None else self._scaler.state_dict()
        weights = {name: _copy(value) for name, value in self._named()}
        return _Copied(weights, memory, scaler, deepcopy(self._shared()))

    def _put_back(self, copied: "_Copied") -> None:
        """Put weights and the optimizer's memory back; its rates and schedule stay the loop's."""
        with torch.no_grad():
            for name, value in self._named():
                if name in copied.weights:
                    value.copy_(copied.weights[name])
                    self.processes.agree_on(value)
        memories = self._memory  # the same one: an optimizer may share it
        memories.clear()
        memories.update(deepcopy(dict(copied.shared)))
        for each, memory in zip(self._optimized, copied.memory, strict=False):
            if memory:
                memories[each] = {name: _copy(value, on) for name, (value, on) in memory.items()}


@dataclass(frozen=True)
class _Copied:
    """A state that can be gone back to."""

    weights: Mapping[str, Tensor]
    memory: Sequence[Mapping[str, tuple[Any, torch.device | None]]]  # for each parameter, and where
    scaler: Mapping[str, Any]
    shared: Mapping[Any, Any]  # what the optimizer remembers beside


def _copy(value: Any, device: torch.device | None = None) -> Any:
    if not isinstance(value, Tensor):
        return deepcopy(value)
    return value.detach().to(device or "cpu", copy=True)
