"""A model handed over: what its folder holds, who may make one, and what is refused."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from exhaustive import EXHAUSTIVE
from frontdoor import call, call_here
from selecting import CONTENT, started
from synthetic import synthetic_audit, synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.errors import VerificationError
from ledger.handover.envelope import payload_of
from ledger.handover.selection import choose
from ledger.handover.sigstore_bundle import open_bundle, seal_bundle
from ledger.keys import load_key
from ledger.notes import public_bytes
from ledger.verification.reader import open_verified
from proctor.handover.evidence import UNBOUND
from proctor.handover.folder import check_handover
from projections.counting import streams_of

FILES = [
    "README.md",
    "claims.jsonl",
    "events.tlog-proof",
    "ledger.pem",
    "ledger.vkey",
    "model.sig",
    "model/README.md",
    "model/model.py",
    "model/run_config.json",
    "model/weights.safetensors",
    "publisher.pem",
]
SECOND = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
GOLDEN = Path(__file__).parents[2] / "golden" / "model_1_bundle"
GOLDEN_VKEY = (
    "proctor.local/509b918b2fa5cecfc8bae66891e72615+ee1a746d+"
    "AXQZmPpkHCPXKqXEJtfWFEd+7Sso2VJfcrm+TmLsPznw"
)


CUT = GOLDEN.with_name("model_2_bundle.tar.gz")
CUT_VKEY = (
    "proctor.local/aa58724fa34f65dde6a9303ae8af2387+1633081e+"
    "AQxEtV9eVdDeeEee6jfXDAfcFpS2AbvHk/85ScALK/zp"
)


def attest(home: Path, out: Path, *more: str | Path, run: str = "latest") -> dict[str, Any]:
    done = call_here(["export", "model", run, "--out", out, "--json", *more], home=home)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def refused(home: Path, out: Path, *more: str | Path, run: str = "latest") -> str:
    done = call_here(["export", "model", run, "--out", out, *more], home=home)
    assert (done.returncode, out.exists()) == (2, False), done.stdout
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def home(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose run was handed over once."""
    home = Path(shutil.copytree(trained, tmp_path_factory.mktemp("attested") / "home"))
    attest(home, home / "handed")
    return home


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "handed", tmp_path / "handed"))


def vkey(home: Path) -> str:
    return (home / "ledger" / "ledger.vkey").read_text().strip()


def payloads(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "claims.jsonl").read_text().splitlines()
    return [json.loads(payload_of(json.dumps(json.loads(x)["dsseEnvelope"]))) for x in lines]


def test_folder_is_verified_and_says_what_the_ledger_says(home: Path, folder: Path) -> None:
    owner = home / "ledger" / "ledger.vkey"
    done = call_here(["verify", folder, "--vkey", owner, "--json"], home=home)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True)
    assert set(told["reservations"]) <= {UNBOUND}
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*")) == FILES
    assert {f"model/{name}" for name in told["files"]} == {f for f in FILES if "/" in f}
    signed, trained, judged = payloads(folder)
    row = json.loads(call_here(["sql", "FROM run_starts", "--json"], home=home).stdout)[0]
    built = trained["predicate"]["buildDefinition"]
    assert built["externalParameters"]["config_hash"] == row["config_hash"]
    assert built["internalParameters"]["evidence_level"] == "repeatable"
    prints = json.loads(row["data"])["fingerprints"] if isinstance(row["data"], str) else None
    prints = prints or row["data"]["fingerprints"]
    found = {each["name"]: each["digest"]["sha256"] for each in built["resolvedDependencies"]}
    assert {found[f"data: {split}"] for split in prints} == set(prints.values())
    assert judged["predicate"]["passedTests"][:2] == ["deliverables", "load_model"]
    assert "slsa.dev/spec" not in json.dumps(trained)
    assert trained["subject"] == judged["subject"]
    assert trained["subject"][0] == signed["subject"][0]
    card = (folder / "model" / "README.md").read_text()
    assert told["run"] in card
    assert "R1" in card
    assert "| blocks | width 8, residual True, norm batch, activation relu" in card
    plain = call_here(["verify", folder], home=home)
    assert f"verdict {told['verdict']}, evidence level repeatable" in plain.stdout
    assert "give the owner's with --vkey" in " ".join(plain.stderr.split())


