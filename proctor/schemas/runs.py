"""Shapes of the commands that train, judge, compare and show runs.

I/O: none.
"""

from typing import Annotated, Any, TypedDict

from proctor.runs.story import PARTS
from proctor.schemas.ledger import Verification
from proctor.schemas.making import columns
from proctor.schemas.shared import Difference, Number

Summary = Annotated[
    dict[str, Any],
    columns("Summary", "A run: a row of run_summary.", "SELECT * FROM run_summary"),
]
TaskSummary = Annotated[
    dict[str, Any],
    columns(
        "TaskSummary",
        "A run of a task: a row of run_summary, with the best value of the task's metric.",
        "SELECT *, '' AS metric, CAST(0 AS DOUBLE) AS best_val_metric FROM run_summary",
    ),
]
ProvocationRow = Annotated[
    dict[str, Any], columns("ProvocationRow", "A provoked fault.", PARTS["provocations"][1])
]
EpochRow = Annotated[
    dict[str, Any], columns("EpochRow", "An epoch: a row of epochs.", PARTS["epochs"][1])
]
RuleRow = Annotated[
    dict[str, Any], columns("RuleRow", "A rule in an epoch, by rule_heatmap.", PARTS["rules"][1])
]
DecisionRow = Annotated[
    dict[str, Any],
    columns("DecisionRow", "A decision: a row of decision_outcomes.", PARTS["decisions"][1]),
]
StepRow = Annotated[
    dict[str, Any], columns("StepRow", "A step of an audit.", PARTS["audit_steps"][1])
]
ViolationRow = Annotated[
    dict[str, Any], columns("ViolationRow", "A violation.", PARTS["violations"][1])
]
AuditRow = Annotated[
    dict[str, Any],
    columns(
        "AuditRow",
        "An audit that does not count: newer, or of other files than the run submitted.",
        PARTS["other_audits"][1],
    ),
]
BegunRow = Annotated[
    dict[str, Any],
    columns("BegunRow", "An audit that was begun and not ended.", PARTS["begun_audits"][1]),
]
MisplacedRow = Annotated[
    dict[str, Any],
    columns(
        "MisplacedRow",
        "Entries where a run or an audit has none, by misplaced_entries.",
        PARTS["misplaced"][1],
    ),
]
Cell = Annotated[
    dict[str, Any],
    columns("Cell", "A run, by comparison_cells.", "SELECT * FROM comparison_cells"),
]
Draw = Annotated[
    dict[str, Any],
    columns(
        "Draw",
        "A run that asks what a cell asks, by comparison_draws.",
        "SELECT * FROM comparison_draws",
    ),
]


AttemptDraw = Annotated[
    dict[str, Any],
    columns(
        "AttemptDraw",
        "A run that asks what a campaign asks, by campaign_draws.",
        "SELECT * FROM campaign_draws",
    ),
]


class Relative(TypedDict):
    """A fork of a run, or the run that a fork goes on from."""

    run: str
    epoch: int  # the last one that both share


class Story(TypedDict):
    """What `show` tells of a run."""

    summary: Summary
    fork_of: Relative | None
    forks: list[Relative]
    provocations: list[ProvocationRow]
    epochs: list[EpochRow]
    rules: list[RuleRow]
    decisions: list[DecisionRow]
    audit_steps: list[StepRow]
    violations: list[ViolationRow]
    begun_audits: list[BegunRow]
    misplaced: list[MisplacedRow]
    other_audits: list[AuditRow]
    waived: dict[str, str]  # rule -> reason


class Trained(TypedDict):
    """Runs that were trained, the best first."""

    runs: list[Summary]


class TrainedTask(TypedDict):
    """A run of a task that was trained."""

    runs: list[TaskSummary]


class Scores(TypedDict):
    """The two scores and the values that they were computed from."""

    hard_fail: bool
    accuracy_score: Number | None
    process_score: Number
    process_axis_exercised: bool
    test_accuracy: Number | None
    validation_accuracy: Number | None
    target_accuracy: Number | None
    obligations: int
    decisions: int


class StepResult(TypedDict):
    """A step of an audit."""

    step: int
    name: str
    status: str
    summary: str
    evidence: dict[str, Any]


class Violation(TypedDict):
    """A violation of the process rules."""

    kind: str
    rule: str | None
    epoch: int | None
    decision: int | None
    emitter: str
    detail: str


class Audit(TypedDict):
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
    retrained: Number


class Demo(TypedDict):
    """What `demo` did."""

    run: str
    audit: Audit
    verification: Verification


class RunState(TypedDict):
    """The state of a run after an event."""

    run: str
    events: int
    epoch: int
    ended: str | None
    settings: dict[str, Any]
    spec: dict[str, Any]
    signals: dict[str, Any] | None
    fired: list[str]
    decisions: int
    remedies: list[dict[str, Any]]
    weights: dict[str, dict[str, Any]]  # kind -> epoch and SHA-256
    parent_run: str | None


class CampaignState(TypedDict):
    """The state of a campaign after an event."""

    campaign: str
    events: int
    mode: str
    runs: list[str]
    abandoned: list[str]
    ranking: list[str] | None


class RebuiltState(TypedDict):
    """A training state that was rebuilt."""

    epoch: int
    sha256: str
    since: int | None  # epoch of the snapshot; None: from the start
    epochs: int  # trained for it
    values: int  # compared with the record
    size: int  # bytes


class Rebuilt(RebuiltState):
    """A run's training state after an epoch."""

    run: str
    file: str | None


