"""The front door for tests: the command in a process of its own, or in this one."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from forked import COMMAND, POOLED, ended, start_forked
from json_answers import check_json

from proctor.cli.main import main

TINY = [
    "train_examples=200",
    "val_examples=100",
    "test_examples=100",
    "channels=8",
    "width=8",
    "epochs=3",
    "threads=1",
]


def with_settings(settings: Sequence[str], *changed: str) -> list[str]:
    """Return the settings with those changed that are named again: each may be given once."""
    keys = {setting.partition("=")[0] for setting in changed}
    return [*(s for s in settings if s.partition("=")[0] not in keys), *changed]


def call(
    arguments: Sequence[str | Path],
    *,
    home: Path | None,
    cwd: Path | None = None,
    state: Path | None = None,
    code: str = COMMAND,
    variables: Mapping[str, str] | None = None,
    seconds: float = 1_800.0,
) -> subprocess.CompletedProcess[str]:
    """Run the command; without a `state` folder it remembers nothing from one call to the next.

    Other `code` may stand in its place. `variables` are added to its environment.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-call-") as name:
        out, err = Path(name, "out"), Path(name, "err")
        process = start_forked(
            arguments,
            environment={**_environment(home, state), **(variables or {})},
            out=out,
            err=err,
            cwd=cwd,
            code=code,
        )
        if not ended(process, within=seconds):
            process.kill()
            ended(process, within=5.0)
            raise subprocess.TimeoutExpired([*map(str, arguments)], seconds)
        assert process.exitcode is not None
        _check_json(arguments, out.read_text(), code=code)
        return subprocess.CompletedProcess(
            [*map(str, arguments)], process.exitcode, out.read_text(), err.read_text()
        )


def _environment(home: Path | None, state: Path | None) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}
    environment["COLUMNS"] = "100"
    environment["PROCTOR_STATE"] = "off" if state is None else str(state)
    if home is not None:
        environment["PROCTOR_HOME"] = str(home)
    return environment


def call_here(
    arguments: Sequence[str | Path], *, home: Path, state: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Do what call() does in this process, which has torch loaded already: many cheap questions."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["proctor", *map(str, arguments)]),
        mock.patch.dict(
            os.environ, {"PROCTOR_HOME": str(home), "PROCTOR_STATE": str(state or "off")}
        ),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code: Any = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code or 0
    _check_json(arguments, out.getvalue())
    return subprocess.CompletedProcess([*map(str, arguments)], code, out.getvalue(), err.getvalue())


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def _check_json(arguments: Sequence[str | Path], printed: str, *, code: str = COMMAND) -> None:
    """Check each answer with --json against its schema: no call costs a test of its own."""
    if code in (COMMAND, POOLED) and "--json" in arguments and printed:
        check_json(list(map(str, arguments)), printed)
