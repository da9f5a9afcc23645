"""Lightning's Trainer under watch, with the real library."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_runs import assert_alike, assert_verified, epochs_of, run_ids
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

pytestmark = pytest.mark.foreign
lightning = pytest.importorskip("lightning.pytorch")

import proctor  # noqa: E402 - after the skip
from monitor.errors import WatchError  # noqa: E402
from proctor.integrations.lightning import ProctorCallback  # noqa: E402

X = torch.randn(1_000, 20, generator=torch.Generator().manual_seed(0))
Y = (X @ torch.randn(20, 3, generator=torch.Generator().manual_seed(1))).argmax(dim=1)
warnings.filterwarnings("ignore", module="lightning")


class Mlp(lightning.LightningModule):  # type: ignore[misc, name-defined]  # not always installed
    def __init__(self, *, lr: float = 0.01, batch_size: int = 50) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
        self.lr = lr
        self.batch_size = batch_size
        self.seen: list[tuple[float, float]] = []  # loss and norm of the gradients of each step
        self.sizes: list[int] = []

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(X[:800], Y[:800]), batch_size=self.batch_size)

    def val_dataloader(self) -> Any:
        return DataLoader(TensorDataset(X[800:], Y[800:]), batch_size=200)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.sizes.append(len(batch[0]))
        return cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        out = self.net(batch[0])
        self.log("val_loss", cross_entropy(out, batch[1]))
        self.log("val_acc", (out.argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Stubborn(Mlp):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx) * float("nan")


def fit(
    model: Any,
    callback: Any,
    tmp_path: Path,
    *,
    keep: Any = None,
    ckpt_path: Path | None = None,
    **settings: Any,
) -> Any:
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=keep is not None,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[each for each in (callback, keep) if each is not None],
        **{"max_epochs": 3, **settings},
    )
    trainer.fit(model, ckpt_path=ckpt_path)
    return trainer


def own_loop(home: Path, *, accumulation: int = 1, clip_norm: float | None = None) -> list[Any]:
    model = Mlp()
    optimizer = model.configure_optimizers()
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
            loader = list(model.train_dataloader())
            for number, (x, y) in enumerate(loader, start=1):
                run.before_forward()  # as the loop calls a part of the model
                loss = cross_entropy(model.net(x), y)
                run.after_forward()
                (loss / accumulation).backward()  # type: ignore[no-untyped-call]  # has no types
                run.step(loss, update=number % accumulation == 0 or number == len(loader))
            with torch.no_grad():
                out = model.net(X[800:])
            run.validate(loss=float(cross_entropy(out, Y[800:])))
    return epochs_of(home, run.id)


@pytest.mark.parametrize(
    ("accumulation", "clip_norm"), [(1, None), (1, 0.05), (3, None)], ids=["plain", "clip", "short"]
)
def test_measurements_are_those_of_a_loop_of_ones_own(
    accumulation: int, clip_norm: float | None, tmp_path: Path
) -> None:
    callback = ProctorCallback(accuracy="val_acc", policy="nothing", home=tmp_path / "trainer")
    fit(
        Mlp(),
        callback,
        tmp_path,
        accumulate_grad_batches=accumulation,
        gradient_clip_val=clip_norm,
    )
    [run_id] = run_ids(tmp_path / "trainer")
    found = epochs_of(tmp_path / "trainer", run_id)
    expected = own_loop(tmp_path / "own", accumulation=accumulation, clip_norm=clip_norm)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert_alike(one.measured, other.measured, rel=1e-5)
        assert_alike(one.reported["train"], other.reported["train"], rel=1e-6)
        validation = {"loss": one.reported["validation"]["loss"]}
        assert_alike(validation, other.reported["validation"], rel=1e-6)
    assert_verified(tmp_path / "trainer", run_id)


def test_watched_training_has_the_weights_of_an_unwatched_one(tmp_path: Path) -> None:
    plain, watched = Mlp(), Mlp()
    settings: dict[str, Any] = {"gradient_clip_val": 0.5, "accumulate_grad_batches": 3}
    fit(plain, None, tmp_path, **settings)
    fit(watched, ProctorCallback(home=tmp_path), tmp_path, **settings)  # which names no policy
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


class Breakable(Mlp):
    breaks = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.breaks and self.current_epoch == 2:
            raise KeyboardInterrupt
        return super().training_step(batch, batch_idx)


def test_training_goes_on_from_lightnings_own_checkpoint(tmp_path: Path) -> None:
    def watched(name: str) -> Any:
        return ProctorCallback(policy="playbook", home=tmp_path / name, name="mine")

    straight, broken, resumed = (Breakable(lr=30.0) for _ in range(3))
    broken.breaks = True
    fit(straight, watched("straight"), tmp_path, max_epochs=4)
    keep = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, filename="kept")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(broken, watched("broken"), tmp_path, keep=keep, max_epochs=4)
    fit(resumed, watched("broken"), tmp_path, ckpt_path=tmp_path / "kept.ckpt", max_epochs=4)
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    [whole] = run_ids(tmp_path / "straight")
    *_, last = run_ids(tmp_path / "broken")
    expected = epochs_of(tmp_path / "straight", whole)
    found = epochs_of(tmp_path / "broken", last)
    assert [each.measured for each in found] == [each.measured for each in expected]
    assert_verified(tmp_path / "broken", last)


def test_decisions_on_the_learning_rate_act_and_leave_the_schedule(tmp_path: Path) -> None:
    class Scheduled(Mlp):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.3)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    model = Scheduled()
    trainer = fit(model, ProctorCallback(policy="playbook", home=tmp_path), tmp_path)
    [run_id] = run_ids(tmp_path)
    epochs = epochs_of(tmp_path, run_id)
    assert epochs[1].measured["settings"]["lr"] < epochs[0].measured["settings"]["lr"] == 0.3
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.3 * 0.9**3)
    rate = epochs[1].reported["lr"][0]
    assert rate == pytest.approx(0.9 * epochs[1].measured["settings"]["lr"], rel=0.12)


def test_decision_to_stop_ends_the_training(tmp_path: Path) -> None:
    model = Mlp(lr=1e-9)
    callback = ProctorCallback(policy="playbook", home=tmp_path)
    trainer = fit(model, callback, tmp_path, max_epochs=60)
    assert trainer.current_epoch < 60
    [run_id] = run_ids(tmp_path, end_reason="stopped")
    assert len(epochs_of(tmp_path, run_id)) == trainer.current_epoch


def test_losses_that_are_not_numbers_are_seen(tmp_path: Path) -> None:
    fit(Stubborn(), ProctorCallback(policy="nothing", home=tmp_path), tmp_path, max_epochs=1)
    [run_id] = run_ids(tmp_path)
    [epoch] = epochs_of(tmp_path, run_id)
    assert not epoch.measured["gradients"]["finite"]
    assert epoch.reported["train"]["loss"] != epoch.reported["train"]["loss"]


def test_validation_within_an_epoch_ends_an_epoch_of_the_run(tmp_path: Path) -> None:
    callback = ProctorCallback(policy="nothing", home=tmp_path)
    fit(Mlp(), callback, tmp_path, max_epochs=1, val_check_interval=0.25)
    [run_id] = run_ids(tmp_path)
    assert [each.measured["train"]["steps"] for each in epochs_of(tmp_path, run_id)] == [4] * 4


def test_failure_closes_the_run(tmp_path: Path) -> None:
    class Failing(Mlp):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == 20:
                raise RuntimeError("no more")
            return super().training_step(batch, batch_idx)

    with pytest.raises(RuntimeError, match="no more"):
        fit(Failing(), ProctorCallback(policy="nothing", home=tmp_path), tmp_path)
    assert len(run_ids(tmp_path, end_reason="failed")) == 1


def test_manual_optimisation_is_refused(tmp_path: Path) -> None:
    class Manual(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    with pytest.raises(WatchError, match="manual optimisation"):
        fit(Manual(), ProctorCallback(home=tmp_path), tmp_path)


def test_training_without_a_validation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match="needs a validation"):
        fit(Mlp(), ProctorCallback(home=tmp_path), tmp_path, limit_val_batches=0)


def test_batch_size_is_changed_where_the_loader_is_made_again(tmp_path: Path) -> None:
    class Doubling:
        name = "doubling"

        def describe(self) -> dict[str, Any]:
            return {}

        def decide(self, observation: Any) -> list[Any]:
            from aggregates.decisions import Decision  # noqa: PLC0415
            from aggregates.playbook import HYPERPARAMETER_CHANGE  # noqa: PLC0415

            return [
                Decision(
                    event_type=HYPERPARAMETER_CHANGE,
                    cites=observation.due,
                    direction="increase_batch_size",
                    params={"batch_size": 2 * observation.settings.batch_size},
                    justification="double it",
                )
            ]

    model = Mlp()
    callback = ProctorCallback(policy=Doubling(), max_batch_size=200, home=tmp_path)
    fit(model, callback, tmp_path, reload_dataloaders_every_n_epochs=1)
    [run_id] = run_ids(tmp_path)
    sizes = [each.measured["settings"]["batch_size"] for each in epochs_of(tmp_path, run_id)]
    assert sizes[0] == 50
    assert set(model.sizes) == set(sizes)


class Divided(Mlp):
    def train_dataloader(self) -> Any:
        data = TensorDataset(X[:800], Y[:800])
        sampler: Any = DistributedSampler(data, shuffle=False)  # Lightning's own shuffles
        return DataLoader(data, batch_size=self.batch_size, sampler=sampler)


def test_two_processes_make_one_run(tmp_path: Path) -> None:
    callback = ProctorCallback(policy="nothing", home=tmp_path / "trainer")
    settings: dict[str, Any] = {
        "strategy": "ddp_fork",
        "devices": 2,
        "use_distributed_sampler": False,
    }
    fit(Divided(batch_size=25), callback, tmp_path, **settings)
    [run_id] = run_ids(tmp_path / "trainer")
    found = epochs_of(tmp_path / "trainer", run_id)
    assert [each.measured["train"]["steps"] for each in found] == [16] * 3
    assert found[0].measured["settings"]["batch_size"] == 50
    for one, other in zip(found, own_loop(tmp_path / "own"), strict=True):
        assert_alike(one.measured["gradients"], other.measured["gradients"], rel=1e-4)
        assert_alike(one.reported["train"], other.reported["train"], rel=1e-5)
