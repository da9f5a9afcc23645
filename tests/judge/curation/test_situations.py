"""A model that is asked in the form of exports sees what an export shows, byte for byte."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, decide, defer
from frontdoor import TINY, call_here, with_settings

from aggregates.playbook import REMEDIES
from aggregates.rules import FIRST_RULES
from aggregates.situation import task
from judge.curation.examples import situation
from judge.curation.tables import open_tables
from ledger.verification.reader import open_verified
from proctor.home import Home

TRAINING = with_settings(TINY, "epochs=5", "lr=3.0", "warm_up_epochs=0", "profile=document")


def act_on_first(request: dict[str, Any]) -> dict[str, Any]:
    """Answer the first due rule with the first remedy that is offered, at its lowest value."""
    text = request["messages"][1]["content"]
    first, *others = re.findall(r"^- (R\d) fired", text, re.MULTILINE)
    found = re.search(rf"- {first} fired.*?; (\w+)(?: (lr|batch_size) ([0-9.e-]+))?", text)
    assert found is not None
    direction, name, value = found.groups()
    params: dict[str, Any] = {name: json.loads(value)} if name else {"to": "gelu"}
    if first == "R7":
        params["reinitialise"] = True  # the weights are lost
    acts = {
        "event_type": REMEDIES[direction].event_type,
        "cites": [first],
        "direction": direction,
        "params": params,
        "justification": "it is offered",
    }
    waits = [defer(rule) for rule in others]
    return {"decisions": [defer(first) if direction.startswith("add") else acts, *waits]}


@pytest.mark.slow
def test_model_asked_as_in_an_export_sees_what_the_export_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with ChatServer(decide(act_on_first)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        asking = ["--policy", "openai", "--set", "model=m", "--set", "form=exported"]
        provoked = ["run", "--provoke", "infinite_loss", *asking, *TRAINING]
        done = call_here(provoked, home=home)
        assert done.returncode == 0, done.stderr
        requests = [each for each in server.requests if "decisions" in json.dumps(each)]
    store = Home(home)
    with open_verified(store.ledger) as ledger, open_tables(ledger) as tables:
        calls = tables.ask(
            "SELECT c.*, t.run_id FROM calls AS c JOIN transcripts AS t USING (transcript_id) "
            "WHERE c.action = 'decide' ORDER BY c.idx"
        )
        shown = [
            situation(
                tables, run=call["run_id"], epoch=call["epoch"], rules=json.loads(call["rules"])
            )
            for call in calls
        ]
        outcomes = {row["outcome"] for row in tables.ask("SELECT outcome FROM remedies")}
    asked = [json.loads(store.blobs.get(call["request"]))["messages"] for call in calls]
    assert len(asked) >= 3
    assert asked == shown == [request["messages"] for request in requests]
    assert outcomes >= {"applied"}
    assert all(system["content"] == task(FIRST_RULES) for system, _ in asked)
    # Servers make an answer's fields in the order of the schema: that of an exported answer.
    named = requests[0]["response_format"]["json_schema"]["schema"]["properties"]["decisions"]
    fields = list(named["prefixItems"][0]["anyOf"][0]["properties"])
    assert fields == ["event_type", "cites", "direction", "params", "justification"]
    assert "val_accuracy" not in asked[-1][1]["content"]  # which no policy sees
