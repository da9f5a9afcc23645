"""The wheel has every file of the packages, and its base commands run outside the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
from frontdoor import TINY

from proctor import __version__

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "calibrated_2"
PACKAGES = ["aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections"]
# What `python -m build --no-isolation` calls, without the package `build`.
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def tracked(*folders: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows which files belong to it")
    done = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy: setuptools writes next to its sources."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    for name in tracked(*PACKAGES, "pyproject.toml", "README.md"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, out], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = out.iterdir()
    return built


def test_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == set(tracked(*PACKAGES))


@pytest.mark.slow  # makes an environment; test_light_install.py runs the same commands
def test_base_commands_run_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    installed, home = tmp_path / "installed", tmp_path / "home"
    with ZipFile(wheel) as archive:
        archive.extractall(installed)
    shutil.copytree(GOLDEN, home)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")},
        "PYTHONPATH": str(installed),
        "PROCTOR_HOME": str(home),
        "PROCTOR_STATE": "off",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-c", "import proctor; print(proctor.__file__)").startswith(str(installed))
    assert run("-m", "proctor", "--version") == f"proctor {__version__}\n"
    assert run("-m", "proctor", "verify").startswith("held: 32 entries")
    assert "playbook" in run("-m", "proctor", "sql", "SELECT policy FROM runs")


def release(wheel: Path, into: Path, *, numbers: str = "", packed: bool = True) -> Path:
    """Install the wheel into a folder, with a line more in a file that decides runs."""
    with ZipFile(wheel) as archive:
        archive.extractall(into)
    changed = into / "policies/numbers.toml"
    changed.write_text(changed.read_text() + numbers)
    (record,) = into.glob("proctor-*.dist-info/RECORD")
    told = urlsafe_b64encode(sha256(changed.read_bytes()).digest()).decode().rstrip("=")
    line = f"policies/numbers.toml,sha256={told},{changed.stat().st_size}"
    if packed:
        record.write_text(re.sub("policies/numbers.toml,.*", line, record.read_text()))
    return into


@pytest.mark.slow
def test_home_begins_a_checkpoint_of_its_own_for_each_version_that_is_installed(
    wheel: Path, tmp_path: Path
) -> None:
    first = release(wheel, tmp_path / "first")
    second = release(wheel, tmp_path / "second", numbers="# two\n")
    edited = release(wheel, tmp_path / "edited", numbers="# by hand\n", packed=False)

    def call(installed: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")
            },
            "PYTHONPATH": str(installed),
            "PROCTOR_HOME": str(tmp_path / "home"),
            "PROCTOR_STATE": "off",
            "COLUMNS": "300",
        }
        done = subprocess.run(
            [sys.executable, "-m", "proctor", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    for installed in (first, second, second, edited, first):
        call(installed, "run", *TINY)
    shown = call(first, "line", "show", "--list", "checkpoints", "--json").stdout
    listed = json.loads(shown)["checkpoints"]
    assert [(each["origin"], each["runs"]) for each in listed] == [("opened", 2), ("adopted", 2)]
    labels = "SELECT label_matches, COUNT(*) AS runs FROM run_labels GROUP BY ALL ORDER BY runs"
    found = json.loads(call(first, "sql", labels, "--json").stdout)
    assert found == [{"label_matches": False, "runs": 1}, {"label_matches": True, "runs": 4}]
    name = listed[1]["checkpoint_id"]
    back = json.loads(call(first, "line", "rollback", name, "--reason", "worse", "--json").stdout)
    assert (back["reached"], back["to"], back["runs"]) == ([name], listed[0]["checkpoint_id"], 2)
    again = call(second, "run", *TINY).stderr
    assert f"this code is checkpoint {name}, which was rolled back" in again
    assert "install another version" in again
    tainted = "SELECT COUNT(*) AS runs FROM run_standing WHERE tainted"
    assert json.loads(call(second, "sql", tainted, "--json").stdout) == [{"runs": 3}]
    own = listed[0]["checkpoint_id"]
    refused = call(first, "line", "rollback", own, "--reason", "worse", code=2).stderr
    assert f"{own} is the first version of the installed code in this home" in refused
