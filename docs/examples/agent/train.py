"""Teaches the network of the policy `network` on the environment proctor/Training-v0.

    python train.py [--rounds 8] [--workers 2] [--into learned.safetensors]

It starts from random weights. An episode is a short training with a fault; its reward is the
validation accuracy at the end, and a tenth of the process score. The loss is PPO's; what an episode
gained is its reward less the mean of the episodes that began alike, as in GRPO. The same rounds
give the same weights on the same machine. See docs/studies/agents.md.

Source: Schulman et al., "Proximal Policy Optimization Algorithms" (2017); Shao et al.,
"DeepSeekMath" (2024), section 4.1.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import gymnasium
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal

import proctor.environment.gym  # noqa: F401 - registers the environment
from aggregates.decisions import Decision
from aggregates.playbook import DEFER
from aggregates.provocations import apply_to_config
from monitor.config import RunConfig
from policies.deciding.network import FEATURES, HIDDEN, OUTPUTS, features, options

HERE = Path(__file__).parent
FAULTS: Mapping[str, int] = {  # with the episodes of a round, which begin alike
    "lr_too_low": 4,
    "init_too_small": 4,
    "dead_activations": 4,
    "exploding_loss": 4,
    "no_norm_at_depth": 2,  # its deep model takes four times as long
}
MOVE, FRESH = OUTPUTS.index("move"), OUTPUTS.index("fresh")
SPREAD = 0.3  # of the drawn moves
PASSES, LR, SLOWER, CLIP, ENTROPY = 10, 6e-3, 0.95, 0.2, 0.01


@dataclass
class Step:
    """A due rule that the network was asked about, and what was drawn."""

    inputs: tuple[float, ...]
    open: list[bool]  # of the outputs
    drawn: tuple[int, float, float]  # direction, move, fresh
    gained: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, default=HERE / "learned.safetensors")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = {"hidden": nn.Linear(len(FEATURES), HIDDEN), "choice": nn.Linear(HIDDEN, len(OUTPUTS))}
    actor = nn.ModuleDict(layers)
    optimizer = torch.optim.Adam(actor.parameters(), lr=LR, eps=1e-5)
    settings = RunConfig.from_toml(HERE / "settings.toml").to_dict()
    del settings["seed"]
    reward = {"accuracy": 1.0, "process": 0.1}
    idle: SimpleQueue[Any] = SimpleQueue()
    for _ in range(chosen.workers):
        idle.put(
            gymnasium.make("proctor/Training-v0", actions="decisions", reward=reward, **settings)
        )

    def episode(start: tuple[str, int], number: int) -> tuple[list[Step], float]:
        env = idle.get()
        try:
            return play(env, actor, settings, start, number)
        finally:
            idle.put(env)

    with ThreadPoolExecutor(chosen.workers) as pool:
        for number in range(chosen.rounds):
            for group in optimizer.param_groups:
                group["lr"] = LR * SLOWER**number
            steps, told = [], []
            starts = [(fault, number) for fault, times in FAULTS.items() for _ in range(times)]
            played = list(pool.map(episode, starts, range(len(starts))))
            for fault in FAULTS:
                alike = [
                    each for start, each in zip(starts, played, strict=True) if start[0] == fault
                ]
                mean = fmean(reward for _, reward in alike)
                told.append(f"{fault} {mean:.3f}")
                for taken, reward in alike:
                    for step in taken:
                        step.gained = reward - mean
                    steps += taken
            learn(actor, optimizer, steps)
            print(number, *told, flush=True)
            chosen.into.write_bytes(save({k: v.detach() for k, v in actor.state_dict().items()}))
    while not idle.empty():
        idle.get().close()


def play(
    env: Any, actor: nn.ModuleDict, settings: Mapping[str, Any], start: tuple[str, int], number: int
) -> tuple[list[Step], float]:
    """Play an episode that begins with a fault; return its steps and its reward."""
    fault, seed = start
    draws = torch.Generator().manual_seed(1_000 * seed + number)
    faulty = apply_to_config(settings, fault, seed)
    changes = {key: faulty[key] for key in faulty if faulty[key] != settings.get(key)}
    _, info = env.reset(seed=seed, options=changes)
    steps: list[Step] = []
    total, ended = 0.0, False
    while not ended:
        due = "observation" in info  # else no rule was due in the whole training
        decisions = decide(actor, read(info["observation"]), steps, draws) if due else []
        _, reward, ended, _, info = env.step({"decisions": decisions})
        total += reward
    return steps, total


def decide(
    actor: nn.ModuleDict, seen: Any, steps: list[Step], draws: torch.Generator
) -> list[dict[str, Any]]:
    """Draw an answer for each due rule until one acts, to which the others are deferred."""
    said: list[Decision] = []
    first = None
    for rule in seen.due:
        if first is not None:
            said.append(Decision.of((rule,), DEFER, {"deferred_to": first}, f"{first} goes first."))
            continue
        inputs = features(rule, seen)
        with torch.no_grad():
            found = outputs(actor, torch.tensor(inputs))
        move = float(found[MOVE] + SPREAD * torch.randn((), generator=draws))
        fresh = float(torch.rand((), generator=draws) < found[FRESH].sigmoid())
        allowed = options(rule, seen, move=move, fresh=fresh > 0)
        mask = [name in allowed for name in OUTPUTS]
        shares = found.masked_fill(~torch.tensor(mask), -1e9).softmax(0)
        number = int(torch.multinomial(shares, 1, generator=draws))
        name = OUTPUTS[number]
        steps.append(Step(inputs, mask, (number, move, fresh)))
        said.append(Decision.of((rule,), name, allowed[name], f"{rule}: {name} was drawn."))
        first = rule if said[-1].acts else None
    return [each.to_dict() for each in said]


def outputs(actor: nn.ModuleDict, inputs: Tensor) -> Tensor:
    found: Tensor = actor["choice"](nn.functional.relu(actor["hidden"](inputs)))
    return found


def learn(actor: nn.ModuleDict, optimizer: torch.optim.Optimizer, steps: Sequence[Step]) -> None:
    """Make what was drawn in better episodes than those that began alike more likely."""
    inputs, masks = torch.tensor([s.inputs for s in steps]), torch.tensor([s.open for s in steps])
    number, move, fresh = torch.tensor([s.drawn for s in steps]).T
    moved = torch.tensor([OUTPUTS[s.drawn[0]].endswith("_lr") for s in steps])
    down = torch.tensor([OUTPUTS[s.drawn[0]] == "decrease_lr" for s in steps])
    gained = torch.tensor([s.gained for s in steps])
    gained = gained / (gained.std() + 1e-8)

    def likelihood() -> tuple[Tensor, Tensor]:
        found = outputs(actor, inputs)
        choice = Categorical(logits=found.masked_fill(~masks, -1e9))
        anew = Bernoulli(logits=found[:, FRESH])
        log = choice.log_prob(number) + Normal(found[:, MOVE], SPREAD).log_prob(move) * moved
        return log + anew.log_prob(fresh) * down, (choice.entropy() + anew.entropy() * down).mean()

    with torch.no_grad():
        before = likelihood()[0]
    for _ in range(PASSES):
        after, entropy = likelihood()
        ratio = (after - before).exp()
        kept = torch.minimum(ratio * gained, ratio.clamp(1 - CLIP, 1 + CLIP) * gained).mean()
        optimizer.zero_grad()
        (-kept - ENTROPY * entropy).backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        optimizer.step()


def read(text: str) -> Any:
    """Return a situation in JSON as an observation: what features() and options() look at."""

    def built(row: dict[str, Any]) -> SimpleNamespace:
        words = ("NaN", "Infinity", "-Infinity")
        numbers = {key: float(row[key]) for key in row if row[key] in words}
        return SimpleNamespace(**{**row, **numbers})

    seen = json.loads(text, object_hook=built)
    seen.evaluations, seen.spec = vars(seen.rules), seen.model
    seen.may_reset = True  # of a network that Proctor has built
    for past in seen.decisions:
        past.decision = past
    seen.applied = [past for past in seen.decisions if past.outcome == "applied"]
    return seen


if __name__ == "__main__":
    main()
