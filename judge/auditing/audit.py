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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from aggregates.audit import STEPS, Audit
from judge.auditing import own_model
from judge.auditing.coverage import Violation
from judge.auditing.defensibility import find_indefensible, repeated_words
from judge.auditing.evidence import Evidence, parse_run_id, read_evidence
from judge.auditing.gates import Gates, Redo, StepOutcome
from judge.auditing.report import MAX_SUMMARY, AuditReport, Scores, StepResult, capped, recordable
from judge.auditing.scores import accuracy_score, choose_target, process_score
from judge.config import JudgeConfig
from judge.errors import JudgeError, StepError
from ledger.entries import AuthorKey
from ledger.errors import VerificationError
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.environment import describe_environment

_MAX_VIOLATIONS = 150  # in the audit's last event; its evidence has the total


class AuditLog(Protocol):
    """Where audits are stored: the ledger's application."""

    def save(self, audit: Audit, /, **options: Any) -> Any:
        """Append the events of the audit; with `author`, a key that signs them."""


def audit_run(
    run_id: UUID | str,
    *,
    ledger_dir: Path,
    submission_dir: Path,
    config: JudgeConfig | None = None,
    log: AuditLog | None = None,
    author: AuthorKey | None = None,
    vkey: str | None = None,
    kept_head: str | None = None,
    redo: Redo | None = None,
) -> AuditReport:
    """Judge a run by its ledger and its submission, and append the audit to `log`.

    With a judge's key as its `author` the audit is signed, steps and scores.

    With `redo`, step 7 also retrains the run, up to the submitted weights and on to an epoch that
    nobody could foresee. Without it, a fully invented record may pass.

    Everything that is wrong with the run is in the report. Nothing is appended if the ledger is not
    valid, or if the run has not ended: with a `log`, JudgeError is raised then. It is also raised
    if no audit is possible (run or data not found), and LedgerError if the ledger is not found.
    """
    config = config or JudgeConfig()
    run = parse_run_id(run_id)
    try:
        evidence = read_evidence(ledger_dir, run, config, vkey=vkey, kept_head=kept_head)
    except VerificationError as error:
        failed = StepError(
            f"the ledger is not valid: {error}", index=error.index, error=type(error).__name__
        )
        return _Hearing(run, config).refuse(failed)
    if log is not None and not any(entry.name == "run.ended" for entry in evidence.entries):
        raise JudgeError(f"run {run} has no run.ended event: judge it after it has ended")
    report = _Hearing(run, config).judge(evidence, submission_dir, redo)
    if log is None or not evidence.verified:
        return report
    audit = _record(report)
    log.save(audit, **({} if author is None else {"author": author}))
    return replace(report, audit_id=str(audit.id))


