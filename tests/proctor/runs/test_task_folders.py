"""Tasks that read a folder example by example, from the file to the verdict."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frontdoor import call_here
from PIL import Image
from test_tasks import EXAMPLES, PORTABLE, failed_step, judge, run_task, write

pytestmark = pytest.mark.slow  # each trains twice or more

VISION = EXAMPLES / "vision.py"
SETTINGS = ("epochs=1", "images=160", "test_images=60", "width=16", "layers=1", "size=16")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    random = np.random.default_rng(1)
    for part, each in (("train", 24), ("test", 12)):
        for label in range(10):
            place = folder / part / f"class-{label}"
            place.mkdir(parents=True)
            for number in range(each):
                pixels = random.integers(20 * label, 20 * label + 60, (20, 20, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


def test_folder_of_images_is_judged_by_fingerprint_and_refused_when_it_changed(
    images: Path, tmp_path: Path
) -> None:
    run_task(tmp_path, VISION, *SETTINGS, f"data_dir={images}", PORTABLE, "precision=bfloat16")
    mine = tmp_path / "mine"
    images.rename(mine)
    verdict = judge(tmp_path, "--data-dir", str(mine), portable=True)
    assert {step["status"] for step in verdict["steps"]} <= {"passed", "violations"}
    assert verdict["retrained"] == 1.0
    assert verdict["steps"][1]["evidence"]["fresh"] > 0  # other files of the test folder
    assert len(list((tmp_path / "decoded").iterdir())) == 1
    Image.new("RGB", (20, 20)).save(mine / "train" / "class-3" / "7.png")
    name, words = failed_step(judge(tmp_path, "--data-dir", str(mine), portable=True))
    assert name == "probe"
    assert "its data folder has other files" in words


def test_file_that_is_no_image_is_named(images: Path, tmp_path: Path) -> None:
    (images / "train" / "class-3" / "7.png").write_text("no image")
    settings = [*SETTINGS[2:], "images=192", f"data_dir={images}"]
    done = call_here(["run", "--task", VISION, *settings], home=tmp_path)
    assert "class-3/7.png cannot be read as an image" in done.stderr
    assert not list((tmp_path / "decoded").glob("building-*"))


LARGE = """
from monitor.examples import Shards
from torch import nn
import torch

METRIC = ("mse", "lower")
PARAMS = {"lr": 0.01, "epochs": 1, "batch_size": 64, "data_dir": None}


def model(params):
    return nn.Sequential(Ends(), nn.Linear(8, 1))


class Ends(nn.Module):
    def forward(self, x):
        return x[:, :8].float() / 255


def data(params):
    return Shards(params["data_dir"] + "/train"), Shards(params["data_dir"] + "/validation")


def test(params):
    return Shards(params["data_dir"] + "/test")


def loss(output, target):
    return nn.functional.mse_loss(output.reshape(-1), target)


def metrics(output, target):
    return {"mse": loss(output.double(), target.double())}


def optimizer(model, params):
    return torch.optim.SGD(model.parameters(), lr=params["lr"])
"""
ROW = 2**16  # bytes
LIMIT = "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)\n"
TORCH = "import torch, monitor.task_loop, judge.auditing.audit\n"
SIZE = "print(open('/proc/self/status').read().split('VmData:')[1].split()[0])\n"
COMMAND = "from proctor.cli.main import main\nsys.argv = ['proctor', *sys.argv[2:]]\nmain()\n"


def write_shards(folder: Path, rows: int, *, random: np.random.Generator) -> None:
    """Write files that have holes: nothing but the first numbers of a row takes space."""
    folder.mkdir(parents=True)
    for shard in range(0, rows, 1_000):
        count = min(1_000, rows - shard)
        name = folder / f"{shard:06}.inputs.npy"
        inputs = np.lib.format.open_memmap(name, "w+", np.uint8, (count, ROW))
        first = random.integers(0, 256, (count, 8), np.uint8)
        inputs[:, :8] = first
        np.save(folder / f"{shard:06}.targets.npy", first.mean(axis=1, dtype=np.float32) / 255)


def test_folder_that_is_larger_than_all_memory_is_trained_and_judged(
    tmp_path: Path,
) -> None:
    """Command and workers may have 512 MiB beside the libraries; the folder has more than all."""
    command = [sys.executable, "-c"]
    found = subprocess.run([*command, TORCH + SIZE], capture_output=True, check=True, text=True)
    limit = int(found.stdout) * 1_024 + 512 * 2**20
    rows = limit // ROW * 11 // 10
    folder = tmp_path / "files"
    random = np.random.default_rng(1)
    for part, count in (("train", rows), ("validation", 100), ("test", 100)):
        write_shards(folder / part, count, random=random)
    try:
        assert sum(path.stat().st_size for path in folder.rglob("*")) > limit
        task = write(tmp_path, LARGE)
        home = ["--home", str(tmp_path / "home")]
        with pytest.raises(subprocess.CalledProcessError):  # the limit is one
            subprocess.run([*command, LIMIT + "bytes(2**31)", str(limit)], check=True)
        for arguments in (
            ["run", "--task", str(task), f"data_dir={folder}", *home, "--json"],
            ["judge", "--data-dir", str(folder), "--sample", *home, "--json"],
        ):
            code = [*command, LIMIT + COMMAND, str(limit), *arguments]
            done = subprocess.run(code, capture_output=True, check=False, text=True)
            assert done.returncode == 0, done.stdout[-2_000:] + done.stderr
        verdict = json.loads(done.stdout)
        assert {step["status"] for step in verdict["steps"]} <= {"passed", "violations"}
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "home" / "decoded", ignore_errors=True)
