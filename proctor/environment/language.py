"""A training whose rules a language model answers, for frameworks of language model agents.

The training process asks as `proctor run --policy openai` does: the same prompts, the same reading
of answers, the same transcript. Only the requests take another way: the framework sends them, and
says what came of them. A request that fails or takes too long is recorded as a call without an
answer, and the training goes on.

Source: docs/how-to/agents.md.
Trust: answers are hostile; the training process reads them.
I/O: starts a process for each episode, which appends to the home's ledger.  Units: seconds, tokens.
"""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import anyio

from monitor.dispatch import PORTABLE
from policies.asking.settings import ModelSettings
from proctor.environment.trainer import Trainer, episode_config
from proctor.errors import ProctorError

MOST = 2**20  # characters of an answer
RUNG = "prompt"  # frameworks are asked for text alone
_BY_STATUS = {408: "timeout", 409: "server_error", 429: "rate_limited"}


@dataclass(frozen=True)
class Answer:
    """What a model said to one request."""

    text: str
    finish_reason: str = "stop"  # as chat completions have it
    usage: Mapping[str, int | None] | None = None  # prompt_tokens, completion_tokens, total_tokens


@dataclass(frozen=True)
class Played:
    """A training that has ended, as its run in the ledger says. The two scores are never mixed."""

    run: str
    end: str
    process_score: float  # of the judge: the share of obligations that were met
    obligations: int  # that the process score rests on
    exercised: bool  # whether answers took effect; else both scores say nothing of the model
    val_accuracy: float  # of the last epoch
    requests: int
    usable: int  # requests whose answers were decisions
    usable_share: float | None  # of the requests; None: there was none
    digest: str
    tree_head: str  # signed; over a ledger that holds the whole run


Ask = Callable[[Mapping[str, Any]], Awaitable[Answer]]
"""Sends the body of a chat completion request, and returns the answer."""


class Episode:
    """One training, recorded as a run of a home; play() trains it.

    settings: of the training, as in the configuration of a run.
    asking: of the requests (docs/reference/language-models.md), `model` among them; `timeout` is
        the time for one answer.
    framework: who sends the requests, as the transcript names it.

    Raises ConfigurationError, PolicyError or ProctorError naming what is wrong.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        home: str | os.PathLike[str],
        asking: Mapping[str, Any],
        framework: str,
    ) -> None:
        self._config = episode_config(settings)
        self._home = Path(home).absolute()
        self._asking = ModelSettings.from_dict({"temperature": None, **asking, "rung": RUNG})
        self._framework = framework
        self.run: str | None = None  # known with the first request

    async def play(self, ask: Ask, *, fatal: tuple[type[BaseException], ...] = ()) -> Played:
        """Train to the end, and return what came of it.

        What `ask` raises is recorded as no answer; the types in `fatal` are raised again, and the
        run is then recorded as interrupted, as it is when this call is cancelled. Raises
        ProctorError if the training fails, or if the model answered no request at all.
        """
        trainer = Trainer(portable=self._config.numerics == PORTABLE)
        problem = "no request"
        answered = False
        try:
            said = await _in_thread(trainer.begin, self._first())
            while "end" not in said:
                self.run = said["run"]
                answer = await self._answer(ask, said["request"], fatal)
                answered = answered or "body" in answer
                problem = answer.get("problem", problem)
                said = await _in_thread(trainer.answer, answer)
        except BaseException:
            trainer.interrupt()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(trainer.close)
        self.run = said["run"]
        if said["requests"] and not answered:
            raise ProctorError(
                f"the model answered none of the {said['requests']} requests of run {self.run}, "
                f"which is recorded: {problem}"
            )
        return Played(**{each.name: said[each.name] for each in fields(Played)})

    def _first(self) -> dict[str, Any]:
        return {
            "config": self._config.to_dict(),
            "record": str(self._home),
            "model": self._asking.to_dict(),
            "endpoint": self._framework,
            "process": True,
        }

    async def _answer(
        self, ask: Ask, request: Mapping[str, Any], fatal: tuple[type[BaseException], ...]
    ) -> dict[str, Any]:
        """Ask within the time; return what the training process is told of it."""
        seconds = self._asking.timeout
        try:
            with anyio.move_on_after(seconds) as scope:
                answer = await ask(request)
        except fatal:
            raise
        except Exception as error:
            return _failed(error)
        if scope.cancelled_caught:
            return {"outcome": "timeout", "problem": f"no answer within {seconds:g} seconds"}
        if len(answer.text) > MOST:
            return {"outcome": "too_large", "problem": f"over {MOST} characters"}
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "finish_reason": answer.finish_reason, "message": message}
        return {"body": json.dumps({"choices": [choice], "usage": answer.usage})}


async def _in_thread(
    call: Callable[[Mapping[str, Any]], dict[str, Any]], message: Mapping[str, Any]
) -> dict[str, Any]:
    """Wait for the training process, but no longer than anybody waits for this."""
    return await anyio.to_thread.run_sync(call, message, abandon_on_cancel=True)


def _failed(error: Exception) -> dict[str, Any]:
    """Return the outcome of a call that raised, by its HTTP status if it has one."""
    status = getattr(error, "status_code", None)
    outcome = "timeout" if isinstance(error, TimeoutError) else "unreachable"
    if isinstance(status, int):
        outcome = _BY_STATUS.get(status, "server_error" if status >= 500 else "rejected")
    return {"outcome": outcome, "problem": f"{type(error).__name__}: {error}"}
