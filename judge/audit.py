"""The audit of a run: eleven steps in strict order, from entries that were verified first.

    1 deliverables   2 load_model      3 weights         4 run_config     5 ledger
    6 architecture   7 probe           8 coverage        9 defensibility
   10 test_accuracy 11 scores

Steps 1 to 7 are gates: behind one that fails, nothing runs. Step 5 is done before all others, since
they compare with what the ledger says and submitted code runs in step 2.

Source: docs/reference/audit.md.
Trust: ledger and submission are hostile; the vkey, the kept head and the log are the caller's.
I/O: reads the ledger, the submission and the dataset; starts one process; appends to the log.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import duckdb

from aggregates.audit import STEPS, Audit
from aggregates.errors import SpecError
from aggregates.run import OWN_ENDS, Run
from aggregates.spec import ModelSpec
from judge import own_model
from judge.config import JudgeConfig
from judge.coverage import Coverage, Violation, install_views, measure_coverage
from judge.defensibility import find_indefensible, repeated_words
from judge.errors import JudgeError, SandboxError, StepError
from judge.evidence import Evidence, parse_run_id, read_evidence
from judge.reexecution import reexecute
from judge.replay import Replay, SavedWeights, decode_events, replay_run
from judge.report import MAX_SUMMARY, AuditReport, Scores, StepResult, capped, recordable
from judge.sandbox import Examination, examine
from judge.scores import accuracy_score, choose_target, process_score
from judge.submission import (
    Submission,
    read_submission,
    verify_contract,
    verify_hashes,
    verify_run_config,
    verify_weights,
)
from ledger.entries import AuthorKey
from ledger.errors import VerificationError
from ledger.mapper import decode_body
from ledger.verified_entries import VerifiedEntry
from monitor.datasets import Splits
from monitor.environment import describe_environment
from monitor.errors import ConfigurationError
from monitor.loop import Policy
from monitor.model import ResidualCNN
from projections.errors import ProjectionError
from projections.projector import create_schema, project

_MAX_VIOLATIONS = 150  # in the audit's last event; its evidence has the total


class AuditLog(Protocol):
    """Where audits are kept: the ledger's application."""

    def save(self, audit: Audit, /, **options: Any) -> Any:
        """Append the events of the audit; with `author`, a key that signs them."""


