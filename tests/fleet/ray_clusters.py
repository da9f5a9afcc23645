"""Small Ray clusters for tests, and the processes of their workers."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_RAY = Path(sys.executable).with_name("ray")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
_STORE = 100_000_000  # bytes


@dataclass(frozen=True)
class RayCluster:
    """A cluster that runs."""

    folder: str
    variables: Mapping[str, str]  # with which a command finds it

    def workers(self) -> list[int]:
        """Return the processes that train."""
        return [pid for pid, words in _processes(self.folder) if words.startswith("ray::Station")]


@contextmanager
def ray_cluster(*, cpus: int = 2) -> Iterator[RayCluster]:
    """Yield a cluster of one machine."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        port = 20_000 + os.getpid() % 20_000
        subprocess.run(
            [
                *(_RAY, "start", "--head", f"--port={port}", f"--num-cpus={cpus}"),
                *(f"--object-store-memory={_STORE}", f"--temp-dir={folder}"),
                *("--include-dashboard=false", "--disable-usage-stats"),
            ],
            check=True,
            env={**os.environ, **_QUIET},
            capture_output=True,
            timeout=120,
        )
        try:
            yield RayCluster(folder, {**_QUIET, "RAY_ADDRESS": f"127.0.0.1:{port}"})
        finally:
            end_all(folder)


def end_all(folder: str) -> None:
    """Kill the processes of a cluster and wait until they are gone."""
    for _ in range(100):
        found = _processes(folder)
        for pid, _words in found:
            os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.1)


def _processes(folder: str) -> list[tuple[int, str]]:
    """Return a cluster's processes: those that name its folder, and their children."""
    seen: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            seen[int(path.name)] = (parent, words)
    own = {pid for pid, (_, words) in seen.items() if folder in words and pid != os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in seen.items() if parent in own} - own
        own |= more
        grown = bool(more)
    return [(pid, seen[pid][1]) for pid in own]
