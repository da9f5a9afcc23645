"""Proposals on their way through the gauntlet: real git, a real ledger, confined processes."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from gauntlet_lines import (
    COMPONENT,
    NAMES,
    SELECTION,
    SETTINGS,
    SMALL,
    THRIFTY,
    UNSORTED,
    WEEK,
    Line,
    _vkey,
    digest_of,
    judged,
    renamed,
    submit,
)
from msgspec.structs import replace

from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from judge.approvals import make_approval, sign
from judge.errors import ApprovalError
from judge.gauntlet import anchors, benchmarking, reviews
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError, RepositoryError
from judge.gauntlet.promotion import INTENT
from judge.gauntlet.records import ProposalIndex
from judge.gauntlet.reviews import check_recorded
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from ledger.verification.authority import Authority
from ledger.verification.reader import check_ledger, open_verified
from proctor.home import Home
from proctor.sample.demo import unified
from proctor.sample.init import git, make_sample
from proctor.sample.tasks import SHAPES

Scored = Proposal.TaskScored


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path, ("late-rows",))


def events(line: Line, stream: UUID) -> list[str]:
    with line.log() as log:
        return [type(event).__name__ for event in log.events.get(stream)]


def thrifty_component(text: str) -> str:
    """Return a file of tier 1 that improves what a file of tier 2 does."""
    plain = "return select(score_documents(documents, query, settings), cap=cap)"
    assert plain in text
    scored = "scored = score_documents(documents, query, settings)\n"
    return text.replace(
        plain, f"{scored}    return select([row for row in scored if row[0] > 0], cap=cap)"
    )


def test_change_is_rejected_when_worse_and_promoted_when_better(tmp_path: Path) -> None:
    line, confirmed = Line(tmp_path, settings=ComparisonSettings()), ComparisonSettings().confirmed
    before, tree = line.head(), line.work_tree()
    with line.controller() as controller:
        worse = judged(controller, line.diff(SELECTION, UNSORTED))
        assert (worse.outcome, worse.tested, worse.verdict) == ("rejected", True, "worse")
        assert worse.regressions == ["late-rows"]
        assert line.head() == before
        better = judged(controller, line.diff(SELECTION, THRIFTY))
        assert (better.outcome, better.verdict, better.regressions) == ("promoted", "better", [])
        first, second = controller.line.checkpoints.values()
        assert (second.parent, second.proposals) == (first.id, (str(better.id),))
        assert second.commit == line.head() == better.commit
        listed = anchors.candidates(controller.place, controller.records)
        assert [(each.task, each.because) for each in listed] == [("late-rows", (str(worse.id),))]
    assert line.text(SELECTION) == THRIFTY
    assert line.work_tree() == tree
    assert line.repository.branches() == ("main", "work")  # a proposal's branch ends with it
    stages = ["Submitted", "Branched", "Tested", *["TaskScored"] * 12, "Evaluated", "Concluded"]
    assert events(line, worse.id) == stages  # both tasks once, and four times more what is lost
    with line.log() as log:
        earlier, found = (
            [event for event in log.events.get(each.id) if isinstance(event, Scored)]
            for each in (worse, better)
        )
    assert not any(event.cached or event.missing for event in found)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    for one, two in pairs:  # one after the other, and with one seed
        assert (one.task, one.repeat, one.seed) == (two.task, two.repeat, two.seed)
        assert {one.arm, two.arm} == {"base", "candidate"}
    leading = [event.arm for event in (*earlier[::2], *found[::2])]
    assert set(leading) == {"base", "candidate"}  # drawn: all 13 alike once in 4,096 runs
    saved = {event.task for event in found if event.repeat == confirmed - 1}
    assert "late-rows" in saved  # a difference counts when every pair shows it
    assert {event.repeat for event in found} == set(range(confirmed))
    assert min(sum(event.task == task for event in found) for task in NAMES) >= 4
    check_ledger(line.home.path / "ledger")


def test_change_is_rejected_when_a_test_fails(line: Line) -> None:
    with line.controller() as controller:
        found = judged(controller, line.diff(SELECTION, lambda text: text.replace(":cap", ":9")))
    assert (found.outcome, found.tested) == ("rejected", False)
    assert "status 1" in str(found.reason)
    assert found.results == {}


@pytest.mark.slow  # test_gauntlet_evaluate.py and test_drawn_tasks.py compare such answers
@pytest.mark.parametrize(("most", "verdict"), [(6, "cannot tell"), (1_500, "worse")])
def test_candidate_that_answers_at_random_is_rejected(
    tmp_path: Path, most: int, verdict: str
) -> None:
    shapes = [replace(SHAPES[1], name="one", documents=60, cap=40)]
    line = Line(tmp_path, ("one",), shapes=shapes, settings=ComparisonSettings(most=most))
    with line.controller() as controller:
        drawn = "ordered[: min(cap, 2 + id([]) // 16 % 37)]"
        lucky = THRIFTY.replace("ordered[:cap] if score > 0", drawn)
        found = judged(controller, line.diff(SELECTION, lucky))
        assert (found.outcome, found.verdict) == ("rejected", verdict)
        assert "its answers differ from one time to the next" in str(found.reason)
        assert found.regressions == (["one"] if verdict == "worse" else [])
        honest = judged(controller, line.diff(SELECTION, THRIFTY))
        assert honest.outcome == "promoted"


def test_same_change_is_not_judged_twice(line: Line) -> None:
    with line.controller() as controller:
        diff = line.diff(SELECTION, UNSORTED)
        first, second = judged(controller, diff), judged(controller, diff)
    assert second.outcome == "rejected"
    assert f"proposal {first.id} makes the same" in str(second.reason)


def test_proposal_with_a_wrong_tier_is_rejected(line: Line) -> None:
    with line.controller() as controller:
        for declared in ({COMPONENT: 2}, {COMPONENT: 1, SELECTION: 2}, {SELECTION: 2}):
            diff = line.diff(COMPONENT, lambda text: text + "\n")
            found = submit(controller, diff, declared)
            assert found.outcome == "halted"
            assert re.search("declare", str(found.reason))
        assert controller.line.halt is None
    assert line.repository.branches() == ("main", "work")


def test_line_is_halted_until_an_operator_answers_when_the_controller_is_touched(
    line: Line,
) -> None:
    with line.controller() as controller:
        honest = submit(controller, line.diff(SELECTION, THRIFTY))
        diff = line.diff("judge/tiers.toml", lambda text: text.replace("1 = [", '1 = ["a", '))
        bad = submit(controller, diff, {"judge/tiers.toml": 2})
        assert bad.outcome == "halted"
        assert str(controller.carry_on(honest.id).outcome) == "None"
        assert "the line is halted" in str(controller.waits(honest))
        later = submit(controller, line.diff(SETTINGS, lambda text: text + "\n"), {SETTINGS: 2})
        assert "the line is halted" in str(controller.waits(later))
        for envelope, problem in (
            (line.word(controller, "resume", bad, key=line.stranger), "not signed by an operator"),
            (line.word(controller, "resume", honest), "a different proposal"),
            (line.word(controller, "approve", bad), "a different kind"),
            (line.word(controller, "resume", bad, expires=line.now), "expired"),
        ):
            with pytest.raises(ApprovalError, match=problem):
                reviews.resume(controller.place, envelope)
        assert controller.line.halt is not None
        reviews.resume(controller.place, line.word(controller, "resume", bad))
        assert controller.line.halt is None
        assert controller.waits(honest) is None


def test_tier_1_is_promoted_with_an_approval_of_exactly_this_change(line: Line) -> None:
    with line.controller() as controller:
        diff = line.diff(COMPONENT, thrifty_component)
        wanted = submit(controller, diff, {COMPONENT: 1})
        assert controller.carry_on(wanted.id).branch is None  # nothing of it is run unseen
        assert "an operator must approve it" in str(controller.waits(wanted))
        assert [each.id for each in controller.pending()] == [wanted.id]
        other = submit(controller, line.diff(COMPONENT, lambda text: text + "\n"), {COMPONENT: 1})
        for envelope, problem in (
            (
                line.word(controller, "approve", wanted, key=line.stranger),
                "not signed by an operator",
            ),
            (line.word(controller, "approve", wanted, diff=other.diff), "a different diff"),
            (line.word(controller, "approve", wanted, base_tree="0" * 40), "different base_tree"),
            (line.word(controller, "approve", wanted, manifest="0" * 64), "different manifest"),
            (line.word(controller, "approve", wanted, reference_set="0" * 64), "reference_set"),
            (line.word(controller, "approve", wanted, expires=line.now), "expired"),
            (line.word(controller, "approve", wanted, expires=line.now + 60 * WEEK), "366 days"),
            (line.word(controller, "resume", wanted), "does not apply to a proposal"),
        ):
            with pytest.raises(ApprovalError, match=problem):
                reviews.record_review(controller.place, envelope)
        assert controller.carry_on(wanted.id).branch is None
        reviews.record_review(controller.place, line.word(controller, "approve", wanted))
        found = controller.carry_on(wanted.id)
        assert (found.outcome, found.real_tier, found.verdict) == ("promoted", 1, "better")
        assert controller.carry_on(other.id).outcome == "superseded"


def test_approval_is_looked_at_again_before_the_line_moves(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = benchmarking.benchmark

    def then_check_out(*arguments: Any) -> None:
        benchmark(*arguments)
        git(line.repo, "switch", "--quiet", "main")

    monkeypatch.setattr(benchmarking, "benchmark", then_check_out)
    with line.controller() as controller:
        diff = line.diff(COMPONENT, thrifty_component)
        wanted = submit(controller, diff, {COMPONENT: 1})
        reviews.record_review(controller.place, line.word(controller, "approve", wanted))
        with pytest.raises(RepositoryError, match="git switch --detach"):
            controller.carry_on(wanted.id)
        git(line.repo, "switch", "--quiet", "work")
        assert not (controller.place.folder / INTENT).exists()  # it has not been moved by us
        line.now += WEEK
        base = line.head()
        found = controller.carry_on(wanted.id)
        assert (found.outcome, found.verdict, line.head()) == (None, "better", base)
        assert "this approval expired" in str(controller.waits(found))
        reviews.record_review(controller.place, line.word(controller, "approve", wanted))
        line.revoke_operator()
        assert controller.carry_on(wanted.id).outcome is None
        assert "not signed by an operator" in str(controller.waits(found))
    assert line.head() == base


def test_word_of_an_operator_ends_a_proposal(line: Line) -> None:
    with line.controller() as controller:
        for word, outcome in (("reject", "rejected"), ("revise", "withdrawn")):
            wanted = submit(controller, line.diff(SELECTION, THRIFTY))
            reviews.record_review(controller.place, line.word(controller, word, wanted))
            with pytest.raises(ApprovalError, match=f"an operator has already answered {word}"):
                reviews.record_review(controller.place, line.word(controller, "approve", wanted))
            found = controller.carry_on(wanted.id)
            assert (found.outcome, found.branch) == (outcome, None)
            with pytest.raises(ApprovalError, match="is already concluded"):
                reviews.record_review(controller.place, line.word(controller, "approve", wanted))


def test_change_of_configuration_is_asked_the_representative_tasks_first(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows", "titles"))  # of these, late-rows is representative
    with line.controller() as controller:
        diff = line.diff(SETTINGS, lambda text: text.replace("penalty = 0.0", "penalty = 0.01"))
        found = judged(controller, diff, {SETTINGS: 2})
        assert [task for _, task, _ in found.results] == ["late-rows"] * 2 + ["titles"] * 2
        assert (found.outcome, found.verdict) == ("rejected", "cannot tell")


def test_line_moves_once_when_two_changes_begin_at_one_base(line: Line) -> None:
    with line.controller() as controller:
        one = submit(controller, line.diff(SELECTION, THRIFTY))
        other = submit(controller, line.diff(SELECTION, renamed(THRIFTY)))
        assert controller.carry_on(one.id).outcome == "promoted"
        found = controller.carry_on(other.id)
        assert (found.outcome, found.results) == ("superseded", {})
    assert line.text(SELECTION) == THRIFTY


def test_line_waits_when_people_have_moved_it_until_they_take_it_over(line: Line) -> None:
    with line.controller() as controller:
        wanted = submit(controller, line.diff(SELECTION, THRIFTY))
        commit = line.commit("README.md", "By hand.\n")
        assert controller.carry_on(wanted.id).outcome is None
        assert "not at its checkpoint" in str(controller.waits(wanted))
        assert line.head() == commit
        with pytest.raises(ApprovalError, match="a different commit"):
            controller.adopt(line.adoption(controller, commit=controller.line.head.commit))
        adopted = controller.adopt(line.adoption(controller))
        assert (adopted.head.commit, adopted.head.proposals) == (commit, ())
        assert controller.carry_on(wanted.id).outcome == "superseded"


def test_approval_that_names_no_text_shown_counts_only_if_it_is_on_record(line: Line) -> None:
    with line.controller() as controller:
        found = submit(controller, line.diff(COMPONENT, thrifty_component), {COMPONENT: 1})
        subjects = controller.place.subjects(found)
        del subjects["text_shown"]
        payload = make_approval(
            "approve",
            line=str(line.id),
            proposal=str(found.id),
            subjects=subjects,
            expires=line.now + 60,
        )
        envelope = sign(payload, line.operator)
        with pytest.raises(ApprovalError, match="for a different text_shown"):
            reviews.record_review(controller.place, envelope)
        earlier = controller.place.proposal(found.id)  # as a version before wrote it
        earlier.record_review(
            "approve", envelope=envelope, key="K", expires=line.now + 60, note="Good."
        )
        controller.place.log.save(earlier)
        assert controller.carry_on(found.id).outcome == "promoted"


def test_word_that_was_signed_for_another_ledger_is_rejected(line: Line, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    with line.controller() as controller, other.open_log() as log:
        recorder: Any = log.recorder
        recorder.grant_key(_vkey(line.operator), role="operator")

        def authority() -> Authority:
            with open_verified(other.ledger) as ledger:
                return ledger.authority

        elsewhere = Controller(
            Workplace(
                log=log,
                repository=line.repository,
                blobs=other.blobs,
                folder=(tmp_path / "work").resolve(),
                clock=lambda: line.now,
                authority=authority,
                settings=line.settings,
            )
        )
        assert elsewhere.line.id == controller.line.id
        diff = line.diff(COMPONENT, thrifty_component)
        here, there = (submit(each, diff, {COMPONENT: 1}) for each in (controller, elsewhere))
        words = line.word(controller, "approve", there, ledger=controller.place.ledger)
        batch = line.batch(elsewhere, there, ledger=controller.place.ledger)
        valley = line.valley(controller, "aa" * 32)
        line.commit(SETTINGS, line.text(SETTINGS) + "\n")
        adoption = line.adoption(controller)
        for refused in (
            lambda: reviews.record_review(elsewhere.place, words),
            lambda: reviews.record_batch(elsewhere.place, batch),
            lambda: elsewhere.open_valley(valley),
            lambda: elsewhere.adopt(adoption),
        ):
            with pytest.raises(ApprovalError, match="for a different ledger"):
                refused()
        assert here.id != there.id
        assert controller.adopt(adoption).head.commit == line.head()
        assert elsewhere.adopt(line.adoption(elsewhere)).head.commit == line.head()


def test_approval_that_names_no_ledger_counts_only_if_it_was_on_record_before_others(
    line: Line,
) -> None:
    with line.controller() as controller:
        found = submit(controller, line.diff(COMPONENT, thrifty_component), {COMPONENT: 1})
        later = submit(controller, line.diff(COMPONENT, lambda text: text + "#\n"), {COMPONENT: 1})

        def of_before(proposal: Proposal) -> str:
            subjects = controller.place.subjects(proposal)
            del subjects["ledger"]
            payload = make_approval(
                "approve",
                line=str(line.id),
                proposal=str(proposal.id),
                subjects=subjects,
                expires=line.now + 60,
            )
            return sign(payload, line.operator)

        def record(proposal: Proposal) -> None:
            fresh = controller.place.proposal(proposal.id)
            fresh.record_review(
                "approve",
                envelope=of_before(proposal),
                key="K",
                expires=line.now + 60,
                note="Good.",
            )
            controller.place.log.save(fresh)

        with pytest.raises(ApprovalError, match="for a different ledger: None"):
            reviews.record_review(controller.place, of_before(found))
        record(found)
        check_recorded(controller.place, controller.place.proposal(found.id))
        named = submit(controller, line.diff(COMPONENT, lambda text: text + "\n"), {COMPONENT: 1})
        reviews.record_review(controller.place, line.word(controller, "approve", named))
        check_recorded(controller.place, controller.place.proposal(named.id))
        check_recorded(controller.place, controller.place.proposal(found.id))
        record(later)
        with pytest.raises(ApprovalError, match="for a different ledger: None"):
            check_recorded(controller.place, controller.place.proposal(later.id))


def test_valley_lets_through_what_is_worse_when_its_end_is_better(line: Line) -> None:
    with line.controller() as controller:
        down = line.diff(SELECTION, UNSORTED)
        up = unified(SELECTION, UNSORTED, THRIFTY)
        controller.open_valley(line.valley(controller, digest_of(down), digest_of(up)))
        aside = submit(controller, line.diff(SETTINGS, lambda text: text + "\n"), {SETTINGS: 2})
        assert "is not its next step" in str(controller.waits(aside))
        start = controller.line.head
        for wrong in ({SELECTION: 1}, {SELECTION: 2, SETTINGS: 2}):  # whoever says so ends nothing
            assert judged(controller, down, wrong).outcome == "halted"
        first = judged(controller, down)
        assert (first.outcome, first.verdict) == ("promoted", "worse")
        last = judged(controller, up)
        assert (last.outcome, last.verdict, last.against) == ("promoted", "better", start.commit)
        assert controller.line.valley is None
        assert len(controller.line.checkpoints) == 3


@pytest.mark.slow
def test_valley_is_turned_back_when_its_end_is_no_better(line: Line) -> None:
    with line.controller() as controller:
        down = line.diff(SELECTION, UNSORTED)
        up = unified(SELECTION, UNSORTED, renamed(line.text(SELECTION)))
        envelope = line.valley(controller, digest_of(down), digest_of(up))
        controller.open_valley(envelope)
        start = controller.line.head
        assert judged(controller, down).outcome == "promoted"
        last = judged(controller, up)
        assert (last.outcome, last.verdict) == ("rejected", "cannot tell")
        assert (controller.line.head, controller.line.valley) == (start, None)
        assert [bool(each.rolled_back) for each in controller.line.checkpoints.values()] == [
            False,
            True,
        ]
        whole = json.loads(envelope)
        stranger = {"keyid": "0" * 64, "sig": "AAAA"}
        signed_by_two = {**whole, "signatures": [*whole["signatures"], stranger]}
        for same in (envelope, f" {envelope}", json.dumps(signed_by_two)):
            with pytest.raises(ApprovalError, match="was already opened"):
                controller.open_valley(same)
        again = line.valley(controller, digest_of(down), digest_of(up), days=6)
        assert controller.open_valley(again).valley is not None
    assert line.head() == start.commit


@pytest.mark.slow
def test_valley_is_turned_back_when_its_time_is_over(line: Line) -> None:
    with line.controller() as controller:
        down = line.diff(SELECTION, UNSORTED)
        controller.open_valley(line.valley(controller, digest_of(down), "0" * 64, days=1))
        start = controller.line.head
        assert judged(controller, down).outcome == "promoted"
        line.now += 86_400
        with controller.locked():
            assert controller.line.head == start
    assert line.head() == start.commit


def test_valley_is_turned_back_when_its_operators_key_is_revoked(line: Line) -> None:
    down = line.diff(SELECTION, UNSORTED)
    up = unified(SELECTION, UNSORTED, THRIFTY)
    with line.controller() as controller:
        controller.open_valley(line.valley(controller, digest_of(down), digest_of(up)))
        start = controller.line.head
        assert judged(controller, down).outcome == "promoted"
        step = submit(controller, up)
    line.revoke_operator()
    with line.controller() as controller:
        assert controller.carry_on(step.id).outcome == "superseded"
        assert (controller.line.head, controller.line.valley) == (start, None)
        worse = judged(controller, down)
        assert worse.outcome == "rejected"
    assert line.head() == start.commit


def test_another_repository_in_the_same_home_begins_its_own_line(line: Line) -> None:
    another = line.repo.parent / "another"
    assert make_sample(line.home, another, files=SMALL, shapes=SHAPES[:1]) != line.id


def test_test_cases_whose_names_change_with_each_run_are_expected_of_nobody(tmp_path: Path) -> None:
    """Parameters may be random, or come from code that a promoted change made random."""
    drawn = '\n\nglobals()[f"test_{hash(chr(97))}"] = lambda: None\n'
    tests = SMALL["tests/test_component.py"] + drawn
    line = Line(tmp_path, ("late-rows",), files={**SMALL, "tests/test_component.py": tests})
    with line.controller() as controller:
        assert judged(controller, line.diff(SELECTION, THRIFTY)).outcome == "promoted"


def test_what_a_valley_lets_through_gives_no_later_proposal_more_error_to_spend(
    tmp_path: Path,
) -> None:
    line, made = uuid4(), list[Proposal]()
    for verdict in ("cannot tell", "better", "cannot tell"):
        found = Proposal.submit(
            line=str(line),
            targets={SELECTION: 2},
            diff="0" * 64,
            diff_bytes=1,
            base="0" * 40,
            base_tree="0" * 40,
            rationale="It is better so.",
            trigger="operator_request",
            proposer="a test",
        )
        digests = dict.fromkeys(("manifest", "reference_set"), "0" * 64)
        commits = dict.fromkeys(("commit", "tree", "against"), "0" * 40)
        found.record_branch("b", changes=[], tier=2, configuration_only=False, **digests, **commits)
        found.record_tests(
            passed=True,
            problem=None,
            cases=1,
            missing=(),
            added=(),
            seconds=1.0,
            expected=None,
            output=None,
            isolation=(),
            leftovers=0,
        )
        gains = [verdict] if verdict == "better" else []
        found.evaluate(
            verdict, level=0.01, regressions=[], improvements=gains, reasons=[], comparisons=[]
        )
        found.conclude("promoted", stage="conclude", reason="", checkpoint="c", valley="v")
        made.append(found)
    log = LedgerApplication.open(tmp_path / "ledger", REGISTRY)
    for each in made:
        log.save(each)
    assert ProposalIndex(log, line).earlier(made[-1].id) == [False, True]
    log.close()


def test_line_has_one_controller_at_a_time(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judge.gauntlet.controller._PATIENCE", 0.1)
    with line.controller() as controller, line.controller() as other:
        diff = line.diff(SELECTION, THRIFTY)
        with (
            controller.locked(),
            pytest.raises(GauntletError, match="another process is using this line"),
        ):
            submit(other, diff)
        assert submit(other, diff).outcome is None
