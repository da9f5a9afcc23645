"""One signature for several proposals: what it counts for, and when it no longer does."""

from pathlib import Path

import pytest
from gauntlet_lines import COMPONENT, NAMES, SELECTION, SETTINGS, SMALL, THRIFTY, Line, submit

from aggregates.improvement.proposal import Proposal
from judge.errors import ApprovalError
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller

MANIFEST = "judge/tiers.toml"
FILES = {
    **SMALL,
    MANIFEST: SMALL[MANIFEST]
    .replace('    "retrieval/settings.toml",\n', "")
    .replace('"retrieval/component.py"]', '"retrieval/component.py", "retrieval/settings.toml"]'),
}
PLAIN = "return select(score_documents(documents, query, settings), cap=cap)"
THRIFT = (
    "scored = score_documents(documents, query, settings)\n"
    "    return select([row for row in scored if row[0] > 0], cap=cap)"
)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path, NAMES, files=FILES)


def proposals(line: Line, controller: Controller) -> list[Proposal]:
    """Submit two changes of the component and one of the settings, all of tier 1."""
    thrifty = line.diff(COMPONENT, lambda text: text.replace(PLAIN, THRIFT))
    renamed = line.diff(COMPONENT, lambda text: text.replace("found", "told"))
    penalty = line.diff(SETTINGS, lambda text: text.replace("penalty = 0.0", "penalty = 0.05"))
    return [
        submit(controller, thrifty, {COMPONENT: 1}),
        submit(controller, renamed, {COMPONENT: 1}),
        submit(controller, penalty, {SETTINGS: 1}),
    ]


def test_proposal_outlives_peoples_commits_that_touch_none_of_its_files(line: Line) -> None:
    with line.controller() as controller:
        thrifty, renamed, penalty = proposals(line, controller)
        word = line.word(controller, "approve", penalty)
        reviews.record_review(controller.place, word)
        line.commit(COMPONENT, line.text(COMPONENT).replace("found", "seen"))
        controller.adopt(line.adoption(controller))
        moved = controller.carry_on(penalty.id)
        again = next(each for each in controller.queue() if each.base == line.head())
        assert moved.outcome == "superseded"
        assert f"carried over as {again.id}" in str(moved.reason)
        assert (again.diff, again.targets, again.review) == (penalty.diff, penalty.targets, None)
        assert "an operator must approve it" in str(controller.waits(again))
        reviews.record_review(controller.place, line.word(controller, "approve", again))
        assert controller.waits(controller.place.proposal(again.id)) is None
        # Controls: its file has changed; and it is not people who have moved the line.
        found = controller.carry_on(thrifty.id)
        assert "propose it again from there" in str(found.reason)
        own = submit(controller, line.diff(SELECTION, THRIFTY))
        late = submit(controller, line.diff(COMPONENT, lambda text: text + "\n"), {COMPONENT: 1})
        assert controller.carry_on(own.id).outcome == "promoted"
        found = controller.carry_on(late.id)
        assert "propose it again from there" in str(found.reason)
        assert renamed.base != line.head()


@pytest.mark.slow
def test_batch_is_judged_one_by_one_and_carried_while_no_touched_file_changes(line: Line) -> None:
    with line.controller() as controller:
        thrifty, renamed, penalty = proposals(line, controller)
        reviews.record_batch(controller.place, line.batch(controller, thrifty, renamed, penalty))
        assert controller.carry_on(thrifty.id).outcome == "promoted"
        other = controller.carry_on(renamed.id)
        assert other.outcome == "superseded"
        assert "propose it again from there" in str(other.reason)
        moved = controller.carry_on(penalty.id)
        (again,) = controller.queue()
        assert (moved.outcome, f"carried over as {again.id}" in str(moved.reason)) == (
            "superseded",
            True,
        )
        assert (again.base, again.diff) == (line.head(), penalty.diff)
        found = controller.carry_on(again.id)
        assert (found.outcome, found.verdict) == ("promoted", "better")
        checkpoints = [each.proposals for each in controller.line.checkpoints.values()]
        assert checkpoints == [(), (str(thrifty.id),), (str(again.id),)]
    assert THRIFT in line.text(COMPONENT)
    assert "penalty = 0.05" in line.text(SETTINGS)


