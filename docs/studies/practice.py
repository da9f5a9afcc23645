"""What practitioners do against a training that goes wrong, beside the policy `rescue`.

Every arm has the epochs of the training: what it tries out is taken from them. A trial is a
training of its own, with the fault in the epochs in which the condition has it. A fault that is
made of settings alone is gone where an arm replaces them.

Source: Smith 2017 (the range test); Karnin, Koren and Somekh 2013 (halving); torch's scheduler.
docs/studies/rules.md has the results.
I/O: reads the conditions; see studies.runner.  Units: learning rates per step.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any, cast

import torch
from scipy.stats import quantile_test
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau

from aggregates.provocations import fault_of
from aggregates.run import Run
from monitor.code import deciding_files, hash_files
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.loop import epoch_order
from monitor.state import LiveState
from proctor.runs.comparison import Config, of_network, read_conditions
from proctor.runs.standings import ACCURACY, HEALTHY, Recovered, paired_interval, recovered
from studies.runner import Job, Result, StudyError, load_data, run_job, run_jobs, show_progress
from studies.statistics import print_table

BASE: Mapping[str, Any] = {
    "profile": "relative",
    "epochs": 10,
    "train_examples": 512,
    "val_examples": 300,
    "test_examples": 1_000,
    "channels": 16,
    "width": 16,
    "stem_stride": 4,
    "threads": 1,
}
OURS, NOTHING = "rescue", "nothing"
PATIENCE = 2  # epochs; the scheduler's default of 10 would never act in ten epochs
RATES = (0.5, 0.05, 0.005, 0.0005)  # decades around the default of the built-in network
LEAST_EPOCHS = 7  # of which halving spends 4 and 2 on trials
TEST_EPOCHS = 2  # of the range test: 16 steps
LEAST, MOST = 1e-3, 10.0  # rates of the range test
_SKIPPED = 0.1  # share of its steps whose losses are looked over, as Lightning does
_MEMORY = 0.5  # share of the smoothed loss that each step keeps
_DIVERGED = 4.0  # times the smallest smoothed loss, where the range test ends

Row = Mapping[str, Any]


def without(config: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return a configuration with other settings, in which a fault of weights or losses stays."""
    fault = fault_of(config)
    if fault is not None and set(fault.changes) == {"settings"}:
        config = {key: config[key] for key in config if not key.startswith("provocation")}
    return {**config, **settings}


def train_with(job: Job, **settings: Any) -> Result:
    """Train with other settings, nobody deciding."""
    return run_job(Job(job.key, without(job.config, **settings), NOTHING))


def reduce_on_plateau(job: Job) -> Result:
    """Train under torch's scheduler, which sees each epoch's validation loss."""
    own = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=job.config["lr"])
    scheduler = ReduceLROnPlateau(own, factor=0.1, patience=PATIENCE)
    live: list[LiveState] = []

    def on_epoch(run: Run, _: Any) -> None:
        scheduler.step(run.history[-1].val_loss)
        state = live[-1]
        state.settings = replace(state.settings, lr=float(own.param_groups[0]["lr"]))

    return run_job(
        Job(job.key, job.config, NOTHING),
        on_epoch=on_epoch,
        on_state=lambda _, state: live.append(state),
    )


def range_test(job: Job) -> Result:
    """Train with the rate that a range test finds, or with the training's own if it finds none."""
    config = RunConfig.from_dict(job.config)
    rate = find_rate(config) or config.lr
    return train_with(job, lr=rate, epochs=config.epochs - TEST_EPOCHS)


def find_rate(config: RunConfig) -> float | None:
    """Return a tenth of the rate at which the smoothed training loss is smallest.

    The rate grows by the same factor from step to step. None: no loss was finite.
    """
    losses = _range_losses(config)
    smoothed: dict[float, float] = {}  # by rate
    mean = weight = 0.0
    for step, (rate, loss) in enumerate(losses):
        mean, weight = _MEMORY * mean + (1 - _MEMORY) * loss, _MEMORY * weight + 1 - _MEMORY
        best = min(smoothed.values(), default=math.inf)
        if not math.isfinite(mean) or mean / weight > _DIVERGED * best:
            break
        if step >= _SKIPPED * len(losses):
            smoothed[rate] = mean / weight
    return min(smoothed, key=lambda rate: smoothed[rate]) / 10 if smoothed else None


