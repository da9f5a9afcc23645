"""A campaign, a comparison or one run, done again from its events alone, and compared by value.

Each attempt is trained again and judged again; feedback and ranking are derived again from these
verdicts, and where a model has decided, its decisions from its recorded answers. No server is
asked. Attempts that were abandoned count for nothing: they are named, and not done again.

Trust: what is done again comes from a ledger that has just been verified; who signed it may still
have made it up.
I/O: reads the home; trains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.comparison import Comparison
from aggregates.improvement.advice import Advice
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.transcript import Transcript
from judge.auditing.audit import audit_run
from judge.auditing.events import decode_events
from judge.auditing.reexecution import reexecute
from judge.auditing.report import AuditReport
from judge.compare import Difference, differences
from judge.config import JudgeConfig
from ledger.application import LedgerApplication
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from monitor.loop import OnEpoch
from policies.deciding.named import named_policy
from proctor.home import Home
from proctor.remembering import held_session, open_remembered
from proctor.runs.campaign_feedback import make_feedback, read_verdict, verdict_of
from proctor.runs.campaign_run import rank_runs, told_to
from proctor.runs.replay import audited_run, find_recorded, folded, read_streams
from proctor.runs.shapes import CampaignAgain, ComparisonAgain, CutOff, RunAgain
from proctor.runs.tasks import task_training
from proctor.runs.training import Told
from proctor.runs.transcript_replay import CheckedPolicy, RecordedCalls

_UNFIT = (
    "SELECT run_id, why_not FROM campaign_progress WHERE campaign_id = ? AND NOT abandoned "
    "UNION ALL SELECT run_id, why_not FROM comparison_cells WHERE comparison_id = ?"
)
_MADE_UP = """
SELECT c.transcript_id, c.number, c.response
FROM calls AS c
WHERE c.cached AND c.transcript_id IN (SELECT UNNEST(?)) AND NOT EXISTS (
    FROM calls AS g
    WHERE g.idx < c.idx AND g.outcome = 'usable' AND NOT g.cached
        AND (g.request, g.endpoint, g.response)
        IS NOT DISTINCT FROM (c.request, c.endpoint, c.response)
)
ORDER BY c.idx"""


@dataclass(frozen=True)
class Records:
    """What a verified ledger holds of a campaign, a comparison or one run, as events."""

    campaign: Campaign | None
    chosen: UUID  # the id of the campaign, the comparison or the run
    told: Mapping[str, Told]  # run -> what its policy was told
    promoted: frozenset[str]  # advice blocks that the campaign's model has had
    runs: Mapping[str, list[Any]]
    transcripts: Mapping[str, list[Any]]
    verdicts: Mapping[str, AuditReport]
    made_up: Mapping[str, Sequence[Difference]]  # run -> remembered answers that nobody gave
    unfit: Mapping[str, Sequence[str]]  # run -> why it is not what the campaign or comparison says
    comparison: Comparison | None = None

    @property
    def whole_campaign(self) -> bool:
        """Whether the campaign itself is to be done again, and not one run of it."""
        return self.campaign is not None and self.campaign.id == self.chosen


def read_records(home: Home, name: str) -> Records:
    """Verify the ledger and read a campaign, comparison or run from it, with all that is of it."""
    with open_remembered(home) as ledger:
        chosen = find_recorded(ledger, name)
        events = campaign_events = decode_events(read_streams(ledger, {chosen})[chosen])
        comparison = folded(events) if type(events[0]) is Comparison.Started else None
        if type(events[0]) is not Campaign.Started:
            campaign_events = _campaign_of(ledger, getattr(events[0], "campaign", None))
        campaign = folded(campaign_events)
        runs = [str(chosen)]
        if comparison is not None:
            runs = list(dict.fromkeys(comparison.runs.values()))
        elif campaign is not None and campaign.id == chosen:
            runs = [*campaign.runs, *campaign.abandoned]
        ids = {run: UUID(run) for run in runs}
        transcripts = {run: Transcript.id_of(run_id) for run, run_id in ids.items()}
        named = {} if campaign is None else campaign.audits
        if comparison is not None:
            ended = [each for each in events if type(each) is Comparison.RunEnded]
            named = {each.run: each.audit for each in ended if each.audit is not None}
        audits = {run: UUID(named[run]) for run in runs if run in named}
        model = "" if campaign is None else str(campaign.policy.get("model"))
        advice = Advice.id_of(model)
        found = read_streams(
            ledger, {*ids.values(), *transcripts.values(), *audits.values(), advice}
        )
    decoded = {stream: decode_events(entries) for stream, entries in found.items()}
    with held_session(home) as session:
        unfit = session.query(_UNFIT, [str(chosen), str(chosen)]).rows
        given = session.query(_MADE_UP, [[str(each) for each in transcripts.values()]]).rows
    made_up: dict[str, list[Difference]] = {run: [] for run in runs}
    run_of = {str(transcript): run for run, transcript in transcripts.items()}
    for transcript, number, response in given:
        why = "no earlier call was answered so"
        made_up[run_of[transcript]].append(Difference(f"call {number} cached", response, why))
    return Records(
        campaign=campaign,
        chosen=chosen,
        told={
            event.run: told_to(campaign, event.number)
            for event in campaign_events
            if type(event) is Campaign.AttemptStarted
        },
        promoted=_promoted(decoded.get(advice, [])),
        runs={run: decoded[run_id] for run, run_id in ids.items() if run_id in decoded},
        transcripts={run: decoded[i] for run, i in transcripts.items() if i in decoded},
        verdicts={
            run: verdict_of(decoded[audit])
            for run, audit in audits.items()
            if _is_audit(found.get(audit, []), run, found.get(ids[run], []))
        },
        made_up=made_up,
        unfit={str(run): list(why) for run, why in unfit if why},
        comparison=comparison,
    )


def redo_run(
    home: Home,
    records: Records,
    run_id: str,
    *,
    config: JudgeConfig | None = None,
    on_epoch: OnEpoch,
) -> RunAgain:
    """Train a run again and derive its policy's decisions again; raises JudgeError."""
    events = records.runs[run_id]
    transcript = records.transcripts.get(run_id)
    calls = None
    if transcript is not None:
        calls = RecordedCalls(UUID(run_id), transcript, home.blobs)
    policy = CheckedPolicy(folded(events), calls, records.told.get(run_id, Told()))
    comparison = reexecute(
        events, policy, on_epoch=on_epoch, config=config, task=_task_again(home, events[0], config)
    )
    found = (*policy.differences(), *records.made_up[run_id])
    same = comparison.same and not found
    return RunAgain.of(
        comparison,
        same=same,
        calls=calls.count if calls else 0,
        reworded=calls is not None and not calls.same_words,
        policy=found,
    )


