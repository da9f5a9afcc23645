"""A PostgreSQL server for tests: a temporary folder, a Unix socket, an unprivileged user.

`POSTGRES_BIN` names the folder of another version's programs. Nothing of it outlives the tests.
"""

import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PostgresServer", "missing", "running_server"]

_ACCOUNT = "postgres"  # PostgreSQL refuses to run as root
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)  # Debian's


@functools.cache
def _programs() -> Path | None:
    places = [Path(os.environ["POSTGRES_BIN"])] if "POSTGRES_BIN" in os.environ else _PLACES
    found = shutil.which("initdb", path=os.pathsep.join(map(str, places)) or None)
    return Path(found).resolve().parent if found else None


def missing() -> str | None:
    """Say in one sentence what of a server is not here, or None."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: install proctor[postgres]"
    if _programs() is None:
        return "PostgreSQL's server is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and not _account():
        return f"PostgreSQL does not run as root, and there is no user {_ACCOUNT!r}: make one"
    return None


@functools.cache
def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        return None


class PostgresServer:
    """A server that listens on a socket in its folder only."""

    def __init__(self, folder: Path, *, data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def env(self, dbname: str = "postgres", **more: str) -> dict[str, str]:
        """Return the settings of a ledger on this server."""
        said = {"dbname": dbname, "host": str(self.folder), "user": "postgres", **more}
        return {f"POSTGRES_{name.upper()}": value for name, value in said.items()}

    def initialise(self) -> None:
        self._run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--wal-segsize=1",
        )

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start, and wait until connections are taken."""
        given = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            "max_connections": "60",
            "min_wal_size": "4MB",
            "max_wal_size": "64MB",
            **(settings or {}),
        }
        program = _programs()
        assert program is not None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program / "postgres",
                    "-D",
                    self.data,
                    *(part for name, value in given.items() for part in ("-c", f"{name}={value}")),
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_demoted(),
            )
        status = self.data / "postmaster.pid"
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with_status = status.read_text().splitlines() if status.exists() else []
            if len(with_status) > 7 and with_status[7].strip() == "ready":
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text()[-3_000:])

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT ends connections, SIGQUIT all processes, as a crash would."""
        if self._process is not None:
            self._process.send_signal(number)
            assert self._process.wait(timeout=60) is not None
            self._process = None

    def _run(self, *command: str) -> None:
        program = _programs()
        assert program is not None
        done = subprocess.run(
            [program / command[0], *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **_demoted(),
        )
        assert done.returncode == 0, done.stderr


def _demoted() -> dict[str, Any]:
    account = _account()
    if os.geteuid() != 0 or account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextmanager
def running_server(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Yield a new server; its folder and processes are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # not below pytest's: a socket's path is short
    account = _account()
    if os.geteuid() == 0 and account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    server = PostgresServer(folder)
    try:
        server.initialise()
        server.start(settings)
        yield server
    finally:
        server.stop(signal.SIGINT)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":  # `make test-postgres` asks first
    sys.exit(missing())
