"""Proposals, lines and evolutions: one event in, its rows out.

Trust and types as in projections/rows.py.
I/O: none.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aggregates.line import Line

Body = Mapping[str, Any]
Row = tuple[str, dict[str, Any]]  # table, column -> value

_SUBMISSION = (
    "task",
    "tier",
    "targets",
    "diff",
    "diff_bytes",
    "base",
    "base_tree",
    "rationale",
    "trigger",
    "proposer",
    "evidence",
)


def _proposal_event(table: str, *columns: str) -> Callable[[Body, str, int], Iterator[Row]]:
    def rows(body: Body, proposal: str, idx: int) -> Iterator[Row]:
        yield table, {"proposal_id": proposal, "idx": idx, **pick(body, columns)}

    return rows


def _proposal_submitted(body: Body, proposal: str, idx: int) -> Iterator[Row]:
    told = {"line_id": body["line"], **pick(body, _SUBMISSION)}
    yield "infra_submissions", {"proposal_id": proposal, "idx": idx, **told}


def _line_opened(body: Body, line: str, idx: int) -> Iterator[Row]:
    if str(Line.id_of(body["root"], body["branch"])) != line:
        raise ValueError(f"line {line} is not the one of {body['branch']!r}")
    yield "line_starts", {"line_id": line, "idx": idx, **pick(body, ("root", "branch"))}
    yield _checkpoint(body, line, idx, origin="opened", parent=None)


def _checkpoint_promoted(body: Body, line: str, idx: int) -> Iterator[Row]:
    yield _checkpoint(body, line, idx, origin="promoted", parent=body["parent"])
    for proposal in body["proposals"]:
        yield (
            "checkpoint_proposals",
            {"checkpoint_id": body["checkpoint"], "proposal_id": proposal, "idx": idx},
        )


def _checkpoint_adopted(body: Body, line: str, idx: int) -> Iterator[Row]:
    yield _checkpoint(body, line, idx, origin="adopted", parent=body["parent"])


def _checkpoint(body: Body, line: str, idx: int, *, origin: str, parent: str | None) -> Row:
    # Ids are derived, so that no other stream can record a checkpoint of this line's.
    if body["checkpoint"] != Line.checkpoint_id(UUID(line), body["commit"]):
        raise ValueError(f"{body['checkpoint']!r} is not what commit {body['commit']} is here")
    told = {"checkpoint_id": body["checkpoint"], "parent": parent, "origin": origin}
    columns = ("commit", "tree", "manifest", "reference_set", "code")
    return "checkpoint_starts", {"line_id": line, "idx": idx, **told, **pick(body, columns)}


def _rolled_back(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"checkpoint_id": body["checkpoint"], "to_checkpoint": body["to"], "signed_by": None}
    yield "checkpoint_rollbacks", {"line_id": line, "idx": idx, "reason": body["reason"], **told}


def _line_halted(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"what": "halted", "reason": body["reason"], "envelope": None}
    yield "line_halts", {"line_id": line, "idx": idx, "proposal_id": body["proposal"], **told}


def _line_resumed(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"what": "resumed", "reason": None, "envelope": body["envelope"]}
    yield "line_halts", {"line_id": line, "idx": idx, "proposal_id": body["proposal"], **told}


def _valley_opened(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"what": "opened", "reason": None, **pick(body, ("steps", "expires", "envelope"))}
    yield "valleys", {"line_id": line, "idx": idx, "valley_id": body["valley"], **told}


def _valley_closed(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"steps": None, "expires": None, "envelope": None, "reason": body["reason"]}
    yield (
        "valleys",
        {"line_id": line, "idx": idx, "valley_id": body["valley"], "what": "closed", **told},
    )


def _task_admitted(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = pick(body, ("task", "sha256", "envelope"))
    yield "admitted_tasks", {"line_id": line, "idx": idx, **told}


def _drift_measured(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"checkpoint_id": body["checkpoint"], "task_set": body["set"]}
    columns = ("commit", "sha256", "success", "tasks")
    yield "drift_measurements", {"line_id": line, "idx": idx, **told, **pick(body, columns)}


def _drift_alarmed(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"checkpoint_id": body["checkpoint"]}
    columns = ("commit", "kind", "detail", "tasks")
    yield "drift_alarms", {"line_id": line, "idx": idx, **told, **pick(body, columns)}


def _alarm_answered(body: Body, line: str, idx: int) -> Iterator[Row]:
    yield "drift_answers", {"line_id": line, "idx": idx, **pick(body, ("alarm", "kind", "note"))}


def _checkpoint_evaluated(body: Body, line: str, idx: int) -> Iterator[Row]:
    told = {"checkpoint_id": body["checkpoint"], "right_answers": body["right"]}
    columns = ("commit", "purpose", "number", "seed", "sha256", "tasks", "valid", "precision")
    weighed = dict.fromkeys(("files", "lines", "functions", "complexity"))
    if body["code"] is not None:
        weighed = pick(body["code"], tuple(weighed))
    row = {"line_id": line, "idx": idx, **told, **pick(body, columns), "wrong": body["wrong"]}
    yield "checkpoint_evaluations", {**row, **weighed}


def _evolution_opened(body: Body, evolution: str, idx: int) -> Iterator[Row]:
    yield "evolutions", {"evolution_id": evolution, "idx": idx, "line_id": body["line"]}


def _evolution_begun(body: Body, evolution: str, idx: int) -> Iterator[Row]:
    told = {"what": "begin", **pick(body, ("rounds", "proposer", "technique"))}
    yield "evolution_orders", {"evolution_id": evolution, "idx": idx, **told}


def _evolution_steered(body: Body, evolution: str, idx: int) -> Iterator[Row]:
    told = {"what": body["order"], "rounds": None, "proposer": None, "technique": None}
    yield "evolution_orders", {"evolution_id": evolution, "idx": idx, **told}


def _round_ended(body: Body, evolution: str, idx: int) -> Iterator[Row]:
    told = {"proposal_id": body["proposal"]}
    columns = ("round", "outcome", "proposer", "technique", "pattern", "calls", "reason")
    row = {"evolution_id": evolution, "idx": idx, **told, **pick(body, columns)}
    yield "evolution_rounds", row


def _bisection_opened(body: Body, search: str, idx: int) -> Iterator[Row]:
    told = {"line_id": body["line"], **pick(body, ("good", "suspects", "oracle"))}
    key = {"bisection_id": search, "idx": idx}
    yield "bisections", {**key, **told, **pick(body, ("error", "confidence", "ends_believed"))}


def _bisection_probed(body: Body, search: str, idx: int) -> Iterator[Row]:
    told = {"checkpoint_id": body["checkpoint"], **pick(body, ("number", "verdict", "evidence"))}
    yield "bisection_probes", {"bisection_id": search, "idx": idx, **told}


def _bisection_ended(body: Body, search: str, idx: int) -> Iterator[Row]:
    columns = ("culprit", "candidates", "posterior", "reason")
    yield "bisection_ends", {"bisection_id": search, "idx": idx, **pick(body, columns)}


def _corpus_opened(body: Body, corpus: str, idx: int) -> Iterator[Row]:  # noqa: ARG001
    yield from ()


def _origin(what: str) -> Callable[[Body, str, int], Iterator[Row]]:
    def rows(body: Body, corpus: str, idx: int) -> Iterator[Row]:  # noqa: ARG001
        told = {"what": what, **pick(body, ("kind", "name", "note"))}
        yield "corpus_origins", {"idx": idx, **told, "signed_by": None}

    return rows


def _export_sealed(body: Body, export: str, idx: int) -> Iterator[Row]:
    columns = ("kind", "as_of", "head", "query", "code", "examples", "root", "sha256", "members")
    yield "exports", {"export_id": export, "idx": idx, **pick(body, columns)}


def pick(source: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    """Return these of a map's values; raises KeyError for one that is missing."""
    return {column: source[column] for column in columns}


