"""Bundles: exported, extended, verified without the database, imported; and what is refused."""

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from handmade_ledgers import HandmadeLedger, Signer, busy_ledger
from hypothesis import given, settings
from hypothesis import strategies as st
from signed_notes import sign_tree_head
from threat_scene import STRANGER, Scene, Writer, cosign, make_scene, recorder

from ledger.errors import (
    BlobError,
    BundleError,
    ConsistencyError,
    ContradictionError,
    KeptHeadError,
    MalformedError,
    ReadOnlyError,
    SignatureError,
    StorageError,
    VerificationError,
)
from ledger.handover import second_verifier
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle
from ledger.handover.bundle_files import strangers
from ledger.handover.bundle_import import import_bundle
from ledger.paths import LedgerPaths
from ledger.verification import states, verify
from ledger.verification.reader import check_ledger, open_verified, read_tree_head
from ledger.verification.verified_notes import parse_tree_head


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A scene that nobody touches."""
    return make_scene(tmp_path_factory.mktemp("bundles") / "scene")


@pytest.fixture
def scene(honest: Scene, tmp_path: Path) -> Scene:
    """Another, all of it to be written to."""
    shutil.copytree(honest.root, tmp_path / "scene")
    return Scene(tmp_path / "scene")


@pytest.fixture(scope="module")
def size(honest: Scene) -> int:
    return parse_tree_head(honest.kept_head).size


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_bundle_has_the_files_of_the_format_and_no_others(honest: Scene, size: int) -> None:
    assert 256 < size < 512
    names = set(files(honest.bundle))
    blobs = {name for name in names if name.startswith("blobs/")}
    heads = {name for name in names if name.startswith("checkpoints/")}
    rest = size - 256
    assert len(blobs) == 1
    assert len(heads) == 2  # the one that was cosigned earlier, the last before the rotation
    assert names - blobs - heads == {
        "checkpoint",
        "ledger.vkey",
        "verify.py",
        "tile/entries/000",
        f"tile/entries/001.p/{rest}",
        "tile/0/000",
        f"tile/0/001.p/{rest}",
        "tile/1/000.p/1",
    }
    assert (honest.bundle / "checkpoint").read_text() == honest.kept_head
    assert strangers(honest.bundle) == []


def test_bundle_holds_without_its_database(honest: Scene, size: int) -> None:
    report = check_bundle(honest.bundle, vkey=honest.vkey, kept_heads=[honest.kept_head])
    assert (report.ok, report.size, report.error) == (True, size, None)
    assert report.head is not None
    assert report.head.note == honest.kept_head
    assert report.authority is not None
    assert len(report.authority.rotations) == 1


@pytest.mark.parametrize("entries", [1, 255, 256, 257, 512, 513])
def test_bundle_made_by_hand_holds_at_every_right_edge(entries: int, tmp_path: Path) -> None:
    made = HandmadeLedger()
    for _ in range(entries):
        made.add(b"s" * 16, "test.event", b"body")
    made.sign()
    folder = made.write_bundle(tmp_path)
    assert check_bundle(folder).size == entries
    assert check_bundle(folder, vkey=made.first.vkey).ok


def first_entry(scene: Scene, index: int) -> tuple[Path, int, int]:
    """Return the file, the offset and the length of one of the first 256 entries."""
    path = scene.bundle / "tile" / "entries" / "000"
    data, at = path.read_bytes(), 0
    for _ in range(index):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return path, at + 2, int.from_bytes(data[at : at + 2], "big")


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip(path: Path, at: int) -> None:
    rewrite(path, lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def last_part(scene: Scene, level: str) -> Path:
    (path,) = (scene.bundle / "tile" / level / "001.p").iterdir()
    return path


def flip_entry(scene: Scene) -> None:
    path, at, length = first_entry(scene, 100)
    flip(path, at + length - 1)


def flip_last_entry(scene: Scene) -> None:
    path = last_part(scene, "entries")
    flip(path, path.stat().st_size - 1)


def drop_entry(scene: Scene) -> None:
    path, at, length = first_entry(scene, 100)
    rewrite(path, lambda data: data[: at - 2] + data[at + length :])


def swap_entries(scene: Scene) -> None:
    path, at, length = first_entry(scene, 100)
    _, other, other_length = first_entry(scene, 101)
    data = path.read_bytes()
    first, second = data[at - 2 : at + length], data[other - 2 : other + other_length]
    path.write_bytes(data.replace(first + second, second + first))


def stretch_length(scene: Scene) -> None:
    path, at, length = first_entry(scene, 255)
    rewrite(path, lambda data: data[: at - 2] + (length + 1).to_bytes(2, "big") + data[at:])


def cut_entries(scene: Scene) -> None:
    rewrite(last_part(scene, "entries"), lambda data: data[:-3])


def lengthen_entries(scene: Scene) -> None:
    rewrite(scene.bundle / "tile/entries/000", lambda data: data + b"\0")


def lengthen_last_entries(scene: Scene) -> None:
    rewrite(last_part(scene, "entries"), lambda data: data + b"\0\0")


def huge_entries(scene: Scene) -> None:
    with (scene.bundle / "tile/entries/000").open("r+b") as file:
        file.truncate(10**12)  # sparse: whoever reads it whole has no memory left


def missing_entries(scene: Scene) -> None:
    (scene.bundle / "tile/entries/000").unlink()


def missing_tile(scene: Scene) -> None:
    (scene.bundle / "tile/0/000").unlink()


def wrong_width(scene: Scene) -> None:
    path = last_part(scene, "0")
    path.rename(path.with_name(str(int(path.name) - 1)))


def flip_tile(scene: Scene) -> None:
    flip(scene.bundle / "tile/0/000", 32 * 100)


def flip_partial_tile(scene: Scene) -> None:
    flip(last_part(scene, "0"), 32 * 3)


def flip_upper_tile(scene: Scene) -> None:
    flip(scene.bundle / "tile/1/000.p/1", 0)


def flip_two_tiles(scene: Scene) -> None:
    flip_partial_tile(scene)  # which is read before the other
    flip_upper_tile(scene)


def lengthen_tile(scene: Scene) -> None:
    rewrite(scene.bundle / "tile/0/000", lambda data: data + b"\0")


def cut_tile(scene: Scene) -> None:
    rewrite(last_part(scene, "0"), lambda data: data[:-1])


def link_tile(scene: Scene) -> None:
    path = scene.bundle / "tile/0/000"
    shutil.move(path, scene.root / "elsewhere")
    path.symlink_to(scene.root / "elsewhere")


def link_folder(scene: Scene) -> None:
    path = scene.bundle / "tile/entries"
    shutil.move(path, scene.root / "elsewhere")
    path.symlink_to(scene.root / "elsewhere")


def pipe_for_tile(scene: Scene) -> None:
    path = scene.bundle / "tile/0/000"
    path.unlink()
    os.mkfifo(path)


def folder_for_tile(scene: Scene) -> None:
    path = scene.bundle / "tile/0/000"
    path.unlink()
    path.mkdir()


def other_head(scene: Scene) -> None:
    (scene.bundle / "checkpoint").write_text(read_tree_head(scene.other) or "")


def forged_head(scene: Scene) -> None:
    head = parse_tree_head(scene.kept_head)
    note = sign_tree_head(origin=head.origin, size=head.size, root=head.root, key=STRANGER)
    (scene.bundle / "checkpoint").write_text(note)


def larger_head(scene: Scene) -> None:
    head = parse_tree_head(scene.kept_head)
    note = sign_tree_head(
        origin=head.origin, size=head.size + 300, root=head.root, key=scene.new_key
    )
    (scene.bundle / "checkpoint").write_text(note)


def endless_head(scene: Scene) -> None:
    head = parse_tree_head(scene.kept_head)
    note = sign_tree_head(origin=head.origin, size=2**63 - 1, root=head.root, key=scene.new_key)
    (scene.bundle / "checkpoint").write_text(note)


def no_head(scene: Scene) -> None:
    (scene.bundle / "checkpoint").write_bytes(b"\xff" * 100)


def long_head(scene: Scene) -> None:
    with (scene.bundle / "checkpoint").open("r+b") as file:
        file.truncate(10**12)


def earlier_head(scene: Scene) -> Path:
    return sorted((scene.bundle / "checkpoints").iterdir(), key=lambda path: int(path.name))[0]


def flip_earlier_head(scene: Scene) -> None:
    rewrite(earlier_head(scene), lambda data: data.replace(b"\xe2\x80\x94 proctor", b"proctor"))


def move_earlier_head(scene: Scene) -> None:
    path = earlier_head(scene)
    path.rename(path.with_name(str(int(path.name) - 1)))


def earlier_head_behind_the_end(scene: Scene) -> None:
    (scene.bundle / "checkpoints/9999").write_text(scene.kept_head)


def link_to_nothing(scene: Scene, path: Path) -> None:
    if path.exists():
        shutil.move(path, scene.root / "moved")
    (scene.root / "empty").mkdir()
    path.symlink_to(scene.root / "empty")


def pipe_for_heads(scene: Scene) -> None:
    shutil.rmtree(scene.bundle / "checkpoints")
    os.mkfifo(scene.bundle / "checkpoints")


def link_to_no_heads(scene: Scene) -> None:
    link_to_nothing(scene, scene.bundle / "checkpoints")


def file_for_blobs(scene: Scene) -> None:
    shutil.rmtree(scene.bundle / "blobs", ignore_errors=True)
    (scene.bundle / "blobs").write_bytes(b"")


def link_to_no_blobs(scene: Scene) -> None:
    link_to_nothing(scene, scene.bundle / "blobs")


def pipe_for_blobs_of_one_letter(scene: Scene) -> None:
    (scene.bundle / "blobs").mkdir(exist_ok=True)
    os.mkfifo(scene.bundle / "blobs/00")


def forked_earlier_head(scene: Scene) -> None:
    head = read_tree_head(scene.fork) or ""
    (scene.bundle / "checkpoints" / str(parse_tree_head(head).size)).write_text(head)


def other_vkey(scene: Scene) -> None:
    shutil.copy(LedgerPaths(scene.other).vkey, scene.bundle / "ledger.vkey")


def long_vkey(scene: Scene) -> None:
    rewrite(scene.bundle / "ledger.vkey", lambda data: data + b"\n")


def no_vkey(scene: Scene) -> None:
    (scene.bundle / "ledger.vkey").unlink()


def flip_blob(scene: Scene) -> None:
    (path,) = (path for path in (scene.bundle / "blobs").rglob("*") if path.is_file())
    flip(path, 3)


def forked_bundle(scene: Scene) -> None:
    shutil.rmtree(scene.bundle)
    export_bundle(scene.fork, scene.bundle)


def earlier_bundle(scene: Scene) -> None:
    shutil.rmtree(scene.bundle)
    export_bundle(scene.earlier, scene.bundle)


Attack = tuple[Callable[[Scene], None], type[VerificationError] | str, str, int | None]
ATTACKS: list[Attack] = [
    (flip_entry, "LinkError", "entry 100 was changed", 100),
    (flip_last_entry, ConsistencyError, "do not match the signed tree head", -1),
    (drop_entry, "LinkError", "entry 100 states index 101", 100),
    (swap_entries, "LinkError", "entry 100 states index 101", 100),
    (stretch_length, MalformedError, "ends within entry 255", 255),
    (cut_entries, MalformedError, "ends within entry", -1),
    (lengthen_entries, MalformedError, "tile/entries/000 has trailing bytes", 255),
    (lengthen_last_entries, MalformedError, "has trailing bytes", -1),
    (huge_entries, MalformedError, "too long", 0),
    (missing_entries, MalformedError, "tile/entries/000 is missing", 0),
    (missing_tile, MalformedError, "tile/0/000 is missing", 0),
    (wrong_width, MalformedError, "is missing", 256),
    (flip_tile, ConsistencyError, "tile/0/000 does not match the entries", 100),
    (flip_partial_tile, ConsistencyError, "does not match the entries", 259),
    (flip_upper_tile, ConsistencyError, "tile/1/000.p/1 does not match the entries", 0),
    (flip_two_tiles, ConsistencyError, "tile/1/000.p/1 does not match the entries", 0),
    (lengthen_tile, MalformedError, "tile/0/000 is too long", 0),
    (cut_tile, ConsistencyError, "does not match the entries", -1),
    (link_tile, MalformedError, "tile/0/000 is a link", 0),
    (link_folder, MalformedError, "tile/entries/000 is a link, or lies behind one", 0),
    (pipe_for_tile, MalformedError, "tile/0/000 is not a plain file", 0),
    (folder_for_tile, MalformedError, "tile/0/000 is not a plain file", 0),
    (other_head, SignatureError, "checkpoint is not a tree head of the ledger", None),
    (forged_head, SignatureError, "0 signatures by proctor", -1),
    (larger_head, MalformedError, "is missing", 256),
    (endless_head, MalformedError, "is missing", 256),
    (no_head, MalformedError, "checkpoint is not text", None),
    (long_head, MalformedError, "checkpoint is too long", None),
    (flip_earlier_head, MalformedError, "malformed signature line", None),
    (move_earlier_head, ConsistencyError, "states size", None),
    (earlier_head_behind_the_end, ConsistencyError, "tree head of size 9999", None),
    (pipe_for_heads, MalformedError, "checkpoints is not a folder", None),
    (link_to_no_heads, MalformedError, "checkpoints is not a folder, or lies behind a link", None),
    (file_for_blobs, MalformedError, "blobs is not a folder", None),
    (link_to_no_blobs, MalformedError, "blobs is not a folder, or lies behind a link", None),
    (pipe_for_blobs_of_one_letter, MalformedError, "blobs/00 is not a folder", None),
    (forked_earlier_head, SignatureError, "signatures by proctor", None),
    (other_vkey, SignatureError, "public key is not the one given", None),
    (long_vkey, MalformedError, r"ledger\.vkey must be one line", None),
    (no_vkey, MalformedError, r"ledger\.vkey is missing", None),
    (flip_blob, BlobError, "the blob was changed", None),
    (forked_bundle, SignatureError, "the kept tree head is not from this ledger", None),
    (earlier_bundle, SignatureError, "the kept tree head is not from this ledger", None),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack[0].__name__)
def test_tampered_bundle_is_rejected(scene: Scene, size: int, attack: Attack) -> None:
    tamper, error, message, index = attack
    held = check_bundle(scene.bundle, vkey=scene.vkey, kept_heads=[scene.kept_head])
    assert held.ok
    tamper(scene)
    report = check_bundle(scene.bundle, vkey=scene.vkey, kept_heads=[scene.kept_head])
    assert not report.ok
    assert report.error is not None
    assert report.error_type == (error if isinstance(error, str) else error.__name__)
    assert re.search(message, report.error)
    if index is not None:
        assert report.index == (size - 1 if index == -1 else index)
    home = scene.root / "imported"  # what does not hold is not imported, not even in part
    with pytest.raises(VerificationError, match=message):
        import_bundle(scene.bundle, home, vkey=scene.vkey, kept_heads=[scene.kept_head])
    assert not home.exists()
    assert not [path for path in scene.root.iterdir() if path.name.startswith(".imported")]


def test_bundle_behind_or_beside_a_kept_head_is_rejected(scene: Scene, tmp_path: Path) -> None:
    kept = read_tree_head(scene.fork) or ""
    export_bundle(scene.fork, tmp_path / "fork")
    assert check_bundle(tmp_path / "fork", kept_heads=[kept]).ok  # the honest control
    export_bundle(scene.earlier, tmp_path / "earlier")
    report = check_bundle(tmp_path / "earlier", vkey=scene.vkey, kept_heads=[kept])
    assert (report.ok, report.error_type) == (False, "ContradictionError")
    assert report.contradiction == (kept, read_tree_head(scene.earlier))
    with recorder(scene.earlier) as into:
        Writer(into).batch(50, text="a third story")
    export_bundle(scene.earlier, tmp_path / "third")
    report = check_bundle(tmp_path / "third", vkey=scene.vkey, kept_heads=[kept])
    assert (report.ok, report.error_type) == (False, "ContradictionError")


def test_what_is_no_bundle_is_told_from_one_that_fails(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="bundle not found; check the path"):
        check_bundle(tmp_path / "nothing")
    with pytest.raises(KeptHeadError, match="the kept tree head cannot be read"):
        check_bundle(scene.bundle, kept_heads=["no note"])


def owner_signed(tmp_path: Path, versions: list[int]) -> Path:
    """Let the key's owner sign entries with these versions of one stream."""
    made = HandmadeLedger()
    for version in versions:
        made.versions[b"s" * 16] = version - 1
        made.add(b"s" * 16, "test.event", b"body")
    made.sign()
    return made.write_bundle(tmp_path)


