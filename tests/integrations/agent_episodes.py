"""What the frameworks of language model agents are tested with: servers, and a look at the home."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chat_server import Behaviour, Reply, act_on_first, completion
from frontdoor import call_here

from proctor.home import Home

# R1 fires in the third epoch and in all that follow, until the learning rate is raised far.
STUCK = {"train_examples": 192, "val_examples": 64, "test_examples": 64, "lr": 1e-7, "epochs": 6}
SCORES = ("process_score", "val_accuracy")


def acts(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
    """Answer as a model does that knows the playbook."""
    return Reply(completion(act_on_first(request)))


def nonsense(_: dict[str, Any], __: Mapping[str, str]) -> Reply:
    """Answer with something that is no decision."""
    return Reply(completion("Let us talk about the weather: {"))


def silent(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
    """Refuse the key."""
    return Reply({"error": {"message": "no such key"}}, 401)


def killer(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
    """Kill the training processes of this process before answering."""
    for each in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, each.read_text().split()):
            if b"proctor.environment.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    return acts(request, headers)


def in_turn(*replies: Callable[[dict[str, Any], Mapping[str, str]], Reply]) -> Behaviour:
    """Answer the requests in turn, the last one for ever; a prompt that was seen is answered alike.

    So a client that asks the same again gets the same again.
    """
    seen: list[Any] = []

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if request["messages"] not in seen:
            seen.append(request["messages"])
        return replies[min(seen.index(request["messages"]), len(replies) - 1)](request, headers)

    return behave


# Nonsense, which is asked again; then an answer that is too late, and a connection that breaks.
UNRELIABLE = in_turn(
    *[nonsense] * 2,
    lambda _, __: Reply(delay=30.0),
    lambda _, __: Reply(completion("lost"), drop=-1),
    acts,
)


def done(*arguments: str, home: Path, code: int = 0) -> str:
    """Return what a command prints."""
    found = call_here(arguments, home=home)
    assert found.returncode == code, found.stderr
    return found.stdout


def rows(home: Path, sql: str) -> list[dict[str, Any]]:
    """Return what a home's tables say."""
    found: list[dict[str, Any]] = json.loads(done("sql", sql, "--format", "json", home=home))
    return found


def ends(home: Path) -> list[str]:
    """Return how the runs ended; the next command that appends closes those that crashed."""
    with Home(home).open_log():
        pass
    return [row["end_reason"] for row in rows(home, "SELECT end_reason FROM runs ORDER BY ALL")]


CALLS = """
SELECT DISTINCT model, endpoint, parameters ->> '$.temperature' AS temperature,
    parameters ->> '$.max_tokens' AS max_tokens
FROM calls
"""


def assert_unreliable(home: Path, told: Mapping[str, Any]) -> None:
    """Look for what is recorded of a model that answers UNRELIABLE, within a second or not."""
    outcomes = [row["outcome"] for row in rows(home, "SELECT outcome FROM calls ORDER BY idx")]
    assert outcomes[:3] == ["unusable", "unusable", "timeout"]
    assert outcomes[3] in ("server_error", "timeout")  # some clients try again
    assert set(outcomes[4:]) == {"usable"}
    assert (told["requests"], told["usable"]) == (len(outcomes), len(outcomes[4:]))
    made = rows(home, "SELECT epoch, source, direction FROM decisions ORDER BY idx")
    assert [(each["source"], each["direction"]) for each in made[:4]] == [
        *[("driver", "defer")] * 3,
        ("policy", "increase_lr"),
    ]
    assert_recorded(home, [told])


def assert_recorded(home: Path, told: Sequence[Mapping[str, Any]]) -> None:
    """Verify the ledger against each tree head told, and judge and replay each run."""
    for number, each in enumerate(told):
        head = home / f"head-{number}"
        head.write_text(each["tree_head"], encoding="utf-8")
        done("verify", "--head", str(head), home=home)
        verdict = json.loads(done("judge", each["run"], "--json", home=home))
        assert verdict.get("hard_fail") is False, verdict
        assert verdict["scores"]["process_score"] == each["process_score"]
        assert verdict["scores"]["obligations"] == each["obligations"]
        again = done("replay", each["run"], "--execute", home=home)
        assert f"what is recorded of {each['requests']} calls to a model" in again
