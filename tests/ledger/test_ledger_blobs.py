"""Blobs are what their names say, or an error."""

import hashlib
import os
from pathlib import Path

import pytest

from ledger.blobs import BlobStore
from ledger.errors import BlobError, EncodingError, StorageError


def test_blob_comes_back_by_its_hash(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    digest = store.put(b"weights")
    assert digest == hashlib.sha256(b"weights").hexdigest()
    assert store.get(digest) == b"weights"
    assert store.path(digest) == tmp_path / "blobs" / digest[:2] / digest
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    assert store.put_file(source) == digest == store.put(b"weights")
    assert [p.name for p in (tmp_path / "blobs").rglob("*") if p.is_file()] == [digest]


def test_changed_blob_is_rejected(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"weights")
    store.path(digest).write_bytes(b"weightz")
    with pytest.raises(BlobError, match=f"{digest}: the blob was changed"):
        store.get(digest)
    store.put(b"weights")
    assert store.get(digest) == b"weights"


def test_missing_blob_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BlobError, match="the blob is missing"):
        BlobStore(tmp_path).get("0" * 64)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_name_that_is_no_hash_is_rejected(tmp_path: Path, digest: str) -> None:
    with pytest.raises(EncodingError, match="is not a SHA-256"):
        BlobStore(tmp_path).get(digest)


def test_blobs_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        BlobStore(tmp_path / "file").put(b"x")
    with pytest.raises(StorageError, match="missing"):
        BlobStore(tmp_path / "blobs").put_file(tmp_path / "missing")
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "file"]


def test_sparse_blob_of_terabytes_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"weights")
    os.truncate(store.path(digest), 4 * 2**40)
    with pytest.raises(BlobError, match="the blob has 4,398,046,511,104 bytes"):
        store.get(digest)
