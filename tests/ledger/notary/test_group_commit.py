"""Requests that share a transaction and a tree head are answered as if each came alone."""

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.entries import Author, AuthorKey, encode_event, join_sized
from ledger.errors import LedgerError
from ledger.notary.answers import read_events
from ledger.notary.desk import ClientConnection, Desk
from ledger.notary.fair_queue import FairQueue
from ledger.notary.messages import Frame, Insert, parse_frame
from ledger.notary.rules import User
from ledger.notary.service import Notary
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import check_ledger, open_verified

JUDGE = AuthorKey("judge", Ed25519PrivateKey.from_private_bytes(b"j" * 32))
STRANGER = AuthorKey("judge", Ed25519PrivateKey.from_private_bytes(b"s" * 32))
USERS = (
    User(uid=0, append=("run.*", "audit.*"), roles=("judge",)),
    User(uid=1, append=("run.*",)),
    User(uid=2, append=("run.*",), others=True),
    User(uid=3),
)
STREAMS = [UUID(int=number) for number in range(1, 7)]
Asked = tuple[User, bytes]
Answer = tuple[str, str, int | None, bytes]


@contextmanager
def desk_in(folder: Path) -> Iterator[Desk]:
    with closing(Desk(LedgerPaths(folder), passphrase=None)) as desk:
        yield desk


def begin(folder: Path, copy: Path) -> str:
    """Begin two ledgers with one key and origin, in which a judge's key is in force."""
    database, signer = open_ledger(LedgerPaths(folder), passphrase=None)
    with closing(database):
        judge = vkey("judge", public_bytes(JUDGE.key))
        SignedRecorder(database, signer=signer).grant_key(judge, role="judge")
        origin = database.meta("origin")
    copy.mkdir()
    for path in (*folder.rglob("*"),):
        if path.is_dir():
            (copy / path.relative_to(folder)).mkdir()
        else:
            (copy / path.relative_to(folder)).write_bytes(path.read_bytes())
            (copy / path.relative_to(folder)).chmod(0o600)
    return origin


def event(stream: UUID, version: int, name: str = "run.event", **given: object) -> bytes:
    body = given.get("body", b"body")
    author = given.get("author")
    assert isinstance(body, bytes)
    assert author is None or isinstance(author, Author)
    return encode_event((stream.bytes, version, name, body, author))


def signed(key: AuthorKey, origin: str, stream: UUID, version: int) -> bytes:
    name, body = "audit.event", b"verdict"
    author = key.author(
        origin=origin, stream_id=stream, stream_version=version, name=name, body=body
    )
    return event(stream, version, name, body=body, author=author)


class Producers:
    """Makes requests of every kind: most are right, if all before them were."""

    def __init__(self, rng: random.Random, origin: str) -> None:
        self._rng, self._origin = rng, origin
        self._next = dict.fromkeys(STREAMS, 1)
        self._sent: list[Asked] = []

    def ask(self) -> Asked:
        rng, stream = self._rng, self._rng.choice(STREAMS)
        version = self._next[stream]
        user = rng.choice((*[USERS[stream.int % 2]] * 3, *USERS))
        kind = rng.choice(("right",) * 6 + ("again", "gap", "nonsense", "large", "two", "signed"))
        asked = user, join_sized([event(stream, version, body=rng.randbytes(20))])
        match kind:
            case "again" if self._sent:
                asked = rng.choice(self._sent)
            case "gap":
                asked = user, join_sized([event(stream, version + rng.choice((-1, 1)))])
            case "nonsense":
                asked = user, rng.randbytes(30)
            case "large":
                asked = user, join_sized([event(stream, version, name="audit.event"), b""])
            case "two":  # of two streams, of which one may belong to somebody else
                other = rng.choice(STREAMS)
                versions = (version, self._next[other] + (other == stream))
                asked = (
                    user,
                    join_sized(
                        event(each, at) for each, at in zip((stream, other), versions, strict=True)
                    ),
                )
            case "signed":
                key = rng.choice((JUDGE, JUDGE, STRANGER))
                asked = USERS[0], join_sized([signed(key, self._origin, stream, version)])
        self._sent.append(asked)
        return asked

    def took(self, payload: bytes) -> None:
        for stream, version, *_ in read_events(payload):
            self._next[UUID(bytes=stream)] = version + 1


