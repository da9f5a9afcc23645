"""The audit: eleven steps over one run and one tree head, in strict order, then two scores.

I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
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

    class Started(Aggregate.Created):
        """Which run is judged, in which state, over which signed tree head, by which settings.

        `judged` names the state: the hash and the version of the run's last entry, the version of
        its transcript, the hashes of its deliverables. None: an audit that was not bound to one.
        """

        run: str
        tree_head: str
        config: dict[str, Any]
        environment: dict[str, Any]
        judged: dict[str, Any] | None

    class StepCompleted(Aggregate.Event):
        """One step's outcome with its evidence."""

        step: int
        name: str
        status: str
        summary: str
        evidence: dict[str, Any]

        def apply(self, aggregate: "Audit") -> None:
            """Count the step."""
            aggregate.statuses.append(self.status)

    class Scored(Aggregate.Event):
        """Two scores that do not trade, and whether the second was put to the test."""

        hard_fail: bool
        accuracy_score: float | None  # None: not possible at the run's level of evidence
        process_score: float
        process_axis_exercised: bool
        test_accuracy: float | None
        validation_accuracy: float | None
        obligations: int
        decisions: int
        violations: list[dict[str, Any]]
        further: list[dict[str, Any]] | None = None  # in groups; None: earlier versions had none

        def apply(self, aggregate: "Audit") -> None:
            """Close the audit."""
            aggregate.scored = True

    def __init__(
        self,
        run: str,
        tree_head: str,
        config: dict[str, Any],
        environment: dict[str, Any],
        judged: dict[str, Any] | None,
    ) -> None:
        self.run = run
        self.tree_head = tree_head
        self.config = config
        self.environment = environment
        self.judged = judged
        self.statuses: list[str] = []
        self.scored = False

    @classmethod
    def start(
        cls,
        *,
        run: str,
        tree_head: str,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
        judged: Mapping[str, Any] | None = None,
        audit_id: UUID | None = None,
    ) -> "Audit":
        """Open an audit over the ledger as `tree_head` signs it, and the run as `judged` says."""
        return cls._create(
            event_class=cls.Started,
            id=audit_id or uuid4(),
            run=run,
            tree_head=tree_head,
            config=dict(config),
            environment=dict(environment),
            judged=None if judged is None else dict(judged),
        )

    @property
    def hard_fail(self) -> bool:
        """Whether a gate, one of the steps 1 to 7, did not hold."""
        return any(status in ("failed", "not_run") for status in self.statuses[:GATES])

    def complete_step(
        self, name: str, status: str, *, summary: str, evidence: Mapping[str, Any]
    ) -> None:
        """Record the next step; behind a failed gate nothing but `not_run` is possible."""
        number = len(self.statuses) + 1
        if self.scored or number > len(STEPS) or STEPS[number - 1] != name:
            raise InvariantError(
                f"audit step {name!r} is out of order: {number - 1} steps were recorded"
            )
        if status not in STATUSES:
            raise InvariantError(
                f"a step's status must be one of {', '.join(STATUSES)}, not {status!r}"
            )
        self.trigger_event(
            self.StepCompleted,
            step=number,
            name=name,
            status=status,
            summary=summary,
            evidence=dict(evidence),
        )

    def score(
        self,
        *,
        accuracy_score: float | None,
        process_score: float,
        process_axis_exercised: bool,
        test_accuracy: float | None,
        validation_accuracy: float | None,
        obligations: int,
        decisions: int,
        violations: Sequence[Mapping[str, Any]],
    ) -> None:
        """Record the scores and all violations; a hard fail leaves nothing of either score."""
        if self.scored or len(self.statuses) != len(STEPS):
            raise InvariantError("the scores can be recorded only once, and only after step 11")
        if self.hard_fail and (accuracy_score or process_score):
            raise InvariantError("an audit that ended in a hard fail must record both scores as 0")
        listed, further = shared_out(violations)
        self.trigger_event(
            self.Scored,
            hard_fail=self.hard_fail,
            accuracy_score=accuracy_score,
            process_score=process_score,
            process_axis_exercised=process_axis_exercised,
            test_accuracy=test_accuracy,
            validation_accuracy=validation_accuracy,
            obligations=obligations,
            decisions=decisions,
            violations=listed,
            further=further,
        )


def without_judged(body: dict[str, Any]) -> dict[str, Any]:
    """Lift the start of version 1 to 2: it was not bound to a state of the run."""
    return {**body, "judged": None}
