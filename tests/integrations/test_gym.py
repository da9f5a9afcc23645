"""The environment with the real Gymnasium: its own checks, and what its episodes leave."""

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontdoor import answer, call_here
from situations import observe

pytestmark = [pytest.mark.foreign, pytest.mark.filterwarnings("error")]
gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402 - after the skip
from gymnasium.wrappers import FlattenObservation  # noqa: E402

from monitor.errors import ConfigurationError  # noqa: E402
from policies.deciding.network import Network, features, options  # noqa: E402
from policies.deciding.outside import observation_json  # noqa: E402
from proctor.environment.choices import CHOICES  # noqa: E402
from proctor.environment.gym import ID  # noqa: E402
from proctor.errors import ProctorError  # noqa: E402

# R1 fires in the third epoch and in all that follow, until the learning rate is raised far.
STUCK = {"train_examples": 192, "val_examples": 64, "test_examples": 64, "lr": 1e-7, "epochs": 6}
SHORT = {**STUCK, "warm_up_epochs": 0}


@pytest.fixture(scope="module")
def env() -> Iterator[Any]:
    made = gymnasium.make(ID, **SHORT)
    yield made
    made.close()


def play(env: Any, *, seed: int, actions: int | None = None) -> list[Any]:
    """Return seed, actions, rewards and the last info of an episode of random possible actions."""
    _, info = env.reset(seed=seed)
    draws = np.random.default_rng(seed if actions is None else actions)
    done, told = False, []
    while not done:
        action = int(draws.choice(np.flatnonzero(info["mask"])))
        seen, reward, done, cut, info = env.step(action)
        assert seen in env.observation_space
        assert not cut
        told.append((CHOICES[action].name, reward))
    return [told, info]


@pytest.mark.parametrize("settings", [{}, {"actions": "decisions", **SHORT}])
def test_gymnasiums_own_checks_pass_without_a_warning(settings: dict[str, Any]) -> None:
    env = gymnasium.make(ID, **settings)
    check_env(env.unwrapped)
    env.close()


def test_same_seed_and_actions_give_the_same_episode(env: Any) -> None:
    first, second = play(env, seed=3), play(env, seed=3)
    assert first[0] == second[0]
    assert first[1]["digest"] == second[1]["digest"]
    others = {play(env, seed=4, actions=3)[1]["digest"], play(env, seed=3, actions=5)[1]["digest"]}
    assert len({first[1]["digest"], *others}) == 3


def test_reward_is_what_is_gained_over_the_same_seed_where_every_rule_waits() -> None:
    env = gymnasium.make(ID, numerics="portable", reward={"gain": 1.0, "accuracy": 1.0}, epochs=8)
    ends = []
    for acts in (False, True):
        _, info = env.reset(seed=2)
        done, total = False, 0.0
        while not done:
            fits = np.flatnonzero(info["mask"])
            _, reward, done, _, info = env.step(int(fits[int(acts and len(fits) > 1)]))
            total += reward
        ends.append((info["gain"], info["val_accuracy"]))
        assert total == pytest.approx(sum(ends[-1]))
    env.close()
    (waited, accuracy), (gained, reached) = ends
    assert waited == 0.0
    assert gained == pytest.approx(reached - accuracy) != 0.0


def test_healthy_training_of_the_default_is_right_three_times_as_often_as_chance() -> None:
    env, reached = gymnasium.make(ID, numerics="portable", lr=0.1), []
    for seed in range(3):
        seen, _ = env.reset(seed=seed)
        assert seen["left"][0] == pytest.approx(np.log2(1 + 12 - round(12 * seen["progress"][0])))
        done = False
        while not done:
            *_, done, _, info = env.step(0)
        reached.append(info["val_accuracy"])
    env.close()
    assert np.mean(reached) >= 0.3


def test_reward_is_the_decrease_of_the_validation_loss() -> None:
    env = gymnasium.make(ID, reward="val_loss", **SHORT)
    _, info = env.reset(seed=1)
    start, rewards, done = info["val_loss"], 0.0, False
    while not done:
        _, reward, done, _, info = env.step(0)
        rewards += reward
    assert rewards == pytest.approx(start - info["val_loss"])
    assert info["end"] == "completed"
    with pytest.raises(ProctorError, match=r"call reset\(\)"):
        env.unwrapped.step(0)


def test_choice_that_does_not_fit_is_recorded_as_no_answer(env: Any) -> None:
    _, info = env.reset(seed=1)
    assert info["due"] == "R1:low"
    stop = [choice.name for choice in CHOICES].index("stop")
    assert not info["mask"][stop]
    *_, info = env.step(stop)
    assert not info["answered"]
    assert info["outcomes"] == "deferred"
    *_, info = env.step(0)
    assert info["answered"]


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_vector_of_environments_gives_the_same_episodes(vector: str, env: Any) -> None:
    seeds = [3, 4]
    alone = []
    for seed in seeds:
        env.reset(seed=seed)
        done = False
        while not done:
            *_, done, _, info = env.step(0)
        alone.append(info["digest"])
    many = gymnasium.make_vec(ID, num_envs=2, vectorization_mode=vector, **SHORT)
    many.reset(seed=seeds)
    found = [""] * 2
    while not all(found):
        *_, done, _, info = many.step(np.zeros(2, dtype=np.int64))
        for place in np.flatnonzero(done):
            found[place] = found[place] or info["digest"][place]
    many.close()
    assert found == alone


