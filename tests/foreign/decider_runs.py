"""Runs of the study of a trained decider, by the commands that a reader would give.

`decider_runs.py FOLDER` makes the runs that the decider learns from, judges and exports them:
FOLDER/sft-0.jsonl and FOLDER/sft-1.jsonl, one from each of two homes, which two processes fill.
docs/studies/agents.md tells of the study.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from frontdoor import call_here

SMALL = [
    *("channels=16", "width=16", "stem_stride=4", "batch_size=64", "threads=1"),
    *("train_examples=600", "val_examples=200", "test_examples=500", "epochs=12"),
]
LEARNT = (  # the faults in the runs that the decider learns from
    *("lr_too_high", "lr_too_low", "init_too_large", "init_too_small", "dead_activations"),
    *("batch_too_large", "too_little_capacity", "exploding_loss"),
)
SEEDS = range(100, 112)  # for learning; 0 and up are for measuring
PROCESSES = 2


def proctor(arguments: Sequence[str | Path], *, home: Path) -> str:
    """Give one command; returns what it prints."""
    done = call_here(arguments, home=home)
    if done.returncode:
        raise SystemExit(f"proctor {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
    return done.stdout


def provoked(fault: str, seed: int, *policy: str) -> list[str]:
    """Return the command for a run with a fault; the seed is the fault's and the training's."""
    return ["run", "--provoke", fault, "--provoke-seed", f"{seed}", *policy, *SMALL, f"seed={seed}"]


def learn_from(folder: Path, share: int) -> str:
    """Make one process's share of the runs and export them; returns what the export says."""
    home = folder / f"home-{share}"
    for number, (seed, fault) in enumerate(product(SEEDS, LEARNT)):
        if number % PROCESSES == share:
            proctor(provoked(fault, seed), home=home)
            proctor(["judge"], home=home)
    target = folder / f"sft-{share}.jsonl"
    return proctor(["export", "data", "--kind", "sft", "--out", target], home=home)


def main(folder: Path) -> None:
    """Fill both homes at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for told in pool.map(learn_from, [folder] * PROCESSES, range(PROCESSES)):
            print(told, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
