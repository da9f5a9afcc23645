"""The signal-to-noise ratio from probes whose truth is known."""

import math
from random import Random

import pytest

from aggregates.noise import NoiseProbes, pool_noise, spread_of
from aggregates.sums import added


@pytest.mark.parametrize(("parts", "ratio"), [(2, 0.3), (2, 3.0), (3, 1.0), (4, 0.3)])
def test_halves_of_steps_tell_the_ratio_of_whole_steps(parts: int, ratio: float) -> None:
    """Gaussian gradients: the noise of a step has the expected square 1, its mean `ratio`."""
    draws, half, size, covered, estimates = Random(0), parts // 2, 60, 0, []
    deviation = math.sqrt(1 / size / parts)
    for _ in range(100):
        squares, probes = [], []
        for step in range(32):
            batches = [[draws.gauss(0, deviation) for _ in range(size)] for _ in range(parts)]
            for batch in batches:
                batch[0] += math.sqrt(ratio) / parts
            whole = [sum(values) for values in zip(*batches, strict=True)]
            squares.append(sum(value * value for value in whole))
            if step % 16 == 0:
                times = parts / half
                one, two = (
                    [times * sum(values) for values in zip(*some, strict=True)]
                    for some in (batches[:half], batches[half : 2 * half])
                )
                product = sum(a * b for a, b in zip(one, two, strict=True))
                probes.append((product, sum(a * a for a in one + two) / 2))
        told = spread_of(squares, [1.0] * 32)
        assert told is not None
        found = pool_noise([NoiseProbes(tuple(probes), *told, half / parts)])
        assert found is not None
        estimates.append(found.estimate)
        covered += found.low <= ratio <= found.high
    assert 80 <= covered <= 97
    assert sorted(estimates)[50] == pytest.approx(ratio, rel=0.25, abs=0.05)


def test_epochs_whose_probes_are_of_another_size_are_left_out() -> None:
    half = NoiseProbes(((0.4, 1.0), (0.5, 1.0)), 0.02, 30, 0.5)
    whole = NoiseProbes(((0.1, 1.0),), 0.02, 30)
    assert pool_noise([whole, half]) == pool_noise([half])
    assert pool_noise([half, whole]) == pool_noise([whole])
    assert pool_noise([]) is None


def test_sum_is_the_same_on_every_python() -> None:
    assert added([1e16, 1.0, -1e16]) == 0.0  # sum() says 1.0 since 3.12
    assert added([], 2.5) == 2.5
