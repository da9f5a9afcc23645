"""The pages of the live view, in this process: what they show, and to whom."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hostile_pages import HOSTILE, make_hostile_home
from starlette.testclient import TestClient
from stores import tables_of
from synthetic import synthetic_run

from aggregates.campaign import MODE, Campaign
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from proctor.home import Home
from proctor.live import console
from proctor.live.app import live_view
from proctor.live.console import BOUNDS, answer
from proctor.live.guard import Keys
from proctor.live.shown import settings_of
from proctor.live.subjects import KINDS, list_subjects
from proctor.live.tables import Ask, Tables
from proctor.output.terminal import visible
from proctor.pages.rendering import spoken
from projections.bounds import Bounds
from projections.errors import QueryError

ADDRESS = "http://127.0.0.1:8137"
KEYS = Keys()
BASE = KEYS.base
SCRIPT = "/static/live.js"


class Elements(HTMLParser):
    """The attributes of a page, and where its scripts are from."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += attrs
        if tag == "script":
            self.found.append((tag, dict(attrs).get("src")))


class Served:
    """A home behind its pages, without the thread that looks at the ledger."""

    def __init__(self, path: Path) -> None:
        self.hostile, self.going_on = make_hostile_home(path)
        self.home = Home(path)
        self.tables = Tables(self.home)
        self.tables.open()
        self.app = live_view(self.home, self.tables, keys=KEYS, hosts=["127.0.0.1"])
        self.client = self.new_client()
        self.entered = self.client.post("/session", data={"token": KEYS.token})

    def new_client(self, address: str = ADDRESS) -> TestClient:
        return TestClient(self.app, base_url=address, follow_redirects=False)

    def page(self, path: str, *, status: int = 200) -> str:
        answered = self.client.get(f"{BASE}/{path}")
        assert answered.status_code == status, answered.text
        assert "Traceback" not in answered.text
        return answered.text


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("live"))
    waiting = made.client.get(f"{BASE}/")
    assert "being verified" in waiting.text
    made.tables.look()
    yield made
    made.tables.stop()


def ids(served: Served, kind: str) -> list[str]:
    with served.tables.reading() as ask:
        return [row["id"] for row in ask(f"SELECT {kind}_id AS id FROM {kind}_starts ORDER BY idx")]


def pages(served: Served) -> list[str]:
    with served.tables.reading() as ask:
        [first, *_] = [row["idx"] for row in ask("SELECT idx FROM calls ORDER BY idx")]
    return [
        "",
        *(f"runs/{run}" for run in (served.hostile, served.going_on, ids(served, "run")[0])),
        *(f"{kind}s" for kind in KINDS),
        *(f"{kind}s/{found}" for kind in KINDS for found in ids(served, kind)[:1]),
        f"compare?run={served.hostile}&run={served.going_on}",
        "compare",
        "decisions",
        "calls",
        "calls?q=script&inside=1",
        f"calls?run={served.hostile}",
        f"calls/{first}",
        "sql",
        "ledger",
    ]


def test_every_page_shows_hostile_content_as_text(served: Served) -> None:
    for path in pages(served):
        shown = served.page(path)
        assert "<script>window" not in shown, path
        assert "<img" not in shown, path
        assert "\u202e" not in shown, path
        elements = Elements(shown)
        assert not [name for name, _ in elements.found if name.startswith("on")], path
        assert {value for name, value in elements.found if name == "script"} <= {SCRIPT}, path
        assert not re.search(r"<script[^>]*>[^<]|<style| style=", shown), path
        assert set(re.findall(r'(?:src|href|action)="(\w+:[^"]*)"', shown)) <= {"data:,"}, path
        assert "verified entries of the ledger" in shown, path
    shown = served.page(f"runs/{served.hostile}")
    assert unescape(shown).count(visible(HOSTILE)) > 7  # violations, layers and settings, too
    assert "{{ 7*7 }}" in unescape(shown)


def test_run_is_shown_while_it_goes_on(served: Served) -> None:
    first = served.page(f"runs/{served.going_on}")
    assert "4 / 4" in first
    assert "no process trains it" not in first  # it has no lock: that is not known
    lock = served.home.path / "runs" / served.going_on / "running.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert "no process trains it" in served.page(f"runs/{served.going_on}")
    with served.home.running(UUID(served.going_on)):
        assert "no process trains it" not in served.page(f"runs/{served.going_on}")
    with LedgerApplication.open(served.home.path / "ledger", REGISTRY) as log:
        run = synthetic_run(log, epochs=2, end=None)
    assert str(run.id) not in served.page("")
    served.tables.look()
    assert str(run.id) in served.page("?state=running")


