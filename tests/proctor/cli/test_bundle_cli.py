"""Handing a run over by the command line, and living in what was handed over."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import answer, call_here
from threat_scene import Writer, recorder
from typer.testing import CliRunner, Result

from ledger.errors import ContradictionError, SignatureError, VerificationError
from ledger.handover.proof_files import open_proof
from ledger.notes import public_bytes, vkey
from ledger.witnessing.evidence import open_evidence
from proctor.cli.main import app
from proctor.errors import ProctorError


def run(*arguments: object, home: Path, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, arguments), "--home", str(home)])
    if done.exit_code != code:
        raise AssertionError(done.output) from done.exception
    return done


def refused(*arguments: object, home: Path) -> BaseException:
    """Return the error for which main() prints one line."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--home", str(home)])
    assert done.exception is not None
    return done.exception


def go_on(home: Path) -> None:
    """Append to a home's ledger."""
    with recorder(home / "ledger") as into:
        Writer(into).batch(3)


def said(done: Result) -> Any:
    return json.loads(done.output)


@pytest.fixture(scope="module")
def bundle(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handed") / "bundle"
    assert "exported" in run("export", "bundle", "--out", folder, home=trained).output
    return folder


@pytest.fixture(scope="module")
def theirs(bundle: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that was made of the bundle alone."""
    home = tmp_path_factory.mktemp("theirs") / "home"
    vkey = trained / "ledger" / "ledger.vkey"
    done = said(run("import", bundle, "--vkey", vkey, "--json", home=home))
    assert done["size"] == done["new"] > 10
    assert done["blobs"] > 0
    assert done["left_out"] == []
    return home


@pytest.mark.parametrize(
    "command",
    [
        ["show", "--json"],
        ["replay", "--json"],
        ["replay", "--event", "9", "--json"],
        ["log", "--json"],
        ["verify", "--json"],
        ["sql", "--json", "SELECT * FROM epochs ORDER BY 1, 2"],
        ["sql", "--json", "SELECT run_id, end_reason FROM runs"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.sampled(7)
def test_imported_home_answers_as_the_one_that_was_exported(
    trained: Path, theirs: Path, command: list[str]
) -> None:
    ours, other = (call_here(command, home=home) for home in (trained, theirs))
    assert (other.returncode, other.stderr) == (0, ours.stderr)
    assert answer(other) == answer(ours)


def test_imported_run_is_judged_without_being_written_to(trained: Path, theirs: Path) -> None:
    (submission,) = (trained / "runs").glob("*/submission")
    command: list[str | Path] = ["judge", "--no-execute", "--submission", submission, "--json"]
    before = answer(call_here(["log", "--json"], home=theirs))
    done = call_here(command, home=theirs)
    assert (done.returncode, answer(done)["hard_fail"]) == (0, False)
    assert "not recorded" in done.stderr
    assert answer(call_here(["log", "--json"], home=theirs)) == before


def test_export_again_and_import_again_bring_up_to_date(trained: Path, tmp_path: Path) -> None:
    home, theirs, folder = (tmp_path / name for name in ("home", "theirs", "bundle"))
    shutil.copytree(trained, home)
    size = said(run("export", "bundle", "--out", folder, "--json", home=home))["size"]
    assert said(run("import", folder, "--json", home=theirs))["new"] == size
    go_on(home)
    longer = said(run("export", "bundle", "--out", folder, "--json", home=home))["size"]
    done = said(run("import", folder, "--json", home=theirs))
    assert (done["size"], done["new"]) == (longer, longer - size)
    assert done["new"] > 0


def test_bundle_verifies_with_the_verifier_that_lies_in_it(trained: Path, bundle: Path) -> None:
    vkey = trained / "ledger" / "ledger.vkey"
    command = [sys.executable, str(bundle / "verify.py"), str(bundle), "--vkey", str(vkey)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("held: ")


def test_import_of_a_tampered_bundle_is_rejected(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (part,) = (copy / "tile/entries").rglob("[0-9]*[0-9]")
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    home = tmp_path / "home"
    assert isinstance(refused("import", copy, home=home), VerificationError)
    assert not (home / "ledger").exists()
    assert run("import", bundle, home=home)  # the honest control


def test_import_asks_for_what_is_known(bundle: Path, tmp_path: Path) -> None:
    error = refused("import", tmp_path, home=tmp_path / "home")
    assert isinstance(error, ProctorError)
    assert "; `proctor export bundle --out DIR` makes one" in str(error)
    other = tmp_path / "vkey"
    other.write_text(vkey("other", public_bytes(Ed25519PrivateKey.generate())))
    error = refused("import", bundle, "--vkey", other, home=tmp_path / "home")
    assert isinstance(error, SignatureError)
    assert "public key is not the one given" in str(error)


def test_strangers_in_a_bundle_are_named(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (copy / "README").write_text("hello")
    done = run("import", copy, "--json", home=tmp_path / "home")
    assert said(done)["left_out"] == ["README"]


def test_event_is_proved_by_index_and_by_place_in_its_stream(trained: Path, tmp_path: Path) -> None:
    vkey = (trained / "ledger/ledger.vkey").read_text()
    log = answer(call_here(["log", "--json"], home=trained))
    event = next(entry for entry in log if entry["event"] == "run.ended")
    out = tmp_path / "ended.tlog-proof"
    told = run("export", "proof", event["index"], "--out", out, home=trained).output
    assert told == f"wrote the proof of entry {event['index']} to {out}\n"
    proved = open_proof(out.read_text(), vkey=vkey)
    assert proved.entry.name == "run.ended"
    assert proved.entry.entry_hash.hex() == event["hash"]
    place = f"{event['stream']}/{event['version']}"
    done = run("export", "proof", place, home=trained)
    assert done.output == out.read_text()
    assert said(run("export", "proof", place, "--json", home=trained))["proof"] == out.read_text()


@pytest.mark.parametrize(
    "event", ["100000", "-1", "x", "1.5", "\u0663", f"{'0' * 36}/1", "/", "1/1"]
)
def test_event_that_is_not_there_is_wrong_input(trained: Path, event: str) -> None:
    error = refused("export", "proof", "--", event, home=trained)
    assert isinstance(error, ProctorError | SystemExit)
    if isinstance(error, ProctorError):
        assert str(error).startswith(f"there is no event {event};")


def test_evidence_is_written_when_a_bundle_contradicts_a_kept_head(
    trained: Path, tmp_path: Path
) -> None:
    """The owner copies the home and goes on in both: two histories by one key."""
    one, two, kept = tmp_path / "one", tmp_path / "two", tmp_path / "kept"
    for home in (one, two):
        shutil.copytree(trained, home)
        go_on(home)
        run("export", "bundle", "--out", home / "bundle", home=home)
    forget = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with mock.patch.dict(os.environ, forget):
        assert call_here(["verify", one / "bundle", "--out", kept], home=one).returncode == 0
    out = tmp_path / "evidence"
    command: list[str | Path] = ["verify", two / "bundle", "--head", kept, "--evidence", out]
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "other state")}):
        assert call_here(command, home=two).returncode == 1
    assert open_evidence(out.read_text()).kind == "fork"
    assert isinstance(
        refused("export", "bundle", "--out", one / "bundle", home=two), ContradictionError
    )
    assert call_here(["verify", out], home=two).returncode == 0
