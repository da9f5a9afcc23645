"""`proctor serve` as a process: what it says, and what another user of the machine sees of it."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from postgres_server import missing
from stores import begun_on_server
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
NOBODY = 65534


class Server(NamedTuple):
    link: str
    process: int
    home: Path
    said: Path  # standard error
    run: str

    @property
    def own(self) -> str:
        return f"http://{urlsplit(self.link).netloc}"

    @property
    def token(self) -> str:
        return urlsplit(self.link).fragment


def curl(
    *arguments: str, config: str = "", user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run curl; secrets are in its configuration on standard input, never in its arguments."""
    return subprocess.run(
        ["curl", "--silent", "--max-time", "60", "--config", "-", *arguments],
        input=config,
        capture_output=True,
        text=True,
        check=False,
        user=user,
        group=user,
    )


def ask(server: Server, sql: str) -> subprocess.CompletedProcess[str]:
    """Ask for a table, as the guide says."""
    return curl(
        *("--get", "--data-urlencode", f"q={sql}", f"{server.own}/sql.json"),
        config=f'header = "Authorization: Bearer {server.token}"',
    )


@pytest.fixture(scope="module", params=["file", "server"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PROCTOR_STATE", str(place / "state"))
        if request.param == "server":
            if reason := missing():
                pytest.skip(reason)
            request.getfixturevalue("postgres")
        for made in started(place):
            assert (made.home / "ledger/ledger.postgres").exists() == (request.param == "server")
            yield made


@pytest.fixture(scope="module")
def postgres() -> Iterator[None]:
    with begun_on_server():
        yield


def started(place: Path) -> Iterator[Server]:
    home = place / "home"
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        run = synthetic_run(log, epochs=3, end=None)
    said = place / "said"
    command = [sys.executable, "-P", "-m", "proctor", "serve", "--home", str(home), "--port", "0"]
    with (
        said.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), process.pid, home, said, str(run.id))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        later = process.stdout.read() + said.read_text()
    assert "Open this link" in later
    assert "Traceback" not in later


def settled(server: Server) -> None:
    """Wait until the tables are there."""
    done = curl(
        *("--retry", "60", "--retry-delay", "1", "--retry-all-errors", "--fail", "--get"),
        *("--data-urlencode", "q=SELECT 1", f"{server.own}/sql.json", "--output", os.devnull),
        config=f'header = "Authorization: Bearer {server.token}"',
    )
    assert done.returncode == 0


def test_script_gets_tables_while_a_run_goes_on(server: Server) -> None:
    settled(server)
    found = json.loads(ask(server, "SELECT run_id, state FROM run_summary").stdout)
    assert found["rows"] == [[server.run, "running"]]
    with LedgerApplication.open(server.home / "ledger", REGISTRY) as log:
        synthetic_run(log, epochs=1)
    for _ in range(60):
        found = json.loads(ask(server, "SELECT COUNT(*) FROM runs").stdout)
        if found["rows"] == [[2]]:
            break
    assert found["rows"] == [[2]]
    assert found["ledger"]["problem"] is None


def test_secrets_are_in_no_log_and_no_list_of_processes(server: Server) -> None:
    settled(server)
    jar = server.home.parent / "jar"
    entered = curl(
        *("--cookie-jar", str(jar), "--location", "--write-out", "%{url_effective}"),
        f"{server.own}/session",
        config=f'data = "token={server.token}"',
    )
    assert server.run[:8] in entered.stdout
    base = entered.stdout.rsplit("\n", 1)[-1]
    session = jar.read_text().split()[-1]
    for path in (base, f"{base}runs/x", f"{base}absent", f"{server.own}/{server.token}"):
        curl("--cookie", str(jar), path)
    curl("--header", "Host: evil.example", base)
    curl("--request", "BREW", base)
    assert "error" in json.loads(ask(server, "SELECT * FROM nothing").stdout)
    secrets = (server.token, session, urlsplit(base).path.strip("/"))
    listed = b""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            listed += process.read_bytes()
    assert b"serve" in listed
    for secret in secrets:
        assert len(secret) > 20
        assert secret not in server.said.read_text()
        assert secret.encode() not in listed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_machine_sees_nothing(server: Server) -> None:
    settled(server)
    for path in ("/", "/sql.json?q=FROM+run_starts", "/session", "/runs", f"/runs/{server.run}"):
        seen = curl(server.own + path, user=NOBODY)
        assert seen.returncode == 0
        assert server.run not in seen.stdout
    guessed = curl(
        f"{server.own}/sql.json?q=SELECT+1",
        config='header = "Authorization: Bearer guess"',
        user=NOBODY,
    )
    assert "error" in json.loads(guessed.stdout)
    for name in ("environ", "fd", "mem", "cwd"):
        look = f"cat /proc/{server.process}/{name} || ls /proc/{server.process}/{name}/"
        read = subprocess.run(
            ["sh", "-c", look], capture_output=True, check=False, user=NOBODY, group=NOBODY
        )
        assert read.stdout == b"", name
    [private] = (server.home.parent / "state").glob(".tables-*")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
