"""What the studies of rules compute: shares, the split, earliest epochs, thresholds."""

import dataclasses
import math
from typing import Any

import pytest
from studies.detection import detect, earliest_epoch, fired_by_epoch
from studies.faults import is_harmful
from studies.starts import (
    BATCHES,
    CONTROL,
    RATES,
    faulty_starts,
    healthy_settings,
    healthy_starts,
)
from studies.statistics import Share
from studies.thresholds import (
    band_levels,
    choose,
    choose_patience,
    most_extreme,
    waits,
)

from aggregates.firing import evaluate_rules
from aggregates.provocations import CATALOGUE, draw_fault
from aggregates.rules import CALIBRATED, CALIBRATED_1
from aggregates.signals import EpochSignals
from monitor.config import RunConfig

DATASETS = ("shapes", "images")
HEALTHY = EpochSignals(
    epoch=0,
    train_loss=1.0,
    train_accuracy=0.5,
    val_loss=1.0,
    gradients_finite=True,
    max_layer_grad_norm=0.5,
    min_layer_grad_norm=0.1,
    update_ratio=5e-3,
    epoch_update_ratio=1e-2,
    signal_to_noise=0.5,
    norm_noise_scale=500.0,
    dead_share=0.0,
    sparsity=0.5,
)


def history(**changes: list[Any]) -> list[EpochSignals]:
    epochs = len(next(iter(changes.values())))
    return [
        dataclasses.replace(
            HEALTHY, epoch=epoch, **{name: values[epoch] for name, values in changes.items()}
        )
        for epoch in range(epochs)
    ]


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 20, 0.0, 0.1684),
        (19, 20, 0.7513, 0.9987),
        (20, 20, 0.8316, 1.0),
        (5, 10, 0.1871, 0.8129),
    ],
)
def test_interval_of_a_share_is_that_of_clopper_and_pearson(
    count: int, of: int, low: float, high: float
) -> None:
    assert Share(count, of).interval() == pytest.approx((low, high), abs=1e-4)


def test_share_of_nothing_says_nothing() -> None:
    assert Share(0, 0).interval() == (0.0, 1.0)
    assert str(Share(0, 0)) == "-"
    assert str(Share.true([True, False])) == "1 of 2 (50.0%; 1.3% to 98.7%)"


def test_grid_has_every_batch_and_rate_on_every_dataset_and_no_setting_twice() -> None:
    settings = healthy_settings()
    assert len({each.hash for each in settings}) == len(settings) == 60
    found = {
        (each.dataset, each.keys["batch_size"], round(each.keys["lr"] / each.best_rate, 3))
        for each in settings
    }
    assert found == {(d, b, r) for d in DATASETS for b in BATCHES for r in RATES}
    assert {each.keys["epochs"] for each in settings} == {10, 12, 20, 30}


def test_split_follows_from_the_hash_of_the_setting_alone() -> None:
    first = healthy_settings()[0]
    assert first.calibrates == (int(first.hash, 16) % 2 == 0)
    assert first.config("/a", seed=1)["dataset"] == "shapes"
    last = healthy_settings()[-1]
    assert last.config("/a", seed=1)["dataset"] == "imagefolder:/a"
    half = [each for each in healthy_settings() if each.calibrates]
    assert 20 <= len(half) <= 40


def test_no_fault_is_reported_on_a_setting_that_thresholds_are_chosen_on() -> None:
    chosen = faulty_starts(DATASETS, calibrates=True, seeds=20)
    reported = faulty_starts(DATASETS, calibrates=False, seeds=20)
    assert not {each.setting.hash for each in chosen} & {each.setting.hash for each in reported}
    assert not {each.seed for each in chosen} & {each.seed for each in reported}
    assert len({each.key for each in chosen + reported}) == 2 * 20 * (len(CATALOGUE) + 1)
    assert {each.name for each in reported} == {CONTROL, *CATALOGUE}


def test_every_run_of_the_studies_is_a_valid_configuration() -> None:
    for start in healthy_starts(DATASETS) + faulty_starts(DATASETS, calibrates=False, seeds=20):
        config = RunConfig.from_dict(start.config("folder"))
        assert config.fault == start.fault


@pytest.mark.parametrize(
    ("name", "expected"),
    [("lr_too_low", 2), ("lr_too_high", 0), ("dead_activations", 2), ("too_little_capacity", 3)],
)
def test_earliest_epoch_counts_the_persistence_of_the_rule(name: str, expected: int) -> None:
    fault = draw_fault(name, 0, {})
    assert earliest_epoch(fault.expects[0], fault, CALIBRATED) == expected