def _task_again(home: Home, started: Any, judge: JudgeConfig | None) -> Callable[..., Run] | None:
    """Return what trains a task's run again, None for another run."""
    task = started.config.get("task") if isinstance(started, Run.Started) else None
    if not isinstance(task, str):
        return None
    folder = None if judge is None or judge.data_dir is None else Path(judge.data_dir)
    source = home.blobs.get(task)
    return lambda config, **options: task_training(home, source, config, data_dir=folder)(
        config, **options
    )


def redo_campaign(
    home: Home,
    records: Records,
    *,
    config: JudgeConfig | None = None,
    on_epoch: OnEpoch,
    say: Callable[[str], None],
) -> CampaignAgain:
    """Do every attempt again, and derive again what follows from them."""
    campaign = records.campaign
    assert campaign is not None
    again: list[RunAgain] = []
    verdicts: list[AuditReport] = []
    found: list[Difference] = []
    for number, run_id in enumerate(campaign.runs, start=1):
        place = f"attempt {number}"
        say(f"{place} of {len(campaign.runs)}: run {run_id}")
        if run_id not in records.runs:
            found.append(Difference(place, run_id, "there is no such run"))
            break
        found += _unfit(records, run_id, place)
        feedback = make_feedback(verdicts) if campaign.feedback and verdicts else None
        told = records.told.get(run_id, Told())
        found += differences(told.feedback, feedback, place=f"{place} feedback")
        if told.advice not in records.promoted:
            why = "no such advice to this model was promoted"
            found.append(Difference(f"{place} advice", told.advice, why))
        again.append(redo_run(home, records, run_id, config=config, on_epoch=on_epoch))
        if run_id not in records.verdicts:
            audit = campaign.audits.get(run_id)
            if audit is not None or campaign.ranking is not None:
                missing = "there is no whole audit of the run after its end"
                found.append(Difference(f"{place} verdict", audit, missing))
            break
        verdicts.append(_judge_again(home, records.verdicts[run_id], config or JudgeConfig()))
        found += _verdict_differences(records.verdicts[run_id], verdicts[-1], place)
    ranking = rank_runs(verdicts, campaign.ranked_by)
    if campaign.ranking is not None:
        found += differences(campaign.ranking, ranking, place="ranking")
    return CampaignAgain(
        campaign=str(campaign.id),
        mode=campaign.mode,
        same=not found and all(attempt.same for attempt in again),
        attempts=again,
        ranking=ranking,
        abandoned=[CutOff.read(run, records.runs.get(run, ())) for run in campaign.abandoned],
        differences=found,
    )


