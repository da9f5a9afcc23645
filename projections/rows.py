"""Which tables each kind of event becomes rows of, and what its declaration does not say of them.

Bodies are those of each event's newest version.

Trust: as in mapping.py.
I/O: none.
"""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from aggregates.rulebook import PRECEDENCE
from aggregates.signals import losses_reported, reported_for_rules, signals_of
from aggregates.violations import listed_violations
from projections.mapping import OF_EVENTS, Body, Rows

_TOKENS = (
    *("prompt_tokens", "completion_tokens", "total_tokens"),
    *("cached_tokens", "reasoning_tokens"),
)
_PRECEDENCE = {rule: place for place, rule in enumerate(PRECEDENCE, start=1)}
_VIOLATION = ("rule", "epoch", "decision", "emitter", "detail", "times")
_COMPARED = ("verdict", "level", "pairs", "pass_rates", "scores", "regressions", "improvements")
_WEIGHED = ("files", "lines", "functions", "complexity")


def _epoch(body: Body) -> list[Body]:
    measured = body["measured"]
    told = losses_reported(measured)
    reported = reported_for_rules(measured, body["reported"])
    signals = vars(signals_of(body["epoch"], measured, reported))
    accuracy = (body["reported"] if told else measured)["validation"].get("accuracy")
    return [
        {
            **measured["settings"],
            **signals,
            "noise_scale": measured["gradients"].get("noise_scale"),
            "val_accuracy": accuracy,
            "losses_reported": told,
        }
    ]


def _metrics(body: Body) -> list[Body]:
    """Return the metrics of a task, or those that a watched loop gave; others are no metrics."""
    told = [body["measured"].get("validation"), body["reported"]]
    found = next((each["metrics"] for each in told if each and "metrics" in each), None)
    named = found.items() if isinstance(found, dict) else ()
    return [
        {"metric": str(name), "value": value}
        for name, value in named
        if type(value) in (float, int)
    ]


def _evaluations(body: Body) -> list[Body]:
    return [
        {**evaluation, "rule": rule, "precedence": _PRECEDENCE.get(rule)}
        for rule, evaluation in body["evaluations"].items()
    ]


def _violations(body: Body) -> list[Body]:
    return [
        {"kind": violation["kind"], **{column: violation.get(column) for column in _VIOLATION}}
        for violation in listed_violations(body)
    ]


def _credited(body: Body) -> list[Body]:
    ends = ("difference", "low", "high")
    return [{f"{w}_{end}": body[w][end] for w in ("loss", "accuracy") for end in ends}]


# Readers of a large ledger import this file, and few of their events need an aggregate.


def _check_transcript(body: Body, transcript: str) -> None:
    from aggregates.transcript import Transcript  # noqa: PLC0415

    if str(Transcript.id_of(UUID(body["run"]))) != transcript:
        raise ValueError(f"transcript {transcript} does not belong to run {body['run']}")


def _call(body: Body) -> list[Body]:
    return [{column: (body["usage"] or {}).get(column) for column in _TOKENS}]


def _check_line(body: Body, line: str) -> None:
    from aggregates.improvement.line import Line  # noqa: PLC0415

    if str(Line.id_of(body["root"], body["branch"])) != line:
        raise ValueError(f"line {line} is not the line of branch {body['branch']!r}")


def _check_checkpoint(body: Body, line: str) -> None:
    from aggregates.improvement.line import Line  # noqa: PLC0415

    # Ids are derived, so that no other stream can record a checkpoint of this line's.
    if body["checkpoint"] != Line.checkpoint_id(UUID(line), body["commit"]):
        raise ValueError(
            f"checkpoint {body['checkpoint']!r} does not match commit {body['commit']}"
        )


def _weighed(body: Body) -> list[Body]:
    code = body["code"]
    return [dict.fromkeys(_WEIGHED) if code is None else code]


def _arms(body: Body) -> list[Body]:
    from aggregates.improvement.advice import ARMS  # noqa: PLC0415

    return [{**body[arm], "arm": arm} for arm in ARMS]


def _measured_round(body: Body) -> list[Body]:
    measured = body["measured"]
    told = dict.fromkeys(_COMPARED) if measured is None else measured
    rates, scores = told["pass_rates"] or (None, None), told["scores"] or (None, None)
    ends = {"pass_rate": rates, "score": scores}
    return [
        {
            **told,
            **{f"{name}_before": before for name, (before, _) in ends.items()},
            **{f"{name}_after": after for name, (_, after) in ends.items()},
        }
    ]


def _remedy(outcome: str) -> tuple[Rows, ...]:
    return (Rows("remedies", always={"outcome": outcome}),)


def _checkpoint_rows(origin: str) -> Rows:
    return Rows("checkpoint_starts", check=_check_checkpoint, always={"origin": origin})


def _origin(what: str) -> tuple[Rows, ...]:
    return (Rows("corpus_origins", always={"what": what}, signer="operator"),)


