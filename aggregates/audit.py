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
        """Which run is judged, in which state, over which signed tree head, by which settings.

        `judged` names the state: the hash and the version of the run's last entry, the version of
        its transcript, the hashes of its deliverables. None: an audit that was not bound to one.
        """

        _: KW_ONLY
        run: str
        tree_head: str
        config: Mapping[str, Any]
        environment: Mapping[str, Any]
        judged: Annotated[Mapping[str, Any] | None, Since(2, None)] = None
        audit_id: InitVar[UUID | None] = None

    class StepCompleted(Event):
        """One step's outcome with its evidence."""

        step: int = counted(after="statuses")
        name: str
        status: Annotated[str, OneOf("a step's status", STATUSES)]
        summary: str
        evidence: Mapping[str, Any]

        def check(self, audit: "Audit") -> None:
            if audit.scored or self.step > len(STEPS) or STEPS[self.step - 1] != self.name:
                raise InvariantError(
                    f"audit step {self.name!r} is out of order: {self.step - 1} steps were recorded"
                )

        def apply(self, audit: "Audit") -> None:
            audit.statuses.append(self.status)

    class Scored(Event):
        """Two scores that do not trade, and whether the second was put to the test.

        A hard fail leaves nothing of either score.
        """

        _: KW_ONLY
        hard_fail: bool = counted("hard_fail")
        accuracy_score: float | None  # None: not possible at the run's level of evidence
        process_score: float
        process_axis_exercised: bool
        test_accuracy: float | None
        validation_accuracy: float | None
        obligations: int
        decisions: int
        violations: Sequence[Mapping[str, Any]]
        # In groups; None: earlier versions had none.
        further: Annotated[Sequence[Mapping[str, Any]] | None, Since(2, None)] = counted(
            default=None
        )

        def check(self, audit: "Audit") -> dict[str, Any]:
            """List the first violations, and put the others into groups."""
            if audit.scored or len(audit.statuses) != len(STEPS):
                raise InvariantError("the scores can be recorded only once, and only after step 11")
            if self.hard_fail and (self.accuracy_score or self.process_score):
                raise InvariantError(
                    "an audit that ended in a hard fail must record both scores as 0"
                )
            listed, further = shared_out(self.violations)
            return {"violations": listed, "further": further}

        def apply(self, audit: "Audit") -> None:
            audit.scored = True

    run: str
    statuses: list[str] = field(default_factory=list)
    scored: bool = False

    start = begins(Started)
    complete_step = records(StepCompleted)
    score = records(Scored)

    @property
    def hard_fail(self) -> bool:
        """Whether a gate, one of the steps 1 to 7, did not hold."""
        return any(status in ("failed", "not_run") for status in self.statuses[:GATES])
