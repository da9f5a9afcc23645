"""Training data at the command line: drawn, sealed, held against its seal, and called back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from curation_histories import DATA, OPERATOR, Scene
from frontdoor import answer, call_here

from judge.curation.query import Query
from judge.curation.sealing import draw
from judge.curation.tables import open_tables
from ledger.verification.reader import open_verified
from proctor.home import Home

Call = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with four runs from one start: two act, of which one by a model, and two wait."""
    home = tmp_path_factory.mktemp("curate")
    scene = Scene(home)
    first = scene.line.active
    scene.admit("data", DATA[0])
    scene.admit("model", "playbook")
    scene.admit("model", "small")
    second = scene.promote()
    better = scene.run(second, acts=True)
    asked = scene.run(first, acts=True, author="small", temperature=0.5)
    worse = scene.run(first, acts=False)
    unlabelled = scene.run(None, acts=False)
    quiet = scene.run(first, acts=False, group=1)
    scene.audit(quiet, exercised=False, violation=True)
    for run, accuracy in ((better, 0.7), (asked, 0.72), (worse, 0.3), (unlabelled, 0.3)):
        scene.audit(run, accuracy=accuracy)
    (home / "runs.json").write_text(
        json.dumps(
            {
                "better": better,
                "asked": asked,
                "worse": worse,
                "no label": unlabelled,
                "quiet": quiet,
            }
        )
    )
    scene.log.close()
    pem = OPERATOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (home / "ada.pem").write_bytes(pem)
    (home / "ada.pem").chmod(0o600)
    return home


@pytest.fixture
def home(told: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(told, tmp_path / "home"))


