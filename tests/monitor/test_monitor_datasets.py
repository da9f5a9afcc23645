"""Datasets come out the same every time, balanced and disjoint, or say what is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from monitor.config import RunConfig
from monitor.datasets import Split, load_splits, load_test, normalise
from monitor.errors import DatasetError


def _images(split: Split) -> set[bytes]:
    return {image.numpy().tobytes() for image in split.images}


def _folder(root: Path, parts: tuple[str, ...] = ("",), *, count: int = 20) -> Path:
    """Write `count` different images of each of two classes below each part."""
    rng = np.random.default_rng(0)
    for part in parts:
        for name in ("cat", "dog"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 36, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return root


def _config(root: Path, **changes: Any) -> RunConfig:
    return RunConfig.from_dict({"dataset": f"imagefolder:{root}", **changes})


SHAPES = {"train_examples": 200, "val_examples": 100, "test_examples": 100}


def test_shapes_are_the_same_when_drawn_again() -> None:
    config = RunConfig.from_dict(SHAPES)
    first, second = load_splits(config), load_splits(config)
    assert first.fingerprints == second.fingerprints
    assert first.fingerprints["train"] == first.train.fingerprint
    assert first.fingerprints["test"] == load_test(config).fingerprint
    other = load_splits(RunConfig.from_dict({**SHAPES, "data_seed": 1}))
    assert not set(other.fingerprints.values()) & set(first.fingerprints.values())


def test_run_seed_leaves_the_data_alone() -> None:
    seeds = [load_splits(RunConfig.from_dict({**SHAPES, "seed": seed})) for seed in (0, 1)]
    assert seeds[0].fingerprints == seeds[1].fingerprints


def test_shapes_are_balanced_and_disjoint() -> None:
    config = RunConfig.from_dict(SHAPES)
    splits, test = load_splits(config), load_test(config)
    for split in (splits.train, splits.validation, test):
        assert split.images.dtype == torch.uint8
        assert split.images.shape[1:] == (3, 32, 32)
        assert set(split.labels.bincount().tolist()) == {len(split) // 10}
        assert len(_images(split)) == len(split)
    parts = [_images(splits.train), _images(splits.validation), _images(test)]
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_fingerprint_changes_with_one_bit() -> None:
    split = load_splits(RunConfig.from_dict(SHAPES)).validation
    images, labels = split.images.clone(), split.labels.clone()
    images[3, 0, 0, 0] ^= 1
    labels[3] = (labels[3] + 1) % 10
    prints = {
        Split(*pair).fingerprint
        for pair in [
            (split.images, split.labels),
            (images, split.labels),
            (split.images, labels),
        ]
    }
    assert len(prints) == 3


def test_normalised_shapes_are_centred() -> None:
    images = normalise(load_splits(RunConfig.from_dict(SHAPES)).train.images)
    assert abs(images.mean().item()) < 1
    assert 0.5 < images.std().item() < 1.5


def test_image_folder_is_split_when_it_has_no_parts(tmp_path: Path) -> None:
    config = _config(_folder(tmp_path))
    splits, test = load_splits(config), load_test(config)
    assert splits.classes == ("cat", "dog")
    assert splits.sizes == {"train": 32, "validation": 4, "test": 4}
    parts = [_images(splits.train), _images(splits.validation), _images(test)]
    assert len(set.union(*parts)) == 40
    assert set(test.labels.bincount().tolist()) == {2}
    assert load_splits(config).fingerprints == splits.fingerprints


def test_image_folder_keeps_its_own_test_part(tmp_path: Path) -> None:
    config = _config(_folder(tmp_path, ("train", "test")), train_examples=10)
    splits, test = load_splits(config), load_test(config)
    assert splits.sizes == {"train": 10, "validation": 4, "test": 40}
    assert splits.train.labels.bincount().tolist() == [5, 5]
    shown = {
        np.asarray(Image.open(path).resize((32, 32), Image.Resampling.BILINEAR))
        .transpose(2, 0, 1)
        .tobytes()
        for path in (tmp_path / "test").rglob("*.png")
    }
    assert _images(test) == shown


@pytest.mark.parametrize("name", ["07.png", "08.jpg"])
def test_broken_image_is_rejected(tmp_path: Path, name: str) -> None:
    path = _folder(tmp_path) / "cat" / name
    path.write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(DatasetError, match=f"cat/{name} cannot be read as an image"):
        load_splits(_config(tmp_path))


def test_truncated_image_is_rejected(tmp_path: Path) -> None:
    path = _folder(tmp_path) / "dog" / "03.png"
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(DatasetError, match=r"dog/03\.png cannot be read as an image"):
        load_splits(_config(tmp_path))


def test_dangling_link_is_rejected(tmp_path: Path) -> None:
    (_folder(tmp_path) / "cat" / "99.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DatasetError, match=r"cat/99\.png cannot be read"):
        load_splits(_config(tmp_path))


def test_file_shown_twice_is_rejected(tmp_path: Path) -> None:
    _folder(tmp_path, ("train", "test"))
    link = tmp_path / "test" / "cat" / "again.png"
    link.symlink_to(tmp_path / "train" / "cat" / "00.png")
    with pytest.raises(DatasetError, match="are the same file"):
        load_splits(_config(tmp_path))


def test_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"folder .* not found"):
        load_splits(_config(tmp_path / "none"))


def test_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not an image folder"):
        load_splits(_config(tmp_path))


def test_parts_with_different_classes_are_rejected(tmp_path: Path) -> None:
    _folder(tmp_path, ("train", "test"))
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "cow")
    with pytest.raises(DatasetError, match="different classes"):
        load_splits(_config(tmp_path))


def test_more_examples_than_there_are_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="32 examples left for train, but 33 are requested"):
        load_splits(_config(_folder(tmp_path), train_examples=33))


@pytest.mark.parametrize("given", [None, "here"])
def test_cifar10_that_is_not_there_is_rejected(tmp_path: Path, given: str | None) -> None:
    data_dir = None if given is None else str(tmp_path / given)
    with pytest.raises(DatasetError, match="cifar-10-batches-py"):
        load_splits(RunConfig(dataset="cifar10", data_dir=data_dir))
