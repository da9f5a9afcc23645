"""Whether the rules see faults in models unlike the built-in network, and what that wins.

    python docs/studies power [--policy rescue] [--seeds 5] [--first-seed 0] [--kind NAME]...

Each kind of the zoo is trained under watch as it is, and with each fault that makes sense for it.
Every fault is drawn from the seed. *In time*: the expected rule fires, on the expected side, within
two epochs of the first epoch in which it can. *In front*: no other rule is the first to act on. A
fault *costs* something where the validation loss at the end is above that of the healthy twin by
more than a tenth of what the twin gained. Rules are those of the profile `relative`.

With `--policy` each fault is trained once more while that policy acts. *Recovered* is its share of
the gain that the fault costs; the gain is the share of the healthy twin's first validation loss
that is gone at the end, at least 0. The aim of `rescue` was chosen on five of these kinds (the
first, third, fifth, seventh and ninth), R6's limit with a look at the tied transformer, and when
a model that learns is left alone with a look at seeds 0 to 13.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, product
from multiprocessing import get_context
from statistics import median
from types import MappingProxyType

import torch
from torch import nn

from aggregates.firing import evaluate_epochs
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import PROFILES
from proctor.errors import ProctorError
from proctor.runs.standings import Recovered, recovered
from studies.detection import SLACK
from studies.kinds import KINDS, Made, loss_on, train_watched
from studies.statistics import Share, Table

RULES = PROFILES["relative"]
SPIKE = 2  # the epoch whose loss is multiplied
_Layer = nn.Linear | nn.Conv2d | nn.BatchNorm2d
HARMLESS = 0.1  # share of the twin's gain that a fault may cost and still be harmless


@dataclass(frozen=True)
class Kind:
    """One kind of fault: what it does to a model, and what should be said of it."""

    expects: frozenset[str]  # rules with their sides, as in `R1 high`
    put: Callable[[Made, float], None]
    sizes: tuple[float, float]  # the size is drawn between these, its logarithm evenly
    fits: Callable[[Made], bool] = lambda _: True
    earliest: int = 0  # first epoch in which an expected rule can fire
    of_loss: bool = False  # the size multiplies the loss of an epoch


def _scale_rate(made: Made, size: float) -> None:
    for group in made.optimizer.param_groups:
        group["lr"] *= size


def _scale_weights(made: Made, size: float) -> None:
    with torch.no_grad():
        for each in made.model.parameters():
            if each.requires_grad and each.dim() > 1:
                each.mul_(size)


def _kill(made: Made, size: float) -> None:
    """Lower the biases of this share of the units before ReLUs so far that nothing passes them."""
    with torch.no_grad():
        for before in _before_relus(made.model):
            if before.bias is not None:
                before.bias[: round(size * len(before.bias))] = -8.0


def _before_relus(model: nn.Module) -> Iterator[_Layer]:
    for sequence in model.modules():
        parts = list(sequence) if isinstance(sequence, nn.Sequential) else []
        for before, after in pairwise(parts):
            if isinstance(before, _Layer) and isinstance(after, nn.ReLU):
                yield before


def _nothing(made: Made, size: float) -> None:
    """Change no weights and no settings."""


FAULTS: Mapping[str, Kind] = MappingProxyType(
    {
        "rate too high": Kind(
            frozenset({"R1 high"}), _scale_rate, (30, 100), lambda made: made.scheduler is None
        ),
        "rate too low": Kind(
            frozenset({"R1 low"}),
            _scale_rate,
            (1e-3, 3e-3),
            lambda made: made.scheduler is None,
            earliest=RULES.persistence - 1,
        ),
        "weights too large": Kind(
            frozenset({"R1 low", "R6 low", "R7"}),
            _scale_weights,
            (30, 100),
            earliest=RULES.persistence - 1,
        ),
        "dead activations": Kind(
            frozenset({"R5 high"}), _kill, (0.6, 0.95), lambda made: any(_before_relus(made.model))
        ),
        "exploding loss": Kind(
            frozenset({"R7"}), _nothing, (1e4, 1e6), earliest=SPIKE, of_loss=True
        ),
        "infinite loss": Kind(
            frozenset({"R7"}), _nothing, (math.inf, math.inf), earliest=SPIKE, of_loss=True
        ),
    }
)
HEALTHY = "healthy"


@dataclass(frozen=True)
class Observed:
    """What came of one training."""

    kind: str
    fault: str  # or HEALTHY
    seed: int
    policy: str | None  # that acted
    before: float  # validation losses
    after: float
    fired: tuple[tuple[str, ...], ...]  # by epoch: rules with sides, the first to act on in front

    def in_time(self) -> bool:
        """Return whether what was expected was said within two epochs."""
        fault = FAULTS[self.fault]
        seen = self.fired[: fault.earliest + SLACK + 1]
        return any(_expected(each, fault) for epoch in seen for each in epoch)

    def in_front(self) -> bool:
        """Return whether the first rule to act on, once the fault is there, is an expected one."""
        fault = FAULTS[self.fault]
        after = self.fired[SPIKE if fault.of_loss else 0 :]
        return _expected(next((epoch[0] for epoch in after if epoch), ""), fault)

    def gain(self, twin: "Observed") -> float:
        """Return the share of the twin's first loss that is gone, 0 if nothing is."""
        return max(0.0, 1 - self.after / twin.before) if math.isfinite(self.after) else 0.0

    def costs(self, twin: "Observed") -> bool:
        """Return whether the fault cost more than a tenth of what the twin gained."""
        return not self.after - twin.after <= HARMLESS * max(twin.before - twin.after, 0.0)


