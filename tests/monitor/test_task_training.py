"""How a task may train: precisions, optimizers, schedulers, accumulation, examples by number."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from task_runs import OPTIMIZER, TABULAR, data_of, open_here, train

from aggregates.decisions import Settings
from judge.auditing.measurements import verify_task_measured
from monitor.config import TaskConfig
from monitor.errors import MonitorError, RoomError, TaskError
from monitor.examples import Images, Shards
from monitor.stored import StoredTensor, Storing, check_space
from monitor.task_data import load_task_data
from monitor.task_worker import TEST, TRAIN, Worker
from monitor.tasks import read_task

LOSS = "functional.cross_entropy(output, target)"
OPTIMIZERS = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam")  # which takes gradients of sparse embeddings only
]
STREAMED = """
class Rows(torch.utils.data.Dataset):
    def __init__(self, pair): self.pair = pair
    def __len__(self): return len(self.pair[0])
    def __getitem__(self, number): return self.pair[0][number], self.pair[1][number]


def data(params):
    return Rows(rows(params["rows"])), rows(params["rows"] // 4)


def test(params):
    return Rows(rows(params["test_rows"]))
"""


@pytest.fixture(scope="module")
def plain() -> list[dict[str, Any]]:
    return train(TABULAR)[1]


def losses(epochs: list[dict[str, Any]]) -> list[float]:
    return [epoch[part]["loss"] for epoch in epochs for part in ("train", "validation")]


def check_measured(epoch: dict[str, Any]) -> None:
    """Check an epoch as a judge does who has not trained it again."""
    settings = Settings(lr=0.01, batch_size=50, accumulation=1, clip_norm=None)
    verify_task_measured(epoch, settings=settings, sizes={"train": 200, "validation": 50})


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_about_as_full_precision_does(
    precision: str, plain: list[dict[str, Any]]
) -> None:
    run, epochs = train(TABULAR, precision=precision)
    assert losses(epochs) == pytest.approx(losses(plain), rel=5e-3)
    assert losses(epochs) != losses(plain)
    assert run.config["precision"] == precision
    assert epochs[0]["train"].get("skipped") == (0 if precision == "float16" else None)
    noise = epochs[0]["gradients"]["signal_to_noise"]
    assert noise == pytest.approx(plain[0]["gradients"]["signal_to_noise"], rel=0.1)
    check_measured(epochs[0])


def test_full_precision_is_not_named_so_that_old_runs_keep_their_hash() -> None:
    config = read_task(TABULAR.encode(), "task.py").configure({"precision": "float32"})
    assert "precision" not in config.to_dict()
    assert TaskConfig.from_dict(config.to_dict()) == config


def test_step_that_overflows_is_left_out_and_counted() -> None:
    _, epochs = train(TABULAR.replace(LOSS, f"1e4 * {LOSS}"), precision="float16")
    found = epochs[0]["train"]
    assert found["skipped"] > 0
    assert found["steps"] + found["skipped"] == 4
    for epoch in epochs:
        check_measured(epoch)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch_trains(name: str, plain: list[dict[str, Any]]) -> None:
    parameters = "model.parameters()"
    if name == "Muon":  # of matrices only
        parameters = "[each for each in model.parameters() if each.dim() == 2]"
    source = TABULAR.replace(OPTIMIZER, f'torch.optim.{name}({parameters}, lr=params["lr"])')
    _, epochs = train(source, lr=0.02, epochs=1)
    assert epochs[0]["gradients"]["finite"]
    assert any(layer["update_ratio"] for layer in epochs[0]["layers"])
    if name == "LBFGS":  # looks at the loss several times in a step
        assert epochs[0]["validation"]["loss"] < plain[-1]["validation"]["loss"]
        with pytest.raises(MonitorError, match="takes a closure cannot train in float16"):
            train(source, precision="float16")


SPARSE = """
def model(params):
    return nn.Sequential(Look(), nn.EmbeddingBag(8, CLASSES, sparse=True))


class Look(nn.Module):
    def forward(self, x):
        return x.argsort(dim=1)[:, :3]
"""


def test_optimizer_of_sparse_gradients_trains() -> None:
    source = TABULAR.replace(OPTIMIZER, "torch.optim.SparseAdam(model.parameters(), lr=0.1)")
    _, epochs = train(source + SPARSE)
    assert epochs[1]["train"]["loss"] < epochs[0]["train"]["loss"]


HALVED = "\n\ndef schedule(progress, params):\n    return 1.0 if progress < 0.67 else 0.5\n"
SCHEDULER = (
    "\n\ndef scheduler(optimizer, params):\n    LR = torch.optim.lr_scheduler\n    return LR."
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "made",
    [
        "LambdaLR(optimizer, lambda epoch: 1.0 if epoch < 2 else 0.5)",
        "ChainedScheduler([LR.ConstantLR(optimizer, 1.0), LR.StepLR(optimizer, 2, 0.5)])",
        "ReduceLROnPlateau(optimizer, 'max', 0.5, patience=0, threshold=9, threshold_mode='abs')",
    ],
    ids=lambda made: made.partition("(")[0],
)
def test_scheduler_of_torch_takes_a_step_after_each_epoch(made: str) -> None:
    scheduled = train(f"{TABULAR}{SCHEDULER}{made}\n", epochs=3)[1]
    assert scheduled == train(TABULAR + HALVED, epochs=3)[1]
    assert scheduled != train(TABULAR, epochs=3)[1]


def test_accumulated_batches_train_as_one_batch_does(plain: list[dict[str, Any]]) -> None:
    _, epochs = train(TABULAR, batch_size=25, accumulation=2)
    assert losses(epochs) == pytest.approx(losses(plain), rel=1e-5)


def test_dropout_draws_the_same_again_and_other_numbers_with_another_seed() -> None:
    source = TABULAR.replace("nn.GELU(),", "nn.GELU(), nn.Dropout(0.5),")
    assert train(source)[1] == train(source)[1]
    assert losses(train(source)[1]) != losses(train(source, seed=1)[1])


@pytest.mark.slow
def test_examples_by_number_train_as_the_same_tensors_do(
    plain: list[dict[str, Any]], tmp_path: Path
) -> None:
    run, epochs = train(TABULAR + STREAMED, decoded=tmp_path)
    assert epochs == plain
    (folder,) = tmp_path.iterdir()  # and no test part
    assert {path.name.partition(".")[0] for path in folder.iterdir()} == {
        *("index", "train", "validation")
    }
    before = folder.stat().st_ino
    again, _ = train(TABULAR + STREAMED, decoded=tmp_path, seed=1)
    assert again.data == run.data
    assert [each.stat().st_ino for each in tmp_path.iterdir()] == [before]
    (folder / "train.inputs").write_bytes(b"cut off")
    assert train(TABULAR + STREAMED, decoded=tmp_path)[1] == plain


def test_test_part_is_gone_before_the_training_begins(tmp_path: Path) -> None:
    said: list[str] = []
    source = (TABULAR + STREAMED).encode()
    config = read_task(source, "task.py").configure({"rows": 200, "epochs": 1})

    @contextmanager
    def telling(
        source: bytes, config: TaskConfig, *, keep: tuple[str, ...], stored: Path | None = None
    ) -> Iterator[Worker]:
        name = {TEST: "test", TRAIN: "training"}.get(keep, "data")
        said.append(name)
        with open_here(source, config, keep=keep, stored=stored) as worker:
            yield worker
        said.append(f"{name} ended")

    data = load_task_data(source, config, telling, decoded=tmp_path)
    assert said == ["data", "data ended", "test", "test ended"]
    assert not [name for name in data.parts if name.startswith("test")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("self.pair[1][number]", "1.0 if number else 2", "another shape or type than those before"),
        ("self.pair[0][number],", "self.pair[0][number][number % 2 :],", "another shape or type"),
        ("self.pair[0][number],", "self.pair[0][number] / 0,", "hold values that are not finite"),
        ("self.pair[1][number]", "'cat'", "example 0 of the train part must be tensors or numbers"),
        (", self.pair[1][number]", "", "example 0 of the train part must be two"),
        ("return len(self.pair[0])", "return 0", "the train part has no examples"),
        ("Rows(rows(params['rows'])), rows", "Rows(rows(9)), 1 or rows", "must be two tensors"),
        (
            'return Rows(rows(params["test_rows"]))',
            "torch.manual_seed(1)\n    return Rows(rows(9))\n\n\ndef data(params):\n"
            "    torch.manual_seed(1)\n    return Rows(rows(9)), rows(50)",
            "9 examples of the test part have the same inputs as examples of the train part",
        ),
    ],
)
def test_examples_that_cannot_be_a_part_are_named(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    code = STREAMED.replace('"', "'") if "'rows'" in old else STREAMED
    assert old in code
    with pytest.raises(TaskError, match=says):
        data_of(TABULAR + code.replace(old, new), tmp_path)
    assert not list(tmp_path.glob("building-*"))


def test_folder_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"building-{2**22 + 1}-x"  # above the kernel's largest process id
    left.mkdir()
    data_of(TABULAR + STREAMED, tmp_path)
    assert not left.exists()


def test_stored_rows_are_the_tensors(tmp_path: Path) -> None:
    tensor = torch.arange(60, dtype=torch.bfloat16).reshape(10, 3, 2)
    storing = Storing(tmp_path)
    storing.add({"x": tensor[:7], "y": torch.arange(7) > 3})
    storing.add({"x": tensor[7:], "y": torch.tensor([True, False, True])})
    found = storing.finish()
    order = torch.tensor([9, 0, 3, 3])
    for at in (slice(None), slice(2, 5), slice(8, 99), slice(5, 5), order):
        assert torch.equal(found["x"][at], tensor[at])
    assert found["y"][7:].tolist() == [True, False, True]
    with pytest.raises(TaskError, match=r"shape \[3\] and type float32, and others of shape \[3, "):
        storing.add({"x": torch.zeros(1, 3)})
    with pytest.raises(RoomError, match="make room, or have data"):
        check_space(tmp_path, 2**60)
    with pytest.raises(TaskError, match="was cut off"):
        StoredTensor(tmp_path / "y", torch.bool, (11,))[:]


def test_shards_and_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    save_file({"inputs": rows, "targets": torch.arange(4)}, tmp_path / "b.safetensors")
    np.save(tmp_path / "a.inputs.npy", np.full((2, 3), 7, np.float32))
    np.save(tmp_path / "a.targets.npy", np.array([8, 9]))
    shards = Shards(tmp_path)
    assert len(shards) == 6
    assert [int(shards[number][1]) for number in range(6)] == [8, 9, 0, 1, 2, 3]
    assert torch.equal(shards[5][0], rows[3])
    for name, colour in (("cats/two.png", 9), ("cats/one.PNG", 5), ("ants/one.png", 1)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (6, 4), (colour, 0, 0)).save(tmp_path / name)
    images = Images(tmp_path, side=2)
    assert images.classes == ["ants", "cats"]
    assert [(int(each[0].max()), each[1]) for each in (images[0], images[1], images[2])] == [
        *((1, 0), (5, 1), (9, 1))
    ]
    assert images[0][0].shape == (3, 2, 2)
    (tmp_path / "cats/one.PNG").write_text("no image")
    with pytest.raises(TaskError, match="PNG cannot be read as an image"):
        images[1]
    for empty, says in ((Images, "holds no images"), (Shards, "holds no NAME.safetensors")):
        (tmp_path / "none").mkdir(exist_ok=True)
        with pytest.raises(TaskError, match=says):
            empty(tmp_path / "none", **({"side": 2} if empty is Images else {}))
