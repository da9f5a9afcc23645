"""The verifier in one file: what it lets hold, what it names, where it agrees with the library."""

import argparse
import ast
import importlib.util
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest
from circular_pages import repeat_first_row
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from eventsourcing.persistence import StoredEvent
from handmade_ledgers import (
    ALICE,
    JUDGE,
    ORIGIN,
    SECOND,
    THIRD,
    WITNESS,
    HandmadeLedger,
    Signer,
    busy_ledger,
    encode64,
    sha256,
)

from ledger.application import LedgerApplication
from ledger.errors import LedgerError, VerificationError
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle
from ledger.handover.proof_files import open_proof, write_proofs
from ledger.mapper import EventRegistry
from ledger.verification.reader import check_ledger, open_verified

SOURCE = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
VKEY = HandmadeLedger().first.vkey


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("second_verifier_on_trial", SOURCE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERIFIER = load()
Verdict = tuple[bool, str, int | None]  # held, what was said, index


def second(
    target: Path, *, vkey: str = VKEY, head: Path | None = None, witness: str = ""
) -> Verdict:
    arguments = argparse.Namespace(
        blob_bytes=2**36,
        target=str(target),
        vkey=vkey,
        head=head,
        witness=[witness] if witness else [],
    )
    try:
        return True, VERIFIER.check(arguments), None
    except VERIFIER.Failed as error:
        return False, str(error), error.index
    except sqlite3.Error as error:
        return False, str(error), None


def first(directory: Path, *, vkey: str = VKEY) -> Verdict:
    """What the library says."""
    try:
        report = check_ledger(directory, vkey=vkey)
    except LedgerError as error:
        return False, str(error), None
    return report.ok, str(report.error), report.index


def first_of_bundle(folder: Path) -> Verdict:
    try:
        report = check_bundle(folder, vkey=VKEY)
    except LedgerError as error:
        return False, str(error), None
    return report.ok, str(report.error), report.index


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SOURCE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def made() -> HandmadeLedger:
    return busy_ledger(1, size=600)


@pytest.fixture(scope="module")
def honest(made: HandmadeLedger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ledger.sqlite, bundle/ and some proofs; copy it before you touch it."""
    folder = tmp_path_factory.mktemp("honest")
    made.write_database(folder)
    (folder / "bundle").mkdir()
    made.write_bundle(folder / "bundle")
    made.write_proof(333, folder / "333.tlog-proof")
    return folder


@pytest.fixture
def scene(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "scene"))


def test_the_file_shares_no_code_with_the_ledger() -> None:
    imports = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SOURCE.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imports - sys.stdlib_module_names == {"cryptography"}
    house = SOURCE.parents[2]
    packages = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
    for package in packages:
        for path in (house / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    assert node.module != "ledger.handover.second_verifier", path


@pytest.mark.parametrize("target", ["ledger.sqlite", "bundle", "333.tlog-proof"])
def test_honest_target_holds_by_itself_on_the_command_line(honest: Path, target: str) -> None:
    done = run(honest / target, "--vkey", VKEY, "--witness", WITNESS.vkey)
    assert done.stdout.startswith("held: "), done
    assert done.stdout.count("\n") == 1
    assert (done.returncode, done.stderr) == (0, "")


def test_failure_is_one_line_and_exit_code_1(scene: Path) -> None:
    with closing(sqlite3.connect(scene / "ledger.sqlite")) as db, db:
        db.execute("DELETE FROM entries WHERE idx = 17")
    done = run(scene / "ledger.sqlite", "--vkey", scene / "ledger.vkey")
    assert done.stdout == "failed: entry 17: it is missing, or a row is out of place\n"
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere", "--vkey", VKEY],
        ["ledger.sqlite"],
        ["ledger.sqlite", "--vkey", "no key"],
        ["ledger.sqlite", "--vkey", WITNESS.vkey],
        ["ledger.sqlite", "--vkey", VKEY, "--head", "ledger.vkey"],
        ["ledger.sqlite", "--vkey", VKEY, "--head", "nowhere"],
        ["ledger.sqlite", "--vkey", VKEY, "--witness", VKEY],
    ],
)
def test_wrong_usage_is_exit_code_2(
    honest: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(honest)
    done = run(*arguments)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_librarys_own_ledger_holds(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry()) as app:
        for version in range(1, 300):
            event = StoredEvent(UUID(int=version % 2), (version + 1) // 2, "test.event", b"body")
            app.recorder.insert_events([event])
    done = run(tmp_path / "ledger.sqlite", "--vkey", tmp_path / "ledger.vkey")
    assert done.stdout.startswith("held: 299 entries of proctor.local/"), done


def test_ledger_of_a_folder_without_write_access_holds(scene: Path) -> None:
    for path in scene.glob("ledger.sqlite-*"):
        path.unlink()
    scene.chmod(0o555)
    try:
        assert second(scene / "ledger.sqlite")[0]
    finally:
        scene.chmod(0o755)


def test_cosignatures_are_told_for_the_newest_head_that_has_one(
    honest: Path, made: HandmadeLedger
) -> None:
    newest = max(size for size, note in made.notes.items() if WITNESS.name in note)
    for target in ("ledger.sqlite", "bundle"):
        said = second(honest / target, witness=WITNESS.vkey)[1]
        assert f"; witness.example/w1 cosigned size {newest} at 179000000" in said
    stranger = Signer("stranger.example", 99, kind=4)
    assert second(honest / "bundle", witness=stranger.vkey)[1].endswith("cosigned nothing valid")


@pytest.mark.parametrize(
    "line",
    [
        WITNESS.cosign("of another text\n", 1_790_000_000),
        WITNESS.line("the head's own text\n"),
        WITNESS.cosign("{text}", 0),
        WITNESS.cosign("{text}", 2**63),
    ],
)
def test_cosignature_that_does_not_hold_counts_as_none_and_is_told(
    line: str, tmp_path: Path
) -> None:
    made = HandmadeLedger()
    made.add(bytes(16), "test.event", b"")
    made.sign((WITNESS, 1_790_000_000))
    text = made.head_text()
    lines = {
        WITNESS.cosign("{text}", seconds): WITNESS.cosign(text, seconds) for seconds in (0, 2**63)
    }
    path = made.write_proof(0, tmp_path / "p.tlog-proof")
    said = second(path, witness=WITNESS.vkey)[1]
    assert said.endswith("; witness.example/w1 cosigned size 1 at 1790000000 s")
    bad = lines.get(line, line)
    good = path.read_text()
    path.write_text(good + bad)
    assert second(path) == (True, second(path)[1], None)  # of an unknown key, as far as is known
    told = ", and a line in its name is invalid at size 1"
    assert second(path, witness=WITNESS.vkey)[1] == said + told
    path.write_text("".join(good.splitlines(keepends=True)[:-1]) + bad)
    assert second(path, witness=WITNESS.vkey)[1].endswith(f"cosigned nothing valid{told}")


def test_revoked_witness_does_not_count_from_its_revocation_on(tmp_path: Path) -> None:
    made = HandmadeLedger()
    root = ("ledger", made.ledger)
    made.grant("witness", WITNESS, root)
    made.sign((WITNESS, 50))
    made.add(bytes(16), "test.event", b"")
    made.sign((WITNESS, 100))  # after `since`, or so it says
    made.say("key.revoked", root, role="witness", vkey=WITNESS.vkey, since=100 * 10**9, reason="")
    made.sign((WITNESS, 60))
    path = made.write_database(tmp_path)
    said = second(path, witness=WITNESS.vkey, vkey=made.first.vkey)[1]
    assert said.endswith("cosigned size 1 at 50 s")
    made.grant("witness", WITNESS, root)
    made.sign((WITNESS, 110))
    again = tmp_path / "again"
    again.mkdir()
    path = made.write_database(again)
    assert second(path, witness=WITNESS.vkey)[1].endswith("cosigned size 4 at 110 s")


def test_earliest_time_counts_when_a_witness_cosigned_twice(tmp_path: Path) -> None:
    made = HandmadeLedger()
    made.add(bytes(16), "test.event", b"")
    made.sign((WITNESS, 30), (WITNESS, 10), (WITNESS, 20))
    said = second(made.write_proof(0, tmp_path / "p.tlog-proof"), witness=WITNESS.vkey)[1]
    assert said.endswith("; witness.example/w1 cosigned size 1 at 10 s")


# --- Kept heads ---


def test_kept_head_is_what_shows_that_a_ledger_was_cut(scene: Path, made: HandmadeLedger) -> None:
    sizes = sorted(made.notes)
    kept = scene / "kept"
    for size in (sizes[0], sizes[-2], sizes[-1]):
        kept.write_text(made.notes[size])
        for target in ("ledger.sqlite", "bundle"):
            assert second(scene / target, head=kept)[0]
    with closing(sqlite3.connect(scene / "ledger.sqlite")) as db, db:
        db.execute("DELETE FROM entries WHERE idx >= ?", (sizes[-2],))
        db.execute("DELETE FROM tree_heads WHERE size > ?", (sizes[-2],))
    assert second(scene / "ledger.sqlite")[0]  # it once was like this
    held, said, index = second(scene / "ledger.sqlite", head=kept)
    assert (held, index) == (False, sizes[-2])
    assert "covers more entries than there are" in said


def test_kept_head_of_another_history_is_rejected(honest: Path, tmp_path: Path) -> None:
    fork = busy_ledger(2, size=100)
    size, note = next(iter(fork.notes.items()))
    (tmp_path / "kept").write_text(note)
    for target in ("ledger.sqlite", "bundle"):
        held, _, index = second(honest / target, head=tmp_path / "kept")
        assert not held
        assert index is not None
        assert index < size


def test_kept_head_by_another_key_is_rejected(
    honest: Path, made: HandmadeLedger, tmp_path: Path
) -> None:
    text = made.head_text()
    (tmp_path / "kept").write_text(f"{text}\n{Signer(ORIGIN, 77).line(text)}")
    held, said, _ = second(honest / "bundle", head=tmp_path / "kept")
    assert not held
    assert "not signed, once, by the key in force" in said


# --- Authority ---


def small(told: Callable[[HandmadeLedger], None]) -> HandmadeLedger:
    made = HandmadeLedger()
    made.grant("operator", ALICE, ("ledger", made.ledger))
    told(made)
    made.sign()
    return made


def judged(made: HandmadeLedger) -> None:
    made.grant("judge", JUDGE, ("operator", ALICE))


def judged_twice(made: HandmadeLedger) -> None:
    judged(made)
    judged(made)


def revoked_judge(made: HandmadeLedger) -> None:
    judged(made)
    body = {"role": "judge", "vkey": JUDGE.vkey, "since": 5, "reason": "lost"}
    made.say("key.revoked", ("operator", ALICE), **body)


def granted_again(made: HandmadeLedger, by: str, *, role: str = "judge") -> None:
    revoked_judge(made)
    made.grant(role, JUDGE, (by, made.ledger if by == "ledger" else ALICE))


def judging_again(made: HandmadeLedger) -> None:
    granted_again(made, "ledger")
    made.add(bytes(16), "test.event", b"", ("judge", JUDGE))


def revoke_by_ledger(made: HandmadeLedger, role: str, key: Signer) -> None:
    if role == "judge":
        judged(made)
    body = {"role": role, "vkey": key.vkey, "since": 5, "reason": "stolen"}
    made.say("key.revoked", ("ledger", made.ledger), **body)


def dislodged(made: HandmadeLedger) -> None:
    revoke_by_ledger(made, "operator", ALICE)
    made.grant("operator", ALICE, ("ledger", made.ledger))
    judged(made)


def revoked_since_no_time(made: HandmadeLedger) -> None:
    judged(made)
    body = {"role": "judge", "vkey": JUDGE.vkey, "since": -1, "reason": "lost"}
    made.say("key.revoked", ("operator", ALICE), **body)


def raw(made: HandmadeLedger, name: str, body: bytes, *, author: Signer | None = ALICE) -> None:
    made.add(made.authority, name, body, ("operator", author) if author else None)


def rotation_signed_by(*signers: Signer, to: Signer = SECOND) -> Callable[[HandmadeLedger], None]:
    def told(made: HandmadeLedger) -> None:
        text = f"ledger/rotation/v1\n{ORIGIN}\n{made.ledger.vkey}\n{to.vkey}\n"
        made.say("key.rotated", note=text + "\n" + "".join(key.line(text) for key in signers))
        made.ledger = to

    return told


def rotation_with(*, title: str = "ledger/rotation/v1", more: str = "") -> Callable[..., None]:
    def told(made: HandmadeLedger) -> None:
        text = f"{title}\n{ORIGIN}\n{made.ledger.vkey}\n{SECOND.vkey}\n{more}"
        made.say("key.rotated", note=f"{text}\n{LEDGER.line(text)}{SECOND.line(text)}")
        made.ledger = SECOND

    return told


def late(made: HandmadeLedger) -> None:
    made.time = 2**63
    made.add(bytes(16), "x", b"")


def rotated_back(made: HandmadeLedger) -> None:
    old = made.ledger
    made.rotate(SECOND)
    made.rotate(old)


def old_key_signs_on(made: HandmadeLedger) -> None:
    old = made.ledger
    made.rotate(SECOND)
    made.ledger = old


def by_revoked_judge(made: HandmadeLedger) -> None:
    revoked_judge(made)
    made.add(bytes(16), "test.event", b"", ("judge", JUDGE))


def by_judge_that_is_revoked_here(made: HandmadeLedger) -> None:
    judged(made)
    made.add(bytes(16), "test.event", b"", ("judge", JUDGE))
    body = {"role": "operator", "vkey": ALICE.vkey, "since": 5, "reason": "leaves"}
    made.say("key.revoked", ("operator", ALICE), **body)


LEDGER = HandmadeLedger().ledger
BY_ALICE = ("operator", ALICE)
GRANT = b"\x83\xa1v\x01\xa4role\xa5judge\xa4vkey\xd9" + bytes([len(JUDGE.vkey)])
GRANT += JUDGE.vkey.encode()

P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")  # before a point
POINT = derive_private_key(5, SECP256R1()).public_key()


def publisher(point: bytes, *, named: bytes = b"", before: bytes = P256, kind: int = 2) -> str:
    """Return the vkey of a publisher, by hand from the format page."""
    key_id = sha256(named + before + point)[:4].hex()
    return f"shop+{key_id}+{encode64(bytes([kind]) + before + point)}"


def published(vkey: str) -> Callable[[HandmadeLedger], None]:
    return lambda made: made.say("key.granted", BY_ALICE, role="publisher", vkey=vkey)


def published_again(made: HandmadeLedger) -> None:
    of = {"role": "publisher", "vkey": SHOP}
    made.say("key.granted", BY_ALICE, **of)
    made.say("key.revoked", BY_ALICE, **of, since=5, reason="lost")
    made.say("key.granted", ("ledger", made.ledger), **of)


RAW = POINT.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
SHOP = publisher(RAW)

LARGEST_BODY = 65_535 - 78  # bytes, in an entry without author and with a name of one byte

HONEST: dict[str, Callable[[HandmadeLedger], None]] = {
    "judge": judged,
    "revoked": revoked_judge,
    "last words": by_judge_that_is_revoked_here,
    "rotation": rotation_signed_by(LEDGER, SECOND),
    "rotation of four lines": rotation_with(),
    "grant in raw bytes": lambda made: raw(made, "key.granted", GRANT),
    "clock in raw bytes": lambda made: raw(
        made, "clock.jumped", b"\x83\xa1v\x01\xa2by\xff\xa5clock\x01", author=None
    ),
    "clock": lambda made: made.say("clock.jumped", by=-(2**40), clock=2**60),
    "elsewhere": lambda made: made.add(bytes(16), "key.granted", b"means nothing here"),
    "largest entry": lambda made: made.add(bytes(16), "x", bytes(LARGEST_BODY)),
    "operator granted by the ledger": lambda made: made.grant(
        "operator", JUDGE, ("ledger", made.ledger)
    ),
    "operator revoked by the ledger, and granted again": dislodged,
    "judge granted again by the ledger": judging_again,
    "publisher": published(SHOP),
    "publisher granted again by the ledger": published_again,
    "ledger as author": lambda made: made.add(bytes(16), "x", b"", ("ledger", made.ledger)),
}
FORGED: dict[str, Callable[[HandmadeLedger], None]] = {
    "entry without a name": lambda made: made.add(bytes(16), "", b""),
    "time of 2^63": late,
    "entry too long": lambda made: made.add(bytes(16), "x", bytes(LARGEST_BODY + 1)),
    "author unknown": lambda made: made.add(bytes(16), "x", b"", ("judge", JUDGE)),
    "author in another role": lambda made: made.add(bytes(16), "x", b"", ("judge", ALICE)),
    "author revoked": by_revoked_judge,
    "grant without author": lambda made: raw(made, "key.granted", GRANT, author=None),
    "grant by the ledger after an operator": lambda made: made.grant(
        "judge", JUDGE, ("ledger", made.ledger)
    ),
    "grant twice": judged_twice,
    "grant again by an operator": lambda made: granted_again(made, "operator"),
    "grant again in another role": lambda made: granted_again(made, "ledger", role="operator"),
    "judge revoked by the ledger": lambda made: revoke_by_ledger(made, "judge", JUDGE),
    "grant of the ledger's key": lambda made: made.grant("judge", Signer("j", 0), BY_ALICE),
    "grant under another name": lambda made: made.grant("judge", Signer("bob", 1), BY_ALICE),
    "grant of an unknown role": lambda made: made.grant("auditor", JUDGE, BY_ALICE),
    "witness of a wrong type": lambda made: made.grant("witness", JUDGE, BY_ALICE),
    "judge of a wrong type": lambda made: made.grant("judge", WITNESS, BY_ALICE),
    "publisher of a wrong type": lambda made: made.grant("publisher", JUDGE, BY_ALICE),
    "judge of a publisher's type": lambda made: made.say(
        "key.granted", BY_ALICE, role="judge", vkey=SHOP
    ),
    "publisher twice": lambda made: (published(SHOP)(made), published(SHOP)(made))[0],
    "publisher named in its key id": published(publisher(RAW, named=b"shop\n\x02")),
    "publisher beside the curve": published(publisher(RAW[:-1] + bytes([RAW[-1] ^ 1]))),
    "publisher compressed": published(
        publisher(POINT.public_bytes(Encoding.X962, PublicFormat.CompressedPoint))
    ),
    "publisher of another curve": published(
        publisher(RAW, before=P256.replace(b"\x03\x01\x07", b"\x03\x01\x06"))
    ),
    "publisher with more": published(publisher(RAW + b"\x00")),
    "revocation since no time": revoked_since_no_time,
    "revocation of a stranger": lambda made: made.say(
        "key.revoked", BY_ALICE, role="judge", vkey=JUDGE.vkey, since=1, reason=""
    ),
    "body with another key": lambda made: made.say("clock.jumped", by=1, clock=1, why=1),
    "body without a key": lambda made: made.say("clock.jumped", by=1),
    "body of a later version": lambda made: made.say("clock.jumped", by=1, clock=1, v=2),
    "body with a float": lambda made: made.say("clock.jumped", by=1.0, clock=1),
    "body with a truth value": lambda made: made.say("clock.jumped", by=True, clock=1),
    "body with trailing bytes": lambda made: raw(made, "key.granted", GRANT + b"\x00"),
    "body that ends early": lambda made: raw(made, "key.granted", GRANT[:-1]),
    "body with a long integer": lambda made: raw(
        made, "key.granted", GRANT.replace(b"\xa1v\x01", b"\xa1v\xcc\x01")
    ),
    "body with a long negative integer": lambda made: raw(
        made, "clock.jumped", b"\x83\xa1v\x01\xa2by\xd0\xff\xa5clock\x01", author=None
    ),
    "body with a long text": lambda made: raw(
        made, "key.granted", GRANT.replace(b"\xa5judge", b"\xd9\x05judge")
    ),
    "body with a repeated key": lambda made: raw(made, "key.granted", b"\x84\xa1v\x01" + GRANT[1:]),
    "body that is no map": lambda made: raw(made, "key.granted", b"\x93\x01\x02\x03"),
    "body of nothing": lambda made: raw(made, "key.granted", b""),
    "clock out of range": lambda made: made.say("clock.jumped", by=1, clock=2**63),
    "clock with author": lambda made: made.say("clock.jumped", BY_ALICE, by=1, clock=1),
    "rotation under another title": rotation_with(title="ledger/rotation/v2"),
    "rotation with a fifth line": rotation_with(more="and more\n"),
    "rotation by the old key alone": rotation_signed_by(LEDGER),
    "rotation by the new key alone": rotation_signed_by(SECOND),
    "rotation with a third signature": rotation_signed_by(LEDGER, SECOND, THIRD),
    "rotation signed twice by the old": rotation_signed_by(LEDGER, LEDGER),
    "rotation to another origin": rotation_signed_by(
        LEDGER, Signer("other", 4), to=Signer("other", 4)
    ),
    "rotation to an operator": rotation_signed_by(LEDGER, Signer(ORIGIN, 1), to=Signer(ORIGIN, 1)),
    "rotation back": rotated_back,
    "old key after rotation": old_key_signs_on,
}


@pytest.mark.parametrize("name", HONEST)
def test_authority_event_that_follows_the_page_holds(name: str, tmp_path: Path) -> None:
    small(HONEST[name]).write_database(tmp_path)
    assert second(tmp_path / "ledger.sqlite")[0], second(tmp_path / "ledger.sqlite")
    assert first(tmp_path)[0], first(tmp_path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FORGED)
def test_authority_event_against_the_page_is_rejected(name: str, tmp_path: Path) -> None:
    made = small(FORGED[name])
    made.write_database(tmp_path)
    last = len(made.entries) - 1
    held, said, index = second(tmp_path / "ledger.sqlite")
    assert (held, index) == (False, last), said
    held, said, index = first(tmp_path)
    assert (held, index) == (False, last), said


@pytest.mark.parametrize(
    "change",
    [
        "PRAGMA application_id = 0",
        "PRAGMA user_version = 2",
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT * FROM entries",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM tree_heads; END",
        "CREATE INDEX more ON entries (name)",
        "ALTER TABLE entries ADD COLUMN more INTEGER AS (1)",
        "DROP TABLE tree_heads",
        "INSERT INTO meta VALUES ('more', 'rows')",
    ],
)
def test_database_of_another_form_is_rejected_by_both(change: str, scene: Path) -> None:
    with closing(sqlite3.connect(scene / "ledger.sqlite")) as db, db:
        db.execute(change)
    assert not second(scene / "ledger.sqlite")[0]
    assert not first(scene)[0]


def test_version_as_a_float_is_rejected_by_both(scene: Path) -> None:
    """A float equals its integer in Python; a strict table holds none, unless it was not strict."""
    path, column = scene / "ledger.sqlite", "stream_version INTEGER NOT NULL"
    loosen = f"replace(replace(sql, '{column}', 'stream_version NOT NULL'), ' STRICT', '')"
    tighten = f"replace(sql, 'stream_version NOT NULL', '{column}') || ' STRICT'"
    change = "UPDATE entries SET stream_version = CAST(stream_version AS REAL) WHERE idx = 9"
    for schema in (loosen, tighten):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            if schema == tighten:
                db.execute(change)
            db.execute("PRAGMA writable_schema = ON")
            db.execute(f"UPDATE sqlite_schema SET sql = {schema} WHERE name = 'entries'")
    assert second(scene / "ledger.sqlite") == (False, "a column has a value of another type", 9)
    assert not first(scene)[0]


# --- Agreement with the library, over random tampering ---


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


class Tamperer:
    """Changes rows of a database; `forged` says that links were mended after it."""

    def __init__(self, db: sqlite3.Connection, made: HandmadeLedger, rng: random.Random) -> None:
        self.db, self.made, self.rng, self.forged = db, made, rng, False
        self.size = len(made.entries)
        self.at = rng.randrange(self.size)

    def put(self, index: int, entry: bytes) -> None:
        """Store an entry's bytes, and columns that repeat them where they can be read."""
        self.db.execute("UPDATE entries SET entry = ? WHERE idx = ?", (entry, index))
        author = entry[73]
        name = entry[75 + author :][: entry[74 + author]] if len(entry) > 74 + author else b""
        version = int.from_bytes(entry[25:33], "big")
        if version < 2**63:
            row = (entry[9:25], version, name.decode("utf-8", "replace"), index)
            sql = (
                "UPDATE OR IGNORE entries "
                "SET stream_id = ?, stream_version = ?, name = ? WHERE idx = ?"
            )
            self.db.execute(sql, row)

    def a_bit(self) -> None:
        self.put(self.at, flipped(self.made.entries[self.at], self.rng))

    def a_bit_and_all_links(self) -> None:
        self.forged = True
        entry = flipped(self.made.entries[self.at], self.rng)
        for index in range(self.at, self.size):
            self.put(index, entry)
            following = self.made.entries[(index + 1) % self.size]
            entry = following[:41] + sha256(b"\x00" + entry) + following[73:]

    def a_time(self) -> None:
        entry = self.made.entries[self.at]
        moved = int.from_bytes(entry[33:41], "big") + self.rng.choice([-(10**12), 1, 10**12])
        self.put(self.at, entry[:33] + moved.to_bytes(8, "big") + entry[41:])

    def a_version(self) -> None:
        entry = self.made.entries[self.at]
        version = int.from_bytes(entry[25:33], "big") + 1_000
        self.put(self.at, entry[:25] + version.to_bytes(8, "big") + entry[33:])

    def deleted(self) -> None:
        self.db.execute("DELETE FROM entries WHERE idx = ?", (self.at,))

    def deleted_and_renumbered(self) -> None:
        self.deleted()
        self.db.execute("UPDATE entries SET idx = -idx WHERE idx > ?", (self.at,))
        self.db.execute("UPDATE entries SET idx = -idx - 1 WHERE idx < 0")

    def swapped(self) -> None:
        other = self.rng.randrange(self.size)
        for index in (self.at, other):
            self.db.execute("UPDATE entries SET idx = -1 - idx WHERE idx = ?", (index,))
        sql = "UPDATE entries SET idx = ? WHERE idx = ?"
        self.db.executemany(sql, [(self.at, -1 - other), (other, -1 - self.at)])

    def copied(self) -> None:
        place = self.rng.choice([-1, self.size, self.size + 7])
        sql = (
            "INSERT INTO entries SELECT ?, zeroblob(16), 1, name, entry FROM entries WHERE idx = ?"
        )
        self.db.execute(sql, (place, self.at))

    def cut(self) -> None:
        self.db.execute("DELETE FROM entries WHERE idx >= ?", (self.at,))

    def cut_with_heads(self) -> None:
        self.cut()
        self.db.execute("DELETE FROM tree_heads WHERE size > ?", (self.at,))

    def column(self) -> None:
        change = self.rng.choice(["name = name || 'x'", "stream_version = -1", "stream_id = x'00'"])
        self.db.execute(f"UPDATE entries SET {change} WHERE idx = ?", (self.at,))

    def head_deleted(self) -> None:
        size = self.rng.choice(list(self.made.notes))
        self.db.execute("DELETE FROM tree_heads WHERE size = ?", (size,))

    def heads_deleted(self) -> None:
        size = self.rng.choice(list(self.made.notes))
        self.db.execute("DELETE FROM tree_heads WHERE size >= ?", (size,))

    def head_of_another_size(self) -> None:
        sizes = self.rng.choices(list(self.made.notes), k=2)
        sql = "UPDATE tree_heads SET note = ? WHERE size = ?"
        self.db.execute(sql, (self.made.notes[sizes[0]], sizes[1]))

    def head_text(self) -> None:
        size, note = self.rng.choice(list(self.made.notes.items()))
        at = self.rng.randrange(len(note))
        note = note[:at] + self.rng.choice("AZaz09+/= \n\t\u2014") + note[at + 1 :]
        self.db.execute("UPDATE tree_heads SET note = ? WHERE size = ?", (note, size))

    def edge(self) -> None:
        size = self.rng.choice(list(self.made.notes))
        edge = flipped(self.made.edge(size), self.rng)
        self.db.execute("UPDATE tree_heads SET edge = ? WHERE size = ?", (edge, size))

    def meta(self) -> None:
        self.db.execute("UPDATE meta SET value = value || 'x' WHERE key = 'vkey'")


KINDS = [name for name in vars(Tamperer) if not name.startswith("_") and name != "put"]


def compare(folder: Path, scratch: Path, made: HandmadeLedger, kind: str, seed: int) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder, scratch, ignore=shutil.ignore_patterns("bundle"))
    rng = random.Random(f"{kind} {seed}")
    path = scratch / "ledger.sqlite"
    if kind == "raw":
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
        path.write_bytes(flipped(path.read_bytes(), rng))
        forged = False
    else:
        with closing(sqlite3.connect(path)) as db, db:
            tamperer = Tamperer(db, made, rng)
            getattr(tamperer, kind)()
            forged = tamperer.forged
    one, two = first(scratch), second(path)
    assert one[0] == two[0], (kind, seed, one, two)
    if forged:  # links were mended: any entry of the batch may be named
        assert not two[0]
    elif one[2] is not None and two[2] is not None:
        assert one[2] == two[2], (kind, seed, one, two)


@pytest.fixture(scope="module")
def lesser(tmp_path_factory: pytest.TempPathFactory) -> tuple[HandmadeLedger, Path]:
    made, folder = busy_ledger(3, size=120), tmp_path_factory.mktemp("lesser")
    made.write_database(folder)
    return made, folder


@pytest.mark.parametrize("kind", [*KINDS, "raw"])
@pytest.mark.sampled(4)
def test_both_verifiers_agree_when_a_database_was_tampered_with(
    kind: str, lesser: tuple[HandmadeLedger, Path], tmp_path: Path
) -> None:
    made, folder = lesser
    for seed in range(40 if kind == "raw" else 8):
        compare(folder, tmp_path / "scratch", made, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_both_verifiers_agree_on_many_ledgers(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    made = busy_ledger(100 + part, size=rng.randint(1, 700), streams=rng.randint(1, 40))
    (tmp_path / "honest").mkdir()
    made.write_database(tmp_path / "honest")
    assert first(tmp_path / "honest")[0]
    assert second(tmp_path / "honest" / "ledger.sqlite")[0]
    for _ in range(12):
        for kind in [*KINDS, *["raw"] * 10]:
            compare(tmp_path / "honest", tmp_path / "scratch", made, kind, rng.randrange(2**40))


# --- Bundles and proofs ---


def content(said: str) -> str:
    return said.partition(";")[0]


def check_flipped_bits(bundle: Path, rng: random.Random, *, times: int) -> None:
    honest_words = content(second(bundle)[1])
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    for _ in range(times):
        path = rng.choice(files)
        before = path.read_bytes()
        path.write_bytes(flipped(before, rng))
        held, said, _index = second(bundle)
        if held:  # only in a line of a key that the user did not name
            assert content(said) == honest_words
            assert b"\xe2\x80\x94 witness" in before, path
        path.write_bytes(before)
    assert second(bundle)[0]


def test_no_flipped_bit_of_a_bundle_goes_unseen(tmp_path: Path) -> None:
    bundle = busy_ledger(4, size=290).write_bundle(tmp_path)
    check_flipped_bits(bundle, random.Random("bits of bundles"), times=80)


@pytest.mark.slow
def test_no_flipped_bit_of_many_goes_unseen(scene: Path) -> None:
    check_flipped_bits(scene / "bundle", random.Random("more bits of bundles"), times=1_000)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", ["shorter", "longer", "absent", "pipe", "link", "folder"])
@pytest.mark.parametrize(
    ("name", "first_of_it", "last_of_it"),
    [
        ("tile/entries/001", 256, 511),
        ("tile/0/001", 256, 511),
        ("tile/0/002.p/{rest}", 512, None),
        ("tile/1/000.p/2", 0, 256),
    ],
)
def test_bundle_with_a_damaged_tile_is_rejected(
    scene: Path, made: HandmadeLedger, name: str, first_of_it: int, last_of_it: int, change: str
) -> None:
    damage(scene / "bundle" / name.format(rest=len(made.entries) - 512), change)
    held, said, found = second(scene / "bundle")
    in_the_end = change == "shorter" or (change == "longer" and "entries" in name)
    expected = (last_of_it or len(made.entries) - 1) if in_the_end else first_of_it
    assert (held, found) == (False, expected), said


@pytest.mark.parametrize("change", ["shorter", "longer", "absent", "pipe", "link", "folder"])
@pytest.mark.parametrize("name", ["checkpoint", "ledger.vkey"])
def test_bundle_with_a_damaged_note_or_key_is_rejected(scene: Path, name: str, change: str) -> None:
    damage(scene / "bundle" / name, change)
    assert not second(scene / "bundle")[0]


@pytest.mark.parametrize("change", ["shorter", "longer", "pipe", "link"])
@pytest.mark.parametrize("place", ["bundle", "."])
def test_blob_that_is_not_what_its_name_says_is_rejected(
    scene: Path, made: HandmadeLedger, place: str, change: str
) -> None:
    name = sha256(made.blobs[0]).hex()
    damage(scene / place / "blobs" / name[:2] / name, change)
    held, said, _ = second(scene / "bundle" if place == "bundle" else scene / "ledger.sqlite")
    assert not held
    assert name in said


def damage(path: Path, change: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if change == "shorter":
        path.write_bytes(data[:-1])
    elif change == "longer":
        path.write_bytes(data + b"\n")
    elif change == "pipe":
        os.mkfifo(path)
    elif change == "link":
        path.with_name("elsewhere").write_bytes(data)
        path.symlink_to(path.with_name("elsewhere"))
    elif change == "folder":
        path.mkdir()


def files_of(folder: Path) -> dict[str, bytes]:
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names}


def test_exported_bundle_is_byte_for_byte_the_one_made_by_hand(
    honest: Path, tmp_path: Path
) -> None:
    export_bundle(honest, tmp_path / "exported")
    exported = files_of(tmp_path / "exported")
    assert exported.pop("verify.py") == SOURCE.read_bytes()
    assert exported == files_of(honest / "bundle")


def test_exported_verifier_holds_the_bundle_that_it_lies_in(honest: Path, tmp_path: Path) -> None:
    export_bundle(honest, tmp_path / "exported")
    command = [sys.executable, "-I", "verify.py", ".", "--vkey", VKEY]
    done = subprocess.run(
        command, cwd=tmp_path / "exported", capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("held: "), done


def test_written_proof_is_byte_for_byte_the_one_made_by_hand(
    honest: Path, made: HandmadeLedger, tmp_path: Path
) -> None:
    cosigned = [size for size, note in made.notes.items() if WITNESS.name in note]
    with open_verified(honest, vkey=VKEY) as ledger:
        for index in (0, 1, 255, 256, 333, max(cosigned), len(made.entries) - 1):
            size = max((size for size in cosigned if size > index), default=max(made.notes))
            by_hand = made.write_proof(index, tmp_path / "p.tlog-proof", size=size)
            assert write_proofs(ledger, [index]) == by_hand.read_text()
            assert second(by_hand)[0]


def check_bundle_agreement(bundle: Path, rng: random.Random, *, times: int) -> None:
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    for _ in range(times):
        path = rng.choice(files)
        before = path.read_bytes()
        cut = rng.randrange(len(before))
        changed = rng.choice([flipped(before, rng), before[:cut], before + b"\0", None])
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        one, two = first_of_bundle(bundle), second(bundle)
        assert one[0] == two[0], (path, one, two)
        if one[2] is not None and two[2] is not None:
            assert one[2] == two[2], (path, one, two)
        path.unlink(missing_ok=True)
        path.write_bytes(before)


def test_both_verifiers_agree_when_a_bundle_was_tampered_with(tmp_path: Path) -> None:
    bundle = busy_ledger(5, size=290).write_bundle(tmp_path)
    check_bundle_agreement(bundle, random.Random("agree on bundles"), times=50)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_both_verifiers_agree_on_many_bundles(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    bundle = busy_ledger(200 + part, size=rng.randint(1, 700)).write_bundle(tmp_path)
    assert check_bundle(bundle, vkey=VKEY).ok
    check_bundle_agreement(bundle, rng, times=300)


@pytest.mark.parametrize("name", ["tile/0", "tile/entries", "tile", "checkpoints", "blobs"])
def test_bundle_with_a_linked_folder_is_rejected_by_both(scene: Path, name: str) -> None:
    folder = scene / "bundle" / name
    folder.rename(scene / "elsewhere")
    folder.symlink_to(scene / "elsewhere")
    assert not second(scene / "bundle")[0]
    assert not first_of_bundle(scene / "bundle")[0]


def test_bundle_behind_a_link_holds(scene: Path) -> None:
    (scene / "link").symlink_to(scene / "bundle")
    assert second(scene / "link")[0]


@pytest.mark.parametrize("change", ["pipe", "file", "dangling link"])
@pytest.mark.parametrize("name", ["checkpoints", "blobs", "blobs/aa"])
def test_bundle_with_something_else_for_a_folder_is_rejected_by_both(
    scene: Path, name: str, change: str
) -> None:
    path = scene / "bundle" / name
    if path.exists():
        shutil.rmtree(path)
        assert second(scene / "bundle")[0]  # what is missing is not missed
        assert first_of_bundle(scene / "bundle")[0]
    if change == "pipe":
        os.mkfifo(path)
    elif change == "file":
        path.write_bytes(b"")
    else:
        path.symlink_to("nowhere")
    assert not second(scene / "bundle")[0]
    assert not first_of_bundle(scene / "bundle")[0]


@pytest.mark.parametrize(
    "name",
    ["checkpoints/.new.ab", "checkpoints/0", "checkpoints/007", "checkpoints/x", "blobs/xy", "x"],
)
def test_names_that_no_bundle_has_mean_nothing_to_both(scene: Path, name: str) -> None:
    os.mkfifo(scene / "bundle" / name)
    assert second(scene / "bundle")[0]
    assert first_of_bundle(scene / "bundle")[0]


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("change", ["pipe", "device", "folder"])
def test_database_that_is_no_regular_file_is_rejected(scene: Path, end: str, change: str) -> None:
    path = scene / f"ledger.sqlite{end}"
    path.unlink(missing_ok=True)
    if change == "pipe":
        os.mkfifo(path)
    elif change == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    if change == "folder" and not end:
        assert not second(path)[0]  # taken for a bundle
    else:
        assert not second(scene / "ledger.sqlite")[0]


def test_proof_without_an_end_is_rejected(scene: Path) -> None:
    path = scene / "333.tlog-proof"
    assert second(path)[0]
    with path.open("ab") as file:
        file.truncate(1 << 40)
    assert second(path)[:2] == (False, "'333.tlog-proof' is too large")


def test_head_of_no_entries_is_rejected_as_a_bundle(tmp_path: Path) -> None:
    made = HandmadeLedger()
    made.sign()
    bundle = made.write_bundle(tmp_path)
    assert not second(bundle)[0]
    assert not first_of_bundle(bundle)[0]
    made.add(bytes(16), "test.event", b"")
    made.sign()
    shutil.rmtree(bundle)
    assert second(made.write_bundle(tmp_path))[0]


def test_leftover_partial_tiles_mean_nothing(scene: Path) -> None:
    for name in ("tile/0/001.p/7", "tile/entries/001.p/7", "tile/1/000.p/1"):
        (scene / "bundle" / name).parent.mkdir(exist_ok=True)
        (scene / "bundle" / name).write_bytes(b"of an earlier size")
    assert second(scene / "bundle")[0]


@pytest.mark.parametrize(
    ("name", "which"), [("7", "older"), ("9999999999999999999", "older"), ("{size}", "forged")]
)
def test_earlier_head_that_is_not_the_trees_is_rejected(
    scene: Path, made: HandmadeLedger, name: str, which: str
) -> None:
    older = sorted(made.notes)[3]
    fork = busy_ledger(8, size=older)
    note = made.notes[older] if which == "older" else fork.notes[max(fork.notes)]
    size = older if which == "older" else max(fork.notes)
    (scene / "bundle" / "checkpoints" / name.format(size=size)).write_text(note)
    assert not second(scene / "bundle")[0]


def test_proof_holds_for_every_size_and_place(tmp_path: Path) -> None:
    made = HandmadeLedger()
    for size in range(1, 18):
        made.add(bytes(16), "test.event", b"%d" % size)
        made.sign()
        for index in range(size):
            path = made.write_proof(index, tmp_path / "p.tlog-proof")
            assert second(path)[0], (index, size)


def test_no_mutated_proof_is_believed(scene: Path, made: HandmadeLedger) -> None:
    path, rng = scene / "333.tlog-proof", random.Random("proofs")
    honest_bytes = path.read_bytes()
    lines = honest_bytes.decode().split("\n")
    assert second(path)[0]
    for _ in range(400):
        path.write_bytes(flipped(honest_bytes, rng))
        assert not second(path)[0]
    for at in range(len(lines) - 1):
        for changed in (lines[:at] + lines[at + 1 :], lines[:at] + lines[at : at + 1] + lines[at:]):
            path.write_text("\n".join(changed))
            assert not second(path)[0], changed
    other = HandmadeLedger(ledger=replace(made.first, seed=50))
    other.add(bytes(16), "x", b"")
    other.sign()
    assert not second(other.write_proof(0, path))[0]


@pytest.mark.parametrize(("length", "holds"), [(0, False), (1, True), (64, True), (65, False)])
def test_author_s_role_has_1_to_64_bytes_even_in_a_proof(
    length: int, holds: bool, tmp_path: Path
) -> None:
    made = HandmadeLedger()
    made.add(bytes(16), "x", b"", ("r" * length, ALICE))
    made.sign()
    path = made.write_proof(0, tmp_path / "p.tlog-proof")
    assert second(path)[0] == holds
    if not holds:
        with pytest.raises(VerificationError):
            open_proof(path.read_text(), vkey=VKEY)


def test_proof_of_an_entry_that_is_no_entry_is_rejected(scene: Path, made: HandmadeLedger) -> None:
    text = (scene / "333.tlog-proof").read_text()
    entry = made.entries[333]
    assert encode64(len(entry).to_bytes(2, "big") + entry)[:-4] in text
    node = made.leaves[332] + made.leaves[333]  # an inner node's preimage in an entry's place
    fake = encode64(len(node).to_bytes(2, "big") + node)
    lines = text.split("\n")
    lines[1] = f"extra {fake}"
    (scene / "333.tlog-proof").write_text("\n".join(lines))
    assert not second(scene / "333.tlog-proof")[0]


@pytest.mark.parametrize("table", ["entries", "tree_heads", "sqlite_schema"])
def test_rows_without_end_are_rejected_in_time(table: str, tmp_path: Path) -> None:
    made = HandmadeLedger()
    for _ in range(3):
        made.add(bytes(16), "test.event", b"")
        made.sign()
    path = made.write_database(tmp_path)
    repeat_first_row(path, table)
    done = run(path, "--vkey", VKEY)
    assert (done.returncode, done.stderr) == (1, ""), done


def test_garbage_never_breaks_the_verifier(scene: Path) -> None:
    rng = random.Random("garbage")
    for size in (0, 1, 100, 5_000):
        for name in ("ledger.sqlite", "333.tlog-proof"):
            (scene / name).write_bytes(rng.randbytes(size))
            done = run(scene / name, "--vkey", VKEY)
            assert (done.returncode, done.stderr) == (1, ""), done
            assert done.stdout.startswith("failed: ")
