"""The harness: runs a training, and the runs that follow it when edits mean a restart.

A chain of restarts is a campaign: attempts in order, each a run of its own with the changed
specification and the hyperparameters in force when its parent ended; a schedule begins anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from aggregates.campaign import Campaign
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.report import AuditReport
from judge.scores import rank
from ledger.application import LedgerApplication
from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.loop import OnEpoch, OnStep, Policy, train
from proctor.home import Home

MAX_RESTARTS = 8  # runs that may follow one another before an unfinished chain is left as it is


@dataclass(frozen=True)
class Watching:
    """Who is told while a run goes on."""

    on_start: Callable[[UUID, RunConfig], None]
    on_epoch: OnEpoch
    on_step: OnStep


@dataclass(frozen=True)
class Attempt:
    """What a run is started from."""

    config: RunConfig
    spec: ModelSpec | None
    parent: str | None


def run_training(
    home: Home,
    log: LedgerApplication,
    config: RunConfig,
    *,
    make_policy: Callable[[], Policy],
    judge_run: Callable[[UUID], AuditReport],
    splits: Splits,
    watching: Watching | None = None,
) -> list[UUID]:
    """Train, with every restart that is scheduled on the way; return the runs, the best first.

    `splits` is the configuration's data. Each run gets a policy of its own, so that nothing is
    carried from one to the next but what the events say. Attempts of a campaign are judged as they
    end, to be ranked.
    """
    if config.edits == "live":
        this = Attempt(config, spec=None, parent=None)
        return [_train(home, log, this, make_policy(), splits=splits, watching=watching).id]
    campaign = Campaign.start(config=config.to_dict(), attempts=MAX_RESTARTS + 1)
    log.save(campaign)
    reports: list[AuditReport] = []
    following: Attempt | None = Attempt(config, spec=None, parent=None)
    reason = "failed"
    try:
        while following is not None and len(reports) <= MAX_RESTARTS:
            run = _train(
                home,
                log,
                following,
                make_policy(),
                splits=splits,
                watching=watching,
                campaign=campaign,
            )
            reports.append(judge_run(run.id))
            following = following_attempt(run)
        reason = "completed" if following is None else "restarts exhausted"
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    finally:
        ranking = [report.run_id for report in rank(reports)]
        unjudged = [run_id for run_id in campaign.runs if run_id not in ranking]
        campaign.end(reason, ranking=[*ranking, *unjudged])
        log.save(campaign)
    return [UUID(run_id) for run_id in ranking]


def _train(
    home: Home,
    log: LedgerApplication,
    this: Attempt,
    policy: Policy,
    *,
    splits: Splits,
    watching: Watching | None,
    campaign: Campaign | None = None,
) -> Run:
    run_id = uuid4()
    with home.running(run_id):
        if campaign is not None:
            campaign.start_attempt(str(run_id), parent_run=this.parent)
            log.save(campaign)
        if watching is not None:
            watching.on_start(run_id, this.config)
        return train(
            this.config,
            policy,
            log=log,
            blobs=home.blobs,
            spec=this.spec,
            parent_run=this.parent,
            campaign=str(campaign.id) if campaign is not None else None,
            run_id=run_id,
            submission_dir=home.submission(run_id),
            splits=splits,
            on_epoch=watching.on_epoch if watching else None,
            on_step=watching.on_step if watching else None,
        )


def following_attempt(run: Run) -> Attempt | None:
    """Return what follows a run that ended for a restart."""
    if run.restart_spec is None:
        return None
    carried = ("lr", "batch_size", "accumulation", "clip_norm")
    now = {key: run.settings[key] for key in carried if key in run.settings}
    config = replace(RunConfig.from_dict(run.config), **now)
    return Attempt(config, spec=run.restart_spec, parent=str(run.id))