def test_fork_and_parent_name_each_other(served: Served) -> None:
    with served.tables.reading() as ask:
        [fork] = ask("SELECT run_id, parent, epoch FROM forks")
    shown = served.page(f"runs/{fork['run_id']}")
    assert f'href="{BASE}/runs/{fork["parent"]}"' in shown
    assert f"after epoch {fork['epoch']}" in shown
    both = re.search(r'href="[^"]*/(compare\?run=[^"]*)"', shown)
    assert both is not None
    assert f"{fork['run_id'][:8]}" in served.page(unescape(both[1]))
    shown = served.page(f"runs/{fork['parent']}")
    assert f'href="{BASE}/runs/{fork["run_id"]}"' in shown
    assert f'href="{BASE}/campaigns/{ids(served, "campaign")[0]}"' in shown


def test_subjects_are_listed_and_link_to_their_runs(served: Served) -> None:
    first = ids(served, "run")[0]
    for kind in KINDS:
        listed = served.page(f"{kind}s")
        for found in ids(served, kind):
            assert f'href="{BASE}/{kind}s/{found}"' in listed
    for kind in ("campaign", "comparison"):
        assert f'href="{BASE}/runs/{first}"' in served.page(f"{kind}s/{ids(served, kind)[0]}")
    assert "This page of the list is empty" in served.page("lines?page=9")


def test_page_that_has_not_changed_is_not_sent_again(served: Served) -> None:
    tag = served.client.get(f"{BASE}/ledger").headers["etag"]
    again = served.client.get(f"{BASE}/ledger", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) in ((304, b""), (200, again.content))
    assert served.client.get(f"{BASE}/", headers={"If-None-Match": '"0-0"'}).status_code == 200


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("decisions?q=r5+wants", "R5 wants it"),
        ("decisions?rule=R7&outcome=refused", "decrease lr"),
        ("decisions?q=nobody+said+this", "No decision matches"),
        ("?q=nothing", "No run matches"),
        ("calls?q=unusable", "unusable"),
        ("calls?q=MESSAGES&inside=1", "usable"),
        ("calls?q=absent&inside=1", "No call matches"),
    ],
)
def test_search_finds(served: Served, path: str, found: str) -> None:
    assert found in served.page(path)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("runs/x", 400, "whole id"),
        (f"runs/{'0' * 8}-{'0' * 4}-{'0' * 4}-{'0' * 4}-{'0' * 12}", 404, "no run"),
        ("lines/x", 400, "whole id"),
        (f"campaigns/{'0' * 8}-{'0' * 4}-{'0' * 4}-{'0' * 4}-{'0' * 12}", 404, "no campaign"),
        ("comparisons?page=x", 400, "whole number"),
        ("calls/0", 404, "no call"),
        ("calls/-1", 400, "whole number"),
        ("calls/99999999999999999999", 400, "whole number"),
        ("?page=0", 400, "whole number"),
        ("?page=1&page=2", 400, "twice"),
        ("?other=1", 400, "no parameter"),
        ("?order=best;--", 400, "one of"),
        (f"?q={'x' * 201}", 400, "longer"),
        ("?q=%00", 400, "not text"),
        ("absent", 404, "Not Found"),
        ("sql?q=" + "x" * 20_001, 400, "longer"),
    ],
)
def test_wrong_request_gets_one_clear_page(
    served: Served, path: str, status: int, said: str
) -> None:
    assert said in served.page(path, status=status)