def test_earliest_epoch_of_a_multiplied_loss_is_its_first() -> None:
    for seed in range(5):
        fault = draw_fault("exploding_loss", seed, {})
        first = fault.changes["loss"]["first"]
        assert earliest_epoch("R7", fault, CALIBRATED) == first
        assert earliest_epoch("R7", fault, CALIBRATED_1) == first + 2


def test_fault_is_seen_in_time_until_two_epochs_after_the_earliest() -> None:
    fault = draw_fault("dead_activations", 0, {})
    in_time = detect([(), (), (), (), ("R5", "R1")], fault, CALIBRATED)
    assert (in_time.in_time, in_time.wrong_in_front) == (True, False)
    late = detect([(), (), (), (), (), ("R5",)], fault, CALIBRATED)
    assert (late.in_time, late.wrong_in_front) == (False, False)
    behind = detect([(), (), ("R6", "R5")], fault, CALIBRATED)
    assert (behind.in_time, behind.wrong_in_front) == (True, True)
    silent = detect([()] * 6, fault, CALIBRATED)
    assert (silent.in_time, silent.wrong_in_front) == (False, False)


def test_fault_is_harmless_that_costs_a_tenth_of_the_progress() -> None:
    control = history(train_loss=[2.0, 1.0])
    assert not is_harmful(history(train_loss=[2.5, 1.09]), control)
    assert is_harmful(history(train_loss=[2.5, 1.11]), control)
    assert is_harmful(history(train_loss=[2.5, math.nan]), control)


def test_separated_levels_give_their_geometric_middle() -> None:
    choice = choose([0.1, 1.0, None], [100.0, 200.0], "high")
    assert (choice.threshold, choice.false, choice.missed) == (10.0, 0, 0)
    assert (choice.nearest_healthy, choice.nearest_faulty) == (1.0, 100.0)
    assert choose([1.0, 9.0], [0.01], "low").threshold == 0.1
    assert choose([0.0], [0.5], "high", linear=True).threshold == 0.25


def test_overlapping_levels_weigh_false_epochs_against_missed_runs() -> None:
    healthy = [1.0] * 199 + [50.0]
    choice = choose(healthy, [10.0] * 9 + [100.0], "high")
    assert 1.0 < choice.threshold < 10.0
    assert (choice.false, choice.missed) == (1, 0)
    assert choose([1.0] * 80 + [50.0] * 20, [10.0] + [100.0] * 9, "high").threshold == 71.0


def test_faulty_runs_without_a_level_are_missed() -> None:
    assert choose([1.0], [None, 4.0], "high").missed == 1
    with pytest.raises(ValueError, match="no faulty run"):
        choose([1.0], [None], "high")


def test_levels_say_at_which_thresholds_the_rule_fires() -> None:
    values = [5e-3, 3e-2, None, 4e-2, 2e-2, math.nan, 3e-2]
    signals = history(update_ratio=values)
    rules = dataclasses.replace(CALIBRATED, r1_at_once=None, r1_patience=99)
    for epoch, level in enumerate(band_levels(signals, "update_ratio", "high", persistence=3)):
        for threshold in (1e-3, 1e-2, 2.5e-2):
            config = dataclasses.replace(rules, r1_low=0.0, r1_high=threshold)
            found = evaluate_rules(signals[: epoch + 1], [], config)["R1"].fired
            assert found == (level is not None and level > threshold)
    assert most_extreme([None, 1.0, 2.0], "low") == 1.0
    assert most_extreme([None], "high") is None


def test_patience_outlasts_all_but_a_share_of_the_waits() -> None:
    assert waits(history(val_loss=[1.0, 0.9, 0.95, 0.97, 0.8, 0.9]), 0.0) == [1, 3]
    assert choose_patience([1] * 97 + [3, 5, 9], 0.02) == 3
    assert choose_patience([1] * 97 + [3, 5, 9], 0.0) == 9
    assert choose_patience([], 0.0) == 1


def test_rules_are_evaluated_epoch_by_epoch_as_if_nobody_acted() -> None:
    fired = fired_by_epoch(history(dead_share=[0.5] * 4), CALIBRATED)
    assert fired == [(), (), ("R5",), ("R5",)]
