"""The wheel has every file of the packages, and its base commands run outside the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

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
