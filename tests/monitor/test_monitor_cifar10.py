"""CIFAR-10 is read from bytes with the published hashes, and nothing is unpickled."""

import filecmp
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from monitor import cifar10
from monitor.config import RunConfig
from monitor.datasets import load_splits, load_test
from monitor.errors import DatasetError, UnusableFileError

Batch = tuple[np.ndarray, np.ndarray]


def _batches(count: int) -> dict[str, Batch]:
    """Return noise in files of so many images; the published ones have 10,000."""
    rng = np.random.default_rng(0)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    return {
        name: (
            rng.integers(0, 256, (count, 3072), np.uint8),
            np.resize(np.arange(10, dtype=np.uint8), count),
        )
        for name in names
    }


def _binary(batch: Batch) -> bytes:
    return np.concatenate([batch[1][:, None], batch[0]], axis=1).tobytes()


def _pickled(batch: Batch, *, more: bytes = b"") -> bytes:
    """Return the operations of the published files, which Python 2 wrote."""
    labels = b"".join(
        b"(" + b"".join(b"K" + bytes([label]) for label in part) + b"e"
        for part in batch[1].reshape(10, -1)
    )
    pixels, count = batch[0].tobytes(), len(batch[0]).to_bytes(2, "little")
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03"
        b"U\x06labelsq\x04]q\x05" + labels + b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\n"
        b"q\x07cnumpy\nndarray\nq\x08K\x00\x85q\tU\x01b\x87q\nRq\x0b(K\x01M"
        + count
        + b"M\x00\x0c\x86q\x0c"
        b"cnumpy\ndtype\nq\rU\x02u1K\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tbq\x10\x89T"
        + len(pixels).to_bytes(4, "little")
        + pixels
        + b"q\x11tb"
        + more
        + b"U\tfilenamesq\x12]q\x13(U\x05a.pngq\x14U\x05b.pngq\x15eu."
    )


@pytest.fixture(scope="module", params=[200, pytest.param(10_000, marks=pytest.mark.slow)])
def drawn(request: pytest.FixtureRequest) -> dict[str, Batch]:
    return _batches(request.param)


@pytest.fixture
def batches(drawn: dict[str, Batch], monkeypatch: pytest.MonkeyPatch) -> dict[str, Batch]:
    """Files that are taken for the published ones; in the slow suite they are as large."""
    monkeypatch.setattr(cifar10, "_EXAMPLES", len(drawn["test_batch"][1]))
    return drawn


@pytest.fixture
def published(batches: dict[str, Batch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with both forms, whose hashes are taken for the published ones."""
    for form, table, algorithm, encode in (
        (cifar10.BINARY, "_BINARY_SHA1", "sha1", _binary),
        (cifar10.PICKLED, "_PICKLED_MD5", "md5", _pickled),
    ):
        (tmp_path / form).mkdir()
        suffix = ".bin" if form == cifar10.BINARY else ""
        hashes: dict[str, dict[str, str]] = {"train": {}, "test": {}}
        for name, batch in batches.items():
            content = encode(batch)
            (tmp_path / form / f"{name}{suffix}").write_bytes(content)
            part = "test" if name == "test_batch" else "train"
            hashes[part][f"{name}{suffix}"] = hashlib.new(algorithm, content).hexdigest()
        monkeypatch.setattr(cifar10, table, hashes)
    return tmp_path


def _config(folder: Path, **changes: object) -> RunConfig:
    return RunConfig.from_dict({"dataset": "cifar10", "data_dir": str(folder), **changes})


def test_both_forms_give_the_same_images(published: Path, batches: dict[str, Batch]) -> None:
    config = _config(published)
    splits = load_splits(config)
    count = len(batches["test_batch"][1])
    assert splits.sizes == {"train": 9 * count // 2, "validation": count // 2, "test": count}
    assert splits.classes[:3] == ("airplane", "automobile", "bird")
    found = {image.numpy().tobytes() for image in load_test(config).images[:50]}
    assert found <= {row.tobytes() for row in batches["test_batch"][0]}
    (published / cifar10.BINARY).rename(published / "away")
    assert load_splits(config).fingerprints == splits.fingerprints


def test_pickle_that_would_run_code_is_listed_only(
    tmp_path: Path, batches: dict[str, Batch]
) -> None:
    """Even with the published hash: no operation of it is carried out."""
    ran = tmp_path / "ran"
    content = _pickled(batches["test_batch"], more=b"cos\nmkdir\n(V%b\ntR0" % str(ran).encode())
    pickle.loads(content, encoding="latin-1")
    ran.rmdir()  # which that has made
    images, labels = cifar10.parse_pickled(content, "test_batch")
    assert not ran.exists()
    assert images.shape == (len(labels), 3, 32, 32)
    assert labels[:11].tolist() == [*range(10), 0]


@pytest.mark.parametrize("form", [cifar10.BINARY, cifar10.PICKLED])
def test_file_without_the_published_hash_is_rejected(published: Path, form: str) -> None:
    if form == cifar10.PICKLED:
        (published / cifar10.BINARY).rename(published / "away")
    path = next((published / form).glob("data_batch_3*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"data_batch_3.* is not the published file"):
        load_splits(_config(published))


def test_linked_file_is_rejected(published: Path) -> None:
    path = published / cifar10.BINARY / "test_batch.bin"
    path.rename(published / "test_batch.bin")
    path.symlink_to(published / "test_batch.bin")
    with pytest.raises(UnusableFileError, match="is not a regular file"):
        load_splits(_config(published))


def test_archive_is_unpacked_if_it_is_the_published_one(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz", compresslevel=0) as archive:
        archive.add(published / cifar10.BINARY, cifar10.BINARY)
        archive.addfile(tarfile.TarInfo("../outside"))
    digest = hashlib.sha256(written.getvalue()).hexdigest()
    target = tmp_path / "target"
    with pytest.raises(DatasetError, match=f"its SHA-256 is {digest}"):
        cifar10.unpack(written.getvalue(), target)
    monkeypatch.setattr(cifar10, "_ARCHIVE_SHA256", digest)
    cifar10.unpack(written.getvalue(), target)
    names = [path.name for path in (published / cifar10.BINARY).iterdir()]
    same = filecmp.cmpfiles(published / cifar10.BINARY, target / cifar10.BINARY, names, False)
    assert sorted(same[0]) == sorted(names)
    assert not (tmp_path / "outside").exists()


def test_binary_file_of_another_length_is_rejected() -> None:
    with pytest.raises(DatasetError, match=r"has 5 bytes, not 30,730,000"):
        cifar10.parse_binary(b"12345", "test_batch.bin")


@pytest.mark.parametrize("content", [b"", b"\x80\x02.", b"U\x06labels.", b"\x80\x02cos\nsystem\n."])
def test_pickle_that_is_built_otherwise_is_rejected(content: bytes) -> None:
    with pytest.raises(DatasetError, match="cifar-10-batches-bin"):
        cifar10.parse_pickled(content, "test_batch")
