"""Watched runs that claim what their level cannot give; the honest run is their control."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from judge_cases import Case, Change, failed, rewrite
from torch import nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.run import Run
from aggregates.spec import WatchedModel
from judge.auditing.reexecution import reexecute
from judge.errors import JudgeError
from monitor.config import RunConfig, config_of
from policies.deciding.nothing import NothingPolicy

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = X.argmax(dim=1) % 3
LAYER = {"name": "w", "rank": 2, "grad_norm": 1.0, "update_ratio": None, "epoch_update_ratio": None}


def train(home: Path, *, level: str) -> Case:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    given = (model, optimizer) if level == "measured" else (None, None)
    with proctor.watch(*given, name="own", batch_size=32, policy="nothing", home=home) as run:
        for _ in run.epochs(2):
            loss = cross_entropy(model(X), Y)
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
            run.validate(loss=loss.detach(), accuracy=0.5)  # type: ignore[arg-type]  # a scalar
    return Case(run.id, home / "ledger", home)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("home")
    yield {level: train(home, level=level) for level in ("measured", "reported")}
    torch.set_num_threads(before)


def part(name: str, *path: str, value: object) -> Change:
    """Return a change of one value in the measured or the reported part of each epoch."""

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.EpochMeasured):
            return {}
        found = deepcopy(getattr(event, name))
        place = found
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return {name: found}

    return change


def start(**changes: Any) -> Change:
    """Return a change of the start; a callable value changes what was there."""

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.Started):
            return {}
        made = {
            key: value(deepcopy(getattr(event, key))) if callable(value) else value
            for key, value in changes.items()
        }
        if "config" in made and "level" in made["config"]:
            made["config_hash"] = config_of(made["config"]).hash
        return made

    return change


def as_measured(change: Change) -> Change:
    """Return the change of the start, with what the loop reported told as measured."""

    def both(event: Any) -> dict[str, Any] | None:
        if not isinstance(event, Run.EpochMeasured):
            return change(event)
        told = {"loss": 1.0, "accuracy": 0.5, "examples": 64}
        return {"measured": {**event.measured, "train": {**told, "steps": 2}, "validation": told}}

    return both


def weights(event: Any) -> dict[str, Any]:
    """Save weights in the place of the end."""
    if not isinstance(event, Run.Ended):
        return {}
    return {
        "event": Run.WeightsSaved,
        "kind": "best",
        "epoch": 1,
        "sha256": "0" * 64,
        "size": 1,
        "spec": SPEC.to_dict(),
        "probe": {},
    }


SPEC = WatchedModel("Sequential", 1, "0" * 64, (), ("stop",))
WATCH: Callable[..., dict[str, Any]] = lambda config: {**config, "level": "reported"}  # noqa: E731
FORGERIES: list[tuple[str, str, Change, str]] = [
    (
        "measured losses",
        "measured",
        part("measured", "train", "loss", value=0.1),
        "measured train.loss is recorded, but the loop reports it",
    ),
    (
        "measured accuracy",
        "measured",
        part("measured", "validation", "accuracy", value=0.9),
        "validation accuracy must be a float",
    ),
    (
        "no layers",
        "measured",
        part("measured", "layers", value=[]),
        "no layers are recorded, but a model was watched",
    ),
    (
        "layers that nobody measured",
        "reported",
        part("measured", "layers", value=[LAYER]),
        "layers are recorded, but no model was watched",
    ),
    (
        "accuracy in percent",
        "measured",
        part("reported", "validation", "accuracy", value=93.0),
        "must be from 0 to 1",
    ),
    (
        "gradients that are not finite",
        "measured",
        part("measured", "gradients", "finite", value=False),
        "gradients.finite is False, the norms differ",
    ),
    ("steps below zero", "measured", part("measured", "train", "steps", value=-1), "whole number"),
    ("saved weights", "measured", weights, "a watched loop saves no weights in the ledger"),
    (
        "level removed",
        "measured",
        as_measured(start(config=lambda found: {k: found[k] for k in found if k != "level"})),
        "ConfigurationError: unknown key",
    ),
    (
        "repeatable configuration",
        "measured",
        as_measured(start(config=RunConfig().to_dict(), config_hash=RunConfig().hash)),
        "a repeatable run cannot start from a watched model",
    ),
    (
        "level lowered",
        "measured",
        start(config=WATCH),
        "run.started describes a model, but none was watched",
    ),
    (
        "level raised",
        "reported",
        start(config=lambda config: {**config, "level": "measured"}),
        "watched model that has no parameters",
    ),
    (
        "level on a repeatable model",
        "measured",
        start(spec=RunConfig().spec(3).to_dict()),
        "must start from a watched model",
    ),
    (
        "campaign",
        "measured",
        start(campaign="00000000-0000-4000-8000-000000000000"),
        "belongs to no campaign",
    ),
    (
        "unknown level",
        "measured",
        lambda event: (
            {"config": {**event.config, "level": "certified"}}
            if isinstance(event, Run.Started)
            else {}
        ),
        "level must be one of measured, reported",
    ),
]


@pytest.mark.parametrize("level", ["measured", "reported"])
def test_honest_watched_run_has_no_failed_gate(cases: dict[str, Case], level: str) -> None:
    report = cases[level].audit()
    assert failed(report) is None
    assert report.level == level
    assert failed(rewrite(cases[level], lambda _event: {}).audit()) is None


@pytest.mark.parametrize(
    ("level", "change", "says"),
    [case[1:] for case in FORGERIES],
    ids=[case[0] for case in FORGERIES],
)
def test_forged_watched_run_is_rejected(
    cases: dict[str, Case], level: str, change: Change, says: str
) -> None:
    report = rewrite(cases[level], change, checked=False).audit()
    assert failed(report) == "ledger"
    assert says in report.step("ledger").summary


def test_watched_run_cannot_be_trained_again(cases: dict[str, Case]) -> None:
    with pytest.raises(JudgeError, match="a watched run cannot be trained again"):
        reexecute(cases["measured"].events(), NothingPolicy())
