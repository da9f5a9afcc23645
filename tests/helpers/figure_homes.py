"""A ledger whose figures are large, and the same figures counted without our tables and views.

Counts come from the bodies of the entries alone: they share no query and no rule with the pages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from full_ledger import write_some_of_everything
from synthetic import (
    begun_campaign,
    run_config,
    synthetic_audit,
    synthetic_call,
    synthetic_campaign,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.audit import STEPS, Audit
from aggregates.comparison import Comparison
from aggregates.curation.corpus import Corpus
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.bodies import decode_body

EMITTERS = ("driver", "harness", "policy")


@dataclass
class Figures:
    """What the ledger holds, by name."""

    large: str  # a run with 478 violations, 200 epochs and 156 layers
    huge: str  # with more violations than an entry has room for
    old: str  # judged by an earlier version, which listed 150 of 478
    campaign: str
    comparison: str
    line: str


def violations(count: int) -> list[dict[str, Any]]:
    """Return so many violations of several kinds, rules and emitters."""
    return [
        {
            "kind": ("missing_decision", "false_citation", "precedence")[place % 3],
            "rule": f"R{1 + place % 7}",
            "epoch": place // 4,
            "decision": None if place % 3 == 0 else 1 + place // 4,
            "emitter": EMITTERS[place % 11 % 3],
            "detail": f"number {place} of the violations",
        }
        for place in range(count)
    ]


def write_figures(directory: Path) -> Figures:
    """Write the ledger, with some of everything else in it."""
    with LedgerApplication.open(directory, REGISTRY) as log:
        odd: dict[str, Any] = {"dead": range(200), "diverged": range(7, 200, 5), "waived": ["R3"]}
        large = synthetic_run(log, epochs=200, layers=153, **odd)
        calls = [synthetic_call() for _ in range(37)]
        synthetic_transcript(log, large, [*calls, synthetic_call("unusable", problem="no JSON")])
        synthetic_audit(
            log, large, violations=violations(478), obligations=481, score=1 - 478 / 481
        )
        huge = synthetic_run(log, epochs=3)
        synthetic_audit(log, huge, violations=violations(9_000), obligations=9_000, score=0.0)
        old = synthetic_run(log, epochs=3)
        audit_of_an_earlier_version(log, old)
        begun, (first, *ids) = begun_campaign(log, 3, abandoned=1, epochs=6)
        of_campaign: dict[str, Any] = {"epochs": 6, "campaign": str(begun.id)}
        synthetic_run(log, run_id=first, dead=range(2), end="crashed", **of_campaign)
        runs = [synthetic_run(log, run_id=each, dead=range(6), **of_campaign) for each in ids]
        audits = [
            synthetic_audit(log, run, violations=violations(count))
            for run, count in zip(runs, (160, 40, 0), strict=True)
        ]
        campaign = synthetic_campaign(log, runs, audits=audits, begun=begun)
        comparison = _compare(log)
        line = _line(log)
    write_some_of_everything(directory)  # then a judge has a key, and unsigned audits do not count
    return Figures(
        large=str(large.id),
        huge=str(huge.id),
        old=str(old.id),
        campaign=str(campaign.id),
        comparison=comparison,
        line=line,
    )


def audit_of_an_earlier_version(log: LedgerApplication, run: Run) -> None:
    """Save an audit as earlier versions did: 150 violations, and no further ones."""
    audit = Audit.start(run=str(run.id), tree_head="note", config={"disabled": []}, environment={})
    found = violations(478)
    for name in STEPS:
        count = {"coverage": 400, "defensibility": 78}.get(name, 0)
        said = {"violations": {"total": count, "first": found[:50]}} if count else {}
        status = "violations" if count else "passed"
        audit.complete_step(name, status, summary=name, evidence=said)
    audit.trigger_event(
        Audit.Scored,
        hard_fail=False,
        accuracy_score=0.9,
        process_score=1 - 478 / 481,
        process_axis_exercised=True,
        test_accuracy=0.7,
        validation_accuracy=0.7,
        obligations=481,
        decisions=3,
        violations=found[:150],
        further=None,
    )
    log.save(audit)


def _compare(log: LedgerApplication) -> str:
    comparison = Comparison.start(
        policies=[{"name": "synthetic"}, {"name": "nothing"}],
        conditions={"hot": run_config(epochs=4), "cold": run_config(epochs=3)},
        seeds=[0, 1],
    )
    log.save(comparison)
    ids = {cell: uuid4() for cell in comparison.cells}
    for cell, run_id in ids.items():
        comparison.allot(cell, str(run_id))
    log.save(comparison)
    for place, cell in enumerate(comparison.cells[:-1]):
        problem = "it diverged" if place == 3 else None
        epochs = {"hot": 4, "cold": 3}[cell.condition]
        run = synthetic_run(
            log,
            end="completed" if problem is None else "crashed",
            epochs=epochs,
            dead=range(epochs),
            seed=cell.seed,
            run_id=ids[cell],
            policy=cell.policy,
        )
        audit = synthetic_audit(
            log, run, violations=violations(170 if place == 1 else place), score=0.5
        )
        comparison.finish(cell, audit=str(audit.id), problem=problem)
    log.save(comparison)
    return str(comparison.id)


def _line(log: LedgerApplication) -> str:
    """Make a line with promotions, drift, and runs that depend on what is elsewhere."""
    line = synthetic_line(log, branch="figures")
    other = synthetic_line(log, branch="other")
    first = line.active
    for at in range(3):
        synthetic_proposal(log, line, rationale=f"better {at}")
        synthetic_proposal(log, line, rationale=f"worse {at}", outcome="rejected")
    good = {"a": {"success": True}, "b": {"success": True}}
    for tasks in (good, {**good, "b": {"success": False}}):
        for kind in ("reference", "hidden"):
            for commit in (line.head.commit, "f" * 40):  # the active checkpoint, and the branch
                line.measure(commit=commit, set=kind, sha256="0" * 64, tasks=tasks)
    line.alarm(commit=line.head.commit, kind="worse", detail="one task less", tasks=["b"])
    line.alarm(commit=line.head.commit, kind="decline", detail="slowly", tasks=["b"])
    line.answer(1, "the task was wrong")
    log.save(line)
    bad = synthetic_proposal(log, other, rationale="bad").checkpoint
    source = synthetic_run(log, epochs=3, checkpoint=bad)
    for seed in range(12):  # the healthy range of their task is measured on these
        synthetic_run(log, epochs=8, seed=seed, checkpoint=first)
        synthetic_run(log, epochs=8, seed=seed, checkpoint=other.active)
    synthetic_run(log, epochs=2, checkpoint=line.active)
    synthetic_run(log, epochs=4, checkpoint=line.active, parent_run=str(source.id))
    other.roll_back(str(bad), "it was bad")
    corpus = Corpus.open()
    corpus.admit("data", "00" * 32, "made here")
    log.save(other)
    return str(line.id)


# Counted from the bodies of entries, with nothing of ours but their decoding


def bodies(entries: Iterable[Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the stream and the body of each event of a name, in order."""
    return [(str(e.stream_id), decode_body(e.body)) for e in entries if e.name == name]


