"""What runs beside a task's code: it answers requests for data, training, outputs and scores.

The harness and the judge hold one worker each for every purpose, in a process of its own, and keep
the record themselves: a worker has no ledger, no policy and no recorded value. Each request is a
name with plain fields and a blob of tensors, and so is each answer.

    data, test      train and validation; the test part             -> tensors, or how many examples
    rows            some of these examples                          -> tensors
    start           build model and optimizer on the tensors given  -> spec, state's SHA-256
    epoch           train an epoch and validate                     -> measured, seconds
    metrics         validate before the first epoch                 -> names of metrics
    keep            keep the state after an epoch to go back to     -> its SHA-256
    execute         carry a decision out                            -> refused, state's SHA-256
    weights         the model's weights                             -> safetensors
    model           build the model with these weights              -> spec
    outputs         this model's on these inputs                    -> tensors
    score           loss and metrics of outputs                     -> by name

Trust: runs in the task's process, so whatever it answers may be the task's word.
I/O: none.  Shapes: inputs and targets (N, ...).  Units: losses as the task has them.
"""

import time
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any, Protocol

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from aggregates.decisions import learning_rate, parse_decision
from aggregates.errors import AggregateError, RemedyRefused
from aggregates.spec import WatchedModel
from aggregates.sums import added
from monitor.computing import computing_as
from monitor.config import SCALED, TaskConfig
from monitor.diagnostics import EpochWatch
from monitor.errors import TaskError
from monitor.loop import epoch_order, probe_batches
from monitor.stored import Rows
from monitor.task_form import Blob
from monitor.tasks import Parts, Stream, Streams, TaskCode, seed_everything
from monitor.watched_model import WatchedState, describe_model
from monitor.weights import dump_weights, load_weights

DATA, TEST = ("data",), ("test",)  # what each purpose keeps of the file
TRAIN = ("model", "loss", "metrics", "optimizer", "schedule", "scheduler", "augment")
OUTPUTS, SCORE = ("model",), ("loss", "metrics")
_HEADROOM = 16.0  # by which a probe's losses are scaled less than a step's


class Worker(Protocol):
    """A process, or this one, in which a task's code answers requests."""

    def ask(
        self, request: str, fields: Mapping[str, Any], blob: Blob = b"", /
    ) -> tuple[dict[str, Any], Blob]:
        """Return the answer to a request; raises TaskError saying what failed."""


class TaskWorker:
    """Answers requests in this process."""

    def __init__(
        self,
        source: bytes,
        config: TaskConfig,
        *,
        keep: tuple[str, ...],
        stored: Mapping[str, Rows] | None = None,
    ) -> None:
        self._config = config
        self._stored = stored  # train and validation, where no request hands them over
        self._streams: Streams = {}
        self._model: nn.Module | None = None  # with the weights that outputs are asked of
        with computing_as(config):
            self._code = TaskCode(source, config, keep=keep)
        self._training: _Training | None = None

    def ask(
        self, request: str, fields: Mapping[str, Any], blob: Blob = b"", /
    ) -> tuple[dict[str, Any], bytes]:
        """Answer a request; raises TaskError, or what the task's code raises."""
        whole = blob if isinstance(blob, bytes) else blob.read(0, len(blob))
        with computing_as(self._config):
            return self._answer(request, fields, whole)

    def _answer(
        self, request: str, fields: Mapping[str, Any], blob: bytes
    ) -> tuple[dict[str, Any], bytes]:
        code = self._code
        match request:
            case "data":
                return self._made(code.data())
            case "test":
                return self._made(code.test(fields["draw"]))
            case "rows":
                stream = self._streams[fields["part"]]
                return {}, save(stream.rows(fields["start"], fields["stop"]))
            case "start":
                self._training = _Training(code, self._stored or load(blob))
                described = self._training.spec.to_dict()
                return {"spec": described, "state": self._training.fingerprint()}, b""
            case "epoch":
                return self._running.epoch(fields["epoch"]), b""
            case "metrics":
                return {"metrics": list(self._running.validate()["metrics"])}, b""
            case "keep":
                return {"state": self._running.keep(fields["epoch"])}, b""
            case "execute":
                return self._running.execute(fields["decision"], epoch=fields["epoch"]), b""
            case "weights":
                return {}, dump_weights(self._running.model)
            case "model":
                self._model, spec = _model(code, fields, blob)
                return {"spec": spec.to_dict()}, b""
            case "outputs":
                if self._model is None:
                    raise TaskError("there is no model to ask for outputs")
                return {}, save({"outputs": code.outputs(self._model, load(blob)["inputs"])})
            case "score":
                return _scores(code, load(blob)), b""
        raise TaskError(f"unknown request {request!r}")

    def _made(self, found: Parts | Streams) -> tuple[dict[str, Any], bytes]:
        """Answer with tensors, or with the numbers of examples that can be asked for in rows."""
        tensors, streams = {}, {}
        for name, each in found.items():
            if isinstance(each, Stream):
                streams[name] = each
            else:
                tensors[name] = each
        self._streams = streams
        if streams:
            return {"streams": {name: len(each) for name, each in streams.items()}}, b""
        return {}, save(tensors)

    @property
    def _running(self) -> "_Training":
        if self._training is None:
            raise TaskError("the training was not started")
        return self._training


