"""A base install: what works without the extras, and what names the one that is missing."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from empty_tables import TAKEN, empty_tables
from studies.pages.cli import command_names

from proctor.cli.failures import EXTRAS

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/calibrated_1"
# A sitecustomize module, so that it also holds in a process that replaces itself.
BLOCK = """
import importlib.util, os, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["BLOCKED"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def find_spec(name, package=None, found=importlib.util.find_spec):
    return None if name in os.environ["BLOCKED"].split() else found(name, package)

importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Blocked())
"""
# Each command in a fork of one process, which has imported the command line once.
DRIVER = f"""
import json, os, sys, tempfile, traceback
from proctor.cli.main import main
import proctor.cli.reading, proctor.cli.verify, proctor.cli.sql, proctor.improvement.commands.line
{TAKEN}
results = []
for arguments in json.load(sys.stdin):
    files = [tempfile.TemporaryFile() for _ in range(2)]
    child = os.fork()
    if child == 0:
        for number, file in enumerate(files, start=1):
            os.dup2(file.fileno(), number)
        sys.argv = ["proctor", *arguments]
        code = 70
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode())
    results.append([code, *texts])
json.dump(results, sys.stdout)
"""
# What a base install does. The home is a golden one, whose private key nobody has.
BASE: Mapping[str, list[str]] = {
    "data": ["--help"],
    "data list": [],
    "export": ["--help"],
    "export bundle": ["--out", "bundle"],
    "export proof": ["3", "--out", "proof"],
    "import": ["bundle", "--home", "imported"],
    "keys": ["--help"],
    "keys list": [],
    "line": ["--help"],
    "line show": ["--list", "checkpoints"],
    "keys new": ["operator", "operator.pem"],
    "log": [],
    "replay": [],
    "show": [],
    "sql": ["SELECT count(*) FROM events"],
    "runs": [],
    "annotate": ["--help"],
    "verify": [],
    "witness": ["--help"],
}
# What needs an extra, and which.
NEEDS: Mapping[str, tuple[str, list[str]]] = {
    "export data": ("arrow", ["--kind", "sft", "--out", "examples.parquet"]),
    "demo": ("train", []),
    "fork": ("train", ["--at", "0"]),
    "line bisect": ("train", ["--bad", "latest"]),
    "line evolve": ("train", []),
    "line init": ("train", ["sample", "--demo"]),
    "line run": ("train", []),
    "line watch": ("train", []),
    "judge": ("train", []),
    "serve": ("serve", ["--port", "0"]),
    "run": ("train", ["epochs=1"]),
    "witness serve": ("witness", ["--state", "witness"]),
}
# Options of base commands that need an extra.
OPTIONS: Mapping[str, list[str]] = {
    "mlflow": ["export", "curves", "latest", "--format", "mlflow", "--out", "curves"],
    "tensorboard": ["export", "curves", "latest", "--out", "curves"],
    "arrow": ["sql", "SELECT * FROM events", "--out", "events.parquet"],
    "train": ["replay", "--execute"],
}


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the packages of all extras are missing."""
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "sitecustomize.py").write_text(BLOCK)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    return {
        **kept,
        "BLOCKED": " ".join(EXTRAS),
        "COLUMNS": "100",
        **empty_tables(),
        "PROCTOR_HOME": "home",
        "PROCTOR_STATE": "off",
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home."""
    folder = tmp_path_factory.mktemp("base")
    shutil.copytree(GOLDEN, folder / "home")
    return folder


def called(
    commands: list[list[str]], *, folder: Path, environment: Mapping[str, str]
) -> list[tuple[int, str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=dict(environment),
    )
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


@pytest.mark.slow
def test_base_commands_work_without_any_extra(folder: Path, blocked: dict[str, str]) -> None:
    commands = [[*name.split(), *arguments] for name, arguments in BASE.items()]
    for name, (code, out, err) in zip(
        BASE, called(commands, folder=folder, environment=blocked), strict=True
    ):
        assert code == 0, (name, err)
        assert "Traceback" not in err, (name, err)
        assert out or name in ("keys new", "export proof"), name


@pytest.mark.slow
def test_commands_that_need_an_extra_name_it_in_one_line(
    folder: Path, blocked: dict[str, str]
) -> None:
    commands = [[*name.split(), *arguments] for name, (_, arguments) in NEEDS.items()]
    for (name, (extra, _)), (code, _, err) in zip(
        NEEDS.items(), called(commands, folder=folder, environment=blocked), strict=True
    ):
        assert code == 2, (name, err)
        assert re.fullmatch(
            rf"error: proctor {name} needs [\w ]+: pip install '/\S+\[{extra}\]'\n", err
        ), (name, err)


@pytest.mark.slow
def test_options_that_need_an_extra_name_it(folder: Path, blocked: dict[str, str]) -> None:
    found = called(list(OPTIONS.values()), folder=folder, environment=blocked)
    for extra, (code, _, err) in zip(OPTIONS, found, strict=True):
        assert code == 2
        assert re.search(rf": pip install '/\S+\[{extra}\]'\n$", err)
        assert err.count("\n") == 1


@pytest.mark.slow
def test_no_command_ends_in_a_traceback_without_the_extras(
    folder: Path, blocked: dict[str, str]
) -> None:
    rest = [name for name in command_names() if name not in BASE and name not in NEEDS]
    calls = [name.split() for name in rest]
    for name, (code, _, err) in zip(
        rest, called(calls, folder=folder, environment=blocked), strict=True
    ):
        assert "Traceback" not in err, (name, err)
        assert code in (0, 1, 2), (name, err)
        assert "No module named" not in err, (name, err)


@pytest.mark.slow  # imports torch afresh
def test_runs_need_no_language_model_packages(folder: Path, blocked: dict[str, str]) -> None:
    llm = [package for package, (_, extra) in EXTRAS.items() if extra != "train"]
    done = subprocess.run(
        [sys.executable, "-c", "import proctor.cli.jobs, proctor.cli.campaign_jobs"],
        env={**blocked, "BLOCKED": " ".join(llm)},
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0


def test_missing_extra_is_json_when_asked_for(folder: Path, blocked: dict[str, str]) -> None:
    ((code, out, _),) = called([["run", "--json"]], folder=folder, environment=blocked)
    assert code == 2
    told: dict[str, Any] = json.loads(out)
    assert told["error"] == "MissingPackageError"
    assert told["exit_code"] == 2


def test_extras_bring_exactly_the_packages_that_messages_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {
        re.split(r"[<>=\[]", requirement)[0]
        .removesuffix("-skinny")
        .removesuffix("-python")
        .replace("-", "_"): extra
        for extra, requirements in extras.items()
        if extra not in ("all", "dev")
        # no command needs these:
        and extra not in ("gym", "inspect", "lightning", "transformers", "verifiers")
        for requirement in requirements
        if not requirement.startswith("proctor[")
    }
    assert named == {package: extra for package, (_, extra) in EXTRAS.items()}
    few = {"mlflow", "ray", "s3", "tensorboard"}  # which few need
    inside = sorted(set(named.values()) - few)
    assert extras["all"] == [f"proctor[{','.join(inside)}]"]
    base = {re.split(r"[<>=\[]", requirement)[0] for requirement in project["dependencies"]}
    assert not base & named.keys()
