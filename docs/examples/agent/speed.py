"""Episodes a minute of proctor/Training-v0 with random answers: `python speed.py [EPISODES]`."""

import resource
import sys
import time

import gymnasium
import numpy as np

import proctor.environment.gym  # noqa: F401 - registers the environment

SETTINGS = {"default": {}, "small": {"train_examples": 192, "epochs": 6}}


def measure(settings: dict[str, int], episodes: int) -> tuple[float, float]:
    """Return the seconds of the clock and of all processors, with the start of the process."""
    began, used = time.monotonic(), processors()
    env = gymnasium.make("proctor/Training-v0", **settings)
    draws = np.random.default_rng(0)
    for seed in range(episodes):
        _, info = env.reset(seed=seed)
        ended = False
        while not ended:
            action = int(draws.choice(np.flatnonzero(info["mask"])))
            *_, ended, _, info = env.step(action)
    env.close()
    return time.monotonic() - began, processors() - used


def processors() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(each)[:2]) for each in whose)


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name, settings in SETTINGS.items():
        first, all_of_them = measure(settings, 1), measure(settings, episodes + 1)
        clock, used = (60 * episodes / (b - a) for a, b in zip(first, all_of_them, strict=True))
        print(f"{name}: {clock:.0f} episodes a minute, {used:.0f} a minute of processor time")