@pytest.mark.parametrize(
    ("versions", "index"),
    [([1, 2, 4], 2), ([1, 1], 1), ([2], 0), ([1, 2, 3, 2, 1], 3), ([0, 2], 1)],
)
def test_stream_out_of_step_is_rejected(tmp_path: Path, versions: list[int], index: int) -> None:
    assert check_bundle(owner_signed(tmp_path / "honest", [0, 1, 2])).ok
    folder = owner_signed(tmp_path / "bundle", versions)
    report = check_bundle(folder)
    assert (report.error_type, report.index) == ("ConsistencyError", index)
    assert report.error == f"entry {index} is not the next version of its stream"
    with pytest.raises(ConsistencyError, match=f"entry {index} is not the next version"):
        import_bundle(folder, tmp_path / "ledger")


def test_versions_of_more_streams_than_fit_are_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_MAX_STREAMS", 2)
    monkeypatch.setattr(verify, "_CHUNK", 3)
    for skipped in (0, 1):
        made = HandmadeLedger()
        for version in range(4):
            for stream in range(10):
                made.versions[bytes([stream]) * 16] = version
                if version == 3 and stream == 7:
                    made.versions[bytes([stream]) * 16] += skipped
                made.add(bytes([stream]) * 16, "test.event", b"body")
        made.sign()
        report = check_bundle(made.write_bundle(tmp_path / f"{skipped}"))
        assert (report.ok, report.index) == (not skipped, 37 if skipped else None)


