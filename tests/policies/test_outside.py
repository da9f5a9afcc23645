"""Policies that somebody else wrote: a class, or a process that speaks JSON lines."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from frontdoor import TINY, answer, call

from aggregates.decisions import Decision, Observation, PastDecision, validate_decision
from judge.reference.situations import observe
from policies.deciding.catalogue import create_policy
from policies.deciding.outside import OutsidePolicy, _Process, observation_json, process_policy
from policies.errors import PolicyError

AGENT = """
import json, sys
for line in sys.stdin:
    seen = json.loads(line)
    rules = seen["rules"]
    print(json.dumps({"decisions": [
        {"event_type": "hyperparameter_change", "cites": [rule], "direction": "decrease_lr",
         "params": {"lr": seen["settings"]["lr"] / 10}, "justification": "too long steps"}
        if rules[rule]["side"] in ("high", "not_finite") and rule in ("R1", "R7") else
        {"event_type": "rule_triggered_no_action", "cites": [rule], "direction": "defer",
         "params": {}, "justification": "it can wait"}
        for rule in seen["due"]
    ]}), flush=True)
"""


@pytest.fixture(scope="module")
def seen() -> Observation:
    return observe(Random(1), {"R1": "high"})


def program(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "agent.py"
    path.write_text(source, encoding="utf-8")
    return [sys.executable, str(path)]


def test_process_is_asked_for_each_decision(tmp_path: Path, seen: Observation) -> None:
    policy = process_policy(program(tmp_path, AGENT))
    for _ in range(3):
        (said,) = policy.decide(seen)
        assert said.source == "policy"
        validate_decision(said.decision, seen)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import time; time.sleep(60)", "took or wrote more than 1 seconds"),
        ("raise SystemExit(3)", "ended without an answer"),
        ("input(); print('hm')", "cannot be read"),
        ("input(); print('NaN')", "NaN and infinity are not allowed"),
        ("input(); print('{}')", 'must be an object with "decisions"'),
        ("input(); print('{}\\n{}')", "more than one line"),
        ("input(); print('x' * 2**21)", "took or wrote over"),
    ],
)
def test_process_without_a_usable_answer_is_a_silence(
    tmp_path: Path, seen: Observation, source: str, words: str
) -> None:
    policy = process_policy(program(tmp_path, source), seconds=1.0)
    (said,) = policy.decide(seen)
    assert (said.source, said.decision.direction) == ("driver", "defer")
    assert words in said.decision.justification


DEFERRAL = Decision.of(("R1",), "defer", {}, "later")
KEEPS = """
import json, os, sys
known, said = [], 0
for line in sys.stdin:
    seen = json.loads(line)
    if seen["since"] != {"history": len(known), "decisions": seen["since"]["decisions"]}:
        known = known[:seen["since"]["history"]]
    known += seen["history"]
    said += 1
    words = json.dumps([len(seen["history"]), len(seen["decisions"]), len(known), os.getpid()])
    print(json.dumps({"keeps": KEEPS, "decisions": [
        {"event_type": "rule_triggered_no_action", "cites": [rule], "direction": "defer",
         "params": {}, "justification": words} for rule in seen["due"]]}), flush=True)
    if said == 3:
        sys.exit()
"""


ENDS_LATE = """
import json, os, sys
seen = json.loads(sys.stdin.readline())
words = str(os.getpid())
print(json.dumps({"decisions": [
    {"event_type": "rule_triggered_no_action", "cites": [rule], "direction": "defer",
     "params": {}, "justification": words} for rule in seen["due"]]}), flush=True)
