"""Keys: made once, guarded, and only their own ledger's."""

import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from eventsourcing.persistence import StoredEvent
from stores import database_path

from ledger.application import LedgerApplication
from ledger.errors import KeyFileError, PassphraseError, ReadOnlyError, StorageError
from ledger.handover.envelope import public_pem
from ledger.keys import load_key, load_or_create_key
from ledger.mapper import EventRegistry
from ledger.notes import public_bytes
from ledger.paths import LedgerPaths
from ledger.verification.reader import check_ledger

OPEN_AND_APPEND = """
import sys
from pathlib import Path
from uuid import uuid4
from eventsourcing.persistence import StoredEvent
from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
print("ready", flush=True)
sys.stdin.readline()
with LedgerApplication.open(Path(sys.argv[1]), EventRegistry()) as app:
    app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.opened", b"")])
"""


def append_one(directory: Path, *, passphrase: bytes | None = None) -> None:
    with LedgerApplication.open(directory, EventRegistry(), passphrase=passphrase) as app:
        app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])


def test_key_is_made_once_and_guarded(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "ledger.pem"
    key = load_or_create_key(path, passphrase=None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert public_bytes(load_or_create_key(path, passphrase=None)) == public_bytes(key)
    assert [p.name for p in path.parent.iterdir()] == ["ledger.pem"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_key_that_others_can_reach_is_rejected(tmp_path: Path, mode: int) -> None:
    append_one(tmp_path)
    LedgerPaths(tmp_path).key.chmod(mode)
    with pytest.raises(KeyFileError, match=r"ledger\.pem: mode 06.. lets other users access"):
        append_one(tmp_path)
    LedgerPaths(tmp_path).key.chmod(0o600)
    append_one(tmp_path)


def test_passphrase_opens_its_key_and_a_wrong_one_is_rejected(tmp_path: Path) -> None:
    append_one(tmp_path, passphrase="grüße".encode())
    assert b"ENCRYPTED" in LedgerPaths(tmp_path).key.read_bytes()
    append_one(tmp_path, passphrase="grüße".encode())
    with pytest.raises(PassphraseError, match="the passphrase is wrong"):
        append_one(tmp_path, passphrase=b"other")
    with pytest.raises(PassphraseError, match="the key needs a passphrase"):
        append_one(tmp_path)
    assert check_ledger(tmp_path).size == 2


def test_passphrase_that_another_key_needs_stands_in_no_open_keys_way(tmp_path: Path) -> None:
    append_one(tmp_path)
    append_one(tmp_path, passphrase=b"secret")
    assert check_ledger(tmp_path).size == 2


def test_empty_passphrase_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="the passphrase is empty"):
        append_one(tmp_path / "new", passphrase=b"")


def test_foreign_key_is_rejected(tmp_path: Path) -> None:
    append_one(tmp_path / "own")
    append_one(tmp_path / "other")
    own, other = LedgerPaths(tmp_path / "own"), LedgerPaths(tmp_path / "other")
    shutil.copy(own.key, tmp_path / "kept.pem")
    shutil.copy(other.key, own.key)
    with pytest.raises(KeyFileError, match="this key is not in force in ledger"):
        append_one(tmp_path / "own")
    shutil.copy(tmp_path / "kept.pem", own.key)
    append_one(tmp_path / "own")


def test_exchanged_vkey_is_rejected(tmp_path: Path) -> None:
    append_one(tmp_path / "own")
    append_one(tmp_path / "other")
    own, other = LedgerPaths(tmp_path / "own"), LedgerPaths(tmp_path / "other")
    shutil.copy(other.vkey, own.vkey)
    with pytest.raises(KeyFileError, match="one of the two files was replaced"):
        append_one(tmp_path / "own")
    assert check_ledger(tmp_path / "own").error_type == "SignatureError"
    own.vkey.unlink()  # the private key's owner needs no vkey, and puts it back
    append_one(tmp_path / "own")
    assert check_ledger(tmp_path / "own").ok


def test_keys_of_other_kinds_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(
        generate_private_key(SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="not an Ed25519 key"):
        load_key(path, passphrase=None)
    path.write_text(public_pem(bytes(32)))
    with pytest.raises(KeyFileError, match="a public key; give the private key"):
        load_key(path, passphrase=None)
    path.write_bytes(b"no key at all")
    with pytest.raises(KeyFileError, match="not a PEM key"):
        load_key(path, passphrase=None)


def test_ledger_without_its_private_key_is_read_only(tmp_path: Path) -> None:
    append_one(tmp_path)
    paths = LedgerPaths(tmp_path)
    paths.key.unlink()
    with LedgerApplication.open(tmp_path, EventRegistry()) as app:
        assert app.recorder.max_notification_id() == 1
        with pytest.raises(ReadOnlyError, match="the private key is not here"):
            app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
    assert not paths.key.exists()
    assert check_ledger(tmp_path).size == 1


def test_ledger_is_not_begun_anew_when_its_database_is_gone(tmp_path: Path) -> None:
    append_one(tmp_path)
    database_path(tmp_path).unlink()
    with pytest.raises(StorageError, match="ledger not found"):
        append_one(tmp_path)
    LedgerPaths(tmp_path).vkey.unlink()
    append_one(tmp_path)


def test_processes_that_begin_one_ledger_at_once_end_with_one_key(tmp_path: Path) -> None:
    openers = 4
    for trial in range(3):
        directory = tmp_path / f"ledger-{trial}"
        children = [
            subprocess.Popen(
                [sys.executable, "-c", OPEN_AND_APPEND, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(openers)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        for child in children:  # all are at the door; let them go together
            assert child.stdin is not None
            child.stdin.close()
            child.stdin = None
        for child in children:
            child.communicate(timeout=120)
        assert [child.returncode for child in children] == [0] * openers
        report = check_ledger(directory)
        assert (report.ok, report.size) == (True, openers), report
        paths = LedgerPaths(directory)
        assert [p.name for p in paths.key.parent.iterdir()] == ["ledger.pem"]
        assert not list(directory.glob(".*"))