def _expected(said: str, fault: Kind) -> bool:
    return said in fault.expects or said.partition(" ")[0] in fault.expects


def observe(
    kind: str, fault: str, seed: int, epochs: int, policy: str | None = None
) -> Observed | None:
    """Train one model under watch; None where the fault makes no sense for it."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = KINDS[kind]()
    before = loss_on(made)
    size, of_loss = 1.0, False
    if fault != HEALTHY:
        found = FAULTS[fault]
        if not found.fits(made):
            return None
        low, high = found.sizes
        share = random.Random(f"{fault} {seed}").random()  # noqa: S311 - not for secrets
        size = low if low == high else math.exp(math.log(low) + share * math.log(high / low))
        of_loss = found.of_loss
        found.put(made, 1.0 if of_loss else size)
    history, after, _ = train_watched(
        made, kind, epochs, lambda epoch: size if of_loss and epoch == SPIKE else 1.0, policy
    )
    fired = tuple(
        tuple(
            f"{rule} {each[rule].side}"
            for rule in fired_in_precedence(each)
            if each[rule].side != "plateau"
        )
        for each in evaluate_epochs(history, [], RULES)
    )
    return Observed(kind, fault, seed, policy, before, after, fired)


def tables(found: Iterable[Observed | None]) -> Iterator[Table]:
    """Yield a row for each fault, and one for each fault of a kind that is not always seen."""
    known = [each for each in found if each is not None and each.policy is None]
    twins = {(each.kind, each.seed): each for each in known if each.fault == HEALTHY}

    def row(name: str, own: Sequence[Observed]) -> dict[str, str]:
        costly = [each for each in own if each.costs(twins[each.kind, each.seed])]
        return {
            "fault": name,
            "expected": " or ".join(sorted(FAULTS[own[0].fault].expects)),
            "seen in time": str(Share.true(each.in_time() for each in own)),
            "in front": str(Share.true(each.in_front() for each in own)),
            "costs something": f"{len(costly)} of {len(own)}",
            "of these seen in time": str(Share.true(each.in_time() for each in costly)),
        }

    rows, worst = [], []
    for fault in FAULTS:
        own = [each for each in known if each.fault == fault]
        if own:
            rows.append(row(fault, own))
        for kind in KINDS:
            same = [each for each in own if each.kind == kind]
            if not all(each.in_time() and each.in_front() for each in same):
                fronts = (next((now[0] for now in each.fired if now), "none") for each in same)
                first = ", ".join(sorted(set(fronts)))
                worst.append({**row(f"{fault}: {kind}", same), "first to act on": first})
    yield Table.of("Faults in all kinds (share; 95% interval)", rows)
    if worst:
        yield Table.of("Kinds in which a fault is not always seen, or not in front", worst)


def won_back(found: Iterable[Observed | None], policy: str) -> Iterator[Table]:
    """Yield what a policy wins back of each fault: over all kinds, and the least of them."""
    known = [each for each in found if each is not None]
    twins = {
        (each.kind, each.seed): each
        for each in known
        if each.fault == HEALTHY and each.policy is None
    }
    shares: dict[str, list[tuple[str, Recovered]]] = {fault: [] for fault in FAULTS}
    for kind in dict.fromkeys(each.kind for each in known):
        rows = [
            {
                "policy": each.policy or "nothing",
                "condition": each.fault,
                "seed": each.seed,
                "test_accuracy": each.gain(twins[kind, each.seed]),
                "problem": None,
                "fits": True,
            }
            for each in known
            if each.kind == kind
        ]
        for one in recovered(rows, [policy], list(FAULTS)):
            shares[one.condition].append((kind, one))
    rows_of_faults = []
    for fault, ones in shares.items():
        costly = sorted(
            ((one.share, kind, one) for kind, one in ones if one.share is not None),
            key=lambda each: each[0],
        )
        if costly:
            least, kind, one = costly[0]
            harmed = [kind for _, kind, one in costly if (one.high or 0.0) < 0]
            rows_of_faults.append(
                {
                    "fault": fault,
                    "kinds in which it costs with certainty": f"{len(costly)} of {len(ones)}",
                    "recovered, median": f"{median(each[0] for each in costly):.2f}",
                    "least": f"{kind}: {least:.2f} ({one.low:.2f} to {one.high:.2f})",
                    "below 0 with certainty": ", ".join(harmed) or "none",
                }
            )
    if rows_of_faults:
        yield Table.of(f"What {policy} wins back", rows_of_faults)


def main(arguments: Sequence[str]) -> None:
    """Train, and print the tables."""
    parser = argparse.ArgumentParser(prog="python docs/studies power", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument(
        "--policy",
        choices=("playbook", "rescue"),
        help="Policy that each fault is also trained under.",
    )
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.epochs < SPIKE + SLACK + 1:
        raise ProctorError(f"--seeds is at least 1, --epochs at least {SPIKE + SLACK + 1}")
    policies = [None, *([given.policy] if given.policy else [])]
    kinds = given.kind or list(KINDS)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    jobs = product(kinds, (HEALTHY, *FAULTS), seeds, [given.epochs], policies)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(observe, *zip(*jobs, strict=True)))
    for table in (*tables(found), *(won_back(found, given.policy) if given.policy else ())):
        print(table.to_markdown(), end="\n\n")