def test_bottomless_folder_is_not_walked_to_its_end(scene: Scene) -> None:
    scene.bundle.joinpath("blobs", *["ab"] * 200).mkdir(parents=True)
    (scene.bundle / "checkpoints" / ".hidden").write_text("")
    Path(os.fsdecode(os.fsencode(scene.bundle) + b"/\xff")).write_text("")  # a name that is no text
    assert check_bundle(scene.bundle, vkey=scene.vkey).ok
    names = strangers(scene.bundle)
    assert names == sorted(["\\xff", "blobs/" + "ab/" * 9, "checkpoints/.hidden"])
    import_bundle(scene.bundle, scene.root / "imported")


def test_names_that_mean_nothing_in_a_bundle_are_ignored(scene: Scene) -> None:
    for name in ("0", "007", ".new.0123", "x", "9" * 20):
        (scene.bundle / "checkpoints" / name).write_text(scene.kept_head)
    (scene.bundle / "checkpoints/-1").mkdir()
    (scene.bundle / "blobs/00").mkdir(parents=True)
    (scene.bundle / "blobs/00/x").write_bytes(b"")
    os.mkfifo(scene.bundle / "blobs/x")
    assert check_bundle(scene.bundle, vkey=scene.vkey).ok


def test_bundle_of_an_empty_ledger_is_rejected(scene: Scene) -> None:
    origin = scene.vkey.partition("+")[0]
    root = hashlib.sha256(b"").digest()
    bundle = scene.root / "nothing"
    bundle.mkdir()
    (bundle / "ledger.vkey").write_text(f"{scene.vkey.strip()}\n")
    note = sign_tree_head(origin=origin, size=0, root=root, key=scene.old_key)
    (bundle / "checkpoint").write_text(note)
    report = check_bundle(bundle, vkey=scene.vkey)
    assert report.error_type == "ConsistencyError"


