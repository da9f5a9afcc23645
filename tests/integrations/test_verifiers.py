"""The environment of verifiers, with a model on loopback: its traces, and what is recorded."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_episodes import (
    CALLS,
    SCORES,
    STUCK,
    UNRELIABLE,
    acts,
    assert_recorded,
    assert_unreliable,
    ends,
    killer,
    rows,
    silent,
)
from chat_server import Behaviour, ChatServer

pytestmark = pytest.mark.foreign
vf = pytest.importorskip("verifiers.v1")
from verifiers.v1.utils.loaders import load_environment, resolve_env_config  # noqa: E402

from proctor.environment import verifiers_taskset  # noqa: E402

GUIDE = Path(__file__).parents[2] / "docs/how-to/agents.md"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module as verifiers finds it: by a name without dots."""
    monkeypatch.setitem(sys.modules, "proctor_training", verifiers_taskset)


def roll_out(
    home: Path,
    behaviour: Behaviour,
    *,
    agent: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    asking: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Return the trace of one rollout."""
    taskset = {
        "id": "proctor-training",
        "home": str(home),
        "settings": {**STUCK, **settings},
        "asking": asking or {},
        "task": task or {},
    }
    env = load_environment(resolve_env_config({"taskset": taskset, "agent": agent or {}}))

    async def run(url: str) -> Any:
        client = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY")
        context = vf.ModelContext("scripted", client, vf.Sampling(temperature=0.5, max_tokens=500))
        async with env.serving():
            return await env.run_episode(next(iter(env.taskset)), context)

    with ChatServer(behaviour) as server:
        (trace,) = asyncio.run(run(server.url)).traces
    return trace


@pytest.mark.parametrize("reward", SCORES)
def test_rollout_is_a_run_that_the_trace_names_with_a_tree_head(
    tmp_path: Path, reward: str
) -> None:
    trace = roll_out(tmp_path, acts, task={"reward": reward})
    assert trace.ok, trace.errors
    told = trace.info["proctor"]
    assert trace.metrics == {name: told[name] for name in (*SCORES, "usable_share")}
    assert {name: found.score for name, found in trace.rewards.items()} == {reward: told[reward]}
    assert trace.reward == told[reward]
    assert trace.num_turns == told["requests"] > 0
    assert_recorded(tmp_path, [told])
    assert [list(each.values()) for each in rows(tmp_path, CALLS)] == [
        ["scripted", "verifiers", "0.5", "500"]
    ]


def test_nonsense_and_late_answers_are_recorded_and_the_training_goes_on(tmp_path: Path) -> None:
    trace = roll_out(tmp_path, UNRELIABLE, asking={"timeout": 1.0}, epochs=8)
    assert trace.ok, trace.errors
    assert_unreliable(tmp_path, trace.info["proctor"])


@pytest.mark.parametrize(
    ("behaviour", "agent", "problem", "end"),
    [
        pytest.param(silent, {}, "answered none of the|no such key", "completed", id="silent"),
        pytest.param(killer, {}, "training process ended by itself", "crashed", id="killed"),
        pytest.param(acts, {"max_turns": 1}, None, "interrupted", id="limit"),
    ],
)
def test_run_of_a_rollout_that_fails_is_recorded(
    tmp_path: Path, behaviour: Behaviour, agent: dict[str, Any], problem: str | None, end: str
) -> None:
    trace = roll_out(tmp_path, behaviour, agent=agent)
    if problem is None:
        assert trace.stop_condition == "max_turns"
    else:
        assert not trace.ok
        assert re.search(problem, trace.errors[-1].message)
    assert {name: trace.metrics.get(name) for name in SCORES} == dict.fromkeys(SCORES)
    assert trace.reward == 0.0
    assert ends(tmp_path) == [end]
    (run,) = rows(tmp_path, "SELECT run_id FROM runs")
    assert trace.info["proctor"]["run"] == run["run_id"]


def test_environment_of_the_guide_is_evaluated(tmp_path: Path) -> None:
    text = GUIDE.read_text("utf-8")
    (code,) = re.findall(r"```python\n(# proctor_training.py\n.*?)```", text, re.DOTALL)
    (settings,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "proctor_training.py").write_text(code, encoding="utf-8")
    with ChatServer(acts) as server:
        address = settings.replace("http://127.0.0.1:8080/v1", server.url)
        assert address != settings
        (tmp_path / "trainings.toml").write_text(address, encoding="utf-8")
        done = subprocess.run(
            [Path(sys.executable).with_name("vf-eval"), "@", "trainings.toml", "--no-rich"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{GUIDE.parents[2]}:."},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert set(ends(tmp_path / "evaluated")) == {"completed"}
