"""Provocations: what a name and a seed stand for, and that a record can claim nothing else."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from synthetic import SPEC, measured

from aggregates.errors import InvariantError, ProvocationError
from aggregates.provocations import CATALOGUE, Fault, apply_to_config, draw_fault, fault_of
from aggregates.rules import CALIBRATED
from aggregates.rules import FIRST_RULES as RULES
from aggregates.run import Run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "provocations.md"
SEEDS = range(200)
# Of every fault with seeds 0 to 19. Recorded runs depend on it: another range needs another name.
LATER = ("tiny_init_no_norm",)  # than the first version of the catalogue
DRAWN = {
    (): "14314db6883e15b5c6b4bb1811a16647e8a1c748aa678ccaf69e89d2234df456",
    LATER: "f204211b210ee303185e57602492565c06dfe1815ddb5b5234030f9abb06e425",
}


def start(config: dict[str, Any]) -> Run:
    return Run.start(
        config=config,
        rules=CALIBRATED.to_dict(),
        spec=SPEC.to_dict(),
        data={},
        environment={},
        policy={"name": "none"},
    )


def test_faults_are_what_they_always_were() -> None:
    config = {"train_examples": 1_500}
    for later, known in (((), LATER), (LATER, ())):
        names = later or [name for name in CATALOGUE if name not in known]
        drawn = [draw_fault(name, seed, config).to_dict() for name in names for seed in range(20)]
        assert hashlib.sha256(repr(drawn).encode()).hexdigest() == DRAWN[tuple(later)]


def test_catalogue_has_every_fault_that_was_asked_for_and_reaches_six_rules() -> None:
    assert set(CATALOGUE) == {
        "batch_too_large",
        "batch_too_small",
        "dead_activations",
        "exploding_loss",
        "infinite_loss",
        "init_too_large",
        "init_too_small",
        "lr_too_high",
        "lr_too_low",
        "no_norm_at_depth",
        "tiny_init_no_norm",
        "too_little_capacity",
    }
    reached = {rule for name in CATALOGUE for seed in SEEDS for rule in draw(name, seed).expects}
    assert reached == set(RULES) - {"R3"}  # which asks for no fault, only for time


def draw(name: str, seed: int, **config: Any) -> Fault:
    return draw_fault(name, seed, config)


@pytest.mark.parametrize("name", CATALOGUE)
def test_drawn_fault_expects_what_the_catalogue_says(name: str) -> None:
    expected = {draw(name, seed).expects for seed in SEEDS}
    assert {rule for rules in expected for rule in rules} == set(CATALOGUE[name].expects)
    assert len({repr(draw(name, s, train_examples=600).changes) for s in SEEDS}) > 1


@pytest.mark.parametrize(
    ("name", "part", "key", "low", "high"),
    [
        ("lr_too_high", "settings", "lr", 1.5, 5.0),
        ("lr_too_low", "settings", "lr", 1e-5, 2e-4),
        ("init_too_large", "weights", "factor", 50, 200),
        ("init_too_small", "weights", "factor", 3e-4, 1e-2),
        ("dead_activations", "biases", "share", 0.6, 0.9),
        ("dead_activations", "biases", "value", -20, -8),
        ("no_norm_at_depth", "settings", "blocks", 12, 16),
        ("batch_too_small", "settings", "batch_size", 2, 4),
        ("too_little_capacity", "settings", "width", 1, 4),
        ("exploding_loss", "loss", "factor", 2e3, 1e5),
        ("exploding_loss", "loss", "epochs", 3, 4),
        ("infinite_loss", "loss", "first", 0, 2),
    ],
)
def test_severity_fills_its_range_and_never_leaves_it(
    name: str, part: str, key: str, low: float, high: float
) -> None:
    values = [draw(name, seed).changes[part][key] for seed in SEEDS]
    assert low <= min(values)
    assert max(values) <= high
    assert min(values) < low + 0.1 * (high - low) or min(values) == low
    assert max(values) > high - 0.1 * (high - low)


@pytest.mark.parametrize("examples", [None, 64, 300, 1_500, 45_000])
def test_large_batch_leaves_two_steps_and_fits_into_memory(examples: int | None) -> None:
    for seed in SEEDS:
        size = draw("batch_too_large", seed, train_examples=examples).settings["batch_size"]
        assert 2 * size <= (examples or 3_000)
        assert size <= 512
        assert size % 8 == 0
    small = draw("batch_too_large", 0, train_examples=1_500, max_batch_size=5)
    assert small.settings["batch_size"] == 5


def test_loss_is_multiplied_in_its_epochs_only() -> None:
    fault = draw("exploding_loss", 3)
    loss = fault.changes["loss"]
    factors = [fault.loss_factor(epoch) for epoch in range(8)]
    expected = [
        loss["factor"] if loss["first"] <= e < loss["first"] + loss["epochs"] else 1.0
        for e in range(8)
    ]
    assert factors == expected
    assert draw("lr_too_high", 3).loss_factor(0) == 1.0


def test_configuration_gets_the_fault_and_keeps_all_else() -> None:
    config = {"lr": 0.05, "epochs": 4}
    provoked = apply_to_config(config, "lr_too_high", 3)
    assert config == {"lr": 0.05, "epochs": 4}
    assert provoked == {
        "lr": draw("lr_too_high", 3).settings["lr"],
        "epochs": 4,
        "warm_up_epochs": 0,
        "provocation": "lr_too_high",
        "provocation_seed": 3,
    }
    fault = fault_of(provoked)
    assert fault == draw("lr_too_high", 3)
    assert fault_of(config) is None


@pytest.mark.parametrize(
    ("name", "seed", "words"),
    [
        ("lr_too_nice", 0, "unknown provocation 'lr_too_nice'; choose from"),
        (7, 0, "unknown provocation 7"),
        ("lr_too_high", -1, "a whole number of at least 0, not -1"),
        ("lr_too_high", True, "not True"),
        ("lr_too_high", 2**60, "not 1152921504606846976"),
    ],
)
def test_provocation_that_is_none_is_rejected(name: Any, seed: Any, words: str) -> None:
    with pytest.raises(ProvocationError, match=words):
        apply_to_config({}, name, seed)


def test_claim_without_the_fault_is_rejected() -> None:
    honest = apply_to_config({}, "lr_too_high", 3)
    assert fault_of(honest) is not None
    with pytest.raises(ProvocationError, match=r"needs lr = 4.08, but the configuration has 0.05"):
        fault_of({**honest, "lr": 0.05})
    with pytest.raises(ProvocationError, match="needs lr"):
        fault_of({**honest, "provocation_seed": 4})
    with pytest.raises(ProvocationError, match="provocation_seed is set without a provocation"):
        fault_of({"provocation_seed": 4})


def test_run_records_its_fault_before_its_first_epoch() -> None:
    run = start(apply_to_config({}, "exploding_loss", 3))
    run.provoke()
    (_, event) = run.collect_events()
    assert type(event) is Run.Provoked
    assert (event.name, event.seed, event.expects) == ("exploding_loss", 3, ["R7"])
    assert event.changes == {"loss": {"factor": 3180.0, "first": 0, "epochs": 3}}
    run.measure_epoch(measured(0), {})
    assert run.provocation == "exploding_loss"


def test_provocation_that_is_not_as_configured_is_rejected() -> None:
    with pytest.raises(InvariantError, match="names no provocation"):
        start({}).provoke()
    with pytest.raises(ProvocationError, match="needs lr"):
        start({"provocation": "lr_too_high", "provocation_seed": 3}).provoke()
    silent = start(apply_to_config({}, "infinite_loss", 3))
    with pytest.raises(
        InvariantError, match=r"names the provocation 'infinite_loss'.*None is recorded"
    ):
        silent.measure_epoch(measured(0), {})
    twice = start(apply_to_config({}, "infinite_loss", 3))
    twice.provoke()
    with pytest.raises(InvariantError, match="once, before its first epoch"):
        twice.provoke()
    healthy = start({})
    healthy.measure_epoch(measured(0), {})
    with pytest.raises(InvariantError, match="once, before its first epoch"):
        healthy.provoke()


def test_page_lists_the_catalogue_with_its_ranges() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith("| `") and line.split("`")[1] in CATALOGUE]
    assert shown == [
        f"| `{each.name}` | {each.title} | {each.ranges} | {' or '.join(each.expects)} |"
        for each in CATALOGUE.values()
    ]
