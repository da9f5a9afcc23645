"""The judge's own data and limits, through the command."""

from pathlib import Path

import numpy as np
import pytest
from frontdoor import answer, call_here
from PIL import Image

SMALL = ["epochs=2", "threads=1", "channels=6", "width=6", "blocks=1", "batch_size=16"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run on a folder of images beside it."""
    root = tmp_path_factory.mktemp("limits")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        folder = root / "images" / name
        folder.mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:02}.png")
    done = call_here(["run", *SMALL, f"dataset=imagefolder:{root / 'images'}"], home=root / "home")
    assert done.returncode == 0, done.stderr
    return root / "home"


def test_honest_run_is_judged_with_the_default_command(home: Path) -> None:
    assert (
        answer(call_here(["judge", "latest", "--json"], home=home))["scores"]["hard_fail"] is False
    )


@pytest.mark.slow
def test_honest_run_is_replayed_with_the_default_command(home: Path) -> None:
    assert answer(call_here(["replay", "latest", "--execute", "--json"], home=home))["same"] is True


each_command = pytest.mark.parametrize(
    "command",
    [
        ["judge", "latest", "--no-execute"],
        pytest.param(["replay", "latest", "--execute"], marks=pytest.mark.slow),
    ],
)


@each_command
def test_limit_is_told_and_can_be_raised(home: Path, command: list[str]) -> None:
    refused = call_here([*command, "--limit", "max_epochs=1"], home=home)
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "2 epochs, the limit is 1" in said
    assert "--limit max_epochs=2" in said
    assert call_here([*command, "--limit", "max_epochs=2"], home=home).returncode == 0


@pytest.mark.parametrize("limit", ["disabled=1", "max_epochs=0", "max_epochs=many", "max_epochs"])
def test_limit_that_is_none_is_rejected(home: Path, limit: str) -> None:
    done = call_here(["judge", "latest", "--limit", limit], home=home)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@each_command
def test_judges_own_data_takes_the_place_of_a_folder_that_is_gone(
    home: Path, command: list[str]
) -> None:
    images, elsewhere = home.parent / "images", home.parent / "elsewhere"
    images.rename(elsewhere)
    try:
        gone = call_here(command, home=home)
        assert (gone.returncode, "not found" in gone.stderr) == (2, True)
        assert call_here([*command, "--data-dir", elsewhere], home=home).returncode == 0
    finally:
        elsewhere.rename(images)


def test_run_on_splits_that_share_an_image_is_refused_before_it_starts(
    home: Path, tmp_path: Path
) -> None:
    images = home.parent / "images"
    again = images / "dog" / "again.png"
    again.hardlink_to(images / "cat" / "00.png")
    try:
        # Of 81 images a fifth is held out: with this seed the two are in different splits.
        for seed in range(6):
            done = call_here(
                ["run", *SMALL, f"dataset=imagefolder:{images}", f"data_seed={seed}"],
                home=tmp_path / str(seed),
            )
            if done.returncode == 2:
                break
    finally:
        again.unlink()
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "two splits share 1 image" in said
    assert "cat/00.png" in said
    assert "dog/again.png" in said
