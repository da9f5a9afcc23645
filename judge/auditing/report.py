"""The result of an audit: eleven steps, two scores and the violations.

I/O: none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.msgpack import encode

from aggregates.audit import GATES, STEPS
from judge.auditing.coverage import Violation
from judge.errors import JudgeError
from ledger.errors import LedgerError

Kind = tuple[str, str | None, str]  # of violations: kind, rule, emitter
MAX_LISTED = 50  # an entry of the ledger has room for so many items of evidence
MAX_TEXT = 200  # bytes of one text in it
MAX_SUMMARY = 500  # bytes
_MAX_EVIDENCE = 48_000  # bytes of a step's, as it is encoded


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step, with its evidence."""

    step: int  # from 1
    name: str
    status: str  # one of aggregates.audit.STATUSES
    summary: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The two scores and the values they were computed from; by default, those of a hard fail."""

    hard_fail: bool = True
    accuracy_score: float | None = 0.0  # None: not possible at the run's level of evidence
    process_score: float = 0.0
    process_axis_exercised: bool = False
    test_accuracy: float | None = None
    validation_accuracy: float | None = None
    target_accuracy: float | None = None
    obligations: int = 0
    decisions: int = 0


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The report of one audit of one run."""

    run_id: str
    audit_id: str | None = None  # None where nothing was appended to the ledger
    tree_head: str | None = None  # the signed note of the state that was judged
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    steps: tuple[StepResult, ...]
    scores: Scores = Scores()
    violations: tuple[Violation, ...] = ()
    unlisted: Mapping[Kind, int] = field(default_factory=dict)  # that a record only counts
    total: int | None = None  # of violations, in a record that neither lists nor counts some

    @property
    def found(self) -> int:
        """How many violations were found, also those that a record does not list."""
        return sum(self.by_kind().values()) if self.total is None else self.total

    def by_kind(self) -> dict[Kind, int]:
        """Return how many violations of each kind are listed or counted."""
        told = Counter((each.kind, each.rule, each.emitter) for each in self.violations)
        return dict(told + Counter(self.unlisted))

    @property
    def hard_fail(self) -> bool:
        """Whether a gate (one of steps 1 to 7) failed or was not run."""
        return any(step.status in ("failed", "not_run") for step in self.steps[:GATES])

    @property
    def process_axis_exercised(self) -> bool:
        """Whether enough rules fired and were answered to make the process score meaningful."""
        return self.scores.process_axis_exercised

    @property
    def retrained(self) -> float:
        """Share of the run's epochs that the judge trained again, from 0 to 1.

        0 where it was not, or where other values say nothing on this machine.
        """
        done = self.step("probe").evidence.get("executed", {})
        epochs = self.step("ledger").evidence.get("epochs")
        again = done.get("epochs") if self.executed else None
        if type(epochs) is not int or type(again) is not int or not 0 < again <= epochs:
            return 0.0
        return again / epochs

    @property
    def executed(self) -> bool:
        """Whether the run was retrained where its values must be identical."""
        done = self.step("probe").evidence.get("executed", {})
        return bool(done.get("done", False))

    @property
    def level(self) -> str | None:
        """What the run is evidence of; None where step 5 failed."""
        found = self.step("ledger").evidence.get("level")
        return None if found is None else str(found)

    def step(self, name: str) -> StepResult:
        """Return the step of that name."""
        return self.steps[STEPS.index(name)]


class UnrecordedError(JudgeError):
    """The audit is done, but its steps and scores could not be appended; `report` has them."""

    def __init__(self, report: AuditReport, error: LedgerError) -> None:
        super().__init__(
            f"the audit of run {report.run_id} is done, but the ledger has only its start: {error}"
        )
        self.report = report


def capped(items: Sequence[Any], limit: int = MAX_LISTED) -> dict[str, Any]:
    """Return the first items of a list of evidence, and how many there are."""
    return {"total": len(items), "first": list(items[:limit])}


def recordable_evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's evidence as one entry can hold it: what takes most is left out first.

    An audit whose end did not fit into the ledger would have no verdict.
    """
    found = {name: recordable(value) for name, value in evidence.items()}
    sizes = {name: len(encode(value)) for name, value in found.items()}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sum(sizes.values()) <= _MAX_EVIDENCE:
            break
        found[name] = {"left_out": f"{sizes[name]:,} bytes"}
        sizes[name] = len(encode(found[name]))
    return found


def recordable(value: Any, *, limit: int = MAX_TEXT) -> Any:
    """Return evidence as an event can hold it: plain, short texts, whole numbers of 64 bits.

    Evidence quotes what hostile files say. `limit` counts bytes, as an entry of the ledger does.
    """
    if isinstance(value, Mapping):
        return {recordable(str(key)): recordable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [recordable(item) for item in value[: 2 * MAX_LISTED]]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    text = str(value)[: limit + 1].encode("utf-8", "replace")
    return text.decode() if len(text) <= limit else text[:limit].decode("utf-8", "ignore") + "..."
