"""What the tests of confinement share: how a command is run, and what is to be kept from it."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from judge.confinement.supervised import Ended

CANARY = "canary-7b1e44c0"
MEMORY = 1_000_000_000
Run = Callable[..., Ended]
DAEMON = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            for descriptor in range(3): os.close(descriptor)
            while True:
                with open(os.environ["HOME"] + "/alive", "a") as file: file.write("x")
                time.sleep(0.01)
        os._exit(0)
    while not os.path.exists(os.environ["HOME"] + "/alive"): time.sleep(0.01)
"""


def printed(ended: Ended) -> Any:
    assert (ended.status, ended.code) == ("exited", 0), ended.errors.decode()
    return json.loads(ended.output)


def outside(source: str, **variables: str) -> Any:
    """Run the same code where nothing is confined."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        check=True,
        env={**os.environ, **variables},
    )
    return json.loads(done.stdout)


def stands_still(path: Path) -> bool:
    """Wait until a file is not written to any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        size = path.stat().st_size
        time.sleep(0.3)  # in which it would have grown by thirty
        if path.stat().st_size == size:
            return size > 0
    return False