sys.stdin.readline()
"""
DEAF = ENDS_LATE.replace("words =", "os.close(0)\nwords =").replace(
    "\nsys.stdin.readline()", "\nimport time; time.sleep(60)"
)


def test_program_that_ends_after_its_answer_is_asked_anew(
    tmp_path: Path, seen: Observation
) -> None:
    """It ends when the next question is already under way: no rule goes unanswered for that."""
    policy = process_policy(program(tmp_path, ENDS_LATE))
    pids = {int(policy.decide(seen)[0].decision.justification) for _ in range(4)}
    assert len(pids) == 4


def test_program_that_has_ended_before_its_first_question_is_a_silence(
    tmp_path: Path, seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = _Process._started

    def ended(self: _Process) -> "subprocess.Popen[bytes]":
        child = start(self)
        child.wait()
        return child

    monkeypatch.setattr(_Process, "_started", ended)
    (said,) = process_policy(program(tmp_path, "raise SystemExit(3)")).decide(seen)
    assert said.decision.justification.endswith("the process ended without an answer")


def test_program_that_closes_its_input_is_asked_anew(tmp_path: Path, seen: Observation) -> None:
    policy = process_policy(program(tmp_path, DEAF))
    pids = {int(policy.decide(seen)[0].decision.justification) for _ in range(3)}
    assert len(pids) == 3


def longer(seen: Observation, epochs: int) -> Observation:
    """Return what is observed after so many epochs, with a decision in each but the last."""
    first, past = seen.history[0], PastDecision(1, 0, "policy", DEFERRAL, None)
    return replace(
        seen,
        epoch=epochs - 1,
        history=tuple(replace(first, epoch=epoch) for epoch in range(epochs)),
        decisions=tuple(replace(past, number=n + 1, epoch=n) for n in range(epochs - 1)),
    )


def told(policy: OutsidePolicy, seen: Observation) -> list[int]:
    """Return how many epochs and decisions a question had, the epochs known, and the process."""
    (said,) = policy.decide(seen)
    numbers: list[int] = json.loads(said.decision.justification)
    return numbers


def test_program_that_keeps_is_told_what_is_new(tmp_path: Path, seen: Observation) -> None:
    policy = process_policy(program(tmp_path, KEEPS.replace("KEEPS", "True")))
    first, second, third, again = (told(policy, longer(seen, n)) for n in (100, 101, 150, 151))
    assert [each[:3] for each in (first, second, third)] == [
        [100, 99, 100],
        [1, 1, 101],
        [49, 49, 150],
    ]
    assert first[3] == second[3] == third[3] != again[3]  # it had ended
    assert again[:3] == [151, 150, 151]
    other = told(policy, replace(longer(seen, 200), run_id="another"))
    assert other[:2] == [200, 199]
    assert told(policy, replace(longer(seen, 50), run_id="another"))[:2] == [50, 49]


def test_program_that_keeps_nothing_is_told_everything(tmp_path: Path, seen: Observation) -> None:
    source = KEEPS.replace('"keeps": KEEPS, ', "")
    policy = process_policy(program(tmp_path, source))
    assert [told(policy, longer(seen, n))[:2] for n in (10, 11)] == [[10, 9], [11, 10]]


def test_program_that_keeps_in_other_words_gives_no_answer(
    tmp_path: Path, seen: Observation
) -> None:
    policy = process_policy(program(tmp_path, KEEPS.replace("KEEPS", '"yes"')))
    (said,) = policy.decide(longer(seen, 3))
    assert said.source == "driver"
    assert 'an object with "decisions" and nothing else' in said.decision.justification


def test_program_that_is_not_there_is_a_silence(seen: Observation) -> None:
    (said,) = process_policy(["/no/such/agent"]).decide(seen)
    assert "No such file" in said.decision.justification


ODD = """
class Raises:
    def decide(self, seen):
        raise RuntimeError("not today")


class Nonsense:
    def decide(self, seen):
        return [1, 2.5, None]
