"""Your own training loop under watch: the Python API of Proctor.

I/O: appends to the home's ledger.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import torch
from torch import nn

from aggregates.annotation import Annotation
from aggregates.errors import InvariantError
from aggregates.noise import HALVES, NOTHING, PROBE
from aggregates.playbook import MAX_LR, MIN_LR, rate_remedies, restoring
from aggregates.rules import DOCUMENT, PROFILES
from aggregates.run import CARD, MEASURED, REPORTED, Run
from aggregates.spec import WatchedModel
from ledger.files import new_name
from monitor.answering import Adviser, Policy
from monitor.config import RunConfig, WatchConfig
from monitor.diagnostics import HALF
from monitor.environment import describe_environment, describe_gpu
from monitor.errors import WatchError
from monitor.processes import Processes
from monitor.session import Session
from monitor.shared_policy import Nowhere, SharedPolicy
from monitor.watched_model import (
    SetBatchSize,
    WatchedState,
    check_trainable,
    describe_model,
    is_compiled,
    unwrapped,
    waived_without,
)
from monitor.watching import Probe, WatchedRun, keep_quiet
from policies.playbook import PlaybookPolicy
from proctor.home import Home
from proctor.runs.cosigning import cosigned_meanwhile
from proctor.runs.policies import PolicyChoice, make_policy
from proctor.runs.resuming import Saved, find_resumed
from proctor.runs.training import Prepared, recording

OBSERVES = {"name": "none"}  # what a run records that names no policy


def watch(
    model: nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    *,
    name: str,
    batch_size: int,
    epochs: int | None = None,
    accumulation: int = 1,
    train_examples: int | None = None,
    classes: int | None = None,
    clip_norm: float | None = None,
    set_batch_size: SetBatchSize | None = None,
    max_batch_size: int | None = None,
    probe: Probe | None = None,
    seed: int | None = None,
    policy: str | Policy | None = None,
    policy_settings: Sequence[str] = (),
    profile: str | None = None,
    waived: Sequence[str] = (),
    tags: Sequence[str] = (),
    notes: str = "",
    own_config: Mapping[str, Any] | None = None,
    resume: Saved | None = None,
    home: str | os.PathLike[str] | None = None,
    witnesses: str | os.PathLike[str] | None = None,
    say: Callable[[str], object] | None = None,
) -> WatchedRun:
    """Watch a training loop of your own, and record it as a run of the home's ledger.

    Without `policy`, it observes and advises: nothing in the training is changed. A policy that is
    named decides, and its decisions are carried out. The first line that is said tells which.

    Use it in a `with` block, or call close() of the WatchedRun at the end. Hooks measure the
    gradients, updates and activations of `model` (evidence level `measured`). With `model` and
    `optimizer` None, the run is what the loop says (level `reported`).

    model: what is trained. Of a compiled model, activations are neither seen nor swapped.
    optimizer: what trains it. Only the parameters that it updates are measured.
    name: of the run, as tables show it.
    batch_size, accumulation: examples in a batch, batches in an optimizer step.
    epochs: how many are planned, if known.
    train_examples: how many an epoch has, if known.
    classes: of a classification by cross-entropy; leave it out for any other loss.
    clip_norm: gradients above this norm are scaled down to it. Give it here instead of clipping
    yourself, so that the gradients are measured before.
    set_batch_size: called with a new batch size when a decision changes it; the loop uses it from
    the next epoch on. Without it, or without train_examples, no decision can.
    max_batch_size: the most that set_batch_size can be called with; by default batch_size.
    probe: called in every 48th step, as often as a step has batches, for the mean loss of a batch
    of other examples, drawn at random. Its gradient beside the step's measures the gradient noise.
    The model's buffers and torch's generators are put back. Without a probe the halves of
    accumulated steps measure it; without either, R2 is waived.
    seed: the one that the loop has set, if any; it is recorded and not used.
    policy: a name as for `proctor run --policy`, or an object with `name`, `describe()` and
    `decide()`. By default nobody decides: the playbook's advice is said and not carried out.
    policy_settings: what `--set` takes, as in `["model=NAME"]`.
    profile, waived: of the rules, as in a configuration; by default `relative`, whose thresholds do
    not depend on the scale of the loss.
    tags, notes, own_config: what you want to find the run by (`proctor runs`): words, a text, and
    your own settings, as plain values. No rule reads them.
    resume: what run.state_dict() returned, which your checkpoint has kept: the loop goes on after
    that epoch, and the run repeats what was recorded up to there. Load model and optimizer before.
    A run's id or name goes on after its last recorded epoch, True after that of the newest run of
    this name; where it is None, or True and nothing was broken off, a run begins anew.
    home: by default $PROCTOR_HOME, else .proctor in the current folder.
    witnesses: a file that names witnesses, who cosign each new tree head meanwhile; the loop does
    not wait for them.
    say: called with each line about the run: who decides, what was decided and done, or advised. By
    default the lines go to standard error.

    The run ends with the block or with close(): as completed, as stopped by a decision, or, with an
    exception, as failed or interrupted; so does one that the process leaves open. Raises
    WatchError, ConfigurationError or ProctorError before anything is recorded if an argument is
    wrong.
    """
    if (model is None) != (optimizer is None):
        raise WatchError("give both model and optimizer, or None for both to report losses alone")
    _verify_policy(policy, policy_settings)
    profile = profile or WatchConfig.profile
    if model is not None and optimizer is not None:
        check_trainable(model, optimizer)
    place = Home(Path(home or os.environ.get("PROCTOR_HOME") or ".proctor"))
    compiled = model is not None and is_compiled(model)
    model = None if model is None else unwrapped(model)
    earlier = find_resumed(place, resume, name=name)
    lr = earlier.lr(_initial_lr(optimizer))
    rules = PROFILES.get(profile, DOCUMENT)  # the configuration refuses others
    able = describe_model(
        model,
        batches=set_batch_size is not None and train_examples is not None,
        classes=classes,
        compiled=compiled,
        lr=lr,
        restoring=restoring(rules, epochs=epochs),
    )
    spec = replace(able, offers=()) if policy is None else able
    processes = Processes.joined()
    noise = _noise_source(model, processes, accumulation=accumulation, probe=probe)
    waived = (*waived, *(("R2",) if noise == NOTHING else ()))
    config = WatchConfig(
        level=REPORTED if model is None else MEASURED,
        name=name,
        epochs=epochs,
        batch_size=batch_size * processes.size,
        max_batch_size=(max_batch_size or batch_size) * processes.size,
        train_examples=train_examples,
        accumulation=accumulation,
        lr=lr,
        clip_norm=None if clip_norm is None else float(clip_norm),
        optimizer="none" if optimizer is None else type(optimizer).__qualname__,
        seed=seed,
        profile=profile,
        waived=tuple(dict.fromkeys((*waived_without(spec, rules), *waived))),
        noise=noise,
    )
    state = WatchedState(
        config,
        model,
        optimizer,
        spec=spec,
        set_batch_size=set_batch_size,
        train_examples=train_examples,
        processes=processes,
    )
    with ExitStack() as stack:
        start = None
        if processes.first:
            said = {"tags": tags, "notes": notes, "config": own_config}
            start = _open(stack, place, policy, policy_settings, said)
            stack.enter_context(
                cosigned_meanwhile(place, None if witnesses is None else Path(witnesses), say=say)
            )
        known = processes.of_first(None if start is None else start.told(config))
        if known["config"] != config.hash:
            raise WatchError("this process calls watch() with other arguments than the first one")
        deciding: Policy | Adviser
        if policy is None:
            left = dict.fromkeys((*waived_without(able, rules), *waived))
            deciding = Adviser(PlaybookPolicy(), able, waived=tuple(left))
        else:
            deciding = _shared(None if start is None else start.policy, processes, known["policy"])
        run = Run.start(
            config=config.to_dict(),
            rules=rules.to_dict(),
            spec=spec.to_dict(),
            data={"dataset": name, "classes": [], "sizes": {"train": train_examples or 0}},
            environment={
                **describe_environment(RunConfig()),
                "numerics": "own",
                "threads": torch.get_num_threads(),
                "device": _device(model),
                **({"processes": processes.size} if processes.size > 1 else {}),
            },
            policy=known["policy"],
            checkpoint=None if start is None else start.checkpoint,
            run_id=UUID(known["run_id"]),
        )
        earlier.begin(run)
        tell = _tell if say is None else say
        watched = WatchedRun(
            Session(run, log=Nowhere() if start is None else start.log),
            state,
            deciding,
            model=model,
            optimizer=optimizer,
            compiled=compiled,
            noise=noise if probe is None else probe,
            say=tell if processes.first else keep_quiet,
            keep=partial(_keep, place, run.id) if processes.first else None,
        )
        if start is not None:
            start.begin()
            for line in (_who_decides(run, spec), *earlier.told, *_beyond_decisions(lr)):
                tell(line)
        try:
            earlier.go_on(watched)
        except BaseException as error:
            watched.close(error)
            raise
        return watched.hold(stack.pop_all())


def _keep(place: Home, run: UUID, path: Path) -> tuple[str, int]:
    """Copy a file into the run's folder; return its SHA-256 and its size."""
    kept = place.submission(run) / path.name
    if path.name == CARD:
        raise WatchError(f"{path} cannot be put on record: {CARD} is the model card's name")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = new_name(kept)
        shutil.copyfile(path, new)
        with new.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return sha256, new.replace(kept).stat().st_size
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WatchError(f"{path} cannot be put on record: {why}") from error


