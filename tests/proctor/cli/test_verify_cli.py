"""`proctor verify`: what it is pointed at, what it remembers, whom it asks for."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from frontdoor import answer, call
from threat_scene import JUDGE, OPERATOR, Scene, Writer, make_scene, recorder
from typer.testing import CliRunner

from ledger.entries import AuthorKey
from ledger.errors import ContradictionError, SignatureError
from ledger.handover.bundle import export_bundle
from ledger.notes import public_bytes, vkey
from ledger.verification.reader import open_verified, read_tree_head
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.evidence import open_evidence
from proctor.cli.main import app


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("verified") / "scene")


@pytest.fixture
def scene(made: Scene, tmp_path: Path) -> Scene:
    return made.copy(tmp_path / "scene")


def verify(scene: Scene, *arguments: str | Path, state: Path | None = None) -> Any:
    return answer(call(["verify", *arguments, "--json"], home=scene.root, state=state))


def test_home_ledger_and_bundle_are_told_apart(scene: Scene) -> None:
    found = [verify(scene, place) for place in (scene.root, scene.ledger, scene.bundle)]
    assert all(report["ok"] for report in found), found
    assert len({report["head"]["root"] for report in found}) == 1
    assert verify(scene, scene.database) == found[1]  # the database stands for its folder
    assert verify(scene, scene.database.parent, "--vkey", scene.root / "vkey") == found[1]


def test_who_gives_no_key_is_told_what_that_leaves_open(scene: Scene) -> None:
    for given, told in (((), True), (("--vkey", scene.root / "vkey"), False)):
        done = call(["verify", scene.bundle, *given], home=scene.root)
        assert (done.returncode, "not forgery" in done.stderr) == (0, told)


@pytest.mark.parametrize("shown", ["earlier", "fork"])
def test_ledger_behind_or_beside_what_is_remembered_is_rejected(
    scene: Scene, tmp_path: Path, shown: str
) -> None:
    state, evidence = tmp_path / "state", tmp_path / "evidence"
    assert verify(scene, state=state)["ok"]
    assert verify(scene, state=state)["ok"]  # honest control
    other = Path(shutil.copytree(getattr(scene, shown), tmp_path / shown))
    if shown == "fork":
        with recorder(other) as into:
            Writer(into).batch(400)  # a longer one, so that it is beside and not behind
    assert verify(scene, other)["ok"]  # by itself it holds
    for arguments in ([other], [other, "--new"]):
        report = verify(scene, *arguments, "--evidence", evidence, state=state)
        assert (report["ok"], report["error_type"]) == (False, "ContradictionError")
    kind = "rollback" if shown == "earlier" else "fork"
    assert open_evidence(evidence.read_text()).kind == kind
    opened = verify(scene, evidence)
    if shown == "earlier":
        assert (opened["ok"], opened["kind"]) == (True, kind)
        assert "the ledger's first key, since rotated out" in opened["by"][0]
    else:  # the fork is signed by a key that anybody may have by now
        assert (opened["ok"], opened["error_type"]) == (False, "EvidenceError")


def test_bundle_and_ledger_are_held_against_each_other(scene: Scene, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert verify(scene, scene.bundle, state=state)["ok"]
    assert verify(scene, state=state)["ok"]
    assert not verify(scene, scene.fork, state=state)["ok"]


def test_only_what_is_new_is_read(scene: Scene, tmp_path: Path) -> None:
    state = tmp_path / "state"
    size = verify(scene, state=state)["size"]
    with recorder(scene.ledger) as into:
        Writer(into).batch(3)
    report = verify(scene, "--new", state=state)
    assert (report["ok"], report["size"], report["unread"]) == (True, size + 3, size)


def test_other_commands_refuse_what_is_behind_what_is_remembered(
    scene: Scene, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    assert verify(scene, state=state)["ok"]
    assert call(["log"], home=scene.root, state=state).returncode == 0
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / "ledger").symlink_to(scene.earlier)
    done = call(["log"], home=behind, state=state)
    assert done.returncode == 1
    assert "truncated" in done.stderr
    assert call(["log"], home=behind).returncode == 0  # nothing is remembered


@pytest.mark.parametrize(
    "command",
    [
        "export proof 3",
        "export bundle --out out",
        "export verdict head --out out --key operator.pem",
        "import BUNDLE",
        "data review 0 gold --key operator.pem",
        "keys list",
        "keys grant operator fresh.pem.vkey --key operator.pem",
        "keys revoke judge.vkey --since now --reason lost --key operator.pem",
        "keys rotate",
        "witness ask --old 0 --out out",
    ],
)
def test_command_on_a_ledger_behind_what_is_remembered_is_rejected(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_STATE", str(scene.memory))
    pem = OPERATOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    os.close(os.open("operator.pem", os.O_CREAT, 0o600))
    Path("operator.pem").write_bytes(pem)
    Path("judge.vkey").write_text(vkey("judge.example", public_bytes(JUDGE)))
    CliRunner().invoke(app, ["keys", "new", "operator", "fresh.pem"])
    behind = Path("behind")
    shutil.copytree(scene.earlier, behind / "ledger")
    export_bundle(behind / "ledger", behind / "bundle")

    def result(home: Path) -> BaseException | None:
        words = command.replace("BUNDLE", str(home / "bundle")).split()
        place = tmp_path / "imported" if words[0] == "import" else home
        return CliRunner().invoke(app, [*words, "--home", str(place)]).exception

    refused = result(behind)
    assert isinstance(refused, ContradictionError | SignatureError), refused
    assert "kept" in str(refused)
    assert not Path("out").exists()
    with open_verified(behind / "ledger") as ledger:  # nothing was added to it
        assert ledger.size == parse_tree_head(read_tree_head(scene.earlier) or "").size
    honest = result(scene.root)
    assert honest is None or (command.startswith("data review") and "not a decision" in str(honest))


def test_policy_says_how_far_the_ledger_is_witnessed(scene: Scene, tmp_path: Path) -> None:
    policy = scene.root / "policy"
    report = verify(scene, "--witnesses", policy)
    assert 0 < report["witnessed"] <= report["size"]
    nobody = tmp_path / "nobody"
    nobody.write_text("quorum none\n")
    assert verify(scene, "--witnesses", nobody)["witnessed"] is None
    assert "asks for no witness" in call(["verify", "--witnesses", nobody], home=scene.root).stdout
    lonely = tmp_path / "lonely"
    lonely.write_text(policy.read_text().replace("witness-", "nobody-"))
    done = call(["verify", "--witnesses", lonely], home=scene.root)
    assert done.returncode in (1, 2)


def test_entries_that_rest_on_a_revoked_key_are_suspect_unless_witnessed_before(
    scene: Scene,
) -> None:
    policy = scene.root / "policy"
    assert verify(scene)["suspect"] == []
    with recorder(scene.ledger) as into:
        into.revoke_key(
            scene.vkey.strip(),
            role="ledger",
            since=2**62,
            reason="copied",
            author=AuthorKey("operator", OPERATOR),
        )
    (without,) = verify(scene)["suspect"]  # nobody is believed to have seen anything
    assert (without["first"], without["reason"]) == (0, "copied")
    assert call(["verify"], home=scene.root).returncode == 1
    within = verify(scene, "--witnesses", policy)["suspect"]
    assert all(each["first"] >= each["witnessed_before"] > 0 for each in within)


def test_proof_needs_the_public_key_and_holds_with_it_alone(scene: Scene, tmp_path: Path) -> None:
    done = call(["verify", scene.proof], home=tmp_path / "nowhere")
    assert (done.returncode, "--vkey" in done.stderr) == (2, True)
    key = tmp_path / "vkey"
    key.write_text(scene.vkey)
    shown = answer(call(["verify", scene.proof, "--vkey", key, "--json"], home=None))
    assert shown["ok"]
    changed = tmp_path / "changed.tlog-proof"
    changed.write_text(scene.proof.read_text().replace("\nindex ", "\nindex 1", 1))
    done = call(["verify", changed, "--vkey", key], home=None)
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--new", "--head", "kept"], "--new"),
        (["bundle", "--new"], "read whole"),
        (["kept"], "neither a report, a tlog-proof, a lineage, evidence nor an export of training"),
        (["nothing-here"], "nothing-here does not exist"),
        (["copy.sqlite"], "copy.sqlite is a database; name its folder"),
        (["bundle", "--vkey", "new.pem"], "new.pem is a private key"),
        (["bundle", "--vkey", "policy"], "policy: the vkey is not a C2SP verifier key"),
        (["bundle", "--vkey", "nothing"], "nothing cannot be read"),
    ],
)
def test_wrong_usage_is_explained(
    scene: Scene, tmp_path: Path, arguments: list[str], says: str
) -> None:
    shutil.copy(scene.database, scene.root / "copy.sqlite")
    words = [each if each.startswith("-") else scene.root / each for each in arguments]
    done = call(["verify", *words], home=scene.root, state=tmp_path / "state")
    assert done.returncode == 2, done.stdout
    assert says in done.stderr


def test_honest_ledger_beside_a_tampered_one_is_no_decoy(scene: Scene) -> None:
    home = scene.root
    with closing(sqlite3.connect(scene.database)) as c, c:
        c.execute("UPDATE entries SET entry = CAST(entry || x'00' AS BLOB) WHERE idx = 3")
    assert not verify(scene)["ok"]
    for path in ("checkpoint", "ledger.vkey"):
        shutil.copy(scene.bundle / path, home / path)
    shutil.copytree(scene.bundle / "tile", home / "tile")
    assert not verify(scene)["ok"]  # the home's ledger is meant, whatever lies beside it
    done = call(["verify", home], home=home)
    assert (done.returncode, "more than one ledger" in done.stderr) == (2, True)


def test_blank_before_the_vkey_does_not_make_the_memory_forget(
    scene: Scene, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    assert verify(scene, state=state)["ok"]
    behind = tmp_path / "behind"
    shutil.copytree(scene.earlier, behind / "ledger")
    key = behind / "ledger" / "ledger.vkey"
    key.write_text(f" {key.read_text()}")
    assert call(["log"], home=behind, state=state).returncode == 1
