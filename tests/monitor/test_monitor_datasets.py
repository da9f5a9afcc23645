"""Datasets come out the same every time, balanced and disjoint, or say what is wrong."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from monitor import folders
from monitor.config import RunConfig
from monitor.datasets import Reading, Split, _find_images, load_splits, load_test, normalise
from monitor.errors import DataLimitError, DatasetError, OverlapError, UnusableFileError
from monitor.folders import DataLimits, open_folder


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


def _make_link(path: Path) -> None:
    path.symlink_to(path.with_name("00.png"))


def _make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere.png")


def _make_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (_make_link, "a symbolic link"),
        (_make_dangling_link, "a symbolic link"),
        (os.mkfifo, "not a regular file"),
        (_make_socket, "not a regular file"),
        (Path.mkdir, "a folder"),
    ],
)
@pytest.mark.parametrize("read", [load_splits, load_test])
def test_what_is_no_regular_file_is_rejected(
    tmp_path: Path, make: Callable[[Path], None], what: str, read: Callable[[RunConfig], object]
) -> None:
    make(_folder(tmp_path) / "cat" / "99.png")
    with pytest.raises(UnusableFileError, match=rf"cat/99\.png is {what}"):
        read(_config(tmp_path))


@pytest.mark.parametrize("make", [_make_link, os.mkfifo])
def test_file_that_is_exchanged_after_the_listing_is_rejected(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind is asked of the open file, not of the name."""
    victim = _folder(tmp_path) / "cat" / "07.png"
    victim.unlink()
    make(victim)
    monkeypatch.setattr(folders, "_kind", lambda entry: "folder" if entry.is_dir() else "file")
    with pytest.raises(UnusableFileError, match=r"cat/07\.png is not a regular file"):
        load_splits(_config(tmp_path))


@pytest.mark.parametrize("name", ["cat", "dog"])
def test_linked_class_folder_is_rejected(tmp_path: Path, name: str) -> None:
    root = _folder(tmp_path / "pictures")
    (root / name).rename(tmp_path / "elsewhere")
    (root / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnusableFileError, match=f"{name} is a symbolic link"):
        load_splits(_config(root))


def test_pipe_that_is_no_image_by_its_name_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(_folder(tmp_path) / "cat" / "notes")
    assert load_splits(_config(tmp_path)).sizes["train"] == 32


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def _encode_again(source: Path, target: Path) -> None:
    with Image.open(source) as image:
        image.save(target.with_suffix(".bmp"))


@pytest.mark.parametrize("again", [_copy, _encode_again, lambda one, two: two.hardlink_to(one)])
@pytest.mark.parametrize("label", ["cat", "dog"])
def test_image_in_two_splits_is_rejected_with_its_names(
    tmp_path: Path, again: Callable[[Path, Path], None], label: str
) -> None:
    root = _folder(tmp_path, ("train", "test"))
    again(root / "train" / "cat" / "00.png", root / "test" / label / "again.png")
    with pytest.raises(OverlapError, match=r"two splits share 1 image: ") as refused:
        load_splits(_config(tmp_path))
    ((one, other),) = refused.value.pairs
    assert {one.partition(".")[0], other.partition(".")[0]} in (
        {"train: train/cat/00", f"test: test/{label}/again"},
        {"validation: train/cat/00", f"test: test/{label}/again"},
    )


def test_copies_all_over_are_counted_and_the_first_named(tmp_path: Path) -> None:
    root = _folder(tmp_path, ("train", "test"))
    for path in sorted((root / "train").rglob("*.png")):
        _copy(path, root / "test" / path.parent.name / f"again-{path.name}")
    with pytest.raises(OverlapError, match=r"share 40 images: .* and 35 more; remove the copies"):
        load_splits(_config(tmp_path))


def test_image_twice_in_one_split_is_counted(tmp_path: Path) -> None:
    root = _folder(tmp_path, ("train", "test"))
    assert load_splits(_config(tmp_path)).repeated == {"train": 0, "validation": 0, "test": 0}
    (root / "test" / "cat" / "again.png").hardlink_to(root / "test" / "cat" / "00.png")
    assert load_splits(_config(tmp_path)).repeated == {"train": 0, "validation": 0, "test": 1}


def test_file_of_another_format_is_not_decoded(tmp_path: Path) -> None:
    """Pillow hands EPS to another program."""
    path = _folder(tmp_path) / "cat" / "07.png"
    with Image.open(tmp_path / "cat" / "00.png") as image:
        image.save(path, format="EPS")
    with pytest.raises(DatasetError, match=r"cat/07\.png cannot be read as an image"):
        load_splits(_config(tmp_path))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"examples": 39}, r"has 40 examples \(.*32 for train\); the limit is 39"),
        ({"files": 19}, "has more than 19 files"),
        ({"image_bytes": 1_000}, r"\.png is longer than 1,000 bytes"),
        ({"image_pixels": 1_439}, r"\.png has 36 x 40 pixels; the limit is 1,439"),
    ],
)
def test_more_than_the_limits_is_rejected(
    tmp_path: Path, limits: dict[str, int], said: str
) -> None:
    config = _config(_folder(tmp_path))
    enough = {"examples": 40, "files": 42, "image_bytes": 10_000, "image_pixels": 1_440}
    load_splits(config, Reading(limits=DataLimits(**enough)))
    with pytest.raises(DataLimitError, match=said):
        load_splits(config, Reading(limits=DataLimits(**{**enough, **limits})))


def test_shapes_beyond_the_limit_are_not_drawn() -> None:
    config = RunConfig(train_examples=10_000_000)
    with pytest.raises(DataLimitError, match="10,000,000 for train"):
        load_splits(config, Reading(limits=DataLimits(examples=100_000)))


def test_sparse_image_of_terabytes_is_rejected(tmp_path: Path) -> None:
    os.truncate(_folder(tmp_path) / "cat" / "07.png", 4 * 2**40)
    with pytest.raises(DataLimitError, match=r"cat/07\.png is longer than"):
        load_splits(_config(tmp_path))


def test_folder_of_another_user_needs_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(_folder(tmp_path))
    own = load_splits(config, Reading(own=True))
    uid = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    monkeypatch.setattr(folders, "_ROOT", uid + 2)
    with pytest.raises(DatasetError, match=r"belongs to another user.*--data-dir"):
        load_splits(config, Reading(own=True))
    named = load_splits(config, Reading(own=True, folder=tmp_path))
    assert named.fingerprints == own.fingerprints


def test_images_keep_their_order_in_nested_folders(tmp_path: Path) -> None:
    """As torchvision lists them, on which earlier runs' fingerprints rest."""
    root = _folder(tmp_path)
    for number, place in enumerate(("b", "a/z", "a", "a-b", "B")):
        folder = root / "cat" / place
        folder.mkdir(parents=True, exist_ok=True)
        (root / "cat" / f"{number:02}.png").rename(folder / f"{number}.PNG")
    with open_folder(root) as opened:
        found = [str(path) for path in _find_images(opened, (), DataLimits())["cat"]]
    theirs = ImageFolder(str(root))
    listed = [path for path, label in theirs.samples if label == 0]
    assert found == [str(Path(path).relative_to(root)) for path in listed]


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
    with pytest.raises(DatasetError, match=r"cifar-10-batches-bin|folder .* not found"):
        load_splits(RunConfig(dataset="cifar10", data_dir=data_dir))