@pytest.fixture
def runs(home: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((home / "runs.json").read_text())
    return found


@pytest.fixture
def curate(home: Path) -> Call:
    def call(*arguments: str | Path) -> CompletedProcess[str]:
        group = {"export": ["export", "data"], "verify": ["verify"]}
        first, *rest = arguments
        done = call_here([*group.get(str(first), ["data", first]), *rest], home=home)
        assert "Traceback" not in done.stderr
        return done

    return call


def test_export_is_sealed_and_a_changed_file_is_rejected(
    home: Path, runs: dict[str, str], curate: Call
) -> None:
    out = home / "sft.jsonl"
    first = answer(curate("export", "--kind", "sft", "--out", out, "--json"))
    assert (first["examples"], first["runs"], first["let_in"]) == (3, 5, 3)
    assert first["why_not"] == {"no label": 1, "not exercised": 1}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [
        f"{runs[name]}/1" for name in ("better", "asked", "worse")
    ]
    for line in lines:
        assert set(line) == {"id", "messages"}
        assert [message["role"] for message in line["messages"]] == ["system", "user", "assistant"]
        said = json.loads(line["messages"][-1]["content"])
        assert [decision["cites"] for decision in said["decisions"]] == [["R7"]]
    assert lines[1]["messages"][1]["content"] == "group 0: R7 is not finite"  # as it was asked
    assert curate("verify", out).returncode == 0
    out.write_bytes(out.read_bytes().replace(b"decrease_lr", b"increase_lr", 1))
    changed = curate("verify", out)
    assert changed.returncode == 1
    assert "no export in the ledger has these bytes" in changed.stdout


@pytest.mark.slow
def test_export_is_sealed_once_and_is_the_same_as_a_table(home: Path, curate: Call) -> None:
    out, table, same = home / "sft.jsonl", home / "sft.parquet", home / "same.jsonl"
    first = answer(curate("export", "--kind", "sft", "--out", out, "--json"))
    assert curate("export", "--kind", "sft", "--out", table).returncode == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert pq.read_table(table).to_pylist() == lines
    again = answer(
        curate("export", "--kind", "sft", "--as-of", str(first["as_of"]), "--out", same, "--json")
    )
    assert again["sealed_before"] is not None
    assert same.read_bytes() == out.read_bytes()


@pytest.mark.slow
def test_messages_are_chosen_by_forces(home: Path) -> None:
    with open_verified(home / "ledger") as ledger, open_tables(ledger) as tables:
        for asked, expected in (
            ({"decided_by": ("small",), "min_accuracy": 0.71}, 1),
            ({"max_temperature": 0.4, "min_process_score": 1.0}, 2),  # no model, not sampled
            ({"max_temperature": 0.5}, 3),
            ({"dataset": "shapes", "provoked": True}, 0),
            ({"gold": True}, 0),
        ):
            chosen = Query(kind="sft", **asked)
            assert len(draw(tables, chosen, blobs=Home(home).blobs).examples) == expected, asked


def test_pairs_are_of_runs_from_one_start(home: Path, runs: dict[str, str]) -> None:
    with open_verified(home / "ledger") as ledger, open_tables(ledger) as tables:
        drawn = draw(tables, Query(kind="preferences"), blobs=Home(home).blobs)
    pairs = [json.loads(each.line) for each in drawn.examples]
    assert [pair["id"] for pair in pairs] == [
        f"{runs[better]}/1>{runs['worse']}/1" for better in ("better", "asked")
    ]
    for pair in pairs:
        assert set(pair) == {"id", "prompt", "chosen", "rejected", "evidence"}
        assert [len(pair[part]) for part in ("prompt", "chosen", "rejected")] == [2, 1, 1]
        assert "decrease_lr" in pair["chosen"][0]["content"]
        assert "defer" in pair["rejected"][0]["content"]


@pytest.mark.slow
def test_why_says_in_one_sentence_what_a_run_is_used_for(
    runs: dict[str, str], curate: Call
) -> None:
    said = {}
    for name in ("better", "quiet", "no label"):
        done = curate("why", runs[name])
        assert done.returncode == (name != "better")
        said[name] = " ".join(done.stdout.split())
    assert said["better"].startswith(f"run {runs['better']} is training data.")
    assert said["quiet"].startswith(
        f"run {runs['quiet']} is used as a failure only, as evidence for proposals and as the "
        "rejected side of pairs, because too few fired rules were answered by a remedy that took "
        "effect."
    )
    assert said["no label"].startswith(
        f"run {runs['no label']} is excluded from training data because the code that made it is "
        "not a checkpoint of this ledger."
    )


@pytest.mark.slow  # test_curation_rules.py and _histories.py call back without the command
def test_withdrawn_origin_calls_its_examples_back(
    home: Path, runs: dict[str, str], curate: Call
) -> None:
    out = home / "sft.jsonl"
    curate("export", "--kind", "sft", "--out", out)
    done = curate("withdraw", "model", "small", "--note", "it copies", "--key", home / "ada.pem")
    assert done.returncode == 0, done.stderr
    found = curate("why", "--json")
    assert found.returncode == 1
    assert [(each["example"], each["tainted"]) for each in json.loads(found.stdout)] == [
        (f"{runs['asked']}/1", True)
    ]
    assert curate("verify", out).returncode == 1
    assert curate("why", runs["asked"]).returncode == 1
    assert answer(curate("list", "--json"))["exports"][0]["to_be_called_back"] == 1


def test_export_as_of_an_index_before_an_exclusion_is_rejected_unless_asked_as_it_was(
    home: Path, runs: dict[str, str], curate: Call
) -> None:
    first = answer(curate("export", "--kind", "sft", "--out", home / "sft.jsonl", "--json"))
    again = ("export", "--kind", "sft", "--as-of", str(first["as_of"]), "--json")
    curate("withdraw", "model", "small", "--note", "it copies", "--key", home / "ada.pem")
    with Home(home).open_log() as log:
        before = log.recorder.max_notification_id()
    out = home / "again.jsonl"
    refused = curate(*again, "--out", out)
    assert (refused.returncode, out.exists()) == (1, False)
    said = " ".join(refused.stderr.split())
    assert f"1 example of 3 as of entry {first['as_of']} would be excluded now" in said
    assert f"{runs['asked']}/1" in said
    assert json.loads(refused.stdout)["to_be_called_back"] == 1
    with Home(home).open_log() as log:
        assert log.recorder.max_notification_id() == before
    told = answer(curate(*again, "--as-it-was", "--out", out))
    assert (told["sealed_before"], told["to_be_called_back"]) == (None, 1)
    assert out.read_bytes() == (home / "sft.jsonl").read_bytes()


@pytest.mark.slow
def test_export_as_it_was_is_listed_and_called_back(home: Path, curate: Call) -> None:
    first = answer(curate("export", "--kind", "sft", "--out", home / "sft.jsonl", "--json"))
    again = ("export", "--kind", "sft", "--as-of", str(first["as_of"]), "--json")
    assert answer(curate(*again))["sealed_before"] is not None
    assert curate("export", "--kind", "sft", "--as-it-was").returncode == 2
    curate("withdraw", "model", "small", "--note", "it copies", "--key", home / "ada.pem")
    told = answer(curate(*again, "--as-it-was"))
    queries = [row["query"] for row in answer(curate("list", "--json"))["exports"]]
    assert queries == [{}, {"as_it_was": True}]
    assert {each["export"] for each in json.loads(curate("why", "--json").stdout)} == {
        first["export"],
        told["export"],
    }
    unlike = ("--decided-by", "playbook", *again[3:])
    assert answer(curate(*again[:3], *unlike))["to_be_called_back"] == 0


def test_origin_is_admitted_with_an_operators_key_only(
    home: Path, told: Path, curate: Call
) -> None:
    stranger = home / "eve.pem"
    stranger.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    stranger.chmod(0o600)
    admit = ("admit", "model", "human", "--note", "me", "--unseen")
    refused = curate(*admit, "--key", stranger)
    assert refused.returncode == 2
    allowed = curate(*admit, "--key", home / "ada.pem")
    assert allowed.returncode == 0, allowed.stderr
    standing = {row["name"]: row["standing"] for row in answer(curate("list", "--json"))["origins"]}
    assert standing["human"] == "admitted"


def test_origin_that_no_run_has_is_rejected(home: Path, curate: Call) -> None:
    signed = ("--note", "ours", "--key", home / "ada.pem")
    refused = curate("admit", "model", "playboook", *signed)
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "no run of this ledger has the model 'playboook'" in said
    assert "`proctor data list` lists them, --unseen admits it all the same" in said


@pytest.mark.parametrize(
    "wrong",
    [
        ("--min-process-score", "9"),
        ("--min-accuracy", "1.5"),
        ("--margin", "2"),
        ("--max-temperature", "-1"),
    ],
)
def test_number_that_none_can_have_is_rejected_where_it_is_given(
    told: Path, wrong: tuple[str, str]
) -> None:
    refused = call_here(["export", "data", "--kind", "sft", *wrong], home=told)
    assert refused.returncode == 2
    assert f"Invalid value for '{wrong[0]}'" in refused.stderr


def test_export_of_nothing_is_told_and_neither_written_nor_sealed(home: Path, curate: Call) -> None:
    out = home / "gold.jsonl"
    with Home(home).open_log() as log:
        before = log.recorder.max_notification_id()
    done = curate("export", "--kind", "sft", "--gold", "--out", out, "--json")
    assert (done.returncode, out.exists()) == (1, False)
    told = json.loads(done.stdout)
    assert (told["examples"], told["let_in"], told["export"]) == (0, 3, None)
    assert "no example is left: nothing was sealed or written" in done.stderr
    with Home(home).open_log() as log:
        assert log.recorder.max_notification_id() == before
