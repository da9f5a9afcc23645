"""Random mutations: each is refused, or changed nothing that is verified.

The slow suite carries out 20,000, or 100,000 with EXHAUSTIVE=1.
"""

import faulthandler
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from exhaustive import EXHAUSTIVE
from mutations import TARGETS
from threat_scene import Scene, make_scene

SHARE_OF_THE_FAST = 200  # one in so many
SHARE_OF_THE_SLOW = 1 if EXHAUSTIVE else 5
LONGEST = 5.0  # s of processor time, for one verification
HANGS = 600  # s, after which the process is ended, with a traceback


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("scene") / "honest")


def mutate(scene: Scene, tmp_path: Path, *, target: str, trials: int, seed: str) -> Counter[str]:
    """Return how often each outcome was met; raise AssertionError for one that may not be."""
    outcomes: Counter[str] = Counter()
    subject = TARGETS[target][0](scene, tmp_path / "subject")
    for trial in range(trials):
        if trial % 100 == 0:
            assert subject.verified() == subject.honest  # the control
        faulthandler.dump_traceback_later(HANGS, exit=True)
        started = time.process_time()
        try:
            how, outcome = subject.trial(random.Random(f"{seed} {target} {trial}"))
        except Exception as e:
            raise AssertionError(f"{target}: trial {trial} of seed {seed!r}: {e!r}") from e
        finally:
            faulthandler.cancel_dump_traceback_later()
        assert time.process_time() - started < LONGEST, (target, trial, how)
        outcomes[outcome] += 1
        outcomes[f"{outcome}: {how}"] += 1
    return outcomes


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(3)
def test_mutations_are_rejected(scene: Scene, tmp_path: Path, target: str) -> None:
    trials = TARGETS[target][1] // SHARE_OF_THE_FAST
    outcomes = mutate(scene, tmp_path, target=target, trials=trials, seed="fast")
    assert outcomes["refused"] + outcomes["named"] > trials // 2


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_thousands_of_mutations_are_rejected(scene: Scene, tmp_path: Path, target: str) -> None:
    trials = TARGETS[target][1] // SHARE_OF_THE_SLOW
    outcomes = mutate(scene, tmp_path, target=target, trials=trials, seed="slow")
    print(f"\n{target}: {trials} mutations, {dict(sorted(outcomes.items()))}")
    assert outcomes["refused"] + outcomes["named"] > trials // 2