@pytest.mark.slow
def test_versions_of_many_streams_are_checked(tmp_path: Path) -> None:
    """More than are kept in memory: each stream's first event, and much later its second."""
    with recorder(tmp_path / "ledger") as into:
        for version in (1, 2):
            for start in range(0, 130_000, 1_000):
                streams = range(start, start + 1_000)
                into.insert_events(
                    [StoredEvent(UUID(int=n), version, "test.event", b"") for n in streams]
                )
    export_bundle(tmp_path / "ledger", tmp_path / "bundle")
    assert check_bundle(tmp_path / "bundle").ok


def test_strangers_are_named_and_do_no_harm(scene: Scene) -> None:
    (scene.bundle / "README").write_text("hello")
    (scene.bundle / "tile/0/001.p/7").write_bytes(b"left over from a smaller tree")
    (scene.bundle / "tile/9").mkdir()
    (scene.bundle / "tile/9/000").write_bytes(b"")
    (scene.bundle / "blobs/link").symlink_to("/etc/passwd")
    (scene.bundle / "etc").symlink_to("/etc")
    assert strangers(scene.bundle) == ["README", "blobs/link", "etc", "tile/9/000"]
    assert check_bundle(scene.bundle, vkey=scene.vkey).ok


# --- Export ---------------------------------------------------------------------------------------


