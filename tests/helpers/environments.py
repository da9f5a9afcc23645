"""Virtual environments with pytest in them, made without a network."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = ("_pytest", "iniconfig", "packaging", "pluggy", "pygments", "pytest")


def make_environment(folder: Path) -> Path:
    """Make a virtual environment with pytest, and with a module that is nowhere else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, packages / name)
    shutil.copy(Path(pytest.__file__).parents[1] / "py.py", packages)
    (packages / "only_here.py").write_text("ANSWER = 42\n")
    return folder
