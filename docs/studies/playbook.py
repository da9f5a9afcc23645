"""What playbook and rescue are worth: against doing nothing and chance, over many starts.

Each start (a condition, a dataset and a seed) is trained under four policies. They see the same
data, rules, initial weights and order of examples, so differences are taken within a start. Where
no rule fires under `nothing`, no policy is asked: the trainings are one, and it is trained once.

Source: docs/studies/rules.md.  I/O: see studies.runner.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from aggregates.provocations import apply_to_config
from monitor.dispatch import current_variables, describe_cpu
from proctor.runs.standings import paired_interval
from studies.runner import Job, Result, load_results, run_jobs, show_progress
from studies.statistics import print_table

BASE: Mapping[str, Any] = {
    "channels": 16,
    "width": 16,
    "stem_stride": 4,
    "train_examples": 1_500,
    "val_examples": 300,
    "test_examples": 1_000,
    "epochs": 12,
}
_LEVEL = 0.01  # of accuracy: a smaller mean difference is called level
_FEW: Mapping[str, Any] = {"train_examples": 600}  # where a step takes long


@dataclass(frozen=True, eq=False)  # a key by identity
class Condition:
    """A start: settings beside BASE, and the provocation of the catalogue that is put in."""

    name: str
    settings: Mapping[str, Any]
    provocation: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with the start."""
        return self.name.startswith("healthy")

    def config(self, dataset: str, seed: int) -> dict[str, Any]:
        """Return the configuration of one seed; the severity of a provocation follows from it."""
        config = {**BASE, **self.settings, "dataset": dataset, "seed": seed}
        if self.provocation is None:
            return config
        return apply_to_config(config, self.provocation, seed)


CONDITIONS = (
    Condition("healthy: the defaults", {}),
    Condition("healthy: batch 16, lr 0.02", {"batch_size": 16, "lr": 0.02}),
    Condition("lr_too_high", {}, "lr_too_high"),
    Condition("lr_too_low", {}, "lr_too_low"),
    Condition("init_too_large", {}, "init_too_large"),
    Condition("init_too_small", {}, "init_too_small"),
    Condition("dead_activations", {}, "dead_activations"),
    Condition("batch_too_small", {**_FEW, "epochs": 8}, "batch_too_small"),
    Condition("batch_too_large", {}, "batch_too_large"),
    Condition("too_little_capacity", {}, "too_little_capacity"),
    Condition("no_norm_at_depth", _FEW, "no_norm_at_depth"),
    Condition("exploding_loss", {}, "exploding_loss"),
    Condition("infinite_loss", {}, "infinite_loss"),
)
OWN = ("playbook", "rescue")
OTHERS = ("nothing", "random")  # what these are compared with
_Start = tuple[str, Condition, int]  # dataset, condition, seed


@dataclass(frozen=True)
class Row:
    """One condition on one dataset: results by policy and seed."""

    condition: Condition
    dataset: str
    results: Mapping[str, Mapping[int, Result]]
    same: int  # seeds in which no rule fired with nobody acting: one training for both policies
    policy: str = "playbook"

    def scores(self, policy: str) -> list[float]:
        """Return the test accuracy of each seed; a failed run delivers nothing and scores 0."""
        return [each.test_accuracy or 0.0 for each in self.results[policy].values()]

    def gains(self, other: str) -> list[float]:
        """Return the policy's test accuracy less that of another one, by seed."""
        pairs = zip(self.scores(self.policy), self.scores(other), strict=True)
        return [acts - idle for acts, idle in pairs]

    @property
    def failed(self) -> int:
        """How many of the row's trainings failed."""
        return sum(each.failed for by_seed in self.results.values() for each in by_seed.values())


def run(options: Namespace) -> None:
    """Train what an earlier call has left, and print the page's tables."""
    datasets = {"shapes": "shapes"}
    if options.folder is not None:
        datasets["CIFAR-10"] = f"imagefolder:{options.folder}"
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows = collect_rows(datasets, seeds, options.results, workers=options.workers)
    print_studies(rows, seeds)
    if options.compare is not None:
        print_comparison(
            [row for row in rows if row.policy == "playbook"], load_results(options.compare)
        )


def collect_rows(
    datasets: Mapping[str, str],
    seeds: Sequence[int],
    results: Path | None,
    *,
    workers: int | None = None,
) -> list[Row]:
    """Train what `results` lacks, `nothing` first, and return a row for each condition."""

    def train(asked: Sequence[tuple[_Start, str]]) -> dict[str, Result]:
        jobs = []
        for start, policy in asked:
            dataset, condition, seed = start
            config = condition.config(datasets[dataset], seed)
            jobs.append(Job(_key(*start, policy), config, policy))
        return run_jobs(jobs, results, workers, on_result=show_progress)

    starts = list(product(datasets, CONDITIONS, seeds))
    idle = train([(start, "nothing") for start in starts])
    differs = [
        (start, policy)
        for start in starts
        for policy in ("playbook", "random", "rescue")
        if any(idle[_key(*start, "nothing")].fired)
    ]
    found = idle | train(differs)
    return [
        Row(
            condition,
            dataset,
            {
                policy: {
                    seed: found.get(_key(dataset, condition, seed, policy))
                    or idle[_key(dataset, condition, seed, "nothing")]
                    for seed in seeds
                }
                for policy in ("nothing", "random", own)
            },
            same=sum(((dataset, condition, seed), own) not in differs for seed in seeds),
            policy=own,
        )
        for own in OWN
        for dataset, condition in product(datasets, CONDITIONS)
    ]


