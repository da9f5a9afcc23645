"""What an operator calls a refactoring: promoted if it is no worse and no slower."""

from collections.abc import Iterator
from typing import Any

import pytest
from gauntlet_lines import SELECTION, SMALL, Line, digest_of, submit

from aggregates.improvement.proposal import Proposal
from judge.gauntlet import benchmarking, promotion, reviews
from judge.gauntlet.controller import Controller
from ledger.verification.reader import open_verified
from proctor.sample.repository import NO_SORT, SORT

TIDY = ("    ordered = sorted(scored", "    # The best first.\n    ordered = sorted(scored")
SLOW = (TIDY[0], "    _ = [sum(range(1_000)) for _ in range(8_000)]\n    ordered = sorted(scored")
SLEEP = (TIDY[0], "    from time import sleep\n\n    sleep(0.5)\n    ordered = sorted(scored")
HARM = (SORT, NO_SORT)


@pytest.fixture
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, Controller]]:
    manifest = SMALL["judge/tiers.toml"].replace("imports = [", 'imports = ["time", ')
    line = Line(
        tmp_path_factory.mktemp("refactoring"), files={**SMALL, "judge/tiers.toml": manifest}
    )
    with line.controller() as controller:
        yield line, controller


def judged(line: Line, controller: Controller, change: tuple[str, str], word: str) -> Proposal:
    text = line.text(SELECTION)
    assert change[0] in text
    proposal = submit(controller, line.diff(SELECTION, text.replace(*change)), {SELECTION: 2})
    if word:
        reviews.record_review(controller.place, line.word(controller, word, proposal))
    return controller.carry_on(proposal.id)


@pytest.mark.slow  # test_line_cli.py has it by the command
def test_refactoring_is_promoted_on_an_operators_word(
    controller: tuple[Line, Controller],
) -> None:
    alone = judged(*controller, TIDY, "")
    assert (alone.outcome, alone.verdict) == ("rejected", "cannot tell")
    found = judged(*controller, (TIDY[0], TIDY[1].replace("best", "largest")), "refactor")
    assert (found.outcome, found.verdict) == ("promoted", "no worse")
    assert (found.regressions, found.improvements) == ([], [])
    assert found.reasons[0].startswith("as a refactoring: a loss of 0.1 or 25% more time")
    line = controller[0]
    with open_verified(line.home.path / "ledger"):
        pass


@pytest.mark.parametrize(
    ("change", "verdict", "because"),
    [
        (SLOW, "worse", "times the processor time"),
        (SLEEP, "worse", "times the time"),
        (HARM, "worse", "late-rows: "),
        (TIDY, "cannot tell", "no task is shown to be better"),
    ],
    ids=["slower", "waits", "harm", "approved only"],
)
@pytest.mark.sampled(2)
def test_what_is_no_refactoring_is_not_promoted_as_one(
    controller: tuple[Line, Controller], change: tuple[str, str], verdict: str, because: str
) -> None:
    word = "approve" if change is TIDY else "refactor"
    found = judged(*controller, change, word)
    assert (found.outcome, found.verdict) == ("rejected", verdict)
    assert because in str(found.reason)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["approve", "reject"])
def test_another_word_before_the_promotion_moves_nothing(
    controller: tuple[Line, Controller], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    line, one = controller
    text, before = line.text(SELECTION), line.head()
    proposal = submit(one, line.diff(SELECTION, text.replace(*TIDY)), {SELECTION: 2})
    soon = line.word(one, "refactor", proposal, expires=line.now + 60)
    reviews.record_review(one.place, soon)
    expire_during_the_benchmark(line, monkeypatch)
    found = one.carry_on(proposal.id)
    assert (found.outcome, found.verdict) == (None, "no worse")
    reviews.record_review(one.place, line.word(one, word, found))
    found = one.carry_on(proposal.id)
    assert line.head() == before
    if word == "reject":
        assert found.outcome == "rejected"
        return
    assert "sign `refactor` again" in str(one.waits(found))
    reviews.record_review(one.place, line.word(one, "refactor", found))
    assert one.carry_on(proposal.id).outcome == "promoted"


def tidied(line: Line, controller: Controller) -> Proposal:
    """Propose a refactoring, and sign it as one."""
    diff = line.diff(SELECTION, lambda text: text.replace(*TIDY))
    proposal = submit(controller, diff, {SELECTION: 2})
    return reviews.record_review(controller.place, line.word(controller, "refactor", proposal))


def expire_during_the_benchmark(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = benchmarking.benchmark

    def then_wait(*arguments: Any) -> None:
        benchmark(*arguments)
        line.now += 100

    monkeypatch.setattr(benchmarking, "benchmark", then_wait)


def test_another_word_between_move_and_record_brings_the_branch_back(
    controller: tuple[Line, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, one = controller
    before = line.head()
    proposal = tidied(line, one)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(promotion, "_record_promotion", killed)
        with pytest.raises(KeyboardInterrupt):
            one.carry_on(proposal.id)
    assert line.head() != before
    found = one.place.proposal(proposal.id)
    reviews.record_review(one.place, line.word(one, "approve", found))
    found = one.carry_on(proposal.id)
    assert line.head() == before
    assert "sign `refactor` again" in str(one.waits(found))


@pytest.mark.slow
def test_word_that_comes_while_answers_do_holds(
    controller: tuple[Line, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, one = controller
    proposal = tidied(line, one)
    keep, count = benchmarking._keep, 0

    def then_approve(*arguments: Any) -> Proposal:
        nonlocal count
        count += 1
        found = keep(*arguments)
        if count == 5:
            reviews.record_review(one.place, line.word(one, "approve", found))
        return found

    monkeypatch.setattr(benchmarking, "_keep", then_approve)
    found = one.carry_on(proposal.id)
    assert (found.outcome, found.verdict) == ("rejected", "cannot tell")
    # Under another word it can be proposed again.
    again = tidied(line, one)
    monkeypatch.undo()
    assert one.carry_on(again.id).outcome == "promoted"


@pytest.mark.slow
def test_refactoring_does_not_cross_a_valley(controller: tuple[Line, Controller]) -> None:
    line, one = controller
    diff = line.diff(SELECTION, line.text(SELECTION).replace(*TIDY))
    reviews.open_valley(one.place, line.valley(one, digest_of(diff)))
    proposal = submit(one, diff, {SELECTION: 2})
    reviews.record_review(one.place, line.word(one, "refactor", proposal))
    found = one.carry_on(proposal.id)
    assert (found.outcome, found.verdict) == ("rejected", "cannot tell")


@pytest.mark.slow
def test_refactoring_waits_while_the_key_that_signed_it_is_not_in_force(
    controller: tuple[Line, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, one = controller
    proposal = tidied(line, one)
    line.revoke_operator()
    found = one.carry_on(proposal.id)
    assert (found.outcome, found.verdict) == (None, "no worse")
    assert "tier 2" in str(one.waits(found))
