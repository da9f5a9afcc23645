"""What a command says of a mistake names the mistake, and what to write instead."""

import json
from pathlib import Path

import pytest
from frontdoor import call_here

from ledger.database import _REMEDIES
from proctor.cli.failures import report


@pytest.mark.parametrize("command", ["run", "compare"])
def test_setting_that_is_given_as_an_option_is_told_how_to_be_written(
    command: str, tmp_path: Path
) -> None:
    done = call_here([command, "--epochs", "3"], home=tmp_path)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "--epochs is a setting and no option; write epochs=3" in told
    assert "--policy" not in told
    done = call_here([command, "--train-examples=300"], home=tmp_path)
    assert "write train_examples=300" in " ".join(done.stderr.split())
    done = call_here([command, "--epochs"], home=tmp_path)
    assert "write epochs=VALUE" in " ".join(done.stderr.split())
    as_json = call_here([command, "--epochs", "3", "--json"], home=tmp_path)
    assert "write epochs=3" in json.loads(as_json.stdout)["message"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "-1e400", "", "[nan]"])
def test_number_that_is_none_is_one_error_that_names_it(value: str, tmp_path: Path) -> None:
    asked = ["--policy", "openai", "--set", "model=nan", "--set"]  # which is a name
    for arguments, named in (
        (["run", f"lr={value}"], "lr"),
        (["run", f"epochs={value}"], "epochs"),
        (["run", *asked, f"temperature={value}"], "temperature"),
        (["run", "--attempts", "2", *asked, f"price_in={value}"], "price_in"),
        (["compare", "--sweep", f"lr=0.1,{value}"], "lr"),
        (["compare", f"seed={value}"], "seed"),
        (["run", "--provoke-seed", value], "--provoke-seed"),
        (["runs", "--last", value], "--last"),
    ):
        done = call_here(arguments, home=tmp_path)
        told = " ".join(done.stderr.split())
        assert (done.returncode, done.stdout, named in told) == (2, "", True), (arguments, told)
        assert told.lower().count("error: ") == 1, told
    assert not (tmp_path / "ledger").exists()


def test_sql_in_several_words_is_told_to_be_put_into_quotes(tmp_path: Path) -> None:
    done = call_here(["sql", "SELECT", "1"], home=tmp_path)
    assert done.returncode == 2
    assert "put an argument that contains spaces into quotes" in " ".join(done.stderr.split())


def test_mistyped_option_is_still_told_the_closest_one(tmp_path: Path) -> None:
    done = call_here(["run", "--polici", "nothing"], home=tmp_path)
    assert "--policy" in done.stderr
    assert "is a setting" not in done.stderr


@pytest.mark.parametrize("name", ["nosuch.html", "no-such-folder"])
def test_verify_says_of_a_path_that_does_not_exist_that_it_does_not(
    name: str, tmp_path: Path
) -> None:
    done = call_here(["verify", str(tmp_path / name)], home=tmp_path)
    assert done.returncode == 2
    assert f"{name} does not exist; name a file or a folder" in " ".join(done.stderr.split())


def test_verify_says_of_a_binary_what_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(bytes(range(256)))
    done = call_here(["verify", str(tmp_path / "b")], home=tmp_path)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "is not text in UTF-8; check that it is the file that you mean" in told
    assert "codec" not in told


def test_full_disk_is_told_in_words_that_fit_reading_and_appending() -> None:
    assert "append" not in _REMEDIES["SQLITE_FULL"]
    assert "free some space" in _REMEDIES["SQLITE_FULL"]


def test_missing_extra_is_told_as_a_command_with_a_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert report(missing, command="run", as_json=False) == 2
    told = " ".join(capsys.readouterr().err.split())
    root = Path(__file__).parents[3]
    assert f"proctor run needs PyTorch: pip install '{root}[train]'" in told


def test_rescue_without_kept_states_is_said_to_answer_as_the_playbook(tmp_path: Path) -> None:
    tiny = ["epochs=1", "train_examples=64", "val_examples=32", "test_examples=32", "channels=4"]
    told = "so the policy rescue answers as the playbook; add profile=relative"
    for settings, said in ((["profile=calibrated"], True), ([], False)):
        done = call_here(["run", "--policy", "rescue", *tiny, *settings], home=tmp_path)
        assert (done.returncode, told in done.stderr) == (0, said)
