"""The measured part of an epoch, and the numbers that the rules read from it.

Source: docs/reference/diagnostics.md.  I/O: none.
Units: norms in parameter units, shares from 0 to 1, losses in nats.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan
from statistics import median, median_high, median_low
from typing import Any

from aggregates.errors import MeasurementError
from aggregates.noise import NoiseProbes
from aggregates.sums import added

_LOSSES = ("loss", "accuracy")
# For a task's run, whose loop reports nothing to the rules, and whose accuracy may be missing.
UNSAID: Mapping[str, Any] = {"train": {}, "validation": {}}
_NUMBERS = frozenset({float, type(None)})


@dataclass(frozen=True)
class EpochSignals:
    """What the rules may look at; None is a value that could not be measured in this epoch."""

    epoch: int  # from 0
    train_loss: float
    train_accuracy: float | None
    val_loss: float
    gradients_finite: bool  # true where nobody looked
    max_layer_grad_norm: float | None  # largest of the weight tensors of rank two and more
    min_layer_grad_norm: float | None  # smallest of them
    update_ratio: float | None  # per step, median over weight tensors
    epoch_update_ratio: float | None  # over the whole epoch, median over weight tensors
    signal_to_noise: float | None  # batch size over the gradient noise scale
    norm_noise_scale: float | None  # mean squared over variance of the total norm between steps
    dead_share: float | None  # share of units whose activation has no slope
    sparsity: float | None  # mean share of activations that are exactly zero
    signal_to_noise_low: float | None = None  # ends of the 90% interval
    signal_to_noise_high: float | None = None
    noise: NoiseProbes | None = None  # what several epochs can be pooled from: see pool_noise()
    # What the accuracy is above guessing, as a share of what is possible: 0 is guessing, 1 always
    # right. Of training; of validation, where only that is known.
    skill: float | None = None
    # The lower and the upper middle of the tensors' update ratios; equal if their number is odd.
    middle_update_ratios: tuple[float, float] | None = None

    @property
    def grad_norm_ratio(self) -> float | None:
        """The smallest over the largest layer norm: free of the loss's scale; 0 where both are."""
        small, large = self.min_layer_grad_norm, self.max_layer_grad_norm
        if small is None or large is None or not isfinite(large):
            return None
        return small / large if large else 0.0

    @property
    def lost(self) -> bool:
        """Whether gradients or weights were measured that are not finite.

        Losses say nothing of it here: those of a watched loop are only reported.
        """
        change = self.epoch_update_ratio
        return not self.gradients_finite or (change is not None and isnan(change))


def signals_of(
    epoch: int,
    measured: Mapping[str, Any],
    reported: Mapping[str, Any] | None = None,
    *,
    classes: int | None = None,
) -> EpochSignals:
    """Read the rules' signals from an epoch's measured part.

    A loss or an accuracy that is None there was not measured: a watched loop tells it in the
    `reported` part, which has train and validation likewise. Whoever evaluates the rules of a run
    that measures its losses passes no `reported`, and nothing that a loop says reaches a rule.
    `classes` are those of a classification; without them nobody knows what guessing is worth.

    `measured` holds (see docs/reference/events.md): train {loss, accuracy, examples, steps},
    validation {loss, accuracy, examples}, gradients {finite, signal_to_noise, norm_noise_scale
    and, from newer runs, signal_to_noise_low, signal_to_noise_high, probes, spread, spread_pairs},
    layers [{name, rank, grad_norm, update_ratio, epoch_update_ratio}],
    activations [{name, units, dead_units, sparsity, p50, p99}], settings {lr, batch_size,
    accumulation, clip_norm}.

    Raises MeasurementError naming the field that is missing or of the wrong kind.
    """
    layers, activations = _get(measured, "layers", list), _get(measured, "activations", list)
    ranks = _each(layers, "rank", int)
    weights = [layer for layer, rank in zip(layers, ranks, strict=True) if rank >= 2]
    units = sum(_each(activations, "units", int))
    dead = sum(_each(activations, "dead_units", int))
    gradients = _get(measured, "gradients", dict)
    train, validation = _told(measured, reported, "train"), _told(measured, reported, "validation")
    norms = _numbers(weights, "grad_norm")
    accuracy = _get(train, "accuracy", float) if reported is None else train["accuracy"]
    ratios = _numbers(weights, "update_ratio")
    return EpochSignals(
        epoch=epoch,
        train_loss=_get(train, "loss", float),
        train_accuracy=accuracy,
        val_loss=_get(validation, "loss", float),
        gradients_finite=_get(gradients, "finite", bool),
        max_layer_grad_norm=_reduce(max, norms),
        min_layer_grad_norm=_reduce(min, norms),
        update_ratio=_reduce(median, ratios),
        epoch_update_ratio=_reduce(median, _numbers(weights, "epoch_update_ratio")),
        signal_to_noise=_optional(gradients, "signal_to_noise"),
        norm_noise_scale=_optional(gradients, "norm_noise_scale"),
        dead_share=dead / units if units else None,
        sparsity=_reduce(_mean, _numbers(activations, "sparsity")),
        signal_to_noise_low=_newer(gradients, "signal_to_noise_low"),
        signal_to_noise_high=_newer(gradients, "signal_to_noise_high"),
        noise=probes_of(gradients),
        skill=_skill(validation.get("accuracy") if accuracy is None else accuracy, classes),
        middle_update_ratios=(median_low(ratios), median_high(ratios)) if ratios else None,
    )


