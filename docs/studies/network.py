"""Trains the network policy's weights: it learns to answer as the playbook does.

Simulated trainings with a fault are played, first by the playbook and then by the network itself;
in each state that they come to, the playbook says what would have been right. So the network also
learns to leave the states that only its own mistakes lead to.

Source: Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to
No-Regret Online Learning" (2011).
I/O: writes one file of weights.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DIRECTIONS, REMEDIES
from policies.deciding.network import FEATURES, HIDDEN, OUTPUTS, Network, NetworkPolicy, features
from policies.playbook import PlaybookPolicy
from proctor.output.terminal import print_table
from studies.reference.rescues import RESCUES
from studies.reference.simulated_training import Scenario, play

__all__ = ["come_right", "run", "train"]

Decide = Callable[[Observation], Sequence[Decision]]
_DIFFICULTIES = ("easy", "medium", "hard")
_RIGHT = tuple(name for name in REMEDIES if name in OUTPUTS)
_MOVE, _FRESH = OUTPUTS.index("move"), OUTPUTS.index("fresh")
_HELD_OUT = 1_000  # seeds from here on are not learned from


@dataclass(frozen=True)
class _Example:
    inputs: tuple[float, ...]
    allowed: tuple[bool, ...]  # of the directions
    right: int
    move: float | None  # None: nothing is moved
    fresh: float | None


def train(*, seeds: int, rounds: int, steps: int) -> bytes:
    """Return the weights that are learned from so many seeds of each fault; the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.ModuleDict(
            {
                "hidden": nn.Linear(len(FEATURES), HIDDEN),
                "choice": nn.Linear(HIDDEN, len(OUTPUTS)),
            }
        )
        examples, decide = list[_Example](), PlaybookPolicy().decide
        for number in range(rounds):
            for scenario in _scenarios(range(number * seeds, (number + 1) * seeds)):
                examples.extend(_lessons(scenario, decide))
            _fit(model, examples, steps=steps)
            decide = NetworkPolicy(Network.read(_weights(model))).decide
        return _weights(model)


def come_right(decide: Decide, *, seeds: int) -> dict[str, float]:
    """Return of each fault the share of held-out trainings that come right."""
    found: dict[str, list[bool]] = {}
    for name, scenario in _named(range(_HELD_OUT, _HELD_OUT + seeds)):
        found.setdefault(name, []).append(_played(scenario, decide))
    return {name: sum(each) / len(each) for name, each in found.items()}


def run(options: Namespace) -> None:
    """Train, write the weights, and tell what they are worth."""
    data = train(seeds=options.seeds, rounds=3, steps=2_500)
    if options.into is not None:
        options.into.write_bytes(data)
    network = NetworkPolicy(Network.read(data))
    policies = {"playbook": PlaybookPolicy().decide, "network": network.decide}
    shares = {name: come_right(each, seeds=10) for name, each in policies.items()}
    rows = [(fault, *(f"{shares[name][fault]:.0%}" for name in shares)) for fault in RESCUES]
    print_table(("comes right", *shares), rows)


def _named(seeds: Sequence[int]) -> Iterator[tuple[str, Scenario]]:
    for name, make in RESCUES.items():
        for seed in seeds:
            difficulty = _DIFFICULTIES[seed % 3]
            made = make(Random(f"{name} {seed}"), difficulty)  # noqa: S311 - repeatable
            yield name, Scenario.from_dict(made.expected["scenario"])


def _scenarios(seeds: Sequence[int]) -> Iterator[Scenario]:
    return (scenario for _, scenario in _named(seeds))


def _played(scenario: Scenario, decide: Decide) -> bool:
    outcome = play(scenario, lambda seen: [each.to_dict() for each in decide(seen)])
    return outcome.well and not outcome.problems


def _lessons(scenario: Scenario, decide: Decide) -> list[_Example]:
    """Play a training and return what the playbook would have answered on the way."""
    teacher, found = PlaybookPolicy(), list[_Example]()

    def answer(seen: Observation) -> list[Mapping[str, Any]]:
        for right in teacher.decide(seen):
            if "deferred_to" in right.params:
                break
            found.append(_lesson(right, seen))
        return [each.to_dict() for each in decide(seen)]

    play(scenario, answer)
    return found


def _lesson(right: Decision, seen: Observation) -> _Example:
    (rule,) = right.cites
    allowed = {"defer", *DIRECTIONS[rule].get(seen.evaluations[rule].side or "", ())}
    move = fresh = None
    if rule == "R1" and "lr" in right.params:
        ratio = right.params["lr"] / seen.settings.lr
        move = (max(ratio, 1 / ratio) - 3.0) / 7.0
    if right.direction == "decrease_lr":
        fresh = float(bool(right.params.get("reinitialise")))
    return _Example(
        inputs=features(rule, seen),
        allowed=tuple(name in allowed for name in _RIGHT),
        right=_RIGHT.index(right.direction),
        move=move,
        fresh=fresh,
    )


def _fit(model: nn.ModuleDict, examples: Sequence[_Example], *, steps: int) -> None:
    inputs = torch.tensor([each.inputs for each in examples])
    closed = ~torch.tensor([each.allowed for each in examples])
    right = torch.tensor([each.right for each in examples])
    moves = torch.tensor([_number(each.move) for each in examples])
    fresh = torch.tensor([_number(each.fresh) for each in examples])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        chosen = torch.randint(len(examples), (256,))
        outputs = _outputs(model, inputs[chosen])
        directions = outputs[:, : len(_RIGHT)].masked_fill(closed[chosen], -1e9)
        loss = nn.functional.cross_entropy(directions, right[chosen])
        loss = loss + _distance(nn.functional.mse_loss, outputs[:, _MOVE], moves[chosen])
        new = nn.functional.binary_cross_entropy_with_logits
        loss = loss + _distance(new, outputs[:, _FRESH], fresh[chosen])
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _outputs(model: nn.ModuleDict, inputs: Tensor) -> Tensor:
    found: Tensor = model["choice"](nn.functional.relu(model["hidden"](inputs)))
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _distance(
    loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, right: Tensor
) -> Tensor | float:
    """Return the loss over the examples that say what is right, 0 where none does."""
    known = ~right.isnan()
    return loss(outputs[known], right[known]) if bool(known.any()) else 0.0


def _weights(model: nn.ModuleDict) -> bytes:
    return save({name: value.detach().contiguous() for name, value in model.state_dict().items()})
