"""Each event in a few words: one line on what an entry records."""

from collections.abc import Callable, Mapping
from typing import Any

from aggregates.improvement.advice import ARMS
from aggregates.signals import losses_reported
from ledger.bodies import decode_body
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from proctor.output.terminal import told_score
from projections.columns import declared as known


def tell_entry(entry: VerifiedEntry) -> str:
    """Return one line on what an entry records."""
    summary = _SUMMARIES.get(entry.name) or _plain(entry.name)
    try:
        body = decode_body(entry.body)
        return str(summary.format_map(body) if isinstance(summary, str) else summary(body))
    except Exception as error:  # a body may hold anything in any place
        return f"(its body is odd: {type(error).__name__}: {error})"


def _plain(name: str) -> str:
    """Return the template of an event that has no words of its own: all of its fields."""
    _, declared = known().get(name, (0, frozenset()))
    return ", ".join(f"{field} {{{field}}}" for field in sorted(declared))


def _scored(body: Mapping[str, Any]) -> str:
    right = "right" if body["success"] else f"wrong: {body['problem']}"
    metrics = [f"{name} {value:g}" for name, value in body["metrics"].items()]
    more = [*metrics, *(["remembered"] if body["cached"] else [])]
    return f"{body['arm']}, {body['task']}: {right} ({', '.join(more)})"


def _tested(body: Mapping[str, Any], noun: str) -> str:
    passed = f"{counted(body['cases'], noun)} passed"
    return passed if body["passed"] else f"not passed: {body['problem']}"


def _started(body: Mapping[str, Any]) -> str:
    config = body["config"]
    who = f"policy {body['policy']['name']}, rules {body['rules']['profile']}"
    if "level" in config:
        return f"{config['name']}, level {config['level']}, {who}"
    restart = f", restart of {body['parent_run']}" if body["parent_run"] else ""
    what = config["name"] if "task" in config else config["dataset"]
    return f"{what}, seed {config['seed']}, {who}{restart}"


def _epoch(body: Mapping[str, Any]) -> str:
    told = losses_reported(body["measured"])
    part = body["reported" if told else "measured"]
    found = f"epoch {body['epoch']}:" + (" reported" if told else "")
    for name in ("loss", "accuracy"):
        pair = [part[each].get(name) for each in ("train", "validation")]
        if pair != [None, None]:
            values = " / ".join("-" if value is None else f"{value:.4f}" for value in pair)
            found += f" {name} {values},"
    for name, value in part["validation"].get("metrics", {}).items():  # of a task
        if name != "accuracy":
            found += f" {name} {value:.4f},"
    return found.rstrip(",")


def _rules(body: Mapping[str, Any]) -> str:
    fired = [
        f"{rule} ({found['side']})" for rule, found in body["evaluations"].items() if found["fired"]
    ]
    return f"epoch {body['epoch']}: " + (", ".join(fired) + " fired" if fired else "all silent")


def _call(body: Mapping[str, Any]) -> str:
    action = body["action"]
    place = action if body["epoch"] is None else f"epoch {body['epoch']}, {action}"
    whom = f" of {body['model']}" if body["model"] else ""
    about = f" on {', '.join(body['rules'])}" if body["rules"] else ""
    tokens = (body["usage"] or {}).get("total_tokens")
    spent = f"{body['seconds']:.2f} s" + ("" if tokens is None else f", {tokens} tokens")
    problem = f": {body['problem']}" if body["problem"] else ""
    return (
        f"{body['number']}, {place}{about} by {body['agent']}{whom}: "
        f"{body['outcome']} ({spent}){problem}"
    )