@pytest.mark.parametrize("name", FILES)
def test_altered_file_is_rejected_by_its_name(home: Path, folder: Path, name: str) -> None:
    path, owner = folder / name, vkey(home)
    honest = path.read_bytes()
    ends: set[int] = {0, len(honest) // 3, len(honest) - 1} if EXHAUSTIVE else set()
    places = {len(honest) // 2, *ends}
    altered = [honest[:at] + bytes([honest[at] ^ 1]) + honest[at + 1 :] for at in places]
    for number, content in enumerate((*altered, honest + b"\n", honest[:-1], b"")):
        path.write_bytes(content)
        for given in (owner, None) if EXHAUSTIVE else (owner, None)[number % 2 :][:1]:
            with pytest.raises(VerificationError, match=f"^{name}"):
                check_handover(folder, vkey=given)
    path.unlink()
    with pytest.raises(VerificationError, match=f"^{name} is missing"):
        check_handover(folder, vkey=owner)
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_bytes(honest)
    path.symlink_to(elsewhere)
    with pytest.raises(VerificationError, match=f"^{name}.*(link|regular file)"):
        check_handover(folder, vkey=owner)
    path.unlink()
    path.write_bytes(honest)
    check_handover(folder, vkey=owner)


@pytest.mark.parametrize("name", ["more.txt", "model/more.txt"])
def test_file_that_nobody_signed_is_rejected(folder: Path, name: str) -> None:
    (folder / name).write_text("more")
    with pytest.raises(VerificationError, match=f"^{name} is not"):
        check_handover(folder, vkey=None)


def test_claim_that_the_events_do_not_bear_out_is_rejected(home: Path, folder: Path) -> None:
    """Even if the ledger's own key has signed it."""
    key = load_key(home / "ledger" / "keys" / "ledger.pem", passphrase=None)
    lines = (folder / "claims.jsonl").read_text().splitlines(keepends=True)
    judged = payloads(folder)[2]
    judged["predicate"]["configuration"][0]["annotations"]["accuracy_score"] = 1.0
    public = public_bytes(key)
    lines[2] = seal_bundle(json.dumps(judged).encode(), key=key, public_key=public)
    (folder / "claims.jsonl").write_text("".join(lines))
    with pytest.raises(VerificationError, match=r"^claims\.jsonl: claim 3 does not say what"):
        check_handover(folder, vkey=vkey(home))


def test_model_handed_over_by_an_earlier_version_is_verified() -> None:
    opened = check_handover(GOLDEN, vkey=GOLDEN_VKEY)
    assert (opened.evidence.verdict, len(opened.files)) == ("PASSED", 4)


def test_key_of_another_ledger_is_rejected(home: Path, folder: Path, tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "other", REGISTRY):
        pass
    other = tmp_path / "other" / "ledger.vkey"
    done = call_here(["verify", folder, "--vkey", other], home=home)
    assert (done.returncode, "ledger.vkey: this is not" in done.stdout) == (1, True)
    done = call_here(["verify", folder, "--new"], home=home)
    assert (done.returncode, "which is a model handed over" in done.stderr) == (2, True)


@pytest.mark.slow
def test_publisher_is_made_once_and_replaced_when_revoked(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "home"))
    first = attest(home, tmp_path / "first")
    again = attest(home, tmp_path / "again")
    assert (first["granted"], again["granted"]) == (True, False)
    assert first["publisher"] == again["publisher"]
    claims = [(tmp_path / name / "claims.jsonl").read_bytes() for name in ("first", "again")]
    assert claims[0] == claims[1]  # the same events under the same tree head
    own = home / "ledger" / "keys" / "publisher.pem"
    assert own.stat().st_mode & 0o777 == 0o600
    why = ["--since", "now", "--reason", "lost"]
    assert call_here(["keys", "revoke", f"{own}.vkey", *why], home=home).returncode == 0
    assert "was revoked; move it away" in refused(home, tmp_path / "no")
    own.rename(tmp_path / "old.pem")
    own.with_name("publisher.pem.vkey").unlink()
    operator = tmp_path / "operator.pem"
    assert call_here(["keys", "new", "operator", operator], home=home).returncode == 0
    assert call_here(["keys", "grant", "operator", f"{operator}.vkey"], home=home).returncode == 0
    said = refused(home, tmp_path / "no")
    assert "keys grant publisher" in said
    assert "--key OPERATOR.pem" in said
    granted: list[str | Path] = ["keys", "grant", "publisher", f"{own}.vkey", "--key", operator]
    assert call_here(granted, home=home).returncode == 0
    assert call_here(["keys", "rotate"], home=home).returncode == 0
    new = attest(home, tmp_path / "new", "--key", own)
    assert new["publisher"] != first["publisher"]
    check_handover(tmp_path / "new", vkey=vkey(home))
    # Who remembers the ledger knows of the revocation; the folder alone cannot show it.
    check_handover(tmp_path / "first", vkey=vkey(home))
    state = tmp_path / "state"
    assert call(["verify"], home=home, state=state).returncode == 0
    remembered: list[str | Path] = ["export", "model", "latest", "--out", tmp_path / "third"]
    assert call(remembered, home=home, state=state).returncode == 0
    done = call(["verify", tmp_path / "first"], home=home, state=state)
    assert (done.returncode, "publisher.pem: the ledger has revoked" in done.stdout) == (1, True)
    assert call(["verify", tmp_path / "new"], home=home, state=state).returncode == 0


def store(home: Path) -> None:
    blobs = BlobStore(home / "ledger" / "blobs")
    for content in CONTENT.values():
        blobs.put(content)


def test_what_cannot_be_handed_over_is_refused_in_one_sentence(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        bare = started(log, level="measured", weights=False)
        unjudged = started(log)
        judged = started(log)
        synthetic_audit(log, judged)
        going = started(log, end=False)
    # As good as held: nobody can tell that the process is gone.
    (home / "runs" / str(going.id) / "running.lock").mkdir(parents=True)
    for run, says in (
        (going, "has not ended; export its model when it has"),
        (bare, "saved no weights, so there is no model to hand over"),
        (unjudged, "no audit of run"),
        (judged, "is not the file that the run handed in"),
    ):
        assert says in refused(home, out, run=str(run.id))
    store(home)
    attest(home, out, run=str(judged.id))
    done = call_here(["export", "model", str(judged.id), "--out", out], home=home)
    assert (done.returncode, "is not an empty folder" in " ".join(done.stderr.split())) == (2, True)
    (home / "ledger" / "keys" / "ledger.pem").unlink()
    assert "only who has the ledger" in refused(home, tmp_path / "no", run=str(judged.id))


def test_failed_and_doubtful_verdicts_are_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        failed, watched = started(log), started(log, level="measured")
        synthetic_audit(log, failed, hard_fail=True)
        synthetic_audit(log, watched)
    store(home)
    for run, verdict, card in (
        (failed, "FAILED", "a gate does not hold"),
        (watched, "WARNED", "inside a training loop that it does not control"),
    ):
        told = attest(home, tmp_path / verdict, run=str(run.id))
        assert told["verdict"] == verdict
        assert check_handover(tmp_path / verdict, vkey=vkey(home)).evidence.run == run.id
        assert card in (tmp_path / verdict / "model" / "README.md").read_text()
    _, trained, judged = payloads(tmp_path / "WARNED")
    assert judged["predicate"]["result"] == "WARNED"
    assert trained["predicate"]["buildDefinition"]["internalParameters"]["evidence_level"] == (
        "measured"
    )
    text = (tmp_path / "WARNED" / "model" / "README.md").read_text()
    assert r"shapes \<b\>\|x" in text
    text = (tmp_path / "FAILED" / "model" / "README.md").read_text()
    assert "| test accuracy | not measured |" in text
    done = call_here(["verify", tmp_path / "WARNED"], home=home)
    assert (done.returncode, "warned: the evidence level is measured" in done.stdout) == (0, True)


def test_decisions_are_proved(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        run = synthetic_run(log, exploding=range(5))
    with open_verified(tmp_path / "ledger") as ledger:
        wanted = streams_of(ledger.entries(), run.id)
        chosen = choose(ledger.entries(), wanted, origin=ledger.authority.origin)
    names = [entry.name for entry in chosen]
    assert names[0] == "run.started"
    assert names.count("run.decision_made") == len(run.decisions)


def test_proofs_of_a_folder_are_read_by_both_verifiers(home: Path, folder: Path) -> None:
    proofs = folder / "events.tlog-proof"
    many = proofs.read_text().count("c2sp.org/tlog-proof@v1")
    owner = home / "ledger" / "ledger.vkey"
    done = call_here(["verify", proofs, "--vkey", owner, "--json"], home=home)
    told = json.loads(done.stdout)
    assert (done.returncode, len(told["entries"])) == (0, many)
    plain = call_here(["verify", proofs, "--vkey", owner], home=home)
    assert plain.stdout.startswith(f"held: {many} entries of {told['size']} in ")
    second: list[str | Path] = [sys.executable, "-I", SECOND, proofs, "--vkey", owner]
    assert run(second).stdout.startswith(f"held: {many} of {told['size']} entries of ")
    # The golden folder's, too; and no file in which one proof is damaged, or there twice.
    golden = GOLDEN / "events.tlog-proof"
    assert run([*second[:3], golden, "--vkey", GOLDEN_VKEY]).stdout.startswith("held: ")
    text = proofs.read_text()
    at = text.rindex("c2sp.org/tlog-proof@v1")
    for damaged in (text + text[at:], text.replace("\nindex 1\n", "\nindex 2\n", 1)):
        proofs.write_text(damaged)
        assert run(second).returncode == 1
        assert call_here(["verify", proofs, "--vkey", owner], home=home).returncode == 1


def run(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow  # trains and judges; test_selected_entries.py has each of these alone
def test_folder_and_report_hold_after_all_that_a_ledger_may_see(
    trained: Path, tmp_path: Path
) -> None:
    """A fork, a second audit by a judge, its revocation for later times, and a rotated key."""
    home = Path(shutil.copytree(trained, tmp_path / "home"))
    operator, judge = tmp_path / "operator.pem", home / "ledger" / "keys" / "judge.pem"
    why = ["--since", "now", "--reason", "retired"]
    commands: list[list[str | Path]] = [
        ["keys", "new", "operator", operator],
        ["keys", "new", "judge", judge],
        ["keys", "grant", "operator", f"{operator}.vkey"],
        ["keys", "grant", "judge", f"{judge}.vkey", "--key", operator],
        ["judge"],
        ["judge", "--sample"],
        ["fork", "latest", "--at", "2", "--policy", "playbook"],
        ["keys", "revoke", f"{judge}.vkey", "--key", operator, *why],
        ["keys", "rotate"],
    ]
    for command in commands:
        done = call_here(command, home=home)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    own = home / "ledger" / "keys" / "publisher.pem"
    assert "keys grant publisher" in refused(home, tmp_path / "no")
    granted: list[str | Path] = ["keys", "grant", "publisher", f"{own}.vkey", "--key", operator]
    assert call_here(granted, home=home).returncode == 0
    attest(home, tmp_path / "handed", "--key", own)
    page = tmp_path / "page.html"
    assert call_here(["report", "latest", "--out", page], home=home).returncode == 0
    owner = home / "ledger" / "ledger.vkey"
    for path in (tmp_path / "handed", page):
        asked: list[str | Path] = ["verify", path, "--vkey", owner, "--judge", f"{judge}.vkey"]
        done = call_here([*asked, "--json"], home=home)
        told = json.loads(done.stdout)
        assert (done.returncode, told["ok"], told["trusted"]) == (0, True, True), told
        assert told["verdicts"][0]["granted_as"] == "operator"


def test_folder_whose_claim_counts_a_cut_list_holds_and_says_so(tmp_path: Path) -> None:
    with tarfile.open(CUT) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / "model_2_bundle"
    (key := tmp_path / "owner.vkey").write_text(CUT_VKEY)
    told = call_here(["verify", folder, "--vkey", key], home=tmp_path)
    assert told.returncode == 0, told.stdout
    said = " ".join(told.stdout.split())
    assert "warned: violations: 207" in said
    assert (
        "claim counts a cut list: the folder's claim says 150 violations, and the audit found 207"
    ) in said
    found = json.loads(call_here(["verify", folder, "--vkey", key, "--json"], home=tmp_path).stdout)
    assert (found["ok"], found["claim"], found["trusted"]) == (True, "cut_list", False)
    assert (found["violations"], found["violations_claimed"]) == (207, 150)
    assert "violations: 207" in found["reservations"]


@pytest.mark.parametrize(("said", "holds"), [(150, True), (149, False), (0, False), (208, False)])
def test_claim_that_counts_neither_the_list_nor_all_violations_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int, holds: bool
) -> None:
    with tarfile.open(CUT) as packed:
        packed.extractall(tmp_path, filter="data")

    def signed(line: str, *, public_key: bytes) -> Any:
        opened = json.dumps(open_bundle(line, public_key=public_key))
        return json.loads(opened.replace('"violations: 150"', f'"violations: {said}"'))

    monkeypatch.setattr("proctor.handover.folder.open_bundle", signed)
    if holds:
        opened = check_handover(tmp_path / "model_2_bundle", vkey=CUT_VKEY)
        assert (opened.cut_list, opened.evidence.violations) == (150, 207)
        return
    with pytest.raises(VerificationError, match="claim 3 does not say what the proved events say"):
        check_handover(tmp_path / "model_2_bundle", vkey=CUT_VKEY)
