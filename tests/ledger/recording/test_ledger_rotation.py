"""Keys over time in the recorder: what it refuses, and rotations that are killed half-way."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from stores import database_path, tables_of

from ledger.application import LedgerApplication
from ledger.bodies import encode_body
from ledger.entries import Author, AuthorKey
from ledger.errors import (
    AuthorityError,
    ConsistencyError,
    EncodingError,
    KeyFileError,
    LedgerError,
    StorageError,
)
from ledger.keys import load_key
from ledger.mapper import EventRegistry
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.authority import Authority
from ledger.verification.reader import check_ledger, open_verified
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature

ORIGIN = "test/author"
OPERATOR = AuthorKey("operator", Ed25519PrivateKey.generate())
JUDGE = AuthorKey("judge", Ed25519PrivateKey.generate())
STRANGER = AuthorKey("judge", Ed25519PrivateKey.generate())


def vkey_of(key: AuthorKey) -> str:
    return vkey(ORIGIN, public_bytes(key.key))


def open_recorder(directory: Path) -> SignedRecorder:
    store, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    return SignedRecorder(store, signer=signer)


def event(version: int = 1, *, stream: UUID | None = None, body: bytes = b"") -> StoredEvent:
    return StoredEvent(stream or uuid4(), version, "test.event", body)


def granted(directory: Path) -> SignedRecorder:
    recorder = open_recorder(directory)
    assert recorder.grant_key(vkey_of(OPERATOR), role="operator") == 1
    assert recorder.grant_key(vkey_of(JUDGE), role="judge", author=OPERATOR) == 2
    return recorder


def insert(recorder: SignedRecorder, stored: StoredEvent, *, author: Author) -> int:
    """Append an event with a signature that was made elsewhere, as a notary does."""
    stream = stored.originator_id
    assert isinstance(stream, UUID)
    made = (stream.bytes, stored.originator_version, stored.topic, stored.state, author)
    return recorder.append(lambda batch: batch.add([made]))


def signed(origin: str, stream: UUID) -> Author:
    """A judge's signature for the third event of a stream."""
    return JUDGE.author(
        origin=origin, stream_id=stream, stream_version=3, name="test.event", body=b""
    )


def test_authors_are_written_and_verified(tmp_path: Path) -> None:
    recorder = granted(tmp_path)
    stream = uuid4()
    recorder.insert_events([event(1, stream=stream), event(2, stream=stream)], author=JUDGE)
    with open_verified(tmp_path) as ledger:
        origin = ledger.authority.origin
    made = signed(origin, stream)
    insert(recorder, event(3, stream=stream), author=made)
    recorder.insert_events([event()])
    recorder.close()
    with open_verified(tmp_path) as ledger:
        roles = [entry.author and entry.author.role for entry in ledger.entries()]
    assert roles == ["ledger", "operator", "judge", "judge", "judge", None]


def test_statement_of_another_ledger_is_rejected(tmp_path: Path) -> None:
    into = granted(tmp_path / "first")
    other = granted(tmp_path / "second")
    stream = uuid4()
    before = [event(1, stream=stream), event(2, stream=stream)]
    into.insert_events(before)
    other.insert_events(before)
    with open_verified(tmp_path / "first") as ledger:
        made = signed(ledger.authority.origin, stream)
    insert(into, event(3, stream=stream), author=made)  # the honest control
    with pytest.raises(AuthorityError, match="entry 4: the author's signature is invalid"):
        insert(other, event(3, stream=stream), author=made)
    into.close()
    other.close()


Refused = Callable[[SignedRecorder], object]


@pytest.mark.parametrize(
    ("attempt", "match"),
    [
        (lambda r: r.insert_events([event()], author=STRANGER), "a key that is not in force"),
        (lambda r: r.insert_events([event()], author=AuthorKey("judge", OPERATOR.key)), "in force"),
        (
            lambda r: insert(r, event(), author=signed("proctor.local/elsewhere", uuid4())),
            ": the author's signature is invalid",
        ),
        (
            lambda r: insert(r, event(), author=Author("judge", bytes(32), bytes(64))),
            "in force",
        ),
        (lambda r: r.grant_key(vkey_of(STRANGER), role="judge"), "must be signed by operator"),
        (
            lambda r: r.grant_key(vkey_of(STRANGER), role="judge", author=JUDGE),
            "must be signed by operator",
        ),
        (
            lambda r: r.grant_key(vkey_of(JUDGE), role="judge", author=OPERATOR),
            "already used in this ledger",
        ),
        (lambda r: r.grant_key("no key", role="judge", author=OPERATOR), "not a C2SP verifier"),
        (
            lambda r: r.revoke_key(
                vkey_of(STRANGER), role="judge", since=0, reason="", author=OPERATOR
            ),
            "never in force",
        ),
    ],
)
def test_what_no_verifier_would_accept_is_rejected(
    tmp_path: Path, attempt: Refused, match: str
) -> None:
    recorder = granted(tmp_path)
    with pytest.raises(AuthorityError, match=match):
        attempt(recorder)
    assert recorder.max_notification_id() == 2
    assert recorder.insert_events([event()], author=JUDGE) == [3]
    recorder.close()
    assert check_ledger(tmp_path).ok


