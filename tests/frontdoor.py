"""The front door for tests: the installed command in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
    arguments: Sequence[str | Path], *, home: Path | None, cwd: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}
    environment["COLUMNS"] = "100"
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


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)
