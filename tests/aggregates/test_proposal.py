"""Proposals as records of earlier versions have them."""

from typing import Any
from uuid import uuid4

from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY

ANSWER: dict[str, Any] = {
    "arm": "base",
    "task": "one",
    "repeat": 0,
    "seed": 1,
    "success": False,
    "validation_failures": 1,
    "metrics": {},
    "problem": "there is no answer",
    "cached": True,
    "isolation": [],
}


def test_answer_of_version_1_does_not_say_whether_it_is_missing() -> None:
    lifted = dict(REGISTRY.upcast("proposal.task_scored", {"v": 1, **ANSWER}))
    assert lifted == {"v": 3, **ANSWER, "missing": None, "seconds": None, "cpu_seconds": None}
    proposal = Proposal.submit(
        line=str(uuid4()),
        targets={"a.py": 2},
        diff="0" * 64,
        diff_bytes=1,
        base="0" * 40,
        base_tree="0" * 40,
        rationale="better",
        trigger="operator_request",
        proposer="test",
    )
    del lifted["v"]
    proposal.trigger_event(Proposal.TaskScored, **lifted)
    result = proposal.results["base", "one", 0]
    assert (result["missing"], result["cached"]) == (False, True)
