"""A task's training goes back to an earlier state, and on with other settings."""

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
from task_runs import OPTIMIZER, SMALL, TABULAR, data_of, train
from tiny_training import ScriptedPolicy

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, FRESH, GO_BACK, RESTORING
from aggregates.rules import PROFILES
from aggregates.run import Run
from aggregates.spec import WatchedModel
from monitor.config import TaskConfig
from monitor.errors import ConfigurationError, MonitorError
from monitor.task_worker import TRAIN, TaskWorker
from monitor.tasks import read_task
from monitor.watched_model import WatchedState

# Epoch 2 of 5 is trained with a rate that is far too high, whatever is decided.
HOT = (
    TABULAR
    + "\n\ndef schedule(progress, params):\n    return 1000 if 0.4 < progress < 0.61 else 1\n"
)
NORMED = TABULAR.replace(
    "nn.GELU(),", "nn.BatchNorm1d(params['hidden']), nn.Dropout(0.2), nn.GELU(),"
)
BACK = (GO_BACK, {"epoch": FRESH, "lr": 0.01, "clip_norm": 1.0})


class Answers:
    """Goes back once in an epoch, to another, with a rate that its ratio allows."""

    name = "answers"

    def __init__(self, at: int, **params: Any) -> None:
        self.at, self.params = at, params
        self.seen: list[Observation] = []

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, seen: Observation) -> list[Decision]:
        self.seen.append(seen)
        first, *others = seen.due
        said: tuple[str, dict[str, Any]] = (DEFER, {})
        if seen.epoch == self.at:
            said = (GO_BACK, {"lr": seen.settings.lr, **self.params})
        return [
            Decision.of((first,), *said, "for the test"),
            *(Decision.of((rule,), DEFER, {}, "for the test") for rule in others),
        ]


def begun(source: str, **settings: Any) -> tuple[TaskWorker, str]:
    """Return a worker that trains a task, and the SHA-256 of its first state."""
    config = read_task(source.encode(), "task.py").configure({**SMALL, "rows": 200, **settings})
    worker = TaskWorker(source.encode(), config, keep=TRAIN)
    answer, _ = worker.ask("start", {}, data_of(source, **settings).blob)
    return worker, answer["state"]


def weights(worker: TaskWorker) -> bytes:
    return worker.ask("weights", {})[1]


def go_back(worker: TaskWorker, epoch: int, *, at: int) -> Mapping[str, Any]:
    decision = Decision.of(("R1",), GO_BACK, {"epoch": epoch, "lr": 0.01}, "for the test")
    return worker.ask("execute", {"decision": decision.to_dict(), "epoch": at})[0]


def outcomes(run: Run) -> list[str | None]:
    return [past.outcome for past in run.decisions if past.decision.acts]


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize(
    "source",
    [
        TABULAR,
        NORMED,
        NORMED.replace(OPTIMIZER, "torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)"),
        TABULAR.replace(OPTIMIZER, "torch.optim.Adagrad(model.parameters())"),
    ],
    ids=["AdamW", "BatchNorm", "SGD", "Adagrad"],
)
def test_fresh_weights_are_the_first_weights_of_the_same_seed(source: str, seed: int) -> None:
    worker, state = begun(source, seed=seed)
    first = weights(worker)
    for epoch in range(2):
        worker.ask("epoch", {"epoch": epoch})
    assert weights(worker) != first
    assert go_back(worker, FRESH, at=1) == {"refused": None, "state": state}
    again, same = begun(source, seed=seed)
    assert weights(worker) == weights(again) == first
    assert same == state
    assert begun(source, seed=seed + 1)[1] != state


def test_state_that_is_gone_back_to_is_the_kept_one_bit_for_bit() -> None:
    worker, _ = begun(NORMED)
    worker.ask("epoch", {"epoch": 0})
    kept = worker.ask("keep", {"epoch": 0})[0]["state"]
    sound = weights(worker)
    following = worker.ask("epoch", {"epoch": 1})[0]["measured"]
    assert go_back(worker, 0, at=1) == {"refused": None, "state": kept}
    assert weights(worker) == sound
    assert worker.ask("epoch", {"epoch": 1})[0]["measured"] == following


def test_loss_scaler_goes_back_with_the_weights() -> None:
    worker, _ = begun(TABULAR, precision="float16")
    training = worker._running
    scaler = training._scaler
    assert scaler is not None
    worker.ask("epoch", {"epoch": 0})
    worker.ask("keep", {"epoch": 0})
    kept = scaler.state_dict()
    scaler.load_state_dict({**kept, "scale": 2.0**-40})  # as many overflows leave it
    go_back(worker, 0, at=1)
    assert scaler.state_dict() == kept


