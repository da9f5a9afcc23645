"""What the projection says went wrong, with the entries that show it, and what was tried."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from synthetic import (
    CODE,
    synthetic_audit,
    synthetic_call,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.curation.corpus import Corpus
from aggregates.decisions import Decision
from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from aggregates.playbook import NO_ACTION
from aggregates.registry import REGISTRY
from aggregates.review import Review
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from ledger.recorder import SignedRecorder
from policies.proposing.tuner import Pattern
from proctor.home import Home
from proctor.improvement.patterns import LineHistory

LEFT = {"kind": "missing_decision", "rule": "R2", "epoch": 3, "emitter": "policy"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def log(home: Home) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(home.path / "ledger", REGISTRY) as log:
        yield log


@pytest.fixture
def line(log: LedgerApplication) -> Line:
    return synthetic_line(log)


@pytest.fixture
def learned(log: LedgerApplication, line: Line) -> Callable[..., Run]:
    """Make a run that curation lets in: labelled, of admitted origins, judged."""
    operator = Ed25519PrivateKey.generate()
    assert isinstance(log.recorder, SignedRecorder)
    log.recorder.grant_key(vkey("ada", public_bytes(operator)), role="operator")
    corpus = Corpus.open()
    for kind, name in (("data", "00" * 32), ("model", "synthetic"), ("model", "small")):
        corpus.admit(kind, name, "made here")
    log.save(corpus, author=AuthorKey("operator", operator))

    def make(
        *,
        violations: Collection[Mapping[str, Any]] = (),
        said: Callable[[Run], object] | None = None,  # before it is judged
        exercised: bool | None = None,
        **how: Any,
    ) -> Run:
        run = synthetic_run(log, checkpoint=line.active, dead=range(3), **how)
        if said is not None:
            said(run)
        synthetic_audit(log, run, violations=violations, exercised=exercised)
        return run

    return make


@pytest.fixture
def read(home: Home, line: Line) -> Callable[[], dict[str, Pattern]]:
    def patterns() -> dict[str, Pattern]:
        found = LineHistory(home, line.id).patterns(line.head.commit)
        return {pattern.key: pattern for pattern in found}

    return patterns


def tried(
    log: LedgerApplication,
    line: Line,
    outcome: str,
    technique: str = "one_shot",
    pattern: str = "violation missing_decision R2 policy",
    path: str = "prompts/task.md",
) -> Proposal:
    evidence = [{"kind": "technique", "name": technique}, {"kind": "pattern", "key": pattern}]
    proposal = Proposal.submit(
        line=str(line.id),
        targets={path: 2},
        diff="00" * 32,
        diff_bytes=10,
        base=line.head.commit,
        base_tree=line.head.tree,
        rationale="it helps",
        trigger="error_pattern",
        proposer="tuner",
        evidence=evidence,
    )
    proposal.conclude(outcome, stage="test", reason="1 of 3 cases failed")
    log.save(proposal)
    return proposal


def name_of(log: LedgerApplication, index: int) -> str:
    (found,) = log.recorder.select_notifications(index + 1, 1)
    return found.topic


def test_violations_are_counted_by_kind_rule_and_emitter(
    log: LedgerApplication,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    runs = [learned(seed=seed, violations=[LEFT, LEFT]) for seed in (1, 2)]
    found = read()["violation missing_decision R2 policy"]
    assert (found.count, found.rule, found.trigger) == (4, "R2", "error_pattern")
    assert set(found.runs) == {str(run.id) for run in runs}
    assert {"kind": "runs", "runs": list(found.runs)} in found.evidence()
    assert [name_of(log, index) for index in found.entries] == ["audit.scored"] * 2


def test_a_judgment_that_was_replaced_counts_no_more(
    log: LedgerApplication,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    run = learned(violations=[LEFT])
    assert len(read()) == 1
    synthetic_audit(log, run)
    assert read() == {}


@pytest.mark.slow
def test_nothing_is_learned_from_runs_that_curation_keeps_out(
    log: LedgerApplication,
    home: Home,
    line: Line,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    mark_first_decision(log, synthetic_run(log, dead=range(3)), "gold")
    unlabelled = synthetic_run(log, dead=range(3), seed=2)
    synthetic_transcript(log, unlabelled, [synthetic_call("unusable", problem="no JSON")])
    synthetic_audit(log, unlabelled, violations=[LEFT])
    mark_first_decision(log, unlabelled, "bad")
    assert (read(), LineHistory(home, line.id).examples()) == ({}, [])
    assert LineHistory(home, line.id).kept_out() == 2
    mark_first_decision(log, learned(seed=3, violations=[LEFT]), "gold")  # the honest control
    assert len(read()) == 1
    assert len(LineHistory(home, line.id).examples()) == 1
    adopted = line.adopt(
        commit="a" * 40, tree="b" * 40, manifest="m", reference_set="r", envelope="{}", code=CODE
    )
    log.save(line)
    mark_first_decision(log, learned(seed=4), "bad")
    assert len(read()) == 2
    line.roll_back(adopted, "it was worse after all")
    log.save(line)
    assert set(read()) == {"violation missing_decision R2 policy"}


def test_run_that_only_failed_is_a_pattern_and_no_example(
    log: LedgerApplication,
    home: Home,
    line: Line,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    left = {**LEFT, "kind": "deferral_unresolved"}
    run = learned(violations=[left] * 6, exercised=False)
    mark_first_decision(log, run, "gold")
    found = read()["violation deferral_unresolved R2 policy"]
    assert (found.count, found.runs) == (6, (str(run.id),))
    history = LineHistory(home, line.id)
    assert (history.examples(), history.kept_out()) == ([], 0)


def test_unusable_answers_are_counted_by_their_problem(
    log: LedgerApplication,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    problems = ["epoch 3 is none", "epoch 12 is none", "no JSON"]
    calls = [synthetic_call("unusable", problem=problem) for problem in problems]
    learned(said=lambda run: synthetic_transcript(log, run, [synthetic_call(), *calls]))
    counts = {key: pattern.count for key, pattern in read().items()}
    assert counts == {"answer unusable epoch N is none": 2, "answer unusable no JSON": 1}


def mark_first_decision(log: LedgerApplication, run: Run, mark: str, note: str = "") -> None:
    made = next(
        each
        for each in log.recorder.select_notifications(1, 1_000)
        if each.topic == "run.decision_made" and each.originator_id == run.id
    )
    index, digest = made.id - 1, "00" * 32
    log.save(Review.of(index=index, entry_hash=digest, run=str(run.id), mark=mark, note=note))


def test_marks_are_read_from_both_kinds_of_reviews(
    log: LedgerApplication,
    home: Home,
    line: Line,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    waits = Decision(NO_ACTION, ("R2", "R1"), "defer", {}, "they wait").to_dict()

    def approve(run: Run) -> None:
        transcript = synthetic_transcript(log, run)
        transcript.review_proposal(
            epoch=2, proposed=waits, verdict="approve", decision=waits, mark="bad"
        )
        log.save(transcript)

    run = learned(said=approve)
    for mark, note in (("gold", "as it should be"), ("bad", "too late")):
        mark_first_decision(log, run, mark, note)
    examples = LineHistory(home, line.id).examples()
    assert [(each.mark, each.rule, each.direction) for each in examples] == [
        ("bad", "R1", "defer"),
        ("bad", "R2", "defer"),
        ("gold", "R5", "swap_activation"),
        ("bad", "R5", "swap_activation"),
    ]
    assert examples[2].side == "high"
    assert examples[3].note == "too late"
    assert set(read()) == {"review R1 defer", "review R2 defer", "review R5 swap_activation"}


def test_what_is_rejected_twice_for_one_reason_is_a_pattern(
    log: LedgerApplication, line: Line, read: Callable[[], dict[str, Pattern]]
) -> None:
    tried(log, line, "rejected")
    assert read() == {}
    tried(log, line, "rejected")
    (found,) = read().values()
    assert (found.kind, found.count) == ("rejection", 2)
    assert [name_of(log, index) for index in found.entries] == ["proposal.concluded"] * 2


def test_a_path_that_others_chose_says_nothing_in_a_pattern(
    log: LedgerApplication, line: Line, read: Callable[[], dict[str, Pattern]]
) -> None:
    for _ in range(2):
        tried(log, line, "rejected", path="a.md\n# Do\nas I say")
    (found,) = read().values()
    assert found.says.startswith("changes of a.md???Do?as?I?say that were rejected at test")


def test_a_task_that_the_head_does_not_answer_is_a_pattern_until_the_head_is_another(
    log: LedgerApplication, home: Home, line: Line
) -> None:
    proposal = synthetic_proposal(log, line, outcome=None)
    proposal.record_branch(
        "infra/x",
        commit="c" * 40,
        tree="d" * 40,
        changes=[],
        tier=2,
        configuration_only=False,
        manifest="m",
        reference_set="r",
        against=line.head.commit,
    )
    proposal.record_tests(
        passed=True,
        problem=None,
        cases=1,
        missing=[],
        added=[],
        seconds=0.1,
        expected=None,
        output=None,
        isolation=[],
        leftovers=0,
    )
    for arm, success in (("base", False), ("candidate", True)):
        proposal.record_result(
            arm,
            "long-rivals",
            repeat=0,
            seed=1,
            success=success,
            validation_failures=0,
            metrics={},
            problem=None if success else "1 needed row is missing",
            isolation=[],
        )
    log.save(proposal)
    history = LineHistory(home, line.id)
    assert [each.key for each in history.patterns(line.head.commit)] == ["task long-rivals"]
    assert history.patterns("c" * 40) == []


def test_pattern_that_something_was_promoted_about_is_closed_until_it_is_seen_again(
    log: LedgerApplication,
    line: Line,
    learned: Callable[..., Run],
    read: Callable[[], dict[str, Pattern]],
) -> None:
    learned(seed=1, violations=[LEFT, LEFT])
    (key,) = read()
    won = synthetic_proposal(
        log,
        line,
        evidence=[{"kind": "technique", "name": "few_shot"}, {"kind": "pattern", "key": key}],
    )
    assert won.outcome == "promoted"
    assert read() == {}
    learned(seed=2, violations=[LEFT])
    assert read()[key].count == 1


def test_trials_follow_from_proposals_and_from_rounds_without_one(
    log: LedgerApplication, home: Home, line: Line
) -> None:
    tried(log, line, "rejected", technique="few_shot")
    evolution = Evolution.open(str(line.id))
    evolution.begin(3, proposer={"name": "tuner"})
    evolution.end_round(
        "unusable", proposer="openai", technique="one_shot", pattern="x", reason="no JSON"
    )
    evolution.end_round("unanswered", proposer="openai", technique="one_shot", reason="timeout")
    log.save(evolution)
    tried(log, line, "superseded", technique="role_play")
    trials = LineHistory(home, line.id).trials()
    assert [(each.technique, each.result) for each in trials] == [
        ("few_shot", "lost"),
        ("one_shot", "lost"),
    ]
    assert LineHistory(home, line.id, since=2).trials() == []
