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
        """What is to change, against which commit, and why."""

        _: KW_ONLY
        line: str  # id of the line's stream
        task: str | None = None  # that gave rise to it
        tier: int = counted()  # the strictest that it declares; 0 is recorded, too, and halted
        targets: Mapping[str, int]  # path -> tier, as declared
        diff: str  # SHA-256 of the stored diff
        diff_bytes: int
        base: str  # commit
        base_tree: str
        rationale: str
        trigger: Annotated[str, OneOf("a trigger", TRIGGERS)]
        proposer: str
        evidence: Sequence[Mapping[str, Any]] = ()
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
        """An operator's word, as the envelope that the operator's key has signed.

        Whoever records it has checked the envelope.
        """

        verdict: Annotated[str, OneOf("a review", REVIEWS), KeptAs("review")]
        envelope: Kept[str]
        key: str  # vkey
        expires: int  # s since the POSIX epoch
        note: Annotated[Kept[str], Cut(MAX_TEXT)]

    class Branched(Event):
        """The diff is applied to a branch of its own; these paths it really touches."""

        branch: Kept[str]
        commit: Kept[str]
        tree: str
        changes: Sequence[Mapping[str, Any]]
        tier: Annotated[int, KeptAs("real_tier")]  # the strictest that is really touched
        configuration_only: Kept[bool]
        manifest: str  # SHA-256 of the file in the base
        reference_set: str  # SHA-256
        against: Kept[str]  # commit that it is compared with: its base, or where a valley began

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("branch")
            if self.tier not in TIERS:
                raise InvariantError(f"a proposal that changes tier {self.tier} gets no branch")

    class Tested(Event):
        """The base's tests ran against the candidate: all, or those that the change can reach."""

        passed: Annotated[bool, KeptAs("tested")]
        problem: Annotated[Kept[str | None], Cut(MAX_TEXT)]
        cases: int
        missing: Sequence[str]
        added: Sequence[str]  # test files that the proposal brings
        seconds: float
        expected: Kept[str | None]  # SHA-256 of the base's cases with their outcomes
        output: str | None  # SHA-256 of what was printed
        isolation: Sequence[str]
        leftovers: int  # processes that had to be ended
        flaky: Annotated[Sequence[str] | None, Since(2, None)] = ()  # failed, and then passed
        # SHA-256 of the candidate's cases with their outcomes
        outcomes: Annotated[Kept[str | None], Since(2, None)] = None
        left_out: Annotated[Kept[Sequence[str]], Since(3, ())] = ()  # run before the promotion
        # Why these files; None: the manifest lets all tests run at once.
        choice: Annotated[str | None, Since(3, None)] = None
        # Cases of added tests that fail without the change, and pass with it.
        fixes: Annotated[Kept[Sequence[str]], Since(4, ())] = ()

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("test")

    class RestTested(Event):
        """The tests that were left out before ran against the candidate, which is better."""

        passed: Annotated[bool, KeptAs("tested")]
        problem: Annotated[Kept[str | None], Cut(MAX_TEXT)]
        cases: int
        missing: Sequence[str]
        seconds: float
        output: str  # SHA-256 of what was printed
        isolation: Sequence[str]
        leftovers: int  # processes that had to be ended
        flaky: Sequence[str]
        outcomes: str  # SHA-256 of all cases of the candidate, from both runs

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("conclude")
            if not proposal.left_out or proposal.verdict is None:
                raise InvariantError("only an evaluated proposal has tests left to run")

        def apply(self, proposal: "Proposal") -> None:
            super().apply(proposal)
            proposal.left_out = ()

    class TaskScored(Event):
        """One arm's answer to one reference task, as the scorer saw it."""

        arm: Annotated[str, OneOf("an arm", ARMS)]
        task: str
        _: KW_ONLY
        repeat: int  # from 0
        seed: int
        success: bool
        validation_failures: int
        metrics: Mapping[str, float]
        problem: Annotated[str | None, Cut(MAX_TEXT)]
        # From an earlier proposal; no longer done, and it decides nothing.
        cached: bool = counted()
        isolation: Sequence[str]
        # There is no answer; None: nobody recorded whether there was one.
        missing: Annotated[bool | None, Since(2, None)] = False
        # Until the answer came, and of the processor; None: not measured, or there is none.
        seconds: Annotated[float | None, Since(3, None)] = None
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
        """Both arms compared, task by task."""

        verdict: Annotated[Kept[str], OneOf("a verdict", VERDICTS)]
        level: float  # of error that was spent on it
        regressions: Kept[Sequence[str]]
        improvements: Kept[Sequence[str]]
        reasons: Kept[Sequence[str]]
        comparisons: Sequence[Mapping[str, Any]]

        def check(self, proposal: "Proposal") -> None:
            proposal.verify_stage("benchmark")
            if self.verdict == "better" and (self.regressions or not self.improvements):
                raise InvariantError("the verdict `better` needs an improvement and no regression")
            if self.verdict == "no worse" and (self.regressions or proposal.review != "refactor"):
                raise InvariantError(
                    "the verdict `no worse` needs a signed `refactor` and no regression"
                )

    class Concluded(Event):
        """The end, whatever it is, with the stage that it came at."""

        ENDS = "proposal {aggregate.id} is already concluded: {event.outcome}"
        outcome: Kept[str]
        _: KW_ONLY
        stage: str
        reason: Annotated[Kept[str], Cut(MAX_TEXT)]
        checkpoint: Kept[str | None] = None
        valley: str | None = None  # id of the one that let it through although it is not better

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
