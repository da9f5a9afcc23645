"""Recorded probes and what follows from them are checked; runs from before probes still verify."""

import math
import re
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.nn import functional

from aggregates.decisions import Settings
from aggregates.errors import MeasurementError
from aggregates.signals import signals_of
from aggregates.spec import BlockSpec, ModelSpec
from judge.auditing.measurements import verify_measured
from judge.errors import StepError
from monitor.diagnostics import EpochWatch
from monitor.model import ResidualCNN

BATCH, STEPS = 8, 6
SPEC = ModelSpec(10, 4, 4, (BlockSpec(4, True, "batch", "relu"),), "batch", "relu")
SETTINGS = Settings(0.1, BATCH, 1, None, {"kind": "constant"})
NEWER = ("probes", "spread", "spread_pairs", "signal_to_noise_low", "signal_to_noise_high")


def _measured() -> dict[str, Any]:
    model, rng = ResidualCNN(SPEC), torch.Generator().manual_seed(1)
    watch = EpochWatch(model, effective_batch=BATCH, steps=STEPS)
    for _ in range(STEPS):
        images = torch.randn(2, BATCH, 3, 32, 32, generator=rng)
        labels = torch.randint(0, 10, (BATCH,), generator=rng)
        torch.autograd.backward(watch.loss(model(images[0]), labels))
        watch.gradients()
        if watch.probe_due:
            watch.probe([functional.cross_entropy(model(images[1]), labels)])
        watch.updated()
    watch.close()
    return {
        **watch.measured(),
        "validation": {"loss": 2.0, "accuracy": 0.5, "examples": 4},
    }


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return _measured()


def _verify(measured: dict[str, Any]) -> None:
    sizes = {"train": BATCH * STEPS, "validation": 4}
    verify_measured(measured, spec=SPEC, settings=SETTINGS, sizes=sizes)


def test_honest_part_is_accepted(honest: dict[str, Any]) -> None:
    assert honest["gradients"]["signal_to_noise"] is not None
    _verify(honest)


def test_part_from_before_probes_is_accepted(honest: dict[str, Any]) -> None:
    old = deepcopy(honest)
    for name in NEWER:
        del old["gradients"][name]
    _verify(old)
    signals = signals_of(0, old)
    assert signals.signal_to_noise == honest["gradients"]["signal_to_noise"]
    assert signals.signal_to_noise_low is None
    assert signals.noise is None


@pytest.mark.parametrize("name", NEWER)
def test_part_that_lacks_one_of_the_fields_is_rejected(honest: dict[str, Any], name: str) -> None:
    forged = deepcopy(honest)
    del forged["gradients"][name]
    with pytest.raises(StepError, match=f"gradients.{name} is missing.*train the run again"):
        _verify(forged)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"signal_to_noise": 0.123}, "gradients.signal_to_noise is 0.123, expected"),
        ({"signal_to_noise_low": -1.0}, "gradients.signal_to_noise_low is -1.0"),
        ({"signal_to_noise_high": 1e9}, "gradients.signal_to_noise_high is 1000000000.0"),
        ({"signal_to_noise_high": None}, "gradients.signal_to_noise_high is None"),
        ({"signal_to_noise": 1}, "gradients.signal_to_noise is 1,"),
        ({"probes": []}, "gradients.probes has 0 probes, expected 1 for an epoch of 6 steps"),
        ({"probes": [[0.1, 1.0]] * 1_000}, "gradients.probes has 1000 probes"),
        ({"probes": [[2.0, 1.0]]}, "gradients.probes[0] has the product 2.0"),
        ({"probes": [[0.1, -1.0]]}, "gradients.probes[0][1] is -1.0"),
        ({"probes": [[1, 1]]}, "gradients.probes[0] is [1, 1], it must be two floats"),
        ({"probes": [[0.1]]}, "gradients.probes[0] is [0.1], it must be two floats"),
        ({"probes": "ab"}, "gradients.probes is a str, it must be a list"),
        ({"spread": -0.1}, "gradients.spread is -0.1"),
        ({"spread": None}, "gradients.spread is None and gradients.spread_pairs is 5"),
        ({"spread_pairs": STEPS}, "gradients.spread_pairs is 6, it must be a whole number"),
        ({"spread_pairs": True}, "gradients.spread_pairs is True, it must be a whole number"),
        ({"spread_pairs": 0}, "gradients.spread_pairs is 0: the spread must be missing"),
    ],
)
def test_forged_noise_is_rejected(
    honest: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    forged = deepcopy(honest)
    forged["gradients"].update(changes)
    with pytest.raises(StepError, match=re.escape(words)):
        _verify(forged)


@pytest.mark.parametrize("probe", [[1, 1.0], [0.1], "ab", 0.5])
def test_signals_of_a_forged_probe_name_its_place(honest: dict[str, Any], probe: Any) -> None:
    forged = deepcopy(honest)
    forged["gradients"]["probes"] = [[0.1, 1.0], probe]
    with pytest.raises(MeasurementError, match=r"gradients\.probes\[1\].*train the run again"):
        signals_of(0, forged)


def test_noise_of_a_diverged_epoch_is_accepted(honest: dict[str, Any]) -> None:
    diverged = deepcopy(honest)
    nothing = dict.fromkeys(("signal_to_noise", "signal_to_noise_low", "signal_to_noise_high"))
    diverged["gradients"].update(nothing, probes=[[math.nan, math.nan]])
    _verify(diverged)
