"""The command in processes that are killed."""

import os
import signal
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from forked import start_forked

_PATIENCE = 600.0  # seconds


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal
    out: str


def run_command(
    arguments: Sequence[str],
    *,
    home: Path,
    environment: Mapping[str, str],
    kill_after: int | None = None,
    kill_in: float = _PATIENCE,
) -> Ended:
    """Run the command and kill -9 it, when so many entries were added or so many seconds passed."""
    out = home.with_suffix(".out")
    out.unlink(missing_ok=True)
    remembers_nothing = {"PROCTOR_HOME": str(home), "PROCTOR_STATE": "off"}
    size = count_entries(home)
    process = start_forked(
        arguments, environment={**os.environ, **environment, **remembers_nothing}, out=out, err=out
    )
    deadline = time.monotonic() + kill_in
    assert process.pid is not None
    while process.is_alive() and time.monotonic() < deadline:
        if kill_after is not None and count_entries(home) >= size + kill_after:
            break
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode is not None
    return Ended(process.exitcode, out.read_text(encoding="utf-8") if out.exists() else "")


def count_entries(home: Path) -> int:
    path = home / "ledger" / "ledger.sqlite"
    if not path.exists():
        return 0
    uri = f"{path.as_uri()}?mode=ro"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(uri, uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM entries").fetchone()
        return int(count)
    return 0  # it is only being made
