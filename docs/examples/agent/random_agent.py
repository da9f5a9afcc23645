"""An agent that answers by chance, in three live trainings: see docs/how-to/agents.md."""

import gymnasium
import numpy as np

import proctor.environment.gym  # noqa: F401 - registers the environment
from proctor.environment.choices import CHOICES


def main() -> None:
    env = gymnasium.make("proctor/Training-v0", reward="val_loss", record="episodes")
    draws = np.random.default_rng(0)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            print(f"epoch {info['epoch']}: rules that want an answer: {info['due']}")
            action = int(draws.choice(np.flatnonzero(info["mask"])))
            _, reward, ended, _, info = env.step(action)
            print(f"    {CHOICES[action].name}: reward {reward:.3f}")
            total += reward
        print(
            f"episode {seed}: {total:.3f}, accuracy {info['val_accuracy']:.2f}, run {info['run']}"
        )
    env.close()


if __name__ == "__main__":
    main()