INFRA_ROWS: Mapping[str, Callable[[Body, str, int], Iterator[Row]]] = MappingProxyType(
    {
        "proposal.submitted": _proposal_submitted,
        "proposal.reviewed": _proposal_event(
            "infra_reviews", "verdict", "envelope", "key", "expires", "note"
        ),
        "proposal.branched": _proposal_event(
            "infra_branches",
            "branch",
            "commit",
            "tree",
            "changes",
            "tier",
            "configuration_only",
            "manifest",
            "reference_set",
            "against",
        ),
        "proposal.tested": _proposal_event(
            "infra_validation_results",
            "passed",
            "problem",
            "cases",
            "missing",
            "added",
            "seconds",
            "expected",
            "output",
            "isolation",
            "leftovers",
        ),
        "proposal.task_scored": _proposal_event(
            "infra_task_scores",
            "arm",
            "task",
            "repeat",
            "seed",
            "success",
            "validation_failures",
            "metrics",
            "problem",
            "cached",
            "isolation",
        ),
        "proposal.evaluated": _proposal_event(
            "infra_evaluations",
            "verdict",
            "level",
            "regressions",
            "improvements",
            "reasons",
            "comparisons",
        ),
        "proposal.concluded": _proposal_event(
            "infra_conclusions", "outcome", "stage", "reason", "checkpoint", "valley"
        ),
        "line.opened": _line_opened,
        "line.halted": _line_halted,
        "line.resumed": _line_resumed,
        "checkpoint.promoted": _checkpoint_promoted,
        "checkpoint.adopted": _checkpoint_adopted,
        "checkpoint.rolled_back": _rolled_back,
        "valley.opened": _valley_opened,
        "valley.closed": _valley_closed,
        "task.admitted": _task_admitted,
        "drift.measured": _drift_measured,
        "drift.alarmed": _drift_alarmed,
        "drift.answered": _alarm_answered,
        "checkpoint.evaluated": _checkpoint_evaluated,
        "evolution.opened": _evolution_opened,
        "evolution.begun": _evolution_begun,
        "evolution.round_ended": _round_ended,
        "evolution.steered": _evolution_steered,
        "bisection.opened": _bisection_opened,
        "bisection.probed": _bisection_probed,
        "bisection.ended": _bisection_ended,
        "corpus.opened": _corpus_opened,
        "corpus.admitted": _origin("admitted"),
        "corpus.withdrawn": _origin("withdrawn"),
        "export.sealed": _export_sealed,
    }
)
