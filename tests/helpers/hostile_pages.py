"""A home in which every free text tries to become a part of the page that shows it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from full_ledger import add_what_can_go_wrong, write_some_of_everything
from synthetic import synthetic_call, synthetic_run, synthetic_transcript

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from proctor.home import Home

HOSTILE = (
    "</script></title></style></textarea><script>window.hostile=1</script>"
    "<img src=x onerror='window.hostile=2'><svg onload=window.hostile=3>"
    '" onmouseover="window.hostile=4" {{ 7*7 }} {% raw %} \u2028 \u202e \x1b[31m x:alert(5)'
    " <a href='javascript:window.hostile=6'>x</a> <link rel=stylesheet href=//example.com/x.css>"
)
# Fields whose texts other events, or the tables, are found by; and ids, hashes and moments.
_MEANT = re.compile(
    r"(^|_)(id|run|parent_run|checkpoint|parent|to|commit|tree|base|base_tree|line|proposal|sha256|"
    r"hash|rule|rules|cites|deferred_to|root|head|kind|status|outcome|verdict|mode|event_type|"
    r"direction|dataset_kind|level|profile|source|culprit|good|suspects|audit|policies|policy_name|"
    r"conditions|condition|policy|candidates|ranking|code|diff|set|purpose|side|action|envelope|key|"
    r"branch|request|response)$"
)
_NOT_IN_JSON = {ord('"'): "'", ord("\x1b"): None}
_PROSE = {"name", "dataset", "model", "reason", "model_name", "trigger", "proposer"}


def hostile(value: Any, name: str = "") -> Any:
    """Return a value whose texts, but for those that others refer to, end in markup."""
    if isinstance(value, dict):
        return {key: hostile(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(hostile(inner, name) for inner in value)
    if isinstance(value, str) and (name in _PROSE or not _MEANT.search(name)):
        return f"{value} {HOSTILE}"
    return value


def write_hostile_ledger(directory: Path) -> None:
    """Write a ledger with every kind of event, in which every free text is hostile."""
    with _hostile_texts():
        write_some_of_everything(directory)
        add_what_can_go_wrong(directory)


def make_hostile_home(path: Path) -> tuple[str, str]:
    """Make a home with such a ledger and blobs; return the ids of a hostile run and of one that
    goes on.
    """
    home = Home(path)
    write_hostile_ledger(home.ledger)
    with LedgerApplication.open(home.ledger, REGISTRY) as log:
        with _hostile_texts():
            run = synthetic_run(log, epochs=6, exploding=range(6), dead=range(6), refuse=True)
            said = f'{{"messages": [{{"content": "{HOSTILE.translate(_NOT_IN_JSON)}"}}]}}'
            body = home.blobs.put(said.encode())
            bodies: dict[str, Any] = {"request": body, "response": body}
            bodies |= {"request_bytes": len(said), "response_bytes": len(said)}
            calls = [synthetic_call(**bodies), synthetic_call("unusable", problem="odd")]
            synthetic_transcript(log, run, calls)
        going_on = synthetic_run(log, epochs=4, dead=range(4), end=None)
    return str(run.id), str(going_on.id)


@contextmanager
def _hostile_texts() -> Iterator[None]:
    """Make every free text hostile that is saved."""
    save = LedgerApplication.save

    def save_hostile(self: LedgerApplication, *aggregates: Any, **settings: Any) -> Any:
        for aggregate in aggregates:
            for event in aggregate.pending_events:
                for name, value in list(vars(event).items()):
                    if not name.startswith(("originator", "timestamp")):
                        event.__dict__[name] = _with_body(type(event).__name__, name, value)
        return save(self, *aggregates, **settings)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LedgerApplication, "save", save_hostile)
        yield


def _with_body(event: str, name: str, value: Any) -> Any:
    """Return a field of an event; what names the steps of an audit, or an epoch's values, stays."""
    fixed = {("StepCompleted", "name"), ("Ended", "reason"), ("RulesEvaluated", "evaluations")}
    fixed |= {("Started", "rules"), ("Started", "spec"), ("Started", "environment")}
    return value if (event, name) in fixed else hostile(value, name)


class Elements(HTMLParser):
    """The elements of a page, with their attributes; and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def active(self) -> Iterator[str]:
        """Yield what could run, or ask a network."""
        for tag, attributes in self.found:
            data = attributes.get("type") in ("application/json", "text/plain")
            if tag == "script" and not data:
                yield "script"
            if tag in ("img", "iframe", "object", "embed", "link", "base", "form", "foreignobject"):
                yield tag
            for name, value in attributes.items():
                if name.startswith("on") or name in ("src", "srcset", "style", "action", "data"):
                    yield f"{tag} {name}"
                if name.endswith("href") and not str(value).startswith("#"):
                    yield f"{tag} {name}={value}"