@pytest.mark.slow
def test_batch_does_not_count_after_a_change_that_it_does_not_name(line: Line) -> None:
    with line.controller() as controller:
        _, _, penalty = proposals(line, controller)
        reviews.record_batch(controller.place, line.batch(controller, penalty))
        aside = submit(controller, line.diff(SELECTION, THRIFTY), {SELECTION: 2})
        assert controller.carry_on(aside.id).outcome == "promoted"
        found = controller.carry_on(penalty.id)
        assert (found.outcome, "propose it again" in str(found.reason)) == ("superseded", True)


def test_batch_does_not_count_after_a_commit_by_people_or_a_revoked_key(line: Line) -> None:
    with line.controller() as controller:
        thrifty, _, penalty = proposals(line, controller)
        reviews.record_batch(controller.place, line.batch(controller, thrifty, penalty))
        assert [controller.waits(each) for each in controller.queue()][::2] == [None, None]
        line.commit("README.md", "By hand.\n")
        controller.adopt(line.adoption(controller))
        found = controller.carry_on(penalty.id)
        again = controller.queue()[-1]
        assert (found.outcome, str(again.id) in str(found.reason)) == ("superseded", True)
        assert "an operator must approve it" in str(controller.waits(again))
        (fresh,) = (submit(controller, line.diff(SETTINGS, lambda t: t + "\n"), {SETTINGS: 1}),)
        reviews.record_batch(controller.place, line.batch(controller, fresh))
        line.revoke_operator()
        assert "not signed by an operator" in str(controller.waits(controller.queue()[-1]))


@pytest.mark.slow
def test_batch_of_something_else_is_rejected(line: Line) -> None:
    with line.controller() as controller:
        thrifty, renamed, penalty = proposals(line, controller)
        batch = line.batch
        claimed = {"kind": "carried", "proposal": str(penalty.id)}
        posing = controller.submit(
            line.diff(SETTINGS, lambda text: text + "\n"),
            declared={SETTINGS: 1},
            rationale="As approved.",
            trigger="operator_request",
            proposer="a test",
            evidence=[claimed],
        )
        with pytest.raises(ApprovalError, match="carried over from another"):
            batch(controller, thrifty, posing)
        free = submit(controller, line.diff(SELECTION, THRIFTY), {SELECTION: 2})
        with pytest.raises(ApprovalError, match="is not a proposal of tier 1"):
            batch(controller, thrifty, free)
        diff, text = f"diff:{thrifty.id}", f"text_shown:{thrifty.id}"
        for envelope, problem in (
            (batch(controller, thrifty, penalty, **{diff: renamed.diff}), "a different diff:"),
            (batch(controller, thrifty, penalty, **{text: "0" * 64}), "a different text_shown:"),
            (batch(controller, thrifty, base="0" * 40), "a different base"),
            (line.word(controller, "approve", thrifty), "of kind 'approve' is no batch"),
        ):
            with pytest.raises(ApprovalError, match=problem):
                reviews.record_batch(controller.place, envelope)
        for more in ("other", "diff:nobody"):
            with pytest.raises(ApprovalError, match="not these digests"):
                batch(controller, thrifty, **{more: "0" * 64})
        assert {each.review for each in controller.queue()} == {None}
        good = batch(controller, thrifty, penalty)
        reviews.record_review(controller.place, line.word(controller, "reject", penalty))
        with pytest.raises(ApprovalError, match="already answered reject"):
            reviews.record_batch(controller.place, good)
        reviews.record_batch(controller.place, batch(controller, thrifty))
        assert controller.place.proposal(thrifty.id).review == "approve"
