"""Checks an epoch's measured part against the model, the settings and the data.

Shapes, counts and ranges are checked here; values that only training can give, by re-execution.

Source: docs/reference/audit.md, step 5.
Trust: measured parts are hostile.  I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from aggregates.decisions import Settings
from aggregates.noise import NoiseProbes, pool_noise
from aggregates.run import REPORTED
from aggregates.signals import share_of
from aggregates.spec import ModelSpec
from judge.compare import differences
from judge.errors import StepError
from monitor.diagnostics import HALVES_EVERY, PROBE_EVERY
from monitor.model import ACTIVATION_TYPES, Block, ResidualCNN

_NOISE = frozenset(  # measured of the gradients since there are probes
    {"probes", "spread", "spread_pairs", "signal_to_noise_low", "signal_to_noise_high"}
)
_OF_A_LAYER = ("grad_norm", "update_ratio", "epoch_update_ratio")
_AGAIN = "; the monitor never records this: train the run again"


def verify_measured(
    measured: Mapping[str, Any],
    *,
    spec: ModelSpec,
    settings: Settings,
    sizes: Mapping[str, int],
) -> None:
    """Raise StepError unless the part can come from an epoch of this model on this data.

    What is missing or of the wrong type raises KeyError, TypeError or AttributeError.
    """
    parameters, units = shape_of(spec)
    train, validation = measured["train"], measured["validation"]
    step = settings.batch_size * settings.accumulation
    steps = sizes["train"] // step
    expected = {
        "layers": parameters,
        "activations": units,
        "train": {"examples": steps * step, "steps": steps},
        "validation": {"examples": sizes["validation"]},
        "finite": all(math.isfinite(layer["grad_norm"]) for layer in measured["layers"]),
    }
    found = {
        "layers": [[layer["name"], layer["rank"]] for layer in measured["layers"]],
        "activations": [[layer["name"], layer["units"]] for layer in measured["activations"]],
        "train": {key: train[key] for key in ("examples", "steps")},
        "validation": {"examples": validation["examples"]},
        "finite": measured["gradients"]["finite"],
    }
    if wrong := next(differences(found, expected), None):
        raise StepError(
            f"measured {wrong.place} is {wrong.recorded!r}, expected {wrong.found!r} for this "
            "model, these settings and this data"
        )
    for part in (train, validation):
        _check_range("accuracy", part["accuracy"], 1.0)
        _check_counted("accuracy", part["accuracy"], part["examples"])
        _check_range("loss", part["loss"], math.inf, nan=True)
    _check_layers(measured["layers"], missing=("update_ratio", "epoch_update_ratio"))
    _check_noise(measured["gradients"], steps)
    _check_norm_noise(measured["gradients"]["norm_noise_scale"], steps)
    _check_activations(measured["activations"])


def verify_watched(measured: Mapping[str, Any], reported: Mapping[str, Any], *, level: str) -> None:
    """Raise StepError unless the parts can come from an epoch of a watched loop.

    Losses are the loop's to report. Below the level `measured` nobody looked at the model either.
    What is missing or of the wrong type raises KeyError, TypeError or AttributeError.
    """
    for part in ("train", "validation"):
        for name, limit in (("loss", math.inf), ("accuracy", 1.0)):
            if measured[part][name] is not None:
                raise StepError(f"measured {part}.{name} is recorded, but the loop reports it")
            value = reported[part].get(name)
            if value is None:
                continue
            if type(value) is not float:
                raise StepError(f"reported {part}.{name} is {value!r}, it must be a float")
            if name == "accuracy" and not (math.isnan(value) or 0 <= value <= limit):
                raise StepError(f"reported {part}.{name} is {value!r}, it must be from 0 to 1")
    if level == REPORTED and (measured["layers"] or measured["activations"]):
        raise StepError("layers are recorded, but no model was watched")
    if level != REPORTED and not measured["layers"]:
        raise StepError("no layers are recorded, but a model was watched")
    _check_steps(measured["train"])
    if not 0 <= overridden_steps(measured) <= measured["train"]["steps"]:
        raise StepError("measured rates.overridden must be from 0 to the number of steps")
    _check_seen(measured, watched=True)


def overridden_steps(measured: Mapping[str, Any]) -> int:
    """Return in how many steps the loop had another learning rate than decisions asked for.

    Measurements of earlier versions, and of trainings that are not watched, do not say.
    """
    count = measured["rates"]["overridden"] if "rates" in measured else 0
    if type(count) is not int:
        raise StepError(f"measured rates.overridden is {count!r}, it must be a whole number")
    return count


def verify_task_measured(
    measured: Mapping[str, Any],
    *,
    settings: Settings,
    sizes: Mapping[str, int],
) -> None:
    """Raise StepError unless the part can come from an epoch of a task on this data.

    What is missing or of the wrong type raises KeyError, TypeError or AttributeError.
    """
    step = settings.batch_size * settings.accumulation
    steps = sizes["train"] // step
    train, validation = measured["train"], measured["validation"]
    for name, found, expected in (
        ("train.steps", train["steps"], steps - train.get("skipped", 0)),
        ("train.examples", train["examples"], steps * step),
        ("validation.examples", validation["examples"], sizes["validation"]),
        ("validation.accuracy", validation["accuracy"], validation["metrics"].get("accuracy")),
    ):
        same = found == expected or (found != found and expected != expected)  # noqa: PLR0124
        if type(found) is not type(expected) or not same:
            raise StepError(
                f"measured {name} is {found!r}, expected {expected!r} for this data and these "
                "settings"
            )
    for name, value in (
        ("train.loss", train["loss"]),
        ("validation.loss", validation["loss"]),
        *validation["metrics"].items(),
    ):
        if type(value) is not float:
            raise StepError(f"measured {name} is {value!r}, it must be a float")
    _check_seen(measured, watched=False)


def _check_seen(measured: Mapping[str, Any], *, watched: bool) -> None:
    """Check what hooks have seen of a model that somebody else built."""
    layers, gradients, train = measured["layers"], measured["gradients"], measured["train"]
    _check_layers(layers, missing=_OF_A_LAYER)
    skipped = _check_steps(train)
    norms = [layer["grad_norm"] for layer in layers if layer["grad_norm"] is not None]
    seen = train["steps"] > 0 or not skipped
    if gradients["finite"] != (seen and all(map(math.isfinite, norms))):
        raise StepError(f"measured gradients.finite is {gradients['finite']!r}, the norms differ")
    parts = measured["settings"]["accumulation"] if watched else None
    _check_noise(gradients, train["steps"], parts=parts)
    _check_activations(measured["activations"])


def _check_layers(layers: Sequence[Mapping[str, Any]], *, missing: Sequence[str]) -> None:
    """Check what is measured of parameters; what is named `missing` may be None."""
    for layer in layers:
        for name in _OF_A_LAYER:
            if layer[name] is not None or name not in missing:
                _check_range(f"{layer['name']} {name}", layer[name], math.inf, nan=True)


def _check_activations(activations: Sequence[Mapping[str, Any]]) -> None:
    for layer in activations:
        _check_range(f"{layer['name']} sparsity", layer["sparsity"], 1.0)
        dead = layer["dead_units"]
        if type(dead) is not int or not 0 <= dead <= layer["units"]:
            raise StepError(f"{layer['name']} has {dead!r} dead units of {layer['units']}")


def _check_steps(train: Mapping[str, Any]) -> int:
    """Return how many steps were skipped, which only a loss scaler does; check all counts."""
    skipped = train.get("skipped", 0)
    for name, count in (("steps", train["steps"]), ("skipped", skipped)):
        if type(count) is not int or count < 0:
            raise StepError(f"measured train.{name} is {count!r}, it must be a whole number from 0")
    return int(skipped)


def _check_noise(gradients: Mapping[str, Any], steps: int, *, parts: int | None = None) -> None:
    """Check the probes and what follows from them; runs from before there were probes have none.

    `parts` are the batches of a step of a watched loop, whose halves may be compared; it may have
    fewer probes.
    """
    if not _NOISE & set(gradients):
        return
    if missing := sorted(_NOISE - set(gradients)):
        raise StepError(
            f"measured gradients.{missing[0]} is missing although other values of noise probes "
            f"are recorded{_AGAIN}"
        )
    probes, pairs, spread = gradients["probes"], gradients["spread_pairs"], gradients["spread"]
    halves = parts is not None and "probe_share" in gradients
    count = -(-steps // (HALVES_EVERY if halves else PROBE_EVERY))
    share = share_of(gradients)
    if share != (parts // 2 / parts if halves and parts else 1.0):
        raise StepError(f"measured gradients.probe_share is {share!r}, no half of a step{_AGAIN}")
    if type(probes) is not list:
        kind = type(probes).__name__
        raise StepError(f"measured gradients.probes is a {kind}, it must be a list{_AGAIN}")
    if len(probes) != count and (parts is None or len(probes) > count):
        raise StepError(
            f"measured gradients.probes has {len(probes)} probes, expected {count} for an epoch "
            f"of {steps} steps{_AGAIN}"
        )
    for index, probe in enumerate(probes):
        place = f"gradients.probes[{index}]"
        if type(probe) is not list or [type(number) for number in probe] != [float, float]:
            raise StepError(
                f"measured {place} is {probe!r}, it must be two floats: the product of two "
                f"gradients and their mean square{_AGAIN}"
            )
        product, square = probe
        _check_range(f"{place}[1]", square, math.inf, nan=True)
        if abs(product) > square * (1 + 1e-9):  # false for NaN
            raise StepError(
                f"measured {place} has the product {product!r}, it cannot be larger than the mean "
                f"square {square!r}{_AGAIN}"
            )
    if type(pairs) is not int or not 0 <= pairs < max(steps, 1):
        raise StepError(
            f"measured gradients.spread_pairs is {pairs!r}, it must be a whole number from 0 to "
            f"{max(steps, 1) - 1}: the epoch has {steps} steps{_AGAIN}"
        )
    if (spread is None) != (pairs == 0):
        raise StepError(
            f"measured gradients.spread is {spread!r} and gradients.spread_pairs is {pairs}: the "
            f"spread must be missing if there are 0 pairs, and only then{_AGAIN}"
        )
    if spread is not None:
        _check_range("gradients.spread", spread, 2.0)
    noise = pool_noise((NoiseProbes(tuple((p, s) for p, s in probes), spread, pairs, share),))
    expected = {
        "signal_to_noise": None if noise is None else noise.estimate,
        "signal_to_noise_low": None if noise is None else noise.low,
        "signal_to_noise_high": None if noise is None else noise.high,
    }
    for name, value in expected.items():
        if type(gradients[name]) is not type(value) or gradients[name] != value:
            raise StepError(
                f"measured gradients.{name} is {gradients[name]!r}, expected {value!r} from the "
                f"recorded probes{_AGAIN}"
            )


def _check_norm_noise(value: Any, steps: int) -> None:
    """Check the mean squared over the variance of the steps' norms, which are from 0.

    The variance is largest where all but one of n norms are 0: the quotient is then 1 / n.
    """
    if (value is None) != (steps < 2):
        raise StepError(
            f"measured gradients.norm_noise_scale is {value!r} in an epoch of {steps} steps: it "
            f"must be missing if there are fewer than 2, and only then{_AGAIN}"
        )
    if value is None:
        return
    _check_range("gradients.norm_noise_scale", value, math.inf, nan=True)
    if value < (1 - 1e-6) / steps:
        raise StepError(
            f"measured gradients.norm_noise_scale is {value!r}, {steps} norms give at least "
            f"{1 / steps:.4g}{_AGAIN}"
        )


def _check_counted(name: str, share: float, examples: int) -> None:
    """Raise StepError unless the share is a whole number of the examples."""
    if share != round(share * examples) / max(examples, 1):
        raise StepError(
            f"measured {name} is {share!r}, it must be a whole number of {examples} examples"
        )


def has_probes(measured: Mapping[str, Any]) -> bool:
    """Return whether the part has noise probes, as this version records them."""
    return set(measured["gradients"]) >= _NOISE


def _check_range(name: str, value: Any, high: float, *, nan: bool = False) -> None:
    if type(value) is not float or not (0.0 <= value <= high or (nan and math.isnan(value))):
        raise StepError(f"measured {name} is {value!r}, it must be a float from 0 to {high:g}")


@lru_cache(maxsize=64)
def shape_of(spec: ModelSpec) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return names and ranks of the parameters, and names and units of the activations."""
    with torch.device("meta"):  # shapes alone: nothing is allocated or drawn
        model = ResidualCNN(spec)
    parameters = [[name, parameter.dim()] for name, parameter in model.named_parameters()]
    channels = {"act": spec.channels}
    for name, module in model.named_modules():
        if isinstance(module, Block):
            channels[f"{name}.act1"] = module.conv1.in_channels
            channels[f"{name}.act2"] = module.conv2.in_channels
    units = [
        [name, channels[name]]
        for name, module in model.named_modules()
        if isinstance(module, ACTIVATION_TYPES)
    ]
    return parameters, units
