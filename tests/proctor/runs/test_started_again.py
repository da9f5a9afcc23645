"""The command that starts itself again: what it takes along, and what a ledger cannot ask of it."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from frontdoor import answer, call
from synthetic import synthetic_run

from monitor.config import RunConfig
from monitor.dispatch import PORTABLE_VARIABLES
from proctor.home import Home
from proctor.runs import process
from proctor.runs.process import runnable, start_for
from proctor.runs.run_settings import read_config

SMALL = """
train_examples = 64
val_examples = 32
test_examples = 32
channels = 4
width = 4
stem_stride = 4
batch_size = 32
epochs = 1
numerics = "portable"
"""


@pytest.mark.slow
def test_configuration_from_a_pipe_is_used_and_the_current_folder_imports_nothing(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "config.toml"
    os.mkfifo(pipe)
    for name in ("torch", "sitecustomize", "numpy"):
        (tmp_path / f"{name}.py").write_text(f'raise SystemExit("the folder\'s {name}")\n')
    threading.Thread(target=pipe.write_text, args=(SMALL,), daemon=True).start()
    home = tmp_path / "home"
    done = call(["run", "--config", pipe, "--json"], home=home, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [run] = answer(done)["runs"]
    assert run["epochs_planned"] == 1


def test_only_the_process_that_started_itself_takes_what_it_is_handed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed = RunConfig(epochs=3)
    for value in ('{"epochs": 3}', "1", "", f'{os.getpid() + 1} {{"epochs": 3}}'):
        monkeypatch.setenv("PROCTOR_STARTED_AGAIN", value)
        assert start_for(RunConfig) == RunConfig()
        assert "PROCTOR_STARTED_AGAIN" not in os.environ
    monkeypatch.setenv("PROCTOR_STARTED_AGAIN", f'{os.getpid()} {{"epochs": 3}}')
    assert start_for(RunConfig) == handed


def test_code_paths_that_a_cpu_lacks_are_not_started() -> None:
    avx2 = ["avx", "avx2", "fma"]
    assert runnable({"ATEN_CPU_CAPABILITY": "avx2"}, avx2)
    assert not runnable({"ATEN_CPU_CAPABILITY": "avx512"}, avx2)
    assert not runnable({"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}, ["avx"])
    assert runnable(PORTABLE_VARIABLES, [])


def test_record_that_asks_for_code_paths_that_are_not_here_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {"numerics": "portable", "variables": {"ATEN_CPU_CAPABILITY": "avx512"}}
    monkeypatch.setattr(process, "_recorded_environment", lambda *_: (uuid4(), hostile))
    monkeypatch.setattr(process, "describe_cpu", lambda: {"features": ["avx", "avx2", "fma"]})
    monkeypatch.setattr(process, "_replace", lambda _: pytest.fail("started"))
    process.start_as_recorded(Home(tmp_path), "latest")


class StartedError(Exception):
    """In place of the process that replaces this one."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of the process that this one was replaced by."""
    taken: dict[str, str] = {}

    def replace(environment: Mapping[str, str]) -> None:
        taken.update(environment)
        raise StartedError

    monkeypatch.setattr(process, "_replace", replace)
    return taken


def test_latest_is_the_same_run_when_another_starts_while_the_process_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: dict[str, str]
) -> None:
    home = Home(tmp_path)
    portable = {"numerics": "portable", "variables": dict(PORTABLE_VARIABLES)}
    with home.open_log() as log:
        first = synthetic_run(log, epochs=1, environment=portable)
    with pytest.raises(StartedError):
        process.start_as_recorded(home, "latest")
    with home.open_log() as log:
        synthetic_run(log, epochs=1, environment={**portable, "variables": {}})
    for name in os.environ.keys() - started.keys():
        monkeypatch.delenv(name)
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    assert process.start_as_recorded(home, "latest") == str(first.id)


def test_name_that_is_not_found_is_left_to_the_command(tmp_path: Path) -> None:
    assert process.start_as_recorded(Home(tmp_path), "latest") == "latest"
    with Home(tmp_path).open_log() as log:
        run = synthetic_run(log, epochs=1)
    assert process.start_as_recorded(Home(tmp_path), "none") == "none"
    assert process.start_as_recorded(Home(tmp_path), str(run.id)[:8]) == str(run.id)


def test_portable_on_top_of_a_file_has_one_thread(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("epochs = 3\n")
    assert read_config(file, ["numerics=portable"]) == RunConfig(
        epochs=3, numerics="portable", threads=1
    )
    assert read_config(file, []).threads == RunConfig().threads


@pytest.mark.parametrize("text", ["9" * 5_000, "[" * 10_000])
def test_setting_that_toml_cannot_take_is_named(text: str) -> None:
    with pytest.raises(Exception, match="epochs must be a whole number"):
        read_config(None, [f"epochs={text}"])
