"""One event in, its rows out: what each kind of event means to the tables.

Bodies are those of each event's newest version. A row maps column to value; values keep the types
of the body, and whoever inserts them checks these against the columns.

Trust: bodies may be malformed; KeyError, TypeError and MeasurementError are the caller's to expect.
I/O: none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from uuid import UUID

from aggregates.rules import PRECEDENCE
from aggregates.signals import signals_of
from aggregates.transcript import Call, Transcript
from ledger.verified_entries import AuthorBlock
from projections.infra_rows import INFRA_ROWS, Body, Row, pick

_SETTINGS = ("lr", "batch_size", "accumulation", "clip_norm")
_START = ("config_hash", "rules_hash", "parent_run", "campaign", "checkpoint")
_START_JSON = ("config", "rules", "spec", "policy", "data", "environment")
_LAYER = ("rank", "grad_norm", "update_ratio", "epoch_update_ratio")
_ACTIVATION = ("units", "dead_units", "sparsity", "p50", "p99")
_SCORES = (
    "hard_fail",
    "accuracy_score",
    "process_score",
    "process_axis_exercised",
    "test_accuracy",
    "validation_accuracy",
    "obligations",
    "decisions",
)
_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
_CALL = ("number", *(field.name for field in fields(Call) if field.name != "usage"))


def rows_of(
    name: str, body: Body, *, stream: str, idx: int, author: AuthorBlock | None = None
) -> Iterator[Row]:
    """Yield the rows of one event; raises KeyError for a kind that has no rows defined."""
    signed_table, role = _SIGNED.get(name, ("", ""))
    for table, values in _BY_NAME[name](body, stream, idx):
        if table == signed_table:
            signed = author is not None and author.role == role
            values["signed_by"] = author.key_id.hex() if author and signed else None
        yield table, values


def _run_started(body: Body, run: str, idx: int) -> Iterator[Row]:
    yield "run_starts", {"run_id": run, "idx": idx, **pick(body, (*_START, *_START_JSON))}


def _provoked(body: Body, run: str, idx: int) -> Iterator[Row]:
    told = {column: body[column] for column in ("name", "seed", "changes", "expects")}
    yield "provocations", {"run_id": run, "idx": idx, **told}


def _epoch_measured(body: Body, run: str, idx: int) -> Iterator[Row]:
    measured = body["measured"]
    key = {"run_id": run, "epoch": body["epoch"], "idx": idx}
    yield (
        "epochs",
        {
            **key,
            **vars(signals_of(body["epoch"], measured)),
            "val_accuracy": measured["validation"]["accuracy"],
            "noise_scale": measured["gradients"].get("noise_scale"),
            **pick(measured["settings"], _SETTINGS),
            "reported": body["reported"],
        },
    )
    for table, part, columns in (
        ("layer_metrics", "layers", _LAYER),
        ("activation_metrics", "activations", _ACTIVATION),
    ):
        for place, layer in enumerate(measured[part]):
            named = {"place": place, "layer": layer["name"]}
            yield table, {**key, **named, **pick(layer, columns)}


def _rules_evaluated(body: Body, run: str, idx: int) -> Iterator[Row]:
    columns = ("fired", "side", "value", "ema", "streak")
    for rule, evaluation in body["evaluations"].items():
        yield (
            "rule_evaluations",
            {
                "run_id": run,
                "epoch": body["epoch"],
                "idx": idx,
                "rule": rule,
                **pick(evaluation, columns),
                "precedence": PRECEDENCE.index(rule) + 1,
            },
        )


def _decision_made(body: Body, run: str, idx: int) -> Iterator[Row]:
    columns = (
        "number",
        "epoch",
        "source",
        "event_type",
        "direction",
        "params",
        "justification",
    )
    deferred_to = body["params"].get("deferred_to")
    told = {"deferred_to": deferred_to, **pick(body, columns)}
    yield "decisions", {"run_id": run, "idx": idx, **told}
    for rule in body["cites"]:
        yield "citations", {"run_id": run, "number": body["number"], "idx": idx, "rule": rule}


def _remedy(outcome: str, *columns: str) -> Callable[[Body, str, int], Iterator[Row]]:
    def rows(body: Body, run: str, idx: int) -> Iterator[Row]:
        empty = {"changes": None, "reason": None, "settings": None, "spec": None}
        told = pick(body, ("decision", "epoch", *columns))
        yield "remedies", {"run_id": run, "idx": idx, "outcome": outcome, **empty, **told}

    return rows


def _weights_saved(body: Body, run: str, idx: int) -> Iterator[Row]:
    columns = ("epoch", "kind", "sha256", "size", "spec", "probe")
    yield "weights", {"run_id": run, "idx": idx, **pick(body, columns)}


def _run_ended(body: Body, run: str, idx: int) -> Iterator[Row]:
    columns = ("reason", "detail", "deliverables")
    yield "run_ends", {"run_id": run, "idx": idx, **pick(body, columns)}


def _campaign_started(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = {
        **pick(body, ("mode", "config", "policy", "feedback")),
        "max_attempts": body["attempts"],
    }
    yield "campaign_starts", {"campaign_id": campaign, "idx": idx, **told}


def _attempt_started(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = {"run_id": body["run"], **pick(body, ("number", "parent_run"))}
    yield "attempts", {"campaign_id": campaign, "idx": idx, **told}


def _attempt_abandoned(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = {"run_id": body["run"], **pick(body, ("number", "reason"))}
    yield "abandoned_attempts", {"campaign_id": campaign, "idx": idx, **told}


def _attempt_judged(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = {"run_id": body["run"], "audit_id": body["audit"], "number": body["number"]}
    yield "judged_attempts", {"campaign_id": campaign, "idx": idx, **told}


def _feedback_given(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = pick(body, ("number", "feedback"))
    yield "feedback", {"campaign_id": campaign, "idx": idx, **told}


def _campaign_ended(body: Body, campaign: str, idx: int) -> Iterator[Row]:
    told = pick(body, ("reason", "ranking"))
    yield "campaign_ends", {"campaign_id": campaign, "idx": idx, **told}


def _audit_started(body: Body, audit: str, idx: int) -> Iterator[Row]:
    told = {"run_id": body["run"], **pick(body, ("tree_head", "config", "environment"))}
    yield "audit_starts", {"audit_id": audit, "idx": idx, **told}


def _step_completed(body: Body, audit: str, idx: int) -> Iterator[Row]:
    told = pick(body, ("step", "name", "status", "summary", "evidence"))
    yield "audit_steps", {"audit_id": audit, "idx": idx, **told}


def _audit_scored(body: Body, audit: str, idx: int) -> Iterator[Row]:
    yield "audit_scores", {"audit_id": audit, "idx": idx, **pick(body, _SCORES)}
    optional = ("rule", "epoch", "decision", "emitter", "detail")
    for place, violation in enumerate(body["violations"]):
        told = {column: violation.get(column) for column in optional}
        yield (
            "audit_violations",
            {"audit_id": audit, "place": place, "idx": idx, "kind": violation["kind"], **told},
        )


def _decision_reviewed(body: Body, review: str, idx: int) -> Iterator[Row]:
    told = {"run_id": body["run"], "decision_idx": body["index"]}
    yield (
        "reviews",
        {"review_id": review, "idx": idx, **told, **pick(body, ("entry_hash", "mark", "note"))},
    )


def _transcript_started(body: Body, transcript: str, idx: int) -> Iterator[Row]:
    if str(Transcript.id_of(UUID(body["run"]))) != transcript:
        raise ValueError(f"transcript {transcript} is not the one of run {body['run']}")
    told = {"run_id": body["run"], **pick(body, ("mode", "policy"))}
    yield "transcripts", {"transcript_id": transcript, "idx": idx, **told}


def _call_made(body: Body, transcript: str, idx: int) -> Iterator[Row]:
    tokens = {column: (body["usage"] or {}).get(column) for column in _TOKENS}
    yield "calls", {"transcript_id": transcript, "idx": idx, **pick(body, _CALL), **tokens}


def _vote_counted(body: Body, transcript: str, idx: int) -> Iterator[Row]:
    columns = ("epoch", "rule", "votes", "chosen", "agreement", "calls")
    yield "votes", {"transcript_id": transcript, "idx": idx, **pick(body, columns)}


def _proposal_reviewed(body: Body, transcript: str, idx: int) -> Iterator[Row]:
    columns = ("epoch", "proposed", "verdict", "decision", "mark", "note")
    yield "proposal_reviews", {"transcript_id": transcript, "idx": idx, **pick(body, columns)}


_BY_NAME: Mapping[str, Callable[[Body, str, int], Iterator[Row]]] = MappingProxyType(
    {
        "run.started": _run_started,
        "run.provoked": _provoked,
        "run.epoch_measured": _epoch_measured,
        "run.rules_evaluated": _rules_evaluated,
        "run.decision_made": _decision_made,
        "run.remedy_applied": _remedy("applied", "changes", "settings", "spec"),
        "run.remedy_refused": _remedy("refused", "reason"),
        "run.restart_scheduled": _remedy("restart", "spec"),
        "run.weights_saved": _weights_saved,
        "run.ended": _run_ended,
        "campaign.started": _campaign_started,
        "campaign.attempt_started": _attempt_started,
        "campaign.attempt_abandoned": _attempt_abandoned,
        "campaign.attempt_judged": _attempt_judged,
        "campaign.feedback_given": _feedback_given,
        "campaign.ended": _campaign_ended,
        "audit.started": _audit_started,
        "audit.step_completed": _step_completed,
        "audit.scored": _audit_scored,
        "decision.reviewed": _decision_reviewed,
        "transcript.started": _transcript_started,
        "transcript.call_made": _call_made,
        "transcript.vote_counted": _vote_counted,
        "transcript.proposal_reviewed": _proposal_reviewed,
        **INFRA_ROWS,
    }
)
# Where a signature counts: in which table, and by whom.
_SIGNED = MappingProxyType(
    {
        "audit.scored": ("audit_scores", "judge"),
        "checkpoint.rolled_back": ("checkpoint_rollbacks", "operator"),
        "corpus.admitted": ("corpus_origins", "operator"),
        "corpus.withdrawn": ("corpus_origins", "operator"),
        "decision.reviewed": ("reviews", "operator"),
    }
)
EVENT_NAMES = frozenset(_BY_NAME)
