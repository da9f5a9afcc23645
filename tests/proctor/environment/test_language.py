"""An episode whose model somebody else asks: what is made of failures, limits and the end."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from chat_server import act_on_first
from frontdoor import answer, call_here
from tiny_training import STUCK

from policies.errors import PolicyError
from proctor.environment.language import MOST, Answer, Ask, Episode, Played
from proctor.errors import ProctorError


class StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("no")
        self.status_code = status


class LimitError(Exception):
    pass


def episode(home: Path, *, epochs: int = 6, lr: float = 1e-7, **asking: Any) -> Episode:
    sizes = {"train_examples": 192, "val_examples": 64, "test_examples": 64}
    return Episode(
        {**STUCK, **sizes, "epochs": epochs, "lr": lr},
        home=home,
        asking={"model": "scripted", **asking},
        framework="frame",
    )


def play(home: Path, ask: Ask, **asking: Any) -> Played:
    async def played() -> Played:
        return await episode(home, **asking).play(ask, fatal=(LimitError,))

    return anyio.run(played)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StatusError(429), "rate_limited"),
        (StatusError(503), "server_error"),
        (StatusError(401), "rejected"),
        (TimeoutError(), "timeout"),
        (ConnectionError(), "unreachable"),
    ],
)
def test_failure_is_told_by_its_kind(tmp_path: Path, error: Exception, outcome: str) -> None:
    async def ask(_: Mapping[str, Any]) -> Answer:
        raise error

    found = anyio.run(episode(tmp_path)._answer, ask, {}, ())
    assert found["outcome"] == outcome
    assert type(error).__name__ in found["problem"]


def test_late_and_endless_answers_are_none_and_limits_pass_through(tmp_path: Path) -> None:
    async def late(_: Mapping[str, Any]) -> Answer:
        await anyio.sleep(60)
        raise AssertionError

    async def endless(_: Mapping[str, Any]) -> Answer:
        return Answer("x" * (MOST + 1))

    async def limited(_: Mapping[str, Any]) -> Answer:
        raise LimitError

    hasty = episode(tmp_path, timeout=0.1)
    assert anyio.run(hasty._answer, late, {}, ())["outcome"] == "timeout"
    assert anyio.run(hasty._answer, endless, {}, ())["outcome"] == "too_large"
    with pytest.raises(LimitError):
        anyio.run(hasty._answer, limited, {}, (LimitError,))


def test_wrong_settings_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="forn"):
        episode(tmp_path, forn="full")


@pytest.mark.slow
def test_episode_is_played_and_each_way_to_end_it_is_recorded(tmp_path: Path) -> None:
    async def act(request: Mapping[str, Any]) -> Answer:
        return Answer(json.dumps(act_on_first(request)))

    async def limited(_: Mapping[str, Any]) -> Answer:
        raise LimitError

    async def refused(_: Mapping[str, Any]) -> Answer:
        raise StatusError(401)

    played = play(tmp_path, act)
    assert (played.end, played.process_score) == ("completed", 1.0)
    assert played.requests == played.usable
    with pytest.raises(LimitError):
        play(tmp_path, limited)
    with pytest.raises(ProctorError, match=r"answered none of the 4 requests of run .*: Status"):
        play(tmp_path, refused)
    assert ends(tmp_path) == ["completed", "completed", "interrupted"]


@pytest.mark.slow
def test_cancelled_training_is_left_at_once_and_recorded(tmp_path: Path) -> None:
    async def nobody(_: Mapping[str, Any]) -> Answer:
        raise AssertionError

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(episode(tmp_path, lr=0.05, epochs=10_000).play, nobody)
            while not list(tmp_path.glob("runs/*/running.lock")) or ends(tmp_path) != [None]:
                await anyio.sleep(0.5)
            group.cancel_scope.cancel()

    anyio.run(cancelled)
    assert ends(tmp_path) == ["interrupted"]


def ends(home: Path) -> list[str | None]:
    sql = "SELECT end_reason FROM runs ORDER BY ALL"
    found = answer(call_here(["sql", sql, "--format", "json"], home=home))
    return [each["end_reason"] for each in found]