class _Hearing:
    """An audit in progress: its steps in order, and the scores after the gates."""

    gates: Gates
    test: dict[str, Any]

    def __init__(self, run: UUID, config: JudgeConfig) -> None:
        self.run = run
        self.config = config
        self.tree_head: str | None = None
        self.environment: Mapping[str, Any] = describe_environment(RunConfig())
        self.results: list[StepResult] = []
        self.violations: list[Violation] = []
        self.scores = Scores(
            hard_fail=True,
            accuracy_score=0.0,
            process_score=0.0,
            process_axis_exercised=False,
            test_accuracy=None,
            validation_accuracy=None,
            target_accuracy=None,
            obligations=0,
            decisions=0,
        )

    def judge(self, evidence: Evidence, directory: Path, redo: Redo | None) -> AuditReport:
        """Go through the steps."""
        self.tree_head = evidence.tree_head
        gates = self.gates = Gates(
            self.run,
            self.config,
            evidence=evidence,
            directory=directory,
            redo=redo,
        )
        try:
            outcome = gates.ledger()
        except StepError as error:
            return self.refuse(error)
        self.environment = gates.environment
        steps: tuple[Callable[[], StepOutcome], ...] = (
            gates.deliverables,
            gates.load_model,
            gates.weights,
            gates.run_config,
            lambda: outcome,
            gates.architecture,
            gates.probe,
            self._coverage,
            self._defensibility,
            self._test_accuracy,
            self._score,
        )
        with computing_as(gates.replay.config, strict=False):
            for name, step in zip(STEPS, steps, strict=True):
                if name != "ledger" and any(r.status == "failed" for r in self.results):
                    self._add(
                        name, StepOutcome("skipped: an earlier step failed", status="not_run")
                    )
                    continue
                try:
                    self._add(name, step())
                except StepError as error:
                    self._add(name, _failure(error))
        return self._report()

    def refuse(self, error: StepError) -> AuditReport:
        """Report that step 5, which runs before all others, failed."""
        for name in STEPS:
            self._add(
                name,
                _failure(error)
                if name == "ledger"
                else StepOutcome("skipped: the ledger is not valid", status="not_run"),
            )
        return self._report()

    def _add(self, name: str, outcome: StepOutcome) -> None:
        self.results.append(
            StepResult(
                step=len(self.results) + 1,
                name=name,
                status=outcome.status,
                summary=recordable(outcome.summary, limit=MAX_SUMMARY),
                evidence=recordable(outcome.evidence),
            )
        )

    def _report(self) -> AuditReport:
        return AuditReport(
            run_id=str(self.run),
            audit_id=None,
            tree_head=self.tree_head,
            config=self.config.to_dict(),
            environment=self.environment,
            steps=tuple(self.results),
            scores=self.scores,
            violations=tuple(self.violations),
        )

    # Step 8
    def _coverage(self) -> StepOutcome:
        coverage = self.gates.coverage
        self.violations += coverage.violations
        return _violations_outcome(
            coverage.violations,
            f"{coverage.answered} of {coverage.obligations} obligations were answered",
            obligations=coverage.obligations,
            answered=coverage.answered,
            rules_answered=list(coverage.rules_answered),
        )

    # Step 9
    def _defensibility(self) -> StepOutcome:
        replay = self.gates.replay
        run = replay.run
        found = find_indefensible(run, replay.settings_at)
        self.violations += found
        return _violations_outcome(
            found,
            f"{len(run.decisions)} decisions checked",
            decisions=len(run.decisions),
            repeated_justifications=repeated_words(run),
        )

    # Step 10
    def _test_accuracy(self) -> StepOutcome:
        self.test = own_model.measure_test_accuracy(
            self.gates.model, self.gates.replay, self.config
        )
        images = self.test["examples"]
        few = images < self.config.min_test_examples
        return StepOutcome(
            f"top-1 accuracy on {images} test images: {self.test['accuracy']:.4f}"
            + (" (too few images to compare models)" if few else ""),
            {**self.test, "few": few},
        )

    def _provocation(self) -> dict[str, Any] | None:
        """Return the fault that was put into the run, if its rules fired and were answered."""
        fault = self.gates.replay.config.fault
        if fault is None:
            return None
        answered = [rule for rule in fault.expects if rule in self.gates.coverage.rules_answered]
        told = {"name": fault.name, "seed": fault.seed, "expects": list(fault.expects)}
        return {**told, "answered": answered} if answered else None

    # Step 11
    def _score(self) -> StepOutcome:
        coverage, replay, saved = self.gates.coverage, self.gates.replay, self.gates.saved
        own = replay.config.target_accuracy
        target, whose = choose_target(own, saved.spec.classes, self.config)
        measured = replay.measured[saved.epoch]
        exercised = (
            len(coverage.rules_answered) >= self.config.min_exercised_rules
            and coverage.tested >= self.config.min_firings
            and coverage.remedied
        )
        provocation = self._provocation()
        by = f" (exercised by the provocation {provocation['name']})" if provocation else ""
        self.scores = Scores(
            hard_fail=False,
            accuracy_score=accuracy_score(self.test["accuracy"], target),
            process_score=process_score(len(self.violations), coverage.obligations),
            process_axis_exercised=exercised,
            test_accuracy=self.test["accuracy"],
            validation_accuracy=measured["validation"]["accuracy"],
            target_accuracy=target,
            obligations=coverage.obligations,
            decisions=len(replay.run.decisions),
        )
        examples = len(self.gates.splits.validation)
        few = examples < self.config.min_validation_examples
        emitters = {violation.emitter for violation in self.violations}
        return StepOutcome(
            f"accuracy {self.scores.accuracy_score:.3f} of the target {target:g} ({whose}), "
            f"process {self.scores.process_score:.3f}"
            + (by if exercised else " (too few rules exercised)")
            + f"; validation accuracy on {examples} examples"
            + (" (too few to rank attempts by it)" if few else ""),
            {
                "provocation": provocation,
                "target_accuracy": target,
                "target_from": whose,
                "target_of_run": own,
                "validation_examples": examples,
                "violations": len(self.violations),
                "by_emitter": {
                    emitter: sum(v.emitter == emitter for v in self.violations)
                    for emitter in sorted(emitters)
                },
            },
        )


def _failure(error: StepError) -> StepOutcome:
    return StepOutcome(str(error), error.evidence, status="failed")


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


def _record(report: AuditReport) -> Audit:
    """Return the audit as events."""
    audit = Audit.start(
        run=report.run_id,
        tree_head=report.tree_head or "",
        config=report.config,
        environment=report.environment,
    )
    for step in report.steps:
        audit.complete_step(step.name, step.status, summary=step.summary, evidence=step.evidence)
    scores = report.scores
    audit.score(
        accuracy_score=scores.accuracy_score,
        process_score=scores.process_score,
        process_axis_exercised=scores.process_axis_exercised,
        test_accuracy=scores.test_accuracy,
        validation_accuracy=scores.validation_accuracy,
        obligations=scores.obligations,
        decisions=scores.decisions,
        violations=[
            recordable(violation.to_dict()) for violation in report.violations[:_MAX_VIOLATIONS]
        ],
    )
    return audit
