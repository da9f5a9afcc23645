"""Charts of drift: what each sees, what it lets pass, and how often all of them err together."""

import numpy as np
import pytest
from scipy import stats
from studies.drift_rates import (
    DriftSimulation,
    correlated_table,
    deficits,
    disturbed_table,
    production_table,
    simulate,
)

from judge.drift import charts
from judge.drift.charts import Baseline, baseline_of, evaluations_needed
from judge.errors import DriftError

NONE = np.array(0.0)


def of(mean: float, sd: float) -> Baseline:
    value, spread = np.array(mean), np.array(sd)
    return Baseline(mean=value, reference=value, sd=spread, likely=spread, correlation=NONE)


BASE = of(0.9, 0.01)
STABLE = np.full(30, 0.9)


def test_sum_is_what_its_definition_gives() -> None:
    sums = charts.ratchet(np.array([0.88, 0.91, 0.90, 0.87]), BASE)
    assert sums == pytest.approx([1.5, 0.0, 0.0, 2.5])


def test_sum_begins_again_where_an_operator_has_answered() -> None:
    answered = np.array([False, False, True])
    sums = charts.ratchet(np.full(3, 0.88), BASE, restarts=answered)
    assert sums == pytest.approx([1.5, 3.0, 1.5])


def test_slow_loss_is_seen_against_the_original_and_not_against_the_last() -> None:
    losing = 0.9 - 0.001 * np.arange(1, 41)
    assert charts.ratchet(losing, BASE).max() > charts.RATCHET
    assert np.abs(np.diff(losing)).max() < 0.2 * BASE.sd


def test_stable_line_raises_nothing() -> None:
    assert charts.ratchet(STABLE, BASE).max() == 0.0
    assert not charts.beyond(STABLE, BASE, again=STABLE).any()
    assert not charts.declined(STABLE, BASE).any()
    assert not charts.broken(STABLE, BASE, again=STABLE).any()
    assert not charts.grown(np.ones(30), STABLE, BASE).any()


def test_three_sigma_count_after_five_checkpoints_only() -> None:
    low = np.full(8, 0.869)
    flags = charts.beyond(low, BASE, again=low)
    assert flags.tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize(("falls", "alarmed"), [((0.02, 0.02), False), ((0.02,) * 3, True)])
def test_decline_takes_three_falls_in_a_row(falls: tuple[float, ...], alarmed: bool) -> None:
    values = 0.9 - np.cumsum(falls)
    assert charts.declined(values, BASE).any() == alarmed


def test_three_small_falls_are_chance() -> None:
    assert not charts.declined(0.9 - np.cumsum([0.005] * 3), BASE).any()


def test_circuit_breaker_measures_against_the_best_and_not_the_original() -> None:
    for values, flags in (([0.9, 0.73], [False, False]), ([1.0, 0.79], [False, True])):
        found = np.array(values)
        assert charts.broken(found, BASE, again=found).tolist() == flags


def test_noise_alone_does_not_trip_the_circuit_breaker_when_it_is_great() -> None:
    found = np.array([0.5, 0.35])
    assert not charts.broken(found, of(0.5, 0.05), again=found).any()


