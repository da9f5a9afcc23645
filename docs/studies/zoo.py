"""Whether the rules are quiet while healthy models train that are not like the built-in network.

    python docs/studies zoo [--seeds 10] [--epochs 10] [--kind NAME]... [--results FILE]
        [--policy NAME]

Twenty-eight kinds of model and loss, each trained by a plain loop under `proctor.watch`, which only
observes, with the optimizer and the learning rate that people would take for it. The rules of each
profile are evaluated on the same signals. The table counts epochs in which a rule fires, plateaus
apart (R3, and R1 on that side), and tells whether the training learned: a rule that is quiet while
nothing is learned shows nothing. Data are drawn or computed; nothing is loaded.

With --policy, each training in which a rule fired is repeated under that policy, which is asked
nothing in the others, and a second table compares the validation losses at the end, paired by seed.
--results keeps each training in a file, so that the same command goes on where it was interrupted;
a file of other code is refused. What a rate does that is too high is studied by `power`.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean

import torch

from aggregates.firing import evaluate_epochs
from aggregates.rules import PROFILES
from monitor.code import HOUSE, deciding_files, hash_files
from monitor.config import WatchConfig
from proctor.errors import ProctorError
from proctor.runs.standings import paired_interval
from studies import kinds
from studies.kinds import KINDS, characters, loss_on, train_watched
from studies.runner import Job, do_jobs
from studies.statistics import Share, Table

NOBODY = "none"  # decides


@dataclass(frozen=True)
class Trained:
    """What came of one training."""

    kind: str
    seed: int
    gained: float  # share of the first validation loss (before training) that is gone
    fired: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)  # by profile, epoch
    last: float = math.nan  # validation loss at the end
    acted: Sequence[str] = ()  # what was decided and done, or refused


def train(job: Job) -> Trained:
    """Train one model under watch, and evaluate every profile on what was measured."""
    kind, seed, epochs = (job.config[each] for each in ("kind", "seed", "epochs"))
    policy = None if job.policy == NOBODY else job.policy
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = KINDS[kind]()
    before = loss_on(made)
    history, after, acted = train_watched(made, kind, epochs, policy=policy)
    fired = {
        profile: [
            [f"{rule} {found.side}" for rule, found in each.items() if found.fired]
            for each in evaluate_epochs(history, [], rules)
        ]
        for profile, rules in PROFILES.items()
    }
    gained = 1 - after / before if before else 0.0
    return Trained(kind, seed, gained, fired, after, acted)


def code() -> str:
    """Return the SHA-256 of what results depend on: code, and the text that models learn from."""
    own = (Path(__file__), Path(kinds.__file__), HOUSE / "proctor" / "runs" / "watching.py")
    files = [*deciding_files().items(), *((each.name, each) for each in own)]
    text = characters().numpy().tobytes()
    return hash_files([("text", text), *((name, path.read_bytes()) for name, path in files)])


def tables(trained: Sequence[Trained]) -> Iterator[Table]:
    """Yield, for each kind, how many epochs fire under each profile, and what fires."""

    def loud(found: Trained, profile: str) -> list[list[str]]:
        quiet = ("R3 plateau", "R1 plateau")
        return [[each for each in epoch if each not in quiet] for epoch in found.fired[profile]]

    rows = []
    for kind in dict.fromkeys(each.kind for each in trained):
        own = [each for each in trained if each.kind == kind]
        row = {
            "kind": kind,
            "loss that is gone": f"{min(each.gained for each in own):.0%} at least",
        }
        for profile in PROFILES:
            epochs = [epoch for each in own for epoch in loud(each, profile)]
            what = Counter(rule for epoch in epochs for rule in epoch)
            share = Share.true(map(bool, epochs))
            said = ", ".join(f"{rule} {count}" for rule, count in what.most_common())
            row[profile] = f"{share.count} of {share.of}" + (f": {said}" if said else "")
        rows.append(row)
    whole = {"kind": "all", "loss that is gone": ""}
    for profile in PROFILES:
        every = [bool(epoch) for each in trained for epoch in loud(each, profile)]
        whole[profile] = str(Share.true(every))
    yield Table.of("Epochs of healthy trainings in which a rule fires", [*rows, whole])


def acting_tables(
    bare: Sequence[Trained], acting: Sequence[Trained], policy: str
) -> Iterator[Table]:
    """Yield by how much a policy makes the last validation loss larger than none does."""
    others = {(each.kind, each.seed): each for each in acting}
    rows, every = [], []
    for kind in dict.fromkeys(each.kind for each in bare):
        own = [each for each in bare if each.kind == kind]
        asked = [others.get((each.kind, each.seed), each) for each in own]
        above = [there.last / here.last - 1 for here, there in zip(own, asked, strict=True)]
        every.append(mean(above))
        done = Counter(line.split(":")[1].strip() for each in asked for line in each.acted)
        if done:
            row = (kind, asked, above, ", ".join(f"{what} {n}" for what, n in done.most_common()))
            rows.append(row)
    rows.append((f"mean of all {len(every)} kinds", list(acting), every, ""))
    shown = [
        {
            "kind": kind,
            "acted in": f"{sum(bool(each.acted) for each in asked)}",
            "loss above that of none": _difference(above),
            "decisions": decisions,
        }
        for kind, asked, above, decisions in rows
    ]
    seeds = len({each.seed for each in bare})
    yield Table.of(f"Policy {policy}, healthy trainings, {seeds} seeds", shown)


def _difference(above: Sequence[float]) -> str:
    low, high = paired_interval(above) if len(above) > 1 else (-math.inf, math.inf)
    return f"{mean(above):+.2%} ({low:+.2%} to {high:+.2%})"


def main(arguments: Sequence[str]) -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(prog="python docs/studies zoo", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, help="File to keep trainings in.")
    parser.add_argument("--policy", help="Train under this policy, too.")
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.epochs < 1:
        raise ProctorError("--seeds and --epochs are at least 1")
    starts = list(product(given.kind or KINDS, range(given.seeds)))

    def train_all(starts: Sequence[tuple[str, int]], policy: str) -> list[Trained]:
        jobs = [
            Job(
                f"{kind}/{seed}/{given.epochs}/{policy}",
                {"kind": kind, "seed": seed, "epochs": given.epochs},
                policy,
            )
            for kind, seed in starts
        ]
        found = do_jobs(jobs, given.results, given.workers, code=code(), work=train, kind=Trained)
        return [found[job.key] for job in jobs]

    bare = train_all(starts, NOBODY)
    for table in tables(bare):
        print(table.to_markdown(), flush=True)
    if given.policy:
        asked = [each for each in bare if any(each.fired[WatchConfig.profile])]
        acting = train_all([(each.kind, each.seed) for each in asked], given.policy)
        for table in acting_tables(bare, acting, given.policy):
            print(table.to_markdown())
