"""A notary that is stopped, killed, cut off and spoken to in nonsense loses nothing."""

import contextlib
import os
import random
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from hostile import batch, connect, receive
from notaries import RunningNotary, open_folder, running_notary

from aggregates.audit import Audit
from aggregates.registry import REGISTRY
from aggregates.review import Review
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import (
    AuthorityError,
    BlobError,
    ConflictError,
    ConsistencyError,
    EncodingError,
    ForbiddenError,
    KeyFileError,
    MalformedError,
    StorageError,
    UnsupportedError,
)
from ledger.notary.client import NotaryClient
from ledger.notary.messages import MAX_FRAME, Done, PutBlob, pack_frame, parse_frame
from ledger.notary.mirror import refresh_mirror
from ledger.notary.remote import RemoteRecorder
from ledger.notary.remote_blobs import RemoteBlobs
from ledger.notary.service import listening, only_notary
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import check_ledger, open_verified
from ledger.verification.verified_notes import parse_note
from ledger.witnessing.cosignatures import cosignature_vkey, open_cosignature, sign_cosignature

WITNESS, GRANTED, JUDGE, OPERATOR, STRANGER = (
    Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(1, 6)
)
WITNESS_VKEY = cosignature_vkey("witness", public_bytes(WITNESS))
RULES = f"""\
[[user]]
user = {os.geteuid()}
append = ["*"]
roles = ["judge", "operator"]
cosign = true
witnesses = ["{WITNESS_VKEY}"]
"""


@pytest.fixture(scope="module")
def notary() -> Iterator[RunningNotary]:
    with open_folder() as folder, running_notary(folder, RULES) as notary:
        yield notary


@pytest.fixture
def fresh_notary() -> Iterator[RunningNotary]:
    with open_folder() as folder, running_notary(folder, RULES) as notary:
        yield notary


@pytest.fixture
def recorder(notary: RunningNotary) -> Iterator[RemoteRecorder]:
    client = NotaryClient(notary.socket)
    yield RemoteRecorder(client)
    client.close()


def events(stream: UUID, *versions: int, state: bytes = b"state") -> list[StoredEvent]:
    return [StoredEvent(stream, version, "run.event", state) for version in versions]


def versions(notary: RunningNotary, stream: UUID) -> list[int]:
    with open_verified(notary.ledger, vkey=notary.vkey) as ledger:
        return [each.stream_version for each in ledger.entries() if each.stream_id == stream]


class Cutter:
    """Stands between a client and a notary, and cuts connections when an answer comes."""

    def __init__(self, path: Path, notary: Path, cut: Callable[[], bool]) -> None:
        self._notary, self._cut = notary, cut
        self.cuts = 0
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        with client, connect(str(self._notary)) as notary:
            client.sendall(self._frame(notary))  # the greeting
            while request := self._frame(client):
                if self._cut():  # before it has arrived
                    self.cuts += 1
                    return
                notary.sendall(request)
                answer = self._frame(notary)
                if self._cut():  # when it has been carried out
                    self.cuts += 1
                    return
                client.sendall(answer)

    @staticmethod
    def _frame(source: socket.socket) -> bytes:
        prefix = source.recv(4, socket.MSG_WAITALL)
        rest = source.recv(int.from_bytes(prefix, "big"), socket.MSG_WAITALL) if prefix else b""
        return prefix + rest


@pytest.mark.slow
def test_batches_are_recorded_once_when_connections_are_cut(notary: RunningNotary) -> None:
    rng, stream = random.Random(5), uuid4()
    path = notary.home.parent / "cutter"
    cutter = Cutter(path, notary.socket, lambda: rng.random() < 0.3)
    recorder = RemoteRecorder(NotaryClient(path))
    ids = [recorder.insert_events(events(stream, at, at + 1)) for at in range(1, 60, 2)]
    assert cutter.cuts > 10
    assert versions(notary, stream) == list(range(1, 61))
    with open_verified(notary.ledger, vkey=notary.vkey) as ledger:
        own = [each.index + 1 for each in ledger.entries() if each.stream_id == stream]
    assert [each for pair in ids for each in pair] == own
    blobs, content = RemoteBlobs(recorder.client), rng.randbytes(3_500_000)
    with contextlib.suppress(StorageError):  # cut three times over: then it says so
        assert blobs.get(blobs.put(content)) == content
    cutter.listener.close()


