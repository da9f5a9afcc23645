"""TensorBoard and MLflow read the curves that are exported, with the values of the table."""

import json
import math
import os
import struct
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from frontdoor import call_here
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication

pytestmark = pytest.mark.foreign
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-tools" / "bin" / "python"
FOLDERS = {"tensorboard": "tb", "mlflow": "mlflow"}  # by the tracker that reads them
NOT_CURVES = {"epoch", "idx", "reported", "run_id"}


def exported(home: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Export in the environment of the tools, to which the project's packages are added."""
    return subprocess.run(
        [PYTHON, "-m", "proctor", "export", "curves", *arguments],
        env={
            **os.environ,
            "PROCTOR_HOME": str(home),
            "PROCTOR_STATE": "off",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home of two runs, one of which diverged, and the exports of both."""
    place = tmp_path_factory.mktemp("curves")
    with LedgerApplication.open(place / "home" / "ledger", REGISTRY) as log:
        runs = [synthetic_run(log, diverged=(3,), end="failed"), synthetic_run(log, seed=1)]
    for run in runs:
        for form, folder in FOLDERS.items():
            where: list[str | Path] = ["--format", form, "--out", place / folder]
            done = exported(place / "home", str(run.id), *where)
            assert done.returncode == 0, done.stderr
    return place


def bits(value: float) -> bytes:
    """Return the bytes of a float; those of NaN are always the same."""
    return struct.pack("<d", float("nan") if math.isnan(value) else value)


def single(value: float) -> float:
    """Return a value as TensorBoard has it, a float of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def test_values_are_those_of_the_table(place: Path) -> None:
    done = subprocess.run(
        [PYTHON, HERE / "read_curves.py", place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    query = "SELECT e.*, v.time FROM epochs AS e JOIN events AS v USING (idx) ORDER BY idx"
    rows = json.loads(call_here(["sql", query, "--json"], home=place / "home").stdout)
    wanted: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        when = datetime.fromisoformat(row.pop("time")).timestamp()
        curves = wanted.setdefault(row["run_id"], {})
        for name in row.keys() - NOT_CURVES:
            if row[name] is not None:
                points = curves.setdefault(name, [])
                points.append([row["epoch"], when, float(row[name])])
    assert len(wanted) == 2
    assert any(math.isnan(value) for run in wanted.values() for _, _, value in run["train_loss"])
    for run, curves in wanted.items():
        tensorboard, mlflow = found["tensorboard"][run], found["mlflow"][run]
        assert tensorboard.keys() == mlflow["curves"].keys() == curves.keys()
        for name, points in curves.items():
            for theirs, ours in zip(tensorboard[name], points, strict=True):
                assert theirs[0] == ours[0]
                assert theirs[1] == pytest.approx(ours[1], abs=1e-5)
                assert bits(theirs[2]) == bits(single(ours[2]))
            for theirs, ours in zip(mlflow["curves"][name], points, strict=True):
                assert (theirs[0], bits(theirs[2])) == (ours[0], bits(ours[2]))
                assert abs(theirs[1] - ours[1] * 1000) <= 1
        assert mlflow["params"]["dataset"] == "shapes"
    assert sorted(found["mlflow"][run]["status"] for run in wanted) == ["FAILED", "FINISHED"]


@pytest.mark.parametrize("form", FOLDERS)
def test_second_export_of_a_run_is_refused(place: Path, form: str) -> None:
    done = exported(place / "home", "latest", "--format", form, "--out", place / FOLDERS[form])
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "exists: TensorBoard" in done.stderr or "already; delete it" in done.stderr
