"""The Hugging Face Trainer under watch: `Trainer(..., callbacks=[ProctorCallback()])`.

    pip install '/path/to/proctor[transformers]'

The Trainer calls back when the gradients are clipped already, and logs a NaN loss as another
number. Gradients are therefore read when the backward pass ends, and losses from the model.

Source: docs/how-to/watch-your-own-loop.md.
I/O: appends to the home's ledger.
Not covered: losses that the Trainer computes itself, DeepSpeed, FSDP, several processes; each is
refused.
"""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

try:
    from accelerate.state import GradientState
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
    from transformers.utils import logging
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"accelerate", "transformers"}:
        raise
    raise ModuleNotFoundError(
        "this callback needs transformers and accelerate: "
        "pip install '/path/to/proctor[transformers]'",
        name=error.name,
    ) from error

from monitor.errors import WatchError
from monitor.watching import WatchedRun
from proctor.integrations.framework_run import (
    FrameworkRun,
    WatchOptions,
    count_batch,
    count_examples,
)

_log = logging.get_logger("transformers.proctor")
_SAVED = "saved_run"  # name of what a checkpoint holds of the run


class ProctorCallback(TrainerCallback, ExportableState):  # type: ignore[misc, unused-ignore]  # not always installed
    """Records the training as a watched run, and carries the decisions on it out.

    An epoch of the run ends with each evaluation. The batch size stays as it is: the Trainer has
    no way to change it. The Trainer does not tell callbacks that the training has failed: use
    `with ProctorCallback() as callback:` around it, or the run is closed when the process ends.
    A training that goes on from the Trainer's own checkpoint goes on with its run.

    metric_for_loss: the evaluation's loss.
    metric_for_accuracy: the evaluation's accuracy, from 0 to 1, if there is one.
    Further arguments are those of proctor.watch().
    """

    def __init__(
        self,
        *,
        metric_for_loss: str = "eval_loss",
        metric_for_accuracy: str | None = None,
        **options: Unpack[WatchOptions],
    ) -> None:
        self.metric_for_loss = metric_for_loss
        self.metric_for_accuracy = metric_for_accuracy
        self._options = options
        self._framework = FrameworkRun(options, say=_log.warning)
        self._hooks: list[RemovableHandle] = []
        self._scaler: torch.amp.GradScaler | None = None
        self._waiting = False  # for the end of the backward pass
        self._losses: list[Tensor] = []  # of the batches of a step
        self._examples: int | None = 0  # in them; None: nobody knows
        self._shares = False  # whether a batch's loss is its share of the step's
        self._own_max_grad_norm: float = 0.0

    def __enter__(self) -> "ProctorCallback":
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        self._end(error)

    @property
    def run(self) -> WatchedRun | None:
        """The run while the training lasts."""
        return self._framework.run

    def state(self) -> dict[str, Any]:
        """Return what the Trainer's checkpoints hold of the callback and its run, as JSON."""
        plain = (str, int, float, list, tuple, dict)  # a policy that is an object has no JSON
        args = {
            **{name: each for name, each in self._options.items() if isinstance(each, plain)},
            "metric_for_loss": self.metric_for_loss,
            "metric_for_accuracy": self.metric_for_accuracy,
        }
        run = {} if self.run is None else self.run.state_dict()
        return {"args": args, "attributes": {_SAVED: run}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin the run."""
        self._end(WatchError("another training began before this one had ended"))
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        _refuse_unwatchable(args)
        self._scaler = getattr(optimizer, "scaler", None)
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise WatchError(f"{type(optimizer).__name__} is no torch.optim.Optimizer")
        if self._scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise WatchError("a fused optimizer hides its unscaled gradients; choose another optim")
        self._own_max_grad_norm = args.max_grad_norm
        found = (state.stateful_callbacks or {}).get(type(self).__name__)
        saved = found["attributes"].get(_SAVED) if isinstance(found, Mapping) else None
        run = self._framework.begin(
            model,
            optimizer,
            resume=saved or None,
            batch_size=state.train_batch_size or args.per_device_train_batch_size,
            accumulation=args.gradient_accumulation_steps,
            train_examples=count_examples(kwargs.get("train_dataloader")),
            clip_norm=args.max_grad_norm or None,
            seed=args.seed,
        )
        args.max_grad_norm = run.clip_norm or 0.0  # as decisions before a checkpoint have left it
        self._hooks = [model.register_forward_hook(self._after_forward, with_kwargs=True)]
        for parameter in model.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._in_backward)
                self._hooks.append(hook)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin an epoch where none is open."""
        if self.run is not None and not self.run.in_epoch:
            self.run.begin_epoch()
        self._losses, self._examples, self._waiting = [], 0, False

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any],
        **kwargs: Any,
    ) -> None:
        """Record the epoch, and carry out what is decided."""
        if self.metric_for_loss not in metrics and self.metric_for_loss != "eval_loss":
            return  # the evaluation of another data set
        run = self._framework.evaluated(
            metrics, loss=self.metric_for_loss, accuracy=self.metric_for_accuracy
        )
        if run is None:
            return
        args.max_grad_norm = run.clip_norm or 0.0
        if run.stopped:
            control.should_training_stop = True
            self._end()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End the run."""
        args.max_grad_norm = self._own_max_grad_norm
        self._end()

    def _end(self, error: BaseException | None = None) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._framework.end(error)

    def _after_forward(
        self, module: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Take the batch's loss from the model, of a training step."""
        if not module.training or not torch.is_grad_enabled():
            return
        loss = output.get("loss") if isinstance(output, Mapping) else output[0]
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise WatchError(
                "the model returns no loss, so that it cannot be recorded; let the model compute "
                "it from `labels`, or put the loop under proctor.watch()"
            )
        self._losses.append(loss.detach().reshape(()))
        self._shares = kwargs.get("num_items_in_batch") is not None
        count = count_batch(kwargs) or count_batch(args)
        self._examples = None if count is None or self._examples is None else self._examples + count

    def _in_backward(self, _parameter: Tensor) -> None:
        """Ask the engine to call when this backward pass has ended."""
        if not self._waiting:
            self._waiting = True
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._after_backward)

    def _after_backward(self) -> None:
        """Measure the gradients of the whole step, behind the backward pass of its last batch."""
        self._waiting = False
        if self.run is None:
            return
        self.run.after_backward()
        if not GradientState().sync_gradients:
            return
        losses = torch.stack(self._losses)
        self.run.add_loss(losses.sum() if self._shares else losses.mean(), examples=self._examples)
        scaler = self._scaler
        self.run.before_update(
            scale=None if scaler is None else torch.as_tensor(scaler.get_scale())
        )


def _refuse_unwatchable(args: TrainingArguments) -> None:
    """Raise WatchError for a training whose steps cannot be measured."""
    if str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "no":
        raise WatchError('a watched training needs evaluations; set eval_strategy="epoch"')
    if args.label_smoothing_factor:
        raise WatchError("with label_smoothing_factor the Trainer hides the loss; set it to 0")
    if args.deepspeed or args.fsdp:
        raise WatchError("DeepSpeed and FSDP divide the model, and cannot be watched")
    if args.n_gpu > 1:
        raise WatchError("DataParallel cannot be watched; start one process for each device")
    if args.world_size > 1:
        raise WatchError("the Trainer can be watched in one process only")
