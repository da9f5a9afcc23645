"""Shapes of the commands that change a repository under the gauntlet, and tune advice.

I/O: none.
"""

from typing import Annotated, Any, NotRequired, Self, TypedDict

from aggregates.improvement.line import Alarm
from aggregates.improvement.proposal import Proposal as Recorded
from judge.drift.watch import Finding
from judge.gauntlet.promotion import Rollback
from judge.gauntlet.tasks.benchmark import TaskResult
from policies.proposing.tuner import Tally
from proctor.output.shape import Answer, columns

LISTED = """
    SELECT
        s.*,
        m.* EXCLUDE (line_id, checkpoint_id, idx, place, rolled_back, proposals),
        m.proposals AS proposals_judged
    FROM checkpoint_standing AS s JOIN checkpoint_metrics AS m USING (line_id, checkpoint_id)
    ORDER BY s.line_id, s.idx"""
TRENDS = "SELECT * FROM metric_trends ORDER BY line_id, metric"
RUNS = """
    SELECT run_id, idx, eligible, why_not, label_active, tainted, tainted_idx, taint_reasons
    FROM run_standing WHERE checkpoint = ? ORDER BY idx"""
PROPOSALS = """
    SELECT p.* FROM proposal_standing AS p
    JOIN checkpoint_proposals AS c USING (proposal_id) WHERE c.checkpoint_id = ? ORDER BY p.idx"""
USES = """
    SELECT u.* FROM tainted_uses AS u
    JOIN run_standing AS s USING (run_id) WHERE s.checkpoint = ? ORDER BY u.idx, u.what"""

Checkpoint = Annotated[
    dict[str, Any],
    columns("Checkpoint", "A checkpoint: a row of checkpoint_standing, with its measures.", LISTED),
]
CheckpointParts = Annotated[
    dict[str, Any],
    columns(
        "CheckpointParts",
        "A checkpoint with its measures, proposals, runs, and uses of tainted runs.",
        "SELECT c.* EXCLUDE (proposals, runs), "  # noqa: S608 - our own questions
        f"(SELECT LIST(p) FROM ({PROPOSALS}) AS p) AS proposals, "
        f"(SELECT LIST(r) FROM ({RUNS}) AS r) AS runs, (SELECT LIST(u) FROM ({USES}) AS u) AS uses "
        f"FROM ({LISTED}) AS c",
    ),
]
Trend = Annotated[
    dict[str, Any],
    columns("Trend", "A measure along the chain, by metric_trends.", TRENDS),
]


Valley = TypedDict(  # steps that are not compared until the last one
    "Valley", {"id": str, "from": str, "steps": list[str], "passed": int, "expires": int}
)


class ChainLink(Answer):
    """A checkpoint of a line."""

    checkpoint: str
    parent: str | None
    commit: str
    proposals: list[str]
    active: bool
    rolled_back: str | None


class Proposal(Answer):
    """A proposal."""

    proposal: str
    tier: int
    targets: dict[str, int]
    proposer: str
    trigger: str
    rationale: str
    evidence: list[dict[str, Any]]
    base: str
    diff: str
    review: str | None
    commit: str | None
    stage: str
    tests_passed: bool | None
    verdict: str | None
    regressions: list[str]
    improvements: list[str]
    outcome: str | None
    reason: str | None
    checkpoint: str | None

    @classmethod
    def told(cls, recorded: Recorded, **more: Any) -> Self:
        """Return what is known of a proposal."""
        own = {"proposal": str(recorded.id), "tests_passed": recorded.tested}
        return cls.of(recorded, **own, **more)


class Queued(Proposal):
    """A proposal with what it waits for."""

    waits_for: str | None


class Carried(Proposal):
    """A proposal with what an operator signs."""

    line: str
    subjects: dict[str, str]


class WholeProposal(Proposal):
    """A proposal with its diff and its results."""

    text: str
    results: list[TaskResult]


class Line(Answer):
    """A line, its chain of checkpoints and its queue."""

    line: str
    branch: str
    head: str
    checkpoint: str
    at_checkpoint: bool
    halted: str | None
    halted_by: str | None
    valley: Valley | None
    alarms: int
    server: dict[str, Any] | None  # the model that answers the tasks for one
    open_alarms: list[Alarm]
    checkpoints: list[ChainLink]
    queue: list[Queued]


class Gap(TypedDict):
    """How many tasks of each difficulty a category has."""

    category: str
    easy: int
    medium: int
    hard: int


class WrittenNames(TypedDict):
    """Files or tasks that were written."""

    written: list[str]


class Folder(TypedDict):
    """A folder that was written."""

    folder: str


class Resumed(TypedDict):
    """A line that goes on."""

    line: str
    resumed: str


