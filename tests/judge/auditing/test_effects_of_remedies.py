"""A remedy is what changed: decisions that were applied and changed nothing answer nothing.

Each attack stands beside an honest run in the same world, with the same settings.
"""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from told_training import Answers, World, act, defer, healthy, tell

from aggregates.decisions import Decision, Said, Settings
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.coverage import Coverage, Violation
from judge.auditing.scores import process_score

SLOW: dict[str, Any] = {"lr": 1e-5, "batch_size": 64}
R1_FIRES_LOW, R1_FIRES_HIGH = 20.0, 1.0  # update ratio of a learning rate of 1


def updates(ratio: float) -> World:
    """Return a world in which steps are as long as the learning rate makes them."""

    def world(epoch: int, _: Settings, __: ModelSpec, rate: float) -> dict[str, Any]:
        return healthy(epoch, ratio=ratio * rate)

    return world


LOW, HIGH = updates(R1_FIRES_LOW), updates(R1_FIRES_HIGH)


def cycle(low: float, high: float, epochs: int) -> Answers:
    """Answer every firing with a cycle between multiples of the learning rate in force."""

    def answers(run: Run, now: Settings) -> Sequence[Decision]:
        rate = SLOW["lr"]
        return [act("R1", "cycle_lr", lr_min=low * rate, lr_max=high * now.lr, epochs=epochs)]

    return answers


def once(answers: Answers) -> Answers:
    """Answer the first firing, and defer from then on."""

    def first(run: Run, now: Settings) -> Sequence[Decision | Said]:
        return [defer(rule) for rule in run.fired()] if run.decisions else answers(run, now)

    return first


def raise_rate(factor: float) -> Answers:
    return lambda _, now: [act("R1", "increase_lr", lr=factor * now.lr)]


def raise_and_lower(run: Run, now: Settings) -> Sequence[Decision]:
    return [
        act("R1", "increase_lr", lr=3 * now.lr),
        act("R1", "decrease_lr", lr=now.lr),
    ]


@pytest.mark.parametrize(
    "answers",
    [
        cycle(1.0, 3.0, 1_000),
        once(cycle(1.0, 10.0, 1_000)),
        once(cycle(1.0, 10.0, 200)),
        once(cycle(0.01, 3.0, 40)),
        raise_rate(1.001),
        raise_and_lower,
    ],
    ids=["slow", "slow and high", "less slow", "starts low", "factor", "undone at once"],
)
def test_remedy_that_leaves_the_learning_rate_where_it_was_is_rejected(
    tmp_path: Path, answers: Answers
) -> None:
    told = tell(tmp_path, LOW, answers, **SLOW)
    assert ("unresolved_deferral", "R1", 2) in told.kinds
    assert not told.coverage.remedied
    assert told.score <= 0.5


@pytest.mark.parametrize(
    "answers",
    [raise_rate(3.0), raise_rate(10.0), *(cycle(1.0, 3.0, epochs) for epochs in range(1, 15))],
)
@pytest.mark.sampled(3)
def test_remedy_that_raises_the_learning_rate_counts(tmp_path: Path, answers: Answers) -> None:
    told = tell(tmp_path, LOW, answers, **SLOW)
    assert told.violations == ()
    assert told.coverage.remedied
    assert told.score == 1.0


@pytest.mark.parametrize("undone", [True, False])
def test_change_that_the_next_epoch_undoes_is_rejected(tmp_path: Path, undone: bool) -> None:
    def world(epoch: int, _: Settings, __: ModelSpec, rate: float) -> dict[str, Any]:
        return healthy(epoch, ratio=R1_FIRES_LOW * rate, dead={"act": 6})  # R5 fires on

    def answers(run: Run, now: Settings) -> Sequence[Decision]:
        if run.epoch == 2:
            return [act("R1", "increase_lr", lr=3 * now.lr), defer("R5")]
        if run.epoch == 3 and undone:
            return [act("R1", "decrease_lr", lr=now.lr / 3), defer("R5")]
        return [defer(rule) for rule in run.fired()]

    told = tell(tmp_path, world, answers, **SLOW)
    assert (("unresolved_deferral", "R1", 6) in told.kinds) is undone
    assert (("direction", "R1", 3) in told.kinds) is undone
    assert told.coverage.remedied is not undone