def test_method_that_changes_something_is_refused(served: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert served.client.request(method, f"{BASE}/").status_code == 405


# ------------------------------------------------------------------------------------------------
# Who may see them


def test_token_opens_the_pages_once_for_a_browser(served: Served) -> None:
    assert served.entered.status_code == 303
    assert served.entered.headers["location"] == f"{BASE}/"
    cookie = served.entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"path={BASE}/".lower() in cookie  # browsers send it to no other server of this host
    assert KEYS.token not in served.entered.headers["set-cookie"]
    assert KEYS.token not in repr(KEYS) + repr(served.entered.headers)


def test_no_page_is_shown_without_the_cookie(served: Served) -> None:
    stranger = served.new_client()
    for path in pages(served):
        answered = stranger.get(f"{BASE}/{path}")
        assert answered.status_code == 401, path
        assert served.hostile not in answered.text
    for cookie in ("proctor=", "proctor=x", f"other={KEYS.session}", f"proctor={KEYS.token}"):
        assert stranger.get(f"{BASE}/", headers={"Cookie": cookie}).status_code == 401
    assert served.hostile not in stranger.get("/").text


@pytest.mark.parametrize(
    ("method", "body", "headers", "status"),
    [
        ("POST", "token=wrong", {}, 401),
        ("POST", "", {}, 401),
        ("POST", "token=%ff", {}, 401),
        ("POST", b"\xff\xfe", {}, 400),
        ("POST", "a=1&b=2&c=3&d=4&e=5", {}, 400),
        ("POST", "token=" + "x" * 5_000, {}, 413),
        ("POST", "token=RIGHT", {"Origin": "http://evil.example"}, 403),
        ("POST", "token=RIGHT", {"Origin": "http://127.0.0.1:9999"}, 403),
        ("POST", "token=RIGHT", {"Origin": "null"}, 403),
        ("GET", "", {}, 405),
    ],
)
def test_wrong_token_is_rejected(
    served: Served, method: str, body: str | bytes, headers: dict[str, str], status: int
) -> None:
    if body == "token=RIGHT":  # a token in the parameters would name the case differently each time
        body = f"token={KEYS.token}"
    answered = served.new_client().request(method, "/session", content=body, headers=headers)
    assert answered.status_code == status
    assert "set-cookie" not in answered.headers
    assert KEYS.token not in answered.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0:8137", "", "x y"]
)
def test_request_under_another_name_is_rejected(served: Served, host: str) -> None:
    for path in ("/", "/static/live.js", f"{BASE}/"):
        answered = served.client.get(path, headers={"Host": host})
        assert answered.status_code == 421
        assert served.hostile not in answered.text
    assert served.client.get("/", headers={"Host": "127.0.0.1:9000"}).status_code == 200  # a tunnel


def test_every_answer_forbids_scripts_of_others_and_other_sites(served: Served) -> None:
    for path in ("/", f"{BASE}/", f"{BASE}/absent", "/static/live.js", "/session"):
        headers = served.client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        if path.startswith(BASE):
            assert headers["cache-control"] == "no-store"


# ------------------------------------------------------------------------------------------------
# Scripts


def table(served: Served, statement: str, *, token: str | None = KEYS.token) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return served.new_client().get("/sql.json", params={"q": statement}, headers=headers)


def test_script_gets_a_table_with_the_token(served: Served) -> None:
    statement = (
        f"SELECT run_id, 0.5::DOUBLE AS half, NULL AS no, '{'x' * 9_000}' AS long FROM run_starts"
    )
    answered = table(served, f"{statement}, range(1000) ORDER BY idx")
    found = answered.json()
    assert found["columns"] == ["run_id", "half", "no", "long"]
    assert found["rows"][0] == [ids(served, "run")[0], 0.5, None, "x" * 9_000]
    assert found["more"]  # the answer is bounded
    assert found["ledger"]["entries"] == served.tables.standing.position
    assert found["ledger"]["problem"] is None
    wrong = table(served, "SELECT * FROM nothing")
    assert (wrong.status_code, list(wrong.json())) == (400, ["error"])
    assert served.client.get("/sql.json", params={"p": "1"}).status_code == 401
    assert "access-control-allow-origin" not in answered.headers


def test_script_without_the_token_gets_nothing(served: Served) -> None:
    for token in (None, "", "wrong", KEYS.session, f"{KEYS.token} "):
        answered = table(served, "FROM run_starts", token=token)
        assert (answered.status_code, list(answered.json())) == (401, ["error"]), token
        assert served.hostile not in answered.text