def redo_comparison(
    home: Home,
    records: Records,
    *,
    config: JudgeConfig | None = None,
    on_epoch: OnEpoch,
    say: Callable[[str], None],
) -> ComparisonAgain:
    """Train and judge every finished cell again."""
    comparison = records.comparison
    assert comparison is not None
    again: list[RunAgain] = []
    found: list[Difference] = []
    for cell in (each for each in comparison.cells if each in comparison.done):
        run_id, place = comparison.runs[cell], str(cell)
        say(f"{place}: run {run_id}")
        found += _unfit(records, run_id, place)
        problem = comparison.done[cell]
        if run_id not in records.runs:
            if problem is None:
                found.append(Difference(place, run_id, "there is no such run"))
            continue
        again.append(redo_run(home, records, run_id, config=config, on_epoch=on_epoch))
        if run_id in records.verdicts:
            before = records.verdicts[run_id]
            judge = config or JudgeConfig()
            if judge.data_dir is None:
                folder = records.runs[run_id][0].config.get("params", {}).get("data_dir")
                judge = replace(judge, data_dir=folder if isinstance(folder, str) else None)
            found += _verdict_differences(before, _judge_again(home, before, judge), place)
        elif problem is None:
            missing = "there is no whole audit of the run after its end"
            found.append(Difference(f"{place} verdict", None, missing))
    same = not found and all(run.same for run in again)
    return ComparisonAgain(comparison=str(comparison.id), same=same, runs=again, differences=found)


def _unfit(records: Records, run_id: str, place: str) -> Iterator[Difference]:
    """Yield why a run is not what its campaign or comparison says."""
    for reason in records.unfit.get(run_id, ()):
        yield Difference(f"{place} start", run_id, reason)


def _verdict_differences(
    before: AuditReport, again: AuditReport, place: str
) -> Iterator[Difference]:
    return differences(_verdict(before), _verdict(again), place=f"{place} verdict")


def _judge_again(home: Home, before: AuditReport, config: JudgeConfig) -> AuditReport:
    """Judge a run as its campaign did, into a log that is gone afterwards.

    How many validation examples rank an attempt is as it was: earlier audits asked for none.
    """
    log = LedgerApplication.in_memory(REGISTRY)
    needed = before.config.get("min_validation_examples", 1)
    report = audit_run(
        before.run_id,
        ledger_dir=home.ledger,
        submission_dir=home.submission(before.run_id),
        config=replace(config, min_validation_examples=needed),
        log=log,
        named=named_policy,
    )
    assert report.audit_id is not None, "the ledger was verified"
    again = read_verdict(log, report.audit_id)
    if before.found > sum(before.by_kind().values()):  # earlier versions recorded the first only
        first = again.violations[: len(before.violations)]
        return replace(again, violations=first, unlisted={}, total=again.found)
    return again


def _verdict(report: AuditReport) -> dict[str, Any]:
    """Return what of a verdict does not depend on when it was given."""
    return {
        "scores": asdict(report.scores),
        "steps": {step.name: step.status for step in report.steps},
        "violations": [violation.to_dict() for violation in report.violations],
        "found": report.found,
        "unlisted": dict(report.unlisted),
    }


def _is_audit(audit: list[VerifiedEntry], run_id: str, run: list[VerifiedEntry]) -> bool:
    """Return whether it is a whole audit of the run as it is, begun after the run had ended."""
    started = REGISTRY.readable("audit.started", audit[0].body) if audit else None
    judged = (started or {}).get("judged")  # an older audit names no state of the run
    named = judged.get("entry") if isinstance(judged, dict) else None
    return (
        bool(run)
        and bool(audit)
        and audited_run(audit[0]) == run_id
        and audit[-1].name == "audit.scored"
        and audit[0].index > run[-1].index
        and run[-1].name == "run.ended"
        and (judged is None or named == run[-1].entry_hash.hex())
    )


def _campaign_of(ledger: VerifiedLedger, name: str | None) -> list[Any]:
    """Return the events of a run's campaign, none if it has none here."""
    starts = ledger.select(names=["campaign.started"])
    for campaign in [each.stream_id for each in starts if str(each.stream_id) == name]:
        return decode_events(read_streams(ledger, {campaign})[campaign])
    return []


def _promoted(events: list[Any]) -> frozenset[str]:
    """Return the texts of a model's advice that were in force at some time: at first, none."""
    proposed: dict[int, str] = {}
    texts = {""}
    for event in events:
        if type(event) is Advice.Proposed:
            proposed[event.version] = event.text
        elif type(event) is Advice.RoundEnded and event.outcome == "promoted":
            texts.add(proposed.get(event.version or 0, ""))
    return frozenset(texts)
