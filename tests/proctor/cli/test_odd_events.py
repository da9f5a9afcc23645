"""Events with hostile fields, signed and linked like all others: no reader ends on one of them."""

import json
import traceback
from collections.abc import Iterator
from contextlib import chdir, closing, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgpack
import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import call_here
from full_ledger import add_what_can_go_wrong, write_some_of_everything
from live_pages import all_pages, served_home

from aggregates.registry import REGISTRY
from ledger.bodies import decode_body
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified
from ledger.verification.verified_entries import VerifiedEntry
from proctor.home import Home
from proctor.output.answers import Form, print_answer
from proctor.remembering import held_session

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**64 - 1,
    1e308,
    float("nan"),
    "",
    "\x1b[2J\r\n\u202e\x00",
    "{}{0}%s[bold]<script>",
    "x" * 5_000,
    "\ud800",  # lone surrogates: no text in UTF-8
    {"\udfff": "a\udc80b"},
    b"\xff",
    [],
    {},
    [None],
    [[], {"": [1]}],
    {"": {"x": None}, "at": 1},
)
DEEP: Any = "end"
for _ in range(20):
    DEEP = [DEEP]
MALFORMED = (  # no msgpack, or none in the form that bodies have
    b"",
    b"\xc1",  # the byte that msgpack never uses
    b"\xa1\xff",
    b"\x81\xa1v",  # a map without its value
    b"\x82\xa1v\x01\xa1v\x01",  # a key twice
    b"\x81\x01\x01",  # a key that is no text
    b"\x81\xd9\x01v\xd1\x00\x01",  # not in the shortest form
    b"\xc7\x01\x05\x00",  # an extension
    b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
    b"\xdb\xff\xff\xff\xff",  # text, an array and a map of 4 GiB
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\x91" * 5_000 + b"\xc0",  # nested deeply
    b"\x81\xa1v" * 5_000 + b"\xc0",
)


