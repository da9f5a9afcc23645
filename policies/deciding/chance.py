"""The policy that draws its answers at random: a baseline that a playbook must beat.

For each due rule it draws, evenly, one of the directions that are allowed on the rule's side, or to
defer; parameters are drawn within the bounds of aggregates.decisions. The draws follow from the
policy's seed, the epoch and the losses measured in it. They do not depend on the run's id, so the
same training gets the same answers again, and another training gets others.
I/O: none.
"""

import math
import random
from typing import Any

from aggregates.decisions import Decision, Observation, batch_band
from aggregates.playbook import (
    DEFER,
    FACTORS,
    FRESH,
    MAX_ACCUMULATION,
    MAX_BATCH_SIZE,
    MAX_LR,
    MIN_LR,
)
from aggregates.spec import ACTIVATIONS
from policies.offers import band

_EPOCHS = (1, 4)  # of a warm-up or a cycle


class RandomPolicy:
    """Answers every due rule with an allowed direction drawn by chance, or with no action."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name, "seed": self.seed}

    def decide(self, observation: Observation) -> list[Decision]:
        """Return one decision for each due rule, in the order of precedence."""
        latest = observation.history[-1] if observation.history else None
        losses = None if latest is None else (latest.train_loss, latest.val_loss)
        draws = random.Random(f"{self.seed} {observation.epoch} {losses}")  # noqa: S311 - no secret
        return [_draw(draws, rule, observation) for rule in observation.due]


def _draw(draws: random.Random, rule: str, seen: Observation) -> Decision:
    side = seen.evaluations[rule].side or ""
    direction = draws.choice((DEFER, *seen.directions(rule)))
    params = _params(draws, rule, side, direction, seen)
    if direction == DEFER or params is None:
        return Decision.of((rule,), DEFER, {}, f"{rule} is left alone: so it was drawn.")
    return Decision.of((rule,), direction, params, f"{rule}: {direction} was drawn.")


def _params(
    draws: random.Random, rule: str, side: str, direction: str, seen: Observation
) -> dict[str, Any] | None:
    """Return parameters within the bounds, None where the bounds leave no room."""
    lr, settings = seen.settings.lr, seen.settings
    within = map(math.log, FACTORS["R1"])
    factor = FACTORS["R7"][0] if rule == "R7" else math.exp(draws.uniform(*within))
    match direction:
        case "decrease_lr" | "warm_up_lr" | "increase_lr":
            moved = lr * factor if direction == "increase_lr" else lr / factor
            params: dict[str, Any] = {"lr": moved}
            if direction == "warm_up_lr":
                params["epochs"] = draws.randint(*_EPOCHS)
            if rule == "R7":
                drawn = side == "not_finite" and draws.random() < 0.5
                params["reinitialise"] = drawn and seen.may_reset
            return params if MIN_LR <= moved <= MAX_LR else None
        case "cycle_lr":
            ends = (lr, lr * factor) if side == "low" else (lr / factor, lr)
            params = {"lr_min": ends[0], "lr_max": ends[1], "epochs": draws.randint(*_EPOCHS)}
            return params if ends[0] >= MIN_LR and ends[1] <= MAX_LR else None
        case "increase_batch_size":
            size = settings.batch_size * 2
            return {"batch_size": size} if size <= MAX_BATCH_SIZE else None
        case "decrease_batch_size":
            even = settings.batch_size % 2 == 0
            return {"batch_size": settings.batch_size // 2} if even else None
        case "accumulate_gradients":
            more = settings.accumulation * 2
            return {"accumulation": more} if more <= MAX_ACCUMULATION else None
        case "go_back" if rule == "R2":
            sizes = batch_band(seen.evaluations[rule], settings, seen.rules)
            if sizes is None:
                return None
            size = round(math.exp(draws.uniform(*map(math.log, sizes))))
            return {"epoch": draws.choice(seen.back), "lr": lr, "batch_size": size}
        case "go_back" if side == "guessing":
            moved = lr * factor if draws.random() < 0.5 else lr / factor
            return {"epoch": FRESH, "lr": moved} if MIN_LR <= moved <= MAX_LR else None
        case "go_back":
            rates = band(seen) if rule == "R1" else (lr / 10, lr)
            if rates is None:
                return None
            params = {
                "epoch": draws.choice(seen.back),
                "lr": math.exp(draws.uniform(*map(math.log, rates))),
            }
            if rule == "R7":
                params["lr"] = min(params["lr"], lr / FACTORS["R1"][0])
            return params if MIN_LR <= params["lr"] <= MAX_LR else None
        case "try_rates":
            up = side == "low" or (side == "guessing" and draws.random() < 0.5)
            other = lr * factor if up else lr / factor
            epoch = FRESH if side == "guessing" else draws.choice(seen.back)
            return {"epoch": epoch, "rates": [lr, other]} if MIN_LR <= other <= MAX_LR else None
        case "widen":
            return {"factor": 2}
        case "swap_activation":
            now = seen.spec.blocks[-1].activation
            return {"to": draws.choice([each for each in ACTIVATIONS if each != now])}
    return {}
