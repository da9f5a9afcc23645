"""The command in processes that are forked from one that has torch loaded: each its own in all but
the seconds that the imports take.

The processes share one hash seed, which is not that of the tests.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["proctor.cli", "proctor.jobs", "proctor.campaign_jobs", "proctor.replay", "judge.audit"]
)


def start_forked(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    cwd: Path | None = None,
) -> ForkServerProcess:
    """Start the command in exactly this environment; what it says goes to the two files."""
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}):  # read when the consoles are made
        forkserver.ensure_running()
    command = ["proctor", *map(str, arguments)]
    process = _CONTEXT.Process(
        target=_command,
        args=(command, dict(environment), out, err, cwd or Path.cwd()),
        daemon=True,  # ended at the latest with the tests
    )
    process.start()
    return process


def _command(
    command: list[str], environment: dict[str, str], out: Path, err: Path, cwd: Path
) -> None:
    for descriptor, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = command
    from proctor.cli import main  # noqa: PLC0415 - preloaded

    main()
