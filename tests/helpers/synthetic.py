"""Runs, audits and campaigns without any training: quick ledgers for tests.

synthetic_run() goes through the Run aggregate and saves after each step, as the monitor does.
Epochs named in `exploding`, `dead` or `diverged` misbehave; by default the first rule that fired
is answered with a remedy of the playbook and all others are deferred to it; without `decide`, none
is answered. `layers` are measured besides the three that there always are.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

from aggregates.audit import REVISION, STEPS, Audit
from aggregates.campaign import PROCESS, Campaign
from aggregates.canonical import digest
from aggregates.decisions import Decision
from aggregates.forks import Fork, Order
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from aggregates.playbook import DEFER, DIRECTIONS
from aggregates.provocations import apply_to_config
from aggregates.rules import CALIBRATED, RulesConfig
from aggregates.run import Run
from aggregates.spec import BlockSpec, ModelSpec, apply_edit
from aggregates.transcript import Transcript

CONFINED = ("hidden files", "no network")
CODE = "c0" * 32  # of all synthetic runs and checkpoints
SPEC = ModelSpec(
    classes=10,
    channels=8,
    stem_stride=2,
    blocks=(BlockSpec(8, residual=True, norm="batch", activation="relu"),),
    norm="batch",
    activation="relu",
)
SETTINGS: Mapping[str, Any] = {
    "lr": 0.1,
    "batch_size": 64,
    "accumulation": 1,
    "clip_norm": None,
    "schedule": {"kind": "constant"},
}
PARAMS: Mapping[str, Mapping[str, Any]] = {
    "decrease_lr": {"lr": 0.01},
    "increase_lr": {"lr": 0.5},
    "increase_batch_size": {"batch_size": 128},
    "decrease_batch_size": {"batch_size": 32},
    "swap_activation": {"to": "gelu"},
}


class Log(Protocol):
    """Where aggregates are saved."""

    def save(self, *aggregates: Any) -> Any: ...


def measured(
    epoch: int, *, exploding: bool = False, dead: bool = False, diverged: bool = False
) -> dict[str, Any]:
    """Return the measured part of an epoch of a run that learns unless told otherwise."""
    loss = math.nan if diverged else 2.0 * 0.9**epoch
    norm = 100.0 if exploding else 1.0 + 0.01 * epoch
    if diverged:
        norm = math.inf
    accuracy = 1 - 0.9 ** (epoch + 1)
    ratio = {"update_ratio": 2e-3, "epoch_update_ratio": 2e-3}
    return {
        "train": {"loss": loss, "accuracy": accuracy, "examples": 256, "steps": 4},
        "validation": {"loss": loss * 1.1, "accuracy": accuracy * 0.9, "examples": 64},
        "gradients": {
            "finite": not diverged,
            "signal_to_noise": None if epoch == 0 else 1.5,
            "norm_noise_scale": 300.0,
            "noise_scale": None if epoch == 0 else 64 / 1.5,
            "total_norm_mean": norm * 1.5,
        },
        "layers": [
            {"name": "stem.weight", "rank": 4, "grad_norm": norm, **ratio},
            {"name": "blocks.0.conv1.weight", "rank": 4, "grad_norm": 0.5, **ratio},
            {
                "name": "head.bias",
                "rank": 1,
                "grad_norm": 0.1,
                "update_ratio": None,
                "epoch_update_ratio": None,
            },
        ],
        "activations": [
            {
                "name": "blocks.0.act1",
                "units": 8,
                "dead_units": 6 if dead else 0,
                "sparsity": 0.5,
                "p50": 0.0,
                "p99": math.nan if diverged else 2.5,
            }
        ],
        "settings": {"lr": 0.1, "batch_size": 64, "accumulation": 1, "clip_norm": None},
    }


def run_config(
    *, epochs: int = 5, edits: str = "live", profile: str = CALIBRATED.profile
) -> dict[str, Any]:
    """Return the configuration of a synthetic run, without a seed."""
    return {
        "dataset": "shapes",
        "epochs": epochs,
        "lr": 0.1,
        "batch_size": 64,
        "profile": profile,
        "edits": edits,
        "waived": [],
        "target_accuracy": 0.8,
    }


def synthetic_run(
    log: Log,
    *,
    epochs: int = 5,
    exploding: Collection[int] = (),
    dead: Collection[int] = (),
    diverged: Collection[int] = (),
    waived: Collection[str] = (),
    refuse: bool = False,
    end: str | None = "completed",
    edits: str = "live",
    seed: int = 0,
    layers: int = 0,
    decide: bool = True,
    rules: RulesConfig = CALIBRATED,
    run_id: UUID | None = None,
    parent_run: str | None = None,
    campaign: str | None = None,
    checkpoint: str | None = None,
    code: str = CODE,
    policy: str = "synthetic",
    provoke: str | None = None,
    fork_of: Run | None = None,
    environment: Mapping[str, Any] | None = None,
) -> Run:
    """Save a whole run to `log`; with `end` None it stays open."""
    config = {**run_config(epochs=epochs, edits=edits, profile=rules.profile), "seed": seed}
    config["waived"] = list(waived)
    if provoke is not None:
        config = apply_to_config(config, provoke, seed)
    run = Run.start(
        config=config,
        rules=rules.to_dict(),
        spec=SPEC.to_dict(),
        data={"dataset": "shapes", "train": 256, "validation": 64, "fingerprint": "00" * 32},
        environment={"python": "3.11", "threads": 1, "code_sha256": code, **(environment or {})},
        policy={"name": policy},
        run_id=run_id,
        parent_run=parent_run,
        campaign=campaign,
        checkpoint=checkpoint,
    )
    if provoke is not None:
        run.provoke()
    if fork_of is not None:
        orders = (Order(1, 7),)
        run.fork(**Fork(str(fork_of.id), 1, "d1" * 32, "5a" * 32, orders).to_dict())
    log.save(run)
    for epoch in range(epochs):
        seen = measured(
            epoch, exploding=epoch in exploding, dead=epoch in dead, diverged=epoch in diverged
        )
        more = {"rank": 4, "update_ratio": 2e-3, "epoch_update_ratio": 2e-3}
        seen["layers"] += [
            {"name": f"more.{place}.weight", "grad_norm": 1.0 + place, **more}
            for place in range(layers)
        ]
        run.measure_epoch(
            seen,
            {"seconds": 0.5, "note": math.nan if epoch in diverged else None},
        )
        run.evaluate_rules()
        log.save(run)
        save_weights(run, "best")
        if fork_of is not None:
            run.save_snapshot("5a" * 32, size=1_000, seconds=0.5)
        due = [rule for rule in run.fired() if decide and rule not in waived]
        for rule in due:
            answer(run, rule, defer_to=None if rule == due[0] else due[0], refuse=refuse)
        log.save(run)
        if run.restart_spec is not None:
            run.end("restart")
            log.save(run)
            return run
    save_weights(run, "last")
    if end is not None:
        run.end(end, deliverables={"model.py": "11" * 32})
    log.save(run)
    return run


def answer(run: Run, rule: str, *, defer_to: str | None, refuse: bool) -> None:
    """Decide on a rule that fired, and carry the decision out."""
    direction = DIRECTIONS[rule][str(run.evaluations[run.epoch][rule].side)][0]
    if defer_to is not None or (direction not in PARAMS and direction != "add_block"):
        params = {} if defer_to is None else {"deferred_to": defer_to}
        run.decide(Decision.of((rule,), DEFER, params, f"{rule} waits"), source="policy")
        return
    params = dict(PARAMS.get(direction, {}))
    decision = Decision.of((rule,), direction, params, f"{rule} wants it")
    edit = decision.edit
    run.decide(decision, source="policy")
    if refuse or (edit is not None and run.spec.activation == params.get("to")):
        run.refuse_remedy("the memory does not hold it")
    elif edit is not None and run.config["edits"] == "restart":
        run.schedule_restart(apply_edit(run.spec, edit).to_dict())
    else:
        spec = run.spec if edit is None else apply_edit(run.spec, edit)
        change = {"what": direction, "from": None, "to": params}
        run.apply_remedy([change], settings={**SETTINGS, **params}, spec=spec.to_dict())


def save_weights(run: Run, kind: str) -> None:
    """Record weights that exist nowhere."""
    name = f"{run.id} {run.epoch} {kind}".encode()
    run.save_weights(
        kind,
        sha256=hashlib.sha256(name).hexdigest(),
        size=1_000,
        spec=run.spec.to_dict(),
        probe={"mode": "eval", "layer_norms": {"stem.weight": 1.0}},
    )


def synthetic_audit(
    log: Log,
    run: Run,
    *,
    violations: Collection[Mapping[str, Any]] = (),
    hard_fail: bool = False,
    disabled: Collection[str] = (),
    retrained: int | None = None,
    retrains: float | None = None,
    score: float = 1.0,
    exercised: bool | None = None,
    judged: Mapping[str, Any] | None = None,
    tree_head: str = "note",
    obligations: int | None = None,
    accuracy: float = 0.75,
    save: Callable[..., Any] | None = None,
) -> Audit:
    """Save a whole audit of a run to `log`; `retrained` counts epochs of the ten that it read.

    A hard fail fails in step 1, or in step 7 where something was retrained.
    """
    config: dict[str, Any] = {"disabled": list(disabled), "revision": REVISION}
    if retrains is not None:
        config["retrains"] = retrains
    failing = 1 if retrained is None else 7
    evidence: dict[int, dict[str, Any]] = {
        5: {"epochs": 10},
        7: {"executed": {"done": bool(retrained), "epochs": retrained}},
    }
    told: dict[str, Any] = {"run": str(run.id), "tree_head": tree_head, "environment": {}}
    audit = Audit.start(**told, config=config, judged=judged)
    for number, name in enumerate(STEPS, start=1):
        status = "passed" if not hard_fail or number < failing else "not_run"
        status = "failed" if hard_fail and number == failing else status
        said = {"value": 1.0, **(evidence.get(number, {}) if status != "not_run" else {})}
        if number == 8 and violations:
            status, said = "violations", {"violations": {"total": len(violations)}}
        audit.complete_step(name, status, summary=f"{name}: {status}", evidence=said)
    audit.score(
        accuracy_score=0.0 if hard_fail else 0.9,
        process_score=0.0 if hard_fail else score,
        process_axis_exercised=bool(run.decisions) if exercised is None else exercised,
        test_accuracy=None if hard_fail else 0.72,
        validation_accuracy=None if hard_fail else accuracy,
        obligations=len(run.decisions) if obligations is None else obligations,
        decisions=len(run.decisions),
        violations=[dict(violation) for violation in violations],
    )
    (save or log.save)(audit)
    return audit


def synthetic_campaign(
    log: Log,
    runs: Collection[Run],
    *,
    abandoned: Collection[Run] = (),
    audits: Collection[Audit] = (),
    feedback: Mapping[str, Any] | None = None,
    begun: Campaign | None = None,
) -> Campaign:
    """Save a whole campaign over runs to `log`, ranked in the order given.

    It adopts runs that are there already, which fit no campaign, unless begun_campaign() was first.
    """
    campaign = begun or _with_attempts(
        [run.id for run in abandoned], [run.id for run in runs], feedback
    )
    for audit in audits:
        campaign.judge_attempt(audit.run, str(audit.id))
    campaign.end("completed", ranking=[str(run.id) for run in runs])
    log.save(campaign)
    return campaign


def begun_campaign(
    log: Log,
    runs: int,
    *,
    abandoned: int = 0,
    epochs: int = 5,
    attempts: int | None = None,
    ranked_by: str = PROCESS,
) -> tuple[Campaign, list[UUID]]:
    """Save the beginning of a campaign; its runs are to be made next, with these ids.

    It may have more `attempts` than are begun.
    """
    ids = [uuid4() for _ in range(abandoned + runs)]
    campaign = _with_attempts(
        ids[:abandoned],
        ids[abandoned:],
        None,
        epochs=epochs,
        attempts=attempts,
        ranked_by=ranked_by,
    )
    log.save(campaign)
    return campaign, ids


def _with_attempts(
    abandoned: Sequence[UUID],
    runs: Sequence[UUID],
    feedback: Mapping[str, Any] | None,
    *,
    epochs: int = 5,
    attempts: int | None = None,
    ranked_by: str = PROCESS,
) -> Campaign:
    campaign = Campaign.start(
        config={**run_config(epochs=epochs), "seed": 0},
        attempts=attempts or len(runs),
        policy={"name": "synthetic"},
        feedback=True,
        ranked_by=ranked_by,
    )
    for run in abandoned:
        campaign.start_attempt(str(run))
        campaign.abandon_attempt(str(run), "its process died")
    for run in runs:
        if campaign.runs:
            campaign.give_feedback(feedback or {"scores": [0.5]})
            campaign.advise("", version=0)
        campaign.start_attempt(str(run))
    return campaign


def synthetic_call(outcome: str = "usable", **changes: Any) -> dict[str, Any]:
    """Return a call to a model for a decision on R6 in epoch 2."""
    answered: dict[str, Any] = {
        "agent": "decider",
        "action": "decide",
        "epoch": 2,
        "rules": ("R6",),
        "model": "small",
        "endpoint": "http://127.0.0.1:8000/v1/chat/completions",
        "rung": "json_schema",
        "parameters": {"temperature": 0.2, "seed": None, "max_tokens": 1024},
        "request": "0a" * 32,
        "request_bytes": 1_000,
        "response": "0b" * 32,
        "response_bytes": 200,
        "status": 200,
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 300, "completion_tokens": 40, "total_tokens": 340},
        "seconds": 0.5,
        "cost": 0.001,
    }
    return {"outcome": outcome, **answered, **changes}


def synthetic_transcript(log: Log, run: Run, calls: Iterable[dict[str, Any]] = ()) -> Transcript:
    """Save the transcript of a run to `log`."""
    transcript = Transcript.start(str(run.id), policy={"model": "small", "rung": "json_schema"})
    for call in calls:
        transcript.add(**call)
    log.save(transcript)
    return transcript


def synthetic_tests(
    proposal: Proposal,
    line: Line,
    *,
    commit: str,
    tree: str,
    path: str = "component.py",
    tier: int = 2,
    left_out: Sequence[str] = (),
    choice: str | None = None,
) -> None:
    """Record that a proposal has a branch, and that twelve tests pass there."""
    proposal.record_branch(
        f"infra/{proposal.id}",
        commit=commit,
        tree=tree,
        changes=[{"path": path, "kind": "changed"}],
        tier=tier,
        configuration_only=False,
        manifest=line.manifest,
        reference_set=line.reference_set,
        against=line.head.commit,
    )
    proposal.record_tests(
        passed=True,
        problem=None,
        cases=12,
        missing=[],
        added=[],
        seconds=0.5,
        expected=None,
        output=None,
        isolation=CONFINED,
        leftovers=0,
        left_out=left_out,
        choice=choice,
    )


def synthetic_proposal(
    log: Log,
    line: Line,
    *,
    path: str = "component.py",
    outcome: str | None = "promoted",
    rationale: str = "fewer rows at the same recall",
    evidence: Sequence[Mapping[str, Any]] = (),
) -> Proposal:
    """Record a proposal through its stages, up to an end that is promoted, rejected or none."""
    base = line.head
    commit = digest({"base": base.commit, "path": path, "why": rationale})[:40]
    tree = digest({"tree": commit})[:40]
    proposal = Proposal.submit(
        line=str(line.id),
        targets={path: 2},
        diff=digest({"diff": path}),
        diff_bytes=120,
        base=base.commit,
        base_tree=base.tree,
        rationale=rationale,
        trigger="operator_request",
        proposer="somebody",
        evidence=evidence,
    )
    if outcome is None:
        log.save(proposal)
        return proposal
    better = outcome == "promoted"
    left_out = ["tests/test_apart.py"] if better else []
    choice = "2 of 3 test files reach it" if better else None
    synthetic_tests(
        proposal, line, commit=commit, tree=tree, path=path, left_out=left_out, choice=choice
    )
    for arm, success in (("base", not better), ("candidate", better)):
        proposal.record_result(
            arm,
            "first",
            repeat=0,
            seed=7,
            success=success,
            validation_failures=0,
            metrics={"recall": float(success), "tokens": 40.0, "budget": 0.25},
            problem=None,
            isolation=CONFINED,
        )
    proposal.evaluate(
        "better" if better else "worse",
        level=0.01,
        regressions=[] if better else ["first"],
        improvements=["first"] if better else [],
        reasons=["it says so"],
        comparisons=[{"task": "first"}],
    )
    if better:
        proposal.record_rest(
            passed=True,
            problem=None,
            cases=3,
            missing=[],
            seconds=0.5,
            output="ab" * 32,
            isolation=CONFINED,
            leftovers=0,
            flaky=[],
            outcomes="ab" * 32,
        )
        checkpoint = line.promote(
            commit=commit,
            tree=tree,
            proposals=[str(proposal.id)],
            manifest=line.manifest,
            reference_set=line.reference_set,
            code=CODE,
        )
        proposal.conclude("promoted", stage="conclude", reason="better", checkpoint=checkpoint)
        log.save(proposal, line)
    else:
        proposal.conclude(outcome, stage="evaluate", reason="worse")
        log.save(proposal)
    return proposal


def synthetic_line(log: Log, *, branch: str = "main") -> Line:
    """Open a line and save it."""
    names = {name: digest({"line": branch, "of": name}) for name in ("root", "commit", "tree")}
    hashes = {name: digest({name: branch}) for name in ("manifest", "reference_set")}
    commits = {name: found[:40] for name, found in names.items()}
    line = Line.open(branch=branch, code=CODE, **commits, **hashes)
    log.save(line)
    return line
