"""The harness of a task's run: model and data of somebody else, in processes of their own.

I/O: reads the task's file; writes the home; starts processes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aggregates.run import Run
from judge.confinement.tasks import confined_workers, data_places
from monitor.config import TaskConfig
from monitor.task_data import load_task_data, loaders_here
from monitor.task_loop import task_metrics, train_task
from monitor.tasks import MAX_SOURCE, TaskText, read_task
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.run_settings import read_pairs


def read_task_file(path: Path) -> TaskText:
    """Read a task's file without running it; raises ProctorError or TaskError."""
    try:
        with path.open("rb") as file:
            source = file.read(MAX_SOURCE + 1)
    except OSError as error:
        raise ProctorError(f"{path} cannot be read: {error.strerror}") from error
    return read_task(source, path.name)


def configure_task(text: TaskText, settings: list[str]) -> TaskConfig:
    """Return the configuration of a task's run; raises ConfigurationError naming the key."""
    return configure(text, read_pairs(settings))


def configure(text: TaskText, given: Mapping[str, Any]) -> TaskConfig:
    """Do so from settings that were read; the data folder is recorded as an absolute path."""
    folder = given.get("data_dir")
    if isinstance(folder, str) and folder:  # judge and replay may start elsewhere
        given = {**given, "data_dir": str(Path(folder).resolve())}
    return text.configure(given)


def task_training(
    home: Home, source: bytes, config: TaskConfig, *, data_dir: Path | None = None
) -> Callable[..., Run]:
    """Have a task make the data of a run of this home, and return what trains it.

    What is decoded stays in the home.
    """
    return partial(train_task, source=source, **_loaded(home, source, config, data_dir))


def verify_task(home: Home, source: bytes, config: TaskConfig, *, metric: str) -> None:
    """Have a task make its data, and see that it has this metric; raises ProctorError."""
    loaded = _loaded(home, source, config, None)
    if metric != config.metric and metric not in (known := task_metrics(config, source, **loaded)):
        raise ProctorError(
            f"--metric {metric}: metrics() of {config.name} returns no {metric}; it returns "
            f"{', '.join(known)}"
        )


def _loaded(home: Home, source: bytes, config: TaskConfig, data_dir: Path | None) -> dict[str, Any]:
    open_worker = confined_workers(data_dir=data_dir, own=True)
    data = load_task_data(
        source,
        config,
        open_worker,
        decoded=home.path / "decoded",
        places=partial(data_places, config, data_dir=data_dir),
        loaders=loaders_here(),
    )
    return {"data": data, "open_worker": open_worker}
