"""What a command is told to write costs nobody a key or a ledger."""

import shutil
from pathlib import Path

import pytest
from frontdoor import call_here


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    found = Path(shutil.copytree(trained, tmp_path / "home"))
    assert call_here(["keys", "new", "operator", str(tmp_path / "ada.pem")], home=found)
    return found


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("home/ledger/ledger.sqlite", "where the home keeps"),
        ("home/ledger/new.txt", "where the home keeps"),
        ("elsewhere.sqlite", "is a database"),
        ("ada.pem", "is a key"),
        ("ada.pem.vkey", "is a key"),
        ("link", "not a regular file"),
        ("nowhere/proof", "there is no folder"),
    ],
)
@pytest.mark.parametrize(
    "command", [["export", "proof", "0", "--out"], ["export", "data", "--kind", "sft", "--out"]]
)
@pytest.mark.sampled(3)
def test_writing_over_what_is_precious_is_rejected(
    home: Path, tmp_path: Path, command: list[str], name: str, problem: str
) -> None:
    shutil.copy(home / "ledger/ledger.sqlite", tmp_path / "elsewhere.sqlite")
    (tmp_path / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    path = tmp_path / name
    before = path.read_bytes() if path.exists() else None
    done = call_here([*command, str(path)], home=home)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
    assert (path.read_bytes() if path.exists() else None) == before
    assert call_here(["verify"], home=home).returncode == 0
    assert "sealed" not in call_here(["data", "list"], home=home).stdout


def test_an_earlier_answer_is_written_over(home: Path, tmp_path: Path) -> None:
    (vkey,) = (home / "ledger").glob("*.vkey")
    for number in ("0", "1"):
        done = call_here(["export", "proof", number, "--out", str(tmp_path / "proof")], home=home)
        assert done.returncode == 0, done.stderr
    assert call_here(["verify", tmp_path / "proof", "--vkey", vkey], home=home).returncode == 0
