"""Which tables each kind of event becomes rows of, and what its declaration does not say of them.

Bodies are those of each event's newest version.

Trust: as in mapping.py.
I/O: none.
"""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from aggregates.rules import PRECEDENCE
from aggregates.signals import losses_reported, reported_for_rules, signals_of
from aggregates.violations import listed_violations
from projections.mapping import Body, Rows, parts_at, rows

__all__ = ["ROWS"]

_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
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
    return (rows("remedies", always={"outcome": outcome}),)


def _checkpoint_rows(origin: str) -> Rows:
    return rows("checkpoint_starts", check=_check_checkpoint, always={"origin": origin})


def _origin(what: str) -> tuple[Rows, ...]:
    return (rows("corpus_origins", always={"what": what}, signer="operator"),)


ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "run.started": (rows("run_starts", once=True),),
        "run.provoked": (rows("provocations", once=True),),
        "run.forked": (rows("forks", once=True),),
        "run.epoch_measured": (
            rows("epochs", parts=_epoch),
            rows("layer_metrics", parts=parts_at("measured", "layers"), layer="name"),
            rows("activation_metrics", parts=parts_at("measured", "activations"), layer="name"),
        ),
        "run.rules_evaluated": (rows("rule_evaluations", parts=_evaluations),),
        "run.decision_made": (
            rows(
                "decisions",
                parts=lambda body: [{"deferred_to": body["params"].get("deferred_to")}],
            ),
            rows("citations", parts=lambda body: [{"rule": rule} for rule in body["cites"]]),
        ),
        "run.remedy_applied": _remedy("applied"),
        "run.remedy_refused": _remedy("refused"),
        "run.restart_scheduled": _remedy("restart"),
        "run.weights_saved": (rows("weights"),),
        "run.snapshot_saved": (rows("snapshots"),),
        "run.ended": (rows("run_ends", hashed="entry", once=True),),
        "campaign.started": (rows("campaign_starts", once=True, max_attempts="attempts"),),
        "campaign.attempt_started": (rows("attempts"),),
        "campaign.attempt_abandoned": (rows("abandoned_attempts"),),
        "campaign.attempt_judged": (rows("judged_attempts"),),
        "campaign.feedback_given": (rows("feedback"),),
        "campaign.advised": (rows("campaign_advice"),),
        "campaign.ended": (rows("campaign_ends", once=True),),
        "comparison.started": (rows("comparison_starts", once=True),),
        "comparison.run_allotted": (rows("comparison_runs"),),
        "comparison.run_ended": (rows("comparison_results"),),
        "comparison.ended": (rows("comparison_ends", once=True),),
        "credit.started": (rows("credit_starts", once=True),),
        "credit.fork_ended": (rows("credit_forks"),),
        "credit.measured": (rows("credit_results", parts=_credited),),
        "credit.ended": (rows("credit_ends", once=True),),
        "audit.started": (rows("audit_starts", once=True, signer="judge"),),
        "audit.step_completed": (rows("audit_steps", signer="judge"),),
        "audit.scored": (
            rows("audit_scores", signer="judge"),
            rows("audit_violations", parts=_violations),
        ),
        "decision.reviewed": (rows("reviews", signer="operator", decision_idx="index"),),
        "transcript.started": (rows("transcripts", once=True, check=_check_transcript),),
        "transcript.call_made": (rows("calls", parts=_call),),
        "transcript.vote_counted": (rows("votes"),),
        "transcript.proposal_reviewed": (rows("proposal_reviews"),),
        "proposal.submitted": (rows("infra_submissions", once=True),),
        "proposal.reviewed": (rows("infra_reviews"),),
        "proposal.branched": (rows("infra_branches"),),
        "proposal.tested": (rows("infra_validation_results"),),
        "proposal.rest_tested": (rows("infra_rest_results"),),
        "proposal.task_scored": (rows("infra_task_scores"),),
        "proposal.evaluated": (rows("infra_evaluations"),),
        "proposal.concluded": (rows("infra_conclusions"),),
        "line.opened": (
            rows("line_starts", once=True, check=_check_line),
            _checkpoint_rows("opened"),
        ),
        "line.halted": (rows("line_halts", always={"what": "halted"}),),
        "line.resumed": (rows("line_halts", always={"what": "resumed"}),),
        "checkpoint.promoted": (
            _checkpoint_rows("promoted"),
            rows(
                "checkpoint_proposals",
                parts=lambda body: [{"proposal_id": each} for each in body["proposals"]],
            ),
        ),
        "checkpoint.adopted": (_checkpoint_rows("adopted"),),
        "checkpoint.rolled_back": (
            rows("checkpoint_rollbacks", signer="operator", to_checkpoint="to"),
        ),
        "valley.opened": (rows("valleys", always={"what": "opened"}),),
        "valley.closed": (rows("valleys", always={"what": "closed"}),),
        "task.admitted": (rows("admitted_tasks"),),
        "drift.measured": (rows("drift_measurements", task_set="set"),),
        "drift.alarmed": (rows("drift_alarms"),),
        "drift.answered": (rows("drift_answers"),),
        "checkpoint.evaluated": (
            rows("checkpoint_evaluations", parts=_weighed, right_answers="right"),
        ),
        "evolution.opened": (rows("evolutions", once=True),),
        "evolution.begun": (rows("evolution_orders", always={"what": "begin"}),),
        "evolution.steered": (rows("evolution_orders", what="order"),),
        "evolution.round_ended": (rows("evolution_rounds"),),
        "advice.opened": (rows("advice_lines", once=True),),
        "advice.proposed": (rows("advice_proposals"),),
        "advice.answered": (rows("advice_answers", parts=_arms),),
        "advice.round_ended": (rows("advice_rounds", parts=_measured_round),),
        "advice.steered": (rows("advice_orders", what="order"),),
        "advice.scenario_recorded": (rows("advice_scenarios"),),
        "advice.scenario_admitted": (rows("advice_scenarios", always={"admitted": True}),),
        "bisection.opened": (rows("bisections", once=True),),
        "bisection.probed": (rows("bisection_probes"),),
        "bisection.ended": (rows("bisection_ends", once=True),),
        "corpus.opened": (),
        "corpus.admitted": _origin("admitted"),
        "corpus.withdrawn": _origin("withdrawn"),
        "export.sealed": (rows("exports", once=True),),
    }
)
