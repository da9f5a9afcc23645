"""The learning rate of each step, from the settings in force.

I/O: none.  Units: learning rates per step; epochs from 0, with the step as a fraction.
"""

import math

from aggregates.decisions import Settings


def learning_rate(settings: Settings, *, epoch: int, fraction: float) -> float:
    """Return the learning rate at `fraction` (0 to 1) of `epoch`.

    constant: lr.  warm_up: a straight line from nothing to lr within `epochs` since `since`, then
    lr.  cycle: a triangle from lr_min up to lr_max and back, once every `epochs`.
    """
    schedule = settings.schedule
    if schedule["kind"] == "constant":
        return settings.lr
    passed: float = (epoch - schedule["since"] + fraction) / schedule["epochs"]
    if schedule["kind"] == "warm_up":
        return settings.lr * min(1.0, passed)
    height = 1.0 - abs(2.0 * (passed - math.floor(passed)) - 1.0)
    low, high = float(schedule["lr_min"]), float(schedule["lr_max"])
    return low + (high - low) * height