# A template names fields of the body.
_SUMMARIES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "proposal.submitted": "{proposer}: {rationale}",
    "proposal.reviewed": lambda body: (
        f"{body['verdict']} by {'+'.join(body['key'].split('+')[:2])}: {body['note']}"
    ),
    "proposal.branched": "{branch} at {commit:.12}",
    "proposal.tested": lambda body: _tested(body, "case"),
    "proposal.rest_tested": lambda body: _tested(body, "more case"),
    "proposal.task_scored": _scored,
    "proposal.evaluated": lambda body: f"{body['verdict']}: {'; '.join(body['reasons'])}",
    "proposal.concluded": "{outcome}: {reason}",
    "line.opened": "branch {branch} at {commit:.12}",
    "line.halted": "{reason}",
    "line.resumed": "after proposal {proposal}",
    "checkpoint.promoted": lambda body: f"{body['commit']:.12} from {', '.join(body['proposals'])}",
    "checkpoint.adopted": "{commit:.12}, made by people",
    "checkpoint.rolled_back": "{checkpoint}: {reason}",
    "valley.opened": lambda body: counted(len(body["steps"]), "step"),
    "valley.closed": "{reason}",
    "task.admitted": "{task}",
    "drift.measured": "{set} set at {commit:.12}: {success:.0%} right",
    "drift.alarmed": "{kind}: {detail}",
    "drift.answered": "alarm {alarm}, {kind}: {note}",
    "checkpoint.evaluated": "{purpose} {number} of {commit:.12}: {right} of {tasks} right",
    "bisection.opened": lambda body: (
        f"{counted(len(body['suspects']), 'suspect')} after {body['good']}, error {body['error']:g}"
    ),
    "bisection.probed": "{checkpoint} is {verdict}",
    "bisection.ended": "{reason}",
    "corpus.opened": "nothing is admitted as of {at} ns",
    "corpus.admitted": "{kind} {name}: {note}",
    "corpus.withdrawn": "{kind} {name}: {note}",
    "export.sealed": lambda body: (
        f"{counted(body['examples'], 'example')} of {body['kind']} as of entry {body['as_of']}"
    ),
    "run.started": _started,
    "run.provoked": lambda body: (
        f"{body['name']}, seed {body['seed']}: {', '.join(body['expects'])} should fire"
    ),
    "run.forked": "run {parent} up to epoch {epoch}",
    "run.epoch_measured": _epoch,
    "run.rules_evaluated": _rules,
    "run.decision_made": lambda body: (
        f"{body['number']} by {body['source']} on {', '.join(body['cites'])}: "
        f"{body['direction']}. {body['justification']}"
    ),
    "run.remedy_applied": lambda body: (
        f"decision {body['decision']}: "
        + "; ".join(f"{c['what']} {c['from']} -> {c['to']}" for c in body["changes"])
    ),
    "run.remedy_refused": "decision {decision}: {reason}",
    "run.restart_scheduled": "decision {decision}: another run follows",
    "run.weights_saved": lambda body: (
        f"{body['kind']} of epoch {body['epoch']}, {counted(body['size'], 'byte')}, "
        f"{body['sha256']:.16}"
    ),
    "run.snapshot_saved": "after epoch {epoch}, {size} bytes in {seconds:.3f} s, {sha256:.16}",
    "run.ended": lambda body: body["reason"] + (f": {body['detail']}" if body["detail"] else ""),
    "campaign.started": lambda body: (
        f"{body['mode']}, at most {counted(body['attempts'], 'attempt')}"
    ),
    "campaign.attempt_started": "attempt {number} is run {run}",
    "campaign.attempt_abandoned": "attempt {number}, run {run}: {reason}",
    "campaign.attempt_judged": "attempt {number} by audit {audit}",
    "campaign.feedback_given": "to attempt {number}",
    "campaign.advised": "to attempt {number}: version {version}",
    "campaign.ended": "{reason}",
    "comparison.started": lambda body: (
        f"{counted(len(body['policies']), 'policy')}, "
        f"{counted(len(body['conditions']), 'condition')}, {counted(len(body['seeds']), 'seed')}"
    ),
    "comparison.run_allotted": "{policy}, {condition}, seed {seed}: run {run}",
    "comparison.run_ended": lambda body: (
        f"{body['policy']}, {body['condition']}, seed {body['seed']}: {body['problem'] or 'judged'}"
    ),
    "comparison.ended": "every cell is done",
    "credit.started": "of run {run}, {after} decides after it",
    "credit.fork_ended": "decision {decision}, {arm}, seed {seed}: run {run}",
    "credit.measured": lambda body: (
        f"decision {body['decision']} beside {body['arm']}: {body['better'] or 'undecided'}"
    ),
    "credit.ended": "everything is measured",
    "audit.started": "of run {run}",
    "audit.step_completed": "step {step} {name}: {status}. {summary}",
    "decision.reviewed": "entry {index}: {mark}. {note}",
    "transcript.started": "of run {run}",
    "transcript.call_made": _call,
    "transcript.vote_counted": lambda body: (
        f"epoch {body['epoch']}, {body['rule']}: {body['chosen'] or 'nothing'} "
        f"by {body['agreement']:.0%} of the ballots"
    ),
    "transcript.proposal_reviewed": (
        "epoch {epoch}: {verdict}, {proposed[direction]} -> {decision[direction]}. {note}"
    ),
    "evolution.opened": "of line {line}",
    "evolution.begun": lambda body: (
        f"{counted(body['rounds'], 'round')} by {body['proposer']['name']}"
    ),
    "evolution.round_ended": lambda body: (
        f"{body['round']}: {body['proposal'] or body['outcome']}"
        + (f" by {body['technique']}" if body["technique"] else "")
        + (f". {body['reason']}" if body["reason"] else "")
    ),
    "evolution.steered": "{order}",
    "advice.opened": "to {model}",
    "advice.proposed": "round {round}: version {version} by {technique}. {rationale}",
    "advice.answered": lambda body: (
        f"round {body['round']}, {body['scenario']}: "
        + ", ".join(f"{arm} {'right' if body[arm]['success'] else 'wrong'}" for arm in ARMS)
    ),
    "advice.round_ended": "round {round}: {outcome}. {reason}",
    "advice.steered": "{order}",
    "advice.scenario_recorded": "{name}, from {origin}",
    "advice.scenario_admitted": "{name}",
    "key.granted": "as {role}: {vkey}",
    "key.revoked": "as {role}: {vkey}: {reason}",
    "key.rotated": lambda body: f"to {body['note'].splitlines()[3]}",
    "clock.jumped": lambda body: f"by {body['by'] / 1e9:.1f} s",
    "audit.scored": lambda body: (
        f"accuracy {told_score(body['accuracy_score'])}, process {body['process_score']:.3f}"
        + (", hard fail" if body["hard_fail"] else "")
    ),
}