def test_recorded_episode_is_a_run_that_is_shown_judged_and_replayed(
    tmp_path: Path, env: Any
) -> None:
    recorded = gymnasium.make(
        ID, record=tmp_path, reward={"process": 1.0, "accuracy": 0.5}, **SHORT
    )
    told, info = play(recorded, seed=3)
    play(recorded, seed=4)
    recorded.reset(seed=5)
    recorded.close()
    assert info["digest"] == play(env, seed=3)[1]["digest"]
    warnings.simplefilter("default")  # what the judge does in this process
    verdict = answer(call_here(["judge", info["run"], "--json"], home=tmp_path))
    assert not verdict["hard_fail"]
    assert verdict["scores"]["process_score"] == info["process"]
    assert told[-1][1] == pytest.approx(info["process"] + 0.5 * info["val_accuracy"])
    assert "agent" in call_here(["show", info["run"]], home=tmp_path).stdout
    call_here(["replay", info["run"], "--execute"], home=tmp_path)
    ends = answer(
        call_here(
            ["sql", "SELECT end_reason FROM runs ORDER BY ALL", "--format", "json"], home=tmp_path
        )
    )
    assert [row["end_reason"] for row in ends] == ["completed", "completed", "interrupted"]


def test_decisions_are_answered_as_json() -> None:
    env = gymnasium.make(ID, actions="decisions", **{**SHORT, "epochs": 9})
    _, info = env.reset(seed=1)
    seen = json.loads(info["observation"])
    assert seen["due"] == ["R1"]
    action: Any
    for action in ("no JSON", {"decisions": [np.float32(1)]}):
        *_, info = env.step(action)
        assert not info["answered"]
    raised = {
        "event_type": "hyperparameter_change",
        "cites": ["R1"],
        "direction": "increase_lr",
        "params": {"lr": seen["settings"]["lr"] * 10},
        "justification": "R1 is low.",
    }
    for action in (
        json.dumps({"decisions": [raised]}),
        {"decisions": [{**raised, "params": {"lr": 1e-5}}]},
    ):
        *_, info = env.step(action)
        assert (info["answered"], info["outcomes"]) == (True, "applied")
    env.close()


def test_dead_process_gives_one_error_and_reset_starts_another() -> None:
    env = gymnasium.make(ID, **SHORT)
    env.reset(seed=1)
    trainer = env.unwrapped._trainer
    first = trainer._child.pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ProctorError, match=r"ended by itself \(exit status -9\)"):
        env.step(0)
    with pytest.raises(ProctorError, match=r"call reset\(\)"):
        env.step(0)
    env.reset(seed=1)
    second = trainer._child.pid
    env.close()
    for pid in (first, second):
        assert not Path(f"/proc/{pid}").exists()  # not even as a zombie


def test_wrong_settings_are_refused_by_name(env: Any) -> None:
    with pytest.raises(ConfigurationError, match="epoch"):
        gymnasium.make(ID, epoch=3)
    with pytest.raises(
        ProctorError, match="reward must be one of gain, val_loss, accuracy, process"
    ):
        gymnasium.make(ID, reward="loss")
    with pytest.raises(ProctorError, match="edits must be"):
        gymnasium.make(ID, edits="restart")
    with pytest.raises(ProctorError, match="batch_size 512 times accumulation 1 is above the 192"):
        env.reset(options={"batch_size": 512})
    assert FlattenObservation(env).reset(seed=1)[0].ndim == 1


def test_agents_process_never_loads_torch() -> None:
    code = (
        "import sys, gymnasium; import proctor.environment.gym\n"
        f"env = gymnasium.make({ID!r}, **{SHORT!r})\n"
        "env.reset(seed=1); env.step(0)\n"
        "assert 'torch' not in sys.modules\n"  # leaves the environment open: its process ends
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300)


def test_agent_of_the_guide_plays_and_is_judged(tmp_path: Path) -> None:
    agent = Path(__file__).parents[2] / "docs/examples/agent/random_agent.py"
    found = subprocess.run(
        [sys.executable, "-W", "error", agent],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout.count("episode ") == 3
    warnings.simplefilter("default")
    verdict = answer(call_here(["judge", "latest", "--json"], home=tmp_path / "episodes"))
    assert not verdict["hard_fail"]


def test_example_reads_situations_as_the_policy_does_and_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(__file__).parents[2] / "docs/examples/agent/train.py"
    spec = spec_from_file_location("train", path)
    assert spec is not None
    assert spec.loader is not None
    example: Any = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train", example)
    spec.loader.exec_module(example)
    seen = observe({"R7": "not_finite", "R1": "high"}, epoch=9)
    read = example.read(json.dumps(observation_json(seen)))
    for rule in seen.due:
        assert features(rule, read) == features(rule, seen)
        found = (options(rule, each, move=0.5, fresh=True) for each in (read, seen))
        assert next(found) == next(found)
    monkeypatch.setattr(example, "FAULTS", {"dead_activations": 2})
    weights = tmp_path / "learned.safetensors"
    monkeypatch.setattr(sys, "argv", ["train.py", "--rounds", "1", "--into", str(weights)])
    example.main()
    assert Network.read(weights.read_bytes()).sha256
