"""The proposal: one change that somebody wants made, and the six stages that it goes through.

Propose, branch, test, benchmark, evaluate, promote or reject; a proposal of tier 1 is reviewed by
an operator between the first and the second. Each stage is an event with its evidence, and what
is rejected stays on record as what is promoted does.

Trust: rationale, names and problems are others' words and are bounded.
I/O: none.  Units: seconds, bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

TRIGGERS = ("error_pattern", "operator_request", "performance_regression")
TIERS = (1, 2)  # what touches tier 0 gets no further than its submission
REVIEWS = ("approve", "reject", "revise")
ARMS = ("base", "candidate")
VERDICTS = ("better", "cannot tell", "worse")
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

    class Submitted(Aggregate.Created):
        """What is to change, against which commit, and why."""

        line: str  # id of the line's stream
        task: str | None  # that gave rise to it
        tier: int  # the strictest that it declares; 0 is recorded, too, and halted
        targets: dict[str, int]  # path -> tier, as declared
        diff: str  # SHA-256 of the stored diff
        diff_bytes: int
        base: str  # commit
        base_tree: str
        rationale: str
        trigger: str
        proposer: str
        evidence: list[dict[str, Any]]

    class Reviewed(Aggregate.Event):
        """An operator's word, as the envelope that the operator's key has signed."""

        verdict: str
        envelope: str
        key: str  # vkey
        expires: int  # s since the POSIX epoch
        note: str

        def apply(self, aggregate: "Proposal") -> None:
            """Keep the latest word."""
            aggregate.review = self.verdict
            aggregate.envelope = self.envelope
            aggregate.note = self.note

    class Branched(Aggregate.Event):
        """The diff is applied to a branch of its own; these paths it really touches."""

        branch: str
        commit: str
        tree: str
        changes: list[dict[str, Any]]
        tier: int  # the strictest that is really touched
        configuration_only: bool
        manifest: str  # SHA-256 of the file in the base
        reference_set: str  # SHA-256
        against: str  # commit that it is compared with: its base, or where a valley began

        def apply(self, aggregate: "Proposal") -> None:
            """Keep where the candidate is."""
            aggregate.against = self.against
            aggregate.branch, aggregate.commit, aggregate.tree = self.branch, self.commit, self.tree
            aggregate.real_tier = self.tier
            aggregate.configuration_only = self.configuration_only
            aggregate.manifest, aggregate.reference_set = self.manifest, self.reference_set

    class Tested(Aggregate.Event):
        """The base's tests ran against the candidate: all, or those that the change can reach."""

        passed: bool
        problem: str | None
        cases: int
        missing: list[str]
        added: list[str]  # test files that the proposal brings
        seconds: float
        expected: str | None  # SHA-256 of the base's cases with their outcomes
        output: str | None  # SHA-256 of what was printed
        isolation: list[str]
        leftovers: int  # processes that had to be ended
        flaky: list[str] | None  # cases that failed, and then passed; None: not recorded
        outcomes: str | None  # SHA-256 of the candidate's cases with their outcomes
        left_out: list[str]  # test files that run before the promotion
        choice: str | None  # why these; None: the manifest lets all tests run at once

        def apply(self, aggregate: "Proposal") -> None:
            """Keep whether the gate held, and if not, why."""
            aggregate.tested = self.passed
            aggregate.problem = self.problem
            aggregate.expected, aggregate.outcomes = self.expected, self.outcomes
            aggregate.left_out = tuple(self.left_out)

    class RestTested(Aggregate.Event):
        """The tests that were left out before ran against the candidate, which is better."""

        passed: bool
        problem: str | None
        cases: int
        missing: list[str]
        seconds: float
        output: str  # SHA-256 of what was printed
        isolation: list[str]
        leftovers: int  # processes that had to be ended
        flaky: list[str]
        outcomes: str  # SHA-256 of all cases of the candidate, from both runs

        def apply(self, aggregate: "Proposal") -> None:
            """Keep whether the whole suite has passed now."""
            aggregate.tested = self.passed
            aggregate.problem = self.problem
            aggregate.left_out = ()

    class TaskScored(Aggregate.Event):
        """One arm's answer to one reference task, as the scorer saw it."""

        arm: str
        task: str
        repeat: int  # from 0
        seed: int
        success: bool
        validation_failures: int
        metrics: dict[str, float]
        problem: str | None
        cached: bool  # from an earlier proposal; no longer done, and it decides nothing
        isolation: list[str]
        missing: bool | None  # there is no answer; None: nobody recorded whether there was one

        def apply(self, aggregate: "Proposal") -> None:
            """Keep the result."""
            aggregate.results[(self.arm, self.task, self.repeat)] = {
                "seed": self.seed,
                "success": self.success,
                "validation_failures": self.validation_failures,
                "metrics": dict(self.metrics),
                "problem": self.problem,
                "isolation": list(self.isolation),
                "missing": bool(self.missing),
                "cached": self.cached,
            }

    class Evaluated(Aggregate.Event):
        """Both arms compared, task by task."""

        verdict: str
        level: float  # of error that was spent on it
        regressions: list[str]
        improvements: list[str]
        reasons: list[str]
        comparisons: list[dict[str, Any]]

        def apply(self, aggregate: "Proposal") -> None:
            """Keep the verdict."""
            aggregate.verdict = self.verdict
            aggregate.regressions = list(self.regressions)
            aggregate.improvements = list(self.improvements)
            aggregate.reasons = list(self.reasons)

    class Concluded(Aggregate.Event):
        """The end, whatever it is, with the stage that it came at."""

        outcome: str
        stage: str
        reason: str
        checkpoint: str | None
        valley: str | None  # id of the one that let it through although it is not better

        def apply(self, aggregate: "Proposal") -> None:
            """Close the proposal."""
            aggregate.outcome = self.outcome
            aggregate.reason = self.reason
            aggregate.checkpoint = self.checkpoint

    line: str
    task: str | None
    tier: int
    targets: dict[str, int]
    diff: str
    diff_bytes: int
    base: str
    base_tree: str
    rationale: str
    trigger: str
    proposer: str
    evidence: list[dict[str, Any]]
    review: str | None = field(default=None, init=False)
    envelope: str | None = field(default=None, init=False)
    note: str = field(default="", init=False)
    branch: str | None = field(default=None, init=False)
    commit: str | None = field(default=None, init=False)
    tree: str | None = field(default=None, init=False)
    real_tier: int | None = field(default=None, init=False)
    configuration_only: bool = field(default=False, init=False)
    manifest: str | None = field(default=None, init=False)
    reference_set: str | None = field(default=None, init=False)
    against: str | None = field(default=None, init=False)
    tested: bool | None = field(default=None, init=False)
    problem: str | None = field(default=None, init=False)
    expected: str | None = field(default=None, init=False)
    outcomes: str | None = field(default=None, init=False)
    left_out: tuple[str, ...] = field(default=(), init=False)  # test files that have not run yet
    results: dict[tuple[str, str, int], dict[str, Any]] = field(  # (arm, task, repeat)
        default_factory=dict, init=False
    )
    verdict: str | None = field(default=None, init=False)
    regressions: list[str] = field(default_factory=list, init=False)
    improvements: list[str] = field(default_factory=list, init=False)
    reasons: list[str] = field(default_factory=list, init=False)
    outcome: str | None = field(default=None, init=False)
    reason: str | None = field(default=None, init=False)
    checkpoint: str | None = field(default=None, init=False)

    @classmethod
    def submit(
        cls,
        *,
        line: str,
        targets: Mapping[str, int],
        diff: str,
        diff_bytes: int,
        base: str,
        base_tree: str,
        rationale: str,
        trigger: str,
        proposer: str,
        task: str | None = None,
        evidence: Sequence[Mapping[str, Any]] = (),
        proposal_id: UUID | None = None,
    ) -> "Proposal":
        """Put a change on record; raise InvariantError for what no proposal can say."""
        if trigger not in TRIGGERS:
            raise InvariantError(f"a trigger must be one of {', '.join(TRIGGERS)}, not {trigger!r}")
        if not rationale.strip() or len(rationale) > MAX_TEXT:
            raise InvariantError(f"a rationale must have 1 to {MAX_TEXT} characters")
        if not 1 <= len(targets) <= MAX_PATHS:
            raise InvariantError(f"a proposal must name 1 to {MAX_PATHS} files with their tiers")
        if any(tier not in (0, *TIERS) for tier in targets.values()):
            raise InvariantError("a tier must be 0, 1 or 2")
        return cls._create(
            event_class=cls.Submitted,
            id=proposal_id or uuid4(),
            line=line,
            task=task,
            tier=min(targets.values()),
            targets=dict(sorted(targets.items())),
            diff=diff,
            diff_bytes=diff_bytes,
            base=base,
            base_tree=base_tree,
            rationale=rationale,
            trigger=trigger,
            proposer=proposer,
            evidence=[dict(item) for item in evidence],
        )

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

    def record_review(
        self, verdict: str, *, envelope: str, key: str, expires: int, note: str
    ) -> None:
        """Record an operator's word; whoever calls has checked the envelope."""
        self._check_open()
        if verdict not in REVIEWS:
            raise InvariantError(f"a review must be one of {', '.join(REVIEWS)}, not {verdict!r}")
        self.trigger_event(
            self.Reviewed,
            verdict=verdict,
            envelope=envelope,
            key=key,
            expires=expires,
            note=note[:MAX_TEXT],
        )

    def record_branch(
        self,
        branch: str,
        *,
        commit: str,
        tree: str,
        changes: Sequence[Mapping[str, Any]],
        tier: int,
        configuration_only: bool,
        manifest: str,
        reference_set: str,
        against: str,
    ) -> None:
        """Record where the candidate is and what it really touches."""
        self._check_stage("branch")
        if tier not in TIERS:
            raise InvariantError(f"a proposal that changes tier {tier} gets no branch")
        self.trigger_event(
            self.Branched,
            branch=branch,
            commit=commit,
            tree=tree,
            changes=[dict(change) for change in changes],
            tier=tier,
            configuration_only=configuration_only,
            manifest=manifest,
            reference_set=reference_set,
            against=against,
        )

    def record_tests(
        self,
        *,
        passed: bool,
        problem: str | None,
        cases: int,
        missing: Sequence[str],
        added: Sequence[str],
        seconds: float,
        expected: str | None,
        output: str | None,
        isolation: Sequence[str],
        leftovers: int,
        flaky: Sequence[str] = (),
        outcomes: str | None = None,
        left_out: Sequence[str] = (),
        choice: str | None = None,
    ) -> None:
        """Record how the tests ended, and which test files have not run."""
        self._check_stage("test")
        self.trigger_event(
            self.Tested,
            passed=passed,
            problem=None if problem is None else problem[:MAX_TEXT],
            cases=cases,
            missing=list(missing),
            added=list(added),
            seconds=seconds,
            expected=expected,
            output=output,
            isolation=list(isolation),
            leftovers=leftovers,
            flaky=list(flaky),
            outcomes=outcomes,
            left_out=list(left_out),
            choice=choice,
        )

    def record_rest(
        self,
        *,
        passed: bool,
        problem: str | None,
        cases: int,
        missing: Sequence[str],
        seconds: float,
        output: str,
        isolation: Sequence[str],
        leftovers: int,
        flaky: Sequence[str],
        outcomes: str,
    ) -> None:
        """Record how the tests ended that were left out before."""
        self._check_stage("conclude")
        if not self.left_out or self.verdict is None:
            raise InvariantError("only an evaluated proposal has tests left to run")
        self.trigger_event(
            self.RestTested,
            passed=passed,
            problem=None if problem is None else problem[:MAX_TEXT],
            cases=cases,
            missing=list(missing),
            seconds=seconds,
            output=output,
            isolation=list(isolation),
            leftovers=leftovers,
            flaky=list(flaky),
            outcomes=outcomes,
        )

    def record_result(
        self,
        arm: str,
        task: str,
        *,
        repeat: int,
        seed: int,
        success: bool,
        validation_failures: int,
        metrics: Mapping[str, float],
        problem: str | None,
        isolation: Sequence[str],
        missing: bool = False,
    ) -> None:
        """Record one answer's worth; each arm answers a repeat of a task once."""
        self._check_stage("benchmark")
        if arm not in ARMS:
            raise InvariantError(f"an arm must be {' or '.join(ARMS)}, not {arm!r}")
        if (arm, task, repeat) in self.results:
            raise InvariantError(f"the {arm} has already answered repeat {repeat} of task {task}")
        self.trigger_event(
            self.TaskScored,
            arm=arm,
            task=task,
            repeat=repeat,
            seed=seed,
            success=success,
            validation_failures=validation_failures,
            metrics=dict(metrics),
            problem=None if problem is None else problem[:MAX_TEXT],
            cached=False,
            isolation=list(isolation),
            missing=missing,
        )

    def evaluate(
        self,
        verdict: str,
        *,
        level: float,
        regressions: Sequence[str],
        improvements: Sequence[str],
        reasons: Sequence[str],
        comparisons: Sequence[Mapping[str, Any]],
    ) -> None:
        """Record what the comparison of both arms says."""
        self._check_stage("benchmark")
        if verdict not in VERDICTS:
            raise InvariantError(f"a verdict must be one of {', '.join(VERDICTS)}, not {verdict!r}")
        if verdict == "better" and (regressions or not improvements):
            raise InvariantError("the verdict `better` needs an improvement and no regression")
        self.trigger_event(
            self.Evaluated,
            verdict=verdict,
            level=level,
            regressions=list(regressions),
            improvements=list(improvements),
            reasons=list(reasons),
            comparisons=[dict(comparison) for comparison in comparisons],
        )

    def conclude(
        self,
        outcome: str,
        *,
        stage: str,
        reason: str,
        checkpoint: str | None = None,
        valley: str | None = None,
    ) -> None:
        """Close the proposal; only what passed every stage, or an open valley, is promoted."""
        self._check_open()
        if outcome not in OUTCOMES or stage not in STAGES:
            raise InvariantError(f"a proposal cannot end with {outcome!r} at stage {stage!r}")
        if (outcome == "promoted") != (checkpoint is not None):
            raise InvariantError("a checkpoint must be given for a promotion, and only then")
        if outcome == "promoted":
            self._check_promotable(valley)
        self.trigger_event(
            self.Concluded,
            outcome=outcome,
            stage=stage,
            reason=reason[:MAX_TEXT],
            checkpoint=checkpoint,
            valley=valley,
        )

    def _check_promotable(self, valley: str | None) -> None:
        if self.real_tier == 1 and self.review != "approve":
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
        if self.verdict != "better" and valley is None:
            raise InvariantError(
                f"a proposal with the verdict {self.verdict!r} can be promoted only in a valley"
            )

    def _check_open(self) -> None:
        if self.outcome is not None:
            raise InvariantError(f"proposal {self.id} is already concluded: {self.outcome}")

    def _check_stage(self, stage: str) -> None:
        self._check_open()
        if self.stage != stage:
            raise InvariantError(f"proposal {self.id} is at stage {self.stage!r}, not {stage!r}")


def without_flaky(body: dict[str, Any]) -> dict[str, Any]:
    """Lift a run of the tests of version 1 to 2: nothing was run again, no outcomes were kept."""
    return {**body, "flaky": None, "outcomes": None}


def without_missing(body: dict[str, Any]) -> dict[str, Any]:
    """Lift an answer of version 1 to 2: nobody recorded whether there was one."""
    return {**body, "missing": None}


def with_all_tests(body: dict[str, Any]) -> dict[str, Any]:
    """Lift a run of the tests of version 2 to 3: no tests were left out."""
    return {**body, "left_out": [], "choice": None}