def _skill(accuracy: float | None, classes: int | None) -> float | None:
    if accuracy is None or classes is None:
        return None
    return (accuracy * classes - 1) / (classes - 1)


def reported_for_rules(
    measured: Mapping[str, Any], reported: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return what signals_of() takes as `reported`, by what the measured part lacks."""
    if losses_reported(measured):
        return reported
    train = measured.get("train") if isinstance(measured, Mapping) else None
    silent = isinstance(train, Mapping) and train.get("accuracy", nan) is None
    return UNSAID if silent else None


def losses_reported(measured: Mapping[str, Any]) -> bool:
    """Return whether a measured part leaves the losses to what a watched loop reports."""
    train = measured.get("train") if isinstance(measured, Mapping) else None
    return isinstance(train, Mapping) and train.get("loss", nan) is None


def _told(
    measured: Mapping[str, Any], reported: Mapping[str, Any] | None, part: str
) -> Mapping[str, Any]:
    """Return loss and accuracy of a part: the measured ones, else those that the loop reported."""
    own: Mapping[str, Any] = _get(measured, part, dict)
    if reported is None:
        return own
    told: Mapping[str, Any] = _get(reported, part, dict)
    found = {key: told.get(key) if own.get(key) is None else own[key] for key in _LOSSES}
    if found["accuracy"] is not None:
        _get(found, "accuracy", float)
    return found


def probes_of(gradients: Mapping[str, Any]) -> NoiseProbes | None:
    """Return what the probes of an epoch's measured gradients found; None without probes."""
    if "probes" not in gradients:
        return None
    found = _get(gradients, "probes", list)
    for index, probe in enumerate(found):
        if type(probe) not in (list, tuple) or [type(number) for number in probe] != [float, float]:
            raise MeasurementError(
                f"measured gradients.probes[{index}] is {probe!r}, it must be two floats: the "
                "product of two gradients and their mean square; the monitor never records "
                "this: train the run again"
            )
    probes = tuple((product, square) for product, square in found)
    spread, pairs = _optional(gradients, "spread"), _get(gradients, "spread_pairs", int)
    return NoiseProbes(probes, spread, pairs, share_of(gradients))


def share_of(gradients: Mapping[str, Any]) -> float:
    """Return which share of a step's examples each gradient of a probe is of."""
    share: float = _get({"probe_share": 1.0, **gradients}, "probe_share", float)
    if not 0 < share <= 1:
        raise MeasurementError(
            f"measured 'probe_share' must be above 0 and at most 1, not {share!r}"
        )
    return share


def _newer(value: Mapping[str, Any], key: str) -> float | None:
    """Return _optional() of a key that older measured parts do not have."""
    return _optional(value, key) if key in value else None


def _get(value: Mapping[str, Any], key: str, kind: type) -> Any:
    if (type(value) is not dict and not isinstance(value, Mapping)) or key not in value:
        raise MeasurementError(f"the measured part has no {key!r}")
    found = value[key]
    if type(found) is kind:
        return found
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise MeasurementError(f"measured {key!r} must be a {kind.__name__}, not {found!r}")
    return found


def _optional(value: Mapping[str, Any], key: str) -> float | None:
    if key in value and value[key] is None:
        return None
    found: float = _get(value, key, float)
    return found


def _each(layers: Sequence[Mapping[str, Any]], key: str, kind: type) -> list[Any]:
    """Return _get() of each, in a fraction of its time where nothing is odd."""
    found = _found(layers, key)
    plain = {kind}.issuperset(map(type, found))
    return found if plain and found else [_get(layer, key, kind) for layer in layers]


def _numbers(layers: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return _optional() of each that is a number, likewise."""
    found = _found(layers, key)
    if not found or not _NUMBERS.issuperset(map(type, found)):
        found = [_optional(layer, key) for layer in layers]
    return [number for number in found if number is not None]


def _found(layers: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    try:
        return [layer[key] for layer in layers]
    except (IndexError, KeyError, TypeError):  # _get() says what is wrong
        return []


def _reduce(how: Callable[[list[float]], float], numbers: list[float]) -> float | None:
    if not numbers:
        return None
    if any(map(isnan, numbers)):  # which has no order
        return nan
    return how(numbers)


def _mean(numbers: list[float]) -> float:
    return added(numbers) / len(numbers)