def test_conflict_that_was_not_ours_is_told_after_a_cut_too(notary: RunningNotary) -> None:
    stream = uuid4()
    RemoteRecorder(NotaryClient(notary.socket)).insert_events(events(stream, 1, state=b"other"))
    answers = iter([False, True])
    path = notary.home.parent / "cutter2"
    cutter = Cutter(path, notary.socket, lambda: next(answers, False))
    recorder = RemoteRecorder(NotaryClient(path))
    with pytest.raises(ConflictError, match="cannot follow"):
        recorder.insert_events(events(stream, 1))
    assert cutter.cuts == 1
    assert recorder.insert_events(events(stream, 2))
    cutter.listener.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.sampled(2)
def test_producers_go_on_over_a_restart_and_lose_nothing(
    fresh_notary: RunningNotary, number: int
) -> None:
    notary, streams = fresh_notary, [uuid4() for _ in range(3)]
    failures: list[BaseException] = []
    stop = threading.Event()
    done = dict.fromkeys(streams, 0)

    def produce(stream: UUID) -> None:
        try:
            recorder = RemoteRecorder(NotaryClient(notary.socket))
            while not stop.is_set():
                recorder.insert_events(events(stream, done[stream] + 1))
                done[stream] += 1
            recorder.client.close()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=produce, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()

    def wait_for_more() -> None:
        before, until = dict(done), time.monotonic() + 60.0
        while any(done[stream] < before[stream] + 3 for stream in streams) and not failures:
            assert time.monotonic() < until, "a producer did not go on"
            time.sleep(0.01)

    for _ in range(3):
        wait_for_more()
        code = notary.stop(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        assert notary.socket.exists() is (number == signal.SIGKILL)
        notary.start_again()
    wait_for_more()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    for stream in streams:
        assert versions(notary, stream) == list(range(1, done[stream] + 1))
    assert notary.stop() == 0


def test_notary_that_stays_away_is_told_after_a_while(fresh_notary: RunningNotary) -> None:
    recorder = RemoteRecorder(NotaryClient(fresh_notary.socket, patience=0.3))
    fresh_notary.stop()
    with pytest.raises(StorageError, match="no answer from the notary for"):
        recorder.insert_events(events(uuid4(), 1))
    with pytest.raises(StorageError, match="cannot connect to the notary"):
        NotaryClient(fresh_notary.socket)


def test_nonsense_is_answered_and_harms_nobody(
    notary: RunningNotary, recorder: RemoteRecorder
) -> None:
    rng = random.Random(7)
    good = [
        batch(events=2),
        pack_frame({"op": "newest"}),
        pack_frame({"op": "heads", "after": 0, "upto": 5}),
        pack_frame({"op": "stream", "stream": b"x" * 16, "gt": None, "lte": 3, "desc": True,
                    "limit": None}),
        pack_frame({"op": "get_blob", "sha256": "0" * 64, "offset": 0}),
        pack_frame({"op": "put_blob", "sha256": "0" * 64, "size": 5, "offset": 0}, b"abc"),
    ]  # fmt: skip
    client = connect(str(notary.socket))
    receive(client)
    kinds = set()
    for _ in range(600):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        client.sendall(data)
        kinds.add(receive(client).header.get("error", "done"))
    assert kinds <= {"done", "MalformedError", "EncodingError", "BlobError", "ConflictError",
                     "ForbiddenError"}  # fmt: skip
    assert "MalformedError" in kinds
    client.close()
    assert recorder.insert_events(events(uuid4(), 1))
    assert check_ledger(notary.ledger, vkey=notary.vkey).ok


def test_frame_that_is_too_long_ends_its_own_connection_only(
    notary: RunningNotary, recorder: RemoteRecorder
) -> None:
    client = connect(str(notary.socket))
    receive(client)
    client.sendall((MAX_FRAME + 1).to_bytes(4, "big"))
    assert receive(client).header["error"] == "MalformedError"
    assert client.recv(1) == b""
    assert recorder.max_notification_id() is None or recorder.insert_events(events(uuid4(), 1))


@pytest.mark.parametrize(
    "header",
    [
        {"op": "newest", "more": 1},
        {"op": "heads", "after": "0", "upto": 1},
        {"op": "heads", "after": True, "upto": 1},
        {"op": "stream", "stream": b"", "gt": 2**63, "lte": None, "desc": False, "limit": None},
        {"op": "notifications", "first": 0, "last": 1, "limit": 1, "topics": [1]},
        {"op": "notifications", "first": 0, "last": 1, "limit": 1, "topics": ["x"] * 65},
        {"op": "delete"},
        {"op": ["insert"]},
        {"op": "insert"},
        {},
    ],
    ids=str,
)
def test_request_of_another_form_is_rejected(
    recorder: RemoteRecorder, header: dict[str, object]
) -> None:
    with pytest.raises(MalformedError):
        recorder.client.exchange(pack_frame(header))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\5\x80", b"\0\1\xc0", b"\xff\xff\x80"])
def test_frame_without_a_header_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_frame(data)


def test_ninth_connection_of_a_user_is_rejected_until_one_is_free(
    fresh_notary: RunningNotary,  # which still holds no connection of an earlier test
) -> None:
    held = [NotaryClient(fresh_notary.socket) for _ in range(8)]
    with pytest.raises(ForbiddenError, match="already has 8 connections"):
        NotaryClient(fresh_notary.socket)
    for client in held:
        client.close()
    deadline = time.monotonic() + 60.0  # seconds
    while True:
        try:
            NotaryClient(fresh_notary.socket).close()
        except ForbiddenError:  # it has not seen yet that they are gone
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            break


def test_errors_are_those_of_a_recorder_in_the_same_process(recorder: RemoteRecorder) -> None:
    stream = uuid4()
    with pytest.raises(ConflictError, match="cannot follow"):
        recorder.insert_events(events(stream, 2))
    with pytest.raises(EncodingError, match="Store the large part as a blob"):
        recorder.insert_events(events(stream, 1, state=bytes(70_000)))
    with pytest.raises(EncodingError, match="is not a UUID"):
        recorder.insert_events([StoredEvent("text", 1, "run.event", b"")])
    with pytest.raises(EncodingError, match="append fewer events"):
        recorder.insert_events(events(stream, *range(1, 100), state=bytes(60_000)))
    with pytest.raises(EncodingError, match="1,001 events are more than a notary accepts at once"):
        recorder.insert_events(events(stream, *range(1, 1_002)))
    with pytest.raises(UnsupportedError):
        recorder.subscribe()
    assert recorder.insert_events([]) == []
    assert recorder.insert_events(events(stream, 1))


def test_many_pages_are_read_as_one(recorder: RemoteRecorder) -> None:
    stream = uuid4()
    for at in range(1, 121, 60):
        recorder.insert_events(events(stream, *range(at, at + 60), state=bytes(50_000)))
    found = recorder.select_events(stream)
    assert [each.originator_version for each in found] == list(range(1, 121))
    down = recorder.select_events(stream, gt=5, lte=118, desc=True, limit=100)
    assert [each.originator_version for each in down] == list(range(118, 18, -1))
    last = recorder.max_notification_id()
    assert last is not None
    notes = recorder.select_notifications(last - 119, 110, topics=["run.event"])
    assert [each.id for each in notes] == list(range(last - 119, last - 9))


def test_blob_comes_back_whole_and_a_missing_one_is_told(
    notary: RunningNotary, recorder: RemoteRecorder, tmp_path: Path
) -> None:
    blobs, content = RemoteBlobs(recorder.client), random.Random(1).randbytes(2_500_000)
    digest = blobs.put(content)
    assert blobs.get(digest) == content
    source = tmp_path / "source"
    source.write_bytes(content)
    assert blobs.put_file(source) == digest == blobs.put(content)
    assert blobs.get(blobs.put(b"")) == b""
    with pytest.raises(BlobError, match="missing"):
        blobs.get("0" * 64)


def test_upload_that_was_left_half_done_leaves_nothing(fresh_notary: RunningNotary) -> None:
    notary = fresh_notary
    for kill in (False, True):
        client = NotaryClient(notary.socket)
        request = PutBlob(sha256="0" * 64, size=9, offset=0)
        client.ask(request, Done, b"half")
        assert len(list((notary.ledger / "blobs").iterdir())) == 1
        if kill:
            notary.stop(signal.SIGKILL)
            notary.start_again()
        else:
            client.close()
            time.sleep(0.2)
        assert not list((notary.ledger / "blobs").iterdir())


def test_blobs_beyond_the_quota_are_rejected_however_small_they_are() -> None:
    with (
        open_folder() as folder,
        running_notary(folder, RULES + "blob_bytes = 10_000\n") as notary,
        contextlib.closing(NotaryClient(notary.socket)) as client,
    ):
        blobs = RemoteBlobs(client)
        kept = [blobs.put(content) for content in (b"", b"1")]
        with pytest.raises(ForbiddenError, match=r"exceeds the limit of 10,000 bytes of blobs"):
            blobs.put(b"2")
        assert [blobs.get(digest) for digest in kept] == [b"", b"1"]


def test_second_notary_of_a_ledger_is_rejected(fresh_notary: RunningNotary) -> None:
    with (
        pytest.raises(StorageError, match="another notary already serves this ledger"),
        only_notary(fresh_notary.ledger),
    ):
        pass
    with (
        pytest.raises(
            StorageError, match=r"a notary is already listening there|other users could place"
        ),
        listening(fresh_notary.socket),
    ):
        pass


def test_socket_in_a_folder_that_others_can_write_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with (
        pytest.raises(StorageError, match="other users could place their own socket"),
        listening(tmp_path / "s"),
    ):
        pass
    tmp_path.chmod(0o755)
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "s").symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="this is not a socket"), listening(tmp_path / "s"):
        pass
    (tmp_path / "s").unlink()
    with listening(tmp_path / "s") as listener:
        pass
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(tmp_path / "s"))
    stale.close()
    with listening(tmp_path / "s") as listener:  # nobody listened at the old one
        assert listener.getsockname() == str(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_mirror_verifies_and_refuses_less_than_it_has_seen(
    fresh_notary: RunningNotary, tmp_path: Path
) -> None:
    notary = fresh_notary
    recorder = RemoteRecorder(NotaryClient(notary.socket))
    refresh_mirror(recorder, tmp_path)
    stream = uuid4()
    recorder.insert_events(events(stream, *range(1, 200)))
    for at in range(200, 230):
        recorder.insert_events(events(stream, at))
        refresh_mirror(recorder, tmp_path)
    for directory in (tmp_path, notary.ledger):
        report = check_ledger(directory, vkey=notary.vkey)
        assert (report.ok, report.size) == (True, 229), report
    recorder.client.close()
    notary.stop()
    take_all_away(notary)
    notary.start_again()
    with pytest.raises(ConsistencyError, match="now shows 0 entries, but showed 229"):
        refresh_mirror(RemoteRecorder(NotaryClient(notary.socket)), tmp_path)


def take_all_away(notary: RunningNotary) -> None:
    """Take entries and tree heads away, as the machine's owner could."""
    with contextlib.closing(sqlite3.connect(LedgerPaths(notary.ledger).database)) as c:
        c.execute("DELETE FROM entries")
        c.execute("DELETE FROM tree_heads")
        c.commit()
    for suffix in ("-wal", "-shm"):
        assert not Path(f"{LedgerPaths(notary.ledger).database}{suffix}").exists()


def test_cosignature_reaches_mirrors_that_have_the_head_already(
    notary: RunningNotary, recorder: RemoteRecorder, tmp_path: Path
) -> None:
    ids = recorder.insert_events(events(uuid4(), 1))
    note = recorder.tree_head()
    assert note is not None
    recorder.insert_events(events(uuid4(), 1))
    refresh_mirror(recorder, tmp_path)
    text = note.partition("\n\n")[0] + "\n"
    line = sign_cosignature(text, name="witness", key=WITNESS, seconds=1)
    recorder.add_signature_line(ids[-1], line)
    refresh_mirror(recorder, tmp_path)
    with contextlib.closing(sqlite3.connect(LedgerPaths(tmp_path).database)) as c:
        (stored,) = c.execute("SELECT note FROM tree_heads WHERE size = ?", ids[-1:]).fetchone()
    assert stored.startswith(note)
    assert line.strip() in stored
    assert check_ledger(tmp_path, vkey=notary.vkey).ok


def grant(notary: RunningNotary, vkey: str, role: str) -> None:
    """As the notary's own user does, while the notary runs."""
    database, signer = open_ledger(LedgerPaths(notary.ledger), passphrase=None)
    with contextlib.closing(database):
        SignedRecorder(database, signer=signer).grant_key(vkey, role=role)


def test_flood_of_lines_is_rejected_and_honest_cosigners_find_room(
    fresh_notary: RunningNotary,
) -> None:
    client = NotaryClient(fresh_notary.socket)
    recorder = RemoteRecorder(client)
    grant(fresh_notary, cosignature_vkey("granted", public_bytes(GRANTED)), "witness")
    (size,) = recorder.insert_events(events(uuid4(), 1))
    note = recorder.tree_head()
    assert note is not None
    text = note.partition("\n\n")[0] + "\n"

    def add(name: str, key: Ed25519PrivateKey, *, seconds: int = 1, of: str = text) -> None:
        recorder.add_signature_line(size, sign_cosignature(of, name=name, key=key, seconds=seconds))

    for seconds in range(1, 40):
        with pytest.raises(ForbiddenError, match="not by a witness that was granted"):
            add("stranger", STRANGER, seconds=seconds)
        with pytest.raises(ForbiddenError, match="not by a witness that was granted"):
            add("granted", STRANGER, seconds=seconds)
        with pytest.raises(AuthorityError, match="its signature is invalid"):
            add("granted", GRANTED, seconds=seconds, of="another text\n")
        add("witness", WITNESS, seconds=seconds)  # good lines, of which the first says all
    add("granted", GRANTED)
    cosigned = parse_note(recorder.tree_head() or "")
    client.close()
    assert [line.name for line in cosigned.signatures][1:] == ["witness", "granted"]
    assert open_cosignature(cosigned, vkey=WITNESS_VKEY) == 1
    assert check_ledger(fresh_notary.ledger, vkey=fresh_notary.vkey).ok


def test_signed_audit_and_review_are_recorded_through_the_notary(
    fresh_notary: RunningNotary,
) -> None:
    audit = Audit.start(run=str(uuid4()), tree_head="head", config={}, environment={})
    review = Review.of(index=3, entry_hash="ab" * 32, run=str(uuid4()), mark="gold", note="well")
    judge, operator = AuthorKey("judge", JUDGE), AuthorKey("operator", OPERATOR)
    grant(fresh_notary, vkey("judge", public_bytes(JUDGE)), "judge")
    grant(fresh_notary, vkey("operator", public_bytes(OPERATOR)), "operator")
    with LedgerApplication.connect(fresh_notary.socket, REGISTRY) as log:
        log.save(audit, author=judge)
        log.save(review, author=operator)
        with pytest.raises(AuthorityError, match="not in force"):
            log.save(
                Review.of(index=3, entry_hash="ab" * 32, run="r", mark="bad", note=""),
                author=AuthorKey("operator", STRANGER),
            )
    with open_verified(fresh_notary.ledger, vkey=fresh_notary.vkey) as ledger:
        authors = [(e.name, e.author.role) for e in ledger.entries() if e.author]
    assert authors[-2:] == [("audit.started", "judge"), ("decision.reviewed", "operator")]


def test_mirror_over_another_ledger_is_rejected(
    notary: RunningNotary, recorder: RemoteRecorder, tmp_path: Path
) -> None:
    (tmp_path / "ledger.vkey").write_text("proctor.local/other+00000000+AAAA\n")
    with pytest.raises(KeyFileError, match="has a different ledger"):
        refresh_mirror(recorder, tmp_path)
    begun = tmp_path / "begun"
    (begun / "keys").mkdir(parents=True)
    (begun / "keys" / "ledger.pem").write_text("")
    with pytest.raises(KeyFileError, match="a different ledger is being started there"):
        refresh_mirror(recorder, begun)
