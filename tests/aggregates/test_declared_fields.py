"""Declared fields: each odd value gets one error of the caller's kind, however it is found."""

from dataclasses import MISSING, fields
from random import Random
from typing import Any

import pytest

from aggregates.decisions import Decision
from aggregates.declared import _hints, check, check_fields
from aggregates.spec import BlockSpec, Edit, ModelSpec, WatchedModel
from monitor.config import RunConfig, TaskConfig
from policies.asking.settings import ModelSettings

HALF = "\ud800"  # of a surrogate pair, as JSON can say it
ODD: tuple[Any, ...] = (
    *(None, True, 7, 2**63, -1, 0, -0.5, float("nan"), float("inf"), b"x", object()),
    *("x", "", "R5", "defer", HALF, [], ["R1"], ("R1",), [["R1"]], [HALF]),
    *({}, {"a": None}, {1: 2}, {HALF: 1}, {"a": HALF}),
)
KINDS = (Decision, BlockSpec, Edit, ModelSpec, ModelSettings, RunConfig, TaskConfig, WatchedModel)


def one_by_one(value: Any) -> None:
    kind: type = type(value)
    for name, hint in _hints(kind).items():
        check(name, getattr(value, name), hint, KeyError)


def said(value: Any, *, together: bool) -> str:
    try:
        check_fields(value, KeyError) if together else one_by_one(value)
    except KeyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_refused_together_as_they_are_one_by_one(kind: type) -> None:
    draw, refused = Random(1), 0
    given = {each.name: each.default for each in fields(kind)}
    for _ in range(300):
        value: Any = object.__new__(kind)
        for name, default in given.items():
            odd = default is MISSING or draw.random() < 1 / len(given)
            object.__setattr__(value, name, draw.choice(ODD) if odd else default)
        wrong = said(value, together=True)
        assert wrong == said(value, together=False)
        refused += bool(wrong)
    assert refused > 50
