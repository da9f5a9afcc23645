"""The signal-to-noise interval from pooled probes: quantiles, coverage, hostile values."""

import math
import random

import pytest
from scipy import stats

from aggregates.noise import (
    NoiseProbes,
    SignalToNoise,
    cube_root,
    pool_noise,
    spread_of,
    student_quantile,
)

DIRECTIONS = 12  # of the noise


def _gradient(rng: random.Random, signal: float) -> list[float]:
    """Return a gradient whose signal-to-noise ratio is `signal` in equal directions."""
    scale = 1 / math.sqrt(DIRECTIONS)
    return [math.sqrt(signal / DIRECTIONS) + rng.gauss(0, scale) for _ in range(DIRECTIONS)]


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _epoch(rng: random.Random, signal: float, *, probes: int, steps: int = 46) -> NoiseProbes:
    found = []
    for _ in range(probes):
        g, h = _gradient(rng, signal), _gradient(rng, signal)
        found.append((_dot(g, h), (_dot(g, g) + _dot(h, h)) / 2))
    squares = [_dot(g, g) for g in (_gradient(rng, signal) for _ in range(steps))]
    spread = spread_of(squares, [rng.uniform(0.9, 1.1) for _ in squares])
    assert spread is not None
    return NoiseProbes(tuple(found), *spread)


@pytest.mark.parametrize("probes", [1, 3, 12])
@pytest.mark.parametrize("signal", [0.1, 0.5, 2.0])
@pytest.mark.sampled(3)
def test_interval_covers_the_truth_nine_times_in_ten(signal: float, probes: int) -> None:
    rng = random.Random(f"{signal} {probes}")
    found = [pool_noise([_epoch(rng, signal, probes=probes)]) for _ in range(200)]
    answers = [answer for answer in found if answer is not None]
    assert len(answers) == 200
    covered = sum(answer.low <= signal <= answer.high for answer in answers) / 200
    assert 0.85 <= covered <= 0.95
    above = sum(answer.estimate > signal for answer in answers) / 200
    assert 0.4 <= above <= 0.6, "the estimate is the median"


def test_interval_narrows_when_epochs_are_pooled() -> None:
    rng = random.Random(5)
    epochs = [_epoch(rng, 0.5, probes=1) for _ in range(24)]
    one, many = pool_noise(epochs[:1]), pool_noise(epochs)
    assert one is not None
    assert many is not None
    assert many.high - many.low < (one.high - one.low) / 2
    assert many.low <= 0.5 <= many.high


def test_signal_below_zero_is_recorded_as_zero_with_an_upper_end() -> None:
    found = pool_noise([NoiseProbes(((-0.2, 1.0),), 0.02, 45)])
    assert isinstance(found, SignalToNoise)
    assert found.low == found.estimate == 0
    assert 0 < found.high < 1


@pytest.mark.parametrize(
    "epoch",
    [
        NoiseProbes((), 0.02, 45),
        NoiseProbes(((0.5, 1.0),), None, 0),
        NoiseProbes(((0.5, 1.0),), 0.02, 2),
        NoiseProbes(((0.5, 1.0),), 0.0, 45),
        NoiseProbes(((math.nan, 1.0),), 0.02, 45),
        NoiseProbes(((0.5, math.inf),), 0.02, 45),
        NoiseProbes(((1.0, 1.0),), 0.02, 45),  # no noise at all
        NoiseProbes(((-1e308, 1e308), (1e308, 1e-308)), 0.02, 45),
        NoiseProbes(((5.0, 1.0),), 0.02, 45),  # no two gradients give this
    ],
)
def test_nothing_is_said_when_probes_or_steps_say_nothing(epoch: NoiseProbes) -> None:
    assert pool_noise([epoch]) is None


def test_spread_leaves_out_what_the_losses_explain() -> None:
    rng = random.Random(2)
    losses = [rng.uniform(0.5, 1.5) for _ in range(400)]
    noise = [rng.gauss(1, 0.1) for _ in losses]
    plain = spread_of(noise, [1.0] * 400)
    scaled = spread_of([a * b for a, b in zip(noise, losses, strict=True)], losses)
    assert plain is not None
    assert scaled is not None
    assert scaled[0] == pytest.approx(plain[0], rel=0.1)


def test_quantiles_and_roots_agree_with_scipy() -> None:
    for degrees in (2, 4, 7.5, 23, 200):
        assert student_quantile(degrees) == pytest.approx(stats.t.ppf(0.95, degrees), rel=0.02)
    for value in (0.0, 5e-324, 1e-9, 0.3, 1.0, 27.0, 1e300):
        assert cube_root(value) == pytest.approx(math.cbrt(value), rel=1e-15)


def test_any_numbers_are_answered_without_an_error() -> None:
    rng = random.Random(9)
    odd = [0.0, -0.0, 5e-324, 1e-300, 1e-9, 0.5, 1 - 2**-53, 1.0, 1e9, 1e200, 1.7e308]
    odd += [math.inf, -math.inf, math.nan, -1.0, -1e300]
    for _ in range(3_000):
        probes = tuple((rng.choice(odd), rng.choice(odd)) for _ in range(rng.randrange(4)))
        found = pool_noise([NoiseProbes(probes, rng.choice(odd), rng.choice([0, 3, 46, 10**9]))])
        assert found is None or 0 <= found.low <= found.estimate <= found.high < math.inf