def told(answer: bytes | LedgerError) -> Answer:
    if isinstance(answer, LedgerError):
        return type(answer).__name__, str(answer), getattr(answer, "index", None), b""
    frame: Frame = parse_frame(answer[4:])
    return "done", "", None, frame.payload


def alone(desk: Desk, user: User, payload: bytes) -> bytes | LedgerError:
    try:
        return desk.answer(ClientConnection(user), Insert(), payload)
    except LedgerError as e:
        return e


def contents(folder: Path) -> list[tuple[UUID, int, str, bytes, Author | None]]:
    with open_verified(folder) as ledger:
        return [(e.stream_id, e.stream_version, e.name, e.body, e.author) for e in ledger.entries()]


def heads(folder: Path) -> int:
    with closing(sqlite3.connect(LedgerPaths(folder).database)) as c:
        (count,) = c.execute("SELECT count(*) FROM tree_heads").fetchone()
    return int(count)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))]
)
def test_groups_are_answered_and_recorded_as_the_same_requests_one_by_one(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    origin = begin(tmp_path / "groups", tmp_path / "single")
    producers, answers, left = Producers(rng, origin), [], 120
    with desk_in(tmp_path / "groups") as groups, desk_in(tmp_path / "single") as single:
        while left > 0:
            asked = []
            for _ in range(rng.choice((1, 2, 5, 20))):
                asked.append(producers.ask())
                answer = alone(single, *asked[-1])
                answers.append(told(answer))
                if isinstance(answer, bytes):
                    producers.took(asked[-1][1])
            left -= len(asked)
            together = [told(each) for each in groups.insert_each(asked)]
            assert together == answers[-len(asked) :]
    assert contents(tmp_path / "groups") == contents(tmp_path / "single")
    kinds = Counter(name for name, *_ in answers)
    refused = {"ConflictError", "ForbiddenError", "MalformedError", "ReadOnlyError"}
    assert refused <= kinds.keys() <= {*refused, "AuthorityError", "done"}
    assert seed or kinds["AuthorityError"]
    assert kinds["done"] > 20
    assert heads(tmp_path / "single") == kinds["done"] + 1
    assert heads(tmp_path / "groups") < kinds["done"]
    for folder in (tmp_path / "groups", tmp_path / "single"):
        assert check_ledger(folder).ok


def inserts(user: User, *requests: bytes) -> list[tuple[ClientConnection, Insert, bytes]]:
    return [(ClientConnection(user), Insert(), join_sized([each])) for each in requests]


def test_full_disk_is_told_to_each_and_nothing_is_there(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        asked = inserts(USERS[0], *(event(stream, 1, body=bytes(60_000)) for stream in STREAMS))
        asked += inserts(USERS[3], event(STREAMS[0], 1))  # refused, however full the disk is
        notary = Notary(desk, users={})
        with desk._database.transaction(write=False) as c:
            (pages,) = c.execute("PRAGMA page_count").fetchone()
            c.execute(f"PRAGMA max_page_count = {pages + 20}")
        answers = [parse_frame(each[4:]).header for each in notary._write(asked)]
        assert [each["error"] for each in answers] == ["StorageError"] * 6 + ["ReadOnlyError"]
        assert "free some space" in answers[0]["message"]
        assert (contents(tmp_path), heads(tmp_path)) == ([], 0)
        with desk._database.transaction(write=False) as c:
            c.execute("PRAGMA max_page_count = 100000")
        answers = [parse_frame(each[4:]).header for each in notary._write(asked)]
        assert [each.get("error") for each in answers] == [None] * 6 + ["ReadOnlyError"]
        assert (len(contents(tmp_path)), heads(tmp_path)) == (6, 1)


def test_group_that_fails_as_a_whole_is_answered_one_by_one(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        notary = Notary(desk, users={})
        first, second, third = inserts(USERS[0], *(event(s, 1) for s in STREAMS[:3]))
        notary._write([first])
        desk._recorder._versions.clear()
        desk._recorder._versions[STREAMS[0].bytes] = -1  # wrong: the database will object
        answers = [parse_frame(each[4:]).header for each in notary._write([second, first, third])]
        assert [each.get("error") for each in answers] == [None, "ConflictError", None]
        assert "is at version 1, so 1 cannot follow" in answers[1]["message"]
        assert [each[0] for each in contents(tmp_path)] == STREAMS[:3]
        assert heads(tmp_path) == 3


def lane_of(log: list[list[str]], seconds: float = 0.0) -> FairQueue[str, str]:
    def work(jobs: Sequence[str]) -> list[str]:
        log.append(list(jobs))
        time.sleep(seconds)
        return [job.upper() for job in jobs]

    return FairQueue("test", work)


def carried_out(asked: Sequence[tuple[int, str, int | None]], log: list[list[str]]) -> list[str]:
    """Return the answers to jobs that all wait when the worker begins."""

    async def ask() -> list[str]:
        lane = lane_of(log)
        tasks = [asyncio.create_task(lane.do(uid, job, size=size)) for uid, job, size in asked]
        await asyncio.sleep(0)
        worker = asyncio.create_task(lane.run())
        answers = await asyncio.gather(*tasks)
        worker.cancel()
        lane.close()
        return answers

    return asyncio.run(ask())


def test_jobs_that_wait_go_together_in_turns_of_their_users() -> None:
    log: list[list[str]] = []
    asked: list[tuple[int, str, int | None]] = [(1, f"a{n}", 10) for n in range(3)]
    asked += [(2, "b0", 10), (2, "large", None), (2, "b1", 10), (3, "c0", 10)]
    answers = carried_out(asked, log)
    assert answers == [job.upper() for _, job, _ in asked]
    assert log == [["a0", "b0", "c0", "a1", "a2"], ["large"], ["b1"]]


def test_group_has_a_limit_in_bytes() -> None:
    log: list[list[str]] = []
    carried_out([(1, f"{n}", 10) for n in range(100)], log)
    assert [len(each) for each in log] == [64, 36]
    log.clear()
    carried_out([(1, f"{n}", 60 << 10) for n in range(10)], log)
    assert [len(each) for each in log] == [4, 4, 2]


def test_who_floods_with_small_jobs_gets_half_of_a_group_that_others_begin() -> None:
    async def measure() -> list[list[str]]:
        log: list[list[str]] = []
        lane = lane_of(log, 0.01)
        worker = asyncio.create_task(lane.run())

        async def flood() -> None:
            while True:
                await lane.do(1, "a", size=60 << 10)

        floods = [asyncio.create_task(flood()) for _ in range(8)]
        await asyncio.sleep(0.05)
        log.clear()
        for _ in range(10):
            await lane.do(2, "b", size=60 << 10)
        for task in [worker, *floods]:
            task.cancel()
        lane.close()
        return log

    log = asyncio.run(measure())
    jobs = [job for each in log for job in each]
    assert jobs.count("b") == 10
    assert jobs.count("a") < 40
    assert ["b", "a"] in log or ["a", "b"] in log


def test_two_who_ask_again_and_again_go_together() -> None:
    async def measure() -> list[list[str]]:
        log: list[list[str]] = []
        lane = lane_of(log, 0.1)
        worker = asyncio.create_task(lane.run())

        async def produce(name: str) -> None:
            for _ in range(3):
                await lane.do(1, name, size=10)
                await asyncio.sleep(0.001)

        first = asyncio.create_task(produce("a"))
        await asyncio.sleep(0.005)  # so that the first is under way alone
        await asyncio.gather(first, produce("b"))
        worker.cancel()
        lane.close()
        return log

    log = asyncio.run(measure())
    assert log[0] == ["a"]
    assert 2 in map(len, log)  # otherwise they would take turns
