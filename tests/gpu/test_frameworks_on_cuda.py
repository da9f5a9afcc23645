"""Lightning's and the Hugging Face Trainer on a GPU, watched and not: the same weights."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_runs import assert_verified, epochs_of, run_ids
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
X = torch.randn(1_000, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))


def assert_same(one: nn.Module, other: nn.Module, home: Path) -> None:
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)
    [run] = run_ids(home)
    epochs = epochs_of(home, run)
    assert len(epochs) == 2
    for epoch in epochs:
        assert epoch.measured["gradients"]["finite"]
        assert 0 < epoch.measured["gradients"]["total_norm_mean"] < 100
        assert all(0 < layer["update_ratio"] < 1 for layer in epoch.measured["layers"])
    assert_verified(home, run)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_lightning_trains_the_same_weights_under_watch(precision: str, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from proctor.integrations.lightning import ProctorCallback  # noqa: PLC0415 - after the skip

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):  # type: ignore  # not always installed
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def train_dataloader(self) -> Any:
            return DataLoader(TensorDataset(X[:800], Y[:800]), batch_size=50)

        def val_dataloader(self) -> Any:
            return DataLoader(TensorDataset(X[800:], Y[800:]), batch_size=200)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.001)

    def fit(callbacks: list[Any]) -> Any:
        module = Module()
        trainer = lightning.Trainer(
            accelerator="gpu",
            devices=1,
            precision=precision,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            callbacks=callbacks,
            max_epochs=2,
        )
        trainer.fit(module)
        return module

    home = tmp_path / "home"
    assert_same(fit([]), fit([ProctorCallback(home=home)]), home)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_hugging_face_trainer_trains_the_same_weights_under_watch(
    precision: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    from proctor.integrations.transformers import ProctorCallback  # noqa: PLC0415 - after the skip

    os.environ.setdefault("WANDB_DISABLED", "true")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            logits = self.net(x)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]

    def fit(callbacks: list[Any]) -> Any:
        model = Model()
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path / "out"),
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                num_train_epochs=2,
                per_device_train_batch_size=50,
                eval_strategy="epoch",
                optim="adamw_torch",
                fp16=precision == "fp16",
                bf16=precision == "bf16",
            ),
            train_dataset=rows[:800],
            eval_dataset=rows[800:],
            callbacks=callbacks,
        )
        trainer._get_train_sampler = lambda *_: SequentialSampler(rows[:800])
        trainer.train()
        return model

    home = tmp_path / "home"
    assert_same(fit([]), fit([ProctorCallback(home=home)]), home)
