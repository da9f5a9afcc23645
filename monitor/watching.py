"""A training whose loop belongs to somebody else, under watch.

Hooks see the live model, so gradients, updates and activations are measured; losses and accuracies
are what the loop reports. What decisions change is in monitor/watched_model.py.

Source: docs/reference/python.md.
I/O: appends to the log that was passed in.  Units: epochs from 0, learning rates per step.
Not covered: activations of compiled models; optimizers whose step takes a closure.
"""

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from aggregates.canonical import digest
from aggregates.decisions import learning_rate
from aggregates.noise import HALVES, NOTHING
from aggregates.playbook import GO_BACK
from monitor.answering import Adviser, Policy, answer_rules
from monitor.diagnostics import EpochWatch
from monitor.errors import WatchError
from monitor.session import Session
from monitor.step_rates import StepRates
from monitor.watched_model import WatchedState, check_trainable, optimized_by, shapes_of

_ALIKE = 1e-3  # relative difference of gradient norms that processes with one model may have
Probe = Callable[[], Tensor]  # computes the mean loss of a batch of other examples
_RATIOS = 8  # update ratios of an epoch, or more: each look copies all weights


def keep_quiet(_line: str) -> None:
    """Say nothing."""


class WatchedRun:
    """One watched training: epochs(), step() after each backward pass, validate() after each epoch.

    watch() makes it. A call out of order raises WatchError, and the run is closed as failed. Where
    a framework takes the optimizer's step, add_loss() and before_update() take the place of step():
    hooks of the optimizer see the update.
    """

    def __init__(
        self,
        session: Session,
        state: WatchedState,
        decider: Policy | Adviser,
        *,
        model: nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        compiled: bool = False,
        noise: str | Probe = NOTHING,
        say: Callable[[str], object] = keep_quiet,
        keep: Callable[[Path], tuple[str, int]] | None = None,
    ) -> None:
        self._noise = noise  # what measures it: of aggregates.noise.SOURCES, or the probe itself
        self._session = session
        self._state = state
        self._decider = decider
        self._say = say
        self._keep = keep  # copies a file, and returns its SHA-256 and size
        self._model = model
        self._optimizer = optimizer
        self._compiled = compiled
        self._watch: EpochWatch | None = None
        self._open = False  # whether an epoch is being trained
        self._batches = 0  # of the epoch, counted behind their backward pass
        self._steps = 0  # of the epoch
        self._looked = False  # whether before_update() waits for the optimizer's step
        self._step_rates = StepRates()
        self._last_steps: int | None = None  # of the epoch before
        self._from_zero: set[str] = set()  # tensors that were zero when an epoch began
        self._resumed = False  # whether what is put back has to be kept when the epoch begins
        self._losses: list[Tensor] = []  # of the epoch, where no model is watched
        self._began = 0.0
        self._held = ExitStack()  # what is open until the run ends
        self._hooks: list[RemovableHandle] = []
        if optimizer is not None:
            self._hooks = [
                optimizer.register_step_pre_hook(self._set_rates),
                optimizer.register_step_post_hook(self._after_update),
            ]

    @property
    def id(self) -> str:
        """The run's id, as `proctor show` takes it."""
        return str(self._session.run.id)

    def _repr_html_(self) -> str:
        """Return what a notebook shows; `proctor.report(run)` shows the whole run."""
        run = self._session.run
        rows = {
            "run": run.id,
            "name": self._state.config.name,
            "epochs": len(run.history),
            "decisions": len(run.decisions),
            "ended": run.end_reason or "not yet",
        }
        cells = (
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{''.join(cells)}</table>"

    @property
    def in_epoch(self) -> bool:
        """Whether an epoch has begun and not been validated."""
        return self._open

    @property
    def stopped(self) -> bool:
        """Whether a decision has stopped the training."""
        return self._session.run.stopped

    @property
    def lr(self) -> float:
        """The learning rate that decisions have led to; the loop's own schedule multiplies it."""
        return self._state.settings.lr

    @property
    def batch_size(self) -> int:
        """Examples in a batch of this process, as decisions have left it."""
        return self._state.settings.batch_size // self._state.processes.size

    @property
    def clip_norm(self) -> float | None:
        """The norm that gradients are scaled down to, as decisions have left it."""
        return self._state.settings.clip_norm

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put a file that the loop has written on record, such as a checkpoint, and keep a copy.

        The newest file of each name is what `proctor export model` hands over. Of several
        processes, the first one's counts. Raises WatchError.
        """
        if self._session.run.end_reason is not None:
            raise WatchError("the run has ended; save() belongs before its end")
        try:
            file = Path(path)
            file.name.encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise WatchError(f"save() takes the path of a file, not {path!r:.100}") from error
        if self._keep is not None:
            sha256, size = self._keep(file)
            self._session.record(self._session.run.save_file, file.name, sha256, size)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has to hold so that watch(resume=...) can go on from it.

        Save it behind validate(), beside the states of the model and the optimizer.
        """
        return {
            "run": self.id,
            "epoch": self._session.run.epoch,
            "steps": self._last_steps,
            "from_zero": sorted(self._from_zero),
        }

    def go_on(self, *, steps: int | None, zero: Sequence[str]) -> None:
        """Go on as what the run repeats has left model and settings; watch() calls it."""
        self._last_steps, self._from_zero, self._resumed = steps, {*zero}, True
        self._state.resume(self._session.run)

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Yield the numbers of the epochs, from 0, until all are done or a decision stops.

        `count` defaults to what watch() was told, and cannot be above it. A run that was resumed
        goes on behind the epochs that it has.
        """
        planned = self._state.config.epochs
        count = planned if count is None else count
        if count is None:
            raise WatchError("give the number of epochs, as in run.epochs(20)")
        if planned is not None and count > planned:
            raise WatchError(f"epochs({count}) is above the {planned} epochs that watch() was told")
        for _ in range(self._session.run.epoch + 1 if self._resumed else 0, count):
            if self.stopped:
                return
            self.begin_epoch()
            yield self._session.run.epoch + 1
            if self._open:
                raise WatchError(
                    "the epoch has no validation; call run.validate(loss=...) at its end"
                )

    def begin_epoch(self) -> None:
        """Begin an epoch; epochs() does it by itself."""
        run, planned = self._session.run, self._state.config.epochs
        if self._open:
            raise WatchError("an epoch is open; call run.validate(loss=...) before the next begins")
        if self.stopped:
            raise WatchError("a decision has stopped the training; leave the loop")
        if run.end_reason is not None:
            raise WatchError(f"the run has ended as {run.end_reason}; begin another with watch()")
        if planned is not None and run.epoch + 1 >= planned:
            raise WatchError(f"all {planned} epochs that watch() was told are done")
        self._check_model()
        if self._resumed:
            self._state.keep_resumed(run.epoch, sound=not run.damage(run.epoch))
            self._resumed = False
        if self._model is not None:
            settings = self._state.settings
            self._watch = EpochWatch(
                self._model,
                effective_batch=settings.batch_size * settings.accumulation,
                steps=self._last_steps,
                ratios=_RATIOS,
                thin=True,
                parts=settings.accumulation if self._noise == HALVES else 1,
                only=self._optimized,
                activations=not self._compiled,
                from_zero=self._from_zero,
            )
        self._open, self._batches, self._steps, self._losses = True, 0, 0, []
        self._step_rates.begin_epoch()
        self._began = time.monotonic()

    def step(
        self,
        loss: Tensor | float,
        *,
        examples: int | None = None,
        update: bool = True,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Measure the gradients that backward() has left, and take the optimizer's step.

        It takes the place of optimizer.step() and optimizer.zero_grad(). The gradients are bounded
        where the run has a clip_norm, and removed after the step.

        loss: the batch's mean loss, a scalar, before any scaling or division.
        examples: the batch's size, by default the batch size of the run.
        update: False for all but the last batch of an accumulated step; the gradients stay.
        scaler: that of float16 training; step() unscales the gradients and updates it. A step that
        the scaler skips is counted as skipped, and no rule reads its gradients.
        """
        self.add_loss(loss, examples=examples)
        self.after_backward()
        if not update:
            return
        if self._optimizer is None:
            self._steps += 1
            return
        if scaler is not None:
            scaler.unscale_(self._optimizer)
        self.before_update(before=None if scaler is None else scaler.get_scale)
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._optimized, self.clip_norm)
        if scaler is None:
            self._optimizer.step()
        else:
            scaler.step(self._optimizer)
            scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def add_loss(self, loss: Tensor | float, *, examples: int | None = None) -> None:
        """Take in the mean loss of a batch, a scalar; step() does it by itself."""
        if not self._open:
            raise WatchError("step() belongs in an epoch; loop over run.epochs()")
        told = _scalar(loss)
        self._batches += 1
        if self._watch is None:
            self._losses.append(told)
        else:
            self._watch.told_loss(told, examples=self.batch_size if examples is None else examples)

    def before_forward(self) -> None:
        """Say that a training step's forward pass follows; its activations may be looked at.

        Calls of the model are seen without it. It is for frameworks that call parts of the model.
        """
        if self._watch is not None:
            self._watch.begin_forward()

    def after_forward(self) -> None:
        """Say that the forward pass is over, before the backward pass."""
        if self._watch is not None:
            self._watch.end_forward()

    def after_backward(self) -> None:
        """Say that a batch's backward pass is over; step() does it by itself.

        With accumulated gradients, the halves of a step tell how noisy its gradient is.
        """
        if self._watch is not None:
            self._watch.part()

    def before_update(
        self, *, scale: Tensor | None = None, before: Callable[[], float] | None = None
    ) -> None:
        """Measure the gradients that the optimizer is about to use, before they are clipped.

        step() does it by itself. `scale` is what a loss scaler has multiplied them by, where they
        are not unscaled yet; where they are, `before` returns what it was during the backward
        passes. A step that the scaler leaves out does not count.
        """
        if not self._open or self._watch is None:
            raise WatchError("an optimizer's step belongs in an epoch of a watched model")
        if all(each.grad is None for each in self._optimized):
            raise WatchError(
                "no parameter has a gradient; call loss.backward() before run.step(loss), and "
                "leave optimizer.zero_grad() to it"
            )
        self._forget_skipped()
        if before is not None:
            self._watch.unscale(before)
        self._watch.gradients(scale=scale)
        if not isinstance(self._noise, str) and self._watch.probe_due:
            self._watch.probe(self._probe_losses(self._noise), own_scale=scale)
        self._looked = True

    def _probe_losses(self, probe: Probe) -> Iterator[Tensor]:
        """Yield the losses of as many batches as a step has."""
        count = self._state.settings.accumulation
        for _ in range(count):
            loss = probe()
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
                raise WatchError(
                    "probe() must return the mean loss of a batch of other examples, a scalar to "
                    f"call backward() on, not {loss!r:.100}"
                )
            yield loss.reshape(()) / count

    def _set_rates(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Put the decisions' learning rates in the place of the loop's, for one step."""
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not self._looked and closure is None:  # frameworks call before_update() in the closure
            raise WatchError(
                "run.step(loss) takes the optimizer's step; remove optimizer.step() from the loop"
            )
        self._step_rates.put(optimizer, self._factor())

    def _after_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Look at the update that the optimizer has made.

        A fused optimizer leaves a step out by itself where the loss scaler tells it to.
        """
        self._step_rates.take_back(optimizer)  # the loop's own schedule goes on undisturbed
        if bool(getattr(optimizer, "found_inf", None)):
            self._forget_skipped()
        if self._looked and self._watch is not None:
            self._watch.updated()
            self._steps += 1
            self._looked = False

    @property
    def _optimized(self) -> list[Tensor]:
        return [] if self._optimizer is None else optimized_by(self._optimizer)

    def _check_model(self) -> None:
        """Refuse to go on with another model than the one that the run has recorded."""
        if self._model is None or self._optimizer is None:
            return
        check_trainable(self._model, self._optimizer)
        if digest(shapes_of(self._model)) != self._state.spec.sha256:
            raise WatchError(
                "the model has other parameters than when watch() began; watch it as another run"
            )

    def _check_gradients(self, norm: float | None) -> None:
        """Refuse processes that train apart from each other."""
        norms = self._state.processes.gather_json(norm)
        known = [each for each in norms if each is not None and math.isfinite(each)]
        if known and max(known) - min(known) > _ALIKE * max(known):
            raise WatchError(
                "the processes have different gradients; wrap the model in DistributedDataParallel"
            )

    def _forget_skipped(self) -> None:
        if self._looked and self._watch is not None:
            self._watch.skipped()
            self._looked = False

    def validate(
        self, *, loss: float, accuracy: float | None = None, **metrics: float
    ) -> list[str]:
        """End the epoch: record it, evaluate the rules, and carry decisions out.

        loss, accuracy: of the validation set, as the loop computes them; accuracy from 0 to 1.
        metrics: other numbers that are worth recording; no rule reads them.

        Returns what was decided and done, or advised and not done, one line each; it has been said
        already.
        """
        if not self._open:
            raise WatchError("validate() ends an epoch; loop over run.epochs()")
        if not self._steps and (self._watch is None or not self._batches):
            raise WatchError("the epoch has no step; call run.step(loss) after loss.backward()")
        self._check_model()
        self._forget_skipped()
        validation = {"loss": _number("loss", loss)}
        if accuracy is not None:
            validation["accuracy"] = _number("accuracy", accuracy)
            if validation["accuracy"] < 0 or validation["accuracy"] > 1:
                raise WatchError(f"accuracy is from 0 to 1, not {accuracy!r:.100}")
        told = {name: _number(name, value) for name, value in metrics.items()}
        measured, losses = self._measured()
        processes = self._state.processes
        reported = {
            "train": {"loss": losses},
            "validation": processes.mean(validation),
            "metrics": processes.mean(told),
            "lr": self._step_rates.last,
            "seconds": time.monotonic() - self._began,
        }
        measured, reported = processes.of_first([measured, reported])
        self._open, self._watch, self._last_steps = False, None, self._steps or None
        self._session.record_epoch(measured, reported)
        lines = self._answers()
        for line in lines:
            self._say(line)
        return lines

    def _answers(self) -> list[str]:
        """Return what is advised, or what was decided and done, one line each."""
        run = self._session.run
        if isinstance(self._decider, Adviser):
            return self._decider.advise(run, self._state, rate=self._step_rates.own)
        if (step := run.step()) is not None:
            tried, loss = self.lr, run.history[-1].val_loss
            self._state.go_on(step, epoch=run.epoch, best=run.best_trial() == run.epoch)
            then = f"from the end of epoch {step.epoch}" if run.trying(step.epoch) else "next"
            return [f"learning rate {tried:g} was tried: loss {loss:.4g}; {step.lr:g} {then}"]
        if GO_BACK in self._state.spec.offers and not run.damage(run.epoch):
            self._state.keep(run.epoch)
        before = len(run.decisions)
        overridden = self._step_rates.told(epoch=run.epoch, steps=self._steps)
        self._state.rate_overridden = overridden
        answer_rules(self._session, self._state, self._decider)
        return [
            *([] if overridden is None else [overridden]),
            *(
                f"{past.decision.direction} for {', '.join(past.decision.cites)}: "
                + self._session.outcomes.get(past.number, past.decision.justification)
                for past in run.decisions[before:]
            ),
        ]

    def hold(self, held: ExitStack) -> "WatchedRun":
        """Keep open what watch() has opened, which calls it, until the run or the process ends."""
        self._held, self._process = held, os.getpid()
        self._failed_before = getattr(sys, "last_value", None)
        atexit.register(self._leave)
        return self

    def __enter__(self) -> "WatchedRun":
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        self.close(error)

    def _leave(self) -> None:
        """Close a run that the process has left open: broken off, by the error that ended it."""
        if os.getpid() == self._process:
            failed = getattr(sys, "last_value", None)
            open_still = SystemExit("the process ended before run.close() was called")
            self.close(open_still if failed is self._failed_before else failed)

    def close(self, error: BaseException | None = None) -> None:
        """End the run, as failed or interrupted where `error` is the reason; twice is once."""
        held, self._held = self._held, ExitStack()
        atexit.unregister(self._leave)
        try:
            self._end(error)
        finally:
            if error is None:
                held.close()
            else:
                held.__exit__(type(error), error, error.__traceback__)

    def _end(self, error: BaseException | None) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._watch is not None:
            self._watch.close()
        self._open, epoch = False, self._session.run.epoch + 1 if self._open else None
        if error is not None:
            self._session.abort(error)
        elif self._session.run.end_reason is None:
            self._session.record(
                self._session.run.end,
                "stopped" if self.stopped else "completed",
                detail="" if epoch is None else f"the loop left epoch {epoch} unfinished",
                deliverables=self._session.run.files,
            )

    def _factor(self) -> float:
        """Return what decisions multiply the loop's own learning rate by, in this step."""
        config, settings = self._state.config, self._state.settings
        if not config.lr:  # then no decision has changed it: see rate_remedies()
            return 1.0
        steps = self._last_steps or self._steps + 1
        fraction = min(1.0, (self._steps + 1) / steps)
        epoch = self._session.run.epoch + 1
        return learning_rate(settings, epoch=epoch, fraction=fraction) / config.lr

    def _measured(self) -> tuple[dict[str, Any], float]:
        """Return the measured part of the epoch, and the mean of the losses that the loop gave."""
        settings = self._state.settings.to_dict()
        lacks = {"loss": None, "accuracy": None, "examples": None}
        if self._watch is None:
            own = float(torch.stack(self._losses).double().mean())
            loss = self._state.processes.mean({"loss": own})["loss"]
            gradients = dict.fromkeys(
                (
                    "total_norm_mean",
                    "signal_to_noise",
                    "signal_to_noise_low",
                    "signal_to_noise_high",
                    "noise_scale",
                    "norm_noise_scale",
                    "spread",
                )
            )
            found: dict[str, Any] = {
                "gradients": {**gradients, "finite": True, "probes": [], "spread_pairs": 0},
                "layers": [],
                "activations": [],
                "train": {**lacks, "steps": self._steps, "skipped": 0},
            }
        else:
            self._watch.close()
            if self._state.processes.size > 1:
                self._watch.join(self._state.processes)
            found = self._watch.measured()
            self._check_gradients(found["gradients"]["total_norm_mean"])
            loss = float(found["train"]["loss"])
            found["train"] = {**lacks, "steps": self._steps, "skipped": self._watch.skips}
        if (rates := self._step_rates.measured()) is not None:
            found["rates"] = rates
        return {**found, "validation": lacks, "settings": settings}, loss


def _scalar(loss: Any) -> Tensor:
    try:
        told = torch.as_tensor(loss).detach()
    except (TypeError, ValueError, RuntimeError):
        raise WatchError(f"step() takes a scalar loss, not {loss!r:.100}") from None
    if told.numel() != 1 or told.is_complex():
        raise WatchError(f"step() takes a scalar loss, not one of shape {tuple(told.shape)}")
    return told.reshape(())


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise WatchError(f"{name} must be a number, not {value!r:.100}") from None
