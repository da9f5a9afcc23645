"""The training under watch: epochs, rules, decisions, remedies, weights, in that order.

A run is a function of its configuration, its data and its policy's decisions: every draw has a
generator of its own, algorithms are deterministic and the number of threads is part of the
configuration. See docs/explanation/determinism.md.

I/O: reads the dataset; appends to the log and the blob store that are passed in.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import torch
from torch.nn import functional

from aggregates.decisions import Settings, learning_rate
from aggregates.forks import Fork, order_seed
from aggregates.rules import PROFILES, RulesConfig
from aggregates.run import Run
from aggregates.spec import ModelSpec
from aggregates.trials import MAX_TRIALS
from ledger.blobs import Blobs
from ledger.progress import advanced
from monitor.answering import Policy, answer_rules
from monitor.computing import computing_as
from monitor.config import RunConfig, TaskConfig
from monitor.datasets import Reading, Split, Splits, load_splits
from monitor.diagnostics import EpochWatch
from monitor.environment import describe_environment
from monitor.errors import ConfigurationError, MachineError
from monitor.model import ResidualCNN
from monitor.probe import probe_model
from monitor.seeds import generator
from monitor.session import Log, Session, validate_model
from monitor.snapshots import Start, restore
from monitor.state import LiveState
from monitor.submission import write_submission
from monitor.weights import dump_weights

OnEpoch = Callable[[Run, dict[str, Any]], None]  # the run so far, the measured part
OnState = Callable[[int, LiveState], None]  # epoch, as it is before the epoch's decisions


def train(
    config: RunConfig,
    policy: Policy,
    *,
    log: Log,
    blobs: Blobs,
    spec: ModelSpec | None = None,
    rules: RulesConfig | None = None,
    parent_run: str | None = None,
    campaign: str | None = None,
    checkpoint: str | None = None,
    run_id: UUID | None = None,
    submission_dir: Path | None = None,
    splits: Splits | None = None,
    fork: Fork | None = None,
    start: Start | None = None,
    until_epoch: int | None = None,
    on_epoch: OnEpoch | None = None,
    on_state: OnState | None = None,
) -> Run:
    """Train one model under watch and return its closed run; up to `until_epoch`, if given.

    `spec` replaces the configuration's model, for a run that follows a restart; `rules` replaces
    the newest version of the configuration's profile, for an earlier run that is trained again;
    `splits` is what prepare() gave for the configuration, if it was asked before. With a `start`
    nothing is trained up to its state: what was recorded is recorded again, and the policy is asked
    about that epoch first. A `fork` is recorded, and says in which order the examples come. Raises
    MonitorError or, from the log, LedgerError; a run that was opened has then been closed as
    failed, and as interrupted if the reason was no error of ours (Ctrl-C).
    """
    with computing_as(config):
        splits = splits or prepare(config)
        spec = spec or config.spec(len(splits.classes))
        if spec.classes != len(splits.classes):
            raise ConfigurationError(
                f"the model has {spec.classes} classes, but the data has {len(splits.classes)}"
            )
        state = _start(config, spec, train_examples=len(splits.train))
        run = Run.start(
            config=config.to_dict(),
            rules=(rules or PROFILES[config.profile]).to_dict(),
            spec=spec.to_dict(),
            data={
                "dataset": config.dataset,
                "classes": list(splits.classes),
                "sizes": dict(splits.sizes),
                "fingerprints": dict(splits.fingerprints),
            },
            environment=describe_environment(config),
            policy={"name": policy.name, **policy.describe()},
            parent_run=parent_run,
            campaign=campaign,
            checkpoint=checkpoint,
            run_id=run_id,
        )
        if config.fault is not None:
            run.provoke()
        if fork is not None:
            run.fork(**fork.to_dict())
        session = Session(run, log=log, blobs=blobs)
        with session.closing():
            if start is not None:
                session.go_on(start.events)
                state = restore(config, run, start.state, train_examples=len(splits.train))
            reason = _train_epochs(
                session,
                state,
                splits,
                policy,
                last=config.epochs - 1 if until_epoch is None else until_epoch,
                fork=fork,
                on_epoch=on_epoch,
                on_state=on_state,
            )
            handed_in = write_submission(submission_dir, run, blobs, config)
            session.record(run.end, reason, deliverables=handed_in)
        return run


def _start(config: RunConfig, spec: ModelSpec, *, train_examples: int) -> LiveState:
    """Build the model, where the device can be used; raises MachineError."""
    try:
        return LiveState.start(config, spec, train_examples=train_examples)
    except (torch.OutOfMemoryError, torch.AcceleratorError) as error:
        words = str(error).partition("\n")[0]
        raise MachineError(
            f"the CUDA device cannot be used: {words}; `nvidia-smi` lists the processes that use it"
        ) from error


def prepare(config: RunConfig, reading: Reading | None = None) -> Splits:
    """Load the data that a configuration asks for, from where `reading` says.

    Raises what a training would raise before its first event: ConfigurationError or DatasetError.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            "device cuda is configured, but no CUDA device was found: use a machine that has one, "
            "or device = cpu"
        )
    splits = load_splits(config, reading or Reading())
    config.spec(len(splits.classes))
    verify_step(config, len(splits.train))
    return splits


