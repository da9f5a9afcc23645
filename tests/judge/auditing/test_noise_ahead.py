"""The judge solves the noise of many epochs at once, and comes to the bits of one at a time."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregates.noise import NoiseProbes, SignalToNoise, pool_noise
from judge.auditing.noise_ahead import pool_many


def bits(found: SignalToNoise | None) -> bytes | None:
    if found is None:
        return None
    return struct.pack("<3d", found.estimate, found.low, found.high)


SQUARES = st.one_of(
    st.floats(1e-6, 1e6),
    st.floats(0.0, 1e308),
    st.sampled_from([0.0, 1e-320, 1e-160, 1e150, 1e300, float("inf"), float("nan")]),
)


@st.composite
def probes(draw: st.DrawFn) -> tuple[float, float]:
    square = draw(SQUARES)
    share = draw(st.one_of(st.floats(-1.0, 1.0), st.sampled_from([0.0, -0.5, 1 - 1e-7, 1.0])))
    return square * share, square


EPOCHS = st.builds(
    NoiseProbes,
    st.lists(probes(), max_size=4).map(tuple),
    st.one_of(st.none(), st.floats(0.0, 2.0), st.sampled_from([1e-12, 2e-12, 1e-9, 0.999999])),
    st.integers(0, 400),
)
WINDOWS = st.lists(EPOCHS, max_size=3).map(tuple)


def compare(windows: Sequence[tuple[NoiseProbes, ...]]) -> int:
    known = pool_many(windows)
    for window in windows:
        if window in known:
            assert bits(known[window]) == bits(pool_noise(window))
    return len(known)


@settings(max_examples=40, deadline=None)
@given(windows=st.lists(WINDOWS, min_size=1, max_size=40))
def test_noise_of_many_epochs_is_that_of_each(
    windows: list[tuple[NoiseProbes, ...]],
) -> None:
    compare(windows)


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None)
@given(windows=st.lists(WINDOWS, min_size=1, max_size=40))
def test_noise_of_very_many_epochs_is_that_of_each(
    windows: list[tuple[NoiseProbes, ...]],
) -> None:
    compare(windows)


def test_all_usual_noise_is_solved_ahead() -> None:
    usual = [
        (NoiseProbes(((0.2 + n / 900, 1.0 + n / 300),) * (1 + n % 3), 0.002 + n / 1e5, 50 + n),)
        for n in range(300)
    ]
    assert compare(usual) == 300
