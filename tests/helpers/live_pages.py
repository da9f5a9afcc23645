"""The pages of a home, in this process, without the thread that looks at the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.testclient import TestClient

from proctor.home import Home
from proctor.live.app import live_view
from proctor.live.guard import Keys
from proctor.live.subjects import KINDS
from proctor.live.tables import Tables


@dataclass(frozen=True)
class ServedHome:
    """A home behind its pages."""

    tables: Tables
    client: TestClient
    base: str


@contextmanager
def served_home(path: Path) -> Iterator[ServedHome]:
    """Give the pages of a home, entered with its token."""
    home, keys = Home(path), Keys()
    tables = Tables(home)
    tables.open()
    try:
        tables.look()
        app = live_view(home, tables, keys=keys, hosts=["127.0.0.1"])
        client = TestClient(app, base_url="http://127.0.0.1:8137", follow_redirects=False)
        client.post("/session", data={"token": keys.token})
        yield ServedHome(tables, client, keys.base)
    finally:
        tables.stop()


def all_pages(served: ServedHome, *, most: int = 3) -> Iterator[str]:
    """Yield the paths of lists, and of some of what they list."""
    yield from ("", "decisions", "calls", "calls?q=script&inside=1", "sql", "ledger", "compare")
    with served.tables.reading() as ask:
        runs = [row["id"] for row in ask("SELECT run_id AS id FROM run_starts ORDER BY idx")]
        found = {
            kind: [row["id"] for row in ask(f"SELECT {kind}_id AS id FROM {kind}_starts")]
            for kind in KINDS
        }
        calls = [row["idx"] for row in ask("SELECT idx FROM calls ORDER BY idx")]
    yield from (f"runs/{run}" for run in (*runs[:most], *runs[-most:]))
    yield f"compare?run={runs[0]}&run={runs[-1]}"
    for kind, known in found.items():
        yield f"{kind}s"
        yield from (f"{kind}s/{each}" for each in (*known[:most], *known[-most:]))
    yield from (f"calls/{idx}" for idx in (*calls[:most], *calls[-most:]))
