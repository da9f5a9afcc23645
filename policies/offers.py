"""The allowed answers to a fired rule: its directions, each with its allowed values.

A model that is told the values need not divide. The numbers are the playbook's; whether an answer
keeps to them is decided by aggregates.decisions alone.
I/O: none.  Units: as in aggregates.decisions.
"""

from aggregates.decisions import Observation, batch_band, mean_rate
from aggregates.playbook import FACTORS, MAX_ACCUMULATION, MAX_LR, MIN_LR
from aggregates.situation import at_least, at_most, within
from aggregates.spec import ACTIVATIONS, MAX_BLOCKS, MAX_WIDTH, BlockSpec
from aggregates.trials import MAX_TRIALS

_LEAST, _MOST = FACTORS["R1"]
_MAY_RESET = "may have reinitialise (fresh weights)"
_EPOCHS = "epochs a whole number from 1 to 1000"


def offers(rule: str, seen: Observation) -> dict[str, str | None]:
    """Return the directions for a fired rule, each with its parameters in words.

    None stands for a direction that is at its limit: no value is left for it.
    """
    side = seen.evaluations[rule].side or ""
    return {
        direction: parameters(rule, side, direction, seen) for direction in seen.directions(rule)
    }


def parameters(rule: str, side: str, direction: str, seen: Observation) -> str | None:
    """Return the parameters of one direction in words, None where no value is left for it."""
    lr, size = seen.settings.lr, seen.settings.batch_size
    match direction:
        case "decrease_lr" if rule == "R7":
            also = "clip_norm 1.0 is usual"
            if seen.may_reset:
                lost = side == "not_finite"
                also += f"; {'the weights are lost: reinitialise true' if lost else _MAY_RESET}"
            return f"lr exactly {lr / 10!r}; {also}" if lr / 10 >= MIN_LR else None
        case "decrease_lr" | "warm_up_lr":
            found = _between(max(lr / _MOST, MIN_LR), lr / _LEAST)
            clipped = f"; may have clip_norm{f'; {_MAY_RESET}' * seen.may_reset}"
            more = f"; {_EPOCHS}" if direction == "warm_up_lr" else clipped
            return found and f"lr {found}{more}"
        case "increase_lr":
            found = _between(lr * _LEAST, min(lr * _MOST, MAX_LR))
            return found and f"lr {found}"
        case "cycle_lr" if side == "low":
            found = _between(lr * _LEAST, min(lr * _MOST, MAX_LR))
            return found and f"lr_max {found}; lr_min below it; {_EPOCHS}"
        case "cycle_lr":
            found = _between(max(lr / _MOST, MIN_LR), lr / _LEAST)
            return found and f"lr_min {found}; lr_max above it and at most {lr!r}; {_EPOCHS}"
        case "decrease_batch_size":
            return None if size % 2 else f"batch_size exactly {size // 2}"
        case "increase_batch_size" | "accumulate_gradients":
            if 2 * size * seen.settings.accumulation > seen.train_examples:
                return None  # no step takes more than there is
            if direction == "accumulate_gradients":
                if 2 * seen.settings.accumulation > MAX_ACCUMULATION:
                    return None
                return f"accumulation exactly {2 * seen.settings.accumulation}"
            return f"batch_size exactly {2 * size}" if 2 * size <= seen.max_batch_size else None
        case "stop":
            return ""
        case "go_back":
            return _back(rule, seen)
        case "try_rates":
            return _tried(side, seen)
    return _edit(direction, seen)


def _back(rule: str, seen: Observation) -> str | None:
    states = ", ".join(("-1 (fresh weights)", *map(str, seen.back[1:])))
    clip = "may have clip_norm"
    if rule == "R2":
        sizes = batch_band(seen.evaluations[rule], seen.settings, seen.rules)
        same = f"lr exactly {seen.settings.lr!r}"
        return sizes and f"epoch one of {states}; {same}; batch_size from {sizes[0]} to {sizes[1]}"
    if rule == "R1" and seen.evaluations[rule].side == "guessing":
        lr = seen.settings.lr
        rate = _between(max(lr / _MOST, MIN_LR), min(lr * _MOST, MAX_LR))
        states = "-1 (fresh weights)"
        clip = "clip_norm 1.0 is usual, and without one lr changed by a factor of 3 at least"
    elif rule == "R1":
        found = band(seen)
        rate = None if found is None else _between(*found)
    else:
        rate = _between(max(seen.settings.lr / 10, MIN_LR), seen.settings.lr)
    if rule == "R7":
        clip = "clip_norm 1.0 is usual, and without one lr at most a third"
    return None if rate is None else f"epoch one of {states}; lr {rate}; {clip}"


def _tried(side: str, seen: Observation) -> str | None:
    lr, states = seen.settings.lr, ", ".join(("-1 (fresh weights)", *map(str, seen.back[1:])))
    lower = f"at most {at_most(lr / _LEAST)}" if lr / _LEAST >= MIN_LR else ""
    higher = f"at least {at_least(lr * _LEAST)}" if lr * _LEAST <= MAX_LR else ""
    if side == "guessing":
        states, one = "-1 (fresh weights)", " or ".join(filter(None, (lower, higher)))
    else:
        one = higher if side == "low" else lower
    most = min(seen.tries, MAX_TRIALS)
    told = f"epoch one of {states}; rates a list of 2 to {most} learning rates, an epoch each"
    return (one and f"{told}, one of them {one}; may have clip_norm") or None


def band(seen: Observation) -> tuple[float, float] | None:
    """Return the learning rates that bring R1's signal into its band, None if none does."""
    value = seen.evaluations["R1"].value
    if not value:
        return None
    rate = mean_rate(seen.settings, epoch=seen.epoch)
    low, high = (end / value * rate for end in (seen.rules.r1_low, seen.rules.r1_high))
    low, high = max(low, MIN_LR), min(high, MAX_LR)
    return (low, high) if low <= high else None


def _edit(direction: str, seen: Observation) -> str | None:
    """Return what an edit may take; without `block` it applies wherever it can."""
    blocks = seen.spec.blocks
    if direction == "add_block":
        return "" if len(blocks) < MAX_BLOCKS else None
    if direction == "widen":
        most = min(8, MAX_WIDTH // max(block.width for block in blocks))
        return f"factor a whole number from 2 to {most}; may have block" if most > 1 else None
    if direction == "swap_activation":
        used = {seen.spec.activation, *(block.activation for block in blocks)}
        to = " or ".join(name for name in ACTIVATIONS if used != {name})
        return f"to {to}; may have block"
    lacking = [n for n, block in enumerate(blocks) if _lacks(direction, block)]
    if not lacking:
        return "" if direction == "add_norm" and seen.spec.norm == "none" else None
    return f"may have block: {', '.join(map(str, lacking))}"


def _lacks(direction: str, block: BlockSpec) -> bool:
    return block.norm == "none" if direction == "add_norm" else not block.residual


def _between(low: float, high: float) -> str | None:
    return None if low > high else f"from {within(low, high)}"
