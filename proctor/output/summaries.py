"""Each event of a line or a proposal in a few words."""

from collections.abc import Callable, Mapping
from typing import Any

from ledger.wording import counted

_SHORT = 12  # characters of a hash


def _scored(body: Mapping[str, Any]) -> str:
    right = "right" if body["success"] else f"wrong: {body['problem']}"
    metrics = [f"{name} {value:g}" for name, value in body["metrics"].items()]
    more = [*metrics, *(["remembered"] if body["cached"] else [])]
    return f"{body['arm']}, {body['task']}: {right} ({', '.join(more)})"


def _tested(body: Mapping[str, Any], noun: str) -> str:
    passed = f"{counted(body['cases'], noun)} passed"
    return passed if body["passed"] else f"not passed: {body['problem']}"


INFRA_SUMMARIES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "proposal.submitted": lambda body: f"{body['proposer']}: {body['rationale']}",
    "proposal.reviewed": lambda body: (
        f"{body['verdict']} by {'+'.join(body['key'].split('+')[:2])}: {body['note']}"
    ),
    "proposal.branched": lambda body: f"{body['branch']} at {body['commit'][:_SHORT]}",
    "proposal.tested": lambda body: _tested(body, "case"),
    "proposal.rest_tested": lambda body: _tested(body, "more case"),
    "proposal.task_scored": _scored,
    "proposal.evaluated": lambda body: f"{body['verdict']}: {'; '.join(body['reasons'])}",
    "proposal.concluded": lambda body: f"{body['outcome']}: {body['reason']}",
    "line.opened": lambda body: f"branch {body['branch']} at {body['commit'][:_SHORT]}",
    "line.halted": lambda body: body["reason"],
    "line.resumed": lambda body: f"after proposal {body['proposal']}",
    "checkpoint.promoted": lambda body: (
        f"{body['commit'][:_SHORT]} from {', '.join(body['proposals'])}"
    ),
    "checkpoint.adopted": lambda body: f"{body['commit'][:_SHORT]}, made by people",
    "checkpoint.rolled_back": lambda body: f"{body['checkpoint']}: {body['reason']}",
    "valley.opened": lambda body: counted(len(body["steps"]), "step"),
    "valley.closed": lambda body: body["reason"],
    "task.admitted": lambda body: body["task"],
    "drift.measured": lambda body: (
        f"{body['set']} set at {body['commit'][:_SHORT]}: {body['success']:.0%} right"
    ),
    "drift.alarmed": lambda body: f"{body['kind']}: {body['detail']}",
    "drift.answered": lambda body: f"alarm {body['alarm']}, {body['kind']}: {body['note']}",
    "checkpoint.evaluated": lambda body: (
        f"{body['purpose']} {body['number']} of {body['commit'][:_SHORT]}: "
        f"{body['right']} of {body['tasks']} right"
    ),
    "bisection.opened": lambda body: (
        f"{counted(len(body['suspects']), 'suspect')} after {body['good']}, error {body['error']:g}"
    ),
    "bisection.probed": lambda body: f"{body['checkpoint']} is {body['verdict']}",
    "bisection.ended": lambda body: body["reason"],
    "corpus.opened": lambda body: f"nothing is admitted as of {body['at']} ns",
    "corpus.admitted": lambda body: f"{body['kind']} {body['name']}: {body['note']}",
    "corpus.withdrawn": lambda body: f"{body['kind']} {body['name']}: {body['note']}",
    "export.sealed": lambda body: (
        f"{counted(body['examples'], 'example')} of {body['kind']} as of entry {body['as_of']}"
    ),
}
"""Event name -> function that tells its body in a few words."""
