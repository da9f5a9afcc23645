"""A run told from its events: in order, its state after any of them, or done again.

Trust: what is told comes from a ledger that has just been verified.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.run import Run
from judge.auditing.events import decode_events
from ledger.errors import LedgerError
from ledger.mapper import decode_body
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.output.tellers import INFRA_TELLERS
from proctor.remembering import open_remembered


@dataclass(frozen=True)
class Recording:
    """The verified entries of a run or a campaign, and the events that they hold."""

    run_id: UUID
    size: int  # of the ledger that was verified
    entries: list[VerifiedEntry]
    events: list[Any]

    def state(self, after: int | None = None) -> Any:
        """Return the aggregate as it stood after its first `after` events, by default after all."""
        count = len(self.events) if after is None else after
        if not 1 <= count <= len(self.events):
            raise ProctorError(
                f"{self.run_id} has events 1 to {len(self.events)}; there is no {count}"
            )
        state = None
        for event in self.events[:count]:
            state = event.mutate(state)
        return state


def verified_runs(ledger: VerifiedLedger) -> list[UUID]:
    """Return the runs of a verified ledger in the order in which they started."""
    return [entry.stream_id for entry in ledger.entries() if entry.name == "run.started"]


def verified_campaigns(ledger: VerifiedLedger) -> list[UUID]:
    """Return the campaigns of a verified ledger in the order in which they started."""
    return [entry.stream_id for entry in ledger.entries() if entry.name == "campaign.started"]


def read_recording(home: Home, name: str) -> Recording:
    """Verify the ledger and read one run, or one campaign, from it."""
    home.require_ledger()
    home.close_crashed()
    with open_remembered(home.ledger) as ledger:
        run_id = find_run([*verified_campaigns(ledger), *verified_runs(ledger)], name)
        entries = [entry for entry in ledger.entries() if entry.stream_id == run_id]
        size = ledger.size
    return Recording(run_id, size, entries, decode_events(entries))


def describe_state(run: Run | Campaign) -> dict[str, Any]:
    """Return the state of a run or a campaign in plain values."""
    if isinstance(run, Campaign):
        return {
            "campaign": str(run.id),
            "events": run.version,
            "mode": run.mode,
            "runs": run.runs,
            "abandoned": run.abandoned,
            "ranking": run.ranking,
        }
    latest = run.history[-1] if run.history else None
    return {
        "run": str(run.id),
        "events": run.version,
        "epoch": run.epoch,
        "ended": run.end_reason,
        "settings": run.settings or {key: run.config.get(key) for key in ("lr", "batch_size")},
        "spec": run.spec.to_dict(),
        "signals": asdict(latest) if latest else None,
        "fired": list(run.fired()),
        "decisions": len(run.decisions),
        "remedies": [asdict(remedy) for remedy in run.remedies],
        "weights": {kind: {"epoch": at, "sha256": h} for kind, (at, h) in run.weights.items()},
        "parent_run": run.parent_run,
    }


def tell_entry(entry: VerifiedEntry) -> str:
    """Return one line on what an entry records."""
    teller = _TELLERS.get(entry.name)
    try:
        return teller(decode_body(entry.body)) if teller else ""
    except (AttributeError, IndexError, KeyError, LedgerError, TypeError, ValueError) as error:
        return f"(its body is odd: {type(error).__name__}: {error})"


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


_TELLERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **INFRA_TELLERS,
    "run.started": lambda body: (
        f"{body['config']['dataset']}, seed {body['config']['seed']}, "
        f"policy {body['policy']['name']}, rules {body['rules']['profile']}"
        + (f", restart of {body['parent_run']}" if body["parent_run"] else "")
    ),
    "run.provoked": lambda body: (
        f"{body['name']}, seed {body['seed']}: {', '.join(body['expects'])} should fire"
    ),
    "run.epoch_measured": lambda body: (
        f"epoch {body['epoch']}: loss {body['measured']['train']['loss']:.4f} / "
        f"{body['measured']['validation']['loss']:.4f}, accuracy "
        f"{body['measured']['train']['accuracy']:.4f} / "
        f"{body['measured']['validation']['accuracy']:.4f}"
    ),
    "run.rules_evaluated": _rules,
    "run.decision_made": lambda body: (
        f"{body['number']} by {body['source']} on {', '.join(body['cites'])}: "
        f"{body['direction']}. {body['justification']}"
    ),
    "run.remedy_applied": lambda body: (
        f"decision {body['decision']}: "
        + "; ".join(f"{c['what']} {c['from']} -> {c['to']}" for c in body["changes"])
    ),
    "run.remedy_refused": lambda body: f"decision {body['decision']}: {body['reason']}",
    "run.restart_scheduled": lambda body: f"decision {body['decision']}: another run follows",
    "run.weights_saved": lambda body: (
        f"{body['kind']} of epoch {body['epoch']}, {body['size']} bytes, {body['sha256'][:16]}"
    ),
    "run.ended": lambda body: body["reason"] + (f": {body['detail']}" if body["detail"] else ""),
    "campaign.started": lambda body: f"{body['mode']}, at most {body['attempts']} attempts",
    "campaign.attempt_started": lambda body: f"attempt {body['number']} is run {body['run']}",
    "campaign.attempt_abandoned": lambda body: (
        f"attempt {body['number']}, run {body['run']}: {body['reason']}"
    ),
    "campaign.attempt_judged": lambda body: f"attempt {body['number']} by audit {body['audit']}",
    "campaign.feedback_given": lambda body: f"to attempt {body['number']}",
    "campaign.ended": lambda body: body["reason"],
    "audit.started": lambda body: f"of run {body['run']}",
    "audit.step_completed": lambda body: (
        f"step {body['step']} {body['name']}: {body['status']}. {body['summary']}"
    ),
    "decision.reviewed": lambda body: f"entry {body['index']}: {body['mark']}. {body['note']}",
    "transcript.started": lambda body: f"of run {body['run']}",
    "transcript.call_made": _call,
    "transcript.vote_counted": lambda body: (
        f"epoch {body['epoch']}, {body['rule']}: {body['chosen'] or 'nothing'} "
        f"by {body['agreement']:.0%} of the ballots"
    ),
    "transcript.proposal_reviewed": lambda body: (
        f"epoch {body['epoch']}: {body['verdict']}, {body['proposed']['direction']} -> "
        f"{body['decision']['direction']}. {body['note']}"
    ),
    "evolution.opened": lambda body: f"of line {body['line']}",
    "evolution.begun": lambda body: f"{body['rounds']} rounds by {body['proposer']['name']}",
    "evolution.round_ended": lambda body: (
        f"{body['round']}: {body['proposal'] or body['outcome']}"
        + (f" by {body['technique']}" if body["technique"] else "")
        + (f". {body['reason']}" if body["reason"] else "")
    ),
    "evolution.steered": lambda body: body["order"],
    "key.granted": lambda body: f"as {body['role']}: {body['vkey']}",
    "key.revoked": lambda body: f"as {body['role']}: {body['vkey']}: {body['reason']}",
    "key.rotated": lambda body: f"to {body['note'].splitlines()[3]}",
    "clock.jumped": lambda body: f"by {body['by'] / 1e9:.1f} s",
    "audit.scored": lambda body: (
        f"accuracy {body['accuracy_score']:.3f}, process {body['process_score']:.3f}"
        + (", hard fail" if body["hard_fail"] else "")
    ),
}
