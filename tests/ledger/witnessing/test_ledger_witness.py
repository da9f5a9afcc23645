"""A witness answers as the protocol says, and never cosigns two histories."""

import base64
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signed_notes import sign_tree_head
from witness_trees import NAME, ORIGIN, Log, request_of, root_of, submit_at_random

from ledger.errors import ConflictError, KeyFileError, MalformedError, StorageError
from ledger.verification.verified_notes import open_tree_head, parse_note, parse_tree_head
from ledger.witnessing.cosignatures import open_cosignature
from ledger.witnessing.evidence import open_evidence
from ledger.witnessing.rules import Response, parse_request
from ledger.witnessing.store import origin_hash
from ledger.witnessing.witness import MAX_REQUEST, Witness

NOW = 1_800_000_000
HONEST = Log.honest(40)
FORK = HONEST.forked(5)


@contextmanager
def open_witness(folder: Path, clock: Callable[[], int] = lambda: NOW) -> Iterator[Witness]:
    with Witness.open(folder, passphrase=None, clock=clock) as witness:
        yield witness


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("witness") / "state"
    Witness.create(folder, name=NAME, passphrase=None)
    with open_witness(folder) as witness:
        witness.trust(HONEST.vkey)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A witness that trusts the ledger and has cosigned nothing yet."""
    return Path(shutil.copytree(made, tmp_path / "state"))


@pytest.fixture
def witness(folder: Path) -> Iterator[Witness]:
    with open_witness(folder) as witness:
        yield witness


def cosigned_time(answer: Response, note: str, witness: Witness) -> int:
    assert answer.status == 200, answer.body
    assert answer.body.startswith("\u2014 ")
    text = note.rpartition("\n\n")[0]
    return open_cosignature(parse_note(f"{text}\n\n{answer.body}"), vkey=witness.vkey)


def evidence(folder: Path, kind: str) -> list[str]:
    """Return the evidence that was written, each of which holds for anyone who opens it."""
    found = [path.read_text() for path in sorted((folder / "evidence").glob(f"{kind}-*.txt"))]
    assert all(open_evidence(text).kind == kind for text in found)
    return found


def fields(text: str, name: str) -> list[str]:
    return [line.split(" ")[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def note_of(text: str, name: str) -> str:
    (encoded,) = fields(text, name)
    return base64.b64decode(encoded).decode()


def test_witness_cosigns_a_ledger_as_it_grows(witness: Witness) -> None:
    for old, size in ((0, 3), (3, 4), (4, 4), (4, 11), (11, 16), (16, 40)):
        answer = witness.add_checkpoint(HONEST.request(old, size))
        assert cosigned_time(answer, HONEST.head(size), witness) == NOW
        assert answer.content_type == "text/plain; charset=utf-8"


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8).map(sorted))
def test_witness_cosigns_any_honest_growth(made: Path, sizes: list[int]) -> None:
    log = Log(HONEST.leaves, HONEST.key, origin=f"proctor.local/{secrets.token_hex(16)}")
    with open_witness(made) as witness:
        witness.trust(log.vkey)
        for old, size in zip([0, *sizes], sizes, strict=False):
            assert witness.add_checkpoint(log.request(old, size)).status == 200


def test_tree_head_of_no_entries_is_cosigned_and_continued(witness: Witness) -> None:
    assert witness.add_checkpoint(HONEST.request(0, 0)).status == 200
    assert witness.add_checkpoint(HONEST.request(0, 7)).status == 200


def test_monitor_gets_the_latest_head_with_both_signatures(witness: Witness) -> None:
    log = origin_hash(ORIGIN)
    assert witness.checkpoint(log).status == 404
    witness.add_checkpoint(HONEST.request(0, 3))
    other_line = f"\u2014 someone {base64.b64encode(bytes(9)).decode()}\n"
    answer = witness.add_checkpoint(HONEST.request(3, 7) + other_line.encode())
    note = witness.checkpoint(log).body
    assert open_tree_head(note, vkey=HONEST.vkey).size == 7
    assert open_cosignature(parse_note(note), vkey=witness.vkey) == NOW
    assert note == HONEST.head(7) + answer.body  # and nobody else's line
    assert witness.checkpoint(log.upper()).status == 404
    assert witness.checkpoint("../witness.pem").status == 404


def test_what_was_answered_is_remembered_when_the_witness_starts_again(folder: Path) -> None:
    with open_witness(folder) as witness:
        witness.add_checkpoint(HONEST.request(0, 11))
    with open_witness(folder) as witness:
        answer = witness.add_checkpoint(HONEST.request(0, 12))
        assert (answer.status, answer.body) == (409, "11\n")
        assert witness.add_checkpoint(HONEST.request(11, 12)).status == 200


def test_old_size_that_is_not_the_latest_gets_the_latest(witness: Witness) -> None:
    witness.add_checkpoint(HONEST.request(0, 11))
    for old in (0, 10, 12):
        answer = witness.add_checkpoint(HONEST.request(old, 20))
        assert (answer.status, answer.body) == (409, "11\n")
        assert answer.content_type == "text/x.tlog.size"


HEAD = HONEST.head(11)
HASH = bytes(32)


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\xff",
        b"old 0\n",
        b"old 0\n\n",
        request_of("00", [], HEAD),
        request_of("-1", [], HEAD),
        request_of("", [], HEAD),
        request_of("0 ", [], HEAD),
        request_of("\u0660", [], HEAD),
        request_of(2**63, [], HEAD),
        request_of(10**30, [], HEAD),
        request_of(0, [], HEAD).replace(b"old ", b"OLD "),
        request_of(0, [], HEAD).replace(b"old ", b"old  "),
        request_of(0, [], HEAD).replace(b"\n", b"\r\n"),
        request_of(0, [], f"\n{HEAD}"),
        request_of(0, [], HEAD[:-1]),
        request_of(0, [], HEAD.rpartition("\n\n")[0] + "\n"),
        request_of(0, [], HEAD.replace("\n11\n", "\n11\nmore\n")),
        request_of(0, [], HEAD.replace("\n11\n", "\n011\n")),
        request_of(1, [bytes(31)], HEAD),
        request_of(1, [HASH] * 64, HEAD),
        request_of(1, [HASH], HEAD).replace(b"AA=", b"AB="),  # not canonical
        request_of(1, [HASH], HEAD).replace(b"AA=", b"AA"),
        request_of(0, [], HEAD) + b"x" * MAX_REQUEST,
    ],
)
def test_request_against_the_format_is_rejected(witness: Witness, request_: bytes) -> None:
    assert witness.add_checkpoint(request_).status == 400
    assert witness.add_checkpoint(HONEST.request(0, 11)).status == 200


@given(st.binary(max_size=300))
def test_request_of_random_bytes_raises_one_error_or_none(data: bytes) -> None:
    with suppress(MalformedError):
        parse_request(data.decode(errors="replace"))


def test_old_size_above_the_tree_head_is_rejected(witness: Witness) -> None:
    answer = witness.add_checkpoint(request_of(12, [], HEAD))
    assert (answer.status, answer.body) == (
        400,
        "the old size 12 is larger than the tree head's 11\n",
    )


def test_unknown_ledger_is_rejected(witness: Witness) -> None:
    stranger = Log(HONEST.leaves, HONEST.key, origin="proctor.local/stranger")
    assert witness.add_checkpoint(stranger.request(0, 3)).status == 404
    assert witness.add_rotations(stranger.rotation_to(stranger.signed_by(9)).encode()).status == 404


@pytest.mark.parametrize(
    "note",
    [
        HONEST.signed_by(2).head(11),
        HEAD.replace("\n11\n", "\n12\n"),
        HEAD + HEAD.rpartition("\n\n")[2],
        Log(HONEST.leaves, HONEST.key, origin="x").head(11).replace("x\n11", f"{ORIGIN}\n11"),
    ],
    ids=["another key", "changed text", "signed twice", "another name"],
)
def test_tree_head_that_the_ledger_did_not_sign_is_rejected(witness: Witness, note: str) -> None:
    assert witness.add_checkpoint(request_of(0, [], note)).status == 403
    assert witness.add_checkpoint(request_of(0, [], HEAD)).status == 200


def test_proof_that_does_not_verify_is_rejected(witness: Witness) -> None:
    witness.add_checkpoint(HONEST.request(0, 11))
    good = HONEST.proof(11, 20)
    for bad in (
        [],
        good[:-1],
        [*good, HASH],
        good[::-1],
        [HASH, *good[1:]],
        [*good[:-1], HASH],
        HONEST.proof(10, 20),
        [HASH] * 63,
    ):
        answer = witness.add_checkpoint(request_of(11, bad, HONEST.head(20)))
        assert answer.status == 422, answer.body
    assert witness.add_checkpoint(request_of(11, good, HONEST.head(20))).status == 200


@pytest.mark.parametrize(("old", "size"), [(0, 11), (11, 11)])
def test_proof_where_none_belongs_is_rejected(witness: Witness, old: int, size: int) -> None:
    if old:
        witness.add_checkpoint(HONEST.request(0, old))
    answer = witness.add_checkpoint(request_of(old, [HASH], HONEST.head(size)))
    assert (answer.status, answer.body) == (422, "the proof must be empty here\n")


def test_tree_head_of_no_entries_with_a_root_is_rejected(witness: Witness) -> None:
    note = sign_tree_head(origin=ORIGIN, size=0, root=HASH, key=HONEST.key)
    assert witness.add_checkpoint(request_of(0, [], note)).status == 422


def test_fork_of_the_same_size_is_rejected_and_leaves_evidence(
    witness: Witness, folder: Path
) -> None:
    witness.add_checkpoint(HONEST.request(0, 11))
    assert witness.add_checkpoint(FORK.request(11, 11)).status == 422
    (text,) = evidence(folder, "fork")
    assert text.startswith(f"ledger/evidence/v1\nkind fork\nvkey {HONEST.vkey}\n")
    heads = [open_tree_head(note_of(text, name), vkey=HONEST.vkey) for name in ("first", "second")]
    assert [head.root for head in heads] == [root_of(each.leaves[:11]) for each in (HONEST, FORK)]
    assert fields(text, "proof") == []
    assert parse_tree_head(witness.checkpoint(origin_hash(ORIGIN)).body).root == heads[0].root


def test_fork_shown_with_an_old_size_gets_the_latest_and_leaves_evidence(
    witness: Witness, folder: Path
) -> None:
    witness.add_checkpoint(HONEST.request(0, 11))
    assert witness.add_checkpoint(FORK.request(0, 11)).status == 409
    assert len(evidence(folder, "fork")) == 1


def test_fork_that_grew_is_rejected_and_its_proof_is_evidence(
    witness: Witness, folder: Path
) -> None:
    witness.add_checkpoint(HONEST.request(0, 11))
    assert witness.add_checkpoint(FORK.request(11, 20)).status == 422
    (text,) = evidence(folder, "fork")
    assert [base64.b64decode(each) for each in fields(text, "proof")] == FORK.proof(11, 20)
    assert parse_tree_head(note_of(text, "second")).root == root_of(FORK.leaves[:20])


def test_fork_from_a_power_of_two_is_rejected_though_nothing_is_proved(
    witness: Witness, folder: Path
) -> None:
    witness.add_checkpoint(HONEST.request(0, 8))
    assert witness.add_checkpoint(FORK.request(8, 20)).status == 422
    assert evidence(folder, "fork") == []
    assert witness.add_checkpoint(HONEST.request(8, 20)).status == 200


def test_honest_requests_leave_no_evidence(witness: Witness, folder: Path) -> None:
    for old, size in ((0, 3), (0, 5), (3, 5), (5, 5), (5, 40)):
        witness.add_checkpoint(HONEST.request(old, size))
    assert not (folder / "evidence").exists()


def test_rollback_is_rejected_and_leaves_evidence(witness: Witness, folder: Path) -> None:
    witness.add_checkpoint(HONEST.request(0, 20))
    answer = witness.add_checkpoint(HONEST.request(0, 11))
    assert (answer.status, answer.body) == (409, "20\n")
    (text,) = evidence(folder, "rollback")
    assert open_tree_head(note_of(text, "first"), vkey=HONEST.vkey).size == 11
    assert open_tree_head(note_of(text, "second"), vkey=HONEST.vkey).size == 20


def test_evidence_does_not_fill_the_disk_when_old_heads_are_shown_again(
    witness: Witness, folder: Path
) -> None:
    log = Log.honest(130)
    witness.add_checkpoint(log.request(0, 130))
    for size in range(1, 130):
        witness.add_checkpoint(log.request(0, size))
        witness.add_checkpoint(log.request(0, size))
    assert len(evidence(folder, "rollback")) == 100


def test_time_of_cosignatures_does_not_go_back_when_the_clock_does(folder: Path) -> None:
    times = iter((NOW, NOW - 1_000, NOW + 1))
    with open_witness(folder, clock=lambda: next(times)) as witness:
        seen = [
            cosigned_time(witness.add_checkpoint(HONEST.request(a, b)), HONEST.head(b), witness)
            for a, b in ((0, 3), (3, 4), (4, 5))
        ]
    assert seen == [NOW, NOW, NOW + 1]


def test_rotations_are_followed_when_old_and_new_key_signed(witness: Witness, folder: Path) -> None:
    second, third = HONEST.signed_by(2), HONEST.signed_by(3)
    notes = HONEST.rotation_to(second) + second.rotation_to(third)
    witness.add_checkpoint(HONEST.request(0, 5))
    assert witness.add_checkpoint(third.request(5, 9)).status == 403
    assert witness.add_rotations(notes.encode()).status == 200
    assert witness.add_rotations(notes.encode()).status == 200  # known already
    assert witness.add_checkpoint(HONEST.request(5, 9)).status == 403
    assert witness.add_checkpoint(third.request(5, 9)).status == 200
    fork = third.forked(2)
    assert witness.add_checkpoint(fork.request(9, 9)).status == 422
    (text,) = evidence(folder, "fork")
    assert fields(text, "vkey") == [HONEST.vkey]
    assert "".join(base64.b64decode(each).decode() for each in fields(text, "rotation")) == notes


def test_head_by_a_key_that_was_rotated_out_is_rejected_and_shows_nothing(
    witness: Witness, folder: Path
) -> None:
    second = HONEST.signed_by(2)
    witness.add_rotations(HONEST.rotation_to(second).encode())
    witness.add_checkpoint(second.request(0, 20))
    assert witness.add_checkpoint(HONEST.request(0, 30)).status == 403
    assert not (folder / "evidence").exists()
    forged = HONEST.head(11).replace("\n11\n", "\n12\n")
    assert witness.add_checkpoint(request_of(0, [], forged)).status == 403
    for request in (HONEST.request(0, 11), FORK.request(20, 20)):
        answer = witness.add_checkpoint(request)
        assert (answer.status, answer.body) == (
            403,
            "the key that signed this was replaced by a rotation\n",
        )
    assert not (folder / "evidence").exists()
    for honest in (second.request(0, 11), FORK.signed_by(2).request(20, 20)):  # by the key in force
        assert witness.add_checkpoint(honest).status in (409, 422)
    assert len(evidence(folder, "rollback")) == len(evidence(folder, "fork")) == 1


def test_rotation_that_does_not_follow_is_rejected_with_all_others(witness: Witness) -> None:
    second, third = HONEST.signed_by(2), HONEST.signed_by(3)
    good = HONEST.rotation_to(second)
    thief = third.rotation_to(second)
    for bad, status in (
        (thief, 403),
        (second.rotation_to(third), 403),
        (good + second.rotation_to(HONEST), 403),  # a key that was in force once
        (good + HONEST.rotation_to(third), 403),
        (good.replace(second.vkey, third.vkey), 403),
        (good[:-1], 400),
        (good * 2 + "\n", 400),
        ("", 400),
    ):
        assert witness.add_rotations(bad.encode()).status == status
        assert witness.add_checkpoint(second.request(0, 3)).status == 403
    assert witness.add_rotations(good.encode()).status == 200
    assert witness.add_checkpoint(second.request(0, 3)).status == 200


def test_ledger_is_not_trusted_under_a_second_key(witness: Witness) -> None:
    assert witness.trust(f"{HONEST.vkey}\n") == ORIGIN
    with pytest.raises(ConflictError, match="is already registered with a different key"):
        witness.trust(HONEST.signed_by(2).vkey)
    with pytest.raises(MalformedError, match="for Ed25519"):
        witness.trust(witness.vkey)


def test_witness_is_made_once(tmp_path: Path) -> None:
    vkey = Witness.create(tmp_path / "w", name=NAME, passphrase=b"secret")
    assert Witness.create(tmp_path / "w", name=NAME, passphrase=b"secret") == vkey
    assert (tmp_path / "w/witness.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyFileError, match="there is already a witness named"):
        Witness.create(tmp_path / "w", name="other.example", passphrase=b"secret")
    with pytest.raises(KeyFileError, match="needs a passphrase"), open_witness(tmp_path / "w"):
        pass
    with pytest.raises(KeyFileError, match="witness not found"), open_witness(tmp_path):
        pass


def test_witness_without_its_memory_is_refused(folder: Path) -> None:
    (folder / "witness.sqlite").unlink()
    with (
        pytest.raises(StorageError, match="do not restore an old copy"),
        open_witness(folder),
    ):
        pass
    with pytest.raises(StorageError, match="do not restore an old copy"):
        Witness.create(folder, name=NAME, passphrase=None)
    (folder / "witness.sqlite").write_bytes(b"")
    with pytest.raises(StorageError, match="is not a witness database"), open_witness(folder):
        pass


def test_witness_with_another_key_is_refused(folder: Path, tmp_path: Path) -> None:
    Witness.create(tmp_path / "other", name=NAME, passphrase=None)
    shutil.copy(tmp_path / "other/witness.pem", folder / "witness.pem")
    with pytest.raises(KeyFileError, match="this is not the key of"), open_witness(folder):
        pass


def test_of_two_forks_decided_on_at_one_time_one_is_cosigned(folder: Path) -> None:
    deciding = Event()

    def slow_clock() -> int:
        deciding.set()
        time.sleep(0.3)
        return NOW

    with (
        open_witness(folder, clock=slow_clock) as slow,
        open_witness(folder) as quick,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(slow.add_checkpoint, HONEST.request(0, 11))
        assert deciding.wait(10)  # it has read what it knows, and has not written yet
        second = quick.add_checkpoint(FORK.request(0, 11))
        assert first.result().status == 200
        assert (second.status, second.body) == (409, "11\n")
        assert quick.add_checkpoint(HONEST.request(11, 12)).status == 200


def test_of_two_forks_submitted_by_many_processes_one_is_cosigned(folder: Path) -> None:
    context = get_context("spawn")
    fork = HONEST.forked(0)
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        work = [pool.submit(submit_at_random, folder, forked=bool(n % 2), seed=n) for n in range(4)]
        notes = [note for each in work for note in each.result()]
    with open_witness(folder) as witness:
        for note in notes:
            assert open_cosignature(parse_note(note), vkey=witness.vkey)
    heads = {(head.size, head.root) for head in map(parse_tree_head, notes) if head.size}
    roots = {log.leaves[0]: {root_of(log.leaves[:n]) for n in range(41)} for log in (HONEST, fork)}
    owners = {name for name, own in roots.items() if {root for _, root in heads} & own}
    assert heads
    assert len(owners) == 1
