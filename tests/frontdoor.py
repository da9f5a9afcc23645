"""The front door for tests: the installed command in a process of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from proctor.cli import main

TINY = [
    "train_examples=200",
    "val_examples=100",
    "test_examples=100",
    "channels=8",
    "width=8",
    "epochs=3",
    "threads=1",
]
Proctor = Callable[..., subprocess.CompletedProcess[str]]


def call(
    arguments: Sequence[str | Path],
    *,
    home: Path | None,
    cwd: Path | None = None,
    state: Path | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run the command; without a `state` folder it remembers nothing from one call to the next."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}
    environment["COLUMNS"] = "100"
    if state is None:
        environment["PROCTOR_STATE"] = "off"
    else:
        environment["PROCTOR_STATE"] = str(state)
    if home is not None:
        environment["PROCTOR_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, "-m", "proctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=120,
        check=False,
        **options,
    )


def call_here(arguments: Sequence[str | Path], *, home: Path) -> subprocess.CompletedProcess[str]:
    """Do what call() does in this process, which has torch loaded already: many cheap questions."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["proctor", *map(str, arguments)]),
        mock.patch.dict(os.environ, {"PROCTOR_HOME": str(home), "PROCTOR_STATE": "off"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code: Any = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code or 0
    return subprocess.CompletedProcess([*map(str, arguments)], code, out.getvalue(), err.getvalue())


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)
