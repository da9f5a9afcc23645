"""A hostile user beside a notary gets nowhere, and an honest one loses nothing.

Every process here has a user id of its own: the notary, the honest, the hostile.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import hostile
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from notaries import (
    HONEST,
    HOSTILE,
    JUDGE,
    NOTARY,
    READER,
    RunningNotary,
    append_honestly,
    call_as,
    calling_as,
    needs_other_users,
    open_folder,
    running_notary,
)

from ledger.notes import public_bytes, vkey
from ledger.verification.reader import check_ledger, open_verified

RULES = f"""
[[user]]
user = {HONEST}
append = ["run.*"]

[[user]]
user = {HOSTILE}
append = ["run.*"]
blob_bytes = 3_000_000

[[user]]
user = {JUDGE}
append = ["audit.*"]
roles = ["judge"]

[[user]]
user = {READER}
"""
GONE = {"FileNotFoundError", "PermissionError"}  # hidden, or closed


@pytest.fixture(scope="module")
def notary() -> Iterator[RunningNotary]:
    """A notary for all attacks after which it goes on as before."""
    needs_other_users()
    with open_folder() as folder, running_notary(folder, RULES) as notary:
        yield notary


@pytest.fixture
def fresh_notary() -> Iterator[RunningNotary]:
    """A notary for one test alone."""
    needs_other_users()
    with open_folder() as folder, running_notary(folder, RULES) as notary:
        yield notary


def check_honest_work(notary: RunningNotary) -> None:
    """The control: beside the attack an honest user appends, and the ledger holds."""
    done = call_as(HONEST, append_honestly, notary.socket, 3, 2)
    assert len(done["acknowledged"]) == 6
    assert_complete(notary, done)


def assert_complete(notary: RunningNotary, done: dict[str, Any]) -> None:
    with open_verified(notary.ledger, vkey=notary.vkey) as ledger:
        found = [each for each in ledger.entries() if each.stream_id == UUID(done["stream"])]
    assert [each.index + 1 for each in found] == done["acknowledged"]
    assert [each.stream_version for each in found] == list(range(1, len(found) + 1))


def test_reading_the_key_or_any_other_file_is_rejected(notary: RunningNotary) -> None:
    check_honest_work(notary)  # so that there is something to be read
    assert set(call_as(HOSTILE, hostile.read_files, notary.home).values()) <= GONE
    assert call_as(NOTARY, hostile.read_files, notary.home)["ledger/keys/ledger.pem"] == "done"


def test_writing_deleting_and_linking_files_is_rejected(notary: RunningNotary) -> None:
    found = call_as(HOSTILE, hostile.change_files, notary.home, notary.socket)
    assert len(found) == 32
    assert set(found.values()) <= GONE, found
    check_honest_work(notary)


def test_entering_the_notarys_process_is_rejected(notary: RunningNotary) -> None:
    found = call_as(HOSTILE, hostile.enter_process, notary.process.pid)
    assert set(found.values()) <= {"PermissionError", "OSError"}, found
    assert set(call_as(HOSTILE, hostile.enter_own_process).values()) == {"done"}
    check_honest_work(notary)


def test_memory_of_the_notary_is_closed_to_its_own_user_too(fresh_notary: RunningNotary) -> None:
    found = call_as(NOTARY, hostile.enter_process, fresh_notary.process.pid)
    for name in ("kill", "stop", "limit"):  # what a user started, they may stop
        del found[name]
    assert set(found.values()) <= {"PermissionError", "OSError"}, found


def test_nothing_of_root_is_left_in_the_notary(notary: RunningNotary) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{notary.process.pid}/status").read_text().splitlines()
    )
    assert status["Uid"].split() == [str(NOTARY)] * 4
    assert status["Gid"].split() == [str(NOTARY)] * 4
    assert not status["Groups"].split()
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize(
    "attempt",
    [
        hostile.send_a_path_for_a_hash,
        hostile.append_a_name_that_the_rules_leave_out,
        hostile.append_to_the_authority_stream,
        hostile.choose_index_and_time,
        hostile.act_as_judge,
        hostile.cosign,
        hostile.keep_more_blobs_than_allowed,
        hostile.send_another_blob_than_announced,
    ],
    ids=lambda attempt: attempt.__name__,
)
@pytest.mark.sampled(3)
def test_request_beyond_the_rules_is_rejected(notary: RunningNotary, attempt: Any) -> None:
    error, message = call_as(HOSTILE, attempt, notary.socket)
    expected = {
        "send_a_path_for_a_hash": ("EncodingError", "is not a SHA-256"),
        "append_a_name_that_the_rules_leave_out": (
            "ForbiddenError",
            "may not append 'audit.scored",
        ),
        "append_to_the_authority_stream": ("ForbiddenError", "only the notary's own user may"),
        "choose_index_and_time": ("MalformedError", "are set by the notary"),
        "act_as_judge": ("ForbiddenError", "may not act as 'judge'"),
        "cosign": ("ForbiddenError", "may not add lines"),
        "keep_more_blobs_than_allowed": (
            "ForbiddenError",
            "exceeds the limit of 3,000,000 bytes of blobs",
        ),
        "send_another_blob_than_announced": ("BlobError", "send it again"),
    }[attempt.__name__]
    assert (error, expected[1] in message) == (expected[0], True), message
    check_honest_work(notary)


def test_stream_of_another_user_is_rejected_even_after_a_restart(
    fresh_notary: RunningNotary,
) -> None:
    notary = fresh_notary
    done = call_as(HONEST, append_honestly, notary.socket, 1, 1)
    for _ in range(2):
        error, message = call_as(HOSTILE, hostile.append_to, notary.socket, done["stream"], 2)
        assert error == "ForbiddenError"
        assert "was not started by user" in message
        assert notary.stop() == 0
        notary.start_again()
    assert call_as(HONEST, hostile.append_to, notary.socket, done["stream"], 2) == ["done", ""]


def test_replayed_frame_is_rejected(
    fresh_notary: RunningNotary,
) -> None:
    notary = fresh_notary
    first = call_as(HONEST, hostile.replay, notary.socket, "", 1)
    assert first["answers"] == ["done", "ConflictError"]
    stolen = call_as(HOSTILE, hostile.replay, notary.socket, first["frame"], 2)
    assert stolen["answers"] == ["ForbiddenError"] * 2
    assert check_ledger(notary.ledger, vkey=notary.vkey).size == 1


def test_judge_with_another_key_is_rejected_and_with_the_granted_one_is_not(
    fresh_notary: RunningNotary,
) -> None:
    notary = fresh_notary
    granted, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    grant(notary, vkey("judge", public_bytes(granted)), role="judge")  # while the notary runs
    for key, expected in ((other, "AuthorityError"), (granted, "done")):
        answer = call_as(JUDGE, hostile.judge, notary.socket, key.private_bytes_raw().hex())
        assert answer[0] == expected, answer
    assert call_as(NOTARY, hostile.rotate, notary.ledger) != notary.vkey
    check_honest_work(notary)  # and verifies by the first key, which leads to the new one
    assert check_ledger(notary.ledger, vkey=notary.vkey).size == 9


EVERY_FLOOD = "huge full tiny half batches unread connections"


@pytest.mark.parametrize(
    ("kinds", "batches"),
    [
        (EVERY_FLOOD, 5),
        *(
            pytest.param(kinds, 100, marks=pytest.mark.slow)
            for kinds in (EVERY_FLOOD, "batches", "tiny", "full", "unread", "connections")
        ),
    ],
)
def test_flood_by_another_user_costs_an_honest_one_nothing_but_time(
    fresh_notary: RunningNotary, kinds: str, batches: int
) -> None:
    notary = fresh_notary
    alone = call_as(HONEST, append_honestly, notary.socket, batches, 10)["seconds"]
    with ExitStack() as stack:
        floods = [
            stack.enter_context(
                calling_as(HOSTILE, hostile.flood_with_connections, notary.socket)
                if kind == "connections"
                else calling_as(HOSTILE, hostile.flood_with_frames, notary.socket, kind)
            )
            for kind in kinds.split()
        ]
        time.sleep(1)
        done = call_as(HONEST, append_honestly, notary.socket, batches, 10)
        memory = resident_bytes(notary.process.pid)
        assert all(flood.poll() is None for flood in floods)  # they did go on to the end
    assert len(done["acknowledged"]) == 10 * batches
    assert_complete(notary, done)
    assert memory < 500 << 20
    print(f"alone {alone:.1f} s, beside {kinds} {done['seconds']:.1f} s, {memory >> 20} MiB")


def resident_bytes(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) << 10


def grant(notary: RunningNotary, key: str, *, role: str) -> None:
    """Grant a key as the notary's administrator would."""
    call_as(NOTARY, hostile.grant, notary.ledger, key, role)