def _range_losses(config: RunConfig) -> list[tuple[float, float]]:
    """Return each step's rate with the training loss before it."""
    splits, _ = load_data(config)
    train, found = splits.train, []
    with computing_as(config):
        state = LiveState.start(config, config.spec(len(splits.classes)), train_examples=len(train))
        steps = len(train) // config.batch_size
        state.model.train()
        for epoch in range(TEST_EPOCHS):
            order = epoch_order(len(train), seed=config.seed, epoch=epoch)
            factor = 1.0 if config.fault is None else config.fault.loss_factor(epoch)
            for step, indices in enumerate(torch.split(order, config.batch_size)[:steps]):
                place = (epoch * steps + step) / (TEST_EPOCHS * steps - 1)
                rate = LEAST * (MOST / LEAST) ** place
                state.optimizer.param_groups[0]["lr"] = rate
                state.optimizer.zero_grad(set_to_none=True)
                images, labels = train.batch(indices, config.device)
                loss = functional.cross_entropy(state.model(images), labels) * factor
                torch.autograd.backward(loss)
                state.optimizer.step()
                found.append((rate, float(loss.detach())))
    return found


def halve(job: Job) -> Result:
    """Train with the rate that wins by validation loss: four for an epoch, two for another.

    A training is the same up to an epoch however long it goes on, so a trial is continued by
    training it again, and only its own epochs are counted.
    """
    rates: Sequence[float] = RATES
    spent = 0
    for epochs in (1, 2):
        spent += len(rates)
        trials = {rate: train_with(job, lr=rate, epochs=epochs) for rate in rates}
        rates = sorted(rates, key=lambda rate: _loss(trials[rate]))[: len(rates) // 2]
    rest = job.config["epochs"] - spent
    return train_with(job, lr=rates[0], epochs=2 + rest)


def _loss(trial: Result) -> float:
    """Return the latest validation loss; a training that diverged or failed comes last."""
    loss = trial.history[-1].val_loss if trial.history and not trial.failed else math.inf
    return math.inf if math.isnan(loss) else loss


ARMS: Mapping[str, Callable[[Job], Result]] = MappingProxyType(
    {
        NOTHING: run_job,
        OURS: run_job,
        "fresh_on_nan": run_job,
        "ReduceLROnPlateau": reduce_on_plateau,
        "clipping": partial(train_with, clip_norm=1.0),
        "warm-up": partial(train_with, warm_up_epochs=3),
        "range test": range_test,
        "halving": halve,
    }
)


def train_arm(job: Job) -> Result:
    """Train a job whose policy is the name of an arm."""
    return ARMS[job.policy](job)


def run(options: Namespace) -> None:
    """Train what an earlier call has left, and print the page's tables."""
    conditions = read_conditions(options.conditions, of_network(RunConfig.from_dict(BASE)))
    verify_conditions(options.conditions, conditions)
    configs = {name: config.to_dict() for name, config in conditions.items()}
    rows = collect_rows(configs, range(options.seeds), options.results, workers=options.workers)
    print_study(rows, list(configs))


def verify_conditions(path: Path, conditions: Mapping[str, Config]) -> None:
    """Raise StudyError where a share or an arm could not be."""
    if HEALTHY not in conditions:
        raise StudyError(
            f"{path} needs a condition [{HEALTHY}]: a fault's cost is measured from it"
        )
    for name, config in conditions.items():
        if config.epochs < LEAST_EPOCHS:
            raise StudyError(
                f"{path}, condition {name}: epochs must be at least {LEAST_EPOCHS}, "
                f"not {config.epochs}: halving spends {LEAST_EPOCHS - 1} on trials"
            )


def collect_rows(
    conditions: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    results: Path | None,
    *,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Train what `results` lacks, and return a row for each arm, condition and seed.

    Where no rule fires under `nothing`, no policy is asked: the trainings are one.
    """
    files = [*deciding_files().items(), ("practice", Path(__file__))]
    code = hash_files((name, path.read_bytes()) for name, path in files)
    starts = [(condition, seed) for condition in conditions for seed in seeds]

    def train(arms: Sequence[str], starts: Sequence[tuple[str, int]]) -> dict[str, Result]:
        jobs = [
            Job(f"{condition}/{seed}/{arm}", {**conditions[condition], "seed": seed}, arm)
            for condition, seed in starts
            for arm in arms
        ]
        return run_jobs(jobs, results, workers, code=code, work=train_arm, on_result=show_progress)

    idle = train([NOTHING], starts)
    asked = [start for start in starts if any(idle[f"{start[0]}/{start[1]}/{NOTHING}"].fired)]
    policies = [arm for arm, work in ARMS.items() if work is run_job and arm != NOTHING]
    found = idle | train(policies, asked)
    found |= train([arm for arm in ARMS if ARMS[arm] is not run_job], starts)
    return [
        {
            "policy": arm,
            "condition": condition,
            "seed": seed,
            "test_accuracy": result.test_accuracy,
            "problem": result.error,
            "fits": True,
        }
        for condition, seed in starts
        for arm in ARMS
        for result in [
            found.get(f"{condition}/{seed}/{arm}") or found[f"{condition}/{seed}/{NOTHING}"]
        ]
    ]


def print_study(rows: Sequence[Row], conditions: Sequence[str]) -> None:
    """Print what each arm wins back, by condition, and `rescue` against each of the others."""
    arms = [arm for arm in ARMS if arm != NOTHING]
    shares = {(one.condition, one.policy): one for one in recovered(rows, arms, conditions)}
    lost = {one.condition: one.lost for one in shares.values()}
    print_table(
        ("condition", "costs", *arms),
        [
            (
                condition,
                lost.get(condition, ""),
                *(_told(rows, condition, arm, shares.get((condition, arm))) for arm in arms),
            )
            for condition in conditions
        ],
    )
    print()
    others = [arm for arm in ARMS if arm != OURS]
    print_table(
        ("arm", "median share", "arm - nothing", f"{OURS} - arm", f"median of {OURS} - arm"),
        [
            (
                arm,
                _median_share(arm, shares.values()),
                _mean(differences(rows, arm, NOTHING), len(arms)) if arm != NOTHING else "",
                _mean(differences(rows, OURS, arm), len(others)) if arm != OURS else "",
                _median(differences(rows, OURS, arm), len(others)) if arm != OURS else "",
            )
            for arm in ARMS
        ],
    )
    failed = sum(row["problem"] is not None for row in rows)
    print(
        f"\n{len(rows)} runs, {failed} failed; differences of test accuracy on the same condition "
        f"and seed, without `{HEALTHY}`; intervals of 95% for all rows of a column together."
    )


def differences(rows: Sequence[Row], arm: str, other: str) -> list[float]:
    """Return the test accuracy of an arm less that of another, for each faulty start."""
    cells = {
        (row["policy"], row["condition"], row["seed"]): ACCURACY.of(row) or 0.0 for row in rows
    }
    return [
        accuracy - cells[other, condition, seed]
        for (own, condition, seed), accuracy in cells.items()
        if own == arm and condition != HEALTHY
    ]


def _told(rows: Sequence[Row], condition: str, arm: str, found: Recovered | None) -> str:
    """Return the share, else the difference to `nothing` in brackets; for healthy, the accuracy."""
    if found is not None and found.share is not None:
        return f"{found.share:.2f} ({found.low:.2f} to {found.high:.2f})"
    cells = [row for row in rows if row["condition"] == condition]
    own, idle = (
        fmean(ACCURACY.of(row) or 0.0 for row in cells if row["policy"] == name)
        for name in (arm, NOTHING)
    )
    return f"{own:.3f}" if condition == HEALTHY else f"({own - idle:+.3f})"


def _median_share(arm: str, found: Iterable[Recovered]) -> str:
    shares = [one.share for one in found if one.policy == arm and one.share is not None]
    return f"{median(shares):.2f}" if shares else ""


def _mean(pairs: Sequence[float], comparisons: int) -> str:
    low, high = paired_interval(pairs, comparisons=comparisons)
    return f"{fmean(pairs):+.3f} ({low:+.3f} to {high:+.3f})"


def _median(pairs: Sequence[float], comparisons: int) -> str:
    """Return the median with the interval of its order statistics; few pairs have none."""
    ends = quantile_test(pairs, p=0.5).confidence_interval(1 - 0.05 / comparisons)
    low, high = cast("tuple[float, float]", ends)  # the stubs say that it is a number
    interval = "" if math.isnan(low + high) else f" ({low:+.3f} to {high:+.3f})"
    return f"{median(pairs):+.3f}{interval}"
