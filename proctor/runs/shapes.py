"""Shapes of the commands that train, judge, compare and show runs.

I/O: none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import UUID

from aggregates.credit import Interval
from aggregates.run import Run
from judge.auditing.coverage import Violation
from judge.auditing.report import Scores, StepResult
from judge.compare import Difference
from proctor.output.entries import Verification
from proctor.output.shape import Answer, columns
from proctor.runs.fixed import Fixed
from proctor.runs.standings import By, Recovered, Standing
from proctor.runs.story import PARTS
from proctor.runs.worth import Worth

Row = dict[str, Any]  # with the columns of a question
Summary = Annotated[
    Row, columns("Summary", "A run: a row of run_summary.", "SELECT * FROM run_summary")
]
ProvocationRow = Annotated[
    Row, columns("ProvocationRow", "A provoked fault.", PARTS["provocations"])
]
EpochRow = Annotated[
    Row, columns("EpochRow", "A row of epochs, with its epoch_metrics.", PARTS["epochs"])
]
RuleRow = Annotated[Row, columns("RuleRow", "A rule in an epoch, by rule_heatmap.", PARTS["rules"])]
DecisionRow = Annotated[
    Row, columns("DecisionRow", "A decision: a row of decision_outcomes.", PARTS["decisions"])
]
StepRow = Annotated[Row, columns("StepRow", "A step of an audit.", PARTS["audit_steps"])]
ViolationRow = Annotated[Row, columns("ViolationRow", "A violation.", PARTS["violations"])]
AuditRow = Annotated[
    Row,
    columns(
        "AuditRow",
        "An audit that does not count: newer, or of other files than the run submitted.",
        PARTS["other_audits"],
    ),
]
BegunRow = Annotated[
    Row, columns("BegunRow", "An audit that was begun and not ended.", PARTS["begun_audits"])
]
MisplacedRow = Annotated[
    Row,
    columns(
        "MisplacedRow",
        "Entries where a run or an audit has none, by misplaced_entries.",
        PARTS["misplaced"],
    ),
]
RefusedRow = Annotated[
    Row, columns("RefusedRow", "The first call of those refused to the end.", PARTS["refused"])
]
Cell = Annotated[
    Row, columns("Cell", "A run, by comparison_cells.", "SELECT * FROM comparison_cells")
]
Draw = Annotated[
    Row,
    columns(
        "Draw",
        "A run that asks what a cell asks, by comparison_draws.",
        "SELECT * FROM comparison_draws",
    ),
]
AttemptDraw = Annotated[
    Row,
    columns(
        "AttemptDraw",
        "A run that asks what a campaign asks, by campaign_draws.",
        "SELECT * FROM campaign_draws",
    ),
]


class Relative(Answer):
    """A fork of a run."""

    run: str
    epoch: int  # the last one that both share


class Origin(Relative):
    """The run that another goes on from."""

    resumed: bool  # in a watched loop, from its own checkpoint


class SavedFile(Answer):
    """The newest file of a name that a watched loop saved."""

    epoch: int
    name: str
    sha256: str


class Story(Answer):
    """What `show` tells of a run."""

    summary: Summary
    fork_of: Origin | None
    forks: list[Relative]
    files: list[SavedFile]
    provocations: list[ProvocationRow]
    epochs: list[EpochRow]
    rules: list[RuleRow]
    decisions: list[DecisionRow]
    fixed: list[Fixed] | None  # decisions that an epoch follows; null without --witnesses
    worth: list[Worth]  # of the decisions that were measured; empty: none was
    audit_steps: list[StepRow]
    violations: list[ViolationRow]
    begun_audits: list[BegunRow]
    misplaced: list[MisplacedRow]
    refused: list[RefusedRow]  # empty: a model's server answered to the end, or none was asked
    other_audits: list[AuditRow]
    waived: dict[str, str]  # rule -> reason


class Trained(Answer):
    """Runs that were trained, the best first; exit code 1 where a model's server was lost."""

    runs: list[Summary]


class Audit(Answer):
    """The report of an audit; exit code 1 on a hard fail."""

    run_id: str
    audit_id: str | None
    tree_head: str | None
    config: dict[str, Any]
    environment: dict[str, Any]
    steps: list[StepResult]
    scores: Scores
    violations: list[Violation]
    level: str | None
    hard_fail: bool
    process_axis_exercised: bool
    executed: bool
    retrained: float


class Verdict(Answer):
    """The verdict on one of several runs."""

    run_id: str
    hard_fail: bool
    accuracy_score: float | None
    process_score: float
    process_axis_exercised: bool


class Verdicts(Answer):
    """The verdicts on several runs; exit code 1 if a gate failed, or a run cannot be judged."""

    judged: int  # by this command; the others had a verdict
    verdicts: list[Verdict]
    changed: dict[str, str]  # runs that cannot be judged, since their files changed; and how


class Demo(Answer):
    """What `demo` did."""

    run: UUID
    audit: Audit
    verification: Verification


class State(Answer):
    """A run's training state after an epoch."""

    epoch: int
    sha256: str
    since: int | None  # epoch of the snapshot; None: from the start
    epochs: int  # trained for it
    values: int  # compared with the record
    size: int  # bytes


class Rebuilt(State):
    """A run's training state after an epoch, which was rebuilt."""

    run: UUID
    file: Path | None


class ForkRow(Answer):
    """What a fork came to, and who decided in it."""

    decided_by: str
    order: int
    run: str
    end_reason: str | None
    epochs: int
    val_loss: float
    val_accuracy: float


class Forked(State):
    """Forks of a run, and the training state from which they go on."""

    parent: UUID
    digest: str
    forks: list[ForkRow]


