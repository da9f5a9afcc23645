"""What a decision leads to: settings, changes and model, or a refusal.

The monitor carries out what is derived here, and the judge derives it again from what was recorded.
What depends on trained weights, which may not be finite, the caller checks.

Trust: the decision was parsed.  I/O: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aggregates.decisions import Decision, Settings
from aggregates.errors import RemedyRefused, SpecError
from aggregates.playbook import FRESH, GO_BACK, RESTORING, TRY_RATES, rises
from aggregates.spec import Spec, WatchedModel, apply_edit

Changes = list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """Everything that an applied remedy records."""

    changes: Changes
    settings: Settings
    spec: Spec


def derive_outcome(
    decision: Decision,
    *,
    settings: Settings,
    spec: Spec,
    epoch: int,
    max_batch_size: int,
    train_examples: int,  # 0: nobody knows
) -> Outcome:
    """Return what carrying out `decision` after `epoch` leads to.

    Raises RemedyRefused saying why it cannot be carried out.
    """
    if decision.edit is not None:
        try:
            edited = apply_edit(spec, decision.edit)
        except SpecError as error:
            raise RemedyRefused(str(error)) from error
        return Outcome(_difference(_flat(spec), _flat(edited)), settings, edited)
    if isinstance(spec, WatchedModel) and decision.direction not in spec.offers:
        raise RemedyRefused(f"{decision.direction} cannot be carried out in this watched loop")
    resizes = decision.direction == GO_BACK and "batch_size" in decision.params
    if isinstance(spec, WatchedModel) and resizes and "decrease_batch_size" not in spec.offers:
        raise RemedyRefused("the batch size cannot be changed in this watched loop")
    after = _settings_after(settings, decision, since=epoch + 1)
    if after.batch_size > max_batch_size:
        raise RemedyRefused(
            f"batches of {after.batch_size} do not fit into memory, the limit is "
            f"{max_batch_size}: accumulate gradients"
        )
    effective = after.batch_size * after.accumulation
    if train_examples and effective > train_examples:
        raise RemedyRefused(
            f"{effective} examples a step are more than the {train_examples} for training"
        )
    changes = _difference(settings.to_dict(), after.to_dict())
    if decision.back not in (None, epoch):
        changes.append(_change("epoch", epoch, decision.back))
    if decision.direction == TRY_RATES:
        changes.append(_change("tried rates", None, list(decision.rates)))
    if decision.direction == "stop":
        changes = [_change("training", "running", "stopped")]
    if decision.params.get("reinitialise", False):
        changes.append(_change("weights", "trained", "initialised"))
    return Outcome(changes, after, spec)


def in_words(changes: Changes) -> str:
    """Return what a remedy changed, for somebody whose training it is."""
    return ", ".join(_said(each["what"], each["from"], each["to"]) for each in changes)


def _said(what: str, old: Any, new: Any) -> str:
    match what:
        case "lr":
            return f"learning rate {old:g} -> {new:g}"
        case "clip_norm":
            return f"gradients clipped at norm {new:g}"
        case "schedule":
            return "schedule " + " ".join(str(each).replace("_", "-") for each in new.values())
        case "epoch":
            return "fresh weights" if new == FRESH else f"back to the state after epoch {new}"
        case "training":
            return "the training stops"
        case "tried rates":
            rates = ", ".join(f"{rate:g}" for rate in new)
            return f"learning rates {rates} are tried, an epoch each"
        case "weights":
            return "starting weights put back and the optimizer's memory emptied"
    return f"{what.replace('_', ' ')} {old} -> {new}"


def _settings_after(old: Settings, decision: Decision, *, since: int) -> Settings:
    """Return the settings that the decision asks for, a schedule starting at epoch `since`."""
    direction, params = decision.direction, decision.params
    match direction:
        case "decrease_lr" | "increase_lr" | "go_back" | "try_rates":
            lr = decision.rates[0] if decision.rates else float(params["lr"])
            if direction not in RESTORING:
                _verify_direction(direction, old.lr, lr)
            clip_norm = params.get("clip_norm", old.clip_norm)
            return replace(
                old,
                lr=lr,
                clip_norm=None if clip_norm is None else float(clip_norm),
                batch_size=params.get("batch_size", old.batch_size),
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
            _verify_direction(direction, old.batch_size, params["batch_size"])
            return replace(old, batch_size=params["batch_size"])
        case "accumulate_gradients":
            if params["accumulation"] == old.accumulation:
                raise RemedyRefused(f"gradients of {old.accumulation} batches are summed already")
            return replace(old, accumulation=params["accumulation"])
        case "stop":
            return old
    raise RemedyRefused(f"{direction} is nothing that can be carried out")


def _verify_direction(direction: str, old: float, new: float) -> None:
    if new == old or (new > old) != rises(direction, None):
        raise RemedyRefused(f"{direction} from {old:g} cannot lead to {new:g}")


def _flat(spec: Spec) -> dict[str, Any]:
    """Return a specification by dotted names, so that a change names its place."""
    plain = spec.to_dict()
    if isinstance(spec, WatchedModel):
        activations = {f"{each.name}.activation": each.kind for each in spec.activations}
        return {**{key: plain[key] for key in ("model", "parameters", "sha256")}, **activations}
    blocks = plain.pop("blocks")
    parts = {
        f"blocks.{number}.{key}": value
        for number, block in enumerate(blocks)
        for key, value in block.items()
    }
    return {**plain, "blocks": len(blocks), **parts}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    return [
        _change(key, before.get(key), value)
        for key, value in after.items()
        if before.get(key) != value
    ]


def _change(what: str, old: Any, new: Any) -> dict[str, Any]:
    return {"what": what, "from": old, "to": new}