def test_training_goes_back_and_every_rule_starts_afresh() -> None:
    policy = Answers(2, epoch=1, lr=0.0003)
    run, epochs = train(HOT, policy, lr=0.001, epochs=5)
    assert run.rules == PROFILES["relative"]
    assert outcomes(run) == ["applied"]
    assert policy.seen[0].back == (FRESH, 1, 2)
    assert {remedy.rule for remedy in run.remedies} == {f"R{number}" for number in range(1, 8)}
    assert epochs[2]["validation"]["loss"] > 0.3 + epochs[3]["validation"]["loss"]
    assert [epoch["settings"]["lr"] for epoch in epochs] == [0.001] * 3 + [0.0003] * 2


def test_batch_size_and_clipping_change_with_the_state() -> None:
    run, epochs = train(TABULAR, ScriptedPolicy((BACK,)), lr=1.0, epochs=3, batch_size=100)
    assert outcomes(run) == ["applied"]
    assert epochs[1]["settings"]["clip_norm"] == 1.0
    worker, _ = begun(TABULAR)
    told = Decision.of(("R2",), GO_BACK, {"epoch": FRESH, "lr": 0.01, "batch_size": 25}, "smaller")
    worker.ask("execute", {"decision": told.to_dict(), "epoch": 0})
    assert worker.ask("epoch", {"epoch": 1})[0]["measured"]["train"]["steps"] == 8


def test_latest_sound_state_alone_is_kept() -> None:
    policy = Answers(2, epoch=0, lr=0.0003)
    run, _ = train(HOT, policy, lr=0.001, epochs=5)
    assert policy.seen[0].back == (FRESH, 1, 2)
    assert outcomes(run) == ["refused"]


def test_tasks_have_the_relative_rules_and_keep_states_by_default() -> None:
    text = read_task(TABULAR.encode(), "task.py")
    config = text.configure({})
    assert (config.profile, config.goes_back) == ("relative", True)
    run, _ = train(TABULAR, epochs=1)
    assert isinstance(run.initial_spec, WatchedModel)
    assert {*RESTORING} & {*run.initial_spec.offers} == {GO_BACK}
    assert run.waived == ("R4",)


@pytest.mark.parametrize("settings", [{"profile": "calibrated"}, {"goes_back": False}], ids=str)
def test_task_whose_states_are_not_kept_is_as_it_was(settings: dict[str, Any]) -> None:
    config = read_task(TABULAR.encode(), "task.py").configure(settings)
    assert "goes_back" not in config.to_dict()
    assert TaskConfig.from_dict(config.to_dict()) == config
    run, _ = train(TABULAR, ScriptedPolicy((BACK,)), lr=1.0, **settings)
    assert outcomes(run) == ["refused"]
    assert isinstance(run.initial_spec, WatchedModel)
    assert GO_BACK not in run.initial_spec.offers


def test_going_back_under_rules_that_keep_nothing_is_refused() -> None:
    text = read_task(TABULAR.encode(), "task.py")
    with pytest.raises(ConfigurationError, match=r"calibrated keep no states .* profile=relative"):
        text.configure({"profile": "calibrated", "goes_back": True})


def test_state_that_does_not_fit_into_memory_is_one_clear_error() -> None:
    with (
        mock.patch.object(WatchedState, "keep", side_effect=RuntimeError("can't allocate memory")),
        pytest.raises(
            MonitorError, match=r"no memory to keep the state after epoch 1: .*goes_back=f"
        ),
    ):
        train(TABULAR)


REPLACES = """

class Replaces(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        if not self.training:
            self.register_buffer(f"seen{len(self._buffers)}", torch.zeros(1))
        return out


def model(params):
    return nn.Sequential(nn.Linear(8, params["hidden"]), nn.GELU(), Replaces(params["hidden"], 3))
"""


def test_state_that_does_not_fit_the_model_is_a_reason_to_refuse() -> None:
    run, _ = train(TABULAR + REPLACES, ScriptedPolicy((BACK,)), lr=1.0)
    assert [past.outcome for past in run.decisions if past.decision.acts] == ["refused"]
    assert run.end_reason == "completed"


CLAIMS = """

import monitor.task_worker
honest = monitor.task_worker._described


def described(model, config):
    found = honest(model, config)
    return type(found)(**{**vars(found), "offers": OFFERS})


monitor.task_worker._described = described
"""


@pytest.mark.parametrize("offers", [("stop",), ("go_back", "try_rates", "stop")])
def test_task_does_not_say_whether_it_goes_back(
    offers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    import monitor.task_worker as module  # noqa: PLC0415 - whose function the task replaces

    monkeypatch.setattr(module, "_described", module._described)
    with pytest.raises(MonitorError, match="other remedies than its configuration"):
        train(TABULAR + CLAIMS.replace("OFFERS", repr(offers)))


def test_every_rule_that_has_no_remedy_in_a_task_is_waived() -> None:
    plain = TABULAR.replace("nn.GELU(),", "")
    assert train(plain)[0].waived == ("R4",)
    assert train(plain, goes_back=False)[0].waived == ("R4", "R5", "R6")
