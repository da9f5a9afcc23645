"""Lightning under watch: `Trainer(callbacks=[ProctorCallback()])`.

    pip install '/path/to/proctor[lightning]'

Gradients are read before Lightning clips them, and unscaled. Losses are those that are sent
backward, not those that are logged.

Source: docs/how-to/watch-your-own-loop.md.
I/O: appends to the home's ledger.
Not covered: manual optimisation, several optimizers, strategies that divide the model; each is
refused when the training starts.
"""

from typing import Any, Unpack

import torch
from torch import Tensor

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
    from lightning.pytorch.utilities import rank_zero_info
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "lightning":
        raise
    raise ModuleNotFoundError(
        "this callback needs Lightning: pip install '/path/to/proctor[lightning]'", name=error.name
    ) from error

from monitor.errors import WatchError
from monitor.watching import WatchedRun
from proctor.integrations.framework_run import (
    FrameworkRun,
    WatchOptions,
    count_batch,
    count_examples,
)


class ProctorCallback(Callback):  # type: ignore[misc, unused-ignore]  # not always installed
    """Records the training as a watched run, and carries the decisions on it out.

    An epoch of the run ends with each validation.

    monitor: the logged validation loss.
    accuracy: the logged validation accuracy, from 0 to 1, if there is one.
    batch_size: examples in a batch, for data loaders that do not say.
    max_batch_size: the most that a decision may set. Batch sizes can be changed if the data module
    or the module makes its loader from its attribute `batch_size`, and the trainer has
    `reload_dataloaders_every_n_epochs=1`.
    Further arguments are those of proctor.watch().
    """

    def __init__(
        self,
        *,
        monitor: str = "val_loss",
        accuracy: str | None = None,
        batch_size: int | None = None,
        max_batch_size: int | None = None,
        **options: Unpack[WatchOptions],
    ) -> None:
        self.monitor = monitor
        self.accuracy = accuracy
        self._batch_size = batch_size
        self._max_batch_size = max_batch_size
        self._framework = FrameworkRun(options, say=rank_zero_info)
        self._examples: int | None = None  # of the batch at hand
        self._saved: dict[str, Any] | None = None  # what a checkpoint held
        self._has_gradients = False

    @property
    def run(self) -> WatchedRun | None:
        """The run while the training lasts."""
        return self._framework.run

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning's checkpoints hold of the run."""
        return {} if self.run is None else self.run.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let a training that goes on from a checkpoint go on with its run."""
        self._saved = state_dict or None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the run."""
        _refuse_unwatchable(trainer, pl_module)
        loader = trainer.train_dataloader
        size = self._batch_size or getattr(loader, "batch_size", None)
        if not isinstance(size, int):
            raise WatchError("the data loader has no batch_size; give ProctorCallback(batch_size=)")
        options: dict[str, Any] = {}
        holder = _batch_size_holder(trainer, pl_module, size)
        if holder is not None:
            options["set_batch_size"] = lambda new: setattr(holder, "batch_size", new)
            options["max_batch_size"] = self._max_batch_size
        self._framework.begin(
            pl_module,
            trainer.optimizers[0],
            batch_size=size,
            accumulation=trainer.accumulate_grad_batches,
            train_examples=count_examples(loader),
            clip_norm=(trainer.gradient_clip_val or None) if _clips_by_norm(trainer) else None,
            resume=self._saved if trainer.global_step else None,
            **options,
        )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin an epoch where none is open, and look at the forward pass."""
        if self.run is None:
            return
        if not self.run.in_epoch:
            self.run.begin_epoch()
        self._examples = count_batch(batch)
        self.run.before_forward()

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Take in the loss, as it was before it was divided and scaled."""
        if self.run is None:
            return
        self.run.after_forward()
        self._has_gradients = True
        told = loss.detach() * trainer.accumulate_grad_batches
        scaler = _scaler(trainer)
        self.run.add_loss(
            told if scaler is None else told / scaler.get_scale(), examples=self._examples
        )

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the gradients of a batch."""
        if self.run is not None:
            self.run.after_backward()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradients, and have them clipped as decisions have it."""
        if self.run is None or not self._has_gradients:  # a training step may return no loss
            return
        self._has_gradients = False
        scaler = _scaler(trainer)
        self.run.before_update(before=None if scaler is None else scaler.get_scale)
        norm = self.run.clip_norm
        if norm is not None and _clips_by_norm(trainer):
            trainer.gradient_clip_val = norm  # Lightning clips behind this hook
        elif norm is not None:
            torch.nn.utils.clip_grad_norm_(pl_module.parameters(), norm)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop looking at a forward pass that led to no loss."""
        if self.run is not None:
            self.run.after_forward()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the epoch, and carry out what is decided."""
        if trainer.sanity_checking:
            return
        run = self._framework.evaluated(
            trainer.callback_metrics, loss=self.monitor, accuracy=self.accuracy
        )
        if run is not None and run.stopped:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the run."""
        self._framework.end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """End the run as failed or interrupted."""
        self._framework.end(exception)


def _refuse_unwatchable(trainer: Trainer, module: LightningModule) -> None:
    """Raise WatchError for a training whose steps cannot be measured."""
    if not module.automatic_optimization:
        raise WatchError(
            "manual optimisation shows its gradients only behind its own clipping; put the loop "
            "under proctor.watch() instead"
        )
    if len(trainer.optimizers) != 1:
        raise WatchError(f"a watched training has one optimizer, not {len(trainer.optimizers)}")
    [optimizer] = trainer.optimizers
    if isinstance(optimizer, torch.optim.LBFGS):
        raise WatchError("LBFGS computes several gradients in a step, and cannot be watched")
    if _scaler(trainer) is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
        raise WatchError("a fused optimizer hides its unscaled gradients; use fused=False")
    if not isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
        raise WatchError(
            f"{type(trainer.strategy).__name__} cannot be watched; use one device, or DDPStrategy"
        )
    if not trainer.enable_validation:
        raise WatchError("a watched training needs a validation; define validation_step()")


def _scaler(trainer: Trainer) -> torch.amp.GradScaler | None:
    scaler: torch.amp.GradScaler | None = getattr(trainer.precision_plugin, "scaler", None)
    return scaler


def _clips_by_norm(trainer: Trainer) -> bool:
    return str(getattr(trainer.gradient_clip_algorithm, "value", "norm")) == "norm"


def _batch_size_holder(trainer: Trainer, module: LightningModule, size: int) -> Any:
    """Return what the next epoch's loader takes its batch size from; None if nothing does."""
    if trainer.reload_dataloaders_every_n_epochs != 1 or trainer.check_val_every_n_epoch != 1:
        return None
    for holder in (trainer.datamodule, module):
        if holder is not None and getattr(holder, "batch_size", None) == size:
            return holder
    return None
