"""An environment of verifiers: a language model answers the rules of live trainings.

A task is a training, recorded as a run in a home's ledger; a turn is one request. The trace's
`info` names the run and a signed tree head of the ledger. The process score and the accuracy are
two metrics, and one of them is the reward.

Source: docs/how-to/agents.md; verifiers 0.4, `verifiers.v1`.
I/O: requests go to the rollout's own endpoint, which the framework serves on loopback; each rollout
starts a process that appends to the ledger.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

import httpx
import verifiers.v1 as vf
from pydantic import Field

from proctor.environment.language import Answer, Episode
from proctor.environment.trainer import episode_config

__all__ = ["TrainingEnv", "TrainingHarness", "TrainingTaskset"]

NAME = "verifiers"
INFO = "proctor"  # its key in a trace's info
MAX_SECONDS = 3600.0  # of an answer, as ModelSettings has it
SCORES = ("process_score", "val_accuracy")
USABLE = "usable_share"


class TrainingData(vf.TaskData):
    """One training."""

    settings: dict[str, Any]
    asking: dict[str, Any]
    home: str


class TrainingTaskConfig(vf.TaskConfig):
    """Which score is the reward; both are metrics."""

    reward: Literal["process_score", "val_accuracy"] = "process_score"


class TrainingTask(vf.Task[TrainingData, vf.State, TrainingTaskConfig]):
    """Scores a training by what its run says."""

    @vf.metric
    async def scores(self, trace: vf.Trace) -> Mapping[str, float]:
        """Return the share of usable answers, and both scores where rules were exercised.

        Nothing, if the training did not end.
        """
        told = trace.info.get(INFO, {})
        names = (*SCORES, USABLE) if told.get("exercised") else (USABLE,)
        return {name: told[name] for name in names if told.get(name) is not None}

    @vf.reward
    async def chosen(self, trace: vf.Trace) -> Mapping[str, float]:
        """Return the score that is the reward, if there is one."""
        return {n: v for n, v in (await self.scores(trace)).items() if n == self.config.reward}


class TrainingTasksetConfig(vf.TasksetConfig):
    """`settings` are the trainings', as in the configuration of a run; `asking`, the requests'."""

    task: TrainingTaskConfig = TrainingTaskConfig()
    home: str = ".proctor"
    settings: dict[str, Any] = Field(default_factory=dict)
    asking: dict[str, Any] = Field(default_factory=dict)


class TrainingTaskset(vf.Taskset[TrainingTask, TrainingTasksetConfig]):
    """Trainings with the seeds 0, 1 and so on, without end."""

    INFINITE = True

    def load(self) -> Iterator[TrainingTask]:
        """Yield the trainings; raises ConfigurationError or ProctorError for wrong settings."""
        config = self.config
        episode_config(config.settings)
        for seed in itertools.count():
            data = TrainingData(
                name=f"seed-{seed}",
                prompt=f"Answer the rules of the training with seed {seed}.",
                settings={**config.settings, "seed": seed},
                asking=config.asking,
                home=os.path.abspath(config.home),  # noqa: PTH100
            )
            yield TrainingTask(data, config.task)


class TrainingHarnessConfig(vf.HarnessConfig):
    """Nothing of its own."""


class TrainingHarness(vf.Harness[TrainingHarnessConfig]):
    """Trains, and sends the requests of the training. The model gets no tools and runs no code.

    Each request stands alone, as in `proctor run`: it tells the earlier decisions by itself.
    """

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Train one episode; the trace names its run, however it ends."""
        assert isinstance(data, TrainingData)
        sampling = ctx.sampling.model_dump(exclude_none=True)
        asking = {
            key: sampling[key] for key in ("temperature", "top_p", "max_tokens") if key in sampling
        }
        episode = Episode(
            data.settings,
            home=data.home,
            asking={"model": ctx.model, **asking, **data.asking},
            framework=NAME,
        )
        client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {secret}"},
            timeout=MAX_SECONDS,  # the episode ends what takes longer than it allows
            trust_env=False,
        )

        async def ask(request: Mapping[str, Any]) -> Answer:
            trace.info[INFO] = {"home": data.home, "run": episode.run}
            found = await client.post(f"{endpoint}/chat/completions", json=dict(request))
            if found.is_error:
                if trace.stop_condition is not None:
                    raise _StoppedError(trace.stop_condition)
                raise _RefusedError(found)
            body = found.json()
            choice = body["choices"][0]
            return Answer(
                choice["message"].get("content") or "",
                choice.get("finish_reason") or "stop",
                body.get("usage"),
            )

        async with client:
            try:
                played = await episode.play(ask, fatal=(_StoppedError,))
            except _StoppedError as stopped:
                return vf.ProgramResult(0, f"stopped: {stopped}", "")
        trace.info[INFO] = {"home": data.home, **asdict(played)}
        return vf.ProgramResult(0, f"run {played.run}", "")


class TrainingEnvConfig(vf.SingleAgentEnvConfig):
    """One agent, whose training process runs here: not in a box that is rented."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class TrainingEnv(vf.Env[TrainingEnvConfig]):
    """A training for each task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Let the one agent answer."""
        await agents.agent.run(task)


class _StoppedError(Exception):
    """The framework has ended the rollout, for one of its limits."""


class _RefusedError(Exception):
    """The endpoint answered with an error."""

    def __init__(self, found: httpx.Response) -> None:
        super().__init__(f"status {found.status_code}: {found.text[:300]}")
        self.status_code = found.status_code
