"""The shapes of what each command prints with `--json`.

I/O: none.
"""

from collections.abc import Mapping
from typing import Any

from proctor.schemas import curation, improvement, ledger, runs, shared

__all__ = ["ANSWERS", "asked_command"]

ANSWERS: Mapping[str, tuple[Any, ...]] = {  # command -> one of these is printed
    "attest": (ledger.Attested,),
    "campaign": (runs.Campaign,),
    "checkpoints answer": (improvement.Answered,),
    "checkpoints baseline": (improvement.Baseline,),
    "checkpoints bisect": (improvement.Search,),
    "checkpoints drift": (improvement.Drift,),
    "checkpoints list": (list[improvement.Checkpoint],),
    "checkpoints look-back": (improvement.Fault, improvement.NoFault),
    "checkpoints metrics": (improvement.Metrics,),
    "checkpoints rollback": (improvement.RolledBack,),
    "checkpoints salvage": (list[improvement.Salvaged],),
    "checkpoints show": (improvement.CheckpointParts,),
    "checkpoints watch": (improvement.Drift,),
    "compare": (runs.Comparison,),
    "credit": (runs.Credit,),
    "curate admit": (curation.OriginWord,),
    "curate export": (curation.Export, curation.ExportRefused),
    "curate list": (list[curation.Sealed],),
    "curate origins": (list[curation.OriginRow],),
    "curate recall": (list[curation.Recalled],),
    "curate verify": (curation.SealedFile, curation.NotSealed),
    "curate why": (curation.Why,),
    "curate withdraw": (curation.OriginWord,),
    "demo": (runs.Demo,),
    "export": (ledger.Exported,),
    "fork": (runs.Forked,),
    "import": (ledger.Imported,),
    "infra add-task": (improvement.Folder,),
    "infra adopt": (improvement.Adopted,),
    "infra anchors": (list[improvement.Anchor],),
    "infra approve": (improvement.Proposal, improvement.Signed),
    "infra approve-batch": (list[improvement.Proposal], improvement.Signed),
    "infra challenge": (improvement.Candidates,),
    "infra demo": (improvement.GauntletDemo,),
    "infra enroll": (improvement.WrittenNames,),
    "infra evolve": (improvement.EvolutionReport,),
    "infra export-pending": (improvement.PendingFolder,),
    "infra gaps": (list[improvement.Gap],),
    "infra import-reviews": (list[improvement.Import],),
    "infra init": (improvement.Line,),
    "infra measure": (improvement.Measurement,),
    "infra propose": (list[improvement.Queued],),
    "infra reject": (improvement.Proposal, improvement.Signed),
    "infra resume": (improvement.Resumed,),
    "infra review": (list[improvement.Carried],),
    "infra revise": (improvement.Proposal, improvement.Signed),
    "infra run": (list[improvement.Queued],),
    "infra show": (improvement.WholeProposal,),
    "infra status": (improvement.Line,),
    "infra task admit": (improvement.Admitted,),
    "infra task carry": (improvement.CarriedTasks,),
    "infra task from-commit": (improvement.Drafted,),
    "infra task from-run": (improvement.Drafted,),
    "infra task new": (improvement.Drafted,),
    "infra task server": (improvement.Server,),
    "infra valley": (improvement.ValleyOpened,),
    "judge": (runs.Audit,),
    "keys accept": (ledger.Accepted,),
    "keys grant": (ledger.Granted,),
    "keys list": (list[ledger.Key],),
    "keys new": (ledger.NewKey,),
    "keys pem": (ledger.Pem,),
    "keys revoke": (ledger.Revoked,),
    "keys rotate": (ledger.Rotated,),
    "ledger check-rights": (ledger.Rights,),
    "lineage": (ledger.Lineage,),
    "log": (list[shared.Entry], shared.Entry),
    "notary": (shared.Listening,),
    "prove": (ledger.Proof,),
    "replay": (
        list[shared.Entry],
        runs.RunState,
        runs.CampaignState,
        runs.ComparisonState,
        runs.Rebuilt,
        runs.RunAgain,
        runs.CampaignAgain,
        runs.ComparisonAgain,
    ),
    "report": (ledger.ReportFiles,),
    "review": (curation.Reviewed,),
    "run": (runs.Trained, runs.TrainedTask),
    "schema": (dict[str, Any],),  # a JSON Schema, or all of them by command
    "serve": (shared.Listening,),
    "show": (runs.Story,),
    "sql": (list[dict[str, Any]], ledger.Snapshot, ledger.Written),
    "transcript": (runs.Transcript, dict[str, Any]),  # with --call: the call, and its texts
    "tune admit": (improvement.Scenario,),
    "tune challenge": (improvement.Kept,),
    "tune off": (improvement.Advice,),
    "tune on": (improvement.Advice,),
    "tune reset": (improvement.Advice,),
    "tune round": (improvement.Advice,),
    "tune show": (improvement.Advice,),
    "verify": (
        ledger.Verified,
        ledger.Invalid,
        ledger.VerifiedModel,
        ledger.VerifiedReport,
        ledger.VerifiedProof,
        ledger.VerifiedProofs,
        ledger.VerifiedLineage,
        ledger.VerifiedEvidence,
        shared.Refused,
    ),
    "witness add": (ledger.CosignedHead,),
    "witness ask": (ledger.Witnessed,),
    "witness init": (ledger.Vkey,),
    "witness request": (ledger.WitnessRequest,),
    "witness serve": (shared.Listening,),
    "witness sign": (ledger.Cosigned, ledger.NotCosigned),
    "witness trust": (ledger.Origin,),
}


def asked_command(arguments: list[str]) -> str | None:
    """Return the command that arguments begin with."""
    for length in (3, 2, 1):
        if (name := " ".join(arguments[:length])) in ANSWERS:
            return name
    return None
