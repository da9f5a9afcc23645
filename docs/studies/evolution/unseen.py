"""What a checkpoint's decisions are worth on trainings that no proposer and no gate has seen.

    python docs/studies/evolution/unseen.py NUMBER

run with a checkpoint's files as PYTHONPATH, prints one JSON line for each training. Models have
other widths, depths and activations than those of any gate, seeds are others, and two of the
faults occur in no task.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import policies

sys.path.insert(0, str(Path(policies.__file__).parents[1] / "docs"))
from aggregates.provocations import apply_to_config
from policies.deciding.rescue import RescuePolicy
from studies.reference.worth import FAULTS, draw_start, worth_of

SEEN = [fault for faults in FAULTS.values() for fault in faults]
UNSEEN = ["no_norm_at_depth", "tiny_init_no_norm"]
_TRIES = 6


def starts(number: int) -> list[dict[str, Any]]:
    """Return what a numbered training begins with: the first start whose fault costs counts."""
    every = [*SEEN, *UNSEEN]
    rng = Random(f"unseen {number}")
    fault, found = every[number % len(every)], []
    for _ in range(_TRIES):
        healthy = draw_start(rng, SEEN)["healthy"]
        size = rng.choice((10, 20))
        healthy |= {"channels": size, "width": size, "train_examples": 480}
        healthy |= {"activation": rng.choice(("relu", "gelu", "leaky_relu"))}
        healthy |= {"blocks": rng.choice((2, 3))}
        config = apply_to_config(healthy, fault, rng.randrange(2**31))
        found.append({"fault": fault, "healthy": healthy, "config": config})
    return found


def measured(number: int) -> Iterator[dict[str, Any]]:
    """Give what was recovered in each of so many trainings; what cost nothing is left out."""
    for each in range(number):
        worth = worth_of(starts(each), RescuePolicy().decide)
        if worth.fault is not None:
            told = {"start": each, "fault": worth.fault, "healthy": worth.healthy}
            yield {**told, "nothing": worth.nothing, "own": worth.own, "share": worth.share}


if __name__ == "__main__":
    for line in measured(int(sys.argv[1])):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
