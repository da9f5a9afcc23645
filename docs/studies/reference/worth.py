"""Reference tasks that ask what decisions are worth: real, small trainings that went wrong.

A seed draws a model, its data, and a fault of the catalogue. The training is done under nobody,
once with the fault and once without, and once more under the candidate. *Recovered* is the share of
what the fault costs that the candidate wins back: (candidate - nothing) / (healthy - nothing), of
the validation accuracy of the weights with the best validation loss. A start in ten is healthy:
there the candidate may lose nothing.

I/O: trains small models in this process.  Units: accuracies and shares from 0 to 1.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from aggregates.provocations import apply_to_config
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import Ask, Score
from studies.reference.making import Made, Maker

if TYPE_CHECKING:
    from aggregates.run import Run
    from studies.reference.trainings import Decide

__all__ = ["FAULTS", "WORTH", "Worth", "draw_start", "recovered", "worth_of"]

FAULTS: Mapping[str, tuple[str, ...]] = {  # of the catalogue, by what is wrong
    "batch": ("batch_too_large",),
    "loss": ("exploding_loss", "infinite_loss"),
    "rate": ("lr_too_high", "lr_too_low"),
    "weights": ("init_too_large", "init_too_small", "dead_activations"),
}
HEALTHY = 0.1  # share of the starts that have no fault
LEAST_COST = 0.08  # of accuracy: a start whose fault costs less is followed by the next one
HARM = 0.05  # of accuracy: what a healthy start may lose by chance
STARTS = 5  # that a seed draws; the first whose fault costs something counts
CHANCE = 0.1  # accuracy of guessing among the ten classes of `shapes`
_SIZE: Mapping[str, Any] = {
    "profile": "relative",
    "epochs": 8,
    "train_examples": 320,
    "val_examples": 200,
    "test_examples": 20,
    "blocks": 1,
    "stem_stride": 4,
    "threads": 1,
}
_CHANNELS, _BATCHES, _RATES = (8, 12), (16, 32), (0.03, 0.05, 0.08)


class Worth:
    """What one start's training came to, with the twins that it is measured by."""

    def __init__(self, start: Mapping[str, Any], own: float) -> None:
        self.fault: str | None = start["fault"]
        self.healthy = _accuracy_of_nobody(json.dumps(start["healthy"], sort_keys=True))
        self.nothing = _accuracy_of_nobody(json.dumps(start["config"], sort_keys=True))
        self.own = own

    @property
    def share(self) -> float:
        """What was recovered, from 0 to 1; of a healthy start, what was kept."""
        if self.fault is None:
            return min(1.0, (self.own + HARM) / self.healthy) if self.healthy else 1.0
        return min(1.0, max(0.0, (self.own - self.nothing) / (self.healthy - self.nothing)))

    @property
    def success(self) -> bool:
        """Whether half was recovered; of a healthy start, whether all was kept."""
        return self.share >= (1.0 if self.fault is None else 0.5)


def draw_start(rng: Random, faults: Sequence[str]) -> dict[str, Any]:
    """Draw a model, its data, and what is wrong with its training, as plain values."""
    channels = rng.choice(_CHANNELS)
    healthy = {
        **_SIZE,
        "channels": channels,
        "width": channels,
        "batch_size": rng.choice(_BATCHES),
        "lr": rng.choice(_RATES),
        "seed": rng.randrange(2**31),
    }
    fault, seed = rng.choice(faults), rng.randrange(2**31)
    return {"fault": fault, "healthy": healthy, "config": apply_to_config(healthy, fault, seed)}


def worth_of(starts: Sequence[Mapping[str, Any]], decide: "Decide") -> Worth:
    """Train the first start whose fault costs something; the last, if none of them does."""
    for start in starts:
        worth = Worth(start, CHANCE)
        if start["fault"] is None or worth.healthy - worth.nothing >= LEAST_COST:
            break
    else:  # nothing to recover: then nothing is to be lost
        worth.fault, start = None, {**start, "config": start["healthy"]}
    worth.own = _accuracy_of(start["config"], decide)
    return worth


def recovered(task: Task, ask: Ask) -> Score:
    """Expect {"starts": [{"fault", "healthy", "config"}, ...]}: half of the cost is won back.

    `agreement` is the share.
    """
    from studies.reference.trainings import Asking  # noqa: PLC0415 - torch is slow to import

    asking = Asking(ask)
    worth = worth_of(task.expected["starts"], asking.decide)
    lost = f"{worth.share:.2f} of what {worth.fault or 'nothing'} costs is recovered"
    problem = asking.problems[0] if asking.problems else None if worth.success else lost
    return Score(
        success=problem is None,
        validation_failures=len(asking.problems),
        metrics={"agreement": round(worth.share, 3)},
        problem=problem,
    )


@lru_cache(maxsize=64)
def _accuracy_of_nobody(config: str) -> float:
    return _accuracy_of(json.loads(config), lambda _: ())


def _accuracy_of(config: Mapping[str, Any], decide: "Decide") -> float:
    """Return the validation accuracy where the validation loss was lowest."""
    from studies.reference.trainings import train_with  # noqa: PLC0415 - torch is slow to import

    run: Run = train_with(config, decide)
    skills = {each.val_loss: each.skill for each in run.history if math.isfinite(each.val_loss)}
    skill = skills[min(skills)] if skills else None
    return CHANCE + (skill or 0.0) * (1 - CHANCE)


def _make(kind: str, *what: str) -> Maker:
    def make(rng: Random, _: str) -> Made:
        starts = [draw_start(rng, FAULTS[rng.choice(what)]) for _ in range(STARTS)]
        if rng.random() < HEALTHY:
            starts = [{**starts[0], "fault": None, "config": starts[0]["healthy"]}]
        return Made(
            kind=kind,
            scorer="recovered",
            expected={"starts": starts},
            categories=("worth", kind, *what),
            description="A small model is really trained, and mostly something is wrong with it",
            outcome="half of what the fault costs is won back; a healthy training loses nothing",
            files={},
        )

    return make


WORTH: Mapping[str, Maker] = {
    "worth": _make("default", *FAULTS),
    "worth-network": _make("network", *FAULTS),
    **{f"worth-{what}": _make("default", what) for what in FAULTS},
}
