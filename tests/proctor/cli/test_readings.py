"""Commands that read from what is remembered: old entries changed, removed, moved or cut off.

`verify` finds each of these; every other command finds it, or answers as it did before.
"""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from frontdoor import answer, call_here
from synthetic import synthetic_audit, synthetic_run

from ledger.verification.marks import PREVIOUS
from proctor import remembering
from proctor.cli.judging import look_up
from proctor.home import Home
from proctor.runs import story

READINGS = (
    ["log", "--json"],
    ["log", "--last", "3", "--json"],
    ["replay", "--json"],
    ["show", "--json"],
    ["sql", "SELECT * FROM run_summary", "--json"],
)


@dataclass(frozen=True)
class Scene:
    """A home whose ledger was read, and what each command answered."""

    home: Path
    state: Path
    told: list[tuple[int, str]]
    judged: list[object]  # what the judge reads of the newest run
    audited: int  # index of the first entry of an audit

    @property
    def file(self) -> Path:
        return self.home / "ledger" / "ledger.sqlite"

    def readings(self) -> list[tuple[int, str]]:
        calls = [call_here(each, home=self.home, state=self.state) for each in READINGS]
        assert all("Traceback" not in done.stderr for done in calls)
        return [(done.returncode, done.stdout) for done in calls]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home, state = (tmp_path_factory.mktemp("warm") / name for name in ("home", "state"))
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
        run = synthetic_run(log, epochs=2)
        audited = (log.recorder.max_notification_id() or 0) + 1
        synthetic_audit(log, run)
        events = log.recorder.select_events(run.id)  # so that the last are in a block of their own
        log.recorder.insert_events(
            [replace(each, originator_id=copy) for copy in _ids(50) for each in events]
        )
        again = synthetic_run(log, epochs=2)
        synthetic_audit(log, again)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembering, "FEW", 0)  # so that `show` asks the tables where entries are
        patch.setenv("PROCTOR_STATE", str(state))
        scene = Scene(home, state, [], [], audited)
        _, found = look_up(Home(home), "latest", submission=None, head=None)
        assert found is not None
        scene.judged.append(list(found.record.entries))
        scene.told.extend(scene.readings())
        yield scene


@pytest.fixture
def scene(warm: Scene) -> Iterator[Scene]:
    """Give the scene, and put back what the test changes."""
    kept = warm.home.with_name("kept")
    shutil.copytree(warm.home / "ledger", kept)
    yield warm
    shutil.rmtree(warm.home / "ledger")
    kept.rename(warm.home / "ledger")


def test_honest_readings_verify_what_is_new(scene: Scene) -> None:
    assert [code for code, _ in scene.told] == [0] * len(READINGS)
    assert scene.readings() == scene.told
    assert call_here(["verify"], home=scene.home, state=scene.state).returncode == 0


Attack = Callable[[sqlite3.Connection, Scene], None]


