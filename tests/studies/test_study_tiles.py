"""Verification in parts: honest bundles, changed ones, and workers that lie."""

import shutil
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from studies.pieces import make_piece
from studies.tiles import (
    SPAN,
    Answer,
    Fleet,
    combine,
    differing,
    plan,
    simulate,
    undetected,
    verify_part,
)

from ledger.bodies import decode_body
from ledger.entries import split_sized
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle
from ledger.handover.bundle_files import CHECKPOINT, VKEY
from ledger.handover.tiles import tile_path
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.states import State, root_of
from ledger.verification.vectorized import Versions
from ledger.verification.verified_entries import parse_entry

ENTRIES = 2 * SPAN + 700

STUDIES = Path(__file__).parents[2] / "docs" / "studies"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    database, signer = open_ledger(LedgerPaths(folder / "ledger"), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for first in range(0, ENTRIES, 1_000):
            recorder.insert_events(
                [
                    StoredEvent(UUID(int=number % 50), number // 50 + 1, "run.test", b"body")
                    for number in range(first, min(first + 1_000, ENTRIES))
                ]
            )
    export_bundle(folder / "ledger", folder / "bundle")
    return folder / "bundle"


@pytest.mark.slow  # 130,000 entries
def test_parts_hold_together_and_lies_are_found(bundle: Path) -> None:
    _, parts = plan(str(bundle), spans=1)
    assert [part.end for part in parts] == [SPAN, 2 * SPAN, ENTRIES]
    honest = [each for each in map(verify_part, parts) if isinstance(each, Answer)]
    assert combine(parts, honest) == []
    again = verify_part(parts[1])
    assert isinstance(again, Answer)
    assert differing(parts, honest, {1: again}) == []

    # Who has not read anything knows the claims, and not which versions its streams come to.
    empty = Answer(
        replace(honest[1].segment, end=parts[2].start, versions=Versions()), bytes(32), 0.0
    )
    lazy = [honest[0], empty, honest[2]]
    assert combine(parts, lazy) == [f"from entry {2 * SPAN:,}: a stream does not go on"]
    # Who knows them is found by the keyed hash.
    knowing = [honest[0], replace(honest[1], read=bytes(32)), honest[2]]
    assert combine(parts, knowing) == []
    assert differing(parts, knowing, {1: again}) == [
        f"two workers say different things of entries {SPAN:,} to {2 * SPAN - 1:,}"
    ]
    swapped = [honest[0], honest[0], honest[2]]
    assert f"the answer on entry {SPAN:,} is about another part" in combine(parts, swapped)


@pytest.mark.slow  # 130,000 entries
@pytest.mark.parametrize(
    ("name", "part"), [(tile_path("entries", 300), 1), (tile_path(0, 10), 0), (tile_path(1, 1), 1)]
)
def test_changed_file_is_found_by_the_part_that_reads_it(
    bundle: Path, tmp_path: Path, name: str, part: int
) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    path = tmp_path / "bundle" / name
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    _, parts = plan(str(tmp_path / "bundle"), spans=1)
    found = verify_part(parts[part])
    assert isinstance(found, str)
    assert "do not hold" in found


@pytest.mark.slow  # 130,000 entries
def test_claim_that_leads_elsewhere_is_found_by_the_coordinator(
    bundle: Path, tmp_path: Path
) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    path = tmp_path / "bundle" / tile_path(2, 0, width=2)
    path.write_bytes(bytes(32) + path.read_bytes()[32:])
    _, parts = plan(str(tmp_path / "bundle"), spans=1)
    faults = combine(parts, [verify_part(part) for part in parts])
    assert faults[0] == f"entry {SPAN:,} does not follow the one before"


@pytest.mark.slow  # 130,000 entries
@pytest.mark.parametrize("changed", [bytes(32), b""])
def test_tile_of_level_two_is_compared_where_no_part_begins(
    bundle: Path, tmp_path: Path, changed: bytes
) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    path = tmp_path / "bundle" / tile_path(2, 0, width=2)
    path.write_bytes(path.read_bytes()[:32] + changed)
    code, told = study(tmp_path / "bundle", "--vkey", bundle / VKEY)
    assert code == 1
    assert "level 2" in told or tile_path(2, 0, width=2) in told


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of 600 entries; its owner's key is beside it, in owner.vkey."""
    folder = tmp_path_factory.mktemp("small")
    database, signer = open_ledger(LedgerPaths(folder / "ledger"), passphrase=None)
    with closing(database):
        SignedRecorder(database, signer=signer).insert_events(
            [StoredEvent(UUID(int=1), number, "run.test", b"body") for number in range(1, 601)]
        )
    export_bundle(folder / "ledger", folder / "bundle")
    shutil.copyfile(folder / "bundle" / VKEY, folder / "owner.vkey")
    return folder


def study(*arguments: str | Path) -> tuple[int, str]:
    """Run the study of tiles with one process; return its exit code and standard error."""
    command = [sys.executable, str(STUDIES), "tiles", "--workers", "1"]
    done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
    assert bool(done.stdout) == (done.returncode == 0)
    return done.returncode, done.stderr


def test_study_verifies_a_bundle_with_the_owners_key(small: Path) -> None:
    assert study(small / "bundle", "--vkey", small / "owner.vkey") == (0, "")


@pytest.mark.parametrize(
    ("name", "at", "message"),
    [
        (tile_path(0, 1), 100, f"entries 0 to 599 do not hold: {tile_path(0, 1)} does not match"),
        (tile_path("entries", 1), 100, "entries 0 to 599 do not hold"),
        (CHECKPOINT, 1, f"{CHECKPOINT}: "),
        (CHECKPOINT, 60, f"{CHECKPOINT}: "),
        (CHECKPOINT, -10, f"{CHECKPOINT}: "),
        (CHECKPOINT, -1, f"{CHECKPOINT} is not text"),
    ],
)
def test_study_names_the_place_when_a_file_is_changed(
    small: Path, tmp_path: Path, name: str, at: int, message: str
) -> None:
    shutil.copytree(small / "bundle", tmp_path / "bundle")
    path = tmp_path / "bundle" / name
    data = bytearray(path.read_bytes())
    data[at] ^= 0x80 if at == -1 else 1
    path.write_bytes(data)
    code, told = study(tmp_path / "bundle", "--vkey", small / "owner.vkey")
    assert (code, told.count("\n")) == (1, 1)
    assert told.startswith(f"error: {message}")


def test_study_refuses_a_key_that_is_not_the_bundles(small: Path, tmp_path: Path) -> None:
    database, _ = open_ledger(LedgerPaths(tmp_path / "other"), passphrase=None)
    with closing(database):
        (tmp_path / "other.vkey").write_text(database.meta("vkey"))
    (tmp_path / "no.vkey").write_text("no key\n")
    assert study(small / "bundle", "--vkey", tmp_path / "other.vkey") == (
        1,
        "error: ledger.vkey: the bundle's public key is not the one given\n",
    )
    code, told = study(small / "bundle", "--vkey", tmp_path / "no.vkey")
    assert (code, told.startswith(f"error: {tmp_path}/no.vkey: ")) == (2, True)
    assert study(tmp_path, "--vkey", small / "owner.vkey") == (
        2,
        f"error: {tmp_path}: bundle not found; check the path\n",
    )
    code, _ = study("--vkey", small / "owner.vkey")
    assert code == 2


@pytest.mark.parametrize("option", ["--workers", "--spans", "--entries"])
def test_study_refuses_a_number_below_one(small: Path, option: str) -> None:
    code, told = study(small / "bundle", f"{option}=0")
    assert (code, "must be 1 or more, not 0" in told) == (2, True)


def test_more_workers_are_faster_and_lost_ones_cost_their_part() -> None:
    fleet = Fleet(entries=100_000_000, workers=10, spread=0.0, lost=0.0)
    ten = simulate(fleet)
    assert ten.wall == pytest.approx(ten.ideal, rel=0.1)
    assert simulate(replace(fleet, workers=100)).wall < ten.wall / 5
    assert simulate(replace(fleet, lost=0.3), seed=1).wall > ten.wall
    assert simulate(replace(fleet, entries=1)).parts == 1


def test_lies_stay_undetected_as_often_as_the_formula_says() -> None:
    for share, lies in ((0.05, 10), (0.2, 3)):
        drawn = undetected(share=share, lies=lies, trials=2_000, parts=500)
        assert drawn == pytest.approx(undetected(share=share, lies=lies), abs=0.04)


def test_piece_that_is_made_is_a_bundle_of_entries_as_runs_have_them(tmp_path: Path) -> None:
    database, signer = open_ledger(LedgerPaths(tmp_path / "ledger"), passphrase=None)
    with closing(database):
        assert signer is not None
        signer.take_up(vkey := database.meta("vkey"))
        made = make_piece(tmp_path / "bundle", State(), 1_500)
        head = signer.tree_head(size=1_500, root=root_of(made.end.edge), vkey=vkey)
    for name, text in ((VKEY, f"{vkey}\n"), (CHECKPOINT, head)):
        (tmp_path / "bundle" / name).write_text(text)
    assert check_bundle(tmp_path / "bundle").ok
    for path in (tmp_path / "bundle/tile/entries").rglob("*"):
        for data in split_sized(path.read_bytes(), limit=256) if path.is_file() else ():
            assert decode_body(parse_entry(data).body)["v"] == 1


@pytest.mark.slow  # 200,000 entries
def test_study_that_was_killed_continues_and_keeps_no_piece(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDIES), "tiles", "--entries", "200000"]
    command += ["--into", str(tmp_path), "--spans", "1", "--workers", "2"]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    notes = tmp_path / "pieces.jsonl"
    deadline = time.monotonic() + 300
    while not notes.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    noted = notes.read_bytes()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "200,000" in done.stdout
    assert notes.read_bytes().startswith(noted)
    assert len(notes.read_bytes().splitlines()) == 4
    assert not [path for path in (tmp_path / "tile").rglob("*") if path.is_file()]