def print_studies(rows: Sequence[Row], seeds: Sequence[int]) -> None:
    """Print a table and a summary for each policy of ours."""
    for policy in OWN:
        print_study([row for row in rows if row.policy == policy], seeds)


def print_study(rows: Sequence[Row], seeds: Sequence[int]) -> None:
    """Print the table, the summary and what the study ran under."""
    comparisons, policy = len(rows) * len(OTHERS), rows[0].policy
    print_table(
        (
            "condition",
            "dataset",
            "nothing",
            "random",
            policy,
            f"{policy} - nothing",
            f"{policy} - random",
            "same training",
            "failed",
        ),
        [
            (
                row.condition.name,
                row.dataset,
                *(mean(row.scores(each)) for each in ("nothing", "random", policy)),
                *(_shown(row.gains(other), comparisons) for other in OTHERS),
                f"{row.same} of {len(seeds)}",
                row.failed,
            )
            for row in rows
        ],
    )
    ordered = sorted(rows, key=lambda row: mean(row.gains("nothing")))
    print()
    for label, row in (("worst", ordered[0]), ("best", ordered[-1])):
        gain = _shown(row.gains("nothing"), comparisons)
        print(f"{label} row: {row.condition.name} on {row.dataset}, {gain}")
    least = min(mean(row.gains("nothing")) for row in rows if row.condition.healthy)
    print(f"healthy rows, smallest mean difference: {least:+.3f}")
    faulty = [row for row in rows if not row.condition.healthy]
    for other in OTHERS:
        gains = [row.gains(other) for row in faulty]
        intervals = [paired_interval(each, comparisons=comparisons) for each in gains]
        print(
            f"faulty rows, {policy} - {other}: mean above 0 in "
            f"{sum(mean(each) > 0 for each in gains)} of {len(faulty)}; interval above 0 in "
            f"{sum(low > 0 for low, _ in intervals)}, below 0 in "
            f"{sum(high < 0 for _, high in intervals)}"
        )
    failed = sum(row.failed for row in rows)
    variables = current_variables() or "no dispatch variables set"
    print(
        f"\n{len(seeds)} seeds; 95% intervals, corrected for {comparisons} comparisons "
        f"(Bonferroni); {failed} failed runs.\nCPU: {describe_cpu()['name']} "
        f"(ATen capability {torch.backends.cpu.get_cpu_capability()}); {variables}; "
        f"torch {torch.__version__}."
    )


def print_comparison(rows: Sequence[Row], elsewhere: Mapping[str, Result]) -> None:
    """Print each row's mean difference here and elsewhere, over the seeds that both have."""
    found, agree = [], 0
    for row in rows:
        there = {
            seed: gain
            for seed in row.results["nothing"]
            if (gain := _gain_elsewhere(row, seed, elsewhere)) is not None
        }
        if not there:
            continue
        here = dict(zip(row.results["nothing"], row.gains("nothing"), strict=True))
        means = mean(here[seed] for seed in there), mean(there.values())
        same = _sign(means[0]) == _sign(means[1])
        agree += same
        shown = (f"{value:+.3f}" for value in means)
        found.append((row.condition.name, row.dataset, *shown, "yes" if same else "no"))
    print("\nplaybook - nothing, mean over the seeds that both have:\n")
    print_table(("condition", "dataset", "here", "elsewhere", "same conclusion"), found)
    print(
        f"\nthe same conclusion in {agree} of {len(found)} rows (better: above {_LEVEL:+.2f}; "
        f"worse: below {-_LEVEL:+.2f}; else level)"
    )


def _gain_elsewhere(row: Row, seed: int, elsewhere: Mapping[str, Result]) -> float | None:
    idle, acts = (
        elsewhere.get(_key(row.dataset, row.condition, seed, policy))
        for policy in ("nothing", "playbook")
    )
    if idle is None or (acts is None and any(idle.fired)):
        return None  # that study has not come so far
    return 0.0 if acts is None else (acts.test_accuracy or 0.0) - (idle.test_accuracy or 0.0)


def _sign(gain: float) -> int:
    return (gain > _LEVEL) - (gain < -_LEVEL)


def _key(dataset: str, condition: Condition, seed: int, policy: str) -> str:
    return f"{dataset}/{condition.name}/{seed}/{policy}"


def _shown(gains: Sequence[float], comparisons: int) -> str:
    low, high = paired_interval(gains, comparisons=comparisons)
    return f"{mean(gains):+.3f} ({low:+.3f} to {high:+.3f})"