def test_cycle_that_never_comes_near_the_largest_rate_excuses_nothing_is_rejected(
    tmp_path: Path,
) -> None:
    def slow(_: Run, __: Settings) -> Sequence[Decision]:
        return [act("R1", "cycle_lr", lr_min=1.0, lr_max=10.0, epochs=1_000)]

    world = updates(2e-4)
    told = tell(tmp_path / "cheat", world, once(slow), epochs=14, lr=1.0)
    assert ("unresolved_deferral", "R1", 2) in told.kinds
    assert ("unresolved_deferral", "R1", 5) in told.kinds
    honest = tell(tmp_path / "honest", world, raise_rate(3.0), epochs=14, lr=1.0)
    assert honest.violations == ()


def freeze(_: Run, now: Settings) -> Sequence[Decision]:
    return [act("R1", "warm_up_lr", lr=now.lr / 3, epochs=1_000)]


def warm_up(epochs: int) -> Answers:
    return lambda _, now: [act("R1", "warm_up_lr", lr=now.lr / 3, epochs=epochs)]


def test_warm_up_that_stops_the_training_is_rejected(tmp_path: Path) -> None:
    told = tell(tmp_path / "cheat", HIGH, once(freeze), lr=0.03)
    assert not told.coverage.remedied
    for epochs in (1, 3, 7):
        honest = tell(tmp_path / str(epochs), HIGH, warm_up(epochs), lr=0.03)
        assert honest.coverage.remedied, epochs


def lower(_: Run, now: Settings) -> Sequence[Decision]:
    return [act("R1", "decrease_lr", lr=now.lr / 3)]


@pytest.mark.parametrize("warm_up_epochs", [0, 1, 4])
def test_lower_rate_counts_whatever_schedule_the_run_started_with(
    tmp_path: Path, warm_up_epochs: int
) -> None:
    world = updates(2.0 if warm_up_epochs == 4 else 1.0)
    told = tell(tmp_path, world, lower, lr=0.03, warm_up_epochs=warm_up_epochs)
    assert (told.violations, told.coverage.remedied) == ((), True)


# The bound on the gradient


def clipped(norm: float) -> World:
    """Return a world in which steps are as long as rate and clipped gradient make them."""

    def world(epoch: int, now: Settings, _: ModelSpec, rate: float) -> dict[str, Any]:
        bound = 1.0 if now.clip_norm is None else min(1.0, now.clip_norm / norm)
        return healthy(epoch, ratio=R1_FIRES_HIGH * rate * bound, norm=norm)

    return world


def lower_and_loosen(factor: float, loosen: float) -> Answers:
    """Lower the rate by a factor, and let gradients be longer by another."""

    def answers(run: Run, now: Settings) -> Sequence[Decision]:
        assert now.clip_norm is not None
        bound = min(now.clip_norm * loosen, 1e6)
        return [
            act("R1", "decrease_lr", lr=now.lr / factor, clip_norm=bound)
            if rule == "R1"
            else defer(rule)
            for rule in run.fired()
        ]

    return answers


@pytest.mark.parametrize("loosen", [3.0, 100.0, 1e6])
@pytest.mark.sampled(3)
def test_lower_rate_whose_looser_clipping_makes_steps_longer_is_rejected(
    tmp_path: Path, loosen: float
) -> None:
    world = clipped(100.0)
    settings: dict[str, Any] = {"lr": 9.0, "clip_norm": 0.5, "waived": ["R7"]}
    told = tell(tmp_path / "cheat", world, once(lower_and_loosen(3.0, loosen)), **settings)
    assert ("unresolved_deferral", "R1", told.run.decisions[0].epoch) in told.kinds
    assert not told.coverage.remedied
    for factor, bound in ((3.0, 1.0), (3.0, 0.1), (10.0, 2.0)):
        honest = tell(
            tmp_path / f"{factor} {bound}", world, lower_and_loosen(factor, bound), **settings
        )
        assert (honest.violations, honest.coverage.remedied) == ((), True)


