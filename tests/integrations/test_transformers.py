"""The Hugging Face Trainer under watch, with the real library and random weights."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_runs import assert_alike, assert_verified, epochs_of, run_ids
from torch import nn
from torch.nn.functional import cross_entropy

pytestmark = pytest.mark.foreign
os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

import proctor  # noqa: E402 - after the skip
from monitor.errors import WatchError  # noqa: E402
from proctor.integrations.transformers import ProctorCallback  # noqa: E402

X = torch.randn(1_000, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)
TOKENS = torch.randint(0, 64, (80, 12), generator=torch.Generator().manual_seed(2))
ROWS = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]


class Mlp(nn.Module):
    def __init__(self, *, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
        self.factor = factor

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        logits = self.net(x)
        factor = self.factor if self.training else 1.0
        return {"loss": cross_entropy(logits, labels) * factor, "logits": logits}


def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    )


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def train(
    model: Any,
    callback: Any,
    tmp_path: Path,
    *,
    rows: tuple[Any, Any] = (ROWS[:800], ROWS[800:]),
    checkpoint: str | None = None,
    **settings: Any,
) -> Any:
    arguments = {
        "num_train_epochs": 3,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 50,
        "eval_strategy": "epoch",
        "logging_steps": 1,
        "optim": "adamw_torch",
        **settings,
    }
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            **{"save_strategy": "no", **arguments},
        ),
        train_dataset=rows[0],
        eval_dataset=rows[1],
        compute_metrics=accuracy if isinstance(model, Mlp) else None,
        callbacks=[] if callback is None else [callback],
    )
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(rows[0])
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


def own_loop(home: Path, *, accumulation: int, clip_norm: float | None) -> list[Any]:
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    with proctor.watch(
        model,
        optimizer,
        name="own",
        batch_size=50,
        accumulation=accumulation,
        clip_norm=clip_norm,
        train_examples=800,
        policy="nothing",
        home=home,
    ) as run:
        for _ in run.epochs(3):
            starts = range(0, 800, 50)
            for number, at in enumerate(starts, start=1):
                loss = model(X[at : at + 50], Y[at : at + 50])["loss"]
                first = (number - 1) // accumulation * accumulation
                (loss / min(accumulation, len(starts) - first)).backward()
                run.step(loss, update=number % accumulation == 0 or number == len(starts))
            with torch.no_grad():
                run.validate(loss=float(model(X[800:], Y[800:])["loss"]))
    return epochs_of(home, run.id)


@pytest.mark.parametrize(
    ("accumulation", "clip_norm"), [(1, 0.0), (1, 0.05), (3, 1.0)], ids=["plain", "clip", "short"]
)
def test_measurements_are_those_of_a_loop_of_ones_own(
    accumulation: int, clip_norm: float, tmp_path: Path
) -> None:
    home = tmp_path / "trainer"
    callback = ProctorCallback(metric_for_accuracy="eval_accuracy", policy="nothing", home=home)
    settings: dict[str, Any] = {
        "gradient_accumulation_steps": accumulation,
        "max_grad_norm": clip_norm,
    }
    trainer = train(Mlp(), callback, tmp_path, **settings)
    assert trainer.args.max_grad_norm == clip_norm
    [run_id] = run_ids(home)
    found = epochs_of(home, run_id)
    expected = own_loop(tmp_path / "own", accumulation=accumulation, clip_norm=clip_norm or None)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        for part in ("gradients", "layers", "settings"):
            assert_alike(one.measured[part], other.measured[part], rel=1e-4)
        assert_alike(one.reported["train"], other.reported["train"], rel=1e-5)
        assert one.reported["validation"]["loss"] == pytest.approx(
            other.reported["validation"]["loss"], rel=1e-5
        )
        assert [each["name"] for each in one.measured["activations"]] == ["net.1"]
    assert_verified(home, run_id)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_language_model_has_the_losses_and_norms_that_the_trainer_logs(
    accumulation: int, tmp_path: Path
) -> None:
    rows = [{"input_ids": each, "labels": each} for each in TOKENS]
    trainer = train(
        llama(),
        ProctorCallback(policy="nothing", home=tmp_path),
        tmp_path,
        rows=(rows[:64], rows[64:]),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=0.01,
        num_train_epochs=2,
    )
    logs = [each for each in trainer.state.log_history if "grad_norm" in each]
    [run_id] = run_ids(tmp_path)
    epochs = epochs_of(tmp_path, run_id)
    steps = len(logs) // 2
    assert len(epochs) == 2
    for number, epoch in enumerate(epochs):
        mine = logs[number * steps : (number + 1) * steps]
        norms = [each["grad_norm"] for each in mine]
        assert min(norms) > 0.01
        assert epoch.measured["train"]["steps"] == steps
        assert epoch.measured["gradients"]["total_norm_mean"] == pytest.approx(
            sum(norms) / steps, rel=1e-5
        )
        sizes = [min(8 * accumulation, 64 - 8 * accumulation * place) for place in range(steps)]
        losses = [each["loss"] * size for each, size in zip(mine, sizes, strict=True)]
        assert epoch.reported["train"]["loss"] == pytest.approx(sum(losses) / 64, rel=1e-3)


def test_watched_training_has_the_weights_of_an_unwatched_one(tmp_path: Path) -> None:
    plain, watched = Mlp(), Mlp()
    settings: dict[str, Any] = {
        "gradient_accumulation_steps": 3,
        "warmup_steps": 5,
        "num_train_epochs": 2,
    }
    train(plain, None, tmp_path, **settings)
    train(watched, ProctorCallback(home=tmp_path), tmp_path, **settings)  # names no policy
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_losses_that_are_not_numbers_are_seen_though_the_trainer_logs_others(
    tmp_path: Path,
) -> None:
    callback = ProctorCallback(policy="nothing", home=tmp_path)
    trainer = train(Mlp(factor=float("nan")), callback, tmp_path, num_train_epochs=1)
    logged = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert set(logged) == {0.0}
    [run_id] = run_ids(tmp_path)
    [epoch] = epochs_of(tmp_path, run_id)
    assert not epoch.measured["gradients"]["finite"]
    assert epoch.reported["train"]["loss"] != epoch.reported["train"]["loss"]


def test_decisions_on_the_learning_rate_act_and_leave_the_schedule(tmp_path: Path) -> None:
    trainer = train(
        Mlp(),
        ProctorCallback(policy="playbook", home=tmp_path),
        tmp_path,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=4,
        learning_rate=0.1,
    )
    logged = [each["learning_rate"] for each in trainer.state.log_history if "grad_norm" in each]
    assert max(logged) == pytest.approx(0.1)
    [run_id] = run_ids(tmp_path)
    epochs = epochs_of(tmp_path, run_id)
    rates = [each.measured["settings"]["lr"] for each in epochs]
    assert rates[0] == 0.1
    assert rates[-1] < 0.1
    assert epochs[-1].reported["lr"] == pytest.approx([rates[-1]] * len(epochs[-1].reported["lr"]))


@pytest.mark.parametrize("restores", [False, True])
def test_training_goes_on_from_the_trainers_own_checkpoint(restores: bool, tmp_path: Path) -> None:
    def breaks(_args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == 40:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {
        "num_train_epochs": 4,
        "learning_rate": 0.3,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "save_strategy": "epoch",
        "restore_callback_states_from_checkpoint": restores,
    }
    models = {name: Mlp() for name in ("straight", "broken", "resumed")}
    for name, model in models.items():
        home, checkpoint = tmp_path / name.replace("resumed", "broken"), None
        with (
            suppress(KeyboardInterrupt),
            ProctorCallback(policy="playbook", home=str(home), name="mine") as callback,
        ):
            if name == "broken":
                callback.on_step_end = breaks
            if name == "resumed":
                checkpoint = str(tmp_path / "out" / "checkpoint-32")
            train(model, callback, tmp_path, checkpoint=checkpoint, **settings)
    pairs = zip(models["straight"].parameters(), models["resumed"].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    [whole] = run_ids(tmp_path / "straight")
    [last] = run_ids(tmp_path / "broken")
    expected = epochs_of(tmp_path / "straight", whole)
    found = epochs_of(tmp_path / "broken", last)
    assert [each.measured for each in found] == [each.measured for each in expected]
    assert_verified(tmp_path / "broken", last)


def test_decision_to_stop_ends_the_training(tmp_path: Path) -> None:
    callback = ProctorCallback(policy="playbook", home=tmp_path)
    trainer = train(Mlp(), callback, tmp_path, learning_rate=1e-9, num_train_epochs=60)
    assert trainer.state.epoch < 60
    [run_id] = run_ids(tmp_path, end_reason="stopped")
    assert len(epochs_of(tmp_path, run_id)) == trainer.state.epoch


def test_failure_closes_the_run(tmp_path: Path) -> None:
    class Failing(Mlp):
        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 25:
                raise RuntimeError("no more")
            return super().forward(x, labels)

    with (
        pytest.raises(RuntimeError, match="no more"),
        ProctorCallback(policy="nothing", home=tmp_path) as callback,
    ):
        train(Failing(), callback, tmp_path)
    assert len(run_ids(tmp_path, end_reason="failed")) == 1


def test_process_that_fails_closes_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = ProctorCallback(policy="nothing", home=tmp_path)

    class Failing(Mlp):
        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more") as error:
        train(Failing(), callback, tmp_path)
    monkeypatch.setattr("sys.last_value", error.value, raising=False)
    assert callback.run is not None
    callback.run._leave()  # as the interpreter does at its end
    assert len(run_ids(tmp_path, end_reason="failed")) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"eval_strategy": "no"}, "needs evaluations"), ({"label_smoothing_factor": 0.1}, "hides")],
    ids=["no evaluation", "label smoothing"],
)
def test_training_that_cannot_be_measured_is_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    rows = [{"input_ids": each, "labels": each} for each in TOKENS]
    callback = ProctorCallback(home=tmp_path)
    with pytest.raises(WatchError, match=message):
        train(llama(), callback, tmp_path, rows=(rows[:64], rows[64:]), **settings)


def test_model_without_a_loss_is_refused(tmp_path: Path) -> None:
    class Silent(Mlp):
        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"logits": super().forward(x, labels)["logits"]}

    with (
        pytest.raises(WatchError, match="returns no loss"),
        ProctorCallback(policy="nothing", home=tmp_path) as callback,
    ):
        train(Silent(), callback, tmp_path)
