"""Eight processes append at once while a ninth reads behind them."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from stores import on_server

from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
from ledger.verification.reader import open_verified
from ledger.verification.verified_notes import parse_tree_head

WRITERS = 8

# Appends batches of 25 to 100 to a stream of its own; says the ids that were acknowledged.
WRITER = """
import random, sys
from pathlib import Path
from uuid import UUID
from eventsourcing.persistence import StoredEvent
from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
directory, stream, left = Path(sys.argv[1]), UUID(sys.argv[2]), int(sys.argv[3])
rng, version = random.Random(stream.int), 0
with LedgerApplication.open(directory, EventRegistry()) as app:
    while left:
        count = min(left, rng.randint(25, 100))
        ids = app.recorder.insert_events([
            StoredEvent(stream, version + n, "test.event", rng.randbytes(100))
            for n in range(1, count + 1)
        ])
        version, left = version + count, left - count
        print(*ids)
"""

# Follows the ledger from its last position; says each notification and each new tree head.
TAIL = """
import json, sys, time
from pathlib import Path
from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
directory, events = Path(sys.argv[1]), int(sys.argv[2])
position, head = 0, None
with LedgerApplication.open(directory, EventRegistry()) as app:
    while position < events:
        new = app.recorder.select_notifications(start=position + 1, limit=100)
        for n in new:
            print(n.id, n.originator_id, n.originator_version, n.state.hex())
            position = n.id
        newest = app.recorder.tree_head()
        if newest not in (None, head):
            head = newest
            print("head", json.dumps(head))
        if not new:
            time.sleep(0.005)
"""


def start(script: str, *arguments: object, out: Path) -> subprocess.Popen[bytes]:
    with out.open("wb") as file:
        return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=file)


def roots_of(leaves: list[bytes], sizes: set[int]) -> dict[int, bytes]:
    """Return the Merkle tree hash of RFC 6962 at each of these sizes, by the stack of its notes."""
    roots, stack = {}, []
    for size, leaf in enumerate(leaves, start=1):
        stack.append((1, leaf))
        while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
            (width, right), (_, left) = stack.pop(), stack.pop()
            stack.append((2 * width, hashlib.sha256(b"\1" + left + right).digest()))
        if size in sizes:
            node = stack[-1][1]
            for _, left in stack[-2::-1]:
                node = hashlib.sha256(b"\1" + left + node).digest()
            roots[size] = node
    return roots


@pytest.mark.parametrize("events", [4_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_eight_writers_and_a_reader_lose_nothing(tmp_path: Path, events: int) -> None:
    directory = tmp_path / "ledger"
    if on_server():  # where, only this process knows
        LedgerApplication.open(directory, EventRegistry()).close()
    rng = random.Random(events)
    streams = [UUID(int=rng.getrandbits(128)) for _ in range(WRITERS)]
    tail = start(TAIL, directory, events, out=tmp_path / "tail")
    writers = {
        stream: start(WRITER, directory, stream, events // WRITERS, out=tmp_path / str(stream))
        for stream in streams
    }
    for process in (*writers.values(), tail):
        assert process.wait(timeout=500) == 0

    lines = (tmp_path / "tail").read_text().splitlines()
    followed = [line.split() for line in lines if not line.startswith("head")]
    seen_heads = [json.loads(line[5:]) for line in lines if line.startswith("head")]

    # The reader has missed nothing: ids without a gap, the streams in their order.
    assert [int(each[0]) for each in followed] == list(range(1, events + 1))
    for stream in streams:
        versions = [int(each[2]) for each in followed if each[1] == str(stream)]
        assert versions == list(range(1, events // WRITERS + 1))
        ids = [int(each[0]) for each in followed if each[1] == str(stream)]
        acknowledged = list(map(int, (tmp_path / str(stream)).read_text().split()))
        assert acknowledged == ids

    # What it read is what is verified afterwards.
    leaves = []
    with open_verified(directory) as ledger:
        assert ledger.size == events
        for entry, each in zip(ledger.entries(), followed, strict=True):
            assert (entry.index + 1, str(entry.stream_id)) == (int(each[0]), each[1])
            assert (entry.stream_version, entry.body.hex()) == (int(each[2]), each[3])
            leaves.append(entry.entry_hash)

    # The tree heads that it saw grow, and each is of a beginning of the one ledger.
    heads = [parse_tree_head(note) for note in seen_heads]
    sizes = [head.size for head in heads]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == events
    assert len(sizes) > 2  # some while it was written: how many, the machine decides
    assert {head.size: head.root for head in heads} == roots_of(leaves, set(sizes))
