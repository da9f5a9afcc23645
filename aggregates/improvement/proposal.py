"""The proposal: one change that somebody wants made, and the six stages that it goes through.

Propose, branch, test, benchmark, evaluate, promote or reject; a proposal of tier 1 is reviewed by
an operator between the first and the second. Each stage is an event with its evidence, and what
is rejected stays on record as what is promoted does.

Trust: rationale, names and problems are others' words and are bounded.
I/O: none.  Units: seconds, bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import Annotated, Any
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import (
    Cut,
    Event,
    First,
    Kept,
    KeptAs,
    Long,
    OneOf,
    Since,
    begins,
    counted,
    records,
)

TRIGGERS = ("error_pattern", "operator_request", "performance_regression")
TIERS = (1, 2)  # what touches tier 0 gets no further than its submission
REVIEWS = ("approve", "reject", "revise", "refactor")
APPROVED = ("approve", "refactor")  # the latter: to be promoted if it is shown to be no worse
ARMS = ("base", "candidate")
VERDICTS = ("better", "no worse", "cannot tell", "worse")
OUTCOMES = (
    "halted",  # its tiers were declared wrongly, or it reached for what it must not touch
    "promoted",
    "rejected",
    "superseded",  # the line moved under it
    "withdrawn",
)
STAGES = ("propose", "branch", "test", "benchmark", "evaluate", "conclude")
MAX_TEXT = 4_000  # characters of a rationale, a reason or a note
MAX_PATHS = 1_000


class Proposal(Aggregate):
    """One proposed change, rebuilt from its events."""

    class Submitted(First):
        """A proposed change: what is to change, against which commit, and why."""

        _: KW_ONLY
        line: str  # id of the line's stream
        task: str | None = None  # the task that led to it, or null
        tier: int = counted()  # strictest declared tier of its targets
        targets: Mapping[str, int]  # declared path to tier
        diff: str  # blob of the diff
        diff_bytes: Long
        base: str  # commit that the diff applies to
        base_tree: str  # the tree of that commit
        rationale: str  # the proposer's reason, at most 4,000 characters
        trigger: Annotated[str, OneOf("a trigger", TRIGGERS)]
        proposer: str
        evidence: Sequence[Mapping[str, Any]] = ()  # the evidence that the rationale refers to
        proposal_id: InitVar[UUID | None] = None

        def check(self) -> dict[str, Any]:
            if not self.rationale.strip() or len(self.rationale) > MAX_TEXT:
                raise InvariantError(f"a rationale must have 1 to {MAX_TEXT} characters")
            tiers = self.targets.values()
            if not 1 <= len(tiers) <= MAX_PATHS:
                raise InvariantError(
                    f"a proposal must name 1 to {MAX_PATHS} files with their tiers"
                )
            if any(tier not in (0, *TIERS) for tier in tiers):
                raise InvariantError("a tier must be 0, 1 or 2")
            return {"tier": min(tiers), "targets": dict(sorted(self.targets.items()))}

    class Reviewed(Event):
        """An operator's review of a proposal.

        Whoever records it has checked the envelope.
        """

        verdict: Annotated[str, OneOf("a review", REVIEWS), KeptAs("review")]
        envelope: Kept[str]
        key: str  # of the operator
        expires: Long  # in seconds since 1970
        note: Annotated[Kept[str], Cut(MAX_TEXT)]  # the operator's words

    class Branched(Event):
        """The branch that a proposal's diff was applied to, and what it really changes."""

        branch: Kept[str]  # name of the branch that holds the candidate
        commit: Kept[str]  # the candidate's commit
        tree: str
        changes: Sequence[Mapping[str, Any]]  # paths with the change to each
        tier: Annotated[int, KeptAs("real_tier")]  # strictest tier actually changed
        configuration_only: Kept[bool]  # whether only configuration changes
        manifest: str  # SHA-256 of the base's manifest of tiers
        reference_set: str  # SHA-256 of the base's reference set
        # commit that the candidate is compared with: the base, or the start of a valley
        against: Kept[str]

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("branch")
            if self.tier not in TIERS:
                raise InvariantError(f"a proposal that changes tier {self.tier} gets no branch")

    class Tested(Event):
        """The result of the base's tests on the candidate.

        All of them run, or those that the change can reach.
        """

        passed: Annotated[bool, KeptAs("tested")]  # whether every case of the base passed
        problem: Annotated[Kept[str | None], Cut(MAX_TEXT)]
        cases: int
        missing: Sequence[str]  # cases of the base that did not pass
        added: Sequence[str]  # test files that the proposal adds
        seconds: float
        expected: Kept[str | None]  # SHA-256 of the base's cases with their outcomes
        output: str | None  # blob of the output, or null
        isolation: Sequence[str]
        leftovers: int  # processes that had to be ended
        flaky: Annotated[Sequence[str] | None, Since(2, None)] = ()  # failed, and then passed
        # blob of the candidate's cases with their outcomes; null in version 1
        outcomes: Annotated[Kept[str | None], Since(2, None)] = None
        # test files that have not run yet; empty in versions 1 and 2
        left_out: Annotated[Kept[Sequence[str]], Since(3, ())] = ()
        # why these were left out; null if the manifest lets all tests run at once, and in versions
        # 1 and 2
        choice: Annotated[str | None, Since(3, None)] = None
        # cases of added tests that fail without the change and pass with it; empty in versions 1 to
        # 3
        fixes: Annotated[Kept[Sequence[str]], Since(4, ())] = ()

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("test")

    class RestTested(Event):
        """The result of the tests that were left out, on a candidate that is to be promoted."""

        # whether every case of the base in these files passed
        passed: Annotated[bool, KeptAs("tested")]
        problem: Annotated[Kept[str | None], Cut(MAX_TEXT)]
        cases: int
        missing: Sequence[str]  # cases of the base in these files that did not pass
        seconds: float
        output: str  # SHA-256 of what was printed
        isolation: Sequence[str]
        leftovers: int  # processes that had to be ended
        flaky: Sequence[str]  # cases that failed at first and then passed in every repeated run
        # SHA-256 of the blob that holds all cases of the candidate, from both runs, with their
        # outcomes
        outcomes: str

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("conclude")
            if not proposal.left_out or proposal.verdict is None:
                raise InvariantError("only an evaluated proposal has tests left to run")

        def apply(self, proposal: "Proposal") -> None:
            super().apply(proposal)
            proposal.left_out = ()

    class TaskScored(Event):
        """The answer of one arm to one reference task."""

        arm: Annotated[str, OneOf("an arm", ARMS)]
        task: str  # the reference task
        _: KW_ONLY
        repeat: int  # from 0
        seed: Long  # seed of this repeat, the same in both arms
        success: bool  # whether the answer was right
        validation_failures: int  # number of invalid parts of the answer
        metrics: Mapping[str, float]  # other metrics
        problem: Annotated[str | None, Cut(MAX_TEXT)]
        # whether the result comes from an earlier proposal; only in records of older versions, and
        # such results decide nothing
        cached: bool = counted()
        isolation: Sequence[str]
        # whether there was no answer at all; null: nobody recorded it
        missing: Annotated[bool | None, Since(2, None)] = False
        # until the answer came, from the start of the process
        seconds: Annotated[float | None, Since(3, None)] = None
        # processor time of all its processes; both null in versions 1 and 2, and where there is
        # none
        cpu_seconds: Annotated[float | None, Since(3, None)] = None

        def check(self, proposal: "Proposal") -> dict[str, Any]:
            proposal.verify_stage("benchmark")
            if (self.arm, self.task, self.repeat) in proposal.results:
                raise InvariantError(
                    f"the {self.arm} has already answered repeat {self.repeat} of task {self.task}"
                )
            return {"cached": False}

        def apply(self, proposal: "Proposal") -> None:
            told = {name: getattr(self, name) for name in _RESULT}
            told["missing"] = bool(self.missing)
            proposal.results[self.arm, self.task, self.repeat] = told

    class Evaluated(Event):
        """The comparison of candidate and base, task by task."""

        verdict: Annotated[Kept[str], OneOf("a verdict", VERDICTS)]
        level: float  # error level used for this comparison
        regressions: Kept[Sequence[str]]  # tasks that became worse
        improvements: Kept[Sequence[str]]  # what improved
        reasons: Kept[Sequence[str]]  # reasons of the verdict
        comparisons: Sequence[Mapping[str, Any]]  # comparison of each task

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("benchmark")
            if self.verdict == "better" and (self.regressions or not self.improvements):
                raise InvariantError("the verdict `better` needs an improvement and no regression")
            if self.verdict == "no worse" and (self.regressions or proposal.review != "refactor"):
                raise InvariantError(
                    "the verdict `no worse` needs a signed `refactor` and no regression"
                )

    class Concluded(Event):
        """How a proposal ended, and at which stage."""

        ENDS = "proposal {aggregate.id} is already concluded: {event.outcome}"
        # `promoted`, `rejected`, `halted`, `superseded` (the line has moved on) or `withdrawn`
        outcome: Kept[str]
        _: KW_ONLY
        stage: str  # `propose`, `branch`, `test`, `benchmark`, `evaluate` or `conclude`
        reason: Annotated[Kept[str], Cut(MAX_TEXT)]
        checkpoint: Kept[str | None] = None  # the checkpoint that a promotion made
        valley: str | None = None  # the valley that allowed it without an improvement, else null

        def check(self, proposal: "Proposal") -> None:
            """Let only what passed every stage, or an open valley, be promoted."""
            if self.outcome not in OUTCOMES or self.stage not in STAGES:
                raise InvariantError(
                    f"a proposal cannot end with {self.outcome!r} at stage {self.stage!r}"
                )
            if (self.outcome == "promoted") != (self.checkpoint is not None):
                raise InvariantError("a checkpoint must be given for a promotion, and only then")
            if self.outcome == "promoted":
                proposal.verify_promotable(self.valley)

    line: str
    task: str | None
    tier: int
    targets: dict[str, int]
    diff: str
    base: str
    base_tree: str
    rationale: str
    trigger: str
    proposer: str
    evidence: list[dict[str, Any]]
    review: str | None = None
    envelope: str | None = None
    note: str = ""
    branch: str | None = None
    commit: str | None = None
    real_tier: int | None = None
    configuration_only: bool = False
    against: str | None = None
    tested: bool | None = None
    problem: str | None = None
    expected: str | None = None
    outcomes: str | None = None
    left_out: Sequence[str] = ()  # test files that have not run yet
    fixes: Sequence[str] = ()
    # (arm, task, repeat) -> what came of it
    results: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    verdict: str | None = None
    regressions: Sequence[str] = field(default_factory=list)
    improvements: Sequence[str] = field(default_factory=list)
    reasons: Sequence[str] = field(default_factory=list)
    outcome: str | None = None
    ended: str | None = None
    reason: str | None = None
    checkpoint: str | None = None

    submit = begins(Submitted)
    record_review = records(Reviewed)
    record_branch = records(Branched)
    record_tests = records(Tested)
    record_rest = records(RestTested)
    record_result = records(TaskScored)
    evaluate = records(Evaluated)
    conclude = records(Concluded)

    @property
    def stage(self) -> str:
        """The stage that comes next; `conclude` where only tests left out and the end remain."""
        if self.outcome is not None or self.tested is False or self.verdict is not None:
            return "conclude"
        if self.branch is None:
            return "branch"
        if self.tested is None:
            return "test"
        return "benchmark"

    def verify_stage(self, stage: str) -> None:
        """Raise InvariantError unless this stage comes next."""
        if self.stage != stage:
            raise InvariantError(f"proposal {self.id} is at stage {self.stage!r}, not {stage!r}")

    def verify_promotable(self, valley: str | None) -> None:
        """Raise InvariantError unless every stage, or an open valley, lets it through."""
        if self.real_tier == 1 and self.review not in APPROVED:
            raise InvariantError(
                "a change of tier 1 can be promoted only with an operator's approval"
            )
        if not self.tested or self.verdict is None:
            raise InvariantError("only a tested and evaluated proposal can be promoted")
        if self.left_out:
            raise InvariantError(
                f"{len(self.left_out)} test files have not run on this proposal, so it cannot be "
                "promoted"
            )
        refactored = self.verdict == "no worse" and self.review == "refactor"
        if self.verdict != "better" and not refactored and valley is None:
            raise InvariantError(
                f"a proposal with the verdict {self.verdict!r} can be promoted only in a valley"
            )


_RESULT = (
    *("seed", "success", "validation_failures", "metrics", "problem"),
    *("isolation", "missing", "cached", "seconds", "cpu_seconds"),
)