def test_export_extends_an_earlier_export(honest: Scene, tmp_path: Path, size: int) -> None:
    out = tmp_path / "bundle"
    first = export_bundle(honest.earlier, out)
    assert check_bundle(out, vkey=honest.vkey).size == first.head.size < size
    whole = out / "tile/entries/000"
    assert not whole.exists()
    export_bundle(honest.ledger, out)
    assert check_bundle(out, vkey=honest.vkey).size == size
    assert strangers(out) == []
    fresh, extended = files(honest.bundle), files(out)
    assert {name: extended[name] for name in fresh} == fresh
    before = whole.stat().st_mtime_ns
    export_bundle(honest.ledger, out)
    assert files(out) == extended
    assert whole.stat().st_mtime_ns == before  # what is there is not written again


def test_export_takes_in_a_later_cosignature(scene: Scene, tmp_path: Path) -> None:
    with recorder(scene.earlier) as into:
        Writer(into).batch(3)
    export_bundle(scene.earlier, tmp_path / "bundle")
    with recorder(scene.earlier) as into:
        note = cosign(into, seconds=1_800_000_000, names=["witness-1.example"])
    export_bundle(scene.earlier, tmp_path / "bundle")
    assert (tmp_path / "bundle/checkpoint").read_text() == note


@pytest.mark.parametrize("which", ["earlier", "fork"])
def test_export_of_what_does_not_continue_the_folder_is_refused(scene: Scene, which: str) -> None:
    out = scene.root / "out"
    with recorder(scene.earlier) as into:
        Writer(into).batch(20)
    with recorder(scene.fork) as into:
        Writer(into).batch(20, text="more")
    shutil.copytree(scene.earlier, scene.root / "longer")
    with recorder(scene.root / "longer") as into:
        Writer(into).batch(20)
    export_bundle(scene.root / "longer", out)
    before = files(out)
    directory = {"earlier": scene.earlier, "fork": scene.fork}[which]
    with pytest.raises(ContradictionError, match=r"it was truncated|was rewritten"):
        export_bundle(directory, out)
    assert files(out) == before