def verify_step(config: RunConfig | TaskConfig, examples: int) -> None:
    """Raise ConfigurationError where a step has more examples than there are for training."""
    if config.batch_size * config.accumulation > examples:
        raise ConfigurationError(
            f"batch_size {config.batch_size} times accumulation {config.accumulation} is above the "
            f"{examples} training examples"
        )


def _train_epochs(
    session: Session,
    state: LiveState,
    splits: Splits,
    policy: Policy,
    *,
    last: int,
    fork: Fork | None,
    on_epoch: OnEpoch | None,
    on_state: OnState | None,
) -> str:
    """Train until the `last` epoch, a stop or a restart; return why it ended."""
    run, reason = session.run, "completed"
    best = min(
        (each.val_loss for each in run.history if each.val_loss < math.inf), default=math.inf
    )
    if run.history:
        state.keep(run.epoch, run.rules.kept_states)
        reason = answer_rules(session, state, policy)
    while reason == "completed" and (epoch := run.epoch + 1) <= last:
        order = epoch_order(
            len(splits.train), seed=state.config.seed, epoch=epoch, fork=order_seed(fork, epoch)
        )
        seen, reported = _train_epoch(state, splits.train, epoch, order=order, planned=last + 1)
        measured = {
            **seen,
            "validation": validate_model(state.model, splits.validation),
            "settings": state.settings.to_dict(),
        }
        session.record_epoch(measured, reported)
        if measured["validation"]["loss"] < best:  # false for NaN; before any remedy
            best = measured["validation"]["loss"]
            _save_weights(session, "best", state.model, splits)
        if state.config.keeps_state(epoch):
            session.save_snapshot(state)
        if on_state is not None:
            on_state(epoch, state)
        trials, step = run.trying(), run.step()
        # While rates are tried, what they began with stays, however old it is.
        state.keep(epoch, run.rules.kept_states + (MAX_TRIALS if trials else 0))
        if trials is not None and step is not None:
            state.go_on(step, asked=trials.asked)
        else:
            reason = answer_rules(session, state, policy)
        if on_epoch is not None:
            on_epoch(run, measured)
    _save_weights(session, "last", state.model, splits)
    return reason


def _save_weights(session: Session, kind: str, model: ResidualCNN, splits: Splits) -> None:
    probe = probe_model(model, splits.validation)
    session.save_weights(kind, dump_weights(model), spec=model.spec(), probe=probe)


def epoch_order(examples: int, *, seed: int, epoch: int, fork: int = 0) -> torch.Tensor:
    """Return the order (examples,) of an epoch; it depends on nothing that happened before.

    A `fork` other than 0 gives another one.
    """
    purpose = (seed, "order", epoch, *((fork,) if fork else ()))
    return torch.randperm(examples, generator=generator(*purpose))


def probe_batches(
    examples: int, settings: Settings, *, seed: int, epoch: int, step: int
) -> tuple[torch.Tensor, ...]:
    """Return which examples a step's probe has, batch by batch, apart from the epoch's order."""
    drawn = torch.randperm(examples, generator=generator(seed, "probe", epoch, step))
    return torch.split(drawn[: settings.batch_size * settings.accumulation], settings.batch_size)


def _train_epoch(
    state: LiveState,
    train: Split,
    epoch: int,
    *,
    order: torch.Tensor,  # (examples,)
    planned: int,  # epochs
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train one epoch; return what was measured, and what the loop says: no rule reads that."""
    started = time.monotonic()
    clipped: torch.Tensor | int = 0  # on the device, where nobody waits for it
    settings, device = state.settings, state.config.device
    factor = 1.0 if (fault := state.config.fault) is None else fault.loss_factor(epoch)
    size = settings.batch_size * settings.accumulation
    steps = len(train) // size  # what does not fill a step is left for another epoch's order
    state.model.train()
    watch = EpochWatch(state.model, effective_batch=size, steps=steps)
    try:
        for step in range(steps):
            rate = learning_rate(settings, epoch=epoch, fraction=(step + 1) / steps)
            state.optimizer.param_groups[0]["lr"] = rate
            state.optimizer.zero_grad(set_to_none=True)
            for indices in torch.split(order[step * size : (step + 1) * size], settings.batch_size):
                images, labels = train.batch(indices, device)
                loss = watch.loss(state.model(images), labels, factor=factor)
                torch.autograd.backward(loss / settings.accumulation)
            watch.gradients()
            if watch.probe_due:
                watch.probe(_probe_losses(state, train, epoch=epoch, step=step, factor=factor))
            if settings.clip_norm is not None:
                norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.clip_norm)
                clipped = clipped + (norm > settings.clip_norm)
            state.optimizer.step()
            watch.updated()
            advanced("training", epoch * steps + step + 1, planned * steps)
    finally:
        watch.close()
    reported = {
        "seconds": time.monotonic() - started,
        "clipped_steps": int(clipped),
        "last_lr": float(state.optimizer.param_groups[0]["lr"]),
    }
    return watch.measured(), reported


def _probe_losses(
    state: LiveState, train: Split, *, epoch: int, step: int, factor: float
) -> Iterator[torch.Tensor]:
    """Yield the losses of a probe's batches."""
    settings, seed = state.settings, state.config.seed
    for indices in probe_batches(len(train), settings, seed=seed, epoch=epoch, step=step):
        images, labels = train.batch(indices, state.config.device)
        loss = functional.cross_entropy(state.model(images), labels)
        yield loss * factor / settings.accumulation