class ValleyOpened(TypedDict):
    """A valley that an operator opened."""

    line: str
    steps: list[str]


class Adopted(TypedDict):
    """Commits that became a checkpoint."""

    line: str
    checkpoint: str
    commit: str


class PendingFolder(TypedDict):
    """What waits for an operator, in a folder."""

    folder: str
    proposals: list[str]


class Import(TypedDict):
    """A signature that was imported, or why not."""

    file: str
    proposal: str | None
    review: str | None
    error: str | None


class Signed(TypedDict):
    """Proposals that an operator answered in a folder, without the ledger."""

    signed: str
    proposals: list[str]
    files: list[str]


class Admitted(TypedDict):
    """A task that was let into the reference set."""

    task: str
    sha256: str
    into: str
    found: str


class CarriedTasks(TypedDict):
    """Drafts that were signed in a folder."""

    folder: str
    tasks: list[str]
    sha256: str


class Server(TypedDict):
    """The model that answers a line's tasks."""

    server: dict[str, Any] | None
    not_asked: list[str]


class Drafted(TypedDict):
    """A task that was drafted."""

    task: str
    drafts: str
    files: list[str]
    fails: int
    keeps: int
    left_out: int


class Probe(TypedDict):
    """A probe of a search."""

    number: int
    checkpoint: str | None
    verdict: str


class Likely(TypedDict):
    """A suspect with its probability."""

    number: int
    checkpoint: str | None
    probability: float


class Search(TypedDict):
    """A bisection; exit code 1 if a culprit is found."""

    bisection: str
    good: str
    suspects: int
    error: float
    confidence: float
    probes: list[Probe]
    likeliest: list[Likely]
    candidates: list[str | None]
    posterior: float
    at_least: bool
    false_alarms: float | None
    missed: float | None
    independent: bool | None
    ended: bool
    culprit: str | None
    believed: list[str]
    reason: str | None
    commit: NotRequired[str]
    proposals: NotRequired[list[str]]


class Fault(Search):
    """A search for an older fault."""

    says: str
    revealed_by: str
    tasks: list[str]
    rollback: Rollback | None
    needs_operator: str | None


class NoFault(TypedDict):
    """Nothing reveals an older fault."""


class Baseline(TypedDict):
    """Evaluations of a line's original checkpoint."""

    repeats: int
    tasks: int
    mean: float | None
    sd: float | None
    sd_at_most: float | None
    reference: float | None
    siblings_needed: int | None
    values: list[float]


class Point(Answer):
    """An evaluation of a checkpoint."""

    checkpoint: str
    value: float
    again: list[float]  # what later evaluations said
    complexity: float | None
    sum: float


class Drift(TypedDict):
    """Evaluations of a line and its alarms; exit code 1 while one is open."""

    baseline: Baseline
    points: list[Point]
    raised: list[Finding]
    told: list[Finding]
    open: list[Alarm]
    rollback: Rollback | None
    waits: str | None


class Checkpoints(TypedDict):
    """All checkpoints of the ledger, and the trend of each measure along a chain."""

    checkpoints: list[Checkpoint]
    trends: list[Trend]


class Answered(TypedDict):
    """An alarm that was answered."""

    answered: int
    open: list[Alarm]


class EvolutionRound(Answer):
    """A round of an evolution."""

    round: int
    outcome: str
    proposal: str | None
    technique: str | None
    pattern: str | None
    reason: str


class Used(Answer):
    """What rounds have used; null where it is not known."""

    calls: int
    tokens: int | None
    cost: float | None


class ModelRecord(Used):
    """What a language model has used and achieved on a line."""

    model: str
    rounds: int
    promoted: int


class EvolutionReport(Answer):
    """Rounds of an evolution; exit code 1 if they ended early."""

    line: str
    on: bool
    rounds: int
    left: int
    stopped: str | None
    head: str
    ended: list[EvolutionRound]
    faults: list[Fault]
    scoreboard: dict[str, Tally]
    models: list[ModelRecord]
    used: Used  # by the rounds of this request, in earlier commands too
    seconds: float  # of this command


class AdviceRound(Answer):
    """A round of tuning."""

    round: int
    outcome: str
    technique: str | None
    pattern: str | None
    version: int | None
    reason: str


class Advice(TypedDict):
    """A model's advice block and its rounds."""

    model: str
    on: bool
    version: int
    advice: str
    tainted: list[str]
    rounds: list[AdviceRound]
    scoreboard: dict[str, Tally]
    candidates: list[str]
    own_scenarios: list[str]


class Kept(TypedDict):
    """Scenarios that a model fails; exit code 1 if there are any."""

    model: str
    kept: list[str]
