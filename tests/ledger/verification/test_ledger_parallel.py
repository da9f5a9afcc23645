"""What another process has verified comes back as if this one had done it."""

import ast
import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from threat_scene import make_scene

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification import parallel
from ledger.verification.parallel import verify_divided
from ledger.verification.reader import read_vkey
from ledger.verification.snapshots import snapshot
from ledger.verification.states import State
from ledger.verification.verify import Verification

ROOT = Path(parallel.__file__).parents[2]
HOUSE = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")


def jump_backwards(paths: LedgerPaths) -> None:
    database, signer = open_ledger(paths, passphrase=None)
    clock = time.time_ns()
    with closing(database):
        recorder = SignedRecorder(
            database, signer=signer, clock=lambda: clock, steady_clock=lambda: 0
        )
        recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
        clock -= 3600 * 10**9
        recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])


def test_ledger_with_rotation_in_a_folder_that_is_no_text_is_divided_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_WORTH_A_PROCESS", 1)
    scene = make_scene(tmp_path / "scene")
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    shutil.copytree(scene.ledger, directory)
    jump_backwards(LedgerPaths(directory))
    key = read_vkey(LedgerPaths(directory).vkey)
    with snapshot(LedgerPaths(directory)) as stored:
        verification = Verification(vkey=key)
        one = verification.run(stored.entries_from_top(), stored.heads_from_top())
        many = verify_divided(stored, verification, processes=3)
    assert many is not None
    assert one.start == State() != many.start
    assert (one.state, one.head) == (many.state, many.head)
    assert len(one.authority.rotations) == 1
    for name in ("keys", "rotations", "vkey", "operated"):
        assert getattr(one.authority, name) == getattr(many.authority, name)


def test_no_module_that_ships_imports_pickle() -> None:
    found = []
    for path in (file for name in HOUSE for file in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=[ast.alias(name=name)]) | ast.ImportFrom(module=name):
                    found += [path.name] * (name in ("marshal", "pickle", "shelve"))
    assert found == []
