"""The audit of a run: eleven steps in strict order, over verified entries.

    1 deliverables   2 load_model      3 weights         4 run_config     5 ledger
    6 architecture   7 probe           8 coverage        9 defensibility
   10 test_accuracy 11 scores

Steps 1 to 7 are gates: after one fails, no further step runs. Step 5 runs before all others, since
they compare with the ledger, and submitted code runs in step 2.

Source: docs/reference/audit.md.
Trust: ledger and submission are hostile; the vkey, the kept head and the log are the caller's.
I/O: reads the ledger and the test set; that of judge/auditing/gates.py; appends to the log.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.audit import NOT_POSSIBLE, STEPS, Audit
from aggregates.spec import WatchedModel
from judge.auditing.asked_again import Named, ask_again
from judge.auditing.coverage import Violation
from judge.auditing.defensibility import find_excessive, find_indefensible, repeated_words
from judge.auditing.gates import Accuracies, Gates, Redo
from judge.auditing.outcomes import StepOutcome, failure, performed
from judge.auditing.record import RunRecord, parse_run_id, read_record, told
from judge.auditing.report import (
    MAX_SUMMARY,
    AuditReport,
    Scores,
    StepResult,
    UnrecordedError,
    capped,
    recordable,
    recordable_evidence,
)
from judge.auditing.scores import accuracy_score, choose_target, process_score
from judge.auditing.task_gates import TaskGates
from judge.config import JudgeConfig
from judge.errors import JudgeError, StepError
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import LedgerError, VerificationError
from ledger.wording import counted
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.environment import describe_environment

# Why a step says nothing of a run whose code and data are not on record.
_WHY_NOT = {
    "deliverables": "what is in the files of a watched loop is not known",
    "load_model": "the model's code is not on record",
    "weights": "the loop keeps its weights",
    "run_config": "the loop's settings are not on record",
    "architecture": "the model's code is not on record",
    "probe": "neither code nor data are on record, so nothing can be measured or trained again",
    "test_accuracy": "the judge has neither the model nor a test set",
}


def audit_run(
    run_id: UUID | str,
    *,
    ledger_dir: Path,
    submission_dir: Path,
    config: JudgeConfig | None = None,
    log: LedgerApplication | None = None,
    author: AuthorKey | None = None,
    vkey: str | None = None,
    kept_head: str | None = None,
    redo: Redo | None = None,
    named: Named | None = None,
) -> AuditReport:
    """Verify the ledger, then do as audit_record(); a report too where the ledger is not valid.

    Raises JudgeError if the run is not found, and LedgerError if the ledger is not found.
    """
    config = config or JudgeConfig()
    run = parse_run_id(run_id)
    try:
        record = read_record(ledger_dir, run, vkey=vkey, kept_head=kept_head)
    except VerificationError as error:
        return refuse(run, str(error), index=error.index, kind=type(error).__name__, config=config)
    return audit_record(
        record,
        submission_dir=submission_dir,
        config=config,
        log=log,
        author=author,
        redo=redo,
        named=named,
    )


def audit_record(
    record: RunRecord,
    *,
    submission_dir: Path,
    config: JudgeConfig | None = None,
    log: LedgerApplication | None = None,
    author: AuthorKey | None = None,
    redo: Redo | None = None,
    named: Named | None = None,
) -> AuditReport:
    """Judge a run by its verified record and its submission, and append the audit to `log`.

    With a judge's key as its `author` the audit is signed: its start, which names the state of the
    run that is judged, its steps and its scores. The start is appended before the first step, so
    that an audit that was begun and did not end is on record.

    With `redo`, step 7 also retrains the run, up to the submitted weights and on to an epoch that
    nobody could foresee. Without it, a fully invented record may pass. With `named`, step 9 asks
    the policy that the run names again; without it, anybody may have decided in its name.

    Everything that is wrong with the run is in the report. If the run has not ended nothing is
    appended: with a `log`, JudgeError is raised then. It is also raised if the data is not found.
    Raises UnrecordedError, which has the report, if only the start could be appended.
    """
    if log is not None and not record.ended:
        raise JudgeError(
            f"run {record.run} has not ended: it has no run.ended event. Judge it later"
        )
    config = config or JudgeConfig()
    said = told(record.entries[0], "config")  # of which step 5 checks all
    kind = TaskGates if isinstance(said, Mapping) and "task" in said else Gates
    gates = kind(record.run, config, record=record, directory=submission_dir, redo=redo)
    hearing = _Hearing(gates, named)
    if log is None:
        return hearing.perform()
    audit = Audit.start(
        run=str(record.run),
        tree_head=record.tree_head or "",
        config=hearing.settings,
        environment=hearing.gates.environment,
        judged=record.judged,
    )
    log.save(audit, author=author)
    report = hearing.perform()
    _complete(audit, report)
    try:
        log.save(audit, author=author)
    except LedgerError as error:
        raise UnrecordedError(report, error) from error
    return replace(report, audit_id=str(audit.id))


def refuse(
    run: UUID, problem: str, *, index: int | None, kind: str, config: JudgeConfig | None
) -> AuditReport:
    """Report that a ledger is not valid: step 5, which runs before all others, fails."""
    failed = StepError(f"the ledger is not valid: {problem}", index=index, error=kind)
    return AuditReport(
        run_id=str(run),
        config=(config or JudgeConfig()).to_dict(),
        environment=describe_environment(RunConfig()),
        steps=_steps({"ledger": failure(failed)}),
    )


def _steps(outcomes: Mapping[str, StepOutcome]) -> tuple[StepResult, ...]:
    skipped = StepOutcome("skipped: the ledger is not valid", status="not_run")
    found = ((name, outcomes.get(name, skipped)) for name in STEPS)
    return tuple(
        StepResult(
            step=number,
            name=name,
            status=outcome.status,
            summary=recordable(outcome.summary, limit=MAX_SUMMARY),
            evidence=recordable_evidence(outcome.evidence),
        )
        for number, (name, outcome) in enumerate(found, start=1)
    )


class _Hearing:
    """An audit in progress: its steps in order, and the scores after the gates."""

    def __init__(self, gates: Gates, named: Named | None) -> None:
        self.gates = gates
        self.named = named
        self.config = gates.config
        self.outcomes: dict[str, StepOutcome] = {}
        self.violations: list[Violation] = []
        self.scores = Scores()

    def perform(self) -> AuditReport:
        """Go through the steps, and return what came of them."""
        self._go_through()
        return AuditReport(
            run_id=str(self.gates.run),
            tree_head=self.gates.record.tree_head,
            config=self.settings,
            environment=self.gates.environment,
            steps=_steps(self.outcomes),
            scores=self.scores,
            violations=tuple(self.violations),
        )

    def _go_through(self) -> None:
        """Take the ledger's step first; after one fails, no further step runs."""
        gates = self.gates
        self._perform("ledger", gates.ledger)
        read = self.outcomes["ledger"]  # and so it is known what is going to be retrained
        evidence = {**read.evidence, "retrains": gates.retrains}
        self.outcomes["ledger"] = replace(read, evidence=evidence)
        if self.outcomes["ledger"].status == "failed":
            return
        steps: dict[str, Callable[[], StepOutcome]] = {
            "deliverables": gates.deliverables,
            "load_model": gates.load_model,
            "weights": gates.weights,
            "run_config": gates.run_config,
            "architecture": gates.architecture,
            "probe": gates.probe,
            "coverage": self._coverage,
            "defensibility": self._defensibility,
            "test_accuracy": gates.test_metric,
            "scores": self._score,
        }
        if gates.replay.watched:
            for name, step in steps.items():
                self._perform(name, partial(self._not_possible, name) if name in _WHY_NOT else step)
            return
        with computing_as(gates.replay.config, strict=False):
            for name, step in steps.items():
                self._perform(name, step)

    def _not_possible(self, name: str) -> StepOutcome:
        level = self.gates.replay.run.level
        return StepOutcome(
            f"not possible at the level {level}: {_WHY_NOT[name]}", status=NOT_POSSIBLE
        )

    def _perform(self, name: str, step: Callable[[], StepOutcome]) -> None:
        if any(outcome.status == "failed" for outcome in self.outcomes.values()):
            outcome = StepOutcome("skipped: an earlier step failed", status="not_run")
        else:
            outcome = performed(step)
        self.outcomes[name] = outcome

    @property
    def settings(self) -> dict[str, Any]:
        """The judge's settings, and the share of the epochs that it was asked to retrain."""
        return {**self.config.to_dict(), "retrains": float(self.gates.redo is not None)}

    # Step 8
    def _coverage(self) -> StepOutcome:
        coverage = self.gates.coverage
        self.violations += coverage.violations
        count, episodes = len(coverage.firings), coverage.episodes
        excused, waived = coverage.excused, coverage.waived
        needed = " that needed an answer" if excused or waived else ""
        others = (
            f" ({count + excused + waived} fired: {excused} could be put off for a good reason, "
            f"{waived} are of waived rules)"
        )
        return _violations_outcome(
            coverage.violations,
            f"{coverage.answered} of {count} firings{needed} were answered"
            + (f", in {episodes} episode{'s' * (episodes != 1)}" if count else "")
            + (others if needed else ""),
            firings=count,
            excused=excused,
            waived=waived,
            answered=coverage.answered,
            episodes=episodes,
            rules_answered=list(coverage.rules_answered),
        )

    # Step 9
    def _defensibility(self) -> StepOutcome:
        replay = self.gates.replay
        run = replay.run
        again, differing, asked = ask_again(
            replay,
            self.named,
            fork=self.gates.fork,
            parent=self.gates.record.forked,
            environment=self.gates.environment,
        )
        found = [
            *find_indefensible(run, replay.settings_at),
            *find_excessive(replay),
            *differing,
        ]
        self.violations += found
        return _violations_outcome(
            found,
            f"{counted(len(run.decisions), 'decision')} checked{again}",
            **asked,
            decisions=len(run.decisions),
            repeated_justifications=repeated_words(run),
        )

    def _provocation(self) -> dict[str, Any] | None:
        """Return the fault that was put into the run, if its rules fired and were answered."""
        fault = self.gates.replay.config.fault
        if fault is None:
            return None
        answered = [rule for rule in fault.expects if rule in self.gates.coverage.rules_answered]
        told = {"name": fault.name, "seed": fault.seed, "expects": list(fault.expects)}
        return {**told, "answered": answered} if answered else None

    def _why_unexercised(self) -> str | None:
        """Return why the process score says little about the policy, None if it was exercised."""
        spec = self.gates.replay.spec
        if isinstance(spec, WatchedModel) and not spec.offers:
            return "the loop was only observed, and no policy decided"
        return self.gates.coverage.why_unexercised(
            firings=self.config.min_firings, rules=self.config.min_exercised_rules
        )

    # Step 11
    def _score(self) -> StepOutcome:
        """Score the decisions, and the accuracy where the judge has measured one."""
        gates, run = self.gates, self.gates.replay.run
        unexercised = self._why_unexercised()
        obligations = gates.coverage.obligations(self.violations)
        self.scores = Scores(
            hard_fail=False,
            accuracy_score=None,
            process_score=process_score(len(self.violations), obligations),
            process_axis_exercised=unexercised is None,
            obligations=obligations,
            decisions=len(run.decisions),
        )
        evidence: dict[str, Any] = {
            "unexercised": unexercised,
            "violations": len(self.violations),
            "by_emitter": dict(sorted(Counter(each.emitter for each in self.violations).items())),
        }
        found = None if gates.replay.watched else gates.accuracies()
        words = "no accuracy score"
        if isinstance(found, Accuracies):
            target, whose = choose_target(found.own_target, found.classes, self.config)
            score = accuracy_score(found.test, target)
            self.scores = replace(
                self.scores,
                accuracy_score=score,
                test_accuracy=found.test,
                validation_accuracy=found.validation,
                target_accuracy=target,
            )
            words = f"accuracy {score:.3f} of the target {target:g} ({whose})"
            evidence["validation_examples"] = found.examples
        elif found is not None:
            words = found
        words += f", process {self.scores.process_score:.3f}"
        exercised = "" if unexercised is None else f" (unexercised: {unexercised})"
        if gates.replay.watched or gates.replay.is_task:
            return StepOutcome(
                f"level {run.level}: {words}{exercised}", {"level": run.level, **evidence}
            )
        assert isinstance(found, Accuracies), "of a model of ours"
        provocation = self._provocation()
        if provocation and not exercised:
            exercised = f" (exercised by the provocation {provocation['name']})"
        few = found.examples < self.config.min_validation_examples
        return StepOutcome(
            f"{words}{exercised}; validation accuracy on {counted(found.examples, 'example')}"
            + (" (too few to rank attempts by it)" if few else ""),
            {
                **evidence,
                "provocation": provocation,
                "target_accuracy": target,
                "target_from": whose,
                "target_of_run": found.own_target,
            },
        )


def _violations_outcome(
    violations: Sequence[Violation], summary: str, **evidence: Any
) -> StepOutcome:
    count = len(violations)
    words = "no violations" if not count else f"{count} violation{'s' * (count > 1)}"
    return StepOutcome(
        f"{summary}: {words}",
        {**evidence, "violations": capped([violation.to_dict() for violation in violations])},
        status="violations" if violations else "passed",
    )


def _complete(audit: Audit, report: AuditReport) -> None:
    """Add the steps and the scores to an audit that was begun."""
    for step in report.steps:
        audit.complete_step(step.name, step.status, summary=step.summary, evidence=step.evidence)
    scores = asdict(report.scores)
    audit.score(
        **{name: scores[name] for name in scores if name not in ("hard_fail", "target_accuracy")},
        violations=[recordable(violation.to_dict()) for violation in report.violations],
    )
