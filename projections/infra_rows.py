"""Maps the events of proposals, lines, evolutions, searches and exports to table rows.

Trust and types as in projections/rows.py.
I/O: none.
"""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from aggregates.improvement.line import Line
from projections.mapping import Body, Rows, rows

__all__ = ["INFRA_ROWS"]

_WEIGHED = ("files", "lines", "functions", "complexity")
_COMMIT = "commit tree manifest reference_set code"


def _line(body: Body, line: str) -> list[Body]:
    if str(Line.id_of(body["root"], body["branch"])) != line:
        raise ValueError(f"line {line} is not the line of branch {body['branch']!r}")
    return [body]


def _checkpoint(body: Body, line: str) -> list[Body]:
    # Ids are derived, so that no other stream can record a checkpoint of this line's.
    if body["checkpoint"] != Line.checkpoint_id(UUID(line), body["commit"]):
        raise ValueError(
            f"checkpoint {body['checkpoint']!r} does not match commit {body['commit']}"
        )
    return [body]


def _proposals(body: Body, line: str) -> list[Body]:  # noqa: ARG001
    return [{"proposal": proposal} for proposal in body["proposals"]]


def _weighed(body: Body, line: str) -> list[Body]:  # noqa: ARG001
    code = body["code"]
    return [dict.fromkeys(_WEIGHED) if code is None else {key: code[key] for key in _WEIGHED}]


def _checkpoint_rows(origin: str) -> Rows:
    told = f"checkpoint_id=checkpoint parent {_COMMIT}"
    return rows(
        "checkpoint_starts", "line_id", "", parts=_checkpoint, part=told, always={"origin": origin}
    )


def _order(columns: str, always: dict[str, str | None]) -> tuple[Rows, ...]:
    return (rows("evolution_orders", "evolution_id", columns, always=always),)


def _origin(what: str) -> tuple[Rows, ...]:
    return (
        rows("corpus_origins", None, "kind name note", signer="operator", always={"what": what}),
    )


INFRA_ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "proposal.submitted": (
            rows(
                "infra_submissions",
                "proposal_id",
                "line_id=line task tier targets diff diff_bytes base base_tree rationale trigger "
                "proposer evidence",
            ),
        ),
        "proposal.reviewed": (
            rows("infra_reviews", "proposal_id", "verdict envelope key expires note"),
        ),
        "proposal.branched": (
            rows(
                "infra_branches",
                "proposal_id",
                "branch commit tree changes tier configuration_only manifest reference_set against",
            ),
        ),
        "proposal.tested": (
            rows(
                "infra_validation_results",
                "proposal_id",
                "passed problem cases missing added seconds expected output isolation leftovers",
            ),
        ),
        "proposal.task_scored": (
            rows(
                "infra_task_scores",
                "proposal_id",
                "arm task repeat seed success validation_failures metrics problem cached isolation",
            ),
        ),
        "proposal.evaluated": (
            rows(
                "infra_evaluations",
                "proposal_id",
                "verdict level regressions improvements reasons comparisons",
            ),
        ),
        "proposal.concluded": (
            rows("infra_conclusions", "proposal_id", "outcome stage reason checkpoint valley"),
        ),
        "line.opened": (
            rows("line_starts", "line_id", "", parts=_line, part="root branch"),
            rows(
                "checkpoint_starts",
                "line_id",
                "",
                parts=_checkpoint,
                part=f"checkpoint_id=checkpoint {_COMMIT}",
                always={"origin": "opened", "parent": None},
            ),
        ),
        "line.halted": (
            rows(
                "line_halts",
                "line_id",
                "proposal_id=proposal reason",
                always={"what": "halted", "envelope": None},
            ),
        ),
        "line.resumed": (
            rows(
                "line_halts",
                "line_id",
                "proposal_id=proposal envelope",
                always={"what": "resumed", "reason": None},
            ),
        ),
        "checkpoint.promoted": (
            _checkpoint_rows("promoted"),
            rows(
                "checkpoint_proposals",
                None,
                "checkpoint_id=checkpoint",
                parts=_proposals,
                part="proposal_id=proposal",
            ),
        ),
        "checkpoint.adopted": (_checkpoint_rows("adopted"),),
        "checkpoint.rolled_back": (
            rows(
                "checkpoint_rollbacks",
                "line_id",
                "checkpoint_id=checkpoint to_checkpoint=to reason",
                signer="operator",
            ),
        ),
        "valley.opened": (
            rows(
                "valleys",
                "line_id",
                "valley_id=valley steps expires envelope",
                always={"what": "opened", "reason": None},
            ),
        ),
        "valley.closed": (
            rows(
                "valleys",
                "line_id",
                "valley_id=valley reason",
                always={"what": "closed", "steps": None, "expires": None, "envelope": None},
            ),
        ),
        "task.admitted": (rows("admitted_tasks", "line_id", "task sha256 envelope"),),
        "drift.measured": (
            rows(
                "drift_measurements",
                "line_id",
                "checkpoint_id=checkpoint task_set=set commit sha256 success tasks",
            ),
        ),
        "drift.alarmed": (
            rows("drift_alarms", "line_id", "checkpoint_id=checkpoint commit kind detail tasks"),
        ),
        "drift.answered": (rows("drift_answers", "line_id", "alarm kind note"),),
        "checkpoint.evaluated": (
            rows(
                "checkpoint_evaluations",
                "line_id",
                "checkpoint_id=checkpoint right_answers=right commit purpose number seed sha256 "
                "tasks valid precision wrong",
                parts=_weighed,
                part=" ".join(_WEIGHED),
            ),
        ),
        "evolution.opened": (rows("evolutions", "evolution_id", "line_id=line"),),
        "evolution.begun": _order("rounds proposer technique", {"what": "begin"}),
        "evolution.steered": _order(
            "what=order", {"rounds": None, "proposer": None, "technique": None}
        ),
        "evolution.round_ended": (
            rows(
                "evolution_rounds",
                "evolution_id",
                "proposal_id=proposal round outcome proposer technique pattern calls reason",
            ),
        ),
        "bisection.opened": (
            rows(
                "bisections",
                "bisection_id",
                "line_id=line good suspects oracle error confidence ends_believed",
            ),
        ),
        "bisection.probed": (
            rows(
                "bisection_probes",
                "bisection_id",
                "checkpoint_id=checkpoint number verdict evidence",
            ),
        ),
        "bisection.ended": (
            rows("bisection_ends", "bisection_id", "culprit candidates posterior reason"),
        ),
        "corpus.opened": (),
        "corpus.admitted": _origin("admitted"),
        "corpus.withdrawn": _origin("withdrawn"),
        "export.sealed": (
            rows(
                "exports",
                "export_id",
                "kind as_of head query code examples root sha256 members",
            ),
        ),
    }
)