def test_false_event_in_the_authority_stream_is_rejected(tmp_path: Path) -> None:
    recorder = granted(tmp_path)
    stream = Authority(LedgerPaths(tmp_path).vkey.read_text()).stream_id
    body = encode_body({"v": 1, "role": "judge", "vkey": vkey_of(STRANGER)})
    false = StoredEvent(stream, 3, "key.granted", body)
    with pytest.raises(AuthorityError, match="has the author None"):
        recorder.insert_events([false])
    with pytest.raises(AuthorityError, match="has the author judge"):
        recorder.insert_events([false], author=JUDGE)
    assert recorder.insert_events([false], author=OPERATOR) == [3]
    recorder.close()
    assert check_ledger(tmp_path).ok


def test_revoked_key_is_rejected_by_every_open_recorder(tmp_path: Path) -> None:
    one = granted(tmp_path)
    other = open_recorder(tmp_path)
    other.insert_events([event()], author=JUDGE)
    one.revoke_key(vkey_of(JUDGE), role="judge", since=0, reason="lost", author=OPERATOR)
    with pytest.raises(AuthorityError, match="not in force"):
        other.insert_events([event()], author=JUDGE)
    other.insert_events([event()], author=OPERATOR)
    one.close()
    other.close()
    assert check_ledger(tmp_path).ok


def test_rotation_hands_over_and_the_ledger_keeps_its_identity(tmp_path: Path) -> None:
    paths = LedgerPaths(tmp_path)
    one = open_recorder(tmp_path)
    other = open_recorder(tmp_path)
    one.insert_events([event()])
    old = public_bytes(load_key(paths.key, passphrase=None))
    identity = paths.vkey.read_text()
    rotated = [one.rotate_key(), other.rotate_key(), one.rotate_key()]
    assert other.insert_events([event()]) == [5]
    assert paths.vkey.read_text() == identity
    now = public_bytes(load_key(paths.key, passphrase=None))
    assert vkey(identity.partition("+")[0], now) == rotated[-1]
    assert now != old
    assert [path.name for path in paths.key.parent.iterdir()] == ["ledger.pem"]
    one.close()
    other.close()
    assert check_ledger(tmp_path, vkey=identity).size == 5
    with open_verified(tmp_path) as ledger:
        assert [key.vkey for key in ledger.authority.keys] == [identity.strip(), *rotated]


def test_rotated_key_keeps_its_passphrase(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry(), passphrase=b"secret") as app:
        assert isinstance(app.recorder, SignedRecorder)
        app.recorder.rotate_key()
    assert b"ENCRYPTED" in LedgerPaths(tmp_path).key.read_bytes()
    with pytest.raises(KeyFileError, match="needs a passphrase"):
        open_recorder(tmp_path)
    with LedgerApplication.open(tmp_path, EventRegistry(), passphrase=b"secret") as app:
        app.recorder.insert_events([event()])


def test_key_that_was_rotated_out_is_rejected(tmp_path: Path) -> None:
    paths = LedgerPaths(tmp_path)
    recorder = open_recorder(tmp_path)
    shutil.copy(paths.key, tmp_path / "old.pem")
    recorder.rotate_key()
    recorder.close()
    shutil.copy(paths.key, tmp_path / "new.pem")
    shutil.copy(tmp_path / "old.pem", paths.key)
    with pytest.raises(KeyFileError, match="this key is not in force in ledger"):
        open_recorder(tmp_path)
    shutil.copy(tmp_path / "new.pem", paths.key)
    open_recorder(tmp_path).close()


def rotate_and_die(directory: Path, *, at: int) -> bool:
    """Rotate in a child that is killed at its n-th line of the ledger's code; tell if it was."""
    child = os.fork()
    if child == 0:
        left = at

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if "/ledger/" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        recorder = open_recorder(directory)
        sys.settrace(trace)
        recorder.rotate_key()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def kill_rotations(directory: Path, *, stride: int) -> tuple[int, int]:
    """Return how many rotations were killed before, and how many after they were in force."""
    recorder = open_recorder(directory / "begun")
    recorder.insert_events([event()])
    recorder.close()
    at, killed, counts = 1, True, [0, 0]
    while killed:
        copy = Path(shutil.copytree(directory / "begun", directory / str(at)))
        killed = rotate_and_die(copy, at=at)
        recorder = open_recorder(copy)
        recorder.insert_events([event()])
        recorder.close()
        with open_verified(copy) as ledger:
            rotated = len(ledger.authority.rotations)
            size, in_force = ledger.size, ledger.authority.vkey
        assert size == 2 + rotated
        assert rotated in ((0, 1) if killed else (1,))
        paths = LedgerPaths(copy)
        private = load_key(paths.key, passphrase=None)
        assert vkey(in_force.partition("+")[0], public_bytes(private)) == in_force
        assert not (rotated and paths.next_key.exists())
        if killed and not rotated:  # what was left over does not stand in the next one's way
            recorder = open_recorder(copy)
            assert recorder.rotate_key() != in_force
            recorder.close()
            assert check_ledger(copy).ok
        counts[rotated] += 1
        at += stride
        shutil.rmtree(copy)
    return counts[0], counts[1]


