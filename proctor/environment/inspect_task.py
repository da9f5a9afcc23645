"""A task of inspect_ai: a language model answers the rules of live trainings.

A sample is a training, recorded as a run in a home's ledger. Its metadata name the run and a signed
tree head of the ledger. The process score, the accuracy and the share of usable answers are three
scores; the first two only where the model's answers were exercised.

Source: docs/how-to/agents.md.
I/O: the framework asks the model; each sample starts a process that appends to the ledger.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError

from proctor.environment.language import Answer, Episode
from proctor.environment.trainer import episode_config

NAME = "inspect_ai"
METADATA = "proctor"  # its key in a sample's metadata
_REASONS = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}


@task
def training(
    home: str = ".proctor",
    seeds: int = 4,
    asking: dict[str, Any] | None = None,
    **settings: Any,
) -> Task:
    """Return the task: `seeds` trainings with these settings, whose seeds are 0, 1 and so on.

    asking: how the model is asked, for example {"form": "exported", "timeout": 120}.
    """
    episode_config(settings)  # what is wrong with them is said before anything is asked
    samples = [
        Sample(
            input=f"Answer the rules of the training with seed {seed}.",
            id=f"seed-{seed}",
            metadata={"settings": {**settings, "seed": seed}},
        )
        for seed in range(seeds)
    ]
    return Task(
        dataset=MemoryDataset(samples, name="trainings"),
        solver=answer_rules(home=home, asking=asking),
        scorer=[process_score(), validation_accuracy(), usable()],
        version=2,
    )


@solver
def answer_rules(home: str = ".proctor", asking: dict[str, Any] | None = None) -> Solver:
    """Train with the sample's settings, and let the model answer the rules that are due.

    Each request stands alone, as in `proctor run`: it tells the earlier decisions by itself.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        chosen = model.config
        sampling = {
            key: value
            for key in ("temperature", "top_p", "seed", "max_tokens")
            if (value := getattr(chosen, key)) is not None
        }
        episode = Episode(
            state.metadata["settings"],
            home=home,
            asking={"model": str(model), **sampling, **(asking or {})},
            framework=NAME,
        )

        async def ask(request: Mapping[str, Any]) -> Answer:
            state.metadata[METADATA] = {"home": os.path.abspath(home), "run": episode.run}  # noqa: PTH100
            messages = _messages(request)
            state.messages += messages
            output = await model.generate(
                messages,
                config=GenerateConfig(
                    **{key: request[key] for key in sampling | {"max_tokens": 0}}
                ),
            )
            state.output = output
            if not output.empty:
                state.messages.append(output.message)
            return _answer(output)

        played = await episode.play(ask, fatal=(LimitExceededError,))
        state.metadata[METADATA] = {"home": os.path.abspath(home), **asdict(played)}  # noqa: PTH100
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def process_score() -> Scorer:
    """Score how the rules were answered: the judge's process score."""
    return _score_of("process_score")


@scorer(metrics=[mean(), stderr()])
def validation_accuracy() -> Scorer:
    """Score what came of the training: the validation accuracy of its last epoch."""
    return _score_of("val_accuracy")


@scorer(metrics=[mean(), stderr()])
def usable() -> Scorer:
    """Score the form of the answers: the share of requests whose answers were decisions."""
    return _score_of("usable_share")


def _score_of(key: str) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        told = state.metadata.get(METADATA, {})
        if told.get(key) is None:
            why = "nothing was asked" if key in told else "the training did not end"
            return Score.unscored(explanation=f"{why}; its run is {told.get('run')}")
        said = f"run {told['run']}: {told['usable']} of {told['requests']} answers were usable"
        if not told["exercised"] and key != "usable_share":
            return Score.unscored(explanation=f"{said}, and none took effect (unexercised)")
        return Score(value=told[key], explanation=said)

    return score


def _messages(request: Mapping[str, Any]) -> list[ChatMessage]:
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser}
    return [kinds[each["role"]](content=each["content"]) for each in request["messages"]]


def _answer(output: ModelOutput) -> Answer:
    if output.error is not None:
        raise RuntimeError(output.error)
    usage = output.usage
    return Answer(
        output.completion,
        _REASONS.get(output.stop_reason, "stop"),
        None
        if usage is None
        else {
            "prompt_tokens": usage.total_tokens - usage.output_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    )
