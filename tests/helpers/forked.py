"""The command, and submitted code, in processes that are forked from one that has torch loaded:
each its own in all but the seconds that the imports take.

The processes share one hash seed, which is not that of the tests.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest import mock

from measured import saved, stop

from projections.projector import create_schema
from projections.template import _MADE, Define, template

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["preloaded"])
COMMAND = "from proctor.cli.main import main; main()"
POOLED = f"from forked import pool_forked\nwith pool_forked():\n    {COMMAND}"
"""The command, whose processes that train are forked as well."""
_SERVER: Any = forkserver._forkserver  # where it listens is told to nobody else
STARTING = threading.Lock()  # held while processes are started or asked for their exit code
_FOR_GOOD = ExitStack()  # what stays in force until a process ends


def start_forked(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    cwd: Path | None = None,
    code: str = COMMAND,
) -> ForkServerProcess:
    """Start the command, or other code, in exactly this environment; what it says goes to the two
    files.
    """
    command = ["proctor", *map(str, arguments)]
    process = _CONTEXT.Process(
        target=_command,
        args=(
            code,
            command,
            dict(environment),
            out,
            err,
            cwd or Path.cwd(),
            _listens_at(),
            {create_schema: template(create_schema)},
        ),
        daemon=True,  # ended at the latest with the tests
    )
    begin(process)
    return process


def begin(process: ForkServerProcess) -> None:
    """Start a process; one at a time, because that looks at all others, as join() does."""
    with STARTING:
        _ensure_running()
        process.start()


def ended(process: ForkServerProcess, *, within: float | None) -> bool:
    """Wait for a process, and tell whether it has ended: then it has its exit code."""
    found = wait([process.sentinel], within)
    with STARTING:
        process.join(0)
    return bool(found)


def _listens_at() -> str:
    """Return the address of what forks, which has none before it runs."""
    with STARTING:
        _ensure_running()
    return str(_SERVER._forkserver_address)


def _ensure_running() -> None:
    """Start what forks: it reads COLUMNS as it makes the consoles, and finds `preloaded` here."""
    found = {"COLUMNS": "100", "PYTHONPATH": str(Path(__file__).parent)}
    with mock.patch.dict(os.environ, found):
        _SERVER.ensure_running()


def _command(
    code: str,
    command: list[str],
    environment: dict[str, str],
    out: Path,
    err: Path,
    cwd: Path,
    server: str,
    made: Mapping[Define, Path],
) -> None:
    for descriptor, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = command
    _SERVER._forkserver_address = server
    _SERVER.ensure_running = lambda: None  # the tests' own, which forked this process
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # has children
    _MADE.update(made)  # by the tests' process: what is forked must not have used DuckDB
    with workers_forked(), saved():
        exec(code, {"__name__": "__main__"})


@contextmanager
def workers_forked() -> Iterator[None]:
    """Have foreign code run in forked processes, confined as ever."""
    from judge.confinement import process  # noqa: PLC0415 - loads torch

    with mock.patch.object(process, "_start", _Worker):
        yield


@contextmanager
def pool_forked() -> Iterator[None]:
    """Have the processes of a comparison forked, and those of a task or an examination in them."""
    from proctor.runs import pools  # noqa: PLC0415 - loads what it forks

    place = (_listens_at(), dict(os.environ), Path.cwd(), dict(_MADE))
    begin = partial(_begin_worker, *place)
    with (
        mock.patch.object(pools, "get_context", return_value=_CONTEXT),
        mock.patch.object(pools, "_begin", begin),
    ):
        yield


def _begin_worker(
    server: str, environment: dict[str, str], cwd: Path, made: Mapping[Define, Path], parent: int
) -> None:
    _MADE.update(made)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    _SERVER._forkserver_address = server
    _SERVER.ensure_running = lambda: None
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    _FOR_GOOD.enter_context(workers_forked())
    from monitor import datasets, shapes  # noqa: PLC0415 - loads torch
    from proctor.runs import pools  # noqa: PLC0415 - preloaded

    pools._begin(os.getppid())  # of what forked it
    drawn = cache(shapes.draw_shapes)  # the same images for all runs of a comparison

    def draw_shapes(split: str, count: int, *, seed: int) -> Any:
        return tuple(array.copy() for array in drawn(split, count, seed=seed))

    mock.patch.object(datasets, "draw_shapes", draw_shapes).start()

    def watch() -> None:
        """End with the process that asked for this one, which is not the one that forked it."""
        with suppress(ProcessLookupError):
            while True:
                os.kill(parent, 0)
                time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Worker:
    """What of a process judge.confinement.process uses."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        theirs_in, self.stdin = _CONTEXT.Pipe(duplex=False)
        self.stdout, theirs_out = _CONTEXT.Pipe(duplex=False)
        self.stderr, theirs_err = _CONTEXT.Pipe(duplex=False)
        theirs = (theirs_in, theirs_out, theirs_err)
        self._process = _CONTEXT.Process(
            target=_work, args=(folder, environment, theirs), daemon=True
        )
        begin(self._process)
        for each in theirs:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        if not ended(self._process, within=timeout) or self._process.exitcode is None:
            raise subprocess.TimeoutExpired("judge.confinement.worker", timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _work(
    folder: Path, environment: dict[str, str], pipes: tuple[Connection, Connection, Connection]
) -> None:
    stop()  # foreign code runs as the judge runs it
    os.setsid()
    for descriptor, pipe in enumerate(pipes):
        os.dup2(pipe.fileno(), descriptor)
        pipe.close()
    from judge.confinement import worker  # noqa: PLC0415 - preloaded

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder / "cwd")
    worker.main(folder)