class RunAgain(TypedDict):
    """A run that was trained again; exit code 1 unless it is the same."""

    run_id: str
    epochs: int
    whole: bool
    events: int
    values: int
    total: int
    differences: list[Difference]
    environment: list[Difference]
    kind: list[str]
    same: bool
    calls: int
    policy: list[Difference]


class CutOff(TypedDict):
    """An attempt that was cut off and made again."""

    run: str
    state: str | None
    epochs: int
    best_validation_accuracy: Number | None


class CampaignAgain(TypedDict):
    """A campaign that was trained again; exit code 1 unless it is the same."""

    campaign: str
    mode: str
    same: bool
    attempts: list[RunAgain]
    ranking: list[str]
    abandoned: list[CutOff]
    differences: list[Difference]


class ComparisonState(TypedDict):
    """The state of a comparison after an event."""

    comparison: str
    events: int
    runs: dict[str, str]  # by cell
    done: dict[str, str | None]  # problem, by cell
    ended: bool


class ComparisonAgain(TypedDict):
    """A comparison that was trained again; exit code 1 unless it is the same."""

    comparison: str
    same: bool
    runs: list[RunAgain]
    differences: list[Difference]


class ForkEnding(TypedDict):
    """What a fork came to."""

    run: str
    end_reason: str | None
    epochs: int
    val_loss: Number
    val_accuracy: Number


class ForkRow(ForkEnding):
    """A fork with who decided in it."""

    decided_by: str
    order: int


class Forked(RebuiltState):
    """Forks of a run."""

    parent: str
    digest: str
    forks: list[ForkRow]


class Interval(TypedDict):
    """A mean difference with the ends of its interval."""

    difference: Number | None
    low: Number | None
    high: Number | None


class CreditRow(TypedDict):
    """A decision beside one alternative."""

    decision: int
    epoch: int
    rules: list[str]
    arm: str
    chosen: dict[str, Any]
    other: dict[str, Any]
    pairs: int
    level: Number
    loss: Interval
    accuracy: Interval
    better: str | None  # by all measurements of the same
    backed: bool
    why_not: str | None  # why it decides nothing; null: it is the answer
    measurements: int  # of the same, in the ledger
    looks: int  # of them, with other orders or another policy after the decision
    orders: int  # in the largest of them


class CreditFork(ForkEnding):
    """A fork of a credit."""

    decision: int
    arm: str
    seed: int
    obligations: int
    violations: int


class Credit(TypedDict):
    """What decisions were worth; exit code 1 if the ledger's forks contradict a row."""

    credit: str
    run: str
    then: str
    seeds: list[int]
    decisions: list[CreditRow]
    forks: list[CreditFork]


class Attempt(TypedDict):
    """An attempt of a campaign."""

    number: int
    rank: int | None
    run: str
    state: str | None
    epochs: int
    hard_fail: bool | None
    process_score: Number | None
    accuracy_score: Number | None
    validation_accuracy: Number | None
    validation_examples: int | None
    violations: int | None
    audit: str | None
    signed: bool | None
    retrained: Number | None
    why_not: list[str]  # the run is not what the campaign says; empty: it is
    calls: int
    tokens: int
    cost: Number | None


class Spent(TypedDict):
    """What calls to models have come to."""

    calls: int
    tokens: int
    cost: Number | None


class Campaign(TypedDict):
    """A campaign with its attempts; exit code 1 if an attempt does not fit its run."""

    mode: str
    campaign: str
    policy: dict[str, Any]
    feedback: bool
    ended: bool
    attempts: list[Attempt]
    ranking: list[str]
    recorded_ranking: list[str]
    abandoned: list[CutOff]
    draws: list[AttemptDraw]  # further runs that ask the same, which have no place
    calls: int
    usable: int
    tokens: int
    cost: Number | None
    tuning: Spent  # of these calls, those that wrote and tested advice


class Standing(TypedDict):
    """A policy's row in a comparison."""

    policy: str
    cells: int
    failed: int
    accuracy: Number
    process: Number
    firings: Number
    exercised: int
    gain: Number | None
    low: Number | None
    high: Number | None
    process_gain: Number | None
    process_low: Number | None
    process_high: Number | None
    wins: int | None
    ties: int | None
    applied: int
    refused: int
    unusable: int


class Recovered(TypedDict):
    """How much of a fault's cost a policy won back, beside the condition `healthy`."""

    condition: str
    policy: str
    seeds: int
    lost: Number  # test accuracy
    share: Number | None
    low: Number | None
    high: Number | None


class Comparison(TypedDict):
    """A comparison of policies; exit code 1 if a cell does not fit its run."""

    comparison: str
    standings: list[Standing]
    conditions: dict[str, list[Standing]]
    cells: list[Cell]
    draws: list[Draw]  # further runs of the same cells, which no figure contains
    recovered: list[Recovered]  # empty without the condition `healthy` and the policy `nothing`


class CallTotals(TypedDict):
    """What the calls to a model came to."""

    calls: int
    usable: int
    usable_share: Number | None
    cached: int
    tokens: int
    seconds: Number
    cost: Number | None
    request_bytes: list[Number] | None  # least, median, most


class Transcript(TypedDict):
    """What a run asked of models, people and the playbook."""

    run: str
    mode: str
    policy: dict[str, Any]
    summary: CallTotals
    calls: list[dict[str, Any]]  # as the events record them, see events.md
    votes: list[dict[str, Any]]
    reviews: list[dict[str, Any]]


class TranscriptCall(TypedDict):
    """A call of a transcript, with what was sent and answered."""

    call: dict[str, Any]  # as the events record it, see events.md
    request_text: str | None
    response_text: str | None
