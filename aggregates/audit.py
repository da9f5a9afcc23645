"""The audit: eleven steps over one run and one tree head, in strict order, then two scores.

I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import Annotated, Any
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Event, First, OneOf, Since, begins, counted, records
from aggregates.violations import shared_out

STEPS = (
    "deliverables",
    "load_model",
    "weights",
    "run_config",
    "ledger",
    "architecture",
    "probe",
    "coverage",
    "defensibility",
    "test_accuracy",
    "scores",
)
GATES = 7  # steps 1 to 7 fail hard
REVISION = 4  # of the judge's checks; higher where an audit notices more than those before
NOT_POSSIBLE = "not_possible"  # at the level of evidence that the run has
STATUSES = ("failed", NOT_POSSIBLE, "not_run", "passed", "violations")


def unchecked(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the judge says that it could not check, a line each, from the audit's steps.

    A name that a task gives may be in it; in several lines it could look like our own.
    """
    shown = [step.get("evidence") for step in steps]
    found = [each.get("unchecked") for each in shown if isinstance(each, Mapping)]
    parts = [part for part in found if isinstance(part, list | tuple)]
    return [" ".join(str(each).split()) for part in parts for each in part]


class Audit(Aggregate):
    """One judgment of one run, rebuilt from its events."""

    class Started(First):
        """The run and the state that an audit judges.

        It is appended before the first step, the other events of the audit together after the last
        one. The view `audits` is easier to query.
        """

        _: KW_ONLY
        run: str  # the judged run
        tree_head: str  # the signed tree head that the judged entries were verified against
        # the judge's settings, with `disabled`: checks that an earlier version left out
        config: Mapping[str, Any]
        environment: Mapping[str, Any]  # versions and machine of the judge
        # the state of the run that is judged: hash and version of its last entry, version of its
        # transcript, hashes of its files; null: an older audit, which was not bound to a state
        judged: Annotated[Mapping[str, Any] | None, Since(2, None)] = None
        audit_id: InitVar[UUID | None] = None

    class StepCompleted(Event):
        """The outcome of one of the eleven steps of an audit."""

        step: int = counted(after="statuses")  # 1 to 11; the first seven fail hard
        name: str  # the step's name
        status: Annotated[str, OneOf("a step's status", STATUSES)]
        summary: str  # one line
        evidence: Mapping[str, Any]

        def check(self, _: "Audit") -> None:
            if self.step > len(STEPS) or STEPS[self.step - 1] != self.name:
                raise InvariantError(
                    f"audit step {self.name!r} is out of order: {self.step - 1} steps were recorded"
                )

        def apply(self, audit: "Audit") -> None:
            audit.statuses.append(self.status)

    class Scored(Event):
        """The two scores of an audit, and whether the second was put to the test.

        A hard fail leaves nothing of either score.
        """

        ENDS = "audit {aggregate.id} is already scored"
        _: KW_ONLY
        # true if a gate (steps 1 to 7) failed; both scores are then 0
        hard_fail: bool = counted("hard_fail")
        accuracy_score: float | None  # 0 to 1, saturating at the target accuracy
        process_score: float  # 0 to 1
        process_axis_exercised: bool  # whether enough rules fired and were answered
        # accuracy on the split that only the judge reads; null if step 10 was not run
        test_accuracy: float | None
        # accuracy of the submitted weights; best-of-N selects by it
        validation_accuracy: float | None
        obligations: int  # episodes of firings, and violated firings; in older audits each firing
        decisions: int  # decisions that were made
        # the first 150, each with kind, rule, epoch, decision, emitter and detail
        violations: Sequence[Mapping[str, Any]]
        # the others, in groups; null in version 1
        further: Annotated[Sequence[Mapping[str, Any]] | None, Since(2, None)] = counted(
            default=None
        )

        def check(self, audit: "Audit") -> dict[str, Any]:
            """List the first violations, and put the others into groups."""
            if len(audit.statuses) != len(STEPS):
                raise InvariantError("the scores can be recorded only after step 11")
            if self.hard_fail and (self.accuracy_score or self.process_score):
                raise InvariantError(
                    "an audit that ended in a hard fail must record both scores as 0"
                )
            listed, further = shared_out(self.violations)
            return {"violations": listed, "further": further}

    run: str
    statuses: list[str] = field(default_factory=list)
    ended: str | None = None

    start = begins(Started)
    complete_step = records(StepCompleted)
    score = records(Scored)

    @property
    def hard_fail(self) -> bool:
        """Whether a gate, one of the steps 1 to 7, did not hold."""
        return any(status in ("failed", "not_run") for status in self.statuses[:GATES])