def test_export_over_another_ledgers_bundle_is_refused(scene: Scene) -> None:
    before = files(scene.bundle)
    with pytest.raises(BundleError, match="the bundle of a different ledger; export into an empty"):
        export_bundle(scene.other, scene.bundle)
    assert files(scene.bundle) == before


def test_export_into_what_is_no_bundle_is_refused(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not part of a bundle; export into an empty folder"):
        export_bundle(scene.ledger, scene.root)
    with pytest.raises(BundleError, match="is a file; give a folder"):
        export_bundle(scene.ledger, scene.proof)
    (scene.bundle / "checkpoint").write_text("no note")
    with pytest.raises(BundleError, match=r"cannot be read: .*; export into an empty folder"):
        export_bundle(scene.ledger, scene.bundle)


def test_export_of_a_broken_ledger_is_refused(scene: Scene, tmp_path: Path) -> None:
    data = scene.database.read_bytes()
    scene.database.write_bytes(data.replace(b"body 2", b"body 7", 1))
    with pytest.raises(VerificationError):
        export_bundle(scene.ledger, tmp_path / "bundle")
    assert not (tmp_path / "bundle/checkpoint").exists()


def test_export_of_an_empty_ledger_is_refused(tmp_path: Path) -> None:
    with recorder(tmp_path / "empty"):
        pass
    with pytest.raises(BundleError, match="the ledger is empty"):
        export_bundle(tmp_path / "empty", tmp_path / "bundle")


def test_blobs_are_left_out_on_demand(honest: Scene, tmp_path: Path) -> None:
    assert export_bundle(honest.ledger, tmp_path / "bundle", blobs=False).blobs == 0
    assert not (tmp_path / "bundle/blobs").exists()
    assert check_bundle(tmp_path / "bundle", vkey=honest.vkey).ok


def test_changed_blob_is_not_handed_over(scene: Scene, tmp_path: Path) -> None:
    (blob,) = (path for path in LedgerPaths(scene.ledger).blobs.rglob("*") if path.is_file())
    flip(blob, 0)
    with pytest.raises(BlobError, match="the blob was changed"):
        export_bundle(scene.ledger, tmp_path / "bundle")
    assert not (tmp_path / "bundle/checkpoint").exists()


def killed_export(directory: Path, out: Path, *, after: float) -> None:
    """Export in a process of its own, and kill it after so many seconds."""
    child = os.fork()
    if child == 0:
        try:
            export_bundle(directory, out)
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.slow
def test_folder_holds_when_an_export_is_killed(honest: Scene, tmp_path: Path, size: int) -> None:
    rng = random.Random("kills")
    out = tmp_path / "bundle"
    export_bundle(honest.earlier, out)
    start = check_bundle(out, vkey=honest.vkey).size
    base = tmp_path / "base"
    shutil.copytree(out, base)
    seen = set()
    for _ in range(25):
        shutil.rmtree(out)
        shutil.copytree(base, out)
        killed_export(honest.ledger, out, after=rng.uniform(0, 0.06))
        report = check_bundle(out, vkey=honest.vkey)
        assert report.ok, report.error
        assert report.size in (start, size)
        seen.add(len(files(out)))
        export_bundle(honest.ledger, out)
        assert check_bundle(out, vkey=honest.vkey).size == size
        assert strangers(out) == []
        assert not list(out.rglob(".new.*"))
    assert len(seen) > 1  # some were killed on the way


# --- Import ---------------------------------------------------------------------------------------


def entries(directory: Path) -> list[bytes]:
    with open_verified(directory) as ledger:
        return list(ledger.raw_entries())


def test_imported_ledger_is_the_one_that_was_exported(
    honest: Scene, tmp_path: Path, size: int
) -> None:
    done = import_bundle(honest.bundle, tmp_path / "ledger", vkey=honest.vkey)
    assert (done.size, done.new, done.blobs) == (size, size, 1)
    assert check_ledger(tmp_path / "ledger", vkey=honest.vkey, kept_head=honest.kept_head).ok
    assert entries(tmp_path / "ledger") == entries(honest.ledger)
    assert files(tmp_path / "ledger/blobs") == files(honest.bundle / "blobs")
    assert read_tree_head(tmp_path / "ledger") == honest.kept_head
    again = tmp_path / "again"  # and can be handed on
    export_bundle(tmp_path / "ledger", again)
    assert files(again) == files(honest.bundle)


def test_imported_ledger_is_read_only(honest: Scene, tmp_path: Path) -> None:
    import_bundle(honest.bundle, tmp_path / "ledger")
    with (
        recorder(tmp_path / "ledger") as into,
        pytest.raises(ReadOnlyError, match="the private key is not here"),
    ):
        Writer(into).batch(1)


def test_import_extends_an_earlier_import(honest: Scene, tmp_path: Path, size: int) -> None:
    export_bundle(honest.earlier, tmp_path / "bundle")
    first = import_bundle(tmp_path / "bundle", tmp_path / "ledger", vkey=honest.vkey)
    assert first.size == first.new < size
    export_bundle(honest.ledger, tmp_path / "bundle")
    second = import_bundle(tmp_path / "bundle", tmp_path / "ledger", vkey=honest.vkey)
    assert (second.size, second.new) == (size, size - first.size)
    third = import_bundle(tmp_path / "bundle", tmp_path / "ledger", vkey=honest.vkey)
    assert (third.size, third.new) == (size, 0)
    assert check_ledger(tmp_path / "ledger", vkey=honest.vkey, kept_head=honest.kept_head).ok
    assert entries(tmp_path / "ledger") == entries(honest.ledger)


def test_import_keeps_tree_heads_that_are_one_entry_apart(tmp_path: Path) -> None:
    made, witness = HandmadeLedger(), Signer("witness.example", 3, kind=4)
    for _ in range(6):
        made.add(b"s" * 16, "test.event", b"body")
        made.sign((witness, 1_800_000_000))
    import_bundle(made.write_bundle(tmp_path / "bundle"), tmp_path / "ledger")
    with open_verified(tmp_path / "ledger") as ledger:
        assert list(ledger.head_notes()) == list(made.notes.values())


def test_import_joins_the_cosignatures(scene: Scene, tmp_path: Path) -> None:
    with recorder(scene.earlier) as into:
        Writer(into).batch(3)
    for name in ("witness-1.example", "witness-2.example"):
        copy = tmp_path / name
        shutil.copytree(scene.earlier, copy)
        with recorder(copy) as into:
            cosign(into, seconds=1_800_000_000, names=[name])
        export_bundle(copy, tmp_path / f"{name}.bundle")
        import_bundle(tmp_path / f"{name}.bundle", tmp_path / "ledger")
    note = read_tree_head(tmp_path / "ledger") or ""
    assert note.count("\n\u2014 ") == 3
    assert check_ledger(tmp_path / "ledger", vkey=scene.vkey, kept_head=note).ok


def test_import_of_what_does_not_continue_the_ledger_is_refused(scene: Scene) -> None:
    home = scene.root / "imported"
    export_bundle(scene.fork, scene.root / "forked")
    import_bundle(scene.root / "forked", home)
    before = entries(home)
    export_bundle(scene.earlier, scene.root / "behind")
    with pytest.raises(ContradictionError, match="ask for a newer bundle"):
        import_bundle(scene.root / "behind", home)
    with pytest.raises(ContradictionError, match="the ledger was rewritten"):
        import_bundle(scene.bundle, home)  # longer, but of another story
    with recorder(scene.earlier) as into:
        Writer(into).batch(60, text="a third story")
    export_bundle(scene.earlier, scene.root / "third")
    with pytest.raises(ContradictionError, match="the ledger was rewritten"):
        import_bundle(scene.root / "third", home)
    export_bundle(scene.other, scene.root / "another")
    with pytest.raises(BundleError, match="contains a different ledger; import into another home"):
        import_bundle(scene.root / "another", home)
    assert entries(home) == before
    assert check_ledger(home).ok


def test_import_over_a_ledger_that_is_written_here_is_refused(scene: Scene) -> None:
    with pytest.raises(BundleError, match="has its private key"):
        import_bundle(scene.bundle, scene.ledger)
    full = scene.root / "full"
    full.mkdir()
    (full / "something").write_text("else")
    with pytest.raises(BundleError, match="is not empty and does not contain a ledger"):
        import_bundle(scene.bundle, full)


def test_import_into_a_tampered_copy_is_refused(scene: Scene, tmp_path: Path) -> None:
    import_bundle(scene.bundle, tmp_path / "ledger")
    database = LedgerPaths(tmp_path / "ledger").database
    database.write_bytes(database.read_bytes().replace(b"body 2", b"body 7", 1))
    with pytest.raises(VerificationError):
        import_bundle(scene.bundle, tmp_path / "ledger")


@settings(max_examples=5, deadline=None)  # each one writes two ledgers
@given(seed=st.integers(0, 10_000), count=st.integers(1, 300))
def test_busy_bundle_made_by_hand_is_imported_and_handed_on(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int
) -> None:
    hand_on(tmp_path_factory, seed, count)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 300))