@pytest.mark.parametrize(
    ("right", "runs", "before_right", "before"), [(3, 9, 40, 50), (0, 4, 1, 1)]
)
def test_production_alarms_where_fishers_test_falls_below_its_limit(
    right: int, runs: int, before_right: int, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = np.array([[right, runs - right], [before_right, before - before_right]])
    tail = stats.fisher_exact(table, alternative="less").pvalue
    for limit, expected in ((tail * 1.001, True), (tail * 0.999, False)):
        monkeypatch.setattr(charts, "PRODUCTION_ERROR", limit)
        found = charts.unproductive(np.array([before_right, right]), np.array([before, runs]))
        assert found[-1] == expected


def test_runs_of_one_checkpoint_alarm_within_ten_when_they_fail_and_seldom_when_they_do_not() -> (
    None
):
    rng = np.random.default_rng(7)
    healthy = deficits(rng.random((100, 100)) < 0.8)
    assert (healthy >= charts.DEFICIT).any(axis=-1).mean() <= 0.03
    guessing = deficits(rng.random((100, 10)) < 0.02)
    assert (guessing >= charts.DEFICIT).any(axis=-1).mean() >= 0.97


@pytest.mark.slow
def test_false_alarms_of_production_are_at_most_3_percent_and_chance_is_seen() -> None:
    table = production_table(DriftSimulation(sd=0.0043, mean=0.94, tasks=52, streams=10_000))
    shares = {row[0]: [float(each.rstrip("%")) for each in row[1:]] for row in table.rows}
    assert all(shares[name][-1] <= 3.0 for name in ("95.0%", "90.0%", "80.0%"))
    assert shares["0.0%"][0] == 100.0
    assert shares["5.0%"][1] > 90.0


def test_production_without_any_run_raises_no_alarm() -> None:
    assert not charts.unproductive(np.zeros(3), np.zeros(3)).any()


def test_production_is_compared_with_all_checkpoints_before() -> None:
    runs = np.array([50.0, 50.0, 20.0])
    assert charts.unproductive(np.array([45.0, 44.0, 4.0]), runs).tolist() == [
        False,
        False,
        True,
    ]
    assert not charts.unproductive(np.array([45.0, 44.0, 15.0]), runs).any()


def test_growth_counts_only_beyond_what_it_is_worth() -> None:
    grown = np.full(10, 1.3)
    assert charts.grown(grown, np.full(10, 0.9), BASE).all()
    assert not charts.grown(grown, np.full(10, 1.0), BASE).any()


def test_velocity_is_the_slope_and_a_gain_is_no_standstill() -> None:
    gaining = 0.9 + 0.01 * np.arange(1, 11)
    found = charts.velocity(gaining, BASE)
    assert np.isnan(found[:4]).all()
    assert found[4:] == pytest.approx(0.01)
    assert not charts.stalled(gaining, BASE).any()
    assert charts.stalled(STABLE, BASE)[4:].all()


def test_repeats_that_agree_do_not_prove_that_there_is_no_noise() -> None:
    base = baseline_of([0.9] * 20, resolution=0.02)
    assert base.sd == pytest.approx(0.02 * np.sqrt(3 / 20), rel=1e-3)
    assert base.mean == pytest.approx(0.9)


def test_bound_of_the_deviation_is_that_of_chi_square_and_of_the_correlation() -> None:
    values = np.random.default_rng(1).normal(size=12)
    found = baseline_of(values, resolution=0.0)
    for at, chance in ((found.sd, 0.05), (found.likely, 0.5)):
        wanted = values.std(ddof=1) * np.sqrt(11 / stats.chi2.ppf(chance, 11))
        inflation = (1 + found.correlation) / (1 - found.correlation)
        hidden = 1 - (inflation - 1) / 11
        assert at == pytest.approx(wanted * np.sqrt(inflation / hidden))


def test_correlation_is_widened_by_more_when_the_baseline_is_short() -> None:
    rng = np.random.default_rng(2)
    means = []
    for repeats in (10, 20, 80):
        found = baseline_of(rng.normal(size=(500, repeats)), resolution=0.0)
        means.append(float(found.correlation.mean()))
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.2
    kept = np.zeros((500, 40))
    for at in range(1, 40):
        kept[:, at] = 0.9 * kept[:, at - 1] + rng.normal(size=500)
    assert baseline_of(kept, resolution=0.0).correlation.mean() > 0.8


def test_ten_identical_baselines_of_seven_tasks_let_a_real_loss_trip_the_breaker() -> None:
    base = baseline_of([1.0] * 10, resolution=1 / 7)
    assert float(base.likely) == pytest.approx(np.sqrt(np.log(2) / 10) / 7)
    for right, lost in ((4, True), (5, False)):
        found = np.array([right / 7])
        assert charts.broken(found, base, again=found).tolist() == [lost]


@pytest.mark.slow  # it simulates
def test_disturbed_evaluations_roll_back_in_one_stream_of_a_hundred_at_most() -> None:
    table = disturbed_table(DriftSimulation(sd=0.005, mean=49 / 52, streams=400))
    rolled_back, ratchets, declines = (
        [float(row[number].rstrip("%")) for row in table.rows] for number in (1, 2, 3)
    )
    assert rolled_back[-1] <= 1.0 < rolled_back[1] < 30.0 < rolled_back[0]
    for shares in (ratchets, declines):  # 56% and 19% where single evaluations counted whole
        assert shares[-1] <= 1.0
        assert shares[1] < 8.0


def test_an_evaluation_far_below_counts_as_its_second_one_or_in_part() -> None:
    values = np.array([0.6, 0.89, 0.6, 0.6, 0.6])
    again = np.array([np.inf, np.inf, 0.9, 0.7, np.inf])
    floor = float(BASE.reference - charts.SIGMAS * BASE.sd)
    found = charts.counted(values, BASE, again=again)
    assert found.tolist() == pytest.approx([floor, 0.89, 0.9, 0.7, 0.6])


@pytest.mark.slow
def test_autocorrelated_noise_alarms_as_seldom_as_is_claimed() -> None:
    table = correlated_table(DriftSimulation(sd=0.0043, mean=49 / 52))
    for repeats, keeps, alarmed, *_ in table.rows:
        most = 5.0 if (repeats, keeps) == ("20", "0.9") else 3.0
        assert float(alarmed.rstrip("%")) <= most


def test_one_evaluation_is_no_baseline() -> None:
    with pytest.raises(DriftError, match="of 1 evaluations is too small"):
        baseline_of([0.9], resolution=0.02)


@pytest.mark.slow  # it simulates
def test_all_alarms_together_err_seldom_and_see_a_ratchet_in_time() -> None:
    tables = simulate(DriftSimulation(sd=0.0043, mean=49 / 52))
    healthy, ratchets = next(tables), next(tables)
    assert [float(row[-1].rstrip("%")) <= 3.0 for row in healthy.rows] == [True, True]
    seen = {row[0]: float(row[2].rstrip("%")) for row in ratchets.rows if row[1].startswith("all")}
    assert min(seen.values()) >= 95.0


def test_great_noise_is_met_with_several_evaluations() -> None:
    assert evaluations_needed(0.0075) == 1
    assert evaluations_needed(0.025) == 10