def data_of(body: dict[str, Any]) -> Iterator[bytes]:
    """Yield a body changed in each way, as bytes, and bytes that are no body."""
    for each in bodies_of(body):
        yield msgpack.packb(each, unicode_errors="surrogatepass")
    honest = msgpack.packb(body)
    yield from (honest[:-1], honest[: len(honest) // 2], honest + b"\x00", honest + honest)
    yield from MALFORMED


def bodies_of(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the body with each of its parts replaced by each hostile value, or missing."""
    for path in paths_in(body):
        for value in (*HOSTILE, DEEP):
            yield changed(body, path, value)
    for field in body:
        yield {name: value for name, value in body.items() if name != field}
    yield {**body, "extra": 1}
    yield {}


def paths_in(value: Any, *, depth: int = 3) -> Iterator[tuple[Any, ...]]:
    """Yield where parts of a body are: fields, and what lies in them, of each list the first."""
    if not depth:
        return
    parts = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, inner in parts:
        yield (key,)
        if isinstance(inner, dict | list):
            yield from ((key, *rest) for rest in paths_in(inner, depth=depth - 1))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@dataclass(frozen=True)
class Scene:
    home: Path
    repo: Path
    entries: list[VerifiedEntry]  # those that are honest


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    home = tmp_path / "home"
    write_some_of_everything(home / "ledger")
    add_what_can_go_wrong(home / "ledger")
    with open_verified(home / "ledger") as ledger:
        return Scene(home, tmp_path, list(ledger.entries()))


def append_odd(scene: Scene, *, every: int, names: frozenset[str] | None = None) -> int:
    """Append to streams of their own and to those that are there; return how many there are."""
    first: dict[str, VerifiedEntry] = {}
    versions: dict[UUID, int] = {}
    for entry in scene.entries:
        versions[entry.stream_id] = entry.stream_version
        if names is None or entry.name in names:
            first.setdefault(entry.name, entry)
    odd: list[StoredEvent] = []
    number = 0
    for name, entry in first.items():
        if name not in {each.name for each in REGISTRY}:
            continue
        for data in data_of(decode_body(entry.body)):
            number += 1
            if number % every:
                continue
            begins = entry.stream_version == 1
            odd.append(StoredEvent(uuid4(), 1, name, data))
            if not begins:
                versions[entry.stream_id] += 1
                odd.append(StoredEvent(entry.stream_id, versions[entry.stream_id], name, data))
    database, signer = open_ledger(LedgerPaths(scene.home / "ledger"), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        rest = iter(odd)
        while batch := list(islice(rest, 500)):
            recorder.insert_events(batch)
    return len(odd)


def ids(scene: Scene, name: str) -> list[str]:
    return [str(each.stream_id) for each in scene.entries if each.name == name]


def readings(scene: Scene) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield calls of every command that reads, with the exit codes that may come of them."""
    run, campaign = ids(scene, "run.started")[0], ids(scene, "campaign.started")[0]
    comparison, line = ids(scene, "comparison.started")[0], ids(scene, "line.opened")[0]
    yield ["verify"], (0,)
    yield ["log"], (0,)
    yield ["log", "--json"], (0,)
    yield ["log", "--entry", str(len(scene.entries))], (0,)
    yield ["runs"], (0,)
    yield ["show"], (0,)
    yield ["show", run], (0,)
    yield ["show", run, "--json"], (0,)
    for subject in (run, campaign, comparison, line):
        yield ["report", subject, "--out", str(scene.repo / f"{subject}.html")], (0, 1, 2)
    yield ["replay", run], (0,)
    yield ["replay", run, "--event", "3"], (0,)
    yield ["replay", campaign], (0,)
    yield ["replay", campaign, "--event", "1"], (0,)
    yield ["show", "--transcript", run], (0,)
    yield ["show", "--transcript", run, "--json"], (0,)
    yield ["judge", run], (1,)
    yield ["keys", "list"], (0,)
    yield ["line", "show", "--list", "checkpoints"], (0,)
    yield ["line", "show", "active"], (0, 2)
    yield ["data", "list"], (0,)
    yield ["data", "why", run], (0, 1)
    yield ["data", "why"], (0, 1, 2)
    yield ["export", "data", "sft"], (0, 1, 2)
    yield ["export", "data", "preferences"], (0, 1, 2)
    yield ["data", "lineage", f"{run}/1"], (0, 1, 2)
    yield ["tune", "show", "scripted"], (0, 1)  # 1: the stream that it continues is odd
    yield ["compare", "--list"], (0, 1, 2)
    yield ["line", "show"], (0, 1, 2)
    yield ["line", "show", "latest"], (0, 1, 2)
    yield ["export", "bundle", "--out", str(scene.repo / "bundle")], (0,)
    yield ["export", "curves", run, "--out", str(scene.repo / "board")], (0, 2)
    yield ["export", "proof", "3"], (0,)
    yield ["sql", "SELECT run_id, state FROM run_summary"], (0,)


def verify_readers(scene: Scene) -> None:
    failed: list[Any] = []
    with chdir(scene.repo):
        for arguments, codes in readings(scene):
            try:
                done = call_here(arguments, home=scene.home)
            except Exception as error:
                failed.append((arguments, repr(error)[:300], traceback.format_exc()[-1500:]))
                continue
            if done.returncode not in codes or "Traceback" in done.stderr:
                failed.append((arguments, done.returncode, done.stdout[-300:], done.stderr[-1000:]))
            if arguments[0] == "log" and "--entry" not in arguments:
                assert str(scene.entries[3].stream_id)[:8] in done.stdout
        listed = call_here(["sql", "SHOW TABLES", "--format", "json"], home=scene.home)
        with held_session(Home(scene.home)) as session:
            for number, row in enumerate(json.loads(listed.stdout)):
                table = row["name"]
                asked = f'SELECT * FROM "{table}"'
                if number % 10:  # what the command prints, without opening the home each time
                    try:
                        with redirect_stdout(StringIO()):
                            print_answer(session, asked, form=Form.CSV)
                    except Exception as error:
                        failed.append((table, repr(error)[:1000]))
                    continue
                done = call_here(["sql", asked, "--format", "csv"], home=scene.home)
                if done.returncode:
                    failed.append((table, done.stderr[-1000:]))
    with served_home(scene.home) as served:
        for path in all_pages(served):
            shown = served.client.get(f"{served.base}/{path}")
            if shown.status_code not in (200, 404, 413) or "Traceback" in shown.text:
                failed.append((path, shown.status_code, shown.text[:1000]))
    for each in failed:
        print(each)
    assert not failed


@pytest.mark.slow
def test_readers_go_on_when_events_have_hostile_fields(scene: Scene) -> None:
    assert append_odd(scene, every=97) > 200
    verify_readers(scene)


@pytest.mark.slow  # each hostile value in each part of each event
@pytest.mark.parametrize("part", range(8))
def test_readers_go_on_with_every_hostile_field(scene: Scene, part: int) -> None:
    names = sorted(each.name for each in REGISTRY)
    assert append_odd(scene, every=1, names=frozenset(names[part::8])) > 500
    verify_readers(scene)