"""


def test_class_that_raises_or_answers_nonsense_is_a_silence(
    tmp_path: Path, seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_agents.py").write_text(ODD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("Raises", "Nonsense"):
        policy = create_policy(f"odd_agents:{name}")
        assert isinstance(policy, OutsidePolicy)
        (said,) = policy.decide(seen)
        assert said.source == "driver"
        assert "no usable answer: " in said.decision.justification


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:Agent", "no_such_module cannot be imported"),
        ("json:Agent", "json has no 'Agent'"),
        ("json:JSONDecodeError", "cannot be made without arguments"),
        ("json:JSONDecoder", "has no method decide"),
        ("exec:", "exec: needs a command"),
        ("exec:'", "No closing quotation"),
        ("exec:no-such-agent --fast", "no-such-agent is not a program that can be started"),
        ("script_that_ends:Agent", "script_that_ends cannot be imported: SystemExit: 3"),
        ("lazy:raises", "lazy cannot be imported: ValueError: no"),
        ("lazy:ends", "lazy cannot be imported: SystemExit: 0"),
        ("lazy:lacks", "lazy has no 'lacks'"),
        ("oracle", "unknown policy 'oracle'"),
    ],
)
def test_policy_that_cannot_be_had_is_named(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script_that_ends.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    (tmp_path / "lazy.py").write_text(
        "def __getattr__(name):\n"
        "    kinds = {'raises': ValueError('no'), 'ends': SystemExit(0)}\n"
        "    raise kinds.get(name, AttributeError(name))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=words):
        create_policy(name)


def test_run_is_decided_by_a_process_and_by_a_class(tmp_path: Path) -> None:
    command = " ".join(program(tmp_path, AGENT))
    (tmp_path / "my_agent.py").write_text(
        "from policies.playbook import PlaybookPolicy\n\n\nclass Mine(PlaybookPolicy):\n    pass\n",
        encoding="utf-8",
    )
    for policy in (f"exec:{command}", "my_agent:Mine"):
        done = call(
            ["run", *TINY, "lr=3.0", "warm_up_epochs=0", "--policy", policy, "--json"],
            home=tmp_path / "home",
            cwd=tmp_path,
        )
        (run,) = answer(done)["runs"]
        assert run["applied"] >= 1
        assert run["policy_name"] == policy


SECOND_LATER = """
import sys, time
for line in sys.stdin:
    print('{"decisions": []}', flush=True)
    time.sleep(0.2)
    print('{"decisions": ["stale"]}', flush=True)
"""
UNREAD = "print('{\"decisions\": []}', flush=True); import time; time.sleep(60)"
LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").write(str(child.pid))
input()
print("{}", flush=True)
input()
"""


def test_second_answer_is_not_taken_for_the_next_question(
    tmp_path: Path, seen: Observation
) -> None:
    policy = process_policy(program(tmp_path, SECOND_LATER))
    for _ in range(2):
        (said,) = policy.decide(seen)
        assert "there is no decision on it" in said.decision.justification
        time.sleep(0.4)


def test_answer_before_the_question_was_read_is_none(tmp_path: Path, seen: Observation) -> None:
    long = replace(seen, history=seen.history * 300)  # more than a pipe holds
    policy = process_policy(program(tmp_path, UNREAD), seconds=5.0)
    (said,) = policy.decide(long)
    assert "answered before it had read the question" in said.decision.justification


def test_guide_names_every_key_that_a_program_receives(seen: Observation) -> None:
    guide = Path(__file__).parents[2] / "docs/how-to/own-policy.md"
    (told,) = re.findall(r"An observation has the keys (.*?)\n\n", guide.read_text(), re.DOTALL)
    found = observation_json(seen)
    keys = {*found, *(key for rule in found["rules"].values() for key in rule)}
    assert keys <= {*re.findall(r"`(\w+)`", told)}


def test_program_is_ended_with_what_it_started(tmp_path: Path, seen: Observation) -> None:
    policy = process_policy([*program(tmp_path, LEAVES_A_CHILD), str(tmp_path / "child")])
    policy.decide(seen)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    assert is_alive(child)
    del policy
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def is_alive(number: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