def body_changed(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute("UPDATE entries SET entry = CAST(entry || x'00' AS BLOB) WHERE idx = 5")


def score_changed_and_links_repaired(ledger: sqlite3.Connection, scene: Scene) -> None:
    """The bytes fit together from the audit on; only the remembered hashes and the root do not."""
    rows = ledger.execute(
        "SELECT idx, entry FROM entries WHERE idx >= ? ORDER BY idx", [scene.audited]
    )
    previous = None
    for idx, entry in rows.fetchall():
        changed = entry.replace(b"process_score\xcb", b"process_score\xca")
        if previous is not None:
            changed = changed[: PREVIOUS.start] + previous + changed[PREVIOUS.stop :]
        ledger.execute("UPDATE entries SET entry = ? WHERE idx = ?", [changed, idx])
        previous = sha256(b"\x00" + changed).digest()


def audit_moved_to_another_stream(ledger: sqlite3.Connection, scene: Scene) -> None:
    """Who looks entries up by their columns would not find the audit."""
    ledger.execute(
        "UPDATE entries SET stream_id = ?, name = 'run.x' WHERE idx = ?",
        [uuid4().bytes, scene.audited],
    )


def entry_removed(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute("DELETE FROM entries WHERE idx = ?", [scene.audited])


def entry_inserted_below(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute(
        "INSERT INTO entries SELECT -1, stream_id, 99, name, entry FROM entries WHERE idx = 3"
    )


def two_exchanged(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.executescript(
        "UPDATE entries SET idx = -1 WHERE idx = 3; UPDATE entries SET idx = 3 WHERE idx = 4;"
        "UPDATE entries SET idx = 4 WHERE idx = -1"
    )


def earlier_head_changed(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute(
        "UPDATE tree_heads SET note = replace(note, '1', '2') WHERE size = ("
        "SELECT MIN(size) FROM tree_heads)"
    )


def last_entry_changed(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute(
        "UPDATE entries SET entry = CAST(entry || x'00' AS BLOB) WHERE idx = ("
        "SELECT MAX(idx) FROM entries)"
    )


def newest_head_removed(ledger: sqlite3.Connection, scene: Scene) -> None:
    ledger.execute("DELETE FROM tree_heads WHERE size = (SELECT MAX(size) FROM tree_heads)")


def tail_cut_off(ledger: sqlite3.Connection, scene: Scene) -> None:
    [(size,)] = ledger.execute("SELECT size FROM tree_heads ORDER BY size DESC LIMIT 1 OFFSET 1")
    ledger.execute("DELETE FROM entries WHERE idx >= ?", [size])
    ledger.execute("DELETE FROM tree_heads WHERE size > ?", [size])


@pytest.mark.parametrize(
    "attack",
    [
        score_changed_and_links_repaired,
        audit_moved_to_another_stream,
        body_changed,
        earlier_head_changed,
        entry_inserted_below,
        entry_removed,
        last_entry_changed,
        newest_head_removed,
        tail_cut_off,
        two_exchanged,
    ],
)
@pytest.mark.sampled(4)
def test_old_part_that_was_changed_is_found_or_not_used(scene: Scene, attack: Attack) -> None:
    with closing(sqlite3.connect(scene.file, isolation_level=None)) as ledger:
        attack(ledger, scene)
    for reading, found, honest in zip(READINGS, scene.readings(), scene.told, strict=True):
        assert found == honest or found[0] == 1, reading
    _, judged = look_up(Home(scene.home), "latest", submission=None, head=None)
    assert judged is None or [list(judged.record.entries)] == scene.judged
    assert call_here(["verify"], home=scene.home, state=scene.state).returncode == 1


def test_reading_goes_on_from_what_is_new(scene: Scene, tmp_path: Path) -> None:
    state = Path(shutil.copytree(scene.state, tmp_path / "state"))
    with Home(scene.home).open_log() as log:
        new = synthetic_run(log, epochs=2)
    done = call_here(["show", "--json"], home=scene.home, state=state)
    assert re.search(r"rests on \d+ entries verified earlier and \d+ verified now", done.stderr)
    told = answer(done)
    assert told["summary"]["run_id"] == str(new.id)
    again = call_here(["show", "--json"], home=scene.home, state=state)
    assert (again.stdout, again.stderr) == (done.stdout, "")  # nothing is new


@pytest.mark.parametrize("name", ["latest", "first"])
def test_tables_say_the_same_as_looking_through_the_ledger(scene: Scene, name: str) -> None:
    home = Home(scene.home)
    with remembering.open_remembered(home) as ledger:
        wanted = str(ledger.select(names=["run.started"]).__next__().stream_id)[:13]
        wanted = name if name == "latest" else wanted
        looked_for = story.looked_for(ledger, wanted)
        index = remembering.open_index(home, ledger)
        assert index is not None
        assert story.looked_up(ledger, index, wanted) == looked_for


def _ids(count: int) -> list[UUID]:
    return [uuid4() for _ in range(count)]
