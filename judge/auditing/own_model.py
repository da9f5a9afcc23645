"""The judge's own model: built from the replayed specification, never by submitted code.

Steps 6, 7 and 10 compare with it, and the score is its score.

I/O: reads the dataset.  Shapes: images (B, 3, 32, 32), logits (B, classes).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aggregates.errors import WeightsError
from judge.auditing.limits import judges_reading
from judge.auditing.replayed import Replay, SavedWeights
from judge.auditing.report import capped
from judge.compare import differences
from judge.config import JudgeConfig
from judge.confinement.sandbox import Examination
from judge.errors import JudgeError, StepError
from monitor.config import RunConfig
from monitor.datasets import Split, Splits, load_splits, load_test, normalise
from monitor.errors import (
    DataLimitError,
    DatasetError,
    OverlapError,
    UnusableFileError,
)
from monitor.model import ResidualCNN
from monitor.probe import probe_model
from monitor.session import validate_model
from monitor.weights import load_weights

_BATCH = 256  # examples computed at once, so that memory stays small
_EPOCH_MEAN_SHARE = 0.3  # the document's tolerance, for comparison


OUTDATED = (
    "the run cannot be judged or retrained: it was made by another version of Proctor, which "
    "generates the shapes data set differently. verify, show, sql and replay still work on it"
)


def data_is_outdated(
    config: RunConfig,
    recorded: Mapping[str, Any],
    then: Mapping[str, Any],
    splits: Splits,
    here: Mapping[str, Any],
) -> bool:
    """Return whether a run's images were drawn by other code than this, which draws others."""
    return (
        config.dataset == "shapes"
        and recorded.get("fingerprints") != dict(splits.fingerprints)
        and then.get("code_sha256") != here.get("code_sha256")
    )


def build_model(saved: SavedWeights, weights: bytes) -> ResidualCNN:
    """Return the replayed model with the submitted weights; raises StepError if they do not fit."""
    model = ResidualCNN(saved.model_spec)
    try:
        load_weights(model, weights)
    except WeightsError as error:
        raise StepError(f"the weights do not fit the replayed model: {error}") from error
    return model.eval()


def verify_architecture(model: ResidualCNN, examination: Examination) -> None:
    """Raise StepError unless the submitted model has our parameters and modules (step 6)."""
    own = {
        "parameters": [[n, list(p.shape)] for n, p in model.named_parameters()],
        "modules": [[n, type(m).__name__] for n, m in model.named_modules()],
    }
    theirs = {
        "parameters": [[n, list(shape)] for n, shape in examination.parameters],
        "modules": [list(pair) for pair in examination.modules],
    }
    if found := list(differences(own, theirs)):
        raise StepError(
            f"the submitted model is not the one that the edits produce: {found[0].place} is "
            f"{found[0].found!r}, expected {found[0].recorded!r}",
            differences=capped([difference.to_dict() for difference in found]),
        )


def verify_logits(
    model: ResidualCNN, batch: Tensor, examination: Examination, *, tolerance: float
) -> float:
    """Return the largest deviation of the submitted code's logits, relative to the largest logit.

    Raises StepError unless it is within `tolerance`: the code is then the model (step 6).
    """
    with torch.no_grad():
        own = model(batch)
    theirs = examination.logits
    if theirs is None or theirs.shape != own.shape or theirs.dtype != own.dtype:
        raise StepError("the submitted code returns logits of the wrong shape")
    scale = float(own.abs().nan_to_num().max()) or 1.0
    apart = torch.where(own.isnan() & theirs.isnan(), 0.0, (own - theirs).abs())
    largest = float(apart.max()) / scale
    if not largest <= tolerance:
        raise StepError(
            f"the submitted code computes different logits: largest difference {largest:.3g} "
            "relative to the largest logit",
            deviation=largest,
            allowed=tolerance,
        )
    return largest


def load_data(config: RunConfig, judge: JudgeConfig) -> Splits:
    """Load what the run was trained and validated on.

    Raises JudgeError where it is not here or above the judge's limits, StepError where no run can
    have been made with it: splits that share images, or a folder with other things than files.
    """
    try:
        return load_splits(config, judges_reading(judge))
    except OverlapError as error:
        raise StepError(
            f"the data set is invalid: {error}",
            pairs=capped([" = ".join(pair) for pair in error.pairs]),
        ) from error
    except UnusableFileError as error:
        raise StepError(f"the data set cannot be what the run was trained on: {error}") from error
    except DataLimitError as error:
        raise JudgeError(
            f"the run is above the judge's limits: {error}; raise it with --limit"
        ) from error
    except DatasetError as error:
        raise JudgeError(f"the run cannot be judged without its data set: {error}") from error


def verify_data(splits: Splits, replay: Replay, here: Mapping[str, Any]) -> None:
    """Raise StepError unless the data here is the data of the run (step 7).

    Raises JudgeError where the data cannot be made again: another version of the code drew it.
    """
    recorded = replay.started.data
    found = {
        "fingerprints": dict(splits.fingerprints),
        "classes": list(splits.classes),
        "sizes": dict(splits.sizes),
    }
    wanted = {key: recorded.get(key) for key in found}
    if (different := next(differences(wanted, found), None)) is None:
        return
    if data_is_outdated(replay.run_config, recorded, replay.started.environment, splits, here):
        raise JudgeError(OUTDATED)
    raise StepError(
        f"the data set here is not the one that the run records: {different.place} differs"
    )


