"""Remedies: a decision carried out on the live state, or refused with that state untouched.

Every remedy checks first and changes afterwards; it returns what it changed, as plain values.
I/O: none.  Units: as in aggregates.decisions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from aggregates.decisions import Decision, Settings
from aggregates.errors import SpecError
from aggregates.spec import ModelSpec
from monitor.errors import RemedyRefused
from monitor.model import ResidualCNN, edit_model
from monitor.state import LiveState

Changes = list[dict[str, Any]]


def execute_decision(state: LiveState, decision: Decision, *, epoch: int) -> Changes:
    """Carry out `decision` after `epoch`; raises RemedyRefused saying why it cannot be."""
    reinitialise = bool(decision.params.get("reinitialise", False))
    if decision.direction != "stop" and not reinitialise and not _finite(state.model):
        raise RemedyRefused(
            "the weights are not finite, and only a reinitialisation brings them back"
        )
    if decision.edit is not None:
        return _edit(state, decision, epoch)
    settings = settings_after(state, decision, since=epoch + 1)
    effective = settings.batch_size * settings.accumulation
    if effective > state.train_examples:
        raise RemedyRefused(
            f"{effective} examples a step are more than the {state.train_examples} for training"
        )
    changes = difference(state.settings.to_dict(), settings.to_dict())
    if decision.direction == "stop":
        changes = [change("training", "running", "stopped")]
    state.settings = settings
    if reinitialise:
        changes.append(_reinitialise(state, epoch))
    return changes


def settings_after(state: LiveState, decision: Decision, *, since: int) -> Settings:
    """Return the settings that the decision asks for, a schedule starting at epoch `since`."""
    old, params = state.settings, decision.params
    match decision.direction:
        case "decrease_lr" | "increase_lr":
            lr = float(params["lr"])
            if lr == old.lr or (lr < old.lr) != (decision.direction == "decrease_lr"):
                raise RemedyRefused(f"{decision.direction} from {old.lr:g} cannot lead to {lr:g}")
            clip_norm = params.get("clip_norm", old.clip_norm)
            return replace(
                old,
                lr=lr,
                clip_norm=None if clip_norm is None else float(clip_norm),
                schedule={"kind": "constant"},
            )
        case "warm_up_lr":
            schedule = {"kind": "warm_up", "epochs": params["epochs"], "since": since}
            return replace(old, lr=float(params["lr"]), schedule=schedule)
        case "cycle_lr":
            ends = {name: float(params[name]) for name in ("lr_min", "lr_max")}
            schedule = {"kind": "cycle", **ends, "epochs": params["epochs"], "since": since}
            return replace(old, lr=ends["lr_max"], schedule=schedule)
        case "increase_batch_size" | "decrease_batch_size":
            return replace(old, batch_size=_batch_size(state, decision))
        case "accumulate_gradients":
            if params["accumulation"] == old.accumulation:
                raise RemedyRefused(f"gradients of {old.accumulation} batches are summed already")
            return replace(old, accumulation=params["accumulation"])
        case "stop":
            return old
    raise RemedyRefused(f"{decision.direction} is nothing that can be carried out")


def _batch_size(state: LiveState, decision: Decision) -> int:
    old, limit = state.settings.batch_size, state.config.max_batch_size
    size: int = decision.params["batch_size"]
    if size == old or (size < old) != (decision.direction == "decrease_batch_size"):
        raise RemedyRefused(f"{decision.direction} from {old} cannot lead to {size}")
    if size > limit:
        raise RemedyRefused(
            f"batches of {size} do not fit into memory, the limit is {limit}: accumulate gradients"
        )
    return size


def _edit(state: LiveState, decision: Decision, epoch: int) -> Changes:
    assert decision.edit is not None, "the caller has looked"
    before, momentum = state.model.spec(), state.momentum()
    try:
        edit_model(state.model, decision.edit, seed=state.config.seed, salt=f"edit {epoch}")
    except SpecError as error:
        raise RemedyRefused(str(error)) from error
    state.renew_optimizer(momentum)
    return difference(flat_spec(before), flat_spec(state.model.spec()))


def _reinitialise(state: LiveState, epoch: int) -> dict[str, Any]:
    """Begin again with fresh weights, fresh BatchNorm statistics and no momentum."""
    salt = f"reinitialise {epoch}"
    state.model.adopt(ResidualCNN(state.model.spec(), seed=state.config.seed, salt=salt))
    state.renew_optimizer({})
    return change("weights", "trained", "initialised")


def _finite(model: ResidualCNN) -> bool:
    """Return whether training can go on; running variances may overflow, and it still can."""
    return all(bool(torch.isfinite(value).all()) for value in model.parameters())


def flat_spec(spec: ModelSpec) -> dict[str, Any]:
    """Return a specification by dotted names, so that a change names its place."""
    plain = spec.to_dict()
    blocks = plain.pop("blocks")
    parts = {
        f"blocks.{number}.{key}": value
        for number, block in enumerate(blocks)
        for key, value in block.items()
    }
    return {**plain, "blocks": len(blocks), **parts}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Return a change for each key whose value differs."""
    return [
        change(key, before.get(key), value)
        for key, value in after.items()
        if before.get(key) != value
    ]


def change(what: str, old: Any, new: Any) -> dict[str, Any]:
    """Return one change as run.remedy_applied holds it."""
    return {"what": what, "from": old, "to": new}
