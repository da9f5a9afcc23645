"""The commands that show where an example comes from, and check what is shown."""

import shutil
from pathlib import Path
from uuid import UUID

import duckdb
import pytest
from frontdoor import answer, call, call_here
from lineage_scene import LineageScene, make_lineage_scene

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> LineageScene:
    return make_lineage_scene(tmp_path_factory.mktemp("lineage_cli"))


@pytest.fixture(scope="module")
def home(scene: LineageScene) -> Path:
    return scene.ledger.parent


def test_lineage_is_told_and_what_is_written_holds_offline(
    scene: LineageScene, home: Path, tmp_path: Path
) -> None:
    file, key = tmp_path / "one.lineage", tmp_path / "owner.vkey"
    key.write_text(scene.vkey)
    example = scene.examples["tier one"]
    arguments: list[str | Path]
    arguments = ["data", "lineage", example, "--export", scene.exported, "--out", file, "--json"]
    told = answer(call(arguments, home=home))
    assert told["bytes"] == file.stat().st_size < 100_000
    assert told["tainted"] == []
    away = tmp_path / "away"
    away.mkdir()
    done = call(["verify", file, "--vkey", key, "--json"], home=None, cwd=away)
    assert done.returncode == 0, done
    assert answer(done)["steps"] == told["steps"]
    shown = call(["verify", file, "--vkey", key], home=None, cwd=away).stdout
    said = " ".join(shown.split())
    assert "entries of" in said
    assert "approved by an operator" in said
    assert "As of tree head" in said
    assert "other audits and later entries, such as a revoked key, can be left out" in said
    assert "the one that counts" not in said
    text = file.read_text()
    file.write_text(text.replace("/1\n", "/2\n", 1))
    refused = call(["verify", file, "--vkey", key], home=None, cwd=away)
    assert refused.returncode == 1
    assert "LineageError: a link is missing" in refused.stdout


@pytest.mark.parametrize(
    ("example", "message"),
    [("unlabelled", "names no checkpoint"), ("unjudged", "no valid audit of run")],
)
def test_missing_link_is_an_error_with_exit_code_1(
    scene: LineageScene, home: Path, tmp_path: Path, example: str, message: str
) -> None:
    file = tmp_path / "none.lineage"
    done = call(["data", "lineage", scene.examples[example], "--out", file], home=home)
    assert done.returncode == 1
    assert message in done.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ("zz", "an example must be RUN/NUMBER or RUN/NUMBER>RUN/NUMBER, not 'zz'"),
        (f"{UUID(int=7)}/1", f"the ledger has no decision {UUID(int=7)}/1"),
    ],
)
def test_name_of_no_example_is_rejected_as_wrong_input(
    home: Path, example: str, message: str
) -> None:
    done = call_here(["data", "lineage", example], home=home)
    assert (done.returncode, message in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert "the `id` of a line of an export" in " ".join(done.stderr.split())


def test_lineage_of_what_was_rolled_back_since_is_told_with_exit_code_1(
    scene: LineageScene, home: Path, tmp_path: Path
) -> None:
    later = Path(shutil.copytree(home, tmp_path / "home"))
    before, after = (scene.examples[name] for name in ("tier two", "adopted"))
    with LedgerApplication.open(later / "ledger", REGISTRY) as log:
        line: Line = log.repository.get(scene.line)
        adopted = next(each.id for each in line.checkpoints.values() if each.commit == "c0" * 20)
        line.roll_back(adopted, "it was worse after all")
        log.save(line)
    state = tmp_path / "state"
    assert call(["sql", "SELECT 1"], home=later, state=state).returncode == 0
    [noted] = (state / "tables").glob("*.home")
    with duckdb.connect(noted.with_suffix(".duckdb")) as cache:  # which is no evidence
        cache.execute("DELETE FROM log.checkpoint_rollbacks")
    done = call(
        ["data", "lineage", after, "--out", tmp_path / "one.lineage"], home=later, state=state
    )
    assert done.returncode == 1, done
    assert "tainted since" in done.stdout
    assert (tmp_path / "one.lineage").exists()
    assert call(["data", "lineage", before], home=later).returncode == 0  # the honest control


def test_lineage_over_the_export_that_it_reads_is_rejected(
    scene: LineageScene, home: Path, tmp_path: Path
) -> None:
    export = tmp_path / "sft.jsonl"
    export.write_bytes(scene.exported.read_bytes())
    example = scene.examples["tier one"]
    done = call_here(["data", "lineage", example, "--export", export, "--out", export], home=home)
    assert (done.returncode, "is named twice" in done.stderr) == (2, True), done.stderr
    assert export.read_bytes() == scene.exported.read_bytes()