def compare_probe(
    model: ResidualCNN, splits: Splits, saved: SavedWeights, *, tolerance: float
) -> dict[str, Any]:
    """Return the evidence of the probe; raises StepError if a layer's norm deviates (step 7)."""
    found = probe_model(model, splits.validation)
    norms: dict[str, float] = found["layer_norms"]
    for key in ("mode", "batch_sha256"):
        if saved.probe.get(key) != found[key]:
            raise StepError(
                f"the probe recorded with the weights has a different {key}", found=found[key]
            )
    recorded = saved.probe.get("layer_norms")
    if not isinstance(recorded, dict) or set(recorded) != set(norms):
        raise StepError("the probe recorded with the weights names different layers")
    # A gradient of almost nothing is sums of roundings: it is compared on the scale of the largest.
    sizes = [norm for norm in norms.values() if math.isfinite(norm)]
    floor = 1e-6 * max(sizes, default=0.0)
    apart = {name: deviation(recorded[name], norm, floor) for name, norm in norms.items()}
    worst = max(apart, key=lambda name: apart[name])
    evidence = {"largest_deviation": apart[worst], "layer": worst, "allowed": tolerance}
    if apart[worst] > tolerance:
        off = sorted((name for name in apart if apart[name] > tolerance), key=lambda n: -apart[n])
        raise StepError(
            "gradient norms of the submitted weights differ from those recorded with the "
            f"weights: {worst} deviates by {apart[worst]:.3g}, allowed is {tolerance:g} "
            f"({len(off)} of {len(apart)} layers)",
            **evidence,
            layers=capped(
                [
                    {"layer": n, "recorded": recorded[n], "found": found["layer_norms"][n]}
                    for n in off
                ]
            ),
        )
    return {**evidence, "layer_norms": norms}


def compare_validation(
    model: ResidualCNN, splits: Splits, measured: Mapping[str, Any], *, tolerance: float
) -> dict[str, Any]:
    """Return the evidence of the validation; raises StepError if it deviates (step 7)."""
    found = validate_model(model, splits.validation)
    recorded = measured["validation"]
    apart = {
        "loss": deviation(recorded["loss"], found["loss"], 1e-6),
        "accuracy": abs(recorded["accuracy"] - found["accuracy"]),
    }
    allowed = {"loss": tolerance, "accuracy": tolerance}
    if apart["accuracy"] > tolerance:  # rounding decides where two classes are nearly level
        allowed["accuracy"] += undecided_share(model, splits.validation, within=tolerance)
    for key, off in apart.items():
        if not off <= allowed[key]:
            raise StepError(
                f"the submitted weights have a validation {key} of {found[key]:.6g}; the ledger "
                f"records {recorded[key]:.6g}",
                recorded=recorded[key],
                found=found[key],
                allowed=allowed[key],
            )
    return {"found": found, "deviations": apart}


@torch.no_grad()
def undecided_share(model: ResidualCNN, split: Split, *, within: float) -> float:
    """Return the share of examples whose two largest logits lie close together.

    Close is `within` of how far an example's logits lie apart, in the median over the split: what
    is added to all logits decides nothing. An example with a logit that is not finite counts too.
    """
    model.eval()
    parts = torch.split(split.images, _BATCH)
    logits = torch.cat([model(normalise(part)) for part in parts]).double()  # (N, classes)
    top = logits.topk(2, dim=1).values  # (N, 2)
    spread = logits.amax(dim=1) - logits.amin(dim=1)
    scale = spread.nanmedian()
    decided = ((top[:, 0] - top[:, 1]) > within * scale) & spread.isfinite()  # false for NaN
    return 1.0 - float(decided.double().mean())


def epoch_mean_comparison(
    norms: Mapping[str, float], measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Return how many layers lie within 30% of the epoch's mean norm: evidence that gates nothing.

    One pass over weights at rest and the mean over an epoch of training differ for honest runs.
    """
    means = {layer["name"]: layer["grad_norm"] for layer in measured["layers"]}
    within = [
        name
        for name, norm in norms.items()
        if type(mean := means.get(name)) is float
        and abs(norm - mean) <= _EPOCH_MEAN_SHARE * abs(mean)
    ]
    return {"layers": len(norms), "within_30_percent": len(within)}


def measure_test_accuracy(model: ResidualCNN, replay: Replay, judge: JudgeConfig) -> dict[str, Any]:
    """Return top-1 accuracy on the split that only the judge reads (step 10).

    It is read once more, so it is compared once more: raises JudgeError where the folder no longer
    holds what step 7 found there.
    """
    try:
        test = load_test(replay.run_config, judges_reading(judge))
    except DatasetError as error:
        raise JudgeError(f"the run cannot be judged without its test set: {error}") from error
    if test.fingerprint != replay.started.data["fingerprints"]["test"]:
        raise JudgeError(
            "the test images changed while the run was judged: they are no longer those that it "
            "records; judge it again, on a folder that nobody else can write to"
        )
    return validate_model(model, test)


def deviation(recorded: Any, found: float, floor: float) -> float:
    """Return the relative deviation; two values that are not finite alike deviate by nothing."""
    if type(recorded) is not float:
        return math.inf
    if recorded == found or (math.isnan(recorded) and math.isnan(found)):
        return 0.0
    apart = abs(recorded - found) / max(abs(recorded), abs(found), floor)
    return math.inf if math.isnan(apart) else apart
