"""A run told from its events: in order, its state after any of them, or done again.

Trust: what is told comes from a ledger that has just been verified.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.comparison import Comparison
from aggregates.improvement.advice import ARMS
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.signals import losses_reported
from judge.auditing.events import decode_events
from ledger.bodies import decode_body
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.output.shape import Answer
from proctor.output.summaries import INFRA_SUMMARIES
from proctor.output.terminal import told_score
from proctor.remembering import open_remembered, tell_aside


@dataclass(frozen=True)
class Recording:
    """The verified entries of a run or a campaign."""

    run_id: UUID
    entries: list[VerifiedEntry]

    def state(self, after: int | None = None) -> Any:
        """Return the aggregate as it stood after its first `after` events, by default after all.

        Events that cannot be read, or do not fit what came before, change nothing.
        """
        count = len(self.entries) if after is None else after
        if not 1 <= count <= len(self.entries):
            raise ProctorError(
                f"{self.run_id} has events 1 to {len(self.entries)}; there is no {count}"
            )
        state, aside = _folded_as_far_as_readable(self.entries[:count])
        tell_aside(aside)
        if state is None:
            raise ProctorError(f"{self.run_id} has no state: its first event cannot be read")
        return state


def _folded_as_far_as_readable(entries: Sequence[VerifiedEntry]) -> tuple[Any, list[int]]:
    """Return the aggregate of some entries, and the indexes of those that it had to leave out."""
    aside: list[int] = []
    while True:
        state: Any = None
        for entry in entries:
            if entry.index in aside:
                if state is not None:
                    state._version = entry.stream_version
                continue
            try:
                state = folded(decode_events([entry]), state)
            except Exception:
                aside.append(entry.index)  # it may be half applied: begin again without it
                break
        else:
            return state, aside


def folded(events: Sequence[Any], state: Any = None) -> Any:
    """Apply events to an aggregate, or to none, and return it."""
    return reduce(lambda state, event: event.mutate(state), events, state)


def audited_run(entry: VerifiedEntry, name: str = "audit.started") -> str | None:
    """Return the run that an entry begins an audit of; None for any other or unreadable entry.

    With `credit.started`, the run whose decisions are measured.
    """
    if entry.name != name:
        return None
    body = REGISTRY.readable(entry.name, entry.body)
    return None if body is None else str(body["run"])


def verified_runs(ledger: VerifiedLedger) -> list[UUID]:
    """Return the runs of a verified ledger in the order in which they started, forks first."""
    return _ids_by_start(ledger, "run.started")


def _ids_by_start(ledger: VerifiedLedger, *names: str) -> list[UUID]:
    """Return the streams whose first entries can be read; the last is what `latest` means.

    Campaigns and comparisons come first, then forks, which `fork --decision` makes by the dozen,
    then the other runs.
    """
    starts, forks = [], set()
    for entry in ledger.select(names=[*names, "run.forked"]):
        if entry.name == "run.forked":
            forks.add(entry.stream_id)
        elif entry.stream_version == 1 and REGISTRY.readable(entry.name, entry.body) is not None:
            starts.append(entry)
    starts.sort(key=lambda each: (each.name == "run.started", each.stream_id not in forks))
    return [entry.stream_id for entry in starts]


def find_recorded(ledger: VerifiedLedger, name: str) -> UUID:
    """Return the run, campaign or comparison of a ledger that `name` means; raises ProctorError.

    The latest is the run that started last and is no fork.
    """
    names = ("campaign.started", "comparison.started", "run.started")
    return find_run(_ids_by_start(ledger, *names), name)


def read_streams(
    ledger: VerifiedLedger, wanted: Collection[UUID]
) -> dict[UUID, list[VerifiedEntry]]:
    """Return the entries of those of the wanted streams that a verified ledger has."""
    found: dict[UUID, list[VerifiedEntry]] = {}
    for entry in ledger.select(streams=wanted):
        found.setdefault(entry.stream_id, []).append(entry)
    return found


def read_recording(home: Home, name: str) -> Recording:
    """Verify the ledger and read one run, or one campaign, from it."""
    with open_remembered(home) as ledger:
        run_id = find_recorded(ledger, name)
        return Recording(run_id, read_streams(ledger, {run_id})[run_id])


class RunState(Answer):
    """The state of a run after an event."""

    run: UUID
    events: int
    epoch: int
    ended: str | None
    settings: Mapping[str, Any]
    spec: Mapping[str, Any]
    signals: dict[str, Any] | None
    fired: list[str]
    decisions: int
    remedies: list[dict[str, Any]]
    weights: dict[str, dict[str, Any]]  # kind -> epoch and SHA-256
    parent_run: str | None


class CampaignState(Answer):
    """The state of a campaign after an event."""

    campaign: UUID
    events: int
    mode: str
    runs: list[str]
    abandoned: list[str]
    ranking: list[str] | None


class ComparisonState(Answer):
    """The state of a comparison after an event."""

    comparison: UUID
    events: int
    runs: dict[str, str]  # by cell
    done: dict[str, str | None]  # problem, by cell
    ended: bool


def describe_state(
    run: Run | Campaign | Comparison,
) -> RunState | CampaignState | ComparisonState:
    """Return the state of a run, a campaign or a comparison."""
    if isinstance(run, Comparison):
        return ComparisonState.of(
            run,
            comparison=run.id,
            events=run.version,
            runs={str(cell): found for cell, found in run.runs.items()},
            done={str(cell): problem for cell, problem in run.done.items()},
        )
    if isinstance(run, Campaign):
        return CampaignState.of(run, campaign=run.id, events=run.version)
    latest = run.history[-1] if run.history else None
    return RunState.of(
        run,
        run=run.id,
        events=run.version,
        ended=run.end_reason,
        settings=run.settings or {key: run.config.get(key) for key in ("lr", "batch_size")},
        spec=run.spec.to_dict(),
        signals=asdict(latest) if latest else None,
        fired=list(run.fired()),
        decisions=len(run.decisions),
        remedies=[asdict(remedy) for remedy in run.remedies],
        weights={k: {"epoch": w.epoch, "sha256": w.sha256} for k, w in run.weights.items()},
    )


def tell_entry(entry: VerifiedEntry) -> str:
    """Return one line on what an entry records."""
    summary = _SUMMARIES.get(entry.name, "")
    try:
        body = decode_body(entry.body)
        return str(summary.format_map(body) if isinstance(summary, str) else summary(body))
    except Exception as error:  # a body may hold anything in any place
        return f"(its body is odd: {type(error).__name__}: {error})"


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
    **INFRA_SUMMARIES,
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