def told_violations(entries: Iterable[Any], run: str) -> Counter[tuple[str, str, str]]:
    """Return how many violations the only audit of a run recorded, by kind, rule and emitter."""
    rows = list(entries)
    [audit] = [stream for stream, body in bodies(rows, "audit.started") if body["run"] == run]
    [scored] = [body for stream, body in bodies(rows, "audit.scored") if stream == audit]
    found = Counter((v["kind"], v["rule"], v["emitter"]) for v in scored["violations"])
    for group in scored.get("further") or ():
        found[group["kind"], group["rule"], group["emitter"]] += group["count"]
    return found


def of_run(entries: Iterable[Any], run: str) -> dict[str, int]:
    """Return the figures of a run."""
    rows = [entry for entry in entries if str(entry.stream_id) == run]
    rules = [body["evaluations"] for _, body in bodies(rows, "run.rules_evaluated")]
    made = [body for _, body in bodies(rows, "run.decision_made")]
    epochs = [body["measured"] for _, body in bodies(rows, "run.epoch_measured")]
    waived = [w for _, body in bodies(rows, "run.started") for w in body["config"]["waived"]]
    fired = [
        (epoch, rule) for epoch, each in enumerate(rules) for rule in each if each[rule]["fired"]
    ]
    return {
        "epochs": len(epochs),
        "layers": len({layer["name"] for each in epochs for layer in each["layers"]}),
        "firings": len(fired),
        "waived": sum(rule in waived for _, rule in fired),
        "decisions": len(made),
        "applied": len(bodies(rows, "run.remedy_applied")),
        "refused": len(bodies(rows, "run.remedy_refused")),
        "deferred": sum(body["event_type"] == "rule_triggered_no_action" for body in made),
    }


__all__ = [
    "Figures",
    "audit_of_an_earlier_version",
    "bodies",
    "of_run",
    "told_violations",
    "violations",
    "write_figures",
]