@dataclass(frozen=True)
class Redo:
    """How a run is trained again: who answers for its policy, and how far behind its weights."""

    policy: Callable[[Run], Policy]  # from the recorded decisions
    draw: Callable[[int], int] = secrets.randbelow  # how many epochs more, below the number left


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

    With `redo`, step 7 also trains the run again, up to the submitted weights and on to an epoch
    that nobody could foresee. Without, a story that was made up whole may pass.

    Whatever is wrong with the run is in the report. Nothing is appended where the ledger does not
    hold, or where the run has not ended: JudgeError says so if there is a `log`. It is raised too
    where no audit can be made (no such run, no data), and LedgerError where there is no ledger.
    """
    config = config or JudgeConfig()
    run = parse_run_id(run_id)
    try:
        evidence = read_evidence(ledger_dir, run, config, vkey=vkey, kept_head=kept_head)
    except VerificationError as error:
        failed = StepError(
            f"the ledger does not hold: {error}", index=error.index, error=type(error).__name__
        )
        return _Hearing(run, config, submission_dir, None).refuse(failed)
    if log is not None and not any(entry.name == "run.ended" for entry in evidence.entries):
        raise JudgeError(f"run {run} has a start and no end: it can be judged when it has ended")
    report = _Hearing(run, config, submission_dir, evidence, redo).judge()
    if log is None or not evidence.verified:
        return report
    audit = _record(report)
    log.save(audit, **({} if author is None else {"author": author}))
    return replace(report, audit_id=str(audit.id))


@dataclass(frozen=True)
class _Outcome:
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    status: str = "passed"


class _Hearing:
    """One audit on its way: each step leaves what the later ones need."""

    replay: Replay
    submission: Submission
    examination: Examination
    saved: SavedWeights
    model: ResidualCNN
    splits: Splits
    coverage: Coverage
    test: dict[str, Any]

    def __init__(
        self,
        run: UUID,
        config: JudgeConfig,
        directory: Path,
        ledger: Evidence | None,
        redo: Redo | None = None,
    ) -> None:
        self.redo = redo
        self.run = run
        self.config = config
        self.directory = directory
        self.ledger = ledger
        self.environment = describe_environment(threads=1, device="cpu")
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

    def judge(self) -> AuditReport:
        """Go through the steps."""
        try:
            outcome = self._ledger()
        except StepError as error:
            return self.refuse(error)
        steps: tuple[Callable[[], _Outcome], ...] = (
            self._deliverables,
            self._load_model,
            self._weights,
            self._run_config,
            lambda: outcome,
            self._architecture,
            self._probe,
            self._coverage,
            self._defensibility,
            self._test_accuracy,
            self._score,
        )
        with own_model.computing_as(self.replay.config.threads):
            for name, step in zip(STEPS, steps, strict=True):
                if name != "ledger" and any(r.status == "failed" for r in self.results):
                    self._add(name, _Outcome("an earlier step did not hold", status="not_run"))
                    continue
                try:
                    self._add(name, step())
                except StepError as error:
                    self._add(name, _failure(error))
        return self._report()

    def refuse(self, error: StepError) -> AuditReport:
        """Report that step 5, done before all others, does not hold."""
        for name in STEPS:
            self._add(
                name,
                _failure(error)
                if name == "ledger"
                else _Outcome("the ledger did not hold", status="not_run"),
            )
        return self._report()

    def _add(self, name: str, outcome: _Outcome) -> None:
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
            tree_head=self.ledger.tree_head if self.ledger else None,
            config=self.config.to_dict(),
            environment=self.environment,
            steps=tuple(self.results),
            scores=self.scores,
            violations=tuple(self.violations),
        )

    # Step 1
    def _deliverables(self) -> _Outcome:
        self.submission = read_submission(self.directory, config=self.config)
        if self.config.checks("deliverable_hashes"):
            verify_hashes(self.submission, self.replay.deliverables)
        ignored = self.submission.ignored
        return _Outcome(
            "all three files are there"
            + (f"; {len(ignored)} others are ignored" if ignored else ""),
            {"sha256": dict(self.submission.hashes), "ignored": capped(ignored)},
        )

    # Step 2
    def _load_model(self) -> _Outcome:
        head = self.ledger.tree_head if self.ledger else None
        self.batch = own_model.fixed_batch(str(head), str(self.run))
        self.examination = examine(
            self.submission.model, self.submission.weights, self.batch, config=self.config
        )
        said = {"isolation": self.examination.isolation, "printed": self.examination.printed}
        if not self.examination.passed("load"):
            raise SandboxError(f"load_model() does not work: {self.examination.problem}", **said)
        saved = self.replay.submitted
        if saved is not None and self.config.checks("contract"):
            verify_contract(saved.spec, self.examination)
        return _Outcome("load_model() returns a model of the kind that is asked for", said)

    # Step 3
    def _weights(self) -> _Outcome:
        saved = self.replay.submitted
        verify_weights(self.submission, saved, hashed=self.config.checks("weights_hash"))
        assert saved is not None, "verify_weights() has looked"
        self._verify_saved(saved)
        self.saved = saved
        if not self.examination.passed("weights"):
            raise SandboxError(f"the weights do not load: {self.examination.problem}")
        return _Outcome(
            f"the weights are those saved as {saved.kind} in epoch {saved.epoch}",
            {"sha256": saved.sha256, "kind": saved.kind, "epoch": saved.epoch},
        )

    def _verify_saved(self, saved: SavedWeights) -> None:
        reason, size = self.replay.run.end_reason, len(self.submission.weights)
        if self.config.checks("measurements") and saved.kind == "last" and reason not in OWN_ENDS:
            raise StepError(
                f"the run ended as {reason}: its last weights are of no end that it came to, and "
                "it has no best ones"
            )
        if self.config.checks("weights_hash") and saved.size != size:
            raise StepError(f"the weights are recorded with {saved.size} bytes and have {size}")

    # Step 4
    def _run_config(self) -> _Outcome:
        if self.config.checks("config_record"):
            verify_run_config(self.submission, self.replay, self.saved)
        return _Outcome("run_config.json says what the ledger says")

    # Step 5, done first
    def _ledger(self) -> _Outcome:
        assert self.ledger is not None
        entries = self.ledger.entries
        self.replay = replay_run(entries, config=self.config)
        self.coverage = _project_coverage(entries, str(self.run))
        epochs = len(self.replay.measured)
        return _Outcome(
            f"{self.ledger.size} entries hold, and the rules of {epochs} epochs were evaluated "
            "again with the same outcome",
            {
                "verified": self.ledger.verified,
                "entries": self.ledger.size,
                "entries_of_run": len(entries),
                "epochs": epochs,
                "end": self.replay.run.end_reason,
            },
        )

    # Step 6
    def _architecture(self) -> _Outcome:
        if self.config.checks("architecture"):
            problems = [*self._initial_spec_problems(), *self.replay.spec_problems]
            if problems:
                raise StepError(
                    f"the architecture does not follow: {problems[0]}", problems=capped(problems)
                )
        self.model = own_model.build_model(self.saved, self.submission.weights)
        if self.config.checks("architecture"):
            own_model.verify_architecture(self.model, self.examination)
        deviation = None
        if self.config.checks("logits"):
            if not self.examination.passed("logits"):
                raise SandboxError(f"the model does not compute: {self.examination.problem}")
            deviation = own_model.verify_logits(
                self.model, self.batch, self.examination, tolerance=self.config.logits_tolerance
            )
        return _Outcome(
            "the submitted model is the one that the edits lead to, and computes the same",
            {"spec": self.saved.spec.to_dict(), "logits_deviation": deviation},
        )

    def _initial_spec_problems(self) -> list[str]:
        assert self.ledger is not None
        started, parent = self.replay.started, self.ledger.parent
        if started.parent_run is not None and not parent:
            return [f"the parent run {started.parent_run} is not in the ledger"]
        restarts = [
            decode_body(entry.body)["spec"]
            for entry in parent
            if entry.name == "run.restart_scheduled"
        ]
        try:
            expected = (
                ModelSpec.from_dict(restarts[-1])
                if restarts
                else self.replay.config.spec(len(started.data["classes"]))
            )
        except (ConfigurationError, SpecError, KeyError, TypeError) as error:
            return [f"no first specification can be derived: {error}"]
        if ModelSpec.from_dict(started.spec) != expected:
            whose = "the parent run's restart" if restarts else "the configuration"
            return [f"the run begins with another model than {whose} says"]
        return []

    # Step 7
    def _probe(self) -> _Outcome:
        self.splits = own_model.load_data(self.replay.config)
        own_model.verify_data(self.splits, self.replay.started.data)
        if self.replay.started.data.get("sizes") != dict(self.splits.sizes):
            raise StepError("the data here is not what the run records: sizes differ")
        alike = own_model.same_kind(self.replay.started.environment, self.environment)
        tolerance = self.config.probe_tolerance if alike else self.config.probe_tolerance_elsewhere
        evidence: dict[str, Any] = {"same_kind_of_machine": alike, "tolerance": tolerance}
        measured = self.replay.measured[self.saved.epoch]
        if self.config.checks("probe"):
            found = own_model.compare_probe(
                self.model, self.splits, self.saved, tolerance=tolerance
            )
            norms = found.pop("layer_norms")
            evidence["probe"] = found
            evidence["epoch_mean"] = own_model.epoch_mean_comparison(norms, measured)
        if self.config.checks("validation") and self._weights_are_as_measured():
            evidence["validation"] = own_model.compare_validation(
                self.model, self.splits, measured, tolerance=tolerance
            )
        summary = "gradient norms, loss and accuracy of the weights are those that were logged"
        done = evidence["executed"] = self._execute(alike=alike)
        if self.redo is None:
            return _Outcome(f"{summary}; nothing was trained again", evidence)
        again = f"{done.get('epochs', 0)} epochs were trained again"
        if not done["done"]:
            again += f", which proves nothing: {done['reason']}"
        return _Outcome(f"{summary}; {again}", evidence)

    def _execute(self, *, alike: bool) -> dict[str, Any]:
        """Train again, as far as the submitted weights at least; what differs was never made.

        On another kind of machine it is evidence that gates nothing.
        """
        assert self.ledger is not None
        if self.redo is None:
            return {"done": False, "reason": "nothing was trained again"}
        until = len(self.replay.measured) - 1
        if self.saved.kind == "best":
            until = self.saved.epoch + self.redo.draw(until + 1 - self.saved.epoch)
        reason = "" if alike else "the run was made on another kind of machine"
        try:
            found = reexecute(
                decode_events(self.ledger.entries),
                self.redo.policy(self.replay.run),
                until_epoch=until,
            )
        except JudgeError as error:
            if alike:
                raise StepError(str(error)) from error
            return {"done": False, "reason": f"{reason}, and {error}"}
        evidence = {
            "done": alike,
            "reason": reason,
            "epochs": found.epochs,
            "values": found.values,
            "differ": found.total,
            "first": found.differences[0].to_dict() if found.differences else None,
        }
        if alike and not found.same:
            raise StepError(
                f"trained again, {found.total} of {found.values} values differ from the record",
                executed=evidence,
            )
        return evidence

    def _weights_are_as_measured(self) -> bool:
        """Return whether no remedy lies between the epoch's measurement and the save."""
        return self.saved.kind == "best" or all(
            remedy.epoch != self.saved.epoch for remedy in self.replay.run.remedies
        )

    # Step 8
    def _coverage(self) -> _Outcome:
        self.violations += self.coverage.violations
        return _violations_outcome(
            self.coverage.violations,
            f"{self.coverage.answered} of {self.coverage.obligations} firings were answered",
            obligations=self.coverage.obligations,
            answered=self.coverage.answered,
            rules_answered=list(self.coverage.rules_answered),
        )

    # Step 9
    def _defensibility(self) -> _Outcome:
        run = self.replay.run
        found = find_indefensible(run, self.replay.settings_at)
        self.violations += found
        return _violations_outcome(
            found,
            f"{len(run.decisions)} decisions were looked at",
            decisions=len(run.decisions),
            repeated_justifications=repeated_words(run),
        )

    # Step 10
    def _test_accuracy(self) -> _Outcome:
        self.test = own_model.measure_test_accuracy(self.model, self.replay)
        images = self.test["examples"]
        few = images < self.config.min_test_examples
        return _Outcome(
            f"top-1 accuracy on the test set is {self.test['accuracy']:.4f}, of {images} images"
            + (": too few to tell models apart" if few else ""),
            {**self.test, "few": few},
        )

    # Step 11
    def _score(self) -> _Outcome:
        coverage, own = self.coverage, self.replay.config.target_accuracy
        target, whose = choose_target(own, self.saved.spec.classes, self.config)
        measured = self.replay.measured[self.saved.epoch]
        exercised = (
            len(coverage.rules_answered) >= self.config.min_exercised_rules
            and coverage.tested >= self.config.min_firings
            and coverage.remedied
        )
        self.scores = Scores(
            hard_fail=False,
            accuracy_score=accuracy_score(self.test["accuracy"], target),
            process_score=process_score(len(self.violations), coverage.obligations),
            process_axis_exercised=exercised,
            test_accuracy=self.test["accuracy"],
            validation_accuracy=measured["validation"]["accuracy"],
            target_accuracy=target,
            obligations=coverage.obligations,
            decisions=len(self.replay.run.decisions),
        )
        emitters = {violation.emitter for violation in self.violations}
        return _Outcome(
            f"accuracy {self.scores.accuracy_score:.3f} of the target {target:g} ({whose}), "
            f"process {self.scores.process_score:.3f}"
            + ("" if exercised else " (hardly exercised)"),
            {
                "target_accuracy": target,
                "target_from": whose,
                "target_of_run": own,
                "violations": len(self.violations),
                "by_emitter": {
                    emitter: sum(v.emitter == emitter for v in self.violations)
                    for emitter in sorted(emitters)
                },
            },
        )


def _project_coverage(entries: Sequence[VerifiedEntry], run_id: str) -> Coverage:
    """Build the tables of this run alone, in memory, and ask the coverage views."""
    with duckdb.connect(":memory:") as connection:
        create_schema(connection)
        try:
            # Numbered anew: a projection wants the entries from the first on, without a gap.
            project(connection, [replace(e, index=n) for n, e in enumerate(entries)])
        except ProjectionError as error:
            raise StepError(f"the run's entries do not fit the tables: {error}") from error
        install_views(connection)
        return measure_coverage(connection, run_id)


def _failure(error: StepError) -> _Outcome:
    return _Outcome(str(error), error.evidence, status="failed")


def _violations_outcome(violations: Sequence[Violation], summary: str, **evidence: Any) -> _Outcome:
    count = len(violations)
    words = "no violation" if not count else f"{count} violation{'s' * (count > 1)}"
    return _Outcome(
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