STATED: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "run.started": (
            Rows("run_starts", once=True, campaign="campaign", checkpoint="checkpoint"),
        ),
        "run.provoked": (Rows("provocations", once=True),),
        "run.forked": (Rows("forks", once=True),),
        "run.epoch_measured": (
            Rows("epochs", parts=_epoch),
            Rows("epoch_metrics", parts=_metrics),
            Rows("layer_metrics", parts=lambda body: body["measured"]["layers"], layer="name"),
            Rows(
                "activation_metrics",
                parts=lambda body: body["measured"]["activations"],
                layer="name",
            ),
        ),
        "run.rules_evaluated": (Rows("rule_evaluations", parts=_evaluations),),
        "run.decision_made": (
            Rows(
                "decisions",
                parts=lambda body: [{"deferred_to": body["params"].get("deferred_to")}],
            ),
            Rows("citations", parts=lambda body: [{"rule": rule} for rule in body["cites"]]),
        ),
        "run.remedy_applied": _remedy("applied"),
        "run.remedy_refused": _remedy("refused"),
        "run.restart_scheduled": _remedy("restart"),
        "run.weights_saved": (Rows("weights"),),
        "run.snapshot_saved": (Rows("snapshots"),),
        "run.ended": (Rows("run_ends", hashed="entry", once=True),),
        "campaign.started": (Rows("campaign_starts", once=True, max_attempts="attempts"),),
        "campaign.attempt_started": (Rows("attempts"),),
        "campaign.attempt_abandoned": (Rows("abandoned_attempts"),),
        "campaign.attempt_judged": (Rows("judged_attempts"),),
        "campaign.feedback_given": (Rows("feedback"),),
        "campaign.advised": (Rows("campaign_advice"),),
        "campaign.ended": (Rows("campaign_ends", once=True),),
        "comparison.started": (Rows("comparison_starts", once=True),),
        "comparison.run_allotted": (Rows("comparison_runs"),),
        "comparison.run_ended": (Rows("comparison_results"),),
        "comparison.ended": (Rows("comparison_ends", once=True),),
        "credit.started": (Rows("credit_starts", once=True),),
        "credit.fork_ended": (Rows("credit_forks"),),
        "credit.measured": (Rows("credit_results", parts=_credited),),
        "credit.ended": (Rows("credit_ends", once=True),),
        "audit.started": (Rows("audit_starts", once=True, signer="judge"),),
        "audit.step_completed": (Rows("audit_steps", signer="judge"),),
        "audit.scored": (
            Rows("audit_scores", signer="judge"),
            Rows("audit_violations", parts=_violations),
        ),
        "decision.reviewed": (Rows("reviews", signer="operator", decision_idx="index"),),
        "transcript.started": (Rows("transcripts", once=True, check=_check_transcript),),
        "transcript.call_made": (Rows("calls", parts=_call),),
        "transcript.vote_counted": (Rows("votes"),),
        "transcript.proposal_reviewed": (Rows("proposal_reviews"),),
        "proposal.submitted": (Rows("infra_submissions", once=True),),
        "proposal.reviewed": (Rows("infra_reviews"),),
        "proposal.branched": (Rows("infra_branches"),),
        "proposal.tested": (Rows("infra_validation_results"),),
        "proposal.rest_tested": (Rows("infra_rest_results"),),
        "proposal.task_scored": (Rows("infra_task_scores"),),
        "proposal.evaluated": (Rows("infra_evaluations"),),
        "proposal.concluded": (
            Rows("infra_conclusions", checkpoint="checkpoint", valley="valley"),
        ),
        "line.opened": (
            Rows("line_starts", once=True, check=_check_line),
            _checkpoint_rows("opened"),
        ),
        "line.halted": (Rows("line_halts", always={"what": "halted"}),),
        "line.resumed": (Rows("line_halts", always={"what": "resumed"}),),
        "checkpoint.promoted": (
            _checkpoint_rows("promoted"),
            Rows(
                "checkpoint_proposals",
                parts=lambda body: [{"proposal_id": each} for each in body["proposals"]],
            ),
        ),
        "checkpoint.adopted": (_checkpoint_rows("adopted"),),
        "checkpoint.rolled_back": (
            Rows("checkpoint_rollbacks", signer="operator", to_checkpoint="to"),
        ),
        "valley.opened": (Rows("valleys", always={"what": "opened"}),),
        "valley.closed": (Rows("valleys", always={"what": "closed"}),),
        "task.admitted": (Rows("admitted_tasks"),),
        "drift.measured": (Rows("drift_measurements", task_set="set"),),
        "drift.alarmed": (Rows("drift_alarms"),),
        "drift.answered": (Rows("drift_answers"),),
        "checkpoint.evaluated": (
            Rows("checkpoint_evaluations", parts=_weighed, right_answers="right"),
        ),
        "evolution.opened": (Rows("evolutions", once=True),),
        "evolution.begun": (Rows("evolution_orders", always={"what": "begin"}),),
        "evolution.steered": (Rows("evolution_orders", what="order"),),
        "evolution.round_ended": (Rows("evolution_rounds"),),
        "advice.opened": (Rows("advice_lines", once=True),),
        "advice.proposed": (Rows("advice_proposals"),),
        "advice.answered": (Rows("advice_answers", parts=_arms),),
        "advice.round_ended": (Rows("advice_rounds", parts=_measured_round),),
        "advice.steered": (Rows("advice_orders", what="order"),),
        "advice.scenario_recorded": (Rows("advice_scenarios"),),
        "advice.scenario_admitted": (Rows("advice_scenarios", always={"admitted": True}),),
        "bisection.opened": (Rows("bisections", once=True),),
        "bisection.probed": (Rows("bisection_probes"),),
        "bisection.ended": (Rows("bisection_ends", once=True),),
        "corpus.opened": (),
        "corpus.admitted": _origin("admitted"),
        "corpus.withdrawn": _origin("withdrawn"),
        "export.sealed": (Rows("exports", once=True),),
    }
)
"""What is stated of events; `run.annotated` becomes a row of the table run_annotated, and so on."""
_STATED = {told.table for each in STATED.values() for told in each}
_DERIVED = {
    table.replace("_", ".", 1): (Rows(table),) for table in OF_EVENTS if table not in _STATED
}
ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType({**STATED, **_DERIVED})