def test_many_busy_bundles_made_by_hand_are_imported_and_handed_on(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int
) -> None:
    hand_on(tmp_path_factory, seed, count)


def hand_on(tmp_path_factory: pytest.TempPathFactory, seed: int, count: int) -> None:
    """Keys, authors, rotations and cosignatures survive the round trip to the byte."""
    folder = tmp_path_factory.mktemp("busy")
    made = busy_ledger(seed, size=count)
    made.write_bundle(folder / "bundle")
    import_bundle(folder / "bundle", folder / "ledger", vkey=made.first.vkey)
    assert entries(folder / "ledger") == made.entries
    export_bundle(folder / "ledger", folder / "again")
    again = files(folder / "again")
    assert again.pop("verify.py")
    assert again == files(folder / "bundle")


def _blob(folder: Path) -> Path:
    return next(path for path in sorted((folder / "blobs").rglob("*")) if path.is_file())


def test_sparse_blob_of_terabytes_is_rejected_before_it_is_read(
    scene: Scene, tmp_path: Path
) -> None:
    os.truncate(_blob(scene.bundle), 4 * 2**40)
    with pytest.raises(BundleError, match=r"has 4,398,046,511,104 bytes in blobs/.*2,147,483,648"):
        check_bundle(scene.bundle)
    with pytest.raises(BundleError, match="--max-blob-bytes"):
        import_bundle(scene.bundle, tmp_path / "home")
    assert not (tmp_path / "home").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".home")]


