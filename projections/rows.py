"""Maps each kind of event to table rows: one event in, its rows out.

Bodies are those of each event's newest version. Values keep the types of the body, and whoever
inserts them checks these against the columns.

Trust: as in mapping.py.
I/O: none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from uuid import UUID

from aggregates.rules import PRECEDENCE
from aggregates.signals import EpochSignals, signals_of
from aggregates.transcript import Call, Transcript
from ledger.verification.verified_entries import AuthorBlock
from projections.infra_rows import INFRA_ROWS
from projections.mapping import Body, Row, Rows, rows

__all__ = ["ROWS", "rows_of"]

_SETTINGS = ("lr", "batch_size", "accumulation", "clip_norm")
_SIGNALS = tuple(field.name for field in fields(EpochSignals) if field.name != "noise")
_CALL = ("number", *(field.name for field in fields(Call) if field.name != "usage"))
_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
_PRECEDENCE = {rule: place for place, rule in enumerate(PRECEDENCE, start=1)}
_VIOLATION = ("rule", "epoch", "decision", "emitter", "detail")


def rows_of(
    name: str, body: Body, *, stream: str, idx: int, author: AuthorBlock | None = None
) -> Iterator[Row]:
    """Yield the rows of one event; raises KeyError for a kind that has no rows defined."""
    for told in ROWS[name]:
        yield from told.of(body, stream, idx, author)


def _epoch(body: Body, run: str) -> list[Body]:  # noqa: ARG001
    measured = body["measured"]
    signals = vars(signals_of(body["epoch"], measured))
    settings = {column: measured["settings"][column] for column in _SETTINGS}
    noise = measured["gradients"].get("noise_scale")
    accuracy = measured["validation"]["accuracy"]
    return [{**signals, **settings, "noise_scale": noise, "val_accuracy": accuracy}]


def _evaluations(body: Body, run: str) -> list[Body]:  # noqa: ARG001
    return [
        {**evaluation, "rule": rule, "precedence": _PRECEDENCE.get(rule)}
        for rule, evaluation in body["evaluations"].items()
    ]


def _violations(body: Body, audit: str) -> list[Body]:  # noqa: ARG001
    return [
        {"kind": violation["kind"], **{column: violation.get(column) for column in _VIOLATION}}
        for violation in body["violations"]
    ]


def _transcript(body: Body, transcript: str) -> list[Body]:
    if str(Transcript.id_of(UUID(body["run"]))) != transcript:
        raise ValueError(f"transcript {transcript} does not belong to run {body['run']}")
    return [body]


def _tokens(body: Body, transcript: str) -> list[Body]:  # noqa: ARG001
    return [{column: (body["usage"] or {}).get(column) for column in _TOKENS}]


def _remedy(outcome: str, columns: str) -> tuple[Rows, ...]:
    told = f"decision epoch {columns}"
    missing = dict.fromkeys({"changes", "reason", "settings", "spec"} - set(columns.split()))
    return (rows("remedies", "run_id", told, always={"outcome": outcome, **missing}),)


ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "run.started": (
            rows(
                "run_starts",
                "run_id",
                "config_hash rules_hash parent_run campaign checkpoint "
                "config rules spec policy data environment",
            ),
        ),
        "run.provoked": (rows("provocations", "run_id", "name seed changes expects"),),
        "run.epoch_measured": (
            rows(
                "epochs",
                "run_id",
                "reported",
                parts=_epoch,
                part=" ".join((*_SIGNALS, "val_accuracy", "noise_scale", *_SETTINGS)),
            ),
            rows(
                "layer_metrics",
                "run_id",
                "epoch",
                parts=lambda body, _: body["measured"]["layers"],
                part="layer=name rank grad_norm update_ratio epoch_update_ratio",
                place="place",
            ),
            rows(
                "activation_metrics",
                "run_id",
                "epoch",
                parts=lambda body, _: body["measured"]["activations"],
                part="layer=name units dead_units sparsity p50 p99",
                place="place",
            ),
        ),
        "run.rules_evaluated": (
            rows(
                "rule_evaluations",
                "run_id",
                "epoch",
                parts=_evaluations,
                part="rule fired side value ema streak precedence",
            ),
        ),
        "run.decision_made": (
            rows(
                "decisions",
                "run_id",
                "number epoch source event_type direction params justification",
                parts=lambda body, _: [{"deferred_to": body["params"].get("deferred_to")}],
                part="deferred_to",
            ),
            rows(
                "citations",
                "run_id",
                "number",
                parts=lambda body, _: [{"rule": rule} for rule in body["cites"]],
                part="rule",
            ),
        ),
        "run.remedy_applied": _remedy("applied", "changes settings spec"),
        "run.remedy_refused": _remedy("refused", "reason"),
        "run.restart_scheduled": _remedy("restart", "spec"),
        "run.weights_saved": (rows("weights", "run_id", "epoch kind sha256 size spec probe"),),
        "run.ended": (rows("run_ends", "run_id", "reason detail deliverables"),),
        "campaign.started": (
            rows(
                "campaign_starts",
                "campaign_id",
                "mode config policy feedback max_attempts=attempts",
            ),
        ),
        "campaign.attempt_started": (
            rows("attempts", "campaign_id", "run_id=run number parent_run"),
        ),
        "campaign.attempt_abandoned": (
            rows("abandoned_attempts", "campaign_id", "run_id=run number reason"),
        ),
        "campaign.attempt_judged": (
            rows("judged_attempts", "campaign_id", "run_id=run audit_id=audit number"),
        ),
        "campaign.feedback_given": (rows("feedback", "campaign_id", "number feedback"),),
        "campaign.ended": (rows("campaign_ends", "campaign_id", "reason ranking"),),
        "audit.started": (
            rows("audit_starts", "audit_id", "run_id=run tree_head config environment"),
        ),
        "audit.step_completed": (
            rows("audit_steps", "audit_id", "step name status summary evidence"),
        ),
        "audit.scored": (
            rows(
                "audit_scores",
                "audit_id",
                "hard_fail accuracy_score process_score process_axis_exercised test_accuracy "
                "validation_accuracy obligations decisions",
                signer="judge",
            ),
            rows(
                "audit_violations",
                "audit_id",
                "",
                parts=_violations,
                part=" ".join(("kind", *_VIOLATION)),
                place="place",
            ),
        ),
        "decision.reviewed": (
            rows(
                "reviews",
                "review_id",
                "run_id=run decision_idx=index entry_hash mark note",
                signer="operator",
            ),
        ),
        "transcript.started": (
            rows(
                "transcripts",
                "transcript_id",
                "",
                parts=_transcript,
                part="run_id=run mode policy",
            ),
        ),
        "transcript.call_made": (
            rows("calls", "transcript_id", " ".join(_CALL), parts=_tokens, part=" ".join(_TOKENS)),
        ),
        "transcript.vote_counted": (
            rows("votes", "transcript_id", "epoch rule votes chosen agreement calls"),
        ),
        "transcript.proposal_reviewed": (
            rows(
                "proposal_reviews",
                "transcript_id",
                "epoch proposed verdict decision mark note",
            ),
        ),
        **INFRA_ROWS,
    }
)