@pytest.mark.slow
def test_rotation_killed_at_any_step_leaves_the_key_in_force_in_place(tmp_path: Path) -> None:
    undone, done = kill_rotations(tmp_path, stride=23)
    assert undone > 5
    assert done > 2


@pytest.mark.slow
def test_rotation_killed_at_every_step_leaves_the_key_in_force_in_place(tmp_path: Path) -> None:
    undone, done = kill_rotations(tmp_path, stride=1)
    assert undone > 80
    assert done > 20


def test_cosignature_is_added_once_and_the_note_still_holds(tmp_path: Path) -> None:
    recorder = granted(tmp_path)
    head = recorder.tree_head()
    assert head is not None
    text = head[: head.rindex("\n\n") + 1]
    witness = Ed25519PrivateKey.generate()
    own = cosignature_vkey("test/witness", public_bytes(witness))
    recorder.grant_key(own, role="witness", author=OPERATOR)
    line = sign_cosignature(text, name="test/witness", key=witness, seconds=5)
    recorder.add_signature_line(2, line)
    recorder.add_signature_line(2, line)
    later = sign_cosignature(text, name="test/witness", key=witness, seconds=6)
    recorder.add_signature_line(2, later)  # its first line says more
    with tables_of(tmp_path) as c:
        (note,) = c.execute("SELECT note FROM tree_heads WHERE size = 2").fetchone()
    assert note == head + line
    forged = sign_cosignature("another\n", name="test/witness", key=witness, seconds=5)
    refused: list[tuple[int, str, type[LedgerError], str]] = [
        (2, forged, AuthorityError, "signature line is not valid"),
        (9, line, EncodingError, "no tree head of size 9"),
        (2, "no line\n", EncodingError, "malformed signature line"),
        (2, line.strip(), EncodingError, "one line with its newline"),
        (2, head.splitlines(keepends=True)[-1] * 2, EncodingError, "one line with its newline"),
    ]
    for size, bad, error, match in refused:
        with pytest.raises(error, match=match):
            recorder.add_signature_line(size, bad)
    recorder.insert_events([event()])
    recorder.close()
    assert check_ledger(tmp_path).ok


def test_second_line_by_the_ledgers_own_key_is_rejected(tmp_path: Path) -> None:
    recorder = granted(tmp_path)
    own = load_key(LedgerPaths(tmp_path).key, passphrase=None)
    head = recorder.tree_head()
    assert head is not None
    dash, name, _ = head.splitlines()[-1].split(" ")
    line = f"{dash} {name} {head.splitlines()[-1].split(' ')[2][:8]}{'A' * 84}\n"
    with pytest.raises(EncodingError, match="does not match the tree head"):
        recorder.add_signature_line(2, line)
    assert own is not None
    recorder.close()
    assert check_ledger(tmp_path).ok


def test_ledger_that_was_cut_under_an_open_recorder_is_rejected(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    stream = uuid4()
    for version in (1, 2, 3):
        recorder.insert_events([event(version, stream=stream)])
    with tables_of(tmp_path) as c:
        c.execute("DELETE FROM entries WHERE idx = 2")
        c.execute("DELETE FROM tree_heads WHERE size = 3")
    with pytest.raises(ConsistencyError, match="does not continue its earlier 3 entries"):
        recorder.insert_events([event()])
    recorder.close()


def test_ledger_whose_file_was_exchanged_under_an_open_recorder_is_rejected(
    tmp_path: Path,
) -> None:
    path = database_path(tmp_path)
    recorder = open_recorder(tmp_path)
    recorder.insert_events([event()])
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    with pytest.raises(StorageError, match="the file was replaced by another one"):
        recorder.insert_events([event()])
    recorder.close()


def test_recorders_that_share_a_database_see_each_others_appends(tmp_path: Path) -> None:
    store, signer = open_ledger(LedgerPaths(tmp_path), passphrase=None)
    one, other = (SignedRecorder(store, signer=signer) for _ in range(2))
    stream = uuid4()
    for version in range(1, 9):
        (one, other)[version % 2].insert_events([event(version, stream=stream)])
    one.close()
    assert check_ledger(tmp_path).size == 8