def test_bound_that_no_gradient_reaches_may_be_any(tmp_path: Path) -> None:
    told = tell(
        tmp_path, clipped(0.01), once(lower_and_loosen(10.0, 100.0)), lr=0.03, clip_norm=0.5
    )
    assert told.coverage.remedied


# The batch


def clear_gradient(epoch: int, now: Settings, _: ModelSpec, __: float) -> dict[str, Any]:
    """R2 fires high while a step takes 128 examples or more."""
    product = 0.9 if now.batch_size * now.accumulation >= 128 else 0.5
    return healthy(epoch, probes=[[product + 0.01 * (n % 2), 1.0] for n in range(20)])


def halve(_: Run, now: Settings) -> Sequence[Decision]:
    return [act("R2", "decrease_batch_size", batch_size=now.batch_size // 2)]


def halve_and_accumulate(run: Run, now: Settings) -> Sequence[Decision]:
    more = act("R2", "accumulate_gradients", accumulation=now.accumulation * 2)
    return [*halve(run, now), more] if now.batch_size > 1 else [defer("R2")]


def test_batches_that_are_halved_and_accumulated_again_are_rejected(tmp_path: Path) -> None:
    told = tell(tmp_path / "cheat", clear_gradient, halve_and_accumulate, batch_size=128)
    assert ("unresolved_deferral", "R2", 2) in told.kinds
    assert not told.coverage.remedied
    honest = tell(tmp_path / "honest", clear_gradient, halve, batch_size=128)
    assert (honest.violations, honest.coverage.remedied) == ((), True)


# The model


def dead_in(*blocks: str) -> World:
    def world(epoch: int, _: Settings, spec: ModelSpec, __: float) -> dict[str, Any]:
        flat = {f"blocks.{n}" for n, b in enumerate(spec.blocks) if b.activation == "relu"}
        names = [f"{block}.act{n}" for block in blocks for n in (1, 2)]
        dead = {name: 6 if name.rsplit(".", 1)[0] in flat else 0 for name in names}
        return healthy(epoch, dead={**dead, "act": 0})

    return world


def swap(**params: Any) -> Answers:
    return lambda run, _: [act("R5", "swap_activation", **params)]


def there_and_back(run: Run, _: Settings) -> Sequence[Decision]:
    return [
        act("R5", "swap_activation", to="leaky_relu"),
        act("R5", "swap_activation", to="relu"),
    ]


@pytest.mark.parametrize(
    "answers",
    [there_and_back, swap(to="gelu", block=1)],
    ids=["there and back", "where nothing is dead"],
)
def test_swap_that_reaches_no_dead_unit_is_rejected(tmp_path: Path, answers: Answers) -> None:
    model: dict[str, Any] = {"blocks": 2, "activation": "relu"}

    told = tell(tmp_path / "cheat", dead_in("blocks.0"), once(answers), **model)
    assert ("unresolved_deferral", "R5", 2) in told.kinds
    assert not told.coverage.remedied
    for honest in (swap(to="gelu"), swap(to="leaky_relu", block=0)):
        found = tell(tmp_path / str(id(honest)), dead_in("blocks.0"), honest, **model)
        assert (found.violations, found.coverage.remedied) == ((), True)


def vanishing(epoch: int, _: Settings, spec: ModelSpec, __: float) -> dict[str, Any]:
    """R6 fires until the model is normalised and has shortcuts."""
    open_to_gradients = all(b.norm != "none" and b.residual for b in spec.blocks)
    return healthy(epoch) if open_to_gradients else healthy(epoch, norm=1e-9)


def in_turns(run: Run, _: Settings) -> Sequence[Decision]:
    to = ("gelu", "leaky_relu")[len([p for p in run.decisions if p.decision.acts]) % 2]
    return [act("R6", "swap_activation", to=to) if r == "R6" else defer(r) for r in run.fired()]


def open_up(run: Run, _: Settings) -> Sequence[Decision]:
    done = [past.decision.direction for past in run.decisions]
    todo = next(d for d in ("swap_activation", "add_norm", "add_residual") if d not in done)
    params = {"to": "gelu"} if todo == "swap_activation" else {}
    return [act("R6", todo, **params) if rule == "R6" else defer(rule) for rule in run.fired()]


def test_activations_that_are_swapped_in_turns_remedy_nothing_is_rejected(tmp_path: Path) -> None:
    model: dict[str, Any] = {"norm": "none", "residual": False, "epochs": 24}
    told = tell(tmp_path / "cheat", vanishing, in_turns, **model)
    assert [kind for kind in told.kinds if kind[:2] == ("unresolved_deferral", "R6")]
    assert told.score < 1.0
    honest = tell(tmp_path / "honest", vanishing, open_up, **model)
    assert (honest.violations, honest.coverage.remedied) == ((), True)


# Two voices


def two_voices(_: Run, now: Settings) -> Sequence[Said]:
    return [
        Said(act("R1", "decrease_lr", lr=now.lr / 10), "policy"),
        Said(act("R1", "decrease_lr", lr=now.lr / 100), "human"),
    ]


def test_one_rule_answered_by_two_voices_in_an_epoch_is_rejected(tmp_path: Path) -> None:
    told = tell(tmp_path / "cheat", HIGH, two_voices, epochs=5, lr=0.03)
    assert [(v.kind, v.rule, v.epoch, v.emitter) for v in told.violations] == [
        ("padding", "R1", 2, "human"),
        ("direction", "R1", 2, "human"),
    ]
    assert "together change the learning rate by a factor of 100" in told.violations[1].detail
    honest = tell(
        tmp_path / "honest", HIGH, lambda run, now: two_voices(run, now)[:1], epochs=5, lr=0.03
    )
    assert honest.violations == ()


# Foot-dragging


def raise_and_forget(factor: float) -> Answers:
    """Raise the rate at each firing of R1, and leave R5 to itself."""
    return lambda run, now: [
        act("R1", "increase_lr", lr=min(factor * now.lr, 10.0))
        for rule in run.fired()
        if rule == "R1"
    ]


def test_remedies_in_many_small_steps_weigh_no_more_than_in_few_large_ones(tmp_path: Path) -> None:
    def world(epoch: int, _: Settings, __: ModelSpec, rate: float) -> dict[str, Any]:
        return healthy(epoch, ratio=20.0 * rate, dead={"act": 6 if epoch in (2, 3, 4) else 0})

    many = tell(tmp_path / "many", world, raise_and_forget(3.0), epochs=20, lr=1e-7)
    few = tell(tmp_path / "few", world, raise_and_forget(10.0), epochs=20, lr=1e-7)
    firings = [sum(rule == "R1" for rule, _ in told.coverage.firings) for told in (many, few)]
    assert firings[0] > firings[1] + 1
    missing = [("missing_decision", "R5", 4)]
    assert [v for v in many.kinds if v[1] == "R5"] == [v for v in few.kinds if v[1] == "R5"]
    assert [v for v in few.kinds if v[1] == "R5"] == missing
    assert many.score <= few.score < 1.0


def test_firings_that_are_answered_well_add_one_obligation_for_each_episode() -> None:
    """Simulated over many stories: what a rule can add is bounded by the length of the run."""
    draws = random.Random(7)
    violation = Violation("missing_decision", "R5", 0, None, "policy", "")
    for _ in range(300):
        epochs, often = draws.randrange(1, 60), draws.random()
        fired = sorted(epoch for epoch in range(epochs) if draws.random() < often)
        apart = [1_000, *(now - before for before, now in pairwise(fired))]
        places = {("R1", at): gap > 8 for at, gap in zip(fired, apart, strict=False)}
        coverage = Coverage(
            (violation,), {("R5", 0): True, **places}, 0, (), tested=0, remedied=False
        )
        added = coverage.obligations([violation]) - 1
        assert added == sum(places.values()) <= -(-epochs // 9)
        assert process_score(1, 1 + added) <= 1 - 1 / (1 + -(-epochs // 9))