class CreditRow(Answer):
    """A decision beside one alternative."""

    decision: int
    epoch: int
    rules: list[str]
    arm: str
    chosen: dict[str, Any]
    other: dict[str, Any]
    pairs: int
    level: float
    loss: Interval
    accuracy: Interval
    backed: bool
    better: str | None  # by all measurements of the same
    why_not: str | None  # why it decides nothing; null: it is the answer
    measurements: int  # of the same, in the ledger
    looks: int  # of them, with other orders or another policy after the decision
    orders: int  # in the largest of them


class CreditFork(Answer):
    """A fork of a credit."""

    decision: int
    arm: str
    seed: int
    run: str
    epochs: int
    end_reason: str | None
    val_loss: float
    val_accuracy: float
    obligations: int
    violations: int


class Credit(Answer):
    """What decisions were worth; exit code 1 if the ledger's forks contradict a row."""

    credit: UUID
    run: UUID
    then: str
    seeds: list[int]
    decisions: list[CreditRow]
    forks: list[CreditFork]


class RunAgain(Answer):
    """A run that was trained again; exit code 1 unless it is the same."""

    run_id: str
    epochs: int  # that were done again
    whole: bool  # up to the run's own end
    events: int  # compared
    values: int  # compared
    total: int  # differences
    differences: Sequence[Difference]  # the first of them
    environment: Sequence[Difference]  # versions, machine and code, then and now
    kind: Sequence[str]  # what of it decides the bits and differs
    same: bool
    calls: int  # to a model, that were checked
    reworded: bool  # their requests were not: an earlier version asked in other words
    policy: Sequence[Difference]  # what does not follow from the answers that are recorded


@dataclass(frozen=True)
class CutOff:
    """An attempt that was cut off and made again: what was made in its place is one more draw."""

    run: str
    state: str | None  # the reason of its run's end; None: it never began
    epochs: int  # that it had measured
    best_validation_accuracy: float | None

    @classmethod
    def read(cls, run: str, events: Iterable[Any]) -> Self:
        """Return what the events of the run tell."""
        state: str | None = None
        measured: list[float] = []
        for event in events:
            if type(event) is Run.EpochMeasured:
                measured.append(event.measured["validation"]["accuracy"])
            elif type(event) is Run.Ended:
                state = event.reason
        return cls(run, state, len(measured), max(measured, default=None))


class CampaignAgain(Answer):
    """A campaign that was trained again; exit code 1 unless it is the same."""

    campaign: str
    mode: str
    same: bool
    attempts: list[RunAgain]
    ranking: list[str]  # as derived again
    abandoned: list[CutOff]  # which are not done again
    differences: list[Difference]  # of starts, feedback, verdicts and the ranking


class ComparisonAgain(Answer):
    """A comparison that was trained again; exit code 1 unless it is the same."""

    comparison: str
    same: bool
    runs: list[RunAgain]  # of its finished cells
    differences: list[Difference]  # of starts and verdicts


class Spent(Answer):
    """What calls to models have come to."""

    calls: int
    tokens: int
    cost: float | None


class Attempt(Spent):
    """An attempt of a campaign."""

    number: int
    rank: int | None
    run: str
    state: str | None
    epochs: int
    hard_fail: bool | None
    process_score: float | None
    accuracy_score: float | None
    validation_accuracy: float | None
    validation_examples: int | None
    violations: int | None
    audit: str | None
    signed: bool | None
    retrained: float | None
    why_not: list[str]  # the run is not what the campaign says; empty: it is


class Campaign(Spent):
    """A campaign with its attempts; exit code 1 if an attempt does not fit its run."""

    mode: str
    campaign: UUID
    policy: dict[str, Any]
    feedback: bool
    ranked_by: str  # process or quality: which axis is compared first
    ended: bool
    attempts: list[Attempt]
    ranking: list[str]
    recorded_ranking: list[str]
    abandoned: list[CutOff]
    draws: list[AttemptDraw]  # further runs that ask the same, which have no place
    usable: int
    tuning: Spent  # of these calls, those that wrote and tested advice


class Comparison(Answer):
    """A comparison of policies; exit code 1 if a cell does not fit its run."""

    comparison: str
    metric: str  # what the runs are compared by
    better: str  # which values of it are: higher or lower
    by: By  # what the rows of `standings` are: conditions if there is one policy
    standings: list[Standing]
    conditions: dict[str, list[Standing]]  # the rows of each; empty by condition
    cells: list[Cell]
    draws: list[Draw]  # further runs of the same cells, which no figure contains
    recovered: list[Recovered]  # empty without the condition `healthy` and the policy `nothing`


class CallTotals(Answer):
    """What the calls to a model came to."""

    calls: int
    usable: int
    usable_share: float | None
    cached: int
    tokens: int
    prompt_tokens: int | None  # null: no server told
    cached_tokens: int | None  # of the prompt
    completion_tokens: int | None
    reasoning_tokens: int | None  # of the completion
    seconds: float
    cost: float | None
    request_bytes: list[float] | None  # least, median, most


class Transcript(Answer):
    """What a run asked of models, people and the playbook."""

    run: UUID
    mode: str
    policy: dict[str, Any]
    summary: CallTotals
    calls: list[dict[str, Any]]  # as the events record them, see events.md
    votes: list[dict[str, Any]]
    reviews: list[dict[str, Any]]


class TranscriptCall(Answer):
    """A call of a transcript, with what was sent and answered."""

    call: dict[str, Any]  # as the event records it, see events.md
    request_text: str | None
    response_text: str | None
