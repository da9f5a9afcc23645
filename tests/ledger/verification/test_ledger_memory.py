"""A verifier that remembers: nothing behind or beside the newest tree head is taken again."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from signed_notes import sign_tree_head
from stores import copy_ledger, database_path, exchange_tables, tables_of

from ledger.entries import AuthorKey
from ledger.errors import (
    ConsistencyError,
    ContradictionError,
    MemoryFileError,
    StorageError,
    VerificationError,
)
from ledger.handover.proof_files import write_proofs
from ledger.keys import load_key
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.memory import Memory, Remembered
from ledger.verification.reader import (
    VerificationReport,
    check_ledger,
    open_verified,
    read_tree_head,
    verify_since,
)
from ledger.verification.verified_notes import parse_tree_head

Check = Callable[[Path, Memory], VerificationReport]


def whole(directory: Path, memory: Memory) -> VerificationReport:
    return check_ledger(directory, memory=memory)


def news(directory: Path, memory: Memory) -> VerificationReport:
    return check_ledger(directory, memory=memory, new=True)


both = pytest.mark.parametrize("check", [whole, news])


@contextmanager
def recording(directory: Path) -> Iterator[SignedRecorder]:
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        yield SignedRecorder(database, signer=signer)


def append(directory: Path, *, count: int, body: bytes = b"body", first: int = 0) -> None:
    with recording(directory) as recorder:
        if not first:
            first = (recorder.max_notification_id() or 0) + 1
        for version in range(first, first + count):
            recorder.insert_events([StoredEvent(UUID(int=1), version, "test.event", body)])


def vkey_of(directory: Path) -> str:
    return LedgerPaths(directory).vkey.read_text().strip()


def origin_of(directory: Path) -> str:
    return vkey_of(directory).partition("+")[0]


def copied(source: Path, target: Path) -> Path:
    return copy_ledger(source, target)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    directory = tmp_path / "ledger"
    append(directory, count=5)
    return directory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "memory")


@both
def test_ledger_that_grows_is_remembered_at_its_newest_head(
    check: Check, ledger: Path, memory: Memory
) -> None:
    assert memory.recall(vkey_of(ledger)) is None
    for size in (5, 5, 12, 13):
        append(ledger, count=size - check_ledger(ledger).size)
        report = check(ledger, memory)
        assert (report.ok, report.size) == (True, size)
        remembered = memory.recall(vkey_of(ledger))
        assert remembered is not None
        assert report.head is not None
        assert (remembered.note, remembered.state.size) == (report.head.note, size)


def test_only_what_is_new_is_read_again(ledger: Path, memory: Memory) -> None:
    assert news(ledger, memory).unread == 0
    append(ledger, count=3)
    report = news(ledger, memory)
    assert (report.ok, report.size, report.unread) == (True, 8, 5)
    with tables_of(ledger) as c:
        c.execute("UPDATE entries SET entry = ? WHERE idx = 2", (b"\0",))
    append(ledger, count=1)
    assert news(ledger, memory).ok  # what was verified then is not looked at
    report = whole(ledger, memory)
    assert (report.ok, report.index) == (False, 2)


@both
def test_ledger_behind_the_remembered_head_is_rejected(
    check: Check, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    earlier = copied(ledger, tmp_path / "earlier")
    append(ledger, count=2)
    kept = whole(ledger, memory).head
    report = check(earlier, memory)
    assert check_ledger(earlier).ok
    assert (report.ok, report.error_type, report.index) == (False, "ContradictionError", 5)
    assert "covers 7 entries, but the ledger has only 5: it was truncated" in str(report.error)
    assert kept is not None
    assert report.contradiction is not None
    assert report.contradiction[0] == kept.note
    assert report.contradiction[1].split("\n")[1] == "5"
    assert check(ledger, memory).ok


@both
def test_ledger_cut_off_with_a_change_of_its_key_is_rejected(
    check: Check, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    earlier = copied(ledger, tmp_path / "earlier")
    with recording(ledger) as recorder:
        recorder.rotate_key()
    kept = whole(ledger, memory).head
    assert kept is not None
    report = check(earlier, memory)
    assert (report.ok, report.error_type, report.index) == (False, "ContradictionError", 5)
    assert report.contradiction is not None
    assert report.contradiction[0] == kept.note
    # Who kept no more than the note cannot tell whose key has signed it.
    report = check_ledger(earlier, kept_head=kept.note)
    assert (report.ok, report.error_type) == (False, "SignatureError")
    assert "not from this ledger, or it is signed by a key that was truncated" in str(report.error)


@both
@pytest.mark.parametrize("size", [7, 9])
def test_ledger_beside_the_remembered_head_is_rejected(
    check: Check, size: int, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    fork = copied(ledger, tmp_path / "fork")
    append(ledger, count=2)
    append(fork, count=size - 5, body=b"another")
    assert whole(ledger, memory).ok
    report = check(fork, memory)
    assert check_ledger(fork).ok
    assert (report.ok, report.error_type) == (False, "ContradictionError")
    assert "the first 7 entries do not match the kept tree head" in str(report.error)
    assert report.contradiction is not None
    assert check(ledger, memory).ok


@both
def test_emptied_ledger_is_rejected(check: Check, ledger: Path, memory: Memory) -> None:
    assert whole(ledger, memory).ok
    with tables_of(ledger) as c:
        c.execute("DELETE FROM entries")
        c.execute("DELETE FROM tree_heads")
    report = check(ledger, memory)
    assert (report.ok, report.error_type) == (False, "ContradictionError")
    assert report.contradiction is None  # there is no other note to show


@both
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET entry = substr(entry, 2) WHERE idx = 6",
        "UPDATE entries SET name = 'test.other' WHERE idx = 6",
        "UPDATE entries SET stream_version = 70 WHERE idx = 6",
        "DELETE FROM entries WHERE idx = 6",
        "DELETE FROM entries WHERE idx = 7",
        "DELETE FROM tree_heads WHERE size = 8",
        "UPDATE tree_heads SET note = replace(note, '8', '9') WHERE size = 8",
        "UPDATE tree_heads SET edge = substr(edge, 2) WHERE size = 8",
        "UPDATE tree_heads SET note = 'no note' WHERE size = 8",
        "UPDATE meta SET value = 'another' WHERE key = 'vkey'",
    ],
)
@pytest.mark.sampled(3)
def test_tampering_after_the_remembered_head_is_rejected(
    check: Check, statement: str, ledger: Path, memory: Memory
) -> None:
    assert whole(ledger, memory).ok
    append(ledger, count=3)
    honest = copied(ledger, ledger.with_name("honest"))
    with tables_of(ledger) as c:
        c.execute(statement)
    report = check(ledger, memory)
    assert not report.ok
    assert report.error == check_ledger(ledger).error
    assert check(honest, memory).ok


@both
def test_version_that_skips_after_the_remembered_head_is_rejected(
    check: Check, ledger: Path, memory: Memory
) -> None:
    assert whole(ledger, memory).ok
    with tables_of(ledger) as c:
        c.execute("UPDATE entries SET stream_version = 8 WHERE idx = 4")
    append(ledger, count=1, first=9)  # the recorder believes its columns
    with tables_of(ledger) as c:
        c.execute("UPDATE entries SET stream_version = 5 WHERE idx = 4")
    report = check(ledger, memory)
    assert (report.ok, report.index) == (False, 5)
    assert "is not the next version of its stream" in str(report.error)


@both
def test_ledger_under_a_remembered_name_with_another_key_is_rejected(
    check: Check, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    assert whole(ledger, memory).ok
    other = tmp_path / "other"
    append(other, count=5)
    assert check(other, memory).ok  # another origin is another ledger
    paths = LedgerPaths(other)
    impostor = vkey(origin_of(ledger), public_bytes(load_key(paths.key, passphrase=None)))
    paths.vkey.write_text(impostor)
    report = check(other, memory)
    assert (report.ok, report.error_type) == (False, "SignatureError")
    assert "public key is not the one given" in str(report.error)


def test_memory_of_one_ledger_under_the_name_of_another_is_rejected(
    ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    append(other, count=5)
    assert whole(ledger, memory).ok
    memory.path(vkey_of(ledger)).rename(memory.path(vkey_of(other)))
    with pytest.raises(MemoryFileError, match="it is for a different ledger"):
        whole(other, memory)


def test_memory_never_goes_backwards(ledger: Path, memory: Memory, tmp_path: Path) -> None:
    earlier = copied(ledger, tmp_path / "earlier")
    assert whole(earlier, memory).ok
    old = memory.recall(vkey_of(ledger))
    append(ledger, count=1)
    assert whole(ledger, memory).ok
    new = memory.recall(vkey_of(ledger))
    assert old is not None
    assert new is not None
    assert not memory.keep(old, after=None)
    assert not memory.keep(new, after=old)  # somebody was faster: to be verified again
    assert memory.keep(old, after=new)
    assert memory.recall(vkey_of(ledger)) == new


@pytest.mark.parametrize(
    "spoil",
    [
        lambda fields: None,
        lambda fields: [],
        lambda fields: {},
        lambda fields: {**fields, "more": 1},
        lambda fields: {**fields, "format": "ledger/memory/v3"},
        lambda fields: {**fields, "time_ns": -1},
        lambda fields: {**fields, "time_ns": True},
        lambda fields: {**fields, "last_hash": "AA=="},
        lambda fields: {**fields, "last_hash": fields["edge"][0]},
        lambda fields: {**fields, "edge": fields["edge"][:1]},
        lambda fields: {**fields, "edge": fields["edge"][::-1]},
        lambda fields: {**fields, "edge": [1]},
        lambda fields: {**fields, "authority": ["AA=="]},
        lambda fields: {**fields, "note": fields["note"].replace("\n5\n", "\n6\n")},
        lambda fields: {**fields, "note": "no note"},
        lambda fields: {**fields, "vkey": "no key"},
        lambda fields: {**fields, "vkey": "a\ud800"},
    ],
)
@both
@pytest.mark.sampled(3)
def test_damaged_memory_is_rejected(
    check: Check, spoil: Callable[[object], object], ledger: Path, memory: Memory
) -> None:
    assert check(ledger, memory).ok
    path = memory.path(vkey_of(ledger))
    honest = path.read_text()
    path.write_text(json.dumps(spoil(json.loads(honest))))
    with pytest.raises(MemoryFileError, match="the remembered tree head cannot be used"):
        check(ledger, memory)
    for text in ("", "{", "[" * 100_000, honest[:-5], "\ufffd"):
        path.write_text(text)
        with pytest.raises(MemoryFileError, match="or remove it to trust the ledger"):
            check(ledger, memory)
    path.write_text(honest)
    assert check(ledger, memory).ok


def test_remembered_ledger_is_open_to_its_owner_only(ledger: Path, memory: Memory) -> None:
    assert whole(ledger, memory).ok
    assert memory.folder.stat().st_mode & 0o077 == 0
    kept = sorted(path.suffix for path in memory.folder.iterdir())
    assert kept[:4] == ["", "", ".json", ".place"]
    assert set(kept[4:]) <= {".place"}  # a ledger on a server has two: the folder and the schema


def test_wrong_edge_is_not_kept(ledger: Path, memory: Memory) -> None:
    assert whole(ledger, memory).ok
    good = memory.recall(vkey_of(ledger))
    assert good is not None
    bad = Remembered.of(
        vkey=good.vkey, note=good.note, state=replace(good.state, edge=good.state.edge[::-1])
    )
    with pytest.raises(VerificationError, match="the tree's edge is not that of the tree head"):
        memory.keep(bad, after=good)


def test_keys_that_were_read_before_stand_for_what_is_new(ledger: Path, memory: Memory) -> None:
    operator = AuthorKey("operator", Ed25519PrivateKey.generate())
    name = origin_of(ledger)
    with recording(ledger) as recorder:
        recorder.grant_key(vkey(name, public_bytes(operator.key)), role="operator")
        recorder.rotate_key()
    assert whole(ledger, memory).ok
    remembered = memory.recall(vkey_of(ledger))
    assert remembered is not None
    assert len(remembered.state.authority) == 2
    with recording(ledger) as recorder:
        recorder.insert_events([StoredEvent(UUID(int=2), 1, "test.event", b"")], author=operator)
        recorder.rotate_key()
    report = news(ledger, memory)
    assert (report.ok, report.size, report.unread) == (True, 9, 7)
    assert report.authority is not None
    assert len(report.authority.rotations) == 2


def test_kept_heads_are_signed_by_the_key_of_their_size(ledger: Path) -> None:
    notes = [read_tree_head(ledger)]
    with recording(ledger) as recorder:
        for version in (6, 7):
            recorder.rotate_key()
            notes.append(recorder.tree_head())
            recorder.insert_events([StoredEvent(UUID(int=1), version, "test.event", b"")])
            notes.append(recorder.tree_head())
    for note in notes:
        assert note is not None
        assert check_ledger(ledger, kept_head=note).ok
    head = parse_tree_head(notes[0] or "")
    late = load_key(LedgerPaths(ledger).key, passphrase=None)  # not yet in force at this size
    forged = sign_tree_head(origin=head.origin, size=head.size, root=head.root, key=late)
    report = check_ledger(ledger, kept_head=forged)
    assert (report.ok, report.error_type) == (False, "SignatureError")
    assert "the kept tree head is not from this ledger" in str(report.error)


def test_kept_head_of_a_history_before_a_change_of_the_key_is_a_contradiction(
    ledger: Path, tmp_path: Path
) -> None:
    fork = copied(ledger, tmp_path / "fork")
    append(fork, count=2, body=b"another")  # signed by the first key
    with recording(ledger) as recorder:
        recorder.rotate_key()
    for count in (0, 5):  # the kept head covers more than there is, then less
        append(ledger, count=count, first=6)
        report = check_ledger(ledger, kept_head=read_tree_head(fork))
        assert (report.ok, report.error_type) == (False, "ContradictionError")
        assert report.contradiction == (read_tree_head(fork), read_tree_head(ledger))


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: {**fields, "time_ns": fields["time_ns"] + 1},
        lambda fields: {**fields, "time_ns": 0},
        lambda fields: {**fields, "authority": fields["authority"][:-1]},
        lambda fields: {**fields, "authority": []},
        lambda fields: {**fields, "mac": None},
        lambda fields: {**fields, "mac": "0" * 64},
        lambda fields: {key: value for key, value in fields.items() if key != "mac"},
    ],
)
@both
def test_memory_that_somebody_without_its_key_has_edited_is_rejected(
    check: Check,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    ledger: Path,
    memory: Memory,
) -> None:
    operator = AuthorKey("operator", Ed25519PrivateKey.generate())
    name = origin_of(ledger)
    with recording(ledger) as recorder:
        recorder.grant_key(vkey(name, public_bytes(operator.key)), role="operator")
    assert check(ledger, memory).ok
    path = memory.path(vkey_of(ledger))
    honest = path.read_text()
    path.write_text(json.dumps(change(json.loads(honest))))
    with pytest.raises(MemoryFileError, match="changed by another user or program"):
        check(ledger, memory)
    path.write_text(honest)
    assert check(ledger, memory).ok


def test_memory_without_a_code_of_its_own_is_rejected(ledger: Path, memory: Memory) -> None:
    assert whole(ledger, memory).ok
    path = memory.path(vkey_of(ledger))
    path.write_text(path.read_text().replace("memory/v2", "memory/v1"))  # which had none
    with pytest.raises(MemoryFileError, match=r"v1.*or remove it"):
        whole(ledger, memory)


def test_memory_under_the_name_of_an_earlier_version_is_not_passed_over(
    ledger: Path, memory: Memory
) -> None:
    assert whole(ledger, memory).ok
    vkey = vkey_of(ledger)
    memory.path(vkey).rename(memory.path(vkey.partition("+")[0]))
    for check in (whole, news):
        with pytest.raises(MemoryFileError, match="earlier version"):
            check(ledger, memory)
    memory.forget(vkey)
    assert whole(ledger, memory).ok


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_key_that_others_can_read_is_rejected(ledger: Path, memory: Memory, mode: int) -> None:
    assert whole(ledger, memory).ok
    (memory.folder / "key").chmod(mode)
    with pytest.raises(MemoryFileError, match="other users can read it"):
        whole(ledger, memory)


def change_body(directory: Path, index: int) -> None:
    """Change a letter of an entry, past SQLite's own checks."""
    with tables_of(directory) as c:
        (entry,) = c.execute("SELECT entry FROM entries WHERE idx = ?", (index,)).fetchone()
        changed = entry.replace(b"body", b"lies")
        assert changed != entry
        c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (changed, index))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of 1,500 entries, in batches of 100."""
    directory = tmp_path_factory.mktemp("long") / "ledger"
    append_batches(directory, first=1, last=1_500)
    return directory


def append_batches(directory: Path, *, first: int, last: int) -> None:
    with recording(directory) as recorder:
        for start in range(first, last + 1, 100):
            recorder.insert_events(
                [
                    StoredEvent(UUID(int=1), version, "test.event", b"body")
                    for version in range(start, min(start + 100, last + 1))
                ]
            )


def test_ledger_is_opened_by_what_is_new_and_reads_the_same(
    long: Path, memory: Memory, tmp_path: Path
) -> None:
    ledger = copied(long, tmp_path / "copy")
    for size in (1_500, 1_500, 1_501, 1_520, 1_900, 2_700):
        append_batches(ledger, first=check_ledger(ledger).size + 1, last=size)
        with open_verified(ledger) as whole, open_verified(ledger, memory=memory) as continued:
            for start in (0, 511, 1_024, 1_499, size - 1, size):
                found = list(continued.entries(start=start))
                assert found == list(whole.entries(start=start))
            assert (continued.head, continued.state) == (whole.head, whole.state)
            assert continued.authority.keys == whole.authority.keys
    remembered = memory.recall(vkey_of(ledger))
    assert remembered is not None
    assert (
        0 < len(remembered.marks) <= 2 * 2_700 / 512 + 1
    )  # those that small additions made are joined


@pytest.mark.parametrize("state", ["known", "cut off", "of another ledger", "unknown"])
def test_proofs_are_those_of_a_walk_over_all_leaves(
    state: str, long: Path, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, walks = copied(long, tmp_path / "copy"), list[str]()

    def note(walk: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        walks.append("over all entries")
        return walk()

    for size in (1_500, 1_537, 2_700):
        append_batches(ledger, first=check_ledger(ledger).size + 1, last=size)
        with open_verified(ledger, memory=memory) as opened:
            assert len(opened.blocks) == size // 512
    kept = memory.path(vkey_of(ledger)).with_suffix(".blocks")
    packed = kept.read_bytes()
    changed = {"cut off": packed[:-1], "of another ledger": bytes(len(packed)), "unknown": b""}
    kept.write_bytes(changed.get(state, packed))
    for indexes in ([0], [511, 512, 2_699], [2_560], [700, 701, 1_900]):
        with open_verified(ledger) as whole, open_verified(ledger, memory=memory) as continued:
            due = write_proofs(whole, indexes)
            monkeypatch.setattr(continued, "raw_entries", partial(note, continued.raw_entries))
            assert write_proofs(continued, indexes) == due
    assert (walks == []) == (state == "known")
    check_ledger(ledger, memory=memory)  # of all of it, which heals
    assert kept.read_bytes() == packed


def test_changed_entry_is_rejected_when_it_is_read_though_it_was_verified_before(
    long: Path, memory: Memory, tmp_path: Path
) -> None:
    ledger = copied(long, tmp_path / "copy")
    assert whole(ledger, memory).ok
    change_body(ledger, 600)
    with open_verified(ledger, memory=memory) as opened:
        assert len(list(opened.entries(start=1_024))) == 476  # the honest ones can be read
        read = opened.entries()
        for _ in range(512):
            next(read)
        with pytest.raises(ConsistencyError, match="entries 512 to 1023 were changed"):
            next(read)


def flipped(content: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 3))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def overwritten(content: bytearray, rng: Random) -> None:
    """Put a stretch of the file in the place of another one: bytes that make sense."""
    length = rng.choice((4, 40, 400, 4_096))
    source, target = (rng.randrange(len(content) - length) for _ in range(2))
    if length == 4_096:
        source, target = source & -4_096, target & -4_096
    content[target : target + length] = content[source : source + length]


def cut(content: bytearray, rng: Random) -> None:
    del content[rng.randrange(len(content) // 4_096) * 4_096 :]


@pytest.mark.parametrize("rounds", [40, pytest.param(4_000, marks=pytest.mark.slow)])
def test_random_change_of_the_file_is_never_read_as_verified(
    long: Path, memory: Memory, tmp_path: Path, rounds: int
) -> None:
    """Whatever is handed out is an honest entry at its place, and no entry is left out."""
    ledger = copied(long, tmp_path / "copy")
    assert whole(ledger, memory).ok
    append_batches(ledger, first=1_501, last=1_600)  # and this is new
    with open_verified(ledger) as opened:
        honest = list(opened.entries())
    path, rng, refused = database_path(ledger), Random(rounds), 0
    content = path.read_bytes()
    for number in range(rounds):
        changed = bytearray(content)
        rng.choice((cut, flipped, flipped, overwritten, overwritten))(changed, rng)
        path.write_bytes(changed)
        kept = Memory(Path(shutil.copytree(memory.folder, tmp_path / str(number))))
        first, some = rng.randrange(1_600), sorted({rng.randrange(1_600) for _ in range(3)})
        try:
            with open_verified(ledger, memory=kept) as opened:
                if number % 3 == 0:
                    assert list(opened.entries(start=first)) == honest[first:]
                elif number % 3 == 1:
                    assert list(opened.chosen(some)) == [honest[at] for at in some]
                else:
                    assert list(opened.select(streams=[UUID(int=1)])) == honest
        except (StorageError, VerificationError):
            refused += 1
        shutil.rmtree(kept.folder)
    assert rounds // 10 < refused < rounds - rounds // 10


def test_whole_ledger_is_verified_where_no_marks_are_remembered(
    ledger: Path, memory: Memory
) -> None:
    report = whole(ledger, memory)
    assert report.head is not None
    assert report.state is not None
    memory.path(vkey_of(ledger)).unlink()
    bare = Remembered.of(vkey=vkey_of(ledger), note=report.head.note, state=report.state)
    assert memory.keep(bare, after=None)
    with open_verified(ledger, memory=memory) as opened:
        assert (opened.unread, len(list(opened.entries()))) == (0, 5)
    with open_verified(ledger, memory=memory) as opened:
        assert opened.unread == 5


@pytest.mark.parametrize("key", ["another", "the same"])
def test_exchanged_ledger_of_the_same_size_is_rejected_without_a_new_entry(
    ledger: Path, memory: Memory, tmp_path: Path, key: str
) -> None:
    other = copied(ledger, tmp_path / "other") if key == "the same" else tmp_path / "other"
    for each in (ledger, other):
        append(
            each, count=7 - check_ledger(each).size if each.exists() else 7, body=each.name.encode()
        )
    with open_verified(ledger, memory=memory) as opened:
        state, vkey = opened.state, opened.vkey
    assert verify_since(ledger, vkey=vkey, state=state) == state
    assert check_ledger(other).size == state.size
    exchange_tables(other, ledger)
    shutil.copyfile(LedgerPaths(other).vkey, LedgerPaths(ledger).vkey)
    with pytest.raises(ConsistencyError, match="proctor verify"):
        verify_since(ledger, vkey=vkey, state=state)
    with pytest.raises(VerificationError), open_verified(ledger, memory=memory, vkey=vkey):
        pass
    assert not check_ledger(ledger, memory=memory, vkey=vkey, new=True).ok


@both
def test_another_ledger_in_a_known_place_is_rejected(
    check: Check, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    """A place is a folder, by any name of it, and where a server has the ledger, that server."""
    other, places = tmp_path / "other", [ledger]
    append(other, count=5)
    link = tmp_path / "link"
    link.symlink_to(ledger)
    assert check(ledger, memory).ok
    assert check(link, memory).ok
    paths = LedgerPaths(ledger)
    if paths.server.exists():
        from ledger.postgres_store import ServerSettings  # noqa: PLC0415 - psycopg is an extra

        theirs = ServerSettings.of_ledger(LedgerPaths(other).server, given=None).schema
        with tables_of(ledger) as c:
            for table in ("meta", "entries", "tree_heads"):
                c.execute(f"DELETE FROM {table}")
                c.execute(f'INSERT INTO {table} SELECT * FROM "{theirs}".{table}')
        joined = tmp_path / "joined"  # another home of the same server
        joined.mkdir()
        shutil.copyfile(paths.server, LedgerPaths(joined).server)
        places.append(joined)
    else:
        exchange_tables(other, ledger)
        places += [link]
    for place in places:
        shutil.copyfile(LedgerPaths(other).vkey, LedgerPaths(place).vkey)
        report = check(place, memory)
        assert (report.ok, report.error_type) == (False, "ExchangedError"), place
        assert vkey_of(other) in str(report.error)
    assert check_ledger(ledger).ok  # it is valid in itself
    assert check(copied(other, tmp_path / "elsewhere"), memory).ok  # and no place is its own


@pytest.mark.parametrize("spoil", ["", "{}", "change the key", "another place"])
@both
def test_damaged_memory_of_a_place_is_rejected(
    check: Check, spoil: str, ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    append(other, count=1)
    assert check(ledger, memory).ok
    before = set(memory.folder.glob("*.place"))
    assert check(other, memory).ok
    theirs = sorted(set(memory.folder.glob("*.place")) - before)[0]
    for path in before:
        text = {
            "change the key": path.read_text().replace(vkey_of(ledger), vkey_of(other)),
            "another place": theirs.read_text(),
        }.get(spoil, spoil)
        path.write_text(text)
    with pytest.raises(MemoryFileError, match="the remembered key of a ledger cannot be used"):
        check(ledger, memory)


def test_ledger_behind_or_beside_what_is_remembered_is_not_opened(
    ledger: Path, memory: Memory, tmp_path: Path
) -> None:
    earlier = copied(ledger, tmp_path / "earlier")
    append(ledger, count=2)
    with open_verified(ledger, memory=memory):
        pass
    with pytest.raises(ContradictionError), open_verified(earlier, memory=memory):
        pass
    append(earlier, count=2, body=b"another")
    with pytest.raises(ContradictionError), open_verified(earlier, memory=memory):
        pass
    with open_verified(ledger, memory=memory) as opened:
        assert opened.size == 7
