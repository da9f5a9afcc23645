"""The study of the gate beside others: its problem, its proposer, and the gate on it."""

import json
from random import Random
from typing import Any

import pytest
from studies.others.ours import in_process
from studies.others.problem import MATTERING, NAMES, Problem, changed
from studies.others.proposer import Proposer
from studies.others.run import Evolved, row

OPENEVOLVE = (
    "# Current Program\n```python\n# EVOLVE-BLOCK-START\n{}\n# EVOLVE-BLOCK-END\n```\n\n# Task\n"
)
GEPA = "## Current Component\n\nIt is:\n\n```\n{}\n```\n\n## Evaluation Results\n\n```\nnone\n```\n"
OURS = "# Round 1\n\nAn operator asks.\n\n# numbers.toml\n\n~~~~\n{}~~~~"


@pytest.mark.parametrize("kind", MATTERING)
def test_a_program_passes_as_many_cases_as_it_is_worth(kind: str) -> None:
    problem, luck = Problem(kind, 3), Random(1)
    passed = [problem.passes(problem.text, case=n, luck=luck) for n in range(4_000)]
    assert problem.worth(problem.text) == 0.3
    assert abs(sum(passed) / 4_000 - 0.3) < 0.03
    assert problem.worth("amber = 1\n") == 0.0


@pytest.mark.parametrize("kind", MATTERING)
def test_changes_of_single_numbers_reach_the_best_and_spoil(kind: str) -> None:
    problem = Problem(kind, 3)
    text, found = problem.text, []
    for name in NAMES:
        (old,) = (line for line in text.splitlines() if line.startswith(name))
        tried = {text.replace(old, f"{name} = {digit}") for digit in range(10)}
        found.append(max(map(problem.worth, tried)) > problem.worth(text))
        text = max(tried, key=problem.worth) if found[-1] else text
    assert sum(found) == MATTERING[kind]
    assert problem.worth(text) == pytest.approx(0.9)
    worse = {problem.worth(changed(text, seed=0, call=n)[2]) for n in range(200)}
    assert 0.9 in worse
    assert 0.85 in {round(each, 6) for each in worse}


def asked(proposer: Proposer, text: str, form: dict[str, Any]) -> str:
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": text}]
    said = proposer({"messages": messages, **form}, {}).body
    return str(said["choices"][0]["message"]["content"])


@pytest.mark.parametrize("seed", range(5))
def test_the_proposal_of_a_call_is_the_same_in_each_form(seed: int) -> None:
    text = Problem("two large", 0).text
    schema = {"properties": dict.fromkeys(("rationale", "edits", "files"))}
    form = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    proposers = [Proposer(seed) for _ in range(3)]
    for call in (1, 2):
        old, new, whole = changed(text, seed=seed, call=call)
        said = asked(proposers[0], OPENEVOLVE.format(text.strip()), {})
        assert f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" in said
        assert asked(proposers[1], GEPA.format(text.strip()), {}) == f"```\n{whole}```"
        told = json.loads(asked(proposers[2], OURS.format(text), form))
        assert told["edits"] == [{"path": "numbers.toml", "find": old, "replace": new}]
        assert not told["files"]
    assert [each.calls for each in proposers] == [2, 2, 2]


def test_the_gate_takes_what_is_better_and_says_the_same_again() -> None:
    problem = Problem("two large", 0)
    found = in_process(kind="two large", seed=0, calls=10)
    worths = [problem.worth(text) for _, text in found["best"]]
    assert worths[0] == 0.3
    assert len(worths) > 1
    assert worths == sorted(worths)
    assert found == in_process(kind="two large", seed=0, calls=10)


def test_a_row_counts_what_was_taken_for_better() -> None:
    won = Evolved([(None, 0.3), (0.6, 0.5), (0.7, 0.4)], cases=10, calls=3, seconds=1.0)
    none = Evolved([(None, 0.3)], cases=20, calls=3, seconds=2.0)
    same = Evolved([(0.2, 0.3), (0.4, 0.3), (0.5, 0.4)], cases=1_000, calls=3, seconds=2.0)
    assert row("an arm", {"one": [won, none], "two": [same, same]}) == {
        "arm": "an arm",
        "winner's true worth": "0.35±0.64; 0.40±0.00",
        "its score less its worth": "0.30; 0.10±0.00",
        "new bests: better/equal/worse": "1/0/1; 2/2/0",
        "cases run": "15; 1,000",
    }
