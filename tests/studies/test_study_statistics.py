"""Paired intervals, checked against simulation: what they promise has to come true."""

import math

import numpy as np
import pytest
from scipy import stats

from proctor.runs.standings import paired_interval

ROWS, SEEDS, STUDIES = 12, 10, 1_500


def differences(rng: np.random.Generator, *, tail: float | None) -> np.ndarray:
    """Return (ROWS, SEEDS) differences of mean 0; rows share a part, so they are correlated."""

    def draw(*shape: int) -> np.ndarray:
        # Student's t with few degrees of freedom: outliers, as a run that collapses is one.
        return rng.standard_normal(shape) if tail is None else rng.standard_t(tail, shape)

    scales = np.geomspace(0.01, 0.3, ROWS)[:, None]
    return scales * (0.7 * draw(1, SEEDS) + 0.7 * draw(ROWS, SEEDS))


def share_of_studies_wholly_covered(*, tail: float | None, comparisons: int) -> float:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(STUDIES):
        found = differences(rng, tail=tail)
        mean, spread = found.mean(axis=1), found.std(axis=1, ddof=1)
        # As paired_interval() computes it; one call for each row would take minutes.
        half = stats.t.ppf(1 - 0.05 / comparisons / 2, SEEDS - 1) * spread / math.sqrt(SEEDS)
        covered += bool(np.all(np.abs(mean) <= half))
    return covered / STUDIES


def test_paired_interval_is_the_one_of_scipy() -> None:
    gains = [0.1, -0.02, 0.05, 0.3, 0.0]
    wanted = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)
    assert paired_interval(gains) == pytest.approx((wanted.low, wanted.high))


def test_correction_divides_the_chance_of_an_error_by_the_number_of_comparisons() -> None:
    gains = [0.1, -0.02, 0.05, 0.3, 0.0]
    assert paired_interval(gains, comparisons=10) == pytest.approx(paired_interval(gains, 0.995))


@pytest.mark.parametrize("tail", [None, 5.0, 3.0])
def test_corrected_intervals_cover_all_rows_of_a_study_as_often_as_promised(
    tail: float | None,
) -> None:
    assert share_of_studies_wholly_covered(tail=tail, comparisons=ROWS) >= 0.945


def test_uncorrected_intervals_do_not_cover_all_rows() -> None:
    assert share_of_studies_wholly_covered(tail=None, comparisons=1) < 0.9


def test_simulation_computes_intervals_as_the_study_does() -> None:
    row = differences(np.random.default_rng(1), tail=3.0)[3]
    half = stats.t.ppf(1 - 0.05 / ROWS / 2, SEEDS - 1) * row.std(ddof=1) / math.sqrt(SEEDS)
    wanted = (row.mean() - half, row.mean() + half)
    assert paired_interval(list(row), comparisons=ROWS) == pytest.approx(wanted)
