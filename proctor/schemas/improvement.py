"""Shapes of the commands that change a repository under the gauntlet, and tune advice.

I/O: none.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from aggregates.improvement.line import Alarm
from proctor.schemas.making import columns
from proctor.schemas.shared import Number, Tally

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


class ChainLink(TypedDict):
    """A checkpoint of a line."""

    checkpoint: str
    parent: str | None
    commit: str
    proposals: list[str]
    active: bool
    rolled_back: str | None


class Proposal(TypedDict):
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


class Queued(Proposal):
    """A proposal with what it waits for."""

    waits_for: str | None


class Carried(Proposal):
    """A proposal with what an operator signs."""

    line: str
    subjects: dict[str, str]


class TaskResult(TypedDict):
    """What one answer to a reference task was worth."""

    task_id: str
    arm: str
    repeat: int
    seed: int
    success: bool
    validation_failures: int
    metrics: dict[str, Number]
    problem: str | None
    isolation: list[str]
    missing: bool
    cached: bool


class WholeProposal(Proposal):
    """A proposal with its diff and its results."""

    text: str
    results: list[TaskResult]


class Line(TypedDict):
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


class Deviation(TypedDict):
    """Why a branch is not what it should be."""

    kind: str
    detail: str
    tasks: list[str]


class Measurement(TypedDict):
    """Shares of tasks that checkpoint and branch answer; exit code 1 on an alarm."""

    commit: str
    checkpoint: str
    shares: dict[str, tuple[Number, Number]]  # set -> checkpoint's, branch's
    alarms: list[Deviation]


class Gap(TypedDict):
    """How many tasks of each difficulty a category has."""

    category: str
    easy: int
    medium: int
    hard: int


class Anchor(TypedDict):
    """A task that found a regression."""

    task: str
    because: list[str]
    in_set: bool
    admitted: bool
    sha256: str | None


class WrittenNames(TypedDict):
    """Files or tasks that were written."""

    written: list[str]


class Folder(TypedDict):
    """A folder that was written."""

    folder: str


class DemoStep(TypedDict):
    """A step of the demonstration."""

    what: str
    as_it_should: bool
    found: str
    id: str | None
    entries: list[int]


class GauntletDemo(TypedDict):
    """The demonstration; exit code 1 unless it held."""

    line: str
    repository: str
    held: bool
    steps: list[DemoStep]


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


class Candidates(TypedDict):
    """Situations that are decided wrongly; exit code 1 if there are any."""

    tried: int
    kept: list[str]
    folder: str


class Rollback(TypedDict):
    """What was rolled back, and what is active now."""

    checkpoint: str
    reached: list[str]
    to: str
    commit: str
    branch_at: str
    advice: str | None


class Salvaged(TypedDict):
    """What became of a change that was rolled back with a culprit."""

    checkpoint: str
    original: str
    proposal: str | None
    outcome: str | None
    what: str


class RolledBack(Rollback):
    """A rollback by a person; exit code 1 if the branch is not moved."""

    runs: int
    salvaged: list[Salvaged]


class Probe(TypedDict):
    """A probe of a search."""

    number: int
    checkpoint: str | None
    verdict: str


class Likely(TypedDict):
    """A suspect with its probability."""

    number: int
    checkpoint: str | None
    probability: Number


class Search(TypedDict):
    """A bisection; exit code 1 if a culprit is found."""

    bisection: str
    good: str
    suspects: int
    error: Number
    confidence: Number
    probes: list[Probe]
    likeliest: list[Likely]
    candidates: list[str | None]
    posterior: Number
    at_least: bool
    false_alarms: Number | None
    missed: Number | None
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
    mean: Number | None
    sd: Number | None
    sd_at_most: Number | None
    reference: Number | None
    siblings_needed: int | None
    values: list[Number]


class Point(TypedDict):
    """An evaluation of a checkpoint."""

    checkpoint: str
    value: Number
    again: list[Number]  # what later evaluations said
    complexity: Number | None
    sum: Number


class Finding(TypedDict):
    """What a chart says."""

    kind: str
    detail: str


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


class EvolutionRound(TypedDict):
    """A round of an evolution."""

    round: int
    outcome: str
    proposal: str | None
    technique: str | None
    pattern: str | None
    reason: str


class EvolutionReport(TypedDict):
    """Rounds of an evolution; exit code 1 if the line stopped."""

    line: str
    on: bool
    rounds: int
    left: int
    stopped: str | None
    head: str
    ended: list[EvolutionRound]
    faults: list[Fault]
    scoreboard: dict[str, Tally]


class AdviceRound(TypedDict):
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
