"""A line that was evolved for long, with made-up figures: proposals and their diffs, rounds without
one, calls to a model, measurements on hidden siblings, evaluations, rollbacks.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

from synthetic import CODE, CONFINED, synthetic_call, synthetic_line, synthetic_tests

from aggregates.canonical import digest
from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from aggregates.transcript import Transcript
from ledger.application import LedgerApplication
from proctor.home import Home

_ENDS = ("rejected", "promoted", "rejected", "superseded", "rejected")


def make_evolved_line(
    path: Path,
    *,
    proposals: int,
    checkpoints: int,
    tasks: int,
    diff: str = "",
    branch: str = "main",
) -> str:
    """Write a home with such a line, and return the line's id; the last proposal waits.

    `diff` is what each proposal's diff ends with.
    """
    home = Home(path)
    with LedgerApplication.open(home.ledger, REGISTRY) as log:
        line = synthetic_line(log, branch=branch)
        evolution = Evolution.open(str(line.id))
        asked = {"name": "openai", "model": "scripted"}
        evolution.begin(2 * proposals, proposer=asked)
        promotions = 0
        for number in range(1, proposals + 1):
            if number % 4 == 0:
                evolution.end_round("unusable", proposer="openai", calls=1, reason="no JSON")
                _ask(log, evolution.proposal_id(evolution.rounds))
            wanted = number * (checkpoints - 1) // proposals > promotions
            end = "promoted" if wanted else "superseded" if number % 7 == 0 else "rejected"
            name = evolution.proposal_id(evolution.rounds + 1)
            text = f"--- a/component.py\n+++ b/component.py\n@@ -1 +1 @@\n-x\n+{number}\n{diff}"
            told: dict[str, Any] = {"diff": home.blobs.put(text.encode())}
            told |= {"diff_bytes": len(text.encode()), "proposal_id": name}
            _ask(log, name)
            last = number == proposals
            _propose(log, line, None if last else end, number, tasks=tasks, told=told)
            evolution.end_round(
                "proposed",
                proposal=str(name),
                proposer="openai",
                technique="feedback",
                pattern="task first",
                calls=1,
                reason="it waits for an operator" if last else "",
            )
            if wanted and not last:
                promotions += 1
                _measure(line, tasks=tasks)
                if promotions in (3, 4):
                    line.roll_back(line.active, "it was worse after all")
            log.save(evolution, line)
    return str(line.id)


def _ask(log: LedgerApplication, subject: UUID) -> None:
    transcript = Transcript.start(str(subject), policy={}, mode="gauntlet_evolution")
    transcript.add(**synthetic_call(agent="proposer", action="propose", epoch=None, rules=()))
    log.save(transcript)


def _measure(line: Line, *, tasks: int) -> None:
    """Measure the active checkpoint on hidden siblings, and evaluate it on new tasks."""
    head, found = line.head.commit, {f"hidden-{n}": {"success": n % 3 > 0} for n in range(tasks)}
    line.measure(commit=head, set="hidden", sha256="0" * 64, tasks=found)
    wrong = [f"new-{n}" for n in range(tasks // 4)]
    told: dict[str, Any] = {"seed": head, "sha256": "1" * 64, "tasks": tasks, "wrong": wrong}
    line.evaluate(line.active, purpose="drift", valid=tasks, precision=None, code=None, **told)


def _propose(
    log: LedgerApplication,
    line: Line,
    end: str | None,
    number: int,
    *,
    tasks: int,
    told: dict[str, Any],
) -> None:
    base = line.head
    proposal = Proposal.submit(
        line=str(line.id),
        targets={"component.py": 2, "settings.toml": 2},
        base=base.commit,
        base_tree=base.tree,
        rationale=f"Change {number} answers one more task.",
        trigger="error_pattern",
        proposer="openai",
        **told,
    )
    if end is None:
        log.save(proposal)
        return
    commit = digest({"change": number, "base": base.commit})[:40]
    synthetic_tests(proposal, line, commit=commit, tree=commit)
    right = min(tasks, tasks // 3 + len(line.checkpoints) // 4)
    for arm, task in ((arm, task) for task in range(tasks) for arm in ("base", "candidate")):
        proposal.record_result(
            arm,
            f"task-{task}",
            repeat=0,
            seed=task,
            success=task < right + (arm == "candidate" and end == "promoted"),
            validation_failures=0,
            metrics={"tokens": 40.0, "prompt_tokens": 100.0},
            problem=None,
            isolation=CONFINED,
            seconds=0.5,
            cpu_seconds=0.25,
        )
    better = end == "promoted"
    proposal.evaluate(
        "better" if better else "worse",
        level=0.01,
        regressions=[] if better else ["task-0"],
        improvements=["task-1"] if better else [],
        reasons=["task-0: fails now"] if not better else ["task-1: passes now"],
        comparisons=[{"task_id": f"task-{task}", "pairs": 1} for task in range(tasks)],
    )
    checkpoint = None
    if better:
        same = {"manifest": line.manifest, "reference_set": line.reference_set, "code": CODE}
        checkpoint = line.promote(commit=commit, tree=commit, proposals=[str(proposal.id)], **same)
    proposal.conclude(
        end, stage="conclude" if better else "evaluate", reason=f"{end}: so", checkpoint=checkpoint
    )
    log.save(proposal, line)
