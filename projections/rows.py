"""Maps each kind of event to table rows: one event in, its rows out.

Bodies are those of each event's newest version. Values keep the types of the body, and whoever
inserts them checks these against the columns.

Trust: as in mapping.py.
I/O: none.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aggregates.rules import PRECEDENCE
from aggregates.signals import EpochSignals, losses_reported, reported_for_rules, signals_of
from aggregates.violations import listed_violations
from ledger.entries import Author
from projections.mapping import Body, Derived, Row, Rows, rows

__all__ = ["EPOCH_FLOATS", "ROWS", "rows_of"]

_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
_PRECEDENCE = {rule: place for place, rule in enumerate(PRECEDENCE, start=1)}
_VIOLATION = ("rule", "epoch", "decision", "emitter", "detail", "times")
_COMPARED = ("verdict", "level", "pairs", "pass_rates", "scores", "regressions", "improvements")
_WEIGHED = ("files", "lines", "functions", "complexity")


# The signals of an epoch that stand in its body: column -> path.
EPOCH_FLOATS = {
    "train_loss": "measured.train.loss",
    "train_accuracy": "measured.train.accuracy",
    "val_loss": "measured.validation.loss",
    "signal_to_noise": "measured.gradients.signal_to_noise",
    "norm_noise_scale": "measured.gradients.norm_noise_scale",
    "signal_to_noise_low": "measured.gradients.signal_to_noise_low?",
    "signal_to_noise_high": "measured.gradients.signal_to_noise_high?",
}
_EPOCH_PATHS = {
    **{
        key: f"measured.settings.{key}" for key in ("lr", "batch_size", "accumulation", "clip_norm")
    },
    "noise_scale": "measured.gradients.noise_scale?",
    "val_accuracy": "measured.validation.accuracy?",
}


def rows_of(
    name: str,
    body: Body,
    *,
    stream: str,
    idx: int,
    author: Author | None = None,
    entry_hash: str = "",
) -> Iterator[Row]:
    """Yield the rows of one event; raises KeyError for a kind that has no rows defined."""
    for told in ROWS[name]:
        yield from told.of(body, stream, idx, author, entry_hash)


def _epoch(body: Body, run: str) -> list[Body]:  # noqa: ARG001
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


def _signals(fields: Any) -> Mapping[str, Any]:
    from projections.epochs import signals  # noqa: PLC0415 - it loads Arrow

    return signals(fields)


def _precedence(fields: Any) -> Mapping[str, Any]:
    from projections.epochs import precedence  # noqa: PLC0415 - likewise

    return precedence(fields, _PRECEDENCE)


_SIGNALS = Derived(
    columns=frozenset(EpochSignals.__dataclass_fields__) - {"epoch", "noise", "skill"}
    | {"losses_reported"},
    of=_signals,
)


def _evaluations(body: Body, run: str) -> list[Body]:  # noqa: ARG001
    return [
        {**evaluation, "rule": rule, "precedence": _PRECEDENCE.get(rule)}
        for rule, evaluation in body["evaluations"].items()
    ]


def _violations(body: Body, audit: str) -> list[Body]:  # noqa: ARG001
    return [
        {"kind": violation["kind"], **{column: violation.get(column) for column in _VIOLATION}}
        for violation in listed_violations(body)
    ]


def _credited(body: Body, credit: str) -> list[Body]:  # noqa: ARG001
    ends = ("difference", "low", "high")
    measured = {f"{w}_{end}": body[w][end] for w in ("loss", "accuracy") for end in ends}
    return [{**body, **measured}]


# Readers of a large ledger import this file, and few of their events need an aggregate.


def _transcript(body: Body, transcript: str) -> list[Body]:
    from aggregates.transcript import Transcript  # noqa: PLC0415

    if str(Transcript.id_of(UUID(body["run"]))) != transcript:
        raise ValueError(f"transcript {transcript} does not belong to run {body['run']}")
    return [body]


def _call(body: Body, transcript: str) -> list[Body]:  # noqa: ARG001
    return [{**body, **{column: (body["usage"] or {}).get(column) for column in _TOKENS}}]


def _line(body: Body, line: str) -> list[Body]:
    from aggregates.improvement.line import Line  # noqa: PLC0415

    if str(Line.id_of(body["root"], body["branch"])) != line:
        raise ValueError(f"line {line} is not the line of branch {body['branch']!r}")
    return [body]


def _checkpoint(body: Body, line: str) -> list[Body]:
    from aggregates.improvement.line import Line  # noqa: PLC0415

    # Ids are derived, so that no other stream can record a checkpoint of this line's.
    if body["checkpoint"] != Line.checkpoint_id(UUID(line), body["commit"]):
        raise ValueError(
            f"checkpoint {body['checkpoint']!r} does not match commit {body['commit']}"
        )
    return [body]


def _weighed(body: Body, line: str) -> list[Body]:  # noqa: ARG001
    code = body["code"]
    weighed = dict.fromkeys(_WEIGHED) if code is None else {key: code[key] for key in _WEIGHED}
    return [{**body, **weighed}]


def _arms(body: Body, advice: str) -> list[Body]:  # noqa: ARG001
    from aggregates.improvement.advice import ARMS  # noqa: PLC0415

    return [{**body[arm], "arm": arm} for arm in ARMS]


def _measured_round(body: Body, advice: str) -> list[Body]:  # noqa: ARG001
    measured = body["measured"]
    told = (
        dict.fromkeys(_COMPARED) if measured is None else {key: measured[key] for key in _COMPARED}
    )
    rates, scores = told["pass_rates"] or (None, None), told["scores"] or (None, None)
    ends = {"pass_rate": rates, "score": scores}
    return [
        {
            **body,
            **told,
            **{f"{name}_before": before for name, (before, _) in ends.items()},
            **{f"{name}_after": after for name, (_, after) in ends.items()},
        }
    ]


def _remedy(outcome: str, missing: str) -> tuple[Rows, ...]:
    return (rows("remedies", always={"outcome": outcome}, missing=missing),)


def _checkpoint_rows(origin: str, missing: str = "") -> Rows:
    return rows(
        "checkpoint_starts",
        parts=_checkpoint,
        always={"origin": origin},
        missing=missing,
        checkpoint_id="checkpoint",
    )


def _origin(what: str) -> tuple[Rows, ...]:
    return (rows("corpus_origins", always={"what": what}, signer="operator"),)


ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "run.started": (rows("run_starts", once=True),),
        "run.provoked": (rows("provocations", once=True),),
        "run.forked": (rows("forks", once=True),),
        "run.epoch_measured": (
            rows(
                "epochs",
                parts=_epoch,
                shared="reported",
                at="",
                paths=_EPOCH_PATHS,
                derived=_SIGNALS,
            ),
            rows("layer_metrics", at="measured.layers.*", shared="epoch", layer="name"),
            rows("activation_metrics", at="measured.activations.*", shared="epoch", layer="name"),
        ),
        "run.rules_evaluated": (
            rows(
                "rule_evaluations",
                parts=_evaluations,
                shared="epoch",
                at="evaluations.**",
                paths={"rule": "evaluations.**key"},
                derived=Derived(
                    columns=frozenset({"precedence"}),
                    of=_precedence,
                ),
            ),
        ),
        "run.decision_made": (
            rows(
                "decisions",
                parts=lambda body, _: [{**body, "deferred_to": body["params"].get("deferred_to")}],
                at="",
                paths={"deferred_to": "params.deferred_to?"},
            ),
            rows(
                "citations",
                parts=lambda body, _: [{"rule": rule} for rule in body["cites"]],
                shared="number",
                at="cites.*",
                paths={"rule": "cites.*"},
            ),
        ),
        "run.remedy_applied": _remedy("applied", "reason"),
        "run.remedy_refused": _remedy("refused", "changes settings spec"),
        "run.restart_scheduled": _remedy("restart", "changes reason settings"),
        "run.weights_saved": (rows("weights"),),
        "run.snapshot_saved": (rows("snapshots"),),
        "run.ended": (rows("run_ends", hashed="entry", once=True),),
        "campaign.started": (rows("campaign_starts", once=True, max_attempts="attempts"),),
        "campaign.attempt_started": (rows("attempts", run_id="run"),),
        "campaign.attempt_abandoned": (rows("abandoned_attempts", run_id="run"),),
        "campaign.attempt_judged": (rows("judged_attempts", run_id="run", audit_id="audit"),),
        "campaign.feedback_given": (rows("feedback"),),
        "campaign.advised": (rows("campaign_advice"),),
        "campaign.ended": (rows("campaign_ends", once=True),),
        "comparison.started": (rows("comparison_starts", once=True),),
        "comparison.run_allotted": (rows("comparison_runs", run_id="run"),),
        "comparison.run_ended": (rows("comparison_results", run_id="run", audit_id="audit"),),
        "comparison.ended": (rows("comparison_ends", once=True),),
        "credit.started": (rows("credit_starts", once=True, run_id="run"),),
        "credit.fork_ended": (rows("credit_forks", run_id="run"),),
        "credit.measured": (rows("credit_results", parts=_credited),),
        "credit.ended": (rows("credit_ends", once=True),),
        "audit.started": (rows("audit_starts", once=True, signer="judge", run_id="run"),),
        "audit.step_completed": (rows("audit_steps", signer="judge"),),
        "audit.scored": (
            rows("audit_scores", signer="judge"),
            rows("audit_violations", parts=_violations),
        ),
        "decision.reviewed": (
            rows("reviews", signer="operator", run_id="run", decision_idx="index"),
        ),
        "transcript.started": (rows("transcripts", once=True, parts=_transcript, run_id="run"),),
        "transcript.call_made": (rows("calls", parts=_call),),
        "transcript.vote_counted": (rows("votes"),),
        "transcript.proposal_reviewed": (rows("proposal_reviews"),),
        "proposal.submitted": (rows("infra_submissions", once=True, line_id="line"),),
        "proposal.reviewed": (rows("infra_reviews"),),
        "proposal.branched": (rows("infra_branches"),),
        "proposal.tested": (rows("infra_validation_results"),),
        "proposal.rest_tested": (rows("infra_rest_results"),),
        "proposal.task_scored": (rows("infra_task_scores"),),
        "proposal.evaluated": (rows("infra_evaluations"),),
        "proposal.concluded": (rows("infra_conclusions"),),
        "line.opened": (
            rows("line_starts", once=True, parts=_line),
            _checkpoint_rows("opened", missing="parent"),
        ),
        "line.halted": (
            rows(
                "line_halts",
                always={"what": "halted"},
                missing="envelope",
                proposal_id="proposal",
            ),
        ),
        "line.resumed": (
            rows(
                "line_halts", always={"what": "resumed"}, missing="reason", proposal_id="proposal"
            ),
        ),
        "checkpoint.promoted": (
            _checkpoint_rows("promoted"),
            rows(
                "checkpoint_proposals",
                parts=lambda body, _: [{"proposal": each} for each in body["proposals"]],
                shared="checkpoint_id",
                checkpoint_id="checkpoint",
                proposal_id="proposal",
            ),
        ),
        "checkpoint.adopted": (_checkpoint_rows("adopted"),),
        "checkpoint.rolled_back": (
            rows(
                "checkpoint_rollbacks",
                signer="operator",
                checkpoint_id="checkpoint",
                to_checkpoint="to",
            ),
        ),
        "valley.opened": (
            rows("valleys", always={"what": "opened"}, missing="reason", valley_id="valley"),
        ),
        "valley.closed": (
            rows(
                "valleys",
                always={"what": "closed"},
                missing="steps expires envelope",
                valley_id="valley",
            ),
        ),
        "task.admitted": (rows("admitted_tasks"),),
        "drift.measured": (rows("drift_measurements", checkpoint_id="checkpoint", task_set="set"),),
        "drift.alarmed": (rows("drift_alarms", checkpoint_id="checkpoint"),),
        "drift.answered": (rows("drift_answers"),),
        "checkpoint.evaluated": (
            rows(
                "checkpoint_evaluations",
                parts=_weighed,
                checkpoint_id="checkpoint",
                right_answers="right",
            ),
        ),
        "evolution.opened": (rows("evolutions", once=True, line_id="line"),),
        "evolution.begun": (rows("evolution_orders", always={"what": "begin"}),),
        "evolution.steered": (
            rows("evolution_orders", missing="rounds proposer technique", what="order"),
        ),
        "evolution.round_ended": (rows("evolution_rounds", proposal_id="proposal"),),
        "advice.opened": (rows("advice_lines", once=True),),
        "advice.proposed": (rows("advice_proposals", campaign_id="campaign"),),
        "advice.answered": (
            rows(
                "advice_answers",
                parts=_arms,
                shared="round scenario repeat seed first",
            ),
        ),
        "advice.round_ended": (
            rows("advice_rounds", parts=_measured_round, campaign_id="campaign"),
        ),
        "advice.steered": (rows("advice_orders", what="order"),),
        "advice.scenario_recorded": (rows("advice_scenarios"),),
        "advice.scenario_admitted": (
            rows(
                "advice_scenarios",
                always={"admitted": True},
                missing="origin observation expected",
            ),
        ),
        "bisection.opened": (rows("bisections", once=True, line_id="line"),),
        "bisection.probed": (rows("bisection_probes", checkpoint_id="checkpoint"),),
        "bisection.ended": (rows("bisection_ends", once=True),),
        "corpus.opened": (),
        "corpus.admitted": _origin("admitted"),
        "corpus.withdrawn": _origin("withdrawn"),
        "export.sealed": (rows("exports", once=True),),
    }
)