def test_rows_are_never_shown_under_the_head_of_another_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Homes are exchanged, and entries are added, while the server goes on."""
    place, one, other = Home(tmp_path / "home"), tmp_path / "one", tmp_path / "other"
    runs = []
    for folder in (one, other):  # with as many entries
        with Home(folder).open_log() as log:
            runs.append(str(synthetic_run(log, epochs=1).id))
    one.rename(place.path)
    tables = Tables(place)
    tables.open()
    tables.look()
    client = TestClient(live_view(place, tables, keys=KEYS, hosts=["127.0.0.1"]), base_url=ADDRESS)
    headers = {"Authorization": f"Bearer {KEYS.token}"}

    def asked() -> Any:
        found = client.get("/sql.json", params={"q": "SELECT run_id FROM runs"}, headers=headers)
        return found.json()

    def in_between(*given: Any, **options: Any) -> Any:
        found = answer(*given, **options)
        with place.open_log() as log:
            synthetic_run(log, epochs=1)
        tables.look()
        return found

    @contextmanager
    def just_before(*given: Any, **options: Any) -> Iterator[Ask]:
        with place.open_log() as log:
            synthetic_run(log, epochs=1)
        tables.look()
        with reading(*given, **options) as ask:
            yield ask

    reading = tables.reading
    with monkeypatch.context() as patch:
        patch.setattr(tables, "reading", just_before)
        client.post("/session", data={"token": KEYS.token})
        page = client.get(f"{BASE}/").text
        head = tables.standing.head
    assert head is not None
    assert f"{head.size:,} verified entries" in unescape(page)
    assert head.root.hex()[:16] in page
    with monkeypatch.context() as patch:
        patch.setattr(console, "answer", in_between)
        before = tables.standing
        found = asked()
    assert before.head is not None
    assert runs[0] in str(found["rows"])
    assert found["ledger"]["entries"] == before.position != tables.standing.position
    assert found["ledger"]["root"] == before.head.root.hex()
    tables.look()
    with Home(other).open_log() as log:
        synthetic_run(log, epochs=1)
    place.path.rename(one)
    other.rename(place.path)
    tables.look()
    found = asked()
    assert runs[1] not in str(found["rows"])
    assert found["ledger"]["origin"] == before.head.origin
    assert found["ledger"]["problem"] is not None
    tables.stop()


# ------------------------------------------------------------------------------------------------
# The console, and the state of the ledger


def test_console_answers_and_shows_what_is_wrong(served: Served) -> None:
    many = "SELECT+'<b>'+AS+a,+NULL+AS+b,+0.5+AS+c+FROM+range(100000)"
    shown = served.page(f"sql?q={many}")
    assert "&lt;b&gt;" in shown
    assert "NULL" in shown
    assert f"{BOUNDS.rows} rows; there are more" in shown
    assert "is not allowed" in served.page("sql?q=DROP+TABLE+log.events")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM range(1000000000000)", "stopped after"),
        ("SELECT LENGTH(REPEAT('x', 3000000000))", "memory|Memory"),  # DuckDB does not count it
    ],
)
def test_console_is_bounded(served: Served, sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        answer(served.tables.database, sql, bounds=Bounds(rows=5, seconds=0.3, memory=64))


def test_last_state_stays_while_the_ledger_does_not_verify(served: Served) -> None:
    def change(sql: str) -> None:
        with tables_of(served.home.ledger) as database:
            database.execute(f"UPDATE tree_heads SET note = {sql}")
        served.tables.look()

    change("'x' || note")
    shown = served.page("")
    assert "Not verified" in shown
    assert "last state that was verified" in shown
    assert served.hostile in shown
    change("substr(note, 2)")
    assert "Not verified" not in served.page("")


def test_settings_of_any_shape_are_shown() -> None:
    assert settings_of(json.dumps({"a": {"b": 1, "c": []}, "d": "x"})) == {
        "a.b": "1",
        "a.c": "[]",
        "d": "x",
    }
    assert settings_of("[" * 100_000) == {"value": "[" * 100_000}


def test_restarts_of_a_run_are_told_from_a_campaign(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.open_log() as log:
        runs = [synthetic_run(log, epochs=1) for _ in range(2)]
        config = {**runs[0].config, "edits": "restart"}
        for parent in (str(runs[0].id), None):
            campaign = Campaign.start(config=config, attempts=4, policy={"name": "playbook"})
            campaign.start_attempt(str(runs[0].id))
            campaign.start_attempt(str(runs[1].id), parent_run=parent)
            log.save(campaign)
    tables = Tables(home)
    tables.open()
    tables.look()
    with tables.reading() as ask:
        modes = [cells[2] for _, cells in list_subjects(ask, KINDS["campaign"], 1)]
    tables.stop()
    assert modes == [spoken(MODE), "one run and its restarts"]