def _shared(own: Policy | None, processes: Processes, told: Mapping[str, Any]) -> Policy:
    """Return what decides in this process: the policy itself, or what another process hears."""
    if own is not None and processes.size == 1:
        return own
    return SharedPolicy(own, processes, told)


def _verify_policy(policy: object, settings: Sequence[str]) -> None:
    if policy is None and settings:
        raise WatchError("policy_settings are a policy's; name one with policy=")
    if not isinstance(policy, str | None) and not all(
        hasattr(policy, each) for each in ("name", "describe", "decide")
    ):
        raise WatchError("a policy is a name, or an object with name, describe() and decide()")


@dataclass(frozen=True)
class _Start:
    """What the process that records the run begins with."""

    log: Any
    run_id: UUID
    policy: Policy | None  # None: nobody decides
    checkpoint: str | None
    said: Annotation | None

    def begin(self) -> None:
        """Record what was said of the run, which has started."""
        if self.said is not None:
            self.log.save(self.said)

    def told(self, config: WatchConfig) -> dict[str, Any]:
        """Return what the other processes have to know."""
        policy = dict(OBSERVES)
        if self.policy is not None:
            policy = {"name": self.policy.name, **self.policy.describe()}
        return {"run_id": str(self.run_id), "config": config.hash, "policy": policy}