def test_many_sparse_blobs_are_rejected_by_their_sum(scene: Scene, tmp_path: Path) -> None:
    for number in range(40):
        digest = hashlib.sha256(b"%d" % number).hexdigest()
        path = scene.bundle / "blobs" / digest[:2] / digest
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, 2 * 2**30)
    with pytest.raises(BundleError, match=r"bytes in its blobs .* is 68,719,476,736"):
        import_bundle(scene.bundle, tmp_path / "home")


def test_blobs_that_the_disk_has_no_room_for_are_not_copied(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(_blob(scene.bundle), 2**30)
    room = shutil.disk_usage(tmp_path)._replace(free=2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    with pytest.raises(BundleError, match=r"the blobs need [0-9,]+ bytes, and [0-9,]+ are free"):
        import_bundle(scene.bundle, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_limit_of_blobs_is_the_readers_own(scene: Scene, tmp_path: Path) -> None:
    blobs = (scene.bundle / "blobs").rglob("*")
    total = sum(path.stat().st_size for path in blobs if path.is_file())
    with pytest.raises(BundleError, match=f"the limit is {total - 1:,}"):
        check_bundle(scene.bundle, max_blob_bytes=total - 1)
    assert check_bundle(scene.bundle, max_blob_bytes=total).ok
    assert import_bundle(scene.bundle, tmp_path / "home", max_blob_bytes=total).blobs


def test_second_verifier_does_not_read_a_sparse_blob(scene: Scene) -> None:
    os.truncate(_blob(scene.bundle), 4 * 2**40)
    source = str(second_verifier.__file__)
    program = [sys.executable, "-I", source, str(scene.bundle), "--vkey", scene.vkey]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "more than 68719476736 bytes" in done.stderr) == (2, True)