class _Training:
    """A task in training: model, optimizer, data and settings."""

    def __init__(self, code: TaskCode, parts: Mapping[str, Rows]) -> None:
        self._code, self._parts, self._config = code, parts, code.config
        self._examples = len(parts["train.inputs"])
        self.model = code.model()
        self._optimizer = code.optimizer(self.model)
        self._scheduler = code.scheduler(self._optimizer)
        scaled = self._config.precision == SCALED
        self._scaler = torch.amp.GradScaler(self._config.device) if scaled else None
        self._repeats = _takes_closure(self._optimizer)
        if self._repeats and scaled:
            raise TaskError("an optimizer whose step takes a closure cannot train in float16")
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        self.spec = _described(self.model, self._config)
        self._state = WatchedState(
            self._config,
            self.model,
            self._optimizer,
            spec=self.spec,
            set_batch_size=lambda _: None,
            train_examples=self._examples,
            scaler=self._scaler,
        )

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train an epoch and validate; return the measured part without its settings."""
        began, settings = time.monotonic(), self._state.settings
        size = settings.batch_size * settings.accumulation
        steps = self._examples // size  # what does not fill a step is left for another epoch
        seed = self._config.seed
        order = epoch_order(self._examples, seed=seed, epoch=epoch)
        seed_everything(seed, "task", "epoch", epoch)
        self.model.train()
        watch = EpochWatch(self.model, effective_batch=size, steps=steps)
        try:
            for step in range(steps):
                self._set_rates(epoch, (step + 1) / steps)
                self._optimizer.zero_grad(set_to_none=True)
                chosen = order[step * size : (step + 1) * size]
                for indices in torch.split(chosen, settings.batch_size):
                    watch.told_loss(self._backward(indices), examples=len(indices))
                if self._scaler is not None:
                    self._scaler.unscale_(self._optimizer)
                watch.gradients()
                if watch.probe_due:
                    watch.probe(self._probe_losses(epoch, step), scale=self._probe_scale)
                if settings.clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
                if self._update(chosen):
                    watch.updated()
                else:
                    watch.skipped()
        finally:
            watch.close()
        measured = watch.measured()
        measured["train"]["accuracy"] = None  # a batch's outputs are not kept
        if self._scaler is not None:
            measured["train"]["skipped"] = watch.skips
        validation = self.validate()
        self._schedule(validation["metrics"][self._config.metric])
        return {
            "measured": {**measured, "validation": validation},
            "seconds": time.monotonic() - began,
        }

    def execute(self, decision: Mapping[str, Any], *, epoch: int) -> dict[str, Any]:
        """Carry a decision out; return why it is refused, None where it is not."""
        told = parse_decision(decision)
        try:
            self._state.execute(told, epoch=epoch)
        except (RemedyRefused, AggregateError) as error:
            return {"refused": str(error)}
        return {"refused": None, "state": None if told.back is None else self.fingerprint()}

    def keep(self, epoch: int) -> str:
        """Keep the state after an epoch in the place of an earlier one; return its SHA-256."""
        try:
            self._state.keep(epoch)
        except (MemoryError, RuntimeError, TypeError) as error:
            no_room = isinstance(error, MemoryError) or "memory" in str(error)
            raise TaskError(
                f"there is no memory to keep the state after epoch {epoch}: the weights and the "
                "optimizer's memory are held twice, to go back to; make room, or add "
                "goes_back=false"
                if no_room
                else f"the state after epoch {epoch} cannot be copied: {error}; add goes_back=false"
            ) from error
        return self.fingerprint()

    def fingerprint(self) -> str:
        """Return the SHA-256 of the state, empty where none is ever gone back to."""
        return self._state.fingerprint() if self._config.goes_back else ""

    def _set_rates(self, epoch: int, fraction: float) -> None:
        settings, config = self._state.settings, self._config
        decided = learning_rate(settings, epoch=epoch, fraction=fraction) / config.lr
        factor = decided * self._code.factor((epoch + fraction) / config.epochs)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor

    def _schedule(self, metric: float) -> None:
        """Have the task's own scheduler change the learning rates that decisions multiply."""
        if self._scheduler is None:
            return
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        if isinstance(self._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self._scheduler.step(metric)
        else:
            self._scheduler.step()
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    @property
    def _probe_scale(self) -> float:
        """What a probe's losses are multiplied by: less than a step's, so that none overflows."""
        return 1.0 if self._scaler is None else self._scaler.get_scale() / _HEADROOM

    def _backward(self, indices: Tensor) -> Tensor:
        """Add the gradients of a batch to those of its step; return the batch's loss."""
        loss = self._loss(indices)
        part = loss / self._state.settings.accumulation
        torch.autograd.backward(part if self._scaler is None else self._scaler.scale(part))
        return loss

    def _update(self, chosen: Tensor) -> bool:
        """Take the optimizer's step on these examples; return False where the scaler leaves it out.

        An optimizer that looks several times at the loss does so on the same batches. Only the
        gradients that it begins with were clipped.
        """
        if self._scaler is not None:
            before = self._scaler.get_scale()
            self._scaler.step(self._optimizer)
            self._scaler.update()
            return bool(self._scaler.get_scale() >= before)
        if self._repeats:
            self._optimizer.step(lambda: self._loss_again(chosen))
        else:
            self._optimizer.step()
        return True

    def _loss_again(self, chosen: Tensor) -> float:
        self._optimizer.zero_grad(set_to_none=True)
        parts = torch.split(chosen, self._state.settings.batch_size)
        with torch.enable_grad():
            return added(float(self._backward(each).detach()) for each in parts) / len(parts)

    def _loss(self, indices: Tensor) -> Tensor:
        inputs, targets = self._code.augment(
            self._parts["train.inputs"][indices], self._parts["train.targets"][indices]
        )
        return self._code.loss(self._code.output(self.model, inputs), targets)

    def _probe_losses(self, epoch: int, step: int) -> Iterator[Tensor]:
        """Yield the losses of a probe's batches."""
        settings, seed = self._state.settings, self._config.seed
        for indices in probe_batches(self._examples, settings, seed=seed, epoch=epoch, step=step):
            yield self._loss(indices) / settings.accumulation * self._probe_scale

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """Return loss and metrics of the model as it is on the validation part."""
        inputs, targets = self._parts["validation.inputs"], self._parts["validation.targets"]
        output = self._code.outputs(self.model, inputs)
        found = _score(self._code, output, targets[:])
        accuracy = found["metrics"].get("accuracy")
        return {**found, "accuracy": accuracy, "examples": len(inputs)}


def _takes_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer computes the loss itself, several times in a step, as LBFGS."""
    closure = signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


@torch.no_grad()
def _score(code: TaskCode, output: Tensor, target: Tensor) -> dict[str, Any]:
    return {"loss": float(code.loss(output, target)), "metrics": code.metrics(output, target)}


def _model(
    code: TaskCode, fields: Mapping[str, Any], weights: bytes
) -> tuple[nn.Module, WatchedModel]:
    """Return what model() gives with other activations and weights, and what it gave."""
    model = code.model()
    now = _described(model, code.config)
    state = WatchedState(code.config, model, None, spec=now, set_batch_size=None)
    state.become(WatchedModel.from_dict(fields["spec"]))
    load_weights(model, weights)
    return model, now


def _described(model: nn.Module, config: TaskConfig) -> WatchedModel:
    return describe_model(
        model, batches=True, classes=config.classes, accumulates=True, restoring=config.restoring
    )


def _scores(code: TaskCode, tensors: Parts) -> dict[str, Any]:
    """Return loss and metrics of each part that has outputs and targets."""
    names = [name.removesuffix(".outputs") for name in tensors if name.endswith(".outputs")]
    return {
        name: _score(code, tensors[f"{name}.outputs"], tensors[f"{name}.targets"]) for name in names
    }