def _open(
    stack: ExitStack,
    place: Home,
    policy: str | Policy | None,
    settings: Sequence[str],
    said: Mapping[str, Any],
) -> _Start:
    """Open the ledger and the run's lock for as long as the stack is open, and make the policy."""
    choice = PolicyChoice.read(policy, settings) if isinstance(policy, str) else None
    run_id = uuid4()
    annotation = _annotation(run_id, **said) if any(said.values()) else None
    log = stack.enter_context(place.open_log())
    prepared = None
    if choice is not None:
        prepared = make_policy(choice, log, place.blobs, run_id)
    elif policy is not None:
        assert not isinstance(policy, str)
        prepared = Prepared(policy)
    label = stack.enter_context(recording(place, log, run_id, prepared))
    own = None if prepared is None else prepared.policy
    return _Start(log, run_id, own, label.checkpoint, annotation)


def _annotation(run_id: UUID, *, config: Mapping[str, Any] | None, **said: Any) -> Annotation:
    try:
        return Annotation.give(str(run_id), config=config or {}, **said)
    except (InvariantError, TypeError) as error:
        raise WatchError(f"tags, notes and own_config: {error}") from error


def _noise_source(
    model: nn.Module | None, processes: Processes, *, accumulation: int, probe: Probe | None
) -> str:
    """Return what measures the gradient noise; raises WatchError if a probe cannot."""
    if probe is not None and (model is None or processes.size > 1):
        raise WatchError("probe= needs a model that one process trains; leave it out")
    if probe is not None:
        return PROBE
    # Sums in half precision are too coarse for the difference of two halves.
    halves = model is not None and all(each.dtype not in HALF for each in model.parameters())
    return HALVES if halves and accumulation > 1 and processes.size == 1 else NOTHING


def _who_decides(run: Run, spec: WatchedModel) -> str:
    name = run.policy["name"]
    if not spec.offers:
        return (
            f"run {run.id} observes and advises; it names no policy, so nothing in your training "
            "is changed"
        )
    return (
        f"run {run.id}: the policy {name} decides, and its decisions change your training: "
        f"{', '.join(spec.offers)}"
    )


def _beyond_decisions(lr: float) -> Iterator[str]:
    """Yield what decisions cannot do about the loop's own learning rate, if anything."""
    if not lr:
        yield (
            "the learning rate is 0 where the training begins, and no decision can change it; if "
            "it rises from there, set `initial_lr` in the optimizer's parameter groups to its peak"
        )
    elif lr < MIN_LR or lr > MAX_LR:
        can = "can lower it, but not go back" if rate_remedies(lr, ()) else "cannot change it"
        yield (
            f"the learning rate {lr:g} is outside of what a decision can set ({MIN_LR:g} to "
            f"{MAX_LR:g}): decisions {can}"
        )


def _tell(line: str) -> None:
    print(f"proctor: {line}", file=sys.stderr, flush=True)


def _initial_lr(optimizer: torch.optim.Optimizer | None) -> float:
    """Return the learning rate that schedules start from: a warm-up has already set a lower one.

    It is that of the first parameter group whose rate is not 0; 0 if there is none. Without an
    optimizer there is nothing to multiply.
    """
    if optimizer is None:
        return 1.0
    rates = (float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups)
    return next(filter(None, rates), 0.0)


def _device(model: nn.Module | None) -> str:
    """Return where the parameters are, and which GPUs these are."""
    found = () if model is None else dict.fromkeys(each.device for each in model.parameters())
    named = (f"{e} ({describe_gpu(e)})" if e.type == "cuda" else str(e) for e in found)
    return " and ".join(named) or "none"
