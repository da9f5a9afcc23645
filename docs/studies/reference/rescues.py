"""Makers of reference tasks that are rescues: what is wrong with a training.

The same random numbers give the same task, byte for byte.
I/O: none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from aggregates.provocations import apply_to_config
from aggregates.rules import FIRST_RULES
from aggregates.spec import MAX_WIDTH
from judge.reference.situations import digits
from studies.reference.making import Made, Maker


def _rescue(
    title: str, categories: tuple[str, ...], scenario: Callable[[Random, str], dict[str, Any]]
) -> Maker:
    def make(rng: Random, difficulty: str) -> Made:
        return Made(
            kind="rescue",
            scorer="rescue",
            expected={"scenario": {"seed": rng.randrange(2**31), **scenario(rng, difficulty)}},
            categories=("rescue", *categories),
            description=title,
            outcome="every rule is silent in the end, and the accuracy is as it should be",
            files={},
        )

    return make


def _near(rng: Random, value: float) -> float:
    return digits(value * rng.uniform(0.9, 1.1))


_ONLY_R1 = {"profile": "document", "waived": ["R2", "R3", "R4", "R5", "R6"]}
RESCUES: Mapping[str, Maker] = {
    "rescue-lr-high": _rescue(
        "The learning rate is far too high",
        ("r1",),
        lambda rng, d: {"lr": _near(rng, {"easy": 0.5, "medium": 1.2}.get(d, 4.0)), "epochs": 30},
    ),
    "rescue-lr-low": _rescue(
        "The learning rate is far too low",
        ("r1",),
        lambda rng, d: {
            "lr": _near(rng, {"easy": 8e-4, "medium": 4e-4}.get(d, 3e-5)),
            "epochs": 50,
            "target": 0.6,
        },
    ),
    "rescue-exploding": _rescue(
        "Gradients explode at this learning rate",
        ("r7",),
        lambda rng, d: {
            "lr": _near(rng, 0.3 if d == "easy" else 1.5),
            "stable_lr": 0.06,
            "good_lr": 0.02,
            "epochs": 40,
        },
    ),
    "rescue-lost": _rescue(
        "The weights are lost in the first epoch, and again after too small a change",
        ("r7",),
        lambda rng, _: {"lr": _near(rng, 5.0), "lost_lr": 0.7, "stable_lr": 0.2, "epochs": 40},
    ),
    "rescue-vanishing": _rescue(
        "Gradients vanish in a deep model: without norms, without shortcuts, or for its activation",
        ("r6",),
        lambda rng, d: {
            "blocks": rng.randint(11, 13),
            **{
                "easy": {"norm": "none", "shrink_unnormed": 0.5},
                "medium": {"residual": False, "shrink_plain": 0.68, "norm": "none"},
                "hard": {
                    "norm": "none",
                    "residual": False,
                    "activation": "leaky_relu",
                    "shrink_unnormed": 0.6,
                    "shrink_plain": 0.66,
                    "shrink_activation": 0.7,
                },
            }[d],
        },
    ),
    "rescue-dead": _rescue(
        "Too many units never rise above zero",
        ("r5",),
        lambda rng, _: {"dead": round(rng.uniform(0.4, 0.6), 3)},
    ),
    "rescue-capacity": _rescue(
        "The model is too small for its task",
        ("r4",),
        lambda _, d: {
            "capacity": {"easy": 80, "medium": 180}.get(d, 420),
            "blocks": 2,
            "epochs": {"easy": 30, "medium": 45}.get(d, 55),
        },
    ),
    "rescue-batch-small": _rescue(
        "Batches are too small, and memory is soon full",
        ("r2",),
        lambda _, d: {
            "batch_size": 4 if d == "hard" else 8,
            "max_batch_size": 8 if d == "hard" else 512,
            "epochs": 40,
            "good_batch": 96,
        },
    ),
    "rescue-batch-large": _rescue(
        "Batches are larger than the noise asks for",
        ("r2",),
        lambda rng, _: {"batch_size": 512, "good_batch": rng.choice((16, 24)), "epochs": 40},
    ),
    "rescue-overfitting": _rescue(
        "From some epoch on nothing helps but stopping",
        ("r3",),
        lambda rng, _: {"overfits_from": rng.randint(10, 16), "epochs": 70},
    ),
    "rescue-plateau": _rescue(
        "The learning rate that led here is too coarse to go on, and one far below it is too slow",
        ("r1",),
        lambda rng, _: {
            "lr": 0.3,
            "good_lr": 0.1,
            "coarse_lr": _near(rng, 0.15),
            "waived": ["R4"],
            "target": 0.9,
            "epochs": 15,
        },
    ),
    "rescue-two-faults": _rescue(
        "Gradients explode, and the model is too small besides",
        ("r7", "r4", "precedence"),
        lambda rng, _: {
            "lr": _near(rng, 0.5),
            "stable_lr": 0.06,
            "good_lr": 0.03,
            "capacity": 150,
            "epochs": 70,
        },
    ),
    "rescue-blocked": _rescue(
        "The model cannot grow any more, and behind this batches are too small",
        ("r4", "r2", "precedence", "limits"),
        lambda *_: {
            "width": MAX_WIDTH,
            "blocks": 6,
            "capacity": 40 * MAX_WIDTH,
            "hopeless": ["R4"],
            "batch_size": 8,
            "good_batch": 96,
            "target": 0.1,
            "epochs": 40,
        },
    ),
    "rescue-lag": _rescue(
        "The remedy works at once, and only the average lags behind: it is not given twice",
        ("r1", "false_alarms"),
        lambda rng, d: {
            **_ONLY_R1,
            "lr": 0.39 if d == "medium" else _near(rng, 2.5),  # after four epochs, or many
            "noise": 0.002,
            "most_false_alarms": 0,
            "epochs": 45,
        },
    ),
    "rescue-nothing": _rescue(
        "Nothing is wrong, and nothing is to be done",
        ("false_alarms",),
        lambda *_: {"epochs": 30, "noise": 0.3, "most_false_alarms": 0},
    ),
}
_FOR_NETWORKS = {"easy": "rescue-lr-high", "medium": "rescue-two-faults", "hard": "rescue-lag"}


def _for_network(rng: Random, difficulty: str) -> Made:
    """Ask the network policy instead of the playbook: so its weights are measured."""
    made = RESCUES[_FOR_NETWORKS[difficulty]](rng, difficulty)
    return replace(made, kind="network", categories=("network", *made.categories))


NETWORKS: Mapping[str, Maker] = {"network": _for_network}


_SMALL = {
    "train_examples": 200,
    "val_examples": 80,
    "test_examples": 20,
    "channels": 6,
    "width": 6,
    "stem_stride": 4,
    "batch_size": 20,
    "threads": 1,
    "warm_up_epochs": 0,
}


def _training(title: str, fault: str, rule: str, *, epochs: int = 9) -> Maker:
    def make(rng: Random, _: str) -> Made:
        waived = [name for name in FIRST_RULES if name not in (rule, "R7")]
        about = {**_SMALL, "epochs": epochs, "seed": rng.randrange(2**31), "waived": waived}
        config = apply_to_config(about, fault, rng.randrange(2**31))
        return Made(
            kind="rescue",
            scorer="trained",
            expected={"config": config, "quiet": 3},
            categories=("rescue", "training", rule.lower()),
            description=title,
            outcome="the rule that the fault belongs to is silent in the last epochs",
            files={},
        )

    return make


TRAININGS: Mapping[str, Maker] = {
    # From epoch 5 on the CPU's rounding decides whether R1 still fires on a model that was lost: so
    # the training ends before a run that only waits can have three quiet epochs.
    "training-lr-high": _training(
        "A model is really trained, at a learning rate that is far too high",
        "lr_too_high",
        "R1",
        epochs=7,
    ),
    "training-lost": _training(
        "A model is really trained, and its loss is infinite for an epoch", "infinite_loss", "R7"
    ),
    "training-lr-low": _training(
        "A model is really trained, at a learning rate that is far too low",
        "lr_too_low",
        "R1",
        epochs=13,
    ),
}
